"""The segment that a broker writes, backed up as it grows: judged and stored from where the last round ended.

Whole pieces (PIECE_SIZE) are stored once. What comes after the last whole one is stored in parts, a part a round, so
that a round writes about what came since the last one and not the piece again. Sixteen parts are joined to one, and
sixteen of those again: so there are at most some fifty, and a byte is stored again once for each such level.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.backup.create.judging import judge_segment
from engine.backup.manifest import JOINED, PIECE_SIZE, BackedUpDamage, SegmentPieces
from engine.dataclass import dataclass
from engine.errors import StorageError

if TYPE_CHECKING:
    from engine.backup.create.pieces import PieceWriter
    from engine.files.disk import Disk
    from engine.log.scan import Scanner
    from engine.log.source import ClosedLog, Segment

_MOST_ALIKE = 15
"""With the one that is stored just now sixteen."""
MARK = 256
"""Bytes before the log end that tell it from another one."""


class SegmentPart(NamedTuple):
    """Bytes after the last whole piece: the object's name, how many, and how often they were joined."""

    name: str
    length: int
    level: int


@dataclass(slots=True)
class GrowingSegment:
    """See the module. Up to physical offset `end` its records are proved, and stored.

    Attributes:
        pieces: whole ones from the segment's start on; `parts`: what comes after them.
        mark: the last bytes before `end`: where they are others, the broker has lost the log end and written another.
    """

    segment: Segment
    end: int
    pieces: list[str | None] = field(default_factory=list)
    parts: list[SegmentPart] = field(default_factory=list)
    records: int = 0
    messages: int = 0
    first_time: int = 0
    newest_time: int = 0
    damage: list[BackedUpDamage] = field(default_factory=list)
    unreadable: bool = False
    mark: bytes = b""

    def copy(self) -> GrowingSegment:
        """The same, which `advance` of this one does not change."""
        return replace(self, pieces=list(self.pieces), parts=list(self.parts), damage=list(self.damage))

    def is_still_there(self, log: ClosedLog) -> bool:
        """Whether the log has what was stored. Raises StorageError."""
        return bytes(log.read(self.end - len(self.mark), len(self.mark))) == self.mark if self.mark else True

    def advance(
        self, disk: Disk, log: ClosedLog, scanner: Scanner, writer: PieceWriter, *, left: bool, jobs: int | None
    ) -> None:
        """Judge and store what came; `left`: the broker has begun another segment, so this one is complete.

        Raises:
            StorageError: what was stored by then is to be forgotten.
        """
        segment = self.segment
        judged = judge_segment(disk, log, scanner, segment, live=not left, jobs=jobs, start=self.end)
        self.records += judged.records
        self.messages += judged.messages
        self.first_time = self.first_time or judged.first_time
        self.newest_time = max(self.newest_time, judged.newest_time)
        self.damage += judged.damage
        unreadable = writer.unreadable
        self._store(log, writer, segment.end if left else judged.end, left=left)
        self.unreadable |= judged.unreadable or writer.unreadable > unreadable

    def made(self, *, left: bool) -> SegmentPieces:
        """What the segment is made of."""
        rest = [JOINED.join(part.name for part in self.parts)] if self.parts else []
        segment = self.segment
        return SegmentPieces(
            segment.offset,
            segment.size,
            self.end - segment.offset,
            (*self.pieces, *rest),
            self.records,
            self.messages,
            self.first_time,
            self.newest_time,
            left and not self.unreadable,
            tuple(self.damage),
        )

    def _store(self, log: ClosedLog, writer: PieceWriter, upto: int, *, left: bool) -> None:
        base = self.segment.offset + len(self.pieces) * PIECE_SIZE
        whole = upto - base if left else (upto - base) // PIECE_SIZE * PIECE_SIZE
        if whole:
            first = base
            self.pieces += writer.put(lambda at, length: log.read(first + at, length), whole)
            self.parts.clear()
            base += whole
        begin = base + sum(part.length for part in self.parts)
        if upto > begin:
            level = 0
            while len(self.parts) >= _MOST_ALIKE and self.parts[-_MOST_ALIKE].level == level:
                begin -= sum(part.length for part in self.parts[-_MOST_ALIKE:])
                del self.parts[-_MOST_ALIKE:]
                level += 1
            data = log.read(begin, upto - begin)
            if len(data) < upto - begin:
                raise StorageError(f"the log ends at {begin + len(data)}, while it is read up to {upto}")
            self.parts.append(SegmentPart(writer.put_part(data), len(data), level))
        if upto > self.end:
            self.end = upto
            self.mark = bytes(log.read(max(self.segment.offset, upto - MARK), min(MARK, upto - self.segment.offset)))
