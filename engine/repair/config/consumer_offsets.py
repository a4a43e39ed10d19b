"""Consumer offsets of a closed store: what each group has in a queue, and setting one.

A group that stands above its queue's end (the log was cut, or the queue began anew) must be set back before the broker
starts: the ledger of a repair names the command. The file is written as a broker writes it: the old content becomes
its .bak, the new one takes its place in one rename (ConfigManager#persist, MixAll#string2File). It is a repair like
others: what the file held is in salvage/, and undo brings it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, InvalidArgument, Refused
from engine.format import fastjson, names
from engine.inspect.check.config import offsets_file
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queue
from engine.inspect.store.config_files import read_config
from engine.inspect.store.config_shapes import CONSUMERS
from engine.inspect.store.consumers import read_consumers
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.newer import ROCKSDB_CONFIG, refuse_offsets
from engine.inspect.store.survey import survey, surveyed
from engine.log.closed_queue import ClosedQueue
from engine.log.derive import TopicQueue
from engine.repair.config.apply import Write, write_files
from engine.repair.salvage.finish import demand_none_of_store

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_TABLE, _LMQ_TABLE = "offsetTable", "lmqOffsetTable"


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """Setting one offset.

    Attributes:
        config: the store's settings.
        path: the file of config/.
        group, queue: whose offset, and where.
        old: None where the group has none in this queue.
        new: what it reads next.
        min_offset, max_offset: what the queue has (queue offsets).
        value: what the file holds now.
        problem: what is wrong with the file, when `value` is that of its .bak.
        unknown: why the group may be misspelt: nothing in the store knows it. None for a known one.
    """

    config: StoreConfig
    path: str
    group: str
    queue: TopicQueue
    old: int | None
    new: int
    min_offset: int
    max_offset: int
    value: dict[str, Any]
    problem: str | None
    unknown: str | None

    @property
    def problems(self) -> list[str]:
        """What the operator should know."""
        return [one for one in (self.problem, self.unknown) if one is not None]

    @property
    def changed(self) -> bool:
        """Whether anything changes."""
        return self.old != self.new

    @property
    def skipped(self) -> int:
        """Messages that the group will not read; negative: that it will read again."""
        if self.old is None:
            return 0
        return min(self.new, self.max_offset) - min(max(self.old, self.min_offset), self.max_offset)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore offsets set`."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "from": self.old,
            "to": self.new,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
            "skipped": max(0, self.skipped),
            "repeated": max(0, -self.skipped),
            "file": self.path,
            "changed": self.changed,
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has in a queue; the queue's range (queue offsets), None where the queue is not read."""

    group: str
    queue: TopicQueue
    offset: int
    min_offset: int | None
    max_offset: int | None

    @property
    def unread(self) -> int | None:
        """Messages that it has not read."""
        if self.min_offset is None or self.max_offset is None:
            return None
        return max(0, self.max_offset - max(self.offset, self.min_offset))

    @property
    def problem(self) -> str | None:
        """What is wrong with it."""
        if self.min_offset is None or self.max_offset is None:
            return None
        if self.offset > self.max_offset:
            return "above the maximum"
        return "below the minimum" if self.offset < self.min_offset else None

    def to_json(self) -> dict[str, Any]:
        """One line of `rstore offsets list`."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "offset": self.offset,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
            "unread": self.unread,
            "problem": self.problem,
        }


def list_offsets(
    disk: Disk, config: StoreConfig, *, group: str | None = None, topic: str | None = None
) -> tuple[list[GroupOffset], tuple[str, ...]]:
    """Every group's offset in every queue that is there, and what could not be read. Writes nothing.

    Args:
        disk: how files are reached.
        config: the store's settings.
        group: only this group's.
        topic: only in the queues of this topic.

    Raises:
        InvalidArgument: no such group, no such topic. NewerStore: RocketMQ 5 keeps them in RocksDB, and the files of
        config/ have none. NotAStore, StorageError.
    """
    files = survey(disk, config)
    consumers = read_consumers(
        disk, files.root, (offsets_of_groups.queue for offsets_of_groups in files.queues), files.newer.hides
    )
    offsets_of_groups = []
    for queue in sorted(consumers.offsets):
        offsets = {g: offset for g, offset in consumers.offsets[queue].items() if group in (None, g)}
        if offsets and topic in (None, queue.topic):
            low, high = _listed_range(disk, files, queue)
            offsets_of_groups += [GroupOffset(g, queue, offset, low, high) for g, offset in offsets.items()]
    if files.newer.no_config_files and offsets_of_groups:
        where = files.newer.where(ROCKSDB_CONFIG)
        after = f"config/{CONSUMERS} may be old: its 5.x broker keeps offsets in RocksDB ({where}), which are not read"
        return sorted(offsets_of_groups, key=lambda one: (one.group, one.queue)), (*consumers.problems, after)
    if not offsets_of_groups:
        refuse_offsets(files.config, files.root, files.newer)
        known = KnownNames.of(disk, files)
        if group is not None:
            known.demand_group(group)
        if topic is not None:
            known.demand_topic(topic)
    return sorted(offsets_of_groups, key=lambda one: (one.group, one.queue)), consumers.problems


def _listed_range(disk: Disk, files: StoreFiles, queue: TopicQueue) -> tuple[int | None, int | None]:
    """As `queue_range`, of a batch queue of RocketMQ 5, too; None twice for a queue that is not read."""
    if files.newer.is_batch(queue.topic):
        named = batch_queue(disk, files, queue)
        if named is None:
            return None, None
        rows = BatchQueueRows(disk, named, files.log[0].offset if files.log else 0)
        return rows.min_offset, rows.max_offset
    return (None, None) if files.newer.hides(queue.topic) else queue_range(disk, files, queue)


def plan_offset(
    disk: Disk, store: StoreConfig | StoreFiles, group: str, queue: TopicQueue, to: int | str
) -> OffsetPlan:
    """Plan to set a group's offset in a queue; writes nothing.

    Args:
        disk: how files are reached.
        store: its survey, or the settings that name it.
        group: the consumer group.
        queue: topic and queue id.
        to: queue offset of the next message that the group reads, or "min" or "max".

    Raises:
        InvalidArgument: no such queue. Refused: an offset that the queue doesn't have, or a killed repair of the store.
        CannotRepair: the file and its .bak can't be read as JSON. NotAStore, StorageError.
    """
    if not group or "@" in group:
        raise InvalidArgument(f"{group!r} is not a valid consumer group name")
    files = surveyed(disk, store)
    demand_none_of_store(disk, files.config)
    if queue not in {queue_files.queue for queue_files in files.queues}:
        KnownNames.of(disk, files).demand_queue(*queue)
        raise InvalidArgument(f"{queue} never got a message", path=files.root, hint="a group starts there at 0")
    low, high = queue_range(disk, files, queue)
    new = {"min": low, "max": high}.get(to, -1) if isinstance(to, str) else to
    if not low <= new <= high:
        raise Refused(f"{queue} has the offsets {low} to {high}, not {to}", hint="max is its end, min its start")
    path, value, problem = _read(disk, files.root, files.config)
    known = KnownNames.of(disk, files)
    unknown = None
    if group not in known.groups:
        unknown = f"unknown group {group}: {known.near_group(group)}"
    old = _get(value, group, queue)
    return OffsetPlan(files.config, path, group, queue, old, new, low, high, value, problem, unknown)


def set_offset(disk: Disk, plan: OffsetPlan) -> str:
    """Do what the plan says. The caller holds the store's lock.

    The old content becomes the file's .bak, but a broken file does not take the place of a good one.

    Returns:
        the directory that holds what the file was: an undo takes it from there.

    Raises:
        NoSpaceToSave, DiskFull, StorageError: run it again.
    """
    there = disk.exists(plan.path)
    value = fastjson.loads(fastjson.dumps(plan.value))  # the plan stays as it is
    _put(value, plan.group, plan.queue, plan.new)
    why = f"consumer offset of {plan.group} in {plan.queue}: {plan.new}"
    backup = "old" if plan.problem is None and there else None
    write = Write(plan.path, fastjson.dumps(value).encode(), why, backup)
    root = os.fspath(plan.config.store_path_root_dir)
    return write_files(disk, plan.config, root, "offsets-set", [write])


def queue_range(disk: Disk, files: StoreFiles, queue: TopicQueue) -> tuple[int, int]:
    """The queue's smallest and largest offset, as a reader sees them."""
    base = os.path.join(files.root, names.CONSUMEQUEUE)
    first = files.log[0].offset if files.log else 0
    source = next((one.source for one in files.queues if one.queue == queue), None)
    queue_file = ClosedQueue(source or disk, base, queue, files.config.mapped_file_size_consume_queue, first)
    try:
        return queue_file.min_offset, queue_file.max_offset
    finally:
        queue_file.close()


