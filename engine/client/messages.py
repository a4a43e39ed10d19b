"""Messages as a client has them: what it sends, and what it is given. No I/O.

Source: Message, MessageExt, MessageAccessor, Validators#checkMessage, MessageUtil#createReplyMessage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from engine.client import namespaces
from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import properties as property_words
from engine.format.compression import demand_package, inflate
from engine.format.message import StoredMessage
from engine.format.quantities import counted
from engine.format.record import PROPERTIES_MAX_LENGTH
from engine.format.sysflag import COMPRESSED
from engine.format.topic_rules import FORBIDDEN, refused_by_client

RETRY_TOPIC = "RETRY_TOPIC"
CORRELATION_ID, REPLY_TO_CLIENT, TTL, CLUSTER = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER"
MSG_REGION, TRACE_ON = "MSG_REGION", "TRACE_ON"
MESSAGE_TYPE, REPLY = "MSG_TYPE", "reply"
OWN = frozenset(
    {
        *("KEYS", "TAGS", "WAIT", "DELAY", RETRY_TOPIC, "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET"),
        *("MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
        *("RECONSUME_TIME", MSG_REGION, TRACE_ON, "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID"),
        *(CORRELATION_ID, REPLY_TO_CLIENT, TTL, "ARRIVE_TIME", "PUSH_REPLY_TIME", CLUSTER, MESSAGE_TYPE),
        *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
    }
)
"""Names of properties that RocketMQ itself gives a meaning. Source: MessageConst#STRING_HASH_SET."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent.

    Attributes:
        tags: what consumers filter by; a message has one or none in practice.
        keys: words by which it can be found.
        properties: of the application; `system` has those of RocketMQ itself.
        delay_level: 1 to 18 on a broker with default levels; 0: at once.
        wait_stored: whether the broker answers after its kind of flush and replication, or at once.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    flag: int = 0
    wait_stored: bool = True
    system: Mapping[str, str] = field(default_factory=dict)

    def all_properties(self) -> dict[str, str]:
        """As they are stored."""
        made = dict(self.properties)
        if self.tags is not None:
            made[property_words.TAGS] = self.tags
        if self.keys:
            made[property_words.KEYS] = " ".join(self.keys)
        if self.delay_level:
            made[property_words.DELAY] = str(self.delay_level)
        made[property_words.WAIT] = "true" if self.wait_stored else "false"
        return {**made, **self.system}

    def demand(self, max_size: int) -> None:
        """Refuse what Apache's client refuses before it sends. `max_size`: bytes of a body.

        Raises:
            InvalidArgument: why.
        """
        reason = refused_by_client(self.topic)
        if reason is not None:
            raise InvalidArgument(reason)
        if self.topic in FORBIDDEN:
            raise InvalidArgument(f"clients may not send to topic {self.topic}: it is one of the broker's own")
        if not self.body:
            raise InvalidArgument(f"the message to topic {self.topic} has no body", hint="brokers refuse empty bodies")
        if len(self.body) > max_size:
            raise InvalidArgument(f"the body has {counted(len(self.body), 'byte')}, at most {max_size} are allowed")
        for name, value in self.properties.items():
            if not name or not value:
                raise InvalidArgument(f"property {name!r} has no name or no value")
            if name in OWN:
                raise InvalidArgument(f"property {name} is one of RocketMQ's own")
        for text in (*self.properties, *self.properties.values(), self.tags or "", *self.keys):
            if property_words.NAME_VALUE in text or property_words.SEPARATOR in text:
                raise InvalidArgument("a property contains U+0001 or U+0002, which separate properties")
        if any(not key or any(letter.isspace() for letter in key) for key in self.keys):
            raise InvalidArgument("a key is empty or contains a blank, which separates keys")


def demand_short(properties_raw: bytes) -> None:
    """Refuse properties that no record can hold. Raises InvalidArgument."""
    if len(properties_raw) > PROPERTIES_MAX_LENGTH:
        raise InvalidArgument(
            f"the properties have {len(properties_raw)} bytes, at most {PROPERTIES_MAX_LENGTH} are allowed"
        )


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that a broker gave us.

    Attributes:
        topic: without the client's namespace; of a message that is consumed again, the one that it was sent to.
        queue: where it was read.
        id: the producer's (UNIQ_KEY), or else the broker's.
        stored: the record.
    """

    topic: str
    properties: Mapping[str, str]
    queue: MessageQueue
    id: str
    stored: StoredMessage

    @property
    def body(self) -> bytes:
        """As it was sent. A compressed one is decompressed each time that it is asked for, and not kept: what waits to
        be consumed takes the memory that it took on its way. One that can't be decompressed is as it is stored.

        Raises:
            NotInstalled: its compression needs a package.
        """
        stored = self.stored
        if not stored.sys_flag & COMPRESSED:
            return stored.body
        plain = inflate(stored.body, stored.sys_flag)
        return stored.body if plain is None else plain

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""
        return self.stored.queue_offset

    @property
    def tags(self) -> str | None:
        """TAGS."""
        return self.properties.get(property_words.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words of KEYS."""
        return tuple(property_words.key_words(self.properties.get(property_words.KEYS)))

    @property
    def reconsume_times(self) -> int:
        """How often consuming it has failed."""
        return self.stored.reconsume_times

    @property
    def application_properties(self) -> dict[str, str]:
        """The properties that the producer's application gave it."""
        return {name: value for name, value in self.properties.items() if name not in OWN}


def received(stored: StoredMessage, broker: str, namespace: str = "") -> ReceivedMessage:
    """A record as a client hands it out. `broker`: the name of the broker that it came from."""
    properties = stored.properties
    return ReceivedMessage(
        namespaces.unwrapped(namespace, properties.get(RETRY_TOPIC, stored.topic)),
        properties,
        MessageQueue(stored.topic, broker, stored.queue_id),
        properties.get(property_words.UNIQ_KEY) or stored.msg_id,
        stored,
    )


def demand_packages(messages: Iterable[ReceivedMessage]) -> None:
    """Raises NotInstalled: the compression of a body needs a package."""
    for message in messages:
        if message.stored.sys_flag & COMPRESSED:
            demand_package(message.stored.sys_flag)


def reply_to(request: ReceivedMessage, body: bytes) -> OutgoingMessage:
    """The answer to a message that waits for one.

    Raises:
        InvalidArgument: it does not wait for an answer.
    """
    words = request.properties
    if not all(words.get(name) for name in (CLUSTER, REPLY_TO_CLIENT, CORRELATION_ID)):
        raise InvalidArgument(f"message {request.id} does not wait for a reply", hint=f"it has no {REPLY_TO_CLIENT}")
    back = {name: words[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in words}
    return OutgoingMessage(f"{words[CLUSTER]}_REPLY_TOPIC", body, system={MESSAGE_TYPE: REPLY, **back})
