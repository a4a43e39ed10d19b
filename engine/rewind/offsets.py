"""Offsets of groups and of delay levels that stand above a queue's new maximum are brought back to it.

A group whose offset lies above its queue's maximum would miss what the new master's log has there, until the slave has
copied its master's tables. A queue of which the log has no message (all of them are cut, or never came to the slave)
ends at 0.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import fastjson, names
from engine.inspect.store.config_files import read_config
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, LMQ_CONSUMERS, LMQ_TABLE, OFFSET_TABLE, as_long
from engine.inspect.store.consumers import DELIVERY
from engine.log.derive import TopicQueue
from engine.repair.config.apply import Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.files.disk import Disk

_WHY = "offsets after the log end"


@dataclass(frozen=True, slots=True)
class OffsetBack:
    """A group's offset in a queue that becomes the queue's maximum: `old` − `new` messages that go were read."""

    group: str
    queue: TopicQueue
    old: int
    new: int

    def to_json(self) -> dict[str, Any]:
        """One line of a plan."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "from": self.old,
            "to": self.new,
        }


@dataclass(frozen=True, slots=True)
class OffsetsPlan:
    """The offsets, and the files that hold them then. `problems`: files that can't be read, a sentence each."""

    back: tuple[OffsetBack, ...] = ()
    writes: tuple[Write, ...] = ()
    problems: tuple[str, ...] = ()


def plan_offsets(disk: Disk, root: str, ends: Mapping[TopicQueue, int]) -> OffsetsPlan:
    """Plan for a store whose queues will have these maxima. Raises StorageError."""
    back: list[OffsetBack] = []
    writes, problems = [], []
    for name in (CONSUMERS, LMQ_CONSUMERS, DELAYS):
        path = os.path.join(root, names.CONFIG, name)
        if not disk.exists(path):
            continue
        file = read_config(disk, root, name)
        if file.problem is not None or not isinstance(file.value, dict):
            problems.append(f"config/{name}: {file.problem}: its offsets stay as they are")
            continue
        value = fastjson.loads(fastjson.dumps(file.value))
        lower = [*(_delays(value, ends) if name == DELAYS else _groups(value, ends))]
        if lower:
            back += lower
            writes.append(Write(path, fastjson.dumps(value).encode(), _WHY, "old"))
    return OffsetsPlan(tuple(back), tuple(writes), tuple(problems))


def _groups(value: dict[str, Any], ends: Mapping[TopicQueue, int]) -> Iterator[OffsetBack]:
    for key, offsets in _table(value, OFFSET_TABLE).items():
        topic, _, group = key.partition("@")
        for number in list(offsets) if isinstance(offsets, dict) else ():
            queue_id = names.queue_id_of(str(number))
            if queue_id is not None:
                yield from _lower(offsets, number, group, TopicQueue(topic, queue_id), ends)
    light = _table(value, LMQ_TABLE)
    for key in list(light):
        topic, _, group = key.partition("@")
        yield from _lower(light, key, group, TopicQueue(topic, 0), ends)


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}


def _delays(value: dict[str, Any], ends: Mapping[TopicQueue, int]) -> Iterator[OffsetBack]:
    table = _table(value, OFFSET_TABLE)
    for level in list(table):
        if str(level).isdecimal():  # level n waits in queue n − 1: ScheduleMessageService
            yield from _lower(table, level, DELIVERY, TopicQueue(names.SCHEDULE_TOPIC, int(level) - 1), ends)


def _lower(
    table: dict[str, Any], key: str, group: str, queue: TopicQueue, ends: Mapping[TopicQueue, int]
) -> Iterator[OffsetBack]:
    # A queue that the log has nothing of begins at 0, but for a light one: nobody may have read those.
    old, end = as_long(table[key]), ends.get(queue, None if names.is_lmq(queue.topic) else 0)
    if old is not None and end is not None and old > end:
        table[key] = end
        yield OffsetBack(group, queue, old, end)
