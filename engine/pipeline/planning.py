"""What is read of each store: the end frozen, what can't be wanted left out, missing files reported, splits cut.

Time. Store times don't decrease in a log as long as its broker's clock doesn't: a file is left out when the first time
of the file after it, or its own, tells that all of it is too old or too new, with `clock_slack` to spare. It is not
left out when the files' first times decrease somewhere, or can't be read. What is left is looked at record by record.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.backup.snapshot_disk import SnapshotDisk
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.log.boundary import Boundaries
from engine.log.scan import MISSING_SEGMENT, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.filters import ALL, Range
from engine.pipeline.narrow import FoundUnits, find_units
from engine.pipeline.options import FAIL, MARK
from engine.pipeline.repositories import in_time
from engine.pipeline.splits import log_end, plan_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.log.source import Segment
    from engine.pipeline.filters import Wanted
    from engine.pipeline.options import SourceOptions
    from engine.pipeline.splits import Split
    from engine.pipeline.stores import StoreRef

_HEAD = 4096


@dataclass(frozen=True, slots=True)
class StoreShare:
    """What one task reads.

    Attributes:
        split: from where to where.
        gaps: missing files before it, to be reported; after the last task's, too.
        units: where all records are that are asked for; None when the split is scanned.
        rows: records outside of these physical offsets are another task's.
    """

    split: Split
    gaps: tuple[Gap, ...] = ()
    units: FoundUnits | None = None
    rows: Range = ALL


def plan(store: StoreRef, options: SourceOptions, wanted: Wanted, disk: Disk) -> list[StoreShare]:
    """The shares of one store, in log order.

    Args:
        store: whose log.
        options: how it is read.
        wanted: records that are asked for: by options, and by filters.
        disk: how files are reached.

    Raises:
        FormatError: files are missing in the middle, with FAIL. StorageError.
    """
    if wanted.nothing or not store.segments:
        return []
    end = min(log_end(store, disk), wanted.physical_offset.high + 1)
    start = max(wanted.physical_offset.low, store.segments[0].offset)
    if start >= end:
        return []
    with ClosedLog(disk, store.segments) as log:
        kept = _in_time(store, log, wanted.store_timestamp, options.clock_slack, disk)
        tasks: list[StoreShare] = []
        placed = None
        if wanted.consumable and wanted.topics is not None and options.on_damage != MARK:
            placed = find_units(store, wanted.topics, start, end)
        missing = gaps(store, start, end)
        if placed is not None:
            units, until = placed
            tasks = _narrow(plan_splits([store], split_bytes=options.split_bytes, start=start, end=until), units)
            start = max(start, until)
        if start < end:
            known = _before(store, log, start)
            splits = plan_splits([store], split_bytes=options.split_bytes, start=known, end=end, known=True)
            tasks += [StoreShare(split, rows=Range(low=start)) for split in splits]
    return shares([task for task in tasks if task.split.segment in kept], missing, options.on_damage)


def _before(store: StoreRef, log: ClosedLog, offset: int) -> int:
    """A place at or before `offset` where the scan stops."""
    segment = log.segment_at(offset)
    if segment is None:
        return offset
    boundaries = Boundaries(log, max_message_size=store.config.max_message_size, check_crc=False)
    return boundaries.before(segment, offset)


def _narrow(splits: Sequence[Split], units: FoundUnits) -> list[StoreShare]:
    planned = []
    for split in splits:
        end = min(split.end, split.log_end)
        some = units.between(split.start, end)
        if len(some):
            planned.append(StoreShare(split, units=some, rows=Range(split.start, end - 1)))
    return planned


def shares(tasks: Sequence[StoreShare], missing: Sequence[Gap], on_damage: str) -> list[StoreShare]:
    """What tasks read, as it is sent to them: each with its own file only, and with the missing files before it.

    Raises:
        FormatError: files are missing, with FAIL.
    """
    if missing and on_damage == FAIL:
        raise FormatError(
            MISSING_SEGMENT,
            path=tasks[0].split.store.root if tasks else None,
            offset=missing[0].offset,
            hint="onDamage = mark adds a row for it, onDamage = skip continues after it",
        )
    left = list(missing)
    planned = []
    for i, task in enumerate(tasks):
        split = task.split
        gaps_before = [gap for gap in left if gap.offset < split.segment.offset or i == len(tasks) - 1]
        left = left[len(gaps_before) :]
        store = _with_one(split.store, split.segment)
        planned.append(
            dataclasses.replace(task, split=dataclasses.replace(split, store=store), gaps=tuple(gaps_before))
        )
    return planned


def _with_one(store: StoreRef, segment: Segment) -> StoreRef:
    """A store with one file of its log."""
    snapshot = store.snapshot
    if snapshot is not None and snapshot.archived:
        archived = tuple(one for one in snapshot.archived if one.offset == segment.offset)
        snapshot = dataclasses.replace(snapshot, archived=archived)
    return dataclasses.replace(store, segments=(segment,), snapshot=snapshot)


def gaps(store: StoreRef, start: int, end: int) -> list[Gap]:
    """The files that are missing between two physical offsets, where files are on both sides."""
    pairs = zip(store.segments, store.segments[1:], strict=False)
    missing = [Gap(one.end, other.offset - one.end) for one, other in pairs if one.end < other.offset]
    return [gap for gap in missing if gap.offset < end and gap.offset + gap.length > start]


def _in_time(store: StoreRef, log: ClosedLog, times: Range, slack: int, disk: Disk) -> set[Segment]:
    """The files in which records of that time can be."""
    everything = set(store.segments)
    if times == ALL or len(store.segments) < 2:
        return everything
    if isinstance(disk, SnapshotDisk):
        return in_time(disk, store.segments, times, slack)
    firsts = [_first_time(store, log, segment) for segment in store.segments]
    known = [time for time in firsts if time is not None]
    if known != sorted(known):
        return everything
    segments = set()
    for i, (segment, first) in enumerate(zip(store.segments, firsts, strict=True)):
        next_first = firsts[i + 1] if i + 1 < len(firsts) else None
        too_new = first is not None and first - slack > times.high
        too_old = next_first is not None and next_first + slack < times.low
        if not too_new and not too_old:
            segments.add(segment)
    return segments


def _first_time(store: StoreRef, log: ClosedLog, segment: Segment) -> int | None:
    """storeTimestamp (ms) of the record that a file begins with, None when it doesn't begin with a sound one."""
    limit = store.config.max_message_size
    scanner = Scanner(log, max_message_size=limit, window=_HEAD, kernels=False)
    for event in scanner.scan(segment.offset, segment.offset + segment.before_record + 1):
        return event.first_store_timestamp if isinstance(event, RecordBatch) else None
    return None
