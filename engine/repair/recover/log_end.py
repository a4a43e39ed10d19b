"""Where the log ends, and what prevents that: from which segment recovery reads, what is a torn tail, what is damage.

Source of the starting segment: CommitLog#recoverNormally (third last file), CommitLog#isMappedFileMatchedRecover.
A break is a torn tail when no sound record lies after it up to the end of the last segment; else it is damage in the
middle, and the operator has to choose (RECOVERY.md, "Damage in the log").
"""

from __future__ import annotations

import enum
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, Refused
from engine.format.judge import Reason
from engine.inspect.store.log_clock import store_time_at
from engine.log.batch_queues import by_queue
from engine.log.derive import TopicQueue
from engine.log.scan import MISSING_SEGMENT, Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.log.state import NORMAL_FILES
from engine.repair.recover.memory import Derived, PlannedReading, Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.inspect.check.stale_tail import StaleJudge, StaleTail
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import ClosedLog, Segment

Feed: TypeAlias = "Callable[[RecordBatch | Remembered, Derived | None], None]"


class Mode(enum.Enum):
    """How the store was left: closed cleanly, or not (an abort file)."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of the log (physical offset, length) that hold no sound record, in which file, and why."""

    offset: int
    length: int
    path: str
    reason: str


@dataclass(slots=True)
class LogEnd:
    """What reading the log to its end found.

    `end`: physical offset after the last record that stays. `after`: sound records and bytes by queue that lie after
    a break and don't stay. `gaps`: missing segments that the log continues after. `stale`: whole records after the end
    that are none of the log's.
    `closed`: a blank record closes the last file there, whose next one could not be made (a full disk).
    """

    end: int
    records: int = 0
    messages: int = 0
    damage: list[DamagedRange] = field(default_factory=list)
    gaps: list[DamagedRange] = field(default_factory=list)
    after: dict[TopicQueue, tuple[int, int]] = field(default_factory=dict)
    last_store_timestamp: int = 0
    cut: bool = False
    stale: StaleTail | None = None
    closed: bool = False

    @property
    def records_after(self) -> int:
        """Messages that lie after the break: records that a queue gets, not those that are prepared or rolled back."""
        return sum(records for records, _ in self.after.values())


def start_segment(files: StoreFiles, log: ClosedLog, mode: Mode) -> Segment:
    """The segment from which recovery reads."""
    if mode is Mode.NORMAL:
        return files.log[max(0, len(files.log) - NORMAL_FILES)]
    point = files.checkpoint
    safe_index = files.config.message_index_enable and files.config.message_index_safe
    limit = point.min_timestamp_index if safe_index else point.min_timestamp
    for segment in reversed(files.log):
        stored = store_time_at(log, segment.offset)
        if stored and stored <= limit:
            return segment
    return files.log[0]


def read_to_end(
    files: StoreFiles,
    reading: PlannedReading,
    start: Segment,
    stale: StaleJudge,
    is_shifted: Callable[[Damage], bool],
    *,
    cut: bool,
    feed: Feed,
) -> LogEnd:
    """Read the log from `start` on, feeding every sound record that stays, with what it derives to.

    With `cut` the log ends at the first damage; without it, too, but `records_after` tells that it must not. It ends
    where a stale tail begins, as `stale` judges. `is_shifted`: whether records after a damage in its segment lie off
    their place.
    """
    log_end = LogEnd(start.offset)
    contiguous = {segment.offset for segment in files.log}
    gap: Gap | None = None
    for event, derived in reading.events(start.offset):
        if isinstance(event, RecordBatch | Remembered):
            if gap is not None:
                log_end.gaps.append(_missing(files, gap))
                gap = None
            if (
                isinstance(event, RecordBatch)
                and (tail := stale.within(event, log_end.last_store_timestamp)) is not None
            ):
                count, log_end.stale = tail
                if count:
                    head = event.first(count)
                    feed(head, reading.derive(head))
                    log_end.records += count
                    log_end.messages += head.messages
                    log_end.end, log_end.last_store_timestamp = head.end, head.last_store_timestamp
                return log_end
            feed(event, derived)
            log_end.records += len(event)
            log_end.messages += event.messages
            log_end.end, log_end.last_store_timestamp = _reached(event, contiguous)
            log_end.closed = isinstance(event, Remembered) and log_end.end < event.end
        elif isinstance(event, Blank):
            log_end.closed = event.end not in contiguous
            log_end.end = event.offset if log_end.closed else event.end
        elif isinstance(event, Gap):
            gap = event
        else:
            _judge(files, reading.scanner, stale, is_shifted, log_end, event, gap, cut)
    return log_end


def read_until(files: StoreFiles, reading: PlannedReading, start: Segment, to: int, *, feed: Feed) -> LogEnd:
    """Read the log from `start` up to the physical offset `to`, where it is to end, feeding every sound record before.

    What lies after `to` is counted (`after`). Damage before it ends the reading: it is in `damage` then.

    Raises:
        Refused: `to` lies in the middle of a record; its two ends are named. InvalidArgument: the log ends before `to`.
    """
    log_end = LogEnd(start.offset)
    contiguous = {segment.offset for segment in files.log}
    for event, derived in reading.events(start.offset, to):
        if isinstance(event, RecordBatch | Remembered):
            if isinstance(event, RecordBatch) and event.end > to:
                raise _no_boundary(to, event.last[0], event.end)
            feed(event, derived)
            log_end.records += len(event)
            log_end.messages += event.messages
            log_end.end, log_end.last_store_timestamp = _reached(event, contiguous)
        elif isinstance(event, Blank):
            if event.offset < to < event.end:
                raise _no_boundary(to, event.offset, event.end)
            log_end.end = event.end if event.end in contiguous else event.offset
        elif isinstance(event, Gap):
            log_end.gaps.append(_missing(files, event))
            log_end.end = event.end
        else:
            if reading.scanner.find_sound_after(event) is None:
                raise _after_the_end(to, event.offset)
            log_end.damage.append(DamagedRange(event.offset, event.length, event.segment.path, event.reason.value))
            log_end.end = event.offset
            return log_end
    if log_end.end < to:
        raise _after_the_end(to, log_end.end)
    for found_after in reading.scanner.scan(to, resume=True):
        if isinstance(found_after, RecordBatch):
            _count(log_end, found_after)
    log_end.cut = True
    return log_end


