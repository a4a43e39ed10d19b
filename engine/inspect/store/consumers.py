"""What consumers have read, by config/consumerOffset.json and config/delayOffset.json: shown before they are deleted.

A group's offset in a queue is that of the next message it reads. Offsets that are no numbers, and files that can't be
read, are problems to be reported: what nobody knows to be read counts as unread only where a group is known at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import names
from engine.inspect.store.config_files import NO_FILE, read_config
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, as_long
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.files.disk import Disk

DELIVERY = "delivery of delayed messages"
"""Stands for the group that reads SCHEDULE_TOPIC_XXXX: the broker itself."""


@dataclass(frozen=True, slots=True)
class LostUnread:
    """Messages that go, and that a group has not read: queue offsets [start, end). `offset` is the group's."""

    group: str
    queue: TopicQueue
    offset: int
    start: int
    end: int

    @property
    def messages(self) -> int:
        """How many."""
        return self.end - self.start

    def to_json(self) -> dict[str, Any]:
        """One line of a plan."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "offset": self.offset,
            "from": self.start,
            "to": self.end,
            "messages": self.messages,
        }

    def __str__(self) -> str:
        return f"{self.group} has not read {self.messages} of {self.queue} (#{self.start} to #{self.end - 1})"


@dataclass(frozen=True, slots=True)
class Consumers:
    """Offsets by queue and group. `problems`: files that can't be read, one sentence each."""

    offsets: dict[TopicQueue, dict[str, int]]
    problems: tuple[str, ...]

    def unread(self, queue: TopicQueue, start: int, end: int) -> list[LostUnread]:
        """Who has not read all of the queue offsets [start, end)."""
        return [
            LostUnread(group, queue, offset, max(start, offset), end)
            for group, offset in sorted(self.offsets.get(queue, {}).items())
            if offset < end and start < end
        ]

    def above(self, queue: TopicQueue, end: int) -> list[tuple[str, int]]:
        """Groups whose offset lies above `end`, the queue's new maximum."""
        return [(group, offset) for group, offset in sorted(self.offsets.get(queue, {}).items()) if offset > end]


def read_consumers(
    disk: Disk, root: str, queues: Iterable[TopicQueue], also: Callable[[str], bool] = lambda _: False
) -> Consumers:
    """What config/ says of these queues, and of all queues of the topics that `also` takes. Raises StorageError."""
    offsets: dict[TopicQueue, dict[str, int]] = {}
    problems: list[str] = []
    by_topic: dict[str, list[TopicQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    for key, table in _table(disk, root, CONSUMERS, problems).items():
        topic, at, group = key.partition("@")
        if not at or not isinstance(table, dict):
            continue
        for number, offset in table.items():
            queue = TopicQueue(topic, _number(number))
            if (queue in by_topic.get(topic, ()) or also(topic)) and queue.queue_id >= 0 and _number(offset) >= 0:
                offsets.setdefault(queue, {})[group] = _number(offset)
    levels = _table(disk, root, DELAYS, problems)
    for queue in by_topic.get(names.SCHEDULE_TOPIC, ()) if levels else ():
        # Level n waits in queue n − 1; a level without an offset is read from the start (ScheduleMessageService#load).
        offsets.setdefault(queue, {})[DELIVERY] = max(0, _number(levels.get(str(queue.queue_id + 1), 0)))
    return Consumers(offsets, tuple(problems))


def _table(disk: Disk, root: str, name: str, problems: list[str]) -> dict[str, Any]:
    file = read_config(disk, root, name)
    if file.problem is not None and file.problem.partition(";")[0] != NO_FILE:
        problems.append(f"config/{name}: {file.problem}" + (f" (read {file.source})" if file.source else ""))
    table = file.value.get("offsetTable") if isinstance(file.value, dict) else None
    return table if isinstance(table, dict) else {}


def _number(value: Any) -> int:
    number = as_long(value)
    return -1 if number is None else number
