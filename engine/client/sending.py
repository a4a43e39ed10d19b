"""The request of a send and what its answer says. No I/O.

Source: DefaultMQProducerImpl#sendKernelImpl, MQClientAPIImpl#sendMessage, #processSendResponse, MessageBatch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.client import namespaces
from engine.client.messages import MESSAGE_TYPE, MSG_REGION, REPLY, TRACE_ON, OutgoingMessage, demand_short
from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument, RefusedByBroker
from engine.format import batch, sysflag
from engine.format import properties as property_words
from engine.format.compression import CompressionType, deflate
from engine.format.names import RETRY_PREFIX
from engine.format.topic_rules import TBW102
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand

if TYPE_CHECKING:
    from engine.format.message import StoredMessage

PREPARED = "TRAN_MSG"
REGION = "DefaultRegion"
"""Of a broker that tells none."""
_RECONSUME, _MAX_RECONSUME = "RECONSUME_TIME", "MAX_RECONSUME_TIMES"


class SendStatus(enum.Enum):
    """How a send ended. All but SEND_OK: stored, but not flushed or replicated in the time that the broker gives."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE

    @property
    def words(self) -> str:
        """What that means for the message."""
        return _MEANS[self]


_MEANS = {
    SendStatus.SEND_OK: "stored",
    SendStatus.FLUSH_DISK_TIMEOUT: "stored in the master's memory: its disk took too long (FLUSH_DISK_TIMEOUT)",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "stored on the master: its slave took too long to copy it (FLUSH_SLAVE_TIMEOUT)",
    SendStatus.SLAVE_NOT_AVAILABLE: "stored on the master alone: no slave keeps up with it (SLAVE_NOT_AVAILABLE)",
}


STORED = tuple(status.value for status in SendStatus)
"""Codes of answers to a send whose message is stored."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is stored.

    Attributes:
        id: the client's; of a batch all, with commas.
        offset_id: the broker's.
        queue: with the topic as the client was given it.
        transaction_id: of a half message.
        born_ms: of the message, as the request had it: ms since 1970.
        address: of the broker. `region`: its. `is_traced`: whether it wants traces of its messages to be written.
    """

    status: SendStatus
    id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    address: str = ""
    region: str = REGION
    is_traced: bool = True
    born_ms: int = 0


class SendRequest(NamedTuple):
    """A request, but for the queue: `fields` are written with a queue's broker and number."""

    code: RequestCode
    fields: dict[str, str]
    body: bytes
    id: str

    def to(self, queue: MessageQueue) -> dict[str, str]:
        """The fields of a send to this queue."""
        return {**self.fields, "e": str(queue.queue_id), "n": queue.broker}


@dataclass(frozen=True, slots=True)
class SendRules:
    """What of a producer's settings shapes its requests.

    Attributes:
        group: on the wire.
        compress_above: bytes of a body from which on it is compressed. `compression`: with what.
        compress_level: of it.
        new_topic_queues: of a topic that the send creates.
    """

    group: str
    namespace: str = ""
    compress_above: int = 4096
    compression: CompressionType = CompressionType.ZLIB
    compress_level: int = 5
    new_topic_queues: int = 4


def request_of(message: OutgoingMessage, unique_id: str, now_ms: int, rules: SendRules) -> SendRequest:
    """The request that sends one message. Raises InvalidArgument: its properties are too long."""
    properties = message.all_properties()
    unique_id = properties.setdefault(property_words.UNIQ_KEY, unique_id)
    body, flags = message.body, 0
    if len(body) >= rules.compress_above:
        body = deflate(body, rules.compression, rules.compress_level)
        flags |= rules.compression.flags
    if properties.get(PREPARED) == "true":
        flags |= sysflag.TRANSACTION_PREPARED
    is_reply = properties.get(MESSAGE_TYPE) == REPLY
    code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2
    more = {}
    if message.topic.startswith(RETRY_PREFIX):
        more = {
            letter: properties.pop(name)
            for letter, name in (("j", _RECONSUME), ("l", _MAX_RECONSUME))
            if name in properties
        }
    if rules.namespace:
        properties["INSTANCE_ID"] = rules.namespace
    fields = send_fields(message.topic, message.flag, flags, _joined(properties), now_ms, rules)
    return SendRequest(code, {**fields, **more}, body, unique_id)


