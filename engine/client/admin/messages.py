"""Messages of a cluster by id, key or offset, what groups have made of them, and units of queues.

Source: QueryMsgByIdSubCommand, QueryMsgByKeySubCommand, QueryMsgByUniqueKeySubCommand, QueryMsgByOffsetSubCommand,
QueryConsumeQueueCommand, DefaultMQAdminExtImpl#messageTrackDetail, MQAdminImpl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.client.admin.members import consumers_of_group, demand_connected
from engine.client.admin.session import LONG_S, answer_of, json_of
from engine.client.admin.topics import consumers_of
from engine.client.calls import BrokerCalls
from engine.client.pulling import PullStatus
from engine.client.queues import MessageQueue
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.client.topic_reader import GROUP
from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument, NotFound
from engine.format.message import StoredMessage, decode, decode_each, parse_msg_id
from engine.format.properties import KEYS, TAGS, UNIQ_KEY, key_words
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.signing import UNIQUE_KEY_QUERY

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient
    from engine.client.routes import TopicRoute
    from engine.wire.command import RemotingCommand

_MOST = 64
_LAST_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """What a group has made of a message. `state`: Apache's TrackType."""

    group: str
    state: str


@dataclass(frozen=True, slots=True)
class UnitLine:
    """A unit of a queue. `evaluated`: whether the group's filter takes it; None: no group was named."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    evaluated: bool | None
    problem: str


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """Units of a queue, and how far it reaches. `subscription`: the group's."""

    min_offset: int
    max_offset: int
    units: tuple[UnitLine, ...]
    subscription: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class GivenOutcome:
    """What a consumer made of a message that it was given on demand. `result`: Apache's CMResult."""

    result: str
    spent_ms: int
    remark: str


async def message_by_id(admin: AdminSession, message_id: str, topic: str | None = None) -> StoredMessage:
    """A message by the id that its broker gave it, or by its producer's, for which `topic` is needed.

    Raises:
        InvalidArgument: no id, or no such topic; or the id is a producer's and there is no topic.
        NotFound: no such message.
    """
    host, offset = parse_msg_id(message_id)
    brokers = {one.address for one in (await admin.clusters()).brokers}
    if str(host) in brokers:
        answer = await admin.ask(
            str(host), RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}, also=ResponseCode.SYSTEM_ERROR
        )
        if answer.code == ResponseCode.SUCCESS:
            return _decoded_record(answer.body, answer_of(str(host), RequestCode.VIEW_MESSAGE_BY_ID))
        raise NotFound(f"{host} has no message at physical offset {offset}")
    if topic is None:
        raise InvalidArgument(
            f"{message_id} names no broker of the cluster", hint="the id of a producer is found with --topic TOPIC"
        )
    messages = await messages_by_key(admin, topic, message_id, unique=True)
    if not messages:
        raise NotFound(f"no message {message_id} in topic {topic}")
    return messages[0]


async def messages_by_key(
    admin: AdminSession,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int | None = None,
    most: int = _MOST,
    unique: bool = False,
    route: TopicRoute | None = None,
) -> tuple[StoredMessage, ...]:
    """The newest `most` messages of a topic with a key, oldest first. `unique`: by the producer's id instead.

    Args:
        route: whose brokers are asked: for topics of brokers themselves, which no name server may know.

    Raises:
        InvalidArgument: no such topic.
    """
    route = route or await admin.demand_topic(topic)
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": str(most),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(_LAST_MS if end_ms is None else end_ms),
        **({UNIQUE_KEY_QUERY: "true"} if unique else {}),
    }
    messages: list[StoredMessage] = []
    for at in await admin.masters_of(route):
        answer = await admin.ask(
            at.address, RequestCode.QUERY_MESSAGE, fields, timeout_s=LONG_S, also=ResponseCode.QUERY_NOT_FOUND
        )
        if answer.code == ResponseCode.SUCCESS:
            messages += [one for one in _decoded(answer, at.address) if _has(one, topic, key, unique=unique)]
    return tuple(sorted(messages, key=lambda one: (one.store_timestamp, one.physical_offset))[-most:])


def _has(message: StoredMessage, topic: str, key: str, *, unique: bool) -> bool:
    """The index knows hashes only: others may have the same one."""
    properties = message.properties
    if unique:
        return message.topic == topic and properties.get(UNIQ_KEY) == key
    return message.topic == topic and key in key_words(properties.get(KEYS))


def _decoded(answer: RemotingCommand, address: str) -> list[StoredMessage]:
    try:
        return list(decode_each(answer.body))
    except FormatError as error:
        of = answer_of(address, RequestCode.QUERY_MESSAGE)
        raise FormatError(f"malformed {of}: {error.message}") from None


def _decoded_record(body: bytes | memoryview, of: str) -> StoredMessage:
    """The one record of an answer. Raises FormatError."""
    try:
        return decode(body)
    except FormatError as error:
        raise FormatError(f"malformed {of}: {error.message}") from None


