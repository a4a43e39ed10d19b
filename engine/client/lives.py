"""What became of a message: its records under all topics that it has been under, in order; no I/O.

A message is put once or more: half, delayed, for consumers, again after each failure, as a dead letter. All of its
records have the id that its producer gave it (UNIQ_KEY); what its clients told of it in the trace topic is beside them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

from engine.client.trace import ConsumeCode, TraceKind, TraceRecord, decode
from engine.dataclass import dataclass
from engine.format import names, properties, sysflag
from engine.format.compression import inflate
from engine.format.delay import DelayLevels
from engine.format.message import StoredMessage
from engine.format.topic_rules import HALF_TOPIC


class LifeStage(enum.Enum):
    """What a record of a message is, or what a client told of it."""

    HALF = "half"
    DELAYED = "delayed"
    STORED = "stored"
    COMMITTED = "committed"
    RETRIED = "retried"
    DEAD = "dead letter"
    SENT = "sent"
    SETTLED = "settled"
    CONSUMING = "given to a consumer"
    CONSUMED = "consumed"


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """One of them.

    Attributes:
        time_ms: since 1970; of a record its store time.
        message, trace: one of them, which tells of it.
        due_ms: of a delayed record, when it is to be delivered; None: nobody knows.
    """

    stage: LifeStage
    time_ms: int
    message: StoredMessage | None = None
    trace: TraceRecord | None = None
    due_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A row of `rstore trace`."""
        row: dict[str, Any] = {"event": self.stage.value, "time": self.time_ms}
        if self.stage is LifeStage.DELAYED:
            row["due"] = self.due_ms
        if self.message is not None:
            return row | {
                "topic": self.message.topic,
                "queueId": self.message.queue_id,
                "queueOffset": self.message.queue_offset,
                "physicalOffset": self.message.physical_offset,
                "storeHost": str(self.message.store_host),
                "reconsumeTimes": self.message.reconsume_times,
            }
        assert self.trace is not None
        return row | {
            "group": self.trace.group,
            "costMs": self.trace.cost_ms,
            "success": self.trace.success,
            "retries": self.trace.retries,
            "state": self.trace.state,
        }


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group stands to a record of a queue: `offset` is what it reads next; None: it has committed nothing."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    offset: int | None

    @property
    def is_after(self) -> bool:
        """Whether the group's offset is after the message: it was consumed, or passed over."""
        return self.offset is not None and self.offset > self.queue_offset

    def to_json(self) -> dict[str, Any]:
        """A row of `rstore trace`."""
        return {
            "event": "group",
            "group": self.group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "offset": self.offset,
            "consumed": self.is_after,
        }


@dataclass(frozen=True, slots=True)
class MessageLife:
    """See the module. `id`: the producer's, or else the broker's."""

    id: str
    topic: str
    keys: str
    events: tuple[LifeEvent, ...]
    groups: tuple[GroupPlace, ...] = ()


def id_of(message: StoredMessage) -> str:
    """What joins the records of one message."""
    return message.properties.get(properties.UNIQ_KEY) or message.msg_id


def stage_of(message: StoredMessage) -> LifeStage:
    """What a record is."""
    if message.topic == HALF_TOPIC:
        return LifeStage.HALF
    if message.topic == names.SCHEDULE_TOPIC:
        return LifeStage.DELAYED
    if message.topic.startswith(names.RETRY_PREFIX):
        return LifeStage.RETRIED
    if message.topic.startswith(names.DLQ_PREFIX):
        return LifeStage.DEAD
    is_committed = sysflag.transaction_type(message.sys_flag) == sysflag.TRANSACTION_COMMIT
    return LifeStage.COMMITTED if is_committed else LifeStage.STORED


Levels = Callable[[StoredMessage], DelayLevels | None]
"""The delay levels of the broker that stored a message; None: it does not tell them."""


def _due_ms(message: StoredMessage, levels: Levels) -> int | None:
    """When a delayed message is to be delivered, ms since 1970; None: it is not delayed, or to a level that is none."""
    of_broker = levels(message) if stage_of(message) is LifeStage.DELAYED else None
    level = message.queue_id + 1
    if of_broker is None or not 1 <= level <= of_broker.max_level:
        return None
    return of_broker.deliver_timestamp(level, message.store_timestamp)


_TOLD = {
    TraceKind.SENT: LifeStage.SENT,
    TraceKind.SETTLED: LifeStage.SETTLED,
    TraceKind.CONSUMING: LifeStage.CONSUMING,
    TraceKind.CONSUMED: LifeStage.CONSUMED,
}


def life_of(
    one_id: str,
    messages: Iterable[StoredMessage],
    traces: Iterable[TraceRecord],
    groups: Iterable[GroupPlace],
    levels: Levels,
) -> MessageLife:
    """The life of one message, of its records and what was told of it; others' are passed over."""
    own = sorted({m.physical_offset: m for m in messages if id_of(m) == one_id}.values(), key=_order)
    told = [record for record in dict.fromkeys(traces) if record.id == one_id]
    events = [
        LifeEvent(stage_of(message), message.store_timestamp, message, due_ms=_due_ms(message, levels))
        for message in own
    ]
    events += [LifeEvent(_TOLD[record.kind], record.time_ms, trace=record) for record in told]
    first = own[0] if own else None
    topic = "" if first is None else first.properties.get(properties.REAL_TOPIC, first.topic)
    keys = "" if first is None else first.properties.get(properties.KEYS, "")
    return MessageLife(one_id, topic, keys, tuple(sorted(events, key=lambda one: one.time_ms)), tuple(groups))


def traces_in(messages: Iterable[StoredMessage]) -> list[TraceRecord]:
    """The records of messages of the trace topic."""
    records: list[TraceRecord] = []
    for message in messages:
        body = inflate(message.body, message.sys_flag)
        records += decode((message.body if body is None else body).decode("utf-8", "replace"))
    return records


def _order(message: StoredMessage) -> tuple[int, int]:
    return message.store_timestamp, message.physical_offset


def outcome(record: TraceRecord) -> str:
    """How consuming ended, in words."""
    match record.code:
        case ConsumeCode.SUCCESS:
            return "success" if record.success else "failure"
        case ConsumeCode.TIME_OUT:
            return "time limit exceeded"
        case ConsumeCode.EXCEPTION:
            return "the handler raised an error"
        case _:
            return "failure"
