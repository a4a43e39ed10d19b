"""The scanner's events, read ahead by threads: the same events in the same order, only sooner.

Theory: a file is split where a record stands that knows its own offset; splits are scanned at the same time. What
a scan says of a range depends on where it begins alone. So a split's events are right when the split before it ended
just there; where it didn't (the split began in a body that holds a record's copy) they are thrown away, and the range
is scanned again from where the one before ended. Kernels and reads leave Python's lock, so threads are enough.

Memory is bounded: a few splits are under way, and what can't be split is scanned without reading ahead.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from engine.dataclass import dataclass
from engine.files.libc import Libc
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.log.source import segments_from
from engine.log.tally import Tally
from engine.log.threads import threads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.log.source import Segment
    from engine.log.tally import Counted, RecordCounter

SPLIT = 6 << 20
"""Bytes of log that one thread scans in one go, at most."""
_SHORT, _SHORT_SPLIT = 64 << 20, 2 << 20
"""Of a log up to the first, splits of the second: most of what it takes is memory that the process has not had before.
"""
_LEAST_SPLIT = 1 << 20
_UNDER_WAY = 12 << 20
"""Bytes of log that all threads together are to have under way: what is read and made of it takes a multiple."""
_HEAPS = 2
COUNT_SPLIT = 32 << 20
"""The same where records are only counted: nothing is kept of them."""

_Prepared = TypeVar("_Prepared")


_Kind = TypeVar("_Kind")
_Given: TypeAlias = tuple[Event, _Prepared | None]
_Scan: TypeAlias = "Callable[[int, int], Iterator[tuple[_Kind, _Prepared | None]]]"


@dataclass(frozen=True, slots=True)
class _Split:
    """Physical offsets [start, end) of a segment. `whole`: small enough to be held in memory."""

    segment: Segment
    start: int
    end: int
    whole: bool


_Begun: TypeAlias = "tuple[_Split, Future[list[tuple[_Kind, _Prepared | None]]] | None]"


def scan_ahead(
    scanner: Scanner,
    start: int,
    end: int | None = None,
    *,
    prepare: Callable[[RecordBatch], _Prepared],
    resume: bool = False,
    threads: int | None = None,
    split: int | None = None,
) -> Iterator[_Given[_Prepared]]:
    """`scanner.scan`, each batch with what `prepare` makes of it (in a thread, in any order), None for other events.

    Args:
        scanner: what scans. Its log must be read by threads.
        start: physical offset of a record.
        end: as in `Scanner.scan`.
        prepare: called once or more for each batch.
        resume: as in `Scanner.scan`.
        threads: how many (default: one a core). One, a short log, or no kernels: nothing is read ahead.
        split: bytes that one thread scans in one go (default: the fewer the more threads there are).
    """
    count = threads_of(threads)
    if split is None:
        last = scanner.segments[-1].end if end is None and scanner.segments else end or start
        most = _SHORT_SPLIT if last - start <= _SHORT else SPLIT
        split = min(most, max(_LEAST_SPLIT, _UNDER_WAY // count))
    fast = scanner.by_kernels(start, end) if count > 1 else None
    if fast is None:
        yield from _prepared(scanner.scan(start, end, resume=resume), prepare)
        return

    def scan(at: int, until: int) -> Iterator[_Given[_Prepared]]:
        return _prepared(fast.scan(at, until, resume=resume), prepare)

    yield from _ahead(_splits(fast, start, end, split), scan, resume, count, count + 1)


def count_ahead(
    counter: RecordCounter,
    scanner: Scanner,
    start: int,
    end: int,
    *,
    threads: int | None = None,
    split: int = COUNT_SPLIT,
) -> Iterator[Counted]:
    """The events of `scanner.scan` with `resume`, from one physical offset to another, records counted only.

    Args:
        counter: what counts, with that scanner.
        scanner: by kernels.
        start: physical offset of a record.
        end: as in `Scanner.scan`.
        threads: how many (default: one a core).
        split: bytes that one thread counts in one go.
    """

    def count(at: int, until: int) -> Iterator[tuple[Counted, None]]:
        return ((event, None) for event in counter.count(at, until))

    number = threads_of(threads)
    splits = _splits(scanner, start, end, split)
    if number == 1:
        splits = (_Split(s, max(s.offset, start), min(s.end, end), False) for s in scanner.segments if s.end > start)
    for event, _ in _ahead(splits, count, True, number, 3 * number):
        yield event


def _ahead(
    splits: Iterator[_Split], scan: _Scan[_Kind, _Prepared], resume: bool, threads: int, most: int
) -> Iterator[tuple[_Kind | Gap, _Prepared | None]]:
    if threads > _HEAPS:
        Libc().limit_heaps(_HEAPS)
    pool = ThreadPoolExecutor(threads, "rstore-scan")
    try:
        yield from _merged(_begun(pool, splits, scan, most), scan, resume)
    finally:
        pool.shutdown(cancel_futures=True)


def _merged(
    splits: Iterator[_Begun[_Kind, _Prepared]], scan: _Scan[_Kind, _Prepared], resume: bool
) -> Iterator[tuple[_Kind | Gap, _Prepared | None]]:
    """The events of all splits, in log order."""
    at = -1  # up to where events were given
    segment: Segment | None = None
    for split, future in splits:
        if segment is not split.segment:
            if segment is not None and segment.end < split.segment.offset:
                yield Gap(segment.end, split.segment.offset - segment.end), None
            segment, at = split.segment, split.start
        if at >= split.end:
            continue
        events = scan(at, split.end) if future is None or at != split.start else iter(future.result())
        for event, prepared in events:
            yield event, prepared
            if isinstance(event, RecordBatch | Tally):
                at = event.end
            elif isinstance(event, Blank):
                at = segment.end
            elif isinstance(event, Damage):
                if not resume:
                    return
                at = event.end


def _prepared(events: Iterator[Event], prepare: Callable[[RecordBatch], _Prepared]) -> Iterator[_Given[_Prepared]]:
    for event in events:
        yield event, prepare(event) if isinstance(event, RecordBatch) else None


def _begun(
    pool: ThreadPoolExecutor,
    splits: Iterator[_Split],
    scan: _Scan[_Kind, _Prepared],
    most: int,
) -> Iterator[_Begun[_Kind, _Prepared]]:
    """Each split with its scan, begun in a thread while the ones before it are waited for; None for a long split."""

    def all_of(split: _Split) -> list[tuple[_Kind, _Prepared | None]]:
        return list(scan(split.start, split.end))

    under_way: deque[_Begun[_Kind, _Prepared]] = deque()
    for split in splits:
        under_way.append((split, pool.submit(all_of, split) if split.whole else None))
        if len(under_way) >= most:
            yield under_way.popleft()
    while under_way:
        yield under_way.popleft()


def _splits(scanner: Scanner, start: int, end: int | None, size: int) -> Iterator[_Split]:
    for segment in segments_from(scanner.segments, start):
        if end is not None and segment.offset >= end:
            return
        until = segment.end if end is None else min(end, segment.end)
        at = max(start, segment.offset)
        if at >= until:
            continue
        while until - at > 2 * size:
            sound_offset = scanner.find_sound_within(segment, at + size, at + 2 * size)
            if sound_offset is None:
                break
            sound_offset -= segment.before_record
            yield _Split(segment, at, sound_offset, True)
            at = sound_offset
        yield _Split(segment, at, until, until - at <= 2 * size)
