"""Half messages that are deleted with the oldest segments, and that nobody has committed or rolled back.

There are two kinds. A record whose sysFlag says *prepared*: settled by a commit or rollback record that names its
physical offset. And a message of RMQ_SYS_TRANS_HALF_TOPIC, which is how a broker keeps them: settled when the broker's
own group has read past it, or by a message of the operations' topic that names its queue offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import sysflag
from engine.format.record import prepared_offset_at
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC
from engine.log.derive import TopicQueue
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.inspect.store.consumers import Consumers
    from engine.log.source import ClosedLog, Segment

GROUP = "CID_RMQ_SYS_TRANS"


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message that is deleted unsettled: where it is (physical offset), its topic and queue, store time (ms)."""

    physical_offset: int
    queue: TopicQueue
    store_timestamp: int

    def to_json(self) -> dict[str, Any]:
        """One line of a plan."""
        return {
            "physicalOffset": self.physical_offset,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "storeTimestamp": self.store_timestamp,
        }


def open_half_messages(
    log: ClosedLog,
    config: StoreConfig,
    segments: Sequence[Segment],
    consumers: Consumers,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, tuple[HalfMessage, ...]]:
    """Read the segments that are deleted, and what is after them only as long as a half message in them is open.

    Returns:
        the records in the segments, and the half messages that stay open, in log order.
    """
    if not segments:
        return 0, ()
    scanner = Scanner(log, check_crc=False, max_message_size=config.max_message_size)
    start, border = segments[0].offset, segments[-1].end
    search = _Search(border, consumers)
    records = 0
    for event in scanner.scan(start, border, resume=True):
        if isinstance(event, RecordBatch):
            search.feed(event)
            records += len(event)
            if progress is not None:
                progress(event.end - start, border - start)
    for event in scanner.scan(border, resume=True) if search.open else ():
        if isinstance(event, RecordBatch):
            search.feed(event)
            if not search.open:
                break
    return records, tuple(sorted(search.open, key=lambda half: half.physical_offset))


class _Search:
    """Open half messages before `border` (physical); records are fed in log order."""

    def __init__(self, border: int, consumers: Consumers) -> None:
        self._border = border
        self._consumers = consumers
        self._prepared: dict[int, HalfMessage] = {}
        self._waiting: dict[tuple[int, int], HalfMessage] = {}

    @property
    def open(self) -> list[HalfMessage]:
        """Halves that nothing has settled so far."""
        return [*self._prepared.values(), *self._waiting.values()]

    def feed(self, batch: RecordBatch) -> None:
        half_topic, op_topic = HALF_TOPIC.encode(), OP_TOPIC.encode()
        for i, row in enumerate(batch.rows):
            kind = sysflag.transaction_type(row.sys_flag)
            offset = batch.offset(i)
            if kind in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
                self._prepared.pop(prepared_offset_at(batch.buffer, row.body_position), None)
            elif kind == sysflag.TRANSACTION_PREPARED and offset < self._border:
                topic = batch.topic(i).decode("utf-8", "replace")
                self._prepared[offset] = HalfMessage(offset, TopicQueue(topic, row.queue_id), row.store_timestamp)
            elif row.topic_length in (len(half_topic), len(op_topic)):
                topic_bytes = batch.topic(i)
                if topic_bytes == half_topic and offset < self._border:
                    queue = TopicQueue(HALF_TOPIC, row.queue_id)
                    if row.queue_offset >= self._consumers.offsets.get(queue, {}).get(GROUP, 0):
                        self._waiting[row.queue_id, row.queue_offset] = HalfMessage(offset, queue, row.store_timestamp)
                elif topic_bytes == op_topic:
                    for number in bytes(batch.body(i)).decode("ascii", "replace").split(","):
                        if number.strip().isdecimal():
                            self._waiting.pop((row.queue_id, int(number)), None)
