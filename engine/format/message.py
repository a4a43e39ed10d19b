"""The commit log record (FORMAT.md "Record"; Apache CommitLog, MessageDecoder): encode one, decode one.

Where its fields lie is declared in engine.format.record, what makes it sound in engine.format.judge. The scanner
(engine.log.scan) finds records in bulk; here is what one record means.

Two fields are redundant and make a record recognisable anywhere: the magic code, and physicalOffset, which equals the
place where the record lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from engine.errors import FormatError, InvalidArgument
from engine.format import hosts, properties, property_crc, sysflag
from engine.format.hashing import body_crc
from engine.format.hosts import LOOPBACK, Host
from engine.format.judge import Row, Stop, judge_record
from engine.format.names import FILE_NAME_MAX, TOPIC_MAX_LENGTH
from engine.format.record import (
    AFTER_HOSTS,
    BLANK_MAGIC,
    BLANK_SIZE,
    INT,
    LENGTHS_SIZE,
    LONG,
    LONG_SIZE,
    MESSAGE_MAGIC,
    MIN_RECORD_SIZE,
    OFFSETS,
    POSITION_QUEUE_OFFSET,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    SHORT,
    SIZE_AND_MAGIC,
    TO_HOSTS,
    TOPIC_LENGTH_SIZE,
    V4_HEAD,
    V4_HEAD_SIZE,
    magic_of_topic,
    record_size,
    store_timestamp_position,
    sys_flag_at,
    topic_length_size,
    whole_head,
)

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

INERT_TOPIC = "RSTORE_DAMAGED"
"""The topic of the record that bridges a damaged range (RECOVERY.md, "Bridges")."""
ENCODE_OVERHEAD = 64 * 1024
"""Bytes that a record may take beside the largest body. Source: CommitLog.MessageExtEncoder."""

_Other = TypeVar("_Other")
_V6_HOSTS = sysflag.HOSTS_V6_MASK
_unpack_plain = V4_HEAD.unpack_from
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """A message to be put. Times in ms; `properties` keep their order. A tuple: it is made once a put.

    `queue_offset`, `physical_offset` and `store_timestamp` are given by the log when it is appended.
    """

    topic: str
    body: bytes = b""
    queue_id: int = 0
    properties: Mapping[str, str] = _NO_PROPERTIES
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def stored_sys_flag(self) -> int:
        """sysFlag with the two bits that tell IPv6 hosts."""
        flags = self.sys_flag & ~_V6_HOSTS
        if self.born_host.is_v6:
            flags |= sysflag.BORN_HOST_V6
        if self.store_host.is_v6:
            flags |= sysflag.STORE_HOST_V6
        return flags


class DueMessage(Message):
    """A delayed message whose time has come: its DELAY property stays, and delays it no more.

    Source: ScheduleMessageService#messageTimeup (the stored properties are made before DELAY is cleared).
    """

    __slots__ = ()


class StoredMessage(NamedTuple):
    """A record as it lies in the log. Sizes and offsets in bytes, times in ms.

    `properties_raw` is the stored string; `properties` what it says.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_raw: bytes

    @property
    def properties(self) -> dict[str, str]:
        """The properties, in stored order."""
        return properties.parse(self.properties_raw.decode("utf-8", "replace"))

    @property
    def crc_ok(self) -> bool:
        """Whether the body is what bodyCRC says; an empty body has none to check."""
        return not self.body or body_crc(self.body) == self.body_crc

    @property
    def msg_id(self) -> str:
        """The offset message id: storeHost and physicalOffset in upper-case hex, 32 digits (IPv4) or 56 (IPv6)."""
        return make_msg_id(self.store_host, self.physical_offset)

    def to_message(self) -> Message:
        """The same message, ready to be put again."""
        return Message(
            topic=self.topic,
            body=self.body,
            queue_id=self.queue_id,
            properties=self.properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
        )


