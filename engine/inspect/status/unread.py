"""What consumers have not read yet, by config/ against the queues: messages, bytes and the oldest, by group and topic.

A group's offset in a queue is that of the next message it reads. One below the queue's minimum or above its maximum is
named as a finding: a broker moves both into the range. Broadcasting consumers keep their offsets to themselves, so a
group without any is named, never counted. Retry topics have their group in their name: retries that their group has no
offset for are reported as such. The broker itself reads SCHEDULE_TOPIC_XXXX, by delayOffset.json.

Sources: ConsumerOffsetManager, LmqConsumerOffsetManager, ScheduleMessageService#load, SubscriptionGroupManager (4.9.8).
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from engine.dataclass import dataclass
from engine.format import names
from engine.format.delay import queue_of_level
from engine.inspect.check.config import numbers, offsets_file, read_config
from engine.inspect.store.config_files import directory_of
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, GROUPS, LMQ_TABLE
from engine.inspect.store.consumers import DELIVERY
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.check.config import ConfigFiles
    from engine.inspect.finding import Findings
    from engine.inspect.status.queue_space import QueueSpace

_BROKERS_OWN = {
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
    *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS"),
}
"""Groups that each broker makes for itself. Source: SubscriptionGroupManager#init."""
_SYSTEM_GROUP = "CID_RMQ_SYS_"
"""Source: MixAll#isSysConsumerGroup."""


class UnitRows(Protocol):
    """The units of a queue, such as QueueRows."""

    def read(self, start: int, end: int) -> NDArray[np.void]:
        """Those of the queue offsets [start, end)."""
        ...


@dataclass(frozen=True, slots=True)
class QueueUnread:
    """A group in one queue: its offset (None without one) and the queue's range (queue offsets).

    `size`: bytes of what it has not read; `oldest`: physical offset of the oldest of it, −1 for none.
    """

    queue_id: int
    offset: int | None
    min_offset: int
    max_offset: int
    size: int = 0
    oldest: int = -1

    @property
    def messages(self) -> int:
        """How many it has not read; 0 where nobody knows its offset."""
        return 0 if self.offset is None else max(0, self.max_offset - max(self.offset, self.min_offset))

    def to_json(self) -> dict[str, Any]:
        """One line of "queues"."""
        return {
            "queueId": self.queue_id,
            "offset": self.offset,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
            "messages": self.messages,
        }


