"""What consumers may be told, with the defaults of Apache's classes. Values only."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from pathlib import Path

from engine.client.allocate import Averagely, Strategy
from engine.client.messages import ReceivedMessage
from engine.client.process_queue import FlowLimits
from engine.dataclass import dataclass


class ConsumeOutcome(enum.Enum):
    """What became of messages that a handler was given. LATER: not consumed, to be given again."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


Handler = Callable[[Sequence[ReceivedMessage]], Awaitable[ConsumeOutcome] | Awaitable[None]]
"""Consumes messages. None is SUCCESS; an exception is LATER."""


class StartFrom(enum.Enum):
    """Where a group begins that has committed nothing. Source: ConsumeFromWhere."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class StartAt(enum.Enum):
    """What StartFrom comes to for one queue."""

    FIRST = enum.auto()
    END = enum.auto()
    TIME = enum.auto()


def start_at(start: StartFrom, *, is_retry: bool) -> StartAt:
    """Where a group begins with a queue of which it has committed nothing. `is_retry`: of the group's retry topic.

    Source: RebalancePushImpl#computePullFromWhereWithException.
    """
    match start:
        case StartFrom.FIRST_OFFSET:
            return StartAt.FIRST
        case StartFrom.LAST_OFFSET:
            return StartAt.FIRST if is_retry else StartAt.END
        case StartFrom.TIMESTAMP:
            return StartAt.END if is_retry else StartAt.TIME


class MessageModel(enum.Enum):
    """Whether consumers of a group share its messages, or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Of every consumer of a group. Times in s.

    Attributes:
        start_ms: of StartFrom.TIMESTAMP, store time in ms.
        pull: messages of a pull. `limits`: of each queue.
        persist_s: how often offsets are stored. `rebalance_s`: how often queues are shared out again.
        offsets_in: directory of the offsets of broadcasting; None: ~/.rocketmq_offsets.
        trace: what is consumed is told in the trace topic; a pull consumer tells nothing.
    """

    model: MessageModel = MessageModel.CLUSTERING
    start: StartFrom = StartFrom.LAST_OFFSET
    start_ms: int = 0
    strategy: Strategy = field(default_factory=Averagely)
    pull: int = 32
    limits: FlowLimits = field(default_factory=FlowLimits)
    persist_s: float = 5.0
    rebalance_s: float = 20.0
    offsets_in: Path | None = None
    trace: bool = False


@dataclass(frozen=True, slots=True)
class LitePullSettings(GroupSettings):
    """Under the defaults of DefaultLitePullConsumer.

    Attributes:
        auto_commit: what `poll` gave counts as consumed when it is called again, and when the consumer ends without an
            error; False: when `commit` is called.
        total: messages of all queues that wait to be polled, from which on nothing more is pulled
            (pullThresholdForAll). `poll_s`: how long `poll` waits for a message.
    """

    pull: int = 10
    auto_commit: bool = True
    total: int = 10_000
    poll_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ConsumerSettings(GroupSettings):
    """Of a push consumer, under the defaults of DefaultMQPushConsumer. Times in s.

    Attributes:
        ordered: a queue's messages one after another; one that fails holds its queue.
        batch: messages that a handler is given at a time. `at_once`: handlers that run at a time, not for ordered.
        most_times: how often a message is given again before it is a dead letter; None: 16, and for ever if ordered.
        delay_level: of messages that are given again; 0: the broker's rule, below 0: dead letters at once.
        timeout_s: after that a handler is cancelled, and its messages are given again.
        suspend_s: how long a queue waits after a message of it failed, where ordered.
        patience_s: how long handlers that run may go on when the consumer is closed; they are cancelled then.
    """

    ordered: bool = False
    batch: int = 1
    at_once: int = 20
    most_times: int | None = None
    delay_level: int = 0
    timeout_s: float = 900.0
    suspend_s: float = 1.0
    patience_s: float = 10.0

    @property
    def retries(self) -> int:
        """How often a message is given again. Source: DefaultMQPushConsumerImpl#getMaxReconsumeTimes."""
        if self.most_times is not None:
            return self.most_times
        return _FOR_EVER if self.ordered else _RETRIES


_FOR_EVER = (1 << 31) - 1
_RETRIES = 16
