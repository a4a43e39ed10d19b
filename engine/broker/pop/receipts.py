"""What a pop leaves behind, as RocketMQ 5 writes it: receipts for clients, checkpoints and acknowledgements.

A checkpoint says which messages of a queue were given, to whom, and when they come again; an acknowledgement takes one
of them off it. Both are messages of the revive topic, JSON with short keys.

Source: ExtraInfoUtil, PopCheckPoint, AckMsg, BatchAckMsg, KeyBuilder, PopMessageProcessor#genCkUniqueId (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import names
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
ORDER_QUEUE = 999
"""Stands for the revive queue of what is popped in order. Source: KeyBuilder#POP_ORDER_REVIVE_QUEUE."""
CHECKPOINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
"""Tags of messages in the revive topic."""
MOST_POPPED = 32


def retry_topic(topic: str, group: str) -> str:
    """Where a message goes that was not acknowledged. Source: KeyBuilder#buildPopRetryTopicV1."""
    return f"{names.RETRY_PREFIX}{group}_{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic belongs to. Source: KeyBuilder#parseNormalTopic."""
    if not topic.startswith(names.RETRY_PREFIX):
        return topic
    return topic[len(names.RETRY_PREFIX) + len(group) + 1 :]


def kind_of(topic: str) -> str:
    """Whether a topic is a retry topic, and how its name is made. Source: ExtraInfoUtil#getRetry."""
    if not topic.startswith(names.RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def topic_of_kind(topic: str, group: str, kind: str) -> str:
    """The topic that a client names by its kind. Source: ExtraInfoUtil#getRealTopic."""
    if kind == RETRY_V2:
        return f"{names.RETRY_PREFIX}{group}+{topic}"
    return retry_topic(topic, group) if kind == RETRY_V1 else topic


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a client has of a message that it popped. Times in ms."""

    start_offset: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker_name: str
    queue_id: int

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """From a client's extraInfo. Raises FormatError."""
        words = text.split(" ")
        try:
            start, time, invisible = (parse_int(word, LONG_MIN, LONG_MAX) for word in words[:3])
            return cls(start, time, invisible, parse_int(words[3]), words[4], words[5], parse_int(words[6]))
        except (ValueError, IndexError):
            raise FormatError(f"invalid extraInfo: {text[:200]!r}") from None

    def of(self, queue_offset: int) -> str:
        """The receipt of the message with this queue offset."""
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_ms} {self.revive_queue} {self.kind} "
            f"{self.broker_name} {self.queue_id} {queue_offset}"
        )


@dataclass(frozen=True, slots=True)
class PopCheckpoint:
    """Messages of a queue that a group has popped. `offsets`: their queue offsets; times in ms."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_ms: int
    broker_name: str
    offsets: tuple[int, ...]

    @property
    def revive_ms(self) -> int:
        """When what was not acknowledged comes again."""
        return self.pop_time + self.invisible_ms

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """By what an acknowledgement finds it."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of its message. Source: PopMessageProcessor#genCkUniqueId."""
        parts = (self.topic, self.queue_id, self.start_offset, self.group, self.pop_time, self.broker_name, CHECKPOINT)
        return "@".join(map(str, parts))

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ 5 has it."""
        return {
            "bm": 0,
            "bn": self.broker_name,
            "c": self.group,
            "d": [offset - self.start_offset for offset in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "pt": self.pop_time,
            "q": self.queue_id,
            "ro": 0,
            "so": self.start_offset,
            "t": self.topic,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> PopCheckpoint:
        """From either. Raises FormatError."""
        try:
            start, bits = int(value["so"]), int(value.get("bm", 0))
            differences = value.get("d") or range(int(value["n"]))
            given = [start + int(one) for at, one in enumerate(differences) if not bits >> at & 1]
            return cls(
                str(value["t"]), str(value["c"]), int(value["q"]), start, int(value["pt"]), int(value["it"]),
                str(value.get("bn") or ""), tuple(given),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise FormatError("invalid pop checkpoint") from None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Messages of a checkpoint that were acknowledged."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str
    offsets: tuple[int, ...]

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """As `PopCheckpoint.key`."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    @property
    def tag(self) -> str:
        """Of its message."""
        return ACK if len(self.offsets) == 1 else BATCH_ACK

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of its message. Source: PopMessageProcessor#genAckUniqueId."""
        offset = self.offsets[0] if len(self.offsets) == 1 else -1
        parts = (self.topic, self.queue_id, offset, self.group, self.pop_time, self.broker_name, ACK)
        return "@".join(map(str, parts))

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ 5 has it."""
        value = {
            "ao": self.offsets[0] if len(self.offsets) == 1 else -1,
            "bn": self.broker_name,
            "c": self.group,
            "pt": self.pop_time,
            "q": self.queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }
        return value if len(self.offsets) == 1 else {**value, "aol": list(self.offsets)}

    @classmethod
    def of_json(cls, value: Mapping[str, Any], broker_name: str) -> Acknowledged:
        """From either; `broker_name`: where it names none. Raises FormatError."""
        try:
            offsets = value["aol"] if "aol" in value else [value["ao"]]
            return cls(
                str(value["t"]), str(value["c"]), int(value["q"]), int(value["so"]), int(value["pt"]),
                str(value.get("bn") or broker_name), tuple(int(one) for one in offsets),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise FormatError("invalid pop acknowledgement") from None


def start_info(taken: Iterable[PopCheckpoint]) -> str:
    """startOffsetInfo of an answer. Source: ExtraInfoUtil#buildStartOffsetInfo."""
    return ";".join(f"{kind_of(one.topic)} {one.queue_id} {one.start_offset}" for one in taken)


def offset_info(taken: Iterable[PopCheckpoint]) -> str:
    """msgOffsetInfo of an answer. Source: ExtraInfoUtil#buildMsgOffsetInfo."""
    return ";".join(f"{kind_of(one.topic)} {one.queue_id} {','.join(map(str, one.offsets))}" for one in taken)