def _read(disk: Disk, root: str, config: StoreConfig) -> tuple[str, dict[str, Any], str | None]:
    """The file's path and value, and what is wrong with it when the value is that of its .bak."""
    directory = os.path.join(root, names.CONFIG)
    name = offsets_file(config, disk.listdir(directory) if disk.is_dir(directory) else ())
    path = os.path.join(directory, name)
    if not disk.exists(path) and not disk.exists(path + ".bak"):
        return path, {_TABLE: {}}, None
    file = read_config(disk, root, name)
    value = file.value
    if file.source is None or not isinstance(value, dict) or not isinstance(value.setdefault(_TABLE, {}), dict):
        raise CannotRepair(
            file.problem or "the file contains no table of offsets", path=path, hint="details: rstore doctor"
        )
    return path, value, file.problem


def _is_light(value: dict[str, Any], queue: TopicQueue) -> bool:
    return names.is_lmq(queue.topic) and isinstance(value.get(_LMQ_TABLE), dict)


def _get(value: dict[str, Any], group: str, queue: TopicQueue) -> int | None:
    key = f"{queue.topic}@{group}"
    if _is_light(value, queue):
        offset = value[_LMQ_TABLE].get(key)
    else:
        table = value[_TABLE].get(key)
        offset = table.get(str(queue.queue_id)) if isinstance(table, dict) else None
    return offset if isinstance(offset, int) else None


def _put(value: dict[str, Any], group: str, queue: TopicQueue, offset: int) -> None:
    key = f"{queue.topic}@{group}"
    if _is_light(value, queue):
        value[_LMQ_TABLE][key] = offset
        return
    if not isinstance(value[_TABLE].get(key), dict):
        value[_TABLE][key] = {}
    value[_TABLE][key][str(queue.queue_id)] = offset