@dataclass(slots=True)
class GroupUnread:
    """What a group has not read of a topic. `size`: bytes. `oldest`: physical offset of the oldest of it, −1 for none.

    `oldest_timestamp`: when that was stored (ms), 0 when nobody can tell. `unknown`: messages in queues that the group
    has no offset for.
    """

    group: str
    topic: str
    messages: int = 0
    size: int = 0
    estimated: bool = False
    oldest: int = -1
    oldest_timestamp: int = 0
    unknown: int = 0
    queues: list[QueueUnread] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One line of "groups"."""
        return {
            "group": self.group,
            "topic": self.topic,
            "messages": self.messages,
            "bytes": self.size,
            "estimated": self.estimated,
            "oldestStoreTimestamp": self.oldest_timestamp,
            "oldestPhysicalOffset": self.oldest,
            "messagesWithoutOffset": self.unknown,
            "queues": [q.to_json() for q in self.queues],
        }


class UnreadCount:
    """Collects queue by queue.

    `name`: the file of config/ that holds the offsets; `source`: it or its .bak, None without; `written`: when (ms).
    `without`: groups that are configured, but have no offset anywhere.
    """

    def __init__(self, findings: Findings) -> None:
        self.name = CONSUMERS
        self.source: str | None = None
        self.written = 0
        self.groups: dict[tuple[str, str], GroupUnread] = {}
        self.without: list[str] = []
        self._findings = findings
        self._offsets: dict[TopicQueue, dict[str, int]] = {}
        self._readers: dict[str, set[str]] = {}

    def cuts(self, queue: TopicQueue) -> list[int]:
        """The queue offsets at which groups stand."""
        return sorted(set(self._of(queue).values()))

    def queues(self) -> list[TopicQueue]:
        """The queues that a group has an offset in, as far as they were not added yet."""
        return list(self._offsets)

    def add(self, queue: TopicQueue, rows: UnitRows, space: QueueSpace) -> None:
        """A queue that is there, measured with its `cuts`."""
        offsets = self._of(queue)
        self._offsets.pop(queue, None)
        low, high = space.min_offset, space.max_offset
        # A message that fails is sent to %RETRY%<group>, which that group subscribes to by itself.
        of_name = queue.topic.removeprefix(names.RETRY_PREFIX) if queue.topic.startswith(names.RETRY_PREFIX) else None
        for group in sorted(self._readers.get(queue.topic, set()) | ({of_name} if of_name else set())):
            lag = self._group(group, queue.topic)
            offset = offsets.get(group)
            line = QueueUnread(queue.queue_id, offset, low, high)
            if offset is None:
                lag.queues.append(line)
                lag.unknown += high - low
                continue
            self._judge(group, queue, offset, low, high)
            if line.messages:
                at = max(offset, low)
                first = int(rows.read(at, at + 1)["physical_offset"][0])
                line = replace(line, size=space.after[offset], oldest=first)
                lag.messages += line.messages
                lag.size += line.size
                lag.estimated |= space.estimated
                lag.oldest = first if lag.oldest < 0 else min(lag.oldest, first)
            lag.queues.append(line)

    def finish(self, hides: Callable[[str], bool]) -> None:
        """Name the offsets of queues that are not there. `hides`: tells topics whose queues are not read."""
        for queue, offsets in self._offsets.items():
            if hides(queue.topic):
                continue
            for group, offset in offsets.items():
                self._group(group, queue.topic)
                if offset > 0:
                    detail = f"{queue} for {group}: {offset}"
                    self._findings.add("consumer-queue", _key(group, queue), self._where(group, queue), detail)

    def by_messages(self) -> list[GroupUnread]:
        """The groups, that with the most unread messages first."""
        return sorted(self.groups.values(), key=lambda g: (-g.messages, -g.unknown, g.group, g.topic))

    def to_json(self) -> dict[str, Any]:
        """The "unread" of a status."""
        return {
            "source": None if self.source is None else f"{names.CONFIG}/{self.source}",
            "written": self.written,
            "groups": [g.to_json() for g in self.by_messages()],
            "groupsWithoutOffsets": self.without,
        }

    def take(self, topic: str, group: str, table: object, place: str) -> None:
        """A group's offsets in a topic, as a file of config/ has them."""
        self._readers.setdefault(topic, set()).add(group)
        for queue_id, offset in numbers(place, f"{topic}@{group}", table, self._findings):
            self._offsets.setdefault(TopicQueue(topic, queue_id), {})[group] = offset

    def readers(self) -> set[str]:
        """The groups that have an offset anywhere."""
        return {group for readers in self._readers.values() for group in readers}

    def _of(self, queue: TopicQueue) -> dict[str, int]:
        """The groups' offsets in a queue. A delay level without one is read from the start."""
        offsets = self._offsets.get(queue, {})
        if queue.topic == names.SCHEDULE_TOPIC and DELIVERY in self._readers.get(queue.topic, ()):
            return {DELIVERY: 0, **offsets}
        return offsets

    def _group(self, group: str, topic: str) -> GroupUnread:
        return self.groups.setdefault((group, topic), GroupUnread(group, topic))

    def _where(self, group: str, queue: TopicQueue) -> str:
        name = DELAYS if group == DELIVERY else self.name
        return f"{names.CONFIG}/{name} {_key(group, queue)} queue {queue.queue_id}"

    def _judge(self, group: str, queue: TopicQueue, offset: int, low: int, high: int) -> None:
        if low <= offset <= high:
            return
        key, where = _key(group, queue), self._where(group, queue)
        if group == DELIVERY:
            # A level that nothing came to yet has 0, and its queue may begin later.
            if offset > high or offset > 0:
                self._findings.add("delay-range", key, where, f"{queue}: {offset}, its queue has {low} to {high}")
        elif offset > high:
            detail = f"{queue} for {group}: {offset}, the maximum is {high}"
            self._findings.add("consumer-above", key, where, detail)
        else:
            detail = f"{queue} for {group}: {offset}, the minimum is {low}"
            self._findings.add("consumer-below", key, where, detail)


def read_offsets(disk: Disk, config: StoreConfig, root: str, findings: Findings) -> UnreadCount:
    """What config/ says of consumers. What can't be read is noted, and its .bak taken, as a broker does.

    Raises:
        StorageError: the system can't read it.
    """
    return unread_of(disk, read_config(disk, config, root, findings), config, root, findings)


def unread_of(disk: Disk, files: ConfigFiles, config: StoreConfig, root: str, findings: Findings) -> UnreadCount:
    """As `read_offsets`, of files that were read.

    Raises:
        StorageError: the system can't read it.
    """
    unread = UnreadCount(findings)
    name = unread.name = offsets_file(config, files.present or ())
    unread.source = files.sources.get(name)
    if unread.source is not None:
        unread.written = disk.stat(os.path.join(directory_of(root), unread.source)).mtime_ns // 1_000_000
    place = f"{names.CONFIG}/{name}"
    for key, table in files.table(name).items():
        _take(unread, key, table, place, findings)
    for key, offset in files.tables.get(name, {}).get(LMQ_TABLE, {}).items():
        _take(unread, key, {"0": offset}, place, findings)
    for level, offset in numbers(f"{names.CONFIG}/{DELAYS}", "offsetTable", files.table(DELAYS), findings):
        if level > 0:
            unread.take(
                names.SCHEDULE_TOPIC, DELIVERY, {str(queue_of_level(level)): offset}, f"{names.CONFIG}/{DELAYS}"
            )
        else:
            findings.add("delay-range", DELAYS, f"{names.CONFIG}/{DELAYS}", f"level {level} does not exist")
    unread.without = sorted(files.table(GROUPS).keys() - unread.readers() - _BROKERS_OWN)
    unread.without = [group for group in unread.without if not group.startswith(_SYSTEM_GROUP)]
    return unread


def _take(unread: UnreadCount, key: str, table: object, place: str, findings: Findings) -> None:
    topic, separator, group = key.partition("@")
    if not separator or not topic or not group or "@" in group:
        findings.add("config-value", place, place, f"{key!r} is not topic@group")
        return
    unread.take(topic, group, table, place)


def _key(group: str, queue: TopicQueue) -> str:
    return f"{queue.topic}@{group}"
