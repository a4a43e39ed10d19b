"""What Apache RocketMQ 4.9.8 would do to a store at its start, computed without writing a byte.

Source: DefaultMessageStore#load and #start, MappedFileQueue#doLoad, ConsumeQueue#recover and #truncateDirtyLogicFiles,
CommitLog#recoverNormally and #recoverAbnormally, ReputMessageService#doReput, IndexService#load. Held against Apache's
own outcome for every damaged store of both corpora (test_plan_start.py).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.format import names
from engine.format.judge import Reason
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import BLANK_SIZE, MAGIC_BYTES, MESSAGE_MAGIC, POSITION_MAGIC, SIZE_AND_MAGIC
from engine.inspect.store.odd import QUEUE_EMPTY, STRAY
from engine.inspect.store.queue_rows import QueueRows
from engine.log.ahead import scan_ahead
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.repair.recover.log_end import Mode, start_segment

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import QueueFiles, StoreFiles
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
    *opens*, or of a log that ends before its last record. `removed`: segments that go.
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


def apache_start(
    disk: Disk,
    files: StoreFiles,
    log: ClosedLog,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ApacheStart:
    """Compute it. Raises StorageError."""
    mode = Mode.ABNORMAL if files.abort else Mode.NORMAL
    refused = _refused(files)
    if refused is not None:
        return ApacheStart(StartOutcome.REFUSES, mode, refused, None, 0, -1, 0, 0, 0, ())
    size = files.config.mapped_file_size_consume_queue
    known = max((queue_end(disk, queue, size)[1] for queue in files.queues), default=-1)
    if not files.log:
        return ApacheStart(
            StartOutcome.OPENS,
            mode,
            "there is no commit log: the broker deletes all consume queues",
            None,
            0,
            -1,
            0,
            0,
            0,
            (),
        )
    config = files.config
    scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
    start = start_segment(files, log, mode)
    reading = _Reading(start.offset)
    reading.read([s for s in files.log if s.offset >= start.offset], scanner, log, progress)
    if reading.crashed:
        why = f"the record at {reading.end} has a size beyond a Java array's maximum: OutOfMemoryError"
        return ApacheStart(
            StartOutcome.CRASHES, mode, why, start, reading.end, files.log[0].offset, 0, reading.records, 0, ()
        )
    removed = tuple(s for s in files.log if s.offset > reading.end)
    left = [s for s in files.log if s.offset <= reading.end]
    top = min(reading.end, left[-1].end) if left else 0
    if known >= reading.end:
        known = max((_cut_queue_end(disk, queue, reading.end) for queue in files.queues if queue.files), default=-1)
    if mode is Mode.ABNORMAL:
        known = max(known, reading.dispatched)
    dispatch_from = max(known, left[0].offset if left else 0, 0)
    hole = _hole(left, dispatch_from, top)
    reason = reading.why
    outcome = StartOutcome.OPENS
    if hole is not None:
        outcome, reason = StartOutcome.HANGS, f"the log has no segment at {hole}: dispatch waits there forever"
    return ApacheStart(
        outcome,
        mode,
        reason,
        start,
        reading.end,
        left[0].offset if left else -1,
        top,
        reading.records,
        start.offset if mode is Mode.ABNORMAL else dispatch_from,
        removed,
    )


def _refused(files: StoreFiles) -> str | None:
    """The entry that makes load() say no: of another length, or no file, among those of log, queues and index."""
    places = {*files.config.log_directories} | {queue.directory for queue in files.queues}
    index = os.path.join(files.root, names.INDEX)
    for odd in files.odd:
        if odd.code == QUEUE_EMPTY:
            continue
        directory, name = os.path.split(odd.path)
        stops = directory in places or (directory == index and names.is_index_name(name))
        # StoreCheckpoint maps its file, IndexFile each of its own: a link leads them to a new file where it can.
        if stops or (odd.path == os.path.join(files.root, names.CHECKPOINT) and odd.code == STRAY):
            return f"{os.path.relpath(odd.path, files.root)}: {odd.why}"
    return None


class _Reading:
    """Recovery's way through the log: record by record, file by file, up to the first that isn't sound."""

    def __init__(self, start: int) -> None:
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
        for event, taken in scan_ahead(scanner, segment.offset, segment.end, prepare=_take):
            if taken is not None:
                self.end = max(self.end, taken.end)
                self.dispatched = max(self.dispatched, taken.dispatched)
                self.records += taken.records
                if not taken.whole:
                    self.why = "a record of 5.x"
                    return False
            elif isinstance(event, Blank):
                return True
            elif isinstance(event, Damage):
                if event.reason is Reason.BLANK_LENGTH:
                    return True
                head = bytes(log.read(event.offset, BLANK_SIZE))
                size, magic = SIZE_AND_MAGIC.unpack(head) if len(head) == BLANK_SIZE else (0, 0)
                self.crashed = size > LARGEST_ARRAY and magic == MESSAGE_MAGIC
                if event.reason is not Reason.EMPTY:
                    self.why = f"the log ends at {event.offset}: {event.reason.value}"
        return False


@dataclass(frozen=True, slots=True)
class _Taken:
    """What recovery takes of a batch: its records up to the first of 5.x (`whole`: all of them). Offsets: physical.

    `end`: after the last of them, `dispatched`: after the last that gets a unit; −1 without one.
    """

    records: int
    end: int
    dispatched: int
    whole: bool


def _take(batch: RecordBatch) -> _Taken:
    import numpy as np

    bytes_of_batch = np.frombuffer(batch.buffer, dtype=np.uint8)
    places = batch.offsets() - batch.base + POSITION_MAGIC
    mine = np.ones(len(batch), dtype=np.bool_)
    for number, byte in enumerate(MAGIC_BYTES[0]):
        mine &= bytes_of_batch[places + number] == byte
    count = len(mine) if mine.all() else int(mine.argmin())
    ends = (batch.offsets() + batch.sizes())[:count]
    consumed = ends[batch.consumable()[:count]]
    return _Taken(
        count, int(ends[-1]) if count else -1, int(consumed[-1]) if len(consumed) else -1, count == len(batch)
    )


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
