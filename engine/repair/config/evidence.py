"""What log and queues of a store tell of its topics and groups, without config/."""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, StorageError
from engine.format import message, names, properties
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queues
from engine.log.closed_log import ClosedLogReader
from engine.log.closed_queue import ClosedQueue
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.inspect.store.survey import StoreFiles

RETRY_TOPIC = "RETRY_TOPIC"
"""The topic that a message was first sent to, which a group could not consume. Source: MessageConst."""


@dataclass(slots=True)
class QueueRange:
    """A queue's queue offsets: of its first message that the log still has, and after its last."""

    low: int
    high: int


@dataclass(slots=True)
class Evidence:
    """What the queues hold. `ranges`: of every queue; `pairs`: (topic, group) of messages that were sent back;
    `batches`: the queues of RocketMQ 5 with a unit a batch.
    """

    disk: Disk
    files: StoreFiles
    ranges: dict[TopicQueue, QueueRange] = field(default_factory=dict)
    batches: dict[TopicQueue, BatchQueueRows] = field(default_factory=dict)

    @property
    def topics(self) -> dict[str, int]:
        """Topics whose queues hold messages, and how many queues each needs."""
        queues_of_topics: dict[str, int] = {}
        for queue, span in self.ranges.items():
            if span.high > span.low and queue.queue_id >= 0:
                queues_of_topics[queue.topic] = max(queues_of_topics.get(queue.topic, 0), queue.queue_id + 1)
        return queues_of_topics

    @property
    def batch_topics(self) -> set[str]:
        """Topics whose queues have a unit a batch."""
        return {queue.topic for queue in self.batches}

    @property
    def groups(self) -> dict[str, int]:
        """Groups of retry and dead letter queues, and how many retry queues each has (at least 1)."""
        queues_of_groups: dict[str, int] = {}
        for queue in self.ranges:
            for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
                group = queue.topic.removeprefix(prefix)
                if group != queue.topic and group:
                    count = queue.queue_id + 1 if prefix == names.RETRY_PREFIX else 1
                    queues_of_groups[group] = max(queues_of_groups.get(group, 1), count)
        return queues_of_groups

    def queues_of(self, topic: str) -> dict[int, QueueRange]:
        """A topic's queues by id."""
        return {queue.queue_id: span for queue, span in self.ranges.items() if queue.topic == topic}

    def pairs(self) -> set[tuple[str, str]]:
        """(topic, group) where a group has sent messages of a topic back, or reads its retry topic."""
        pairs: set[tuple[str, str]] = set()
        with self.log() as log:
            for queue in self.ranges:
                for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
                    group = queue.topic.removeprefix(prefix)
                    if group == queue.topic or not group:
                        continue
                    if prefix == names.RETRY_PREFIX:
                        pairs.add((queue.topic, group))
                    for one in self.messages(log, queue):
                        topic = one.properties.get(RETRY_TOPIC)
                        if topic:
                            pairs.add((topic, group))
        return pairs

    def messages(self, log: LogOf, queue: TopicQueue) -> Iterator[StoredMessage]:
        """The messages of a queue that can be read."""
        with self.queue(queue) as rows:
            for offset in range(rows.min_offset, rows.max_offset):
                unit = rows.get(offset)
                if unit is None or unit.is_pre_blank:
                    continue
                message = log.message(unit.physical_offset, unit.size)
                if message is not None:
                    yield message

    def by_time(self, queue: TopicQueue, millis: int) -> int:
        """Queue offset of the first message that was stored at that time (ms) or later."""
        if queue in self.batches:
            return self.batches[queue].at_time(millis)
        with self.log() as log, self.queue(queue) as rows:
            return rows.lower_bound_by_time(millis, log.store_time)

    def log(self) -> LogOf:
        """The log, to be closed."""
        return LogOf(ClosedLogReader(self.disk, self.files.log, self.files.config))

    def queue(self, queue: TopicQueue) -> OpenQueue:
        """A queue's units, to be closed."""
        base = os.path.join(self.files.root, names.CONSUMEQUEUE)
        first = self.files.log[0].offset if self.files.log else 0
        return OpenQueue(self.disk, base, queue, self.files.config.mapped_file_size_consume_queue, first)


class OpenQueue(ClosedQueue):
    """A `ClosedQueue` as a context manager."""

    def __enter__(self) -> OpenQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogOf:
    """Messages of the log by place. A context manager."""

    def __init__(self, reader: ClosedLogReader) -> None:
        self._reader = reader

    def __enter__(self) -> LogOf:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def message(self, physical: int, size: int) -> StoredMessage | None:
        """The message at a physical offset; None where none can be read."""
        try:
            data = self._reader.read_at(physical, size)
            return None if data is None else message.decode(data)
        except (FormatError, StorageError):
            return None

    def store_time(self, physical: int, size: int) -> int:
        """When a message was stored, ms; −1 where none can be read."""
        message = self.message(physical, size)
        return -1 if message is None else message.store_timestamp


def evidence_of(disk: Disk, files: StoreFiles) -> Evidence:
    """Look at every queue. Raises StorageError."""
    evidence = Evidence(disk, files)
    for one in files.queues:
        with evidence.queue(one.queue) as rows:
            evidence.ranges[one.queue] = QueueRange(min(rows.min_offset, rows.max_offset), rows.max_offset)
    for batch in batch_queues(disk, files)[0]:
        units = BatchQueueRows(disk, batch, files.log[0].offset if files.log else 0)
        evidence.batches[batch.queue] = units
        evidence.ranges[batch.queue] = QueueRange(min(units.min_offset, units.max_offset), units.max_offset)
    return evidence


def real_place(message: StoredMessage) -> tuple[str, str] | None:
    """Topic and queue that a delayed message is to be delivered to. None when it names none."""
    named = message.properties
    topic = named.get(properties.REAL_TOPIC)
    return (topic, named.get(properties.REAL_QID, "0")) if topic else None