def encode(message: Message, properties_raw: bytes | None = None, crc: int | None = None) -> bytearray:
    """The record's bytes, with queueOffset, physicalOffset and storeTimestamp still 0 (`patch` fills them in).

    A topic of more than 127 bytes makes it a record of RocketMQ 5, which earlier brokers can't read.

    Args:
        message: what to store.
        properties_raw: the properties string, when it isn't the plain join of `message.properties`.
        crc: bodyCRC, when it is known already.

    Raises:
        InvalidArgument: topic over 255 bytes, properties over 32767 bytes.
    """
    topic = message.topic.encode("utf-8", "replace")
    if properties_raw is None:
        properties_raw = properties.join(message.properties).encode("utf-8", "replace")
    if not 0 < len(topic) <= FILE_NAME_MAX:
        raise InvalidArgument(f"a topic has 1 to {FILE_NAME_MAX} bytes, this one has {len(topic)}")
    if len(properties_raw) > PROPERTIES_MAX_LENGTH:
        raise InvalidArgument(f"properties have {len(properties_raw)} bytes, more than {PROPERTIES_MAX_LENGTH}")
    return _lay_out(message, topic, properties_raw, crc)


def _lay_out(message: Message, topic: bytes, properties_raw: bytes, crc: int | None) -> bytearray:
    body = message.body
    sys_flag = message.stored_sys_flag
    magic = magic_of_topic(len(topic))
    out = bytearray(record_size(sys_flag, len(body), len(topic), len(properties_raw)))
    TO_HOSTS.pack_into(
        out,
        0,
        len(out),
        magic,
        body_crc(body) if crc is None else crc,
        message.queue_id,
        message.flag,
        0,
        0,
        sys_flag,
        message.born_timestamp,
    )
    at = TO_HOSTS.size
    for part in (
        message.born_host.encode(),
        bytes(LONG_SIZE),
        message.store_host.encode(),
        AFTER_HOSTS.pack(message.reconsume_times, message.prepared_transaction_offset, len(body)),
        body,
        len(topic).to_bytes(topic_length_size(magic), "big"),
        topic,
        SHORT.pack(len(properties_raw)),
        properties_raw,
    ):
        out[at : at + len(part)] = part
        at += len(part)
    return out


def encode_inert(length: int, physical_offset: int, store_timestamp: int, *, sealed: bool = False) -> bytearray:
    """A record of exactly `length` bytes that every reader steps over: rolled back, so no queue and no index sees it.

    Its topic is `INERT_TOPIC`, or as much of it as there is room for; its body zeros. `sealed`: its properties are a
    property CRC (engine.format.property_crc).

    Raises:
        InvalidArgument: no record is as small.
    """
    least = MIN_RECORD_SIZE + (property_crc.SIZE if sealed else 0)
    if length < least:
        raise InvalidArgument(f"record length must be ≥ {least}, not {length}")
    topic = INERT_TOPIC.encode()[: length - least]
    body = bytes(length - least - len(topic))
    message = Message("", body, sys_flag=sysflag.TRANSACTION_ROLLBACK, born_timestamp=store_timestamp)
    out = _lay_out(message, topic, bytes(least - MIN_RECORD_SIZE), None)
    patch(out, 0, queue_offset=0, physical_offset=physical_offset, store_timestamp=store_timestamp)
    if sealed:
        property_crc.seal(out)
    return out


