"""The request of a pull, and what its answer says, judged: who reads on goes by it. No I/O.

Source: PullAPIWrapper#pullKernelImpl, MQClientAPIImpl#processPullResponse; what a broker may answer:
DefaultMessageStore#getMessage, PullMessageProcessor, PullMessageProcessor#rewriteResponseForStaticTopic (5.x).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from engine.client.messages import ReceivedMessage, received
from engine.client.routes import MASTER
from engine.dataclass import dataclass
from engine.errors import FormatError, RefusedByBroker
from engine.format.message import decode_each
from engine.format.names import is_lmq
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.format.quantities import counted
from engine.format.sysflag import INNER_BATCH
from engine.wire.codes import PULL_COMMIT, PULL_SUBSCRIPTION, PULL_SUSPEND, ResponseCode

if TYPE_CHECKING:
    from engine.client.queues import MessageQueue
    from engine.client.subscriptions import TopicSubscription
    from engine.format.message import StoredMessage
    from engine.wire.command import RemotingCommand

_HELD_S = 0.5
_LEAST_S, _MOST_S = 0.05, 3.0
_SHOWN = 40
"""Characters of a peer's answer that an error quotes."""


class PullStatus(enum.Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull gave.

    Attributes:
        next_offset: where the next pull begins.
        min_offset, max_offset: of the queue.
        broker_id: who should be asked next.
    """

    status: PullStatus
    messages: tuple[ReceivedMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int


def pull_fields(
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: TopicSubscription | None,
    *,
    most: int = 32,
    wait_ms: int = 0,
    commit: int | None = None,
) -> dict[str, str]:
    """The fields of PULL_MESSAGE.

    Args:
        subscription: that the pull brings; None: the one of the heartbeats.
        wait_ms: how long the broker may hold it.
        commit: the group's offset, stored on the way.
    """
    flags = PULL_SUSPEND if wait_ms else 0
    flags |= 0 if subscription is None else PULL_SUBSCRIPTION
    flags |= 0 if commit is None else PULL_COMMIT
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(most),
        "sysFlag": str(flags),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "0",
        "bname": queue.broker,
    }
    if subscription is not None:
        fields |= {"subscription": subscription.expression, "expressionType": subscription.kind}
        fields["subVersion"] = str(subscription.version)
    return fields


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull that was sent: what its answer is judged by.

    Attributes:
        most: messages that were asked for at most.
        address: who was asked.
    """

    queue: MessageQueue
    offset: int
    most: int
    address: str

    def result(self, answer: RemotingCommand, namespace: str = "") -> PullResult:
        """What the answer says: all its messages, also those that a subscription does not want.

        Raises:
            RefusedByBroker. FormatError: the answer makes no sense.
        """
        try:
            status = PullStatus(answer.code)
        except ValueError:
            raise RefusedByBroker.of(answer.code, answer.remark, self.address) from None
        next_offset = self._number(answer, "nextBeginOffset")
        messages: tuple[ReceivedMessage, ...] = ()
        if status is PullStatus.FOUND:
            records = self._records(answer)
            self._demand_asked_for(records, next_offset)
            messages = tuple(received(record, self.queue.broker, namespace) for record in records)
        return PullResult(
            status,
            messages,
            next_offset,
            self._number(answer, "minOffset", least=-1),  # -1: a broker that has no such queue (any more)
            self._number(answer, "maxOffset", least=-1),
            self._number(answer, "suggestWhichBrokerId", str(MASTER)),
        )

    def _records(self, answer: RemotingCommand) -> list[StoredMessage]:
        try:
            records = list(decode_each(answer.body))
        except FormatError as error:
            raise self._nonsense(f"a malformed record: {error.message}") from None
        delta = self._number(answer, "offsetDelta", "0", least=LONG_MIN)
        if delta:  # a static topic of 5.x: the broker that has a part of its queue numbers that part by itself
            own = self.queue.queue_id
            return [one._replace(queue_offset=one.queue_offset + delta, queue_id=own) for one in records]
        return records

    def _demand_asked_for(self, records: list[StoredMessage], next_offset: int) -> None:
        """Refuse records that nobody asked for: who took them would lose others, show them twice or never end."""
        if not records:
            raise self._nonsense("no record")
        if len(records) > self.most:
            raise self._nonsense(f"{counted(len(records), 'record')}, at most {self.most} were asked for")
        if next_offset <= self.offset:
            raise self._nonsense(f"records, and nextBeginOffset {next_offset}")
        topic, queue_id = self.queue.topic, self.queue.queue_id
        if is_lmq(topic):  # its records have the place of the queue that they were sent to
            return
        least = self.offset
        for record in records:
            if record.topic != topic or record.queue_id != queue_id:
                raise self._nonsense(f"a record of queue {record.topic}/{record.queue_id}")
            offset = record.queue_offset
            if offset < least and not record.sys_flag & INNER_BATCH:  # a batch of 5.x may begin before the offset
                raise self._nonsense(f"a record with offset {offset}, where {least} is the least that can come")
            if offset >= next_offset:
                raise self._nonsense(f"a record with offset {offset}, and nextBeginOffset {next_offset}")
            least = offset + 1

    def _number(self, answer: RemotingCommand, name: str, default: str = "", *, least: int = 0) -> int:
        text = answer.fields.get(name, default)
        try:
            return parse_int(text, least, LONG_MAX)
        except ValueError:
            raise self._nonsense(f"no offset in {name}: {text[:_SHOWN]!r}") from None

    def _nonsense(self, what: str) -> FormatError:
        queue = self.queue
        return FormatError(
            f"malformed answer of {self.address} to a pull of {queue.topic}/{queue.queue_id} of broker {queue.broker} "
            f"from offset {self.offset}: {what}"
        )


class EmptyAnswers:
    """How long to wait after a pull that led nowhere: a broker that answers at once is not asked without an end.

    Brokers hold a pull at the end of a queue (for 5 s and more); one that they answered at once twice is no such pull.
    An offset that the broker has not is left at once the first time: it names another one.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_s(self, result: PullResult, offset: int, took_s: float) -> float:
        """The wait. `offset`: that was asked for; `took_s`: from the request to the answer."""
        moved = result.next_offset > offset and result.status is not PullStatus.OFFSET_ILLEGAL
        if result.status is PullStatus.FOUND or moved or took_s >= _HELD_S:
            self._in_a_row = 0
            return 0.0
        self._in_a_row += 1
        return min(_LEAST_S * 2 ** (self._in_a_row - 2), _MOST_S) if self._in_a_row > 1 else 0.0
