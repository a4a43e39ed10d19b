"""What a broker of one release would do to a store at its start, computed without writing a byte.

What releases do differently are facts of a table (`rules`). Where recovery itself dispatches (RocketMQ 5), each queue
is computed as it will be (`started_queues`); where dispatch follows it (4.9.8), only how far queues know the log.

Source: DefaultMessageStore#load and #start, MappedFileQueue#doLoad, ConsumeQueue#recover and #truncateDirtyLogicFiles,
CommitLog#recoverNormally and #recoverAbnormally, ReputMessageService#doReput, IndexService#load. Held against Apache's
own outcome for every damaged store of both corpora (test_plan_start.py), and of RocketMQ 5 (test_starts5.py).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.format.judge import Reason
from engine.format.property_crc import CrcDemand
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import (
    BLANK_SIZE,
    MAGIC_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    POSITION_MAGIC,
    SIZE_AND_MAGIC,
)
from engine.inspect.store.newer import is_true
from engine.inspect.store.odd import QUEUE_EMPTY, STRAY
from engine.inspect.store.queue_rows import QueueRows
from engine.log.ahead import scan_ahead
from engine.log.property_crcs import crc_faults_of
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.repair.recover.log_end import Mode
from engine.repair.start.recovery_start import first_segment
from engine.repair.start.rules import V4, NormalDispatch, StartRules
from engine.repair.start.started_queues import StartedQueues, started_queues, wrong_type

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import QueueFiles, StoreFiles
    from engine.log.kernels.derive import DerivedPart
    from engine.log.source import ClosedLog, Segment

LARGEST_ARRAY = (1 << 31) - 3
"""Bytes that a Java array may have; a record that claims more ends the process (OutOfMemoryError)."""
_FILES = 3
"""Files from the end on that a queue is recovered from."""


class StartOutcome(enum.Enum):
    """How the start ends."""

    OPENS = "opens"
    REFUSES = "refuses"
    HANGS = "hangs"
    CRASHES = "crashes"


@dataclass(frozen=True, slots=True)
class ApacheStart:
    """The outcome. Offsets are physical.

    `start`: the segment that recovery reads from; `end`: where it ends the log; `min_offset` and `max_offset`: what the
    store answers then. `dispatch_from`: where units and keys are derived from again. `why`: of an outcome other than
    *opens*, or of a log that ends before its last record. `removed`: segments that go. `queues`: as they are then,
    where recovery itself dispatches. `late`: the start fails after log, queues and index are what recovery made of
    them.
    """

    outcome: StartOutcome
    mode: Mode
    why: str | None
    start: Segment | None
    end: int
    min_offset: int
    max_offset: int
    records: int
    dispatch_from: int
    removed: tuple[Segment, ...]
    queues: StartedQueues | None = None
    late: bool = False


def apache_start(
    disk: Disk,
    files: StoreFiles,
    log: ClosedLog,
    rules: StartRules = V4,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ApacheStart:
    """Compute it. Raises StorageError."""
    mode = Mode.ABNORMAL if files.abort else Mode.NORMAL
    refused = _refused(disk, files, rules)
    if refused is not None:
        return ApacheStart(StartOutcome.REFUSES, mode, refused, None, 0, -1, 0, 0, 0, ())
    if not files.log:
        why = "there is no commit log: the broker deletes all consume queues"
        return ApacheStart(StartOutcome.OPENS, mode, why, None, 0, -1, 0, 0, 0, ())
    config = files.config
    forced = rules.checks_property_crc and config.check_crc_on_recover and is_true(config, "forceVerifyPropCRC")
    scanner = Scanner(
        log, check_crc=config.check_crc_on_recover and not forced, max_message_size=config.max_message_size
    )
    if rules.normal_dispatch is NormalDispatch.FROM_QUEUES_END:
        size = config.mapped_file_size_consume_queue
        known = max((queue_end(disk, queue, size)[1] for queue in files.queues), default=-1)
        queues = None
    else:
        queues = started_queues(disk, files, rules)
        known = queues.known
    start = first_segment(disk, files, log, scanner, rules, mode, known)
    reading = _Reading(start.offset, rules, forced=forced, queues=queues)
    if queues is not None:
        queues.begin(mode, known)
    reading.read([s for s in files.log if s.offset >= start.offset], scanner, log, progress)
    if reading.crashed:
        why = f"the record at {reading.end} has a size beyond a Java array's maximum: OutOfMemoryError"
        return ApacheStart(
            StartOutcome.CRASHES, mode, why, start, reading.end, files.log[0].offset, 0, reading.records, 0, ()
        )
    removed = tuple(s for s in files.log if s.offset > reading.end)
    left = [s for s in files.log if s.offset <= reading.end]
    top = min(reading.end, left[-1].end) if left else 0
    start_plan = ApacheStart(
        StartOutcome.OPENS,
        mode,
        reading.why,
        start,
        reading.end,
        left[0].offset if left else -1,
        top,
        reading.records,
        start.offset,
        removed,
        queues,
    )
    if queues is not None:
        return _with_queues(start_plan, queues, known, rules)
    if known >= reading.end:
        known = max((_cut_queue_end(disk, queue, reading.end) for queue in files.queues if queue.files), default=-1)
    if mode is Mode.ABNORMAL:
        known = max(known, reading.dispatched)
    return _with_dispatch(start_plan, left, known)


def _with_queues(plan: ApacheStart, queues: StartedQueues, known: int, rules: StartRules) -> ApacheStart:
    """The queues cut at the log end, and looked at as the start does. `known`: before anything was dispatched."""
    if (queues.known if rules.cuts_after_dispatch else known) >= plan.end:
        queues.cut(plan.end)
    stop = queues.settle(plan.min_offset, stops=rules.stops_at_empty_queue_file)
    dispatch_from = plan.dispatch_from
    if plan.mode is Mode.NORMAL:
        nothing = rules.normal_dispatch is NormalDispatch.NOTHING
        dispatch_from = plan.end if nothing else min(plan.end, max(known + 1, dispatch_from))
    plan = replace(plan, dispatch_from=dispatch_from)
    return plan if stop is None else replace(plan, outcome=StartOutcome.REFUSES, why=stop, late=True)


def _with_dispatch(plan: ApacheStart, left: list[Segment], known: int) -> ApacheStart:
    """Dispatch after recovery (ReputMessageService), from the end that the queues know."""
    dispatch_from = max(known, left[0].offset if left else 0, 0)
    hole = _hole(left, dispatch_from, plan.max_offset)
    if plan.mode is Mode.NORMAL:
        plan = replace(plan, dispatch_from=dispatch_from)
    if hole is None:
        return plan
    why = f"the log has no segment at {hole}: dispatch waits there forever"
    return replace(plan, outcome=StartOutcome.HANGS, why=why)


def _refused(disk: Disk, files: StoreFiles, rules: StartRules) -> str | None:
    """The entry that makes load() say no: of another length, or no file, among those of log, queues and index."""
    places = {*files.config.log_directories} | {queue.directory for queue in files.queues}
    index = os.path.join(files.root, names.INDEX)
    for odd in files.odd:
        if odd.code == QUEUE_EMPTY:
            continue
        directory, name = os.path.split(odd.path)
        if directory in places and _is_passed(disk, odd.path, rules):
            continue
        stops = directory in places or (directory == index and names.is_index_name(name))
        # StoreCheckpoint maps its file, IndexFile each of its own: a link leads them to a new file where it can.
        if stops or (odd.path == os.path.join(files.root, names.CHECKPOINT) and odd.code == STRAY):
            return f"{os.path.relpath(odd.path, files.root)}: {odd.why}"
    return wrong_type(disk, files) if rules.one_queue_type else None


def _is_passed(disk: Disk, path: str, rules: StartRules) -> bool:
    """Whether the start passes over this entry of a directory of log or queue files, or deletes it."""
    if disk.is_dir(path):
        return rules.passes_directories
    entry = disk.look(path)
    if not rules.removes_empty_last or entry is None or not entry.is_file or entry.size:
        return False
    directory, name = os.path.split(path)
    return name == max(one.name for one in disk.scandir(directory))


class _Reading:
    """Recovery's way through the log: record by record, file by file, up to the first that isn't sound."""

    def __init__(self, start: int, rules: StartRules, *, forced: bool, queues: StartedQueues | None) -> None:
        self._rules = rules
        self._forced = forced
        self._queues = queues
        self.end = start
        self.records = 0
        self.dispatched = -1
        self.crashed = False
        self.why: str | None = None

    def read(
        self,
        segments: list[Segment],
        scanner: Scanner,
        log: ClosedLog,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        total = segments[-1].end - segments[0].offset
        for segment in segments:
            self.end = segment.offset
            if not self._read_file(segment, scanner, log):
                return
            if progress is not None:
                progress(segment.end - segments[0].offset, total)

    def _read_file(self, segment: Segment, scanner: Scanner, log: ClosedLog) -> bool:
        """Whether recovery continues with the next file: a blank record was met, whatever length it claims."""
        for event, prepared in scan_ahead(scanner, segment.offset, segment.end, prepare=self._prepare):
            if prepared is not None:
                assert isinstance(event, RecordBatch)
                taken, parts = prepared
                self.end = max(self.end, taken.end)
                self.dispatched = max(self.dispatched, taken.dispatched)
                self.records += taken.records
                if self._queues is not None and taken.records:
                    whole = taken.why is None
                    self._queues.take(event if whole else event.first(taken.records), parts if whole else None)
                if taken.why is not None:
                    self.why = f"the log ends at {self.end}: {taken.why}"
                    return False
            elif isinstance(event, Blank):
                return True
            elif isinstance(event, Damage):
                head = bytes(log.read(event.offset, BLANK_SIZE))
                size, magic = SIZE_AND_MAGIC.unpack(head) if len(head) == BLANK_SIZE else (0, 0)
                if event.reason is Reason.BLANK_LENGTH and (
                    not self._rules.bounds_sizes or size <= segment.end - event.offset
                ):
                    return True
                ours = magic == MESSAGE_MAGIC or (self._rules.reads_v2 and magic == MESSAGE_MAGIC_V2)
                self.crashed = not self._rules.bounds_sizes and size > LARGEST_ARRAY and ours
                if event.reason is not Reason.EMPTY:
                    self.why = f"the log ends at {event.offset}: {event.reason.value}"
        return False

    def _prepare(self, batch: RecordBatch) -> tuple[_Taken, list[DerivedPart] | None]:
        parts = None if self._queues is None else self._queues.prepare(batch)
        return _take(batch, v2=self._rules.reads_v2, forced=self._forced), parts


@dataclass(frozen=True, slots=True)
class _Taken:
    """What recovery takes of a batch: its records up to the first that is none for this release. Offsets: physical.

    `end`: after the last of them, `dispatched`: after the last that gets a unit; −1 without one. `why`: what the first
    is that it doesn't take; None: it takes all.
    """

    records: int
    end: int
    dispatched: int
    why: str | None


def _take(batch: RecordBatch, *, v2: bool = False, forced: bool = False) -> _Taken:
    import numpy as np

    why = None
    count = len(batch)
    if not v2:
        bytes_of_batch = np.frombuffer(batch.buffer, dtype=np.uint8)
        places = batch.offsets() - batch.base + POSITION_MAGIC
        mine = np.ones(len(batch), dtype=np.bool_)
        for number, byte in enumerate(MAGIC_BYTES[0]):
            mine &= bytes_of_batch[places + number] == byte
        if not mine.all():
            count, why = int(mine.argmin()), "a record of 5.x"
    if forced:
        _, faults = crc_faults_of(batch, CrcDemand.OF_ALL)
        if faults:
            count, why = int(np.searchsorted(batch.offsets(), faults[0].offset)), "no property CRC, or a wrong one"
    ends = (batch.offsets() + batch.sizes())[:count]
    consumed = ends[batch.consumable()[:count]]
    return _Taken(count, int(ends[-1]) if count else -1, int(consumed[-1]) if len(consumed) else -1, why)


def queue_end(disk: Disk, queue: QueueFiles, file_size: int) -> tuple[int, int]:
    """Where a recovered queue ends: after the last unit before the first that is none (queue offset).

    Returns:
        that offset, and the queue's maxPhysicOffset: after the message of that last unit, −1 without one.
    """
    import numpy as np

    end = -1
    rows = QueueRows(disk, queue)
    place = rows.first
    for file in queue.files[max(0, len(queue.files) - _FILES) :]:
        units = rows.read(file.offset // UNIT_SIZE, (file.offset + file_size) // UNIT_SIZE)
        bad = np.flatnonzero((units["physical_offset"] < 0) | (units["size"] <= 0))
        count = int(bad[0]) if len(bad) else len(units)
        place = file.offset // UNIT_SIZE + count
        if count:
            end = int(units["physical_offset"][count - 1]) + int(units["size"][count - 1])
        if count < len(units):
            break
    return place, end


def _cut_queue_end(disk: Disk, queue: QueueFiles, log_end: int) -> int:
    """maxPhysicOffset of a queue after its units at or after the log end were cut."""
    import numpy as np

    rows = QueueRows(disk, queue)
    for file in reversed(queue.files):
        start = file.offset // UNIT_SIZE
        units = rows.read(start, start + file.size // UNIT_SIZE)
        physical, size = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        if physical[0] >= log_end:
            continue  # the whole file goes
        stop = np.flatnonzero((physical < 0) | (size <= 0) | (physical >= log_end))
        stop = stop[stop > 0]
        last = (int(stop[0]) if len(stop) else len(units)) - 1
        return int(physical[last] + size[last])
    return log_end


def _hole(segments: list[Segment], start: int, end: int) -> int | None:
    """The first place in [start, end) where no file is."""
    at = start
    for segment in segments:
        if segment.end <= at:
            continue
        if at < segment.offset and at < end:
            return at
        at = segment.end
    return None
