"""What a segment holds: its records counted, their times, its damage. And where the log of a running broker ends."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from engine.backup.manifest import BackedUpDamage
from engine.dataclass import dataclass
from engine.files.written import is_zeros
from engine.format.judge import Reason
from engine.inspect.check.verify import judge_tail, settled_events
from engine.log.ahead import scan_ahead
from engine.log.scan import Damage, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.log.scan import Event, Scanner
    from engine.log.source import ClosedLog, Segment

_LOOK = 1 << 20
Figures: TypeAlias = tuple[int, int, int, int]
"""Of a batch: records, messages, the first and the newest storeTimestamp (ms)."""


@dataclass(slots=True)
class JudgedSegment:
    """See the module. Times are storeTimestamps, ms; `end`: physical offset after the last sound record.

    `unreadable`: whether the system could not read some of it.
    """

    end: int
    records: int = 0
    messages: int = 0
    first_time: int = 0
    newest_time: int = 0
    damage: list[BackedUpDamage] = field(default_factory=list)
    unreadable: bool = False


def judge_segment(
    disk: Disk,
    log: ClosedLog,
    scanner: Scanner,
    segment: Segment,
    *,
    live: bool,
    jobs: int | None,
    start: int | None = None,
) -> JudgedSegment:
    """Judge a segment. `live`: a broker writes at its end: what comes after its last proved record is no damage.

    `start`: physical offset of the record to begin with; None: the segment's first.

    A record is proved when it is sound and the parts that no CRC covers hold no zeros: a broker copies a record into
    its file from the front, and one that is being copied may have its body and not yet its properties.

    Raises:
        StorageError: beside what a scan reports as damage.
    """
    start = segment.offset if start is None else start
    judged = JudgedSegment(start)
    held: list[Damage] = []
    last: RecordBatch | None = None
    for event, figures in _events(disk, log, scanner, start, segment.end, live=live, jobs=jobs):
        if isinstance(event, RecordBatch) and figures is not None:
            records, messages, first, newest = figures
            judged.damage += [_range(one) for one in held]
            held.clear()
            judged.first_time = judged.first_time or max(0, first)  # no CRC covers it: it may say anything
            judged.newest_time = max(judged.newest_time, newest)
            judged.records += records
            judged.messages += messages
            judged.end, last = event.end, event
        elif isinstance(event, Damage):
            judged.unreadable |= event.reason is Reason.UNREADABLE
            held.append(event)
    if live and last is not None and not _is_proved(last):
        judged.end = last.offset(-1)
        judged.records -= 1
        judged.messages -= int(last.consumable()[-1])
    judged.damage += [BackedUpDamage(bad.offset, bad.length, bad.reason) for bad in judge_tail(log, held, live)]
    return judged


def _events(
    disk: Disk, log: ClosedLog, scanner: Scanner, start: int, end: int, *, live: bool, jobs: int | None
) -> Iterator[tuple[Event, Figures | None]]:
    """A segment's events, batches with their figures; what is written meanwhile is read again (settled_events)."""
    if not live:
        yield from scan_ahead(scanner, start, end, prepare=_figures, resume=True, threads=jobs)
        return
    for event in settled_events(disk, scanner, start, _written_upto(log, start, end), live=True):
        yield event, _figures(event) if isinstance(event, RecordBatch) else None


def _written_upto(log: ClosedLog, start: int, end: int) -> int:
    """Where zeros begin that a broker has not written to yet, a little after its last record."""
    at = start
    while at < end:
        data = log.read(at, min(_LOOK, end - at))
        if is_zeros(data):
            break
        at += len(data)
    return at


def _figures(batch: RecordBatch) -> Figures:
    return len(batch), batch.messages, batch.first_store_timestamp, batch.newest_store_timestamp


def _is_proved(batch: RecordBatch) -> bool:
    last = len(batch) - 1
    return b"\0" not in batch.topic(last) and b"\0" not in batch.properties(last)


def _range(damage: Damage) -> BackedUpDamage:
    return BackedUpDamage(damage.offset, damage.length, damage.reason.value)
