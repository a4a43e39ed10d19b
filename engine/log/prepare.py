"""From a message to the bytes of its record, as far as that goes without what the append lock knows.

That (queue offset, physical offset, store time) is patched in later by `CommitLog`. A message that the log can't take
is refused here, before anything is touched.

Rules and their sources: sizes from DefaultMessageStore#checkMessage(s) and CommitLog.MessageExtEncoder; delayed
messages from CommitLog#asyncPutMessage; further queues from MultiDispatch. Batches: engine.log.prepare_batch.

Stricter than Apache, where Apache would write a record that it can't read again: a topic or the properties of a
batch's item over their length field, a record or batch larger than a file, an empty topic or batch, numbers over
their field; and a topic that is no plain directory name.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from engine.config import delay_levels
from engine.errors import InvalidArgument
from engine.format import names, properties, property_crc, sysflag
from engine.format.delay import DelayLevels, queue_of_level
from engine.format.hashing import CRC_MASK, body_crc
from engine.format.hosts import IP_SIZES
from engine.format.message import DueMessage, Message, with_properties
from engine.format.numbers import LONG_MAX, LONG_MIN
from engine.format.record import BLANK_SIZE, PROPERTIES_MAX_LENGTH
from engine.format.template import RecordTemplate, length_of_properties
from engine.log.derive import TopicQueue
from engine.log.results import MessageRefused, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config import StoreConfig
    from engine.format.hosts import Host

_made = tuple.__new__
"""As in engine.log.commitlog."""
_NAME_VALUE, _SEPARATOR, _DELAY = properties.NAME_VALUE.join, properties.SEPARATOR.join, properties.DELAY
_MOST_LAID = 64 << 10
"""Bytes of a body that is laid: a longer one gets its CRC before the append lock is taken."""
_TEMPLATES = 10_000
"""Templates that are kept: a store has that many queues at most, as a rule."""
_CLIENTS = 256
"""Templates that are kept beside for clients that send to one queue in turn; each connection is another client."""


Laid: TypeAlias = "tuple[bytes, TopicQueue, Host, Host]"
_Name: TypeAlias = tuple[str, int, int, int, int]


class Destination:
    """Where a message goes, and what its record has in common with others that go there.

    Attributes:
        laid: what `engine.log.kernels.lay` has to know: fixed part and topic of a record, queue, hosts; None: it can't
            write such a record.
    """

    __slots__ = ("born_host", "fixed_size", "laid", "numbered", "queue", "store_host", "template")

    def __init__(self, message: Message, *, sealed: bool = False, long_topics: bool = False) -> None:
        """Raises MessageRefused: a topic that no queue can have, a number that no field holds, a host that is none."""
        check_topic(message.topic, long_topics=long_topics)
        for host in (message.born_host, message.store_host):
            if len(host.ip) not in IP_SIZES:
                raise MessageRefused(f"an IP address has 4 or 16 bytes, not {len(host.ip)}")
        try:
            self.template = RecordTemplate(message, sealed=sealed)
        except InvalidArgument as error:
            raise MessageRefused(error.message, hint=error.hint) from None
        except struct.error as error:
            raise MessageRefused(f"number out of range for its field: {error}") from None
        self.born_host, self.store_host = self.template.born_host, self.template.store_host
        self.fixed_size = self.template.fixed_size
        self.queue = TopicQueue(message.topic, message.queue_id)
        self.numbered = sysflag.is_consumable(message.sys_flag)
        template = self.template
        plain = self.numbered and not sealed and not template.sys_flag & sysflag.HOSTS_V6_MASK
        # The native looks them up: no other class may compare itself.
        numbers = (message.queue_id, message.flag, message.sys_flag, message.reconsume_times)
        plain = plain and type(message.topic) is str and all(type(number) is int for number in numbers)
        head = template.head(0, 0, 0, template.flag) + template.topic if plain else b""
        self.laid: Laid | None = (head, self.queue, self.born_host, self.store_host) if plain else None

    def has_hosts(self, born: Host, store: Host) -> bool:
        """Whether these are its hosts."""
        return (self.born_host is born or self.born_host == born) and (
            self.store_host is store or self.store_host == store
        )


class Prepared(NamedTuple):
    """One message, ready to be appended. A tuple: it is made once a put.

    Attributes:
        destination: where it goes (a delayed one: to the schedule topic).
        size: bytes of its record.
        crc: bodyCRC.
        born_timestamp: ms.
        body: as stored.
        properties_raw: as stored, but for the property CRC of a record that has one.
    """

    destination: Destination
    size: int
    crc: int
    born_timestamp: int
    body: bytes
    properties_raw: bytes

    @property
    def queues(self) -> tuple[TopicQueue, ...]:
        """The queue that it goes to."""
        return (self.destination.queue,)

    def record(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """The record's bytes."""
        destination, size, crc, born_timestamp, body, raw = self
        template = destination.template
        pack, magic, queue_id, flag, sys_flag, born, store, topic, reserved = template.constant
        head = pack(
            size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born,
            store_timestamp, store, len(body),
        )  # fmt: skip
        record = b"".join((head, body, topic, length_of_properties(len(raw) + reserved), raw))
        return record + property_crc.encode(body_crc(record)) if reserved else record