def _reached(event: RecordBatch | Remembered, contiguous: set[int]) -> tuple[int, int]:
    """Physical offset after the last record (or its file's blank, where the log continues), and its store time (ms)."""
    if isinstance(event, RecordBatch):
        return event.end, event.last_store_timestamp
    return event.end if event.end in contiguous else sum(event.last), event.last_store_timestamp


def segment_before(files: StoreFiles, to: int) -> Segment:
    """The segment that holds the byte before the physical offset `to`; the first one when `to` is where it begins."""
    return next((segment for segment in reversed(files.log) if segment.offset < to), files.log[0])


def offset_after_time(log: ClosedLog, scanner: Scanner, timestamp: int) -> int | None:
    """Physical offset of the first record stored later than `timestamp` (ms), None when there is none.

    Exact: read from the log's first record on, as clocks go back: no file's first record vouches for the rest of it.
    """
    for event in scanner.scan(log.segments[0].offset, resume=True):
        if isinstance(event, RecordBatch) and event.newest_store_timestamp > timestamp:
            return event.offset(int((event.store_timestamps() > timestamp).argmax()))
    return None


def _no_boundary(to: int, start: int, end: int) -> Refused:
    return Refused(
        f"offset {to} is inside the record {start}–{end}",
        offset=to,
        hint=f"cut before it with --to-offset {start}, or after it with --to-offset {end}",
    )


def _after_the_end(to: int, end: int) -> InvalidArgument:
    return InvalidArgument(f"offset {to} is after the log end, {end}", hint="there is nothing to cut")


def gaps_before(files: StoreFiles, start: Segment) -> list[DamagedRange]:
    """Segments that are missing before the one from which recovery reads."""
    return [
        _missing(files, Gap(one.end, two.offset - one.end))
        for one, two in pairwise(files.log)
        if one.end < two.offset <= start.offset
    ]


def next_start(files: StoreFiles, end: LogEnd) -> int:
    """Physical offset where a normal start of the recovered store begins to read.

    A crash or a cut makes the third last file another one than recovery began with.
    """
    left = [segment for segment in files.log if segment.offset <= end.end] or files.log
    return left[max(0, len(left) - NORMAL_FILES)].offset


def damage_between(scanner: Scanner, start: int, end: int) -> list[DamagedRange]:
    """The damage in [start, end) of the log; none where that is no range."""
    return [
        DamagedRange(event.offset, event.length, event.segment.path, event.reason.value)
        for event in (scanner.scan(start, end, resume=True) if start < end else ())
        if isinstance(event, Damage)
    ]


def _judge(
    files: StoreFiles,
    scanner: Scanner,
    stale: StaleJudge,
    is_shifted: Callable[[Damage], bool],
    log_end: LogEnd,
    damage: Damage,
    gap: Gap | None,
    cut: bool,
) -> None:
    """A break at `damage`: the torn tail, or damage with sound records after it.

    What the system can't read is never taken for a torn tail: nobody knows what is there.
    """
    sound = scanner.find_sound_after(damage)
    if sound is None and damage.reason is not Reason.UNREADABLE and not is_shifted(damage):
        return
    if sound is not None and gap is None and damage.reason is not Reason.UNREADABLE:
        log_end.stale = stale.judge(damage.offset, log_end.last_store_timestamp)
        if log_end.stale is not None:
            return
    log_end.cut = cut
    if gap is None:
        log_end.end = damage.offset
    elif not cut:  # else the log ends before the missing segments: nothing sound lies between them and the damage
        log_end.gaps.append(_missing(files, gap))
        log_end.end = damage.offset
    if sound is None:
        length = damage.segment.end - damage.offset
        log_end.damage.append(DamagedRange(damage.offset, length, damage.segment.path, damage.reason.value))
        return
    for event in _breaks(scanner, damage):
        if isinstance(event, RecordBatch):
            _count(log_end, event)
        elif isinstance(event, Damage):
            log_end.damage.append(DamagedRange(event.offset, event.length, event.segment.path, event.reason.value))
        elif isinstance(event, Gap):
            log_end.gaps.append(_missing(files, event))


def _breaks(scanner: Scanner, damage: Damage) -> Iterator[Event]:
    """Everything from the first break on; the empty rest after the last record is no damage."""
    held: list[Event] = []
    for event in scanner.scan(damage.offset, resume=True):
        if isinstance(event, RecordBatch):
            yield from held
            held = []
            yield event
        else:
            held.append(event)


def _count(log_end: LogEnd, batch: RecordBatch) -> None:
    import numpy as np

    sizes = batch.sizes()
    for queue, mine in by_queue(batch, np.flatnonzero(batch.consumable())):
        records, size = log_end.after.get(queue, (0, 0))
        log_end.after[queue] = (records + len(mine), size + int(sizes[mine].sum()))


def _missing(files: StoreFiles, gap: Gap) -> DamagedRange:
    before = max((s for s in files.log if s.end <= gap.offset), key=lambda s: s.end)
    return DamagedRange(gap.offset, gap.length, before.path, MISSING_SEGMENT)
