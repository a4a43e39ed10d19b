"""Every whole record of a log, also after damage and away from its own place; and every byte that is in none.

A record is *sound* when the scanner finds it: in the chain of records from a file's start, or after damage where its
own physicalOffset is its place. What is left of the damage is searched once more, for records that are whole (magic,
lengths, CRC) but name another place: content that lost bytes have shifted, or that belongs to another file. These are
*displaced*. A copy of a record inside a damaged body looks the same, so nobody should take them for messages unasked.
Whole records there that do name their place are none: they lie within what a damaged record claims (engine.log.claim).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.format.message import ENCODE_OVERHEAD
from engine.inspect.check.verify import judge_tail, live_end, settled_events
from engine.inspect.store.record_search import whole
from engine.log.scan import MISSING_SEGMENT, Blank, Damage, Gap, RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.log.source import LogSource, Segment


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes [offset, offset + length) of the log (physical) that are in no sound record, and why.

    `segment`: the file that they lie in; None when that is missing.
    """

    offset: int
    length: int
    reason: str
    segment: Segment | None

    @property
    def end(self) -> int:
        """Physical offset after the last of them."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Displaced:
    """Whole records inside a lost range, none of which names the place where it lies."""

    batch: RecordBatch


Found: TypeAlias = RecordBatch | Blank | Lost | Displaced


def whole_records(
    disk: Disk,
    log: LogSource,
    start: int,
    end: int | None = None,
    *,
    max_message_size: int,
    live: bool = False,
) -> Iterator[Found]:
    """What lies in the log from the physical offset `start` (a record's) up to `end`, in log order.

    A lost range comes before the displaced records in it. Zeros after the last sound record are not lost, they were
    never written. `live`: another process writes the log; its end is not judged.
    """
    scanner = Scanner(log, max_message_size=max_message_size)
    end = live_end(log, end) if live else end
    held: list[Damage | Gap] = []
    for event in settled_events(disk, scanner, start, end, live=live):
        if isinstance(event, Damage | Gap):
            held.append(event)
            continue
        for one in held:
            yield from _lost(log, _as_lost(one), max_message_size)
        held.clear()
        yield event
    for one in held:
        if isinstance(one, Gap):
            yield _as_lost(one)
            continue
        for bad in judge_tail(log, [one], live):
            yield from _lost(log, Lost(bad.offset, bad.length, bad.reason, one.segment), max_message_size)


def _as_lost(event: Damage | Gap) -> Lost:
    if isinstance(event, Gap):
        return Lost(event.offset, event.length, MISSING_SEGMENT, None)
    return Lost(event.offset, event.length, event.reason.value, event.segment)


def _lost(log: LogSource, lost: Lost, max_message_size: int) -> Iterator[Found]:
    yield lost
    if lost.segment is None:
        return
    for low, high in log.data_ranges(lost.segment, lost.offset):
        if low >= lost.end:
            return
        yield from _displaced(log, max(low, lost.offset), min(high, lost.end), max_message_size + ENCODE_OVERHEAD)


def _displaced(log: LogSource, start: int, end: int, largest: int) -> Iterator[Displaced]:
    for batch in whole(log, start, end, largest):
        rows = [row for row in batch.rows if row.stored_offset != batch.base + row.position]
        if rows:
            yield Displaced(RecordBatch(batch.base, batch.buffer, rows))


def batches(events: Iterable[Found]) -> Iterable[tuple[RecordBatch, bool]]:
    """The records among what `whole_records` yields; whether they are displaced."""
    for one in events:
        if isinstance(one, RecordBatch):
            yield one, False
        elif isinstance(one, Displaced):
            yield one.batch, True