class PreparedFurther:
    """A multi-dispatch message: the offsets in its `further` queues are part of its record."""

    __slots__ = ("_destination", "_message", "further")

    def __init__(self, destination: Destination, message: Message, further: tuple[TopicQueue, ...]) -> None:
        self._destination = destination
        self._message = message
        self.further = further

    @property
    def queues(self) -> tuple[TopicQueue, ...]:
        """The queues that it goes to."""
        return (self._destination.queue, *self.further)

    def dispatched(self, table: Mapping[TopicQueue, int]) -> Prepared:
        """With the further queues' offsets written into it. Source: MultiDispatch#wrapMultiDispatch.

        Raises:
            MessageRefused: the properties are too long now.
        """
        offsets = properties.MULTI_DISPATCH_SPLITTER.join(str(table.get(queue, 0)) for queue in self.further)
        pairs = {k: v for k, v in self._message.properties.items() if k != properties.WAIT}
        pairs[properties.INNER_MULTI_QUEUE_OFFSET] = offsets
        template = self._destination.template
        raw = _text_of(pairs, template.reserved).encode("utf-8", "replace")
        if len(raw) + template.reserved > PROPERTIES_MAX_LENGTH:
            raise properties_too_long(len(raw) + template.reserved)
        body = self._message.body
        size = template.fixed_size + len(body) + len(raw)
        return Prepared(self._destination, size, body_crc(body), self._message.born_timestamp, body, raw)


class Preparer:
    """Prepares messages by a store's settings. Thread-safe: what it remembers could be rebuilt at any time.

    Attributes:
        max_record: bytes of a record at most.
        reserved: bytes of the property CRC that ends each record; 0: it has none.
        lays: whether records may be laid, with bodies of `most_laid` bytes at most.
        plain: of what is known, the destinations whose records can be laid, by topic, queue id, flag, sysFlag and
            reconsumeTimes: what `CommitLog.append` gives to the native.
    """

    def __init__(self, config: StoreConfig) -> None:
        self._levels: DelayLevels | None = None  # a store whose own can't be read takes what is not delayed
        self._config = config
        self._max_message_size = config.max_message_size
        self.max_record = config.mapped_file_size_commit_log - BLANK_SIZE
        self._multi_dispatch = config.enable_multi_dispatch
        self._lmq = config.enable_lmq
        self._sealed, self._long_topics = config.property_crcs, config.long_topics
        self.reserved = property_crc.SIZE if config.property_crcs else 0
        self._known: dict[_Name, Destination] = {}  # of each the last one; by its hosts, too:
        self._of_hosts: dict[tuple[_Name, Host, Host], Destination] = {}
        self.plain: dict[_Name, Laid] = {}
        self.most_laid = min(self._max_message_size, _MOST_LAID)
        self.lays = not self._multi_dispatch and not self._sealed

    def one(self, message: Message) -> Prepared | PreparedFurther:
        """A single message.

        Raises:
            MessageRefused: with the status that the put is answered with.
        """
        topic, body, queue_id, pairs, flag, sys_flag, born_timestamp, born, store, times, prepared = message
        if not LONG_MIN <= born_timestamp <= LONG_MAX:
            raise MessageRefused(f"number out of range for its field: bornTimestamp {born_timestamp}")
        destination = self._known.get((topic, queue_id, flag, sys_flag, times))
        if (
            destination is None
            or prepared
            or (
                (destination.born_host is not born or destination.store_host is not store)
                and not destination.has_hosts(born, store)
            )
        ):
            destination = self._destination(message)
        if not pairs:
            raw = b""
        elif self.reserved:
            raw = raw_properties(pairs, self.reserved)
        else:  # as there, without its calls: they take as long as the work
            raw = _SEPARATOR(map(_NAME_VALUE, pairs.items())).encode("utf-8", "replace")
            if len(raw) > PROPERTIES_MAX_LENGTH:
                raw = raw_properties(pairs)
        if len(body) > self._max_message_size:
            raise MessageRefused(f"body is longer than {self._max_message_size} bytes", hint="see maxMessageSize")
        further = self._further_queues(message) if self._multi_dispatch else ()
        if (
            _DELAY in pairs
            and destination.numbered
            and properties.delay_level(pairs) > 0
            and not isinstance(message, DueMessage)
        ):
            message = self._delayed(message)
            destination = self.destination(message)
            raw = raw_properties(message.properties, destination.template.reserved)
        size = destination.fixed_size + len(body) + len(raw)
        if size > self.max_record:
            raise MessageRefused(f"record of {size} bytes does not fit into a segment: see mappedFileSizeCommitLog")
        if further:
            return PreparedFurther(destination, message, further)
        return _made(Prepared, (destination, size, crc32(body) & CRC_MASK, born_timestamp, body, raw))

    def destination(self, message: Message) -> Destination:
        """Where it goes, remembered for the next message that goes there. Raises MessageRefused."""
        name = (message.topic, message.queue_id, message.flag, message.sys_flag, message.reconsume_times)
        known = self._known.get(name)
        remembered = not message.prepared_transaction_offset
        if known is not None and remembered and known.has_hosts(message.born_host, message.store_host):
            return known
        return self._destination(message)

    def _destination(self, message: Message) -> Destination:
        name = (message.topic, message.queue_id, message.flag, message.sys_flag, message.reconsume_times)
        if message.prepared_transaction_offset:
            return Destination(message, sealed=self._sealed, long_topics=self._long_topics)
        with_hosts = (name, message.born_host, message.store_host)
        destination = self._of_hosts.get(with_hosts)
        if destination is None:
            destination = Destination(message, sealed=self._sealed, long_topics=self._long_topics)
            if len(self._of_hosts) >= _CLIENTS:
                self._of_hosts.clear()
            self._of_hosts[with_hosts] = destination
        if len(self._known) >= _TEMPLATES:
            self.plain.clear()
            self._known.clear()
        self._known[name] = destination
        if destination.laid is not None:
            self.plain[name] = destination.laid
        return destination

    def _delayed(self, message: Message) -> Message:
        """The message as it waits in the schedule topic."""
        if self._levels is None:
            self._levels = delay_levels(self._config)
        level = properties.delay_level(message.properties)
        clamped = self._levels.clamp(level)
        changes = {properties.REAL_TOPIC: message.topic, properties.REAL_QID: str(message.queue_id)}
        if clamped != level:
            changes[properties.DELAY] = str(clamped)
        waiting = with_properties(message, **changes)
        return waiting._replace(topic=names.SCHEDULE_TOPIC, queue_id=queue_of_level(clamped))

    def _further_queues(self, message: Message) -> tuple[TopicQueue, ...]:
        """Queues of INNER_MULTI_DISPATCH; as in Java's split, empty names at the end don't count."""
        text = message.properties.get(properties.INNER_MULTI_DISPATCH, "")
        if not text.strip():
            return ()
        queues = text.rstrip(properties.MULTI_DISPATCH_SPLITTER).split(properties.MULTI_DISPATCH_SPLITTER)
        for name in queues:
            check_topic(name)
        return tuple(TopicQueue(name, 0 if self._lmq and names.is_lmq(name) else message.queue_id) for name in queues)


