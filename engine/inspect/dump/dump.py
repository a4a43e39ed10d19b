"""Rows for looking at a store: the log's records, blanks and damage, queue units, index entries, checkpoint, config.

Everything as it lies on disk, through the one scanner and the readers that recovery uses. Nothing is written; where a
live process writes, the rows end with what is sound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from engine.dataclass import dataclass
from engine.errors import CannotRepair, FormatError, RStoreError, WrongFileSize
from engine.files.lock import holder_of
from engine.format import checkpoint, message, names
from engine.format.batch_unit import BatchUnit
from engine.format.message import StoredMessage
from engine.inspect.check.verify import boundary, judge_tail, live_end, settled_events
from engine.inspect.dump.number_rows import BrokenIndexFile, index_blocks, queue_blocks
from engine.inspect.store import timer_log
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queue
from engine.inspect.store.config_files import BACKUP, ConfigDump, directory_of, present_in, read_config
from engine.inspect.store.survey import StoreFiles, read_checkpoint, survey, surveyed
from engine.inspect.store.timer_wheel import read_timer_check
from engine.log.ahead import scan_ahead
from engine.log.derive import TopicQueue
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import MISSING_SEGMENT, Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.log.threads import threads_of

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.format.checkpoint import Checkpoint, ReplicaOffsets
    from engine.format.index_file import IndexHeader
    from engine.format.timer_check import TimerCheck

MESSAGE, BLANK, DAMAGE = "message", timer_log.BLANK, timer_log.DAMAGE
_Made = TypeVar("_Made")
_SPLIT = 1 << 20
"""Bytes of log that a thread scans in one go: what is made of them may take a multiple, and waits for its turn."""
_JSON = (".json", ".json" + BACKUP)


@dataclass(frozen=True, slots=True)
class LogRow:
    """One thing in the log, by physical offset and length in bytes.

    `kind`: MESSAGE (with `message`), BLANK or DAMAGE (with `reason`). `path`: the file that it lies in.
    """

    kind: str
    offset: int
    length: int
    path: str | None = None
    message: StoredMessage | None = None
    reason: str | None = None


def dump_log(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    start: int | None = None,
    end: int | None = None,
    topic: str | None = None,
    back: int | None = None,
) -> Iterator[LogRow]:
    """The log from the physical offset `start` up to `end`; it continues after damage. `topic`: only its messages.
    `store`: its survey, or the settings that name it. `back`: as of `boundary`, which finds where `start` is.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    wanted = None if topic is None else stored_topic(topic)
    for item in dump_log_batches(disk, store, start=start, end=end, back=back):
        if isinstance(item, RecordBatch):
            yield from _messages(item, wanted)
        elif topic is None or item.kind != BLANK:
            yield item


def stored_topic(topic: str) -> bytes:
    """The bytes of a topic's name in a record."""
    return topic.encode("utf-8", "surrogateescape")


def dump_log_batches(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    start: int | None = None,
    end: int | None = None,
    jobs: int | None = 1,
    back: int | None = None,
) -> Iterator[LogRow | RecordBatch]:
    """As `dump_log`, messages as the batches in which they are read. Arguments and errors: those of `dump_log_made`."""
    return dump_log_made(disk, store, lambda batch: batch, start=start, end=end, jobs=jobs, back=back)


