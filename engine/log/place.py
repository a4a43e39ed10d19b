"""What lies at an offset of the log where no record begins: the middle of one, a blank, damage, missing files, nothing.

Who asks for a message by its place learns which: a wrong number is one thing, a damaged log another.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.judge import Reason
from engine.log.boundary import Boundaries
from engine.log.scan import Blank, Damage, RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.log.source import SegmentedLog


class Lies(enum.Enum):
    """What a range of the log is."""

    RECORD = "a record"
    BLANK = "the blank record that closes a file"
    DAMAGE = "damage"
    HEADER = "the header of a DLedger entry"
    """Its record begins where this ends."""
    GAP = "a gap (missing segments)"
    NOTHING = "nothing"
    """Outside of the log."""


@dataclass(frozen=True, slots=True)
class Place:
    """A range of the log: physical offsets [start, end). `path`: its file; `reason`: of damage."""

    lies: Lies
    start: int = 0
    end: int = 0
    path: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        """What is there, after "offset 5 is"."""
        if self.lies is Lies.NOTHING:
            return "outside of the log"
        if self.lies is Lies.DAMAGE:
            return f"in a damaged range of the log ({self.reason})"
        return f"inside {self.lies.value}, {self.start} to {self.end}"


def place_at(source: SegmentedLog, offset: int, log_end: int, *, max_message_size: int, check_crc: bool) -> Place:
    """What covers a physical offset. A few MiB are read, more only where nothing tells where a record begins.

    Args:
        source: the log.
        offset: physical.
        log_end: physical offset after its last record: zeros there are no damage.
        max_message_size: setting maxMessageSize, bytes.
        check_crc: whether a record whose body has not its CRC is damage.

    Raises:
        StorageError.
    """
    segment = source.segment_at(offset)
    if segment is None:
        before = [one.end for one in source.segments if one.end <= offset]
        after = [one.offset for one in source.segments if one.offset > offset]
        return Place(Lies.GAP, max(before), min(after)) if before and after else Place(Lies.NOTHING)
    path = segment.path
    start = Boundaries(source, max_message_size=max_message_size, check_crc=check_crc).before(segment, offset)
    scanner = Scanner(source, check_crc=check_crc, max_message_size=max_message_size)
    for event in scanner.scan(start, offset + segment.before_record + 1, resume=True):
        if event.end <= offset:
            continue
        if isinstance(event, RecordBatch):
            places = event.offsets()
            i = int(places.searchsorted(offset, side="right")) - 1
            begin = event.offset(i) if i >= 0 else event.start
            if segment.in_entries and (i < 0 or offset >= begin + len(event.record(i))):
                record_at = event.offset(i + 1)
                return Place(Lies.HEADER, record_at - segment.before_record, record_at, path)
            return Place(Lies.RECORD, begin, begin + len(event.record(i)), path)
        if isinstance(event, Blank):
            return Place(Lies.BLANK, event.offset, event.end, path)
        if isinstance(event, Damage) and not (event.reason is Reason.EMPTY and offset >= log_end):
            return Place(Lies.DAMAGE, event.offset, event.end, path, event.reason.value)
    return Place(Lies.NOTHING)