def check_topic(topic: str, *, long_topics: bool = False) -> None:
    """Raises MessageRefused: too long, or no directory's name. `long_topics`: as `check_length`."""
    check_length(topic, long_topics=long_topics)
    if not names.is_directory_name(topic):
        raise MessageRefused(f"topic is not a valid directory name: {topic!r}")


def check_length(topic: str, *, long_topics: bool = False) -> None:
    """Raises MessageRefused: a topic that is too long.

    `long_topics`: as brokers of RocketMQ 5, which take retry topics that are longer than others may be. Source:
    HookUtils#checkBeforePutMessage (5.3.3).
    """
    is_long = long_topics and topic.startswith(names.RETRY_PREFIX)
    if not is_long and _java_length(topic) > names.TOPIC_MAX_LENGTH:
        raise MessageRefused(f"topic is longer than {names.TOPIC_MAX_LENGTH} characters: {topic[:20]}…")
    size, most = len(topic.encode("utf-8", "replace")), names.FILE_NAME_MAX if is_long else names.TOPIC_MAX_LENGTH
    if size > most:
        raise MessageRefused(f"a topic has 1 to {most} bytes, this one has {size}")


def raw_properties(pairs: Mapping[str, str], reserved: int = 0) -> bytes:
    """Properties as stored. `reserved`: bytes of the property CRC that comes after them; an old one is left out.

    Raises:
        MessageRefused: they are too long, in characters or in bytes.
    """
    text = _text_of(pairs, reserved)
    raw = text.encode("utf-8", "replace")
    if len(raw) + reserved > PROPERTIES_MAX_LENGTH:  # never below the number of characters
        if _java_length(text) > PROPERTIES_MAX_LENGTH:
            raise MessageRefused(f"properties are longer than {PROPERTIES_MAX_LENGTH} characters")
        raise properties_too_long(len(raw) + reserved)
    return raw


def _text_of(pairs: Mapping[str, str], reserved: int) -> str:
    """Properties as text; before a property CRC with a separator at the end, and without an old one."""
    if not reserved:
        return properties.join(pairs)
    return properties.separated(
        properties.join({name: value for name, value in pairs.items() if name != property_crc.NAME})
    )


def properties_too_long(size: int) -> MessageRefused:
    """The error for properties of `size` bytes."""
    return MessageRefused(
        f"properties have {size} bytes, more than {PROPERTIES_MAX_LENGTH}",
        PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
    )


def _java_length(text: str) -> int:
    """Length in UTF-16 code units, as Java's String.length."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