def dump_log_made(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    make: Callable[[RecordBatch], _Made],
    *,
    start: int | None = None,
    end: int | None = None,
    jobs: int | None = 1,
    back: int | None = None,
) -> Iterator[LogRow | _Made]:
    """As `dump_log`, messages as what is made of the batches in which they are read.

    Args:
        disk: how files are reached.
        store: its survey, or the settings that name it.
        make: called by the threads that read ahead, in any order, once or more for each batch; with one thread when the
            batch is asked for.
        start: physical offset.
        end: physical offset.
        jobs: threads that read the log ahead (None: one a core); one reads no more than is asked for.
        back: as of `boundary`.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    files = surveyed(disk, store)
    if not files.log:
        return
    live = holder_of(disk, files.root) is not None
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        first = files.log[0].offset if start is None else boundary(log, scanner, start, back=back)
        end = live_end(log, end) if live else end
        held: list[Event] = []
        for event, made in _events(disk, scanner, first, end, live, jobs, make):
            if isinstance(event, Damage | Gap):
                held.append(event)
                continue
            yield from _rows_of(held, files)
            held.clear()
            if isinstance(event, Blank):
                yield LogRow(BLANK, event.offset, event.length)
            elif made is not None:
                yield made
        tail = [event for event in held if isinstance(event, Damage)]
        for bad in judge_tail(log, tail, live):
            yield LogRow(DAMAGE, bad.offset, bad.length, bad.path, reason=bad.reason)


def _events(
    disk: Disk,
    scanner: Scanner,
    start: int,
    end: int | None,
    live: bool,
    jobs: int | None,
    make: Callable[[RecordBatch], _Made],
) -> Iterator[tuple[Event, _Made | None]]:
    """Events, each batch with what is made of it."""
    if live or threads_of(jobs) == 1:
        for event in settled_events(disk, scanner, start, end, live=live):
            yield event, make(event) if isinstance(event, RecordBatch) else None
    else:
        yield from scan_ahead(scanner, start, end, prepare=make, resume=True, threads=jobs, split=_SPLIT)


def _rows_of(held: list[Event], files: StoreFiles) -> Iterator[LogRow]:
    for event in held:
        if isinstance(event, Damage):
            yield LogRow(DAMAGE, event.offset, event.length, event.segment.path, reason=event.reason.value)
        elif isinstance(event, Gap):
            before = max((s for s in files.log if s.end <= event.offset), key=lambda s: s.end)
            yield LogRow(DAMAGE, event.offset, event.length, before.path, reason=MISSING_SEGMENT)


def _messages(batch: RecordBatch, topic: bytes | None) -> Iterator[LogRow]:
    for i, row in enumerate(batch.rows):
        if topic is None or batch.topic(i) == topic:
            yield LogRow(MESSAGE, batch.offset(i), row.size, message=message.decode(batch.record(i)))


# --- consume queue ---------------------------------------------------------------------------------------------------


def dump_queue(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    topic: str,
    queue_id: int,
    *,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[dict[str, int]]:
    """The units of a queue: queue offsets [start, end), from its first message on unless `start` says otherwise.
    Those of a batch queue have a `batchSize`, too, and are all as they lie.
    `store`: its survey, or the settings that name it.

    Raises:
        InvalidArgument: there is no such queue. NotAStore, CannotRepair, StorageError.
    """
    files = surveyed(disk, store)
    if files.newer.is_batch(topic):
        units = batch_rows_of(disk, files, topic, queue_id)
        yield from () if units is None else _batch_rows(units, start, end)
        return
    for block in queue_blocks(disk, files, topic, queue_id, start=start, end=end):
        yield from block.dicts()


def batch_rows_of(disk: Disk, files: StoreFiles, topic: str, queue_id: int) -> BatchQueueRows | None:
    """The units of a batch queue; None: it is there, and nothing was ever put into it.

    Raises:
        InvalidArgument: there is no such queue. StorageError.
    """
    named = batch_queue(disk, files, TopicQueue(topic, queue_id))
    if named is not None:
        return BatchQueueRows(disk, named, 0)
    from engine.inspect.store.known_names import KnownNames

    KnownNames.of(disk, files).demand_queue(topic, queue_id)
    return None


def _batch_rows(rows: BatchQueueRows, start: int | None, end: int | None) -> Iterator[dict[str, int]]:
    """The units of a batch queue as they lie, from the one that has the queue offset `start` on."""
    began = start is None
    for chunk in rows.chunks(0 if start is None else rows.at_offset(start)):
        for unit in (BatchUnit(*one) for one in chunk.units.tolist()):
            began |= start is not None and unit.is_valid and unit.end_offset > start
            if end is not None and unit.is_valid and unit.base_offset >= end:
                return
            if began:
                yield {
                    "queueOffset": unit.base_offset,
                    "batchSize": unit.batch_size,
                    "physicalOffset": unit.physical_offset,
                    "size": unit.size,
                    "tagsCode": unit.tags_code,
                    "storeTimestamp": unit.store_timestamp,
                    "compactedOffset": unit.compacted_offset,
                }


# --- index -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexFileDump:
    """One index file: its header, or why it can't be read."""

    name: str
    header: IndexHeader | None
    error: RStoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """The header's fields, by Apache's names."""
        head = self.header
        if head is None:
            return {"file": self.name, "error": str(self.error)}
        return {
            "file": self.name,
            "beginTimestamp": head.begin_timestamp,
            "endTimestamp": head.end_timestamp,
            "beginPhyOffset": head.begin_phy_offset,
            "endPhyOffset": head.end_phy_offset,
            "hashSlotCount": head.hash_slot_count,
            "indexCount": head.index_count,
        }


