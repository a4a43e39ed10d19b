"""How the logs of stores are cut into splits, and how an executor reads one: the union is the engine's scan.

Theory. A split is a range of one segment between two wishes, in bytes. Who reads it looks for the boundaries at both
(engine.log.boundary): they depend on the bytes alone, so neighbours agree without having talked. What lies between two
boundaries is scanned as always; that the scan ends just where the next split begins is checked, every time.

Damage before the last sound record is damage; after it, it may be the log's unwritten rest: that only who has all
splits of a store can say. `Part`s are merged for that (engine.inspect.check.verify).

Planning reads of the log only what tells where it ends. That freezes it: what a broker adds later is for the next plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.files.disk import Disk
from engine.log.boundary import Boundaries
from engine.log.scan import Blank, Scanner, kernels_if_loaded
from engine.log.source import ClosedLog
from engine.log.tally import RecordCounter, Tally, tallied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.log.scan import Event
    from engine.log.source import Segment
    from engine.pipeline.stores import StoreRef

SPLIT_BYTES = 128 << 20
_TAIL = 64 << 20
_FETCHED_TAIL = 8 << 20
"""The same of a snapshot's segment: two pieces or three, before the end of what it holds."""


@dataclass(frozen=True, slots=True)
class Split:
    """A range of one segment of a store's log, from wish to wish (physical offsets).

    Attributes:
        store: whose.
        index: its place among all splits of its store, from 0.
        segment: the file.
        start, end: wishes; the boundaries at or after them are where it is read.
        log_end: records that start here or later are not read, in no split.
        known: `start` is no wish, but a place where the scan stops.
    """

    store: StoreRef
    index: int
    segment: Segment
    start: int
    end: int
    log_end: int
    known: bool = False


def plan_splits(
    stores: Iterable[StoreRef],
    *,
    split_bytes: int = SPLIT_BYTES,
    start: int = 0,
    end: int | None = None,
    known: bool = False,
) -> list[Split]:
    """The splits of all stores, each store's in log order.

    Args:
        stores: whose logs.
        split_bytes: bytes of a split, about; at least 1.
        start: records before this physical offset are not asked for.
        end: nor those from here on (default: the end of the last file, with what is unwritten in it).
        known: `start` is a place where the scan stops (`log_end` of an earlier plan, a boundary).

    Raises:
        InvalidArgument: no such size of splits.
    """
    if split_bytes < 1:
        raise InvalidArgument(f"splitBytes = {split_bytes} is invalid", hint="must be ≥ 1, for example 128M")
    splits: list[Split] = []
    for store in stores:
        count = 0
        for segment in store.segments:
            until = segment.end if end is None else min(end, segment.end)
            at = max(start, segment.offset)
            while at < until:
                stop = min(at + split_bytes, until)
                if until - stop < split_bytes // 4:
                    stop = until
                last = segment.end if stop == until else stop
                splits.append(Split(store, count, segment, at, last, until, known and at == start))
                count += 1
                at = stop
    return splits


def log_end(store: StoreRef, disk: Disk, *, start: int | None = None) -> int:
    """Physical offset after the last sound record of a store, or after the blank that closes its file.

    The first file's offset when there is no record, 0 without a file. Reads the end of the last file with a record:
    from a boundary on, as a scan from the file's start stops there, too. A record that is being written has no CRC
    yet: it is for the next plan.

    Args:
        store: whose log.
        disk: how files are reached.
        start: a place where the scan stops, before the end: nothing before it is read, and it is the end when
            nothing sound follows.

    Raises:
        StorageError.
    """
    with ClosedLog(disk, store.segments) as log:
        for segment in reversed(store.segments):
            if start is not None and segment.end <= start:
                break
            end = _end_in(store, log, segment, start)
            if end is not None:
                return end
    if start is not None:
        return start
    return store.segments[0].offset if store.segments else 0


def _end_in(store: StoreRef, log: ClosedLog, segment: Segment, start: int | None) -> int | None:
    """The end of what is sound in a segment, None when nothing is."""
    limit = store.config.max_message_size
    boundaries = Boundaries(log, max_message_size=limit)
    scanner = Scanner(log, max_message_size=limit)
    first = segment.offset if start is None else max(start, segment.offset)
    step = _TAIL if segment.held is None else _FETCHED_TAIL
    if start is not None and start >= segment.offset:
        step = segment.size  # what is new is read anyway
    while True:
        wish = segment.held_end - step
        at = first if wish <= first else boundaries.at(segment, wish)
        if at < segment.end:
            end = _last_sound(log, scanner, at, segment.end)
            if end is not None or at == first:
                return end
        elif at == first:
            return None
        step *= 4


def _last_sound(log: ClosedLog, scanner: Scanner, start: int, end: int) -> int | None:
    fast = scanner.by_kernels(start, end)
    last_end: int | None = None
    events = tallied(scanner.scan(start, end, resume=True))
    if fast is not None:
        events = RecordCounter(fast, log.read_into).count(start, end)
    for event in events:
        if isinstance(event, Tally | Blank):
            last_end = event.end
    return last_end


def open_log(split: Split, disk: Disk) -> ClosedLog:
    """The one file that a split lies in. To be closed."""
    return ClosedLog(disk, [split.segment])


def bounds(split: Split, log: ClosedLog, *, check_crc: bool = True) -> tuple[int, int]:
    """The boundaries between which the split is read; equal when no record begins in it. Raises StorageError.

    Args:
        split: which.
        log: `open_log` of it.
        check_crc: as `events` is told: the same for all splits of a log.
    """
    boundaries = Boundaries(log, max_message_size=split.store.config.max_message_size, check_crc=check_crc)
    start = split.start if split.known else boundaries.at(split.segment, split.start)
    end = boundaries.at(split.segment, split.end)
    return start, max(start, end)


def events(split: Split, log: ClosedLog, *, check_crc: bool = True) -> Iterator[Event]:
    """What the engine's scan says of the split, damage with its whole length.

    Args:
        split: which.
        log: `open_log` of it.
        check_crc: whether a body CRC mismatch is damage.

    Raises:
        FormatError: the scan doesn't end where the next split begins. StorageError.
    """
    start, end = bounds(split, log, check_crc=check_crc)
    if start >= min(end, split.log_end):
        return
    at = start
    limit = split.store.config.max_message_size
    scanner = Scanner(log, check_crc=check_crc, max_message_size=limit, kernels=kernels_if_loaded())
    for event in scanner.scan(start, min(end, split.log_end), resume=True):
        at = event.end
        yield event
    demand_met(split, at, end)


def demand_met(split: Split, at: int, end: int) -> None:
    """A split that was read up to `at` ends where the next one begins, at `end`. Raises FormatError."""
    if at != end and end < split.log_end:
        raise FormatError(
            f"a split was read up to {at}, the next starts at {end}",
            path=split.segment.path,
            offset=at,
            hint="is maxMessageSize the broker's? Else read the store in one split",
        )