def patch(
    record: bytearray | memoryview,
    position: int,
    *,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> None:
    """Fill in what only the append lock knows, for the record at `position` of `record`."""
    OFFSETS.pack_into(record, position + POSITION_QUEUE_OFFSET, queue_offset, physical_offset)
    LONG.pack_into(record, position + store_timestamp_position(sys_flag_at(record, position)), store_timestamp)


def encode_blank(length: int) -> bytes:
    """The 8 bytes that close a file with `length` bytes left."""
    return SIZE_AND_MAGIC.pack(length, BLANK_MAGIC)


def blank_length(buffer: Buffer, position: int = 0) -> int | None:
    """The length that a blank record at `position` claims, or None when it is no blank record."""
    if position < 0 or len(buffer) - position < BLANK_SIZE:
        return None
    length, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    return length if magic == BLANK_MAGIC else None


def decode(buffer: Buffer, position: int = 0) -> StoredMessage:
    """The record at `position`, every length bounded before it is used. The CRC is not judged: see `crc_ok`.

    A negative body or properties length counts as 0, as it does for Apache's reader.

    Raises:
        FormatError: no record is there, or its lengths don't add up; `offset` is `position`.
    """

    left = len(buffer) - position
    if position >= 0 and left >= MIN_RECORD_SIZE:
        (total,) = INT.unpack_from(buffer, position)
        if MIN_RECORD_SIZE <= total <= left:
            message = _decode_plain(bytes(buffer[position : position + total]))
            if message is not None:
                return message
    return _decode_any(buffer, position)


def decode_each(buffer: Buffer) -> Iterator[StoredMessage]:
    """The records that follow one another in an answer's body. Raises FormatError as `decode`."""
    at = 0
    while at < len(buffer):
        message = decode(buffer, at)
        yield message
        at += message.total_size


def decode_many(records: Iterable[memoryview]) -> list[StoredMessage]:
    """Each of some records: as `decode`, several times as fast.

    Raises:
        FormatError: as `decode`; `offset` is within the record.
    """
    return _decode_each([record.tobytes() for record in records], decode)


def _decode_plain(record: bytes) -> StoredMessage | None:
    """The record, if it is a plain one that takes all of these bytes; else None."""
    return _decode_each((record,), _not_plain)[0]


def _not_plain(_: bytes) -> None:
    return None


def _decode_each(records: Iterable[bytes], other: Callable[[bytes], _Other]) -> list[StoredMessage | _Other]:
    """Each record; `other` decodes one that is not plain: IPv4 hosts, lengths that take all of its bytes.

    A fast lane before `judge_record`, with the rules of `_plain_end`. Hosts and topics of neighbours are mostly equal.
    """
    out: list[StoredMessage | _Other] = []
    add, make, unpack = out.append, tuple.__new__, _unpack_plain
    born_before = store_before = topic_before = b""
    born_host = store_host = LOOPBACK
    topic = ""
    for record in records:
        size = len(record)
        if size < MIN_RECORD_SIZE:
            add(other(record))
            continue
        (
            total, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_raw, stored, store_raw,
            reconsume, prepared, body_length,
        ) = unpack(record)  # fmt: skip
        body_end = V4_HEAD_SIZE + body_length
        if (
            total != size
            or magic != MESSAGE_MAGIC
            or sys_flag & _V6_HOSTS
            or body_length < 0
            or body_end > size - LENGTHS_SIZE
            or (own_at := body_end + LENGTHS_SIZE + (topic_length := record[body_end])) > size
            or topic_length > TOPIC_MAX_LENGTH
            or not size - own_at == record[own_at - 2] << 8 | record[own_at - 1] <= PROPERTIES_MAX_LENGTH
        ):
            add(other(record))
            continue
        if born_raw != born_before:
            born_host, born_before = v4_host(born_raw), born_raw
        if store_raw != store_before:
            store_host, store_before = v4_host(store_raw), store_raw
        topic_raw = record[body_end + TOPIC_LENGTH_SIZE : own_at - PROPERTIES_LENGTH_SIZE]
        if topic_raw != topic_before:
            topic, topic_before = text_of(topic_raw), topic_raw
        add(
            make(
                StoredMessage,
                (
                    total, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_host, stored,
                    store_host, reconsume, prepared, record[V4_HEAD_SIZE:body_end], topic, record[own_at:],
                ),
            )
        )  # fmt: skip
    return out


def _plain_end(record: bytes, total: int, magic: int, sys_flag: int, body_length: int) -> int:
    """Where the properties of a plain record begin, its topic before them; −1: it is none, or less than that."""
    body_end = V4_HEAD_SIZE + body_length
    if (
        total != len(record)
        or magic != MESSAGE_MAGIC
        or sys_flag & _V6_HOSTS
        or body_length < 0
        or body_end + LENGTHS_SIZE > total
    ):
        return -1
    topic_length = record[body_end]
    topic_end = body_end + TOPIC_LENGTH_SIZE + topic_length
    own_at = topic_end + PROPERTIES_LENGTH_SIZE
    if own_at > total or topic_length > TOPIC_MAX_LENGTH:
        return -1
    own = record[topic_end] << 8 | record[topic_end + 1]
    return own_at if own <= PROPERTIES_MAX_LENGTH and own_at + own == total else -1


def sound_properties(record: bytes, physical_offset: int, topic: bytes) -> bytes | None:
    """The properties of a plain record of a topic that lies where it says, and whose body is what its CRC says.

    None: it is another one, or none (MIN_RECORD_SIZE bytes at least); `decode` says which.
    """
    total, magic, crc, _, _, _, physical, sys_flag, *_, body_length = _unpack_plain(record)
    own_at = _plain_end(record, total, magic, sys_flag, body_length)
    topic_at = V4_HEAD_SIZE + body_length + TOPIC_LENGTH_SIZE
    if own_at < 0 or physical != physical_offset or record[topic_at : own_at - PROPERTIES_LENGTH_SIZE] != topic:
        return None
    if body_length and body_crc(record[V4_HEAD_SIZE : V4_HEAD_SIZE + body_length]) != crc:
        return None
    return record[own_at:]


def plain_properties(record: bytes) -> tuple[int, bytes] | None:
    """When a plain record that takes all of these bytes was stored (ms), and its properties; nothing else is judged.

    None: it is another one, or none (MIN_RECORD_SIZE bytes at least); `decode` says which.
    """
    total, magic, _, _, _, _, _, sys_flag, _, _, stored, _, _, _, body_length = _unpack_plain(record)
    own_at = _plain_end(record, total, magic, sys_flag, body_length)
    return None if own_at < 0 else (stored, record[own_at:])


def topic_and_properties(record: bytes) -> tuple[str, str] | None:
    """Topic and properties of a plain record that takes all of these bytes; nothing else is judged.

    None: it is another one, or none (MIN_RECORD_SIZE bytes at least); `decode` says which.
    """
    total, magic, _, _, _, _, _, sys_flag, _, _, _, _, _, _, body_length = _unpack_plain(record)
    own_at = _plain_end(record, total, magic, sys_flag, body_length)
    if own_at < 0:
        return None
    topic = record[V4_HEAD_SIZE + body_length + TOPIC_LENGTH_SIZE : own_at - PROPERTIES_LENGTH_SIZE]
    return text_of(topic), record[own_at:].decode("utf-8", "replace")


@functools.lru_cache(maxsize=1024)
def text_of(raw: bytes) -> str:
    """A topic's text, remembered. Bytes that are no UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")


@functools.lru_cache(maxsize=1024)
def v4_host(raw: bytes) -> Host:
    """The IPv4 host of its 8 bytes, remembered."""
    return hosts.decode(raw, 0, False)


def row_at(buffer: Buffer, position: int = 0) -> Row:
    """Where the parts of the record at `position` lie. The CRC is not judged.

    Raises:
        FormatError: as `decode`.
    """
    left = len(buffer) - position
    if position < 0 or left < MIN_RECORD_SIZE:
        why = f"a record has at least {MIN_RECORD_SIZE} bytes, {max(0, left)} are left"
        raise FormatError(why, offset=position)
    judged = judge_record(memoryview(buffer), position, len(buffer), check_crc=False)
    if isinstance(judged, Stop):
        raise FormatError(judged.detail, offset=position)
    return judged


def _decode_any(buffer: Buffer, position: int) -> StoredMessage:
    row = row_at(buffer, position)
    (
        total, magic, crc, queue_id, flag, queue_offset, physical, flags, born, born_host, stored, store_host,
        reconsume, prepared, _,
    ) = whole_head(row.sys_flag).unpack_from(buffer, position)  # fmt: skip
    body_end, topic_end = row.body_position + row.body_length, row.topic_position + row.topic_length
    return StoredMessage(
        total_size=total,
        magic=magic,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical,
        sys_flag=flags,
        born_timestamp=born,
        born_host=hosts.decode(born_host, 0, bool(flags & sysflag.BORN_HOST_V6)),
        store_timestamp=stored,
        store_host=hosts.decode(store_host, 0, bool(flags & sysflag.STORE_HOST_V6)),
        reconsume_times=reconsume,
        prepared_transaction_offset=prepared,
        body=bytes(buffer[row.body_position : body_end]),
        topic=bytes(buffer[row.topic_position : topic_end]).decode("utf-8", "replace"),
        properties_raw=bytes(buffer[row.properties_position : position + total]),
    )


def make_msg_id(store_host: Host, physical_offset: int) -> str:
    """The offset message id. Source: MessageDecoder#createMessageId."""
    return (store_host.encode() + LONG.pack(physical_offset)).hex().upper()


def parse_msg_id(msg_id: str) -> tuple[Host, int]:
    """Store host and physical offset of an offset message id. Source: MessageDecoder#decodeMessageId.

    Raises:
        InvalidArgument: it isn't 32 or 56 hex digits.
    """
    try:
        raw = bytes.fromhex(msg_id)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28) or len(msg_id) != 2 * len(raw):
        raise InvalidArgument(
            f"not an offset message ID: {msg_id!r}", hint="it has 32 hex digits, or 56 with an IPv6 store host"
        )
    host = hosts.decode(raw, 0, len(raw) == 28)
    return host, LONG.unpack_from(raw, len(raw) - LONG.size)[0]


def with_properties(message: Message, **changes: str) -> Message:
    """The message with some properties set (in place when there already, else at the end)."""
    return message._replace(properties={**message.properties, **changes})
