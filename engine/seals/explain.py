"""What a changed range of a segment touches, as far as the judge of records can tell: which records, and which field.

A page that differs from its seal says that some byte of it changed, and not which. Where a record that the page touches
has no sound body any more, it is the body or the header; where all of them are sound, their bodies are what their CRC
says, so it is a header or properties, which no CRC covers.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.judge import Reason
from engine.log.doubts import doubts_of
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.log.source import Segment

BODY, HEADER, UNCOVERED, BLANK, RECORD = "body", "header", "header or properties", "blank record", "record"
UNCOVERED_OR_BLANK = "header, properties or blank record"
"""Fields, as reports name them. RECORD: the judge can't tell which."""
_OF_HEADER = (Reason.MAGIC, Reason.SIZE, Reason.LENGTHS, Reason.BLANK_LENGTH, Reason.EMPTY, Reason.CUT)


@dataclass(frozen=True, slots=True)
class Explained:
    """What lies in a range now.

    Attributes:
        records: how many records, sound or not, it touches.
        first: physical offset of the first of them; None: none.
        field: one of the fields above; None: nothing is known.
        reason: why a record is not sound, or suspect; "" where all are sound.
    """

    records: int = 0
    first: int | None = None
    field: str | None = None
    reason: str = ""


def explain(
    disk: Disk, segment: Segment, ranges: Sequence[tuple[int, int]], *, max_message_size: int
) -> list[Explained]:
    """One answer for each range (physical offset, bytes), which lie in the segment. Raises StorageError."""
    asked = [_Range(offset, offset + length) for offset, length in ranges]
    with ClosedLog(disk, [segment]) as log:
        for event in Scanner(log, max_message_size=max_message_size).scan(segment.offset, segment.end, resume=True):
            if isinstance(event, RecordBatch):
                touched = [one for one in asked if one.start < event.end and event.start < one.end]
                if touched:
                    _of_batch(event, touched)
            elif isinstance(event, Damage | Blank):
                for one in asked:
                    if one.start < event.end and event.offset < one.end:
                        one.add_other(event)
    return [one.explained() for one in asked]


class _Range:
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._records = 0
        self._first: int | None = None
        self._damage: Damage | None = None
        self._suspect = ""
        self._blank = False

    def add(self, count: int, first: int, suspect: str) -> None:
        """Sound records that it touches, and why one of them is suspect."""
        self._records += count
        self._note(first)
        self._suspect = self._suspect or suspect

    def add_other(self, event: Damage | Blank) -> None:
        """What is no record there."""
        self._note(event.offset)
        if isinstance(event, Blank):
            self._blank = True
        else:
            self._records += 1
            self._damage = self._damage or event

    def explained(self) -> Explained:
        """The answer."""
        if self._damage is not None:
            reason = self._damage.reason
            field = BODY if reason is Reason.CRC else HEADER if reason in _OF_HEADER else RECORD
            return Explained(self._records, self._first, field, reason.value)
        if self._records:
            field = UNCOVERED_OR_BLANK if self._blank else UNCOVERED
            return Explained(self._records, self._first, field, self._suspect)
        return Explained(0, self._first, BLANK) if self._blank else Explained()

    def _note(self, offset: int) -> None:
        self._first = offset if self._first is None else min(self._first, offset)


def _of_batch(batch: RecordBatch, touched: list[_Range]) -> None:
    offsets = [int(offset) for offset in batch.offsets()]
    doubts = [doubt for doubt in doubts_of(batch) if not doubt.unusual]
    for one in touched:
        low = max(0, bisect.bisect_right(offsets, one.start) - 1)
        high = bisect.bisect_left(offsets, one.end)
        suspect = next(
            (doubt.reason for doubt in doubts if doubt.offset < one.end and one.start < doubt.offset + doubt.size), ""
        )
        if high > low:
            one.add(high - low, offsets[low], suspect)