def request_of_batch(
    messages: Sequence[OutgoingMessage], unique_ids: Sequence[str], now_ms: int, rules: SendRules
) -> SendRequest:
    """The request that sends messages to one queue, all or none.

    Raises:
        InvalidArgument: they can't be one batch.
    """
    if not messages:
        raise InvalidArgument("a batch needs messages")
    first = messages[0]
    for message in messages:
        if message.delay_level:
            raise InvalidArgument("a batch can't have delayed messages")
        if message.topic.startswith(RETRY_PREFIX):
            raise InvalidArgument("a batch can't have messages of a retry topic")
        if message.topic != first.topic or message.wait_stored != first.wait_stored:
            raise InvalidArgument("the messages of a batch have one topic and one wait_stored")
    items, ids = [], []
    for message, unique_id in zip(messages, unique_ids, strict=True):
        properties = message.all_properties()
        ids.append(properties.setdefault(property_words.UNIQ_KEY, unique_id))
        if rules.namespace:
            properties["INSTANCE_ID"] = rules.namespace
        items.append(batch.BatchItem.of(message.body, properties, message.flag))
    own = {property_words.WAIT: "true" if first.wait_stored else "false"}
    fields = send_fields(first.topic, 0, 0, _joined(own), now_ms, rules)
    return SendRequest(RequestCode.SEND_BATCH_MESSAGE, {**fields, "m": "true"}, batch.encode(items), ",".join(ids))


def request_of_stored(
    records: Sequence[StoredMessage], properties: Sequence[dict[str, str]], topic: str, rules: SendRules
) -> SendRequest:
    """The request that sends records as they are stored: bodies not packed anew, with their flags, born time and number
    of failures.

    Several records are one batch, which has one born time and no compressed bodies: see `can_be_one_batch`.

    Args:
        properties: of each, instead of its own.

    Raises:
        InvalidArgument: properties are too long.
    """
    first = records[0]
    code, more, is_batch = RequestCode.SEND_MESSAGE_V2, _joined(properties[0]), len(records) > 1
    body = bytes(first.body)
    if is_batch:
        for one in properties:
            _joined(one)
        items = [
            batch.BatchItem.of(bytes(one.body), own, one.flag) for one, own in zip(records, properties, strict=True)
        ]
        code, more, body = RequestCode.SEND_BATCH_MESSAGE, "", batch.encode(items)
    flags = first.sys_flag & (sysflag.COMPRESSED | sysflag.COMPRESSION_TYPE_MASK)
    fields = send_fields(topic, 0 if is_batch else first.flag, flags, more, first.born_timestamp, rules)
    fields |= {"j": str(first.reconsume_times), "m": str(is_batch).lower()}
    return SendRequest(code, fields, body, properties[0].get(property_words.UNIQ_KEY, ""))


def can_be_one_batch(one: StoredMessage, other: StoredMessage) -> bool:
    """Whether two records differ in nothing that a batch has once for all its messages."""
    return not (one.sys_flag | other.sys_flag) & sysflag.COMPRESSED and (one.born_timestamp, one.reconsume_times) == (
        other.born_timestamp,
        other.reconsume_times,
    )


def item_size(message: OutgoingMessage, unique_id: str) -> int:
    """Bytes that a message takes in a batch."""
    properties = {property_words.UNIQ_KEY: unique_id, **message.all_properties()}
    return batch.ITEM_SIZE + len(message.body) + len(_joined(properties).encode("utf-8", "replace"))


def _joined(properties: dict[str, str]) -> str:
    joined = property_words.join(properties)
    demand_short(joined.encode("utf-8", "replace"))
    return joined


def send_fields(topic: str, flag: int, sys_flag: int, properties: str, now_ms: int, rules: SendRules) -> dict[str, str]:
    """The letters of SendMessageRequestHeaderV2, but for the queue's. `properties`: joined."""
    return {
        "a": rules.group,
        "b": namespaces.wrapped(rules.namespace, topic),
        "c": TBW102,
        "d": str(rules.new_topic_queues),
        "f": str(sys_flag),
        "g": str(now_ms),
        "h": str(flag),
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def result_of(answer: RemotingCommand, request: SendRequest, queue: MessageQueue, address: str) -> SendResult:
    """What the answer to a send says. `queue`: with the topic as the client was given it.

    Raises:
        RefusedByBroker: it is not stored. FormatError: the answer makes no sense.
    """
    try:
        status = SendStatus(answer.code)
    except ValueError:
        raise RefusedByBroker.of(answer.code, answer.remark, address) from None
    fields = answer.fields
    try:
        stored = MessageQueue(queue.topic, queue.broker, int(fields["queueId"]))
        return SendResult(
            status,
            request.id,
            fields["msgId"],
            stored,
            int(fields["queueOffset"]),
            fields.get("transactionId"),
            address,
            fields.get(MSG_REGION) or REGION,
            fields.get(TRACE_ON) != "false",
            int(request.fields["g"]),
        )
    except (KeyError, ValueError) as error:
        raise FormatError(f"malformed answer of {address} to a send: {type(error).__name__} {error}") from None
