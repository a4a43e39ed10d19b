"""The request of a pull and what its answer says. No I/O.

Source: PullAPIWrapper#pullKernelImpl, MQClientAPIImpl#processPullResponse.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.client.messages import ReceivedMessage, received
from engine.client.routes import MASTER
from engine.errors import FormatError, RefusedByBroker
from engine.format.message import decode_each
from engine.wire.codes import PULL_COMMIT, PULL_SUBSCRIPTION, PULL_SUSPEND, ResponseCode

if TYPE_CHECKING:
    from engine.client.queues import MessageQueue
    from engine.client.subscriptions import TopicSubscription
    from engine.wire.command import RemotingCommand


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


def pull_result(
    answer: RemotingCommand, queue: MessageQueue, namespace: str, address: str, *, packed: bool = False
) -> PullResult:
    """What the answer to a pull says: all its messages, also those that a subscription does not want.

    Args:
        packed: compressed bodies stay as they are.

    Raises:
        RefusedByBroker. FormatError: the answer makes no sense. NotInstalled: a body's compression needs a package.
    """
    try:
        status = PullStatus(answer.code)
    except ValueError:
        raise RefusedByBroker.of(answer.code, answer.remark, address) from None
    fields = answer.fields
    try:
        return PullResult(
            status,
            _messages(answer.body, queue.broker, namespace, packed) if status is PullStatus.FOUND else (),
            int(fields["nextBeginOffset"]),
            int(fields["minOffset"]),
            int(fields["maxOffset"]),
            int(fields.get("suggestWhichBrokerId", MASTER)),
        )
    except (KeyError, ValueError) as error:
        raise FormatError(f"malformed answer of {address} to a pull: {type(error).__name__} {error}") from None


def _messages(body: bytes | memoryview, broker: str, namespace: str, packed: bool) -> tuple[ReceivedMessage, ...]:
    """The records that follow one another in a body. Raises FormatError, NotInstalled."""
    return tuple(received(stored, broker, namespace, packed=packed) for stored in decode_each(body))