def dump_index_headers(disk: Disk, store: StoreConfig | StoreFiles) -> Iterator[IndexFileDump]:
    """The header of every index file, by name. `store`: its survey, or the settings that name it.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    files = surveyed(disk, store)
    for index in files.index:
        try:
            with ClosedIndexFile(disk, index.path, files.index_layout) as file:
                yield IndexFileDump(index.name, file.header)
        except WrongFileSize as error:
            yield IndexFileDump(index.name, None, error)


def dump_index(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    start: int | None = None,
    end: int | None = None,
    file: str | None = None,
    first: int = 1,
) -> Iterator[dict[str, int | str] | IndexFileDump]:
    """Every entry of every index file (or of `file`) that points at [start, end) of the log (physical offsets).
    `store`: its survey, or the settings that name it. `first`: number of the first entry of a file.

    A file that can't be read as one gives an IndexFileDump with its error.

    Raises:
        InvalidArgument: no index file `file`. NotAStore, CannotRepair, StorageError.
    """
    for block in index_blocks(disk, store, start=start, end=end, file=file, first=first):
        if isinstance(block, BrokenIndexFile):
            yield IndexFileDump(block.name, None, block.error)
        else:
            yield from block.dicts()


# --- checkpoint and config -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointDump:
    """The checkpoint, and what RocketMQ 5 keeps of the kind.

    Attributes:
        times: of log, queues and index.
        whole: whether the file has its length.
        replica: what RocketMQ 5 wrote after the times; None where only 4.9 did.
        timer: config/timercheck; None without one, and where `timer_error` says why it can't be read.
    """

    times: Checkpoint
    whole: bool
    replica: ReplicaOffsets | None = None
    timer: TimerCheck | None = None
    timer_error: FormatError | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields, by Apache's names."""
        values: dict[str, Any] = {
            "physicMsgTimestamp": self.times.physic_msg_timestamp,
            "logicsMsgTimestamp": self.times.logics_msg_timestamp,
            "indexMsgTimestamp": self.times.index_msg_timestamp,
        }
        if self.replica is not None:
            values["masterFlushedOffset"] = self.replica.master_flushed_offset
            values["confirmPhyOffset"] = self.replica.confirm_phy_offset
        if self.timer is not None:
            values["timer"] = {
                "lastReadTimeMs": self.timer.last_read_time,
                "lastTimerLogFlushPos": self.timer.last_timer_log_flush_pos,
                "lastTimerQueueOffset": self.timer.last_timer_queue_offset,
                "masterTimerQueueOffset": self.timer.master_timer_queue_offset,
                "stateVersion": self.timer.state_version,
                "timestamp": self.timer.timestamp,
                "counter": self.timer.counter,
            }
        return values


def dump_checkpoint(disk: Disk, config: StoreConfig) -> CheckpointDump:
    """The checkpoint. What RocketMQ 5 adds is read where it left anything: in that place 4.9 leaves zeros.

    Raises:
        CannotRepair: there is none. NotAStore, StorageError.
    """
    files = survey(disk, config)
    path = os.path.join(files.root, names.CHECKPOINT)
    if not disk.exists(path):
        raise CannotRepair("there is no checkpoint", path=path, hint="rstore recover writes one")
    times, whole = read_checkpoint(disk, path)
    entry = disk.look(path)
    data = disk.read_file(path, checkpoint.REPLICA_SIZE) if entry is not None and entry.is_file else b""
    replica = checkpoint.decode_replica_offsets(data)
    if not files.newer and replica == checkpoint.ReplicaOffsets():
        replica = None
    try:
        return CheckpointDump(times, whole, replica, read_timer_check(disk, files))
    except FormatError as error:
        return CheckpointDump(times, whole, replica, timer_error=error)


def dump_config(disk: Disk, store: StoreConfig | StoreFiles) -> Iterator[ConfigDump]:
    """Topics, offsets and the rest of config/, as a broker would read them: with the .bak where the file is broken.
    `store`: its survey, or the settings that name it.

    Raises:
        NotAStore, StorageError.
    """
    root = surveyed(disk, store).root
    present = present_in(disk, directory_of(root))
    for name in sorted({name.removesuffix(BACKUP) for name in present if name.endswith(_JSON)}):
        yield read_config(disk, root, name)