async def message_at(client: ClusterClient, queue: MessageQueue, offset: int) -> StoredMessage:
    """The message of a queue at a queue offset. Raises NotFound: no message is there."""
    wanted = TopicSubscription.of(queue.topic, ALL, TAG, 0)
    result = await BrokerCalls(client).pull(GROUP, queue, offset, wanted, most=1)
    if result.status is PullStatus.FOUND and result.messages[0].queue_offset == offset:
        return result.messages[0].stored
    raise NotFound(
        f"no message at {queue.topic}/{queue.queue_id} offset {offset}",
        hint=f"its offsets are {result.min_offset} to {result.max_offset - 1}"
        if result.max_offset > result.min_offset
        else "the queue has no messages",
    )


async def queue_of(admin: AdminSession, topic: str, broker: str | None, queue_id: int) -> MessageQueue:
    """A queue of a topic. `broker`: may be left out where one broker alone has such a queue.

    Raises:
        InvalidArgument: no such topic or queue, or several brokers have it.
    """
    route = await admin.demand_topic(topic)
    queues = [one for one in route.read_queues(topic) if one.queue_id == queue_id and broker in (None, one.broker)]
    names = ", ".join(sorted({one.broker for one in route.read_queues(topic)}))
    if not queues:
        raise InvalidArgument(f"no queue {topic}/{queue_id}" + (f" of broker {broker}" if broker else ""), hint=names)
    if len(queues) > 1:
        raise InvalidArgument(f"several brokers have a queue {topic}/{queue_id}", hint=f"--broker: {names}")
    return queues[0]


async def traces_of(admin: AdminSession, message: StoredMessage) -> tuple[MessageTrace, ...]:
    """What each group that consumes the message's topic has made of it."""
    topic = message.topic
    route = await admin.demand_topic(topic)
    rows = []
    for group in await consumers_of(admin, route, topic):
        online = await consumers_of_group(admin, group)
        if not online.clients:
            state = "NOT_ONLINE"
        elif online.consumes != "CONSUME_PASSIVELY":
            state = "PULL"
        elif not await _is_consumed(admin, group, message):
            state = "NOT_CONSUME_YET"
        else:
            state = "CONSUMED" if _takes((online.subscriptions or {}).get(topic), message) else "CONSUMED_BUT_FILTERED"
        rows.append(MessageTrace(group, state))
    return tuple(rows)


def _takes(expression: str | None, message: StoredMessage) -> bool:
    """Source: DefaultMQAdminExtImpl#messageTrackDetail, which goes by tags alone."""
    tags = {part.strip() for part in (expression or ALL).split("||")} - {""}
    return not tags or ALL in tags or message.properties.get(TAGS) in tags


async def _is_consumed(admin: AdminSession, group: str, message: StoredMessage) -> bool:
    for at in (await admin.clusters()).masters():
        if at.address != str(message.store_host):
            continue
        fields = {"consumerGroup": group, "topic": message.topic}
        table, _ = await admin.table(at.address, RequestCode.GET_CONSUME_STATS, fields)
        for queue, offsets in table:
            if queue.number("queueId") == message.queue_id and queue.text("topic") == message.topic:
                return offsets.number("consumerOffset") > message.queue_offset
    return False


async def give_to_consumer(admin: AdminSession, message: StoredMessage, group: str, client_id: str) -> GivenOutcome:
    """Have a connected consumer consume a message now; no offset is changed.

    Raises:
        InvalidArgument: no such group. NotFound: no such consumer is connected.
    """
    await admin.demand_group(group)
    demand_connected(await consumers_of_group(admin, group), client_id)
    fields = {"consumerGroup": group, "clientId": client_id, "msgId": message.msg_id}
    address = str(message.store_host)
    answer = await admin.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, timeout_s=LONG_S)
    body = json_of(answer, address, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    return GivenOutcome(body.text("consumeResult"), body.number("spentTimeMills", default=0), body.text("remark", ""))


async def queue_units(
    admin: AdminSession, queue: MessageQueue, first: int, count: int, group: str | None = None
) -> QueueUnits:
    """Units of a queue from a queue offset on. `group`: whose filter is tried on them.

    Raises:
        InvalidArgument: no such broker.
    """
    fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "index": str(first), "count": str(count)}
    if group is not None:
        fields["consumerGroup"] = group
    (at,) = (await admin.clusters()).masters(broker=queue.broker)
    body = await admin.json(at.address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    units = [
        UnitLine(
            first + number,
            one.number("physicOffset"),
            one.number("physicSize"),
            one.number("tagsCode"),
            one.flag("eval", default=False) if group is not None else None,
            one.text("msg", ""),
        )
        for number, one in enumerate(body.objects("queueData"))
    ]
    return QueueUnits(
        body.number("minQueueIndex"),
        body.number("maxQueueIndex"),
        tuple(units),
        body.part("subscriptionData").fields or None,
    )
