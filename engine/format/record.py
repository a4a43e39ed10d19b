"""Where everything lies in a commit log record: each field's place, width and order, declared once.

Writers, readers, tools and kernels take their positions from here, kernels as constants that are compiled into them.
After the fixed part, `_FIELDS`, lie the body, the topic's length (1 byte, 2 in a record of 5.x), the topic, the
properties' length (2 bytes) and the properties. Numbers are big-endian.

A host takes 8 bytes (IPv4) or 20 (IPv6, known from a bit of sysFlag each). `POSITION_*` are positions in a record, with
IPv4 hosts where they lie after a host; `*_BACK` say how many bytes before the body a field lies, whatever the hosts.

Source: FORMAT.md "Record"; CommitLog.MessageExtEncoder#encode, MessageDecoder#decode.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.format import hosts, sysflag
from engine.format.names import TOPIC_MAX_LENGTH

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

MESSAGE_MAGIC: Final = 0xDAA320A7
MESSAGE_MAGIC_V2: Final = 0xDAA320AB
"""A 5.x record whose topic length takes 2 bytes: that of a topic of more than 127."""
BLANK_MAGIC: Final = 0xCBD43194
MAGICS: Final = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)
MAGIC_BYTES: Final = tuple(magic.to_bytes(4, "big") for magic in MAGICS)
BLANK_MAGIC_BYTES: Final = BLANK_MAGIC.to_bytes(4, "big")

_FIELDS = {
    "total_size": "i",
    "magic": "I",
    "body_crc": "i",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_timestamp": "q",
    "born_host": f"{hosts.V4_SIZE}s",
    "store_timestamp": "q",
    "store_host": f"{hosts.V4_SIZE}s",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_length": "i",
}
"""The fixed part with IPv4 hosts, in order; codes of module struct."""


def _size(code: str) -> int:
    return struct.calcsize(">" + code)


def _before(name: str) -> str:
    """The codes of what lies before a field."""
    names = list(_FIELDS)
    return "".join(_FIELDS[one] for one in names[: names.index(name)])


def _position(name: str) -> int:
    return _size(_before(name))


POSITION_TOTAL_SIZE: Final = _position("total_size")
POSITION_MAGIC: Final = _position("magic")
POSITION_BODY_CRC: Final = _position("body_crc")
POSITION_QUEUE_ID: Final = _position("queue_id")
POSITION_FLAG: Final = _position("flag")
POSITION_QUEUE_OFFSET: Final = _position("queue_offset")
POSITION_PHYSICAL_OFFSET: Final = _position("physical_offset")
POSITION_SYS_FLAG: Final = _position("sys_flag")
POSITION_BORN_TIMESTAMP: Final = _position("born_timestamp")
POSITION_BORN_HOST: Final = _position("born_host")
POSITION_STORE_TIMESTAMP: Final = _position("store_timestamp")
POSITION_STORE_HOST: Final = _position("store_host")
POSITION_RECONSUME_TIMES: Final = _position("reconsume_times")
POSITION_PREPARED: Final = _position("prepared_transaction_offset")
POSITION_BODY_LENGTH: Final = _position("body_length")

INT_SIZE: Final = 4
LONG_SIZE: Final = 8
MAGIC_SIZE: Final = 4
PORT_SIZE: Final = 4
"""Bytes at a host's end."""
V6_EXTRA: Final = hosts.V6_SIZE - hosts.V4_SIZE
"""Bytes that an IPv6 host takes more than an IPv4 host."""
TOPIC_LENGTH_SIZE: Final = 1
TOPIC_LENGTH_SIZE_V2: Final = 2
PROPERTIES_LENGTH_SIZE: Final = 2
LENGTHS_SIZE: Final = TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE
"""Bytes that follow a body at least."""
PROPERTIES_MAX_LENGTH: Final = 32767
V2_TOPIC_MAX_LENGTH: Final = 32767

V4_HEAD_SIZE: Final = 88
"""Bytes of the fixed part with IPv4 hosts."""
WHOLE_HEAD_SIZE: Final = V4_HEAD_SIZE + 2 * V6_EXTRA
"""Bytes of the fixed part with IPv6 hosts."""
MIN_RECORD_SIZE: Final = V4_HEAD_SIZE + LENGTHS_SIZE

STORE_HOST_BACK: Final = V4_HEAD_SIZE - POSITION_STORE_HOST
"""As the others, of an IPv4 host."""
STORE_PORT_BACK: Final = V4_HEAD_SIZE - POSITION_RECONSUME_TIMES + PORT_SIZE
RECONSUME_TIMES_BACK: Final = V4_HEAD_SIZE - POSITION_RECONSUME_TIMES
PREPARED_BACK: Final = V4_HEAD_SIZE - POSITION_PREPARED
BODY_LENGTH_BACK: Final = V4_HEAD_SIZE - POSITION_BODY_LENGTH

SIZE_AND_MAGIC: Final = struct.Struct(">" + _before("body_crc"))
"""What a record and the blank record at a file's end begin with: totalSize, magicCode."""
BLANK_SIZE: Final = 8
"""Bytes of a blank record's head, and the least that stays free at a file's end. Source: END_FILE_MIN_BLANK_LENGTH."""
assert SIZE_AND_MAGIC.size == BLANK_SIZE

TO_HOSTS: Final = struct.Struct(">" + _before("born_host"))
"""What lies before the hosts: totalSize … bornTimestamp."""
AFTER_HOSTS: Final = struct.Struct(">" + "".join(list(_FIELDS.values())[-3:]))
"""What lies after the hosts: reconsumeTimes, preparedTransactionOffset, bodyLength."""
OFFSETS: Final = struct.Struct(">" + _FIELDS["queue_offset"] + _FIELDS["physical_offset"])
"""queueOffset and physicalOffset, which lie side by side."""
assert POSITION_PHYSICAL_OFFSET == POSITION_QUEUE_OFFSET + LONG_SIZE
INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
SHORT: Final = struct.Struct(">h")
assert SHORT.size == PROPERTIES_LENGTH_SIZE == TOPIC_LENGTH_SIZE_V2


_WIDE = {"born_host": sysflag.BORN_HOST_V6, "store_host": sysflag.STORE_HOST_V6}
"""Fields that take V6_EXTRA bytes more where sysFlag has the bit."""


def _whole_head(sys_flag: int) -> struct.Struct:
    codes = (f"{hosts.V6_SIZE}s" if sys_flag & _WIDE.get(name, 0) else code for name, code in _FIELDS.items())
    return struct.Struct(">" + "".join(codes))


_WHOLE_HEADS = {
    flags: _whole_head(flags)
    for flags in (0, sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6, sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6)
}


def whole_head(sys_flag: int) -> struct.Struct:
    """The fixed part of a record with such a sysFlag: every field, in order."""
    return _WHOLE_HEADS[sys_flag & sysflag.HOSTS_V6_MASK]


V4_HEAD: Final = whole_head(0)
assert V4_HEAD.size == V4_HEAD_SIZE


def head_places(sys_flag: int) -> list[tuple[str, int, int]]:
    """The fields of the fixed part of a record with such a sysFlag, in order: name, position and width in bytes."""
    places, at = [], 0
    for name, code in _FIELDS.items():
        width = hosts.V6_SIZE if sys_flag & _WIDE.get(name, 0) else _size(code)
        places.append((name, at, width))
        at += width
    return places


def picked(*names: str) -> struct.Struct:
    """The fixed part with IPv4 hosts, of which only some fields are unpacked, in order."""
    codes = (code if name in names else f"{_size(code)}x" for name, code in _FIELDS.items())
    return struct.Struct(">" + "".join(codes))


def head_struct(born_v6: bool, store_v6: bool) -> struct.Struct:
    """The fixed part, totalSize … bodyLength; all from storeHost to preparedTransactionOffset as one piece of bytes."""
    born, store = hosts.host_size(born_v6), hosts.host_size(store_v6)
    after = _size(_FIELDS["reconsume_times"] + _FIELDS["prepared_transaction_offset"])
    stored, length = _FIELDS["store_timestamp"], _FIELDS["body_length"]
    return struct.Struct(f">{_before('born_host')}{born}s{stored}{store + after}s{length}")


assert head_struct(False, False).size == V4_HEAD_SIZE


def body_position(sys_flag: int) -> int:
    """Byte position of the body in a record: how many bytes its fixed part takes."""
    at = V4_HEAD_SIZE
    if sys_flag & sysflag.BORN_HOST_V6:
        at += V6_EXTRA
    if sys_flag & sysflag.STORE_HOST_V6:
        at += V6_EXTRA
    return at


def store_timestamp_position(sys_flag: int) -> int:
    """Byte position of storeTimestamp in a record."""
    return POSITION_STORE_TIMESTAMP + (V6_EXTRA if sys_flag & sysflag.BORN_HOST_V6 else 0)


def topic_length_size(magic: int) -> int:
    """Bytes of a topic's length."""
    return TOPIC_LENGTH_SIZE_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_SIZE


def magic_of_topic(topic_length: int) -> int:
    """magicCode of a record whose topic has so many bytes. Source: CommitLog#asyncPutMessage (5.x)."""
    return MESSAGE_MAGIC if topic_length <= TOPIC_MAX_LENGTH else MESSAGE_MAGIC_V2


def record_size(sys_flag: int, body_length: int, topic_length: int, properties_length: int) -> int:
    """Bytes of a record. Source: CommitLog#calMsgLength."""
    size = MIN_RECORD_SIZE + body_length + topic_length + properties_length
    if topic_length > TOPIC_MAX_LENGTH:
        size += TOPIC_LENGTH_SIZE_V2 - TOPIC_LENGTH_SIZE
    return size + body_position(sys_flag) - V4_HEAD_SIZE if sys_flag & sysflag.HOSTS_V6_MASK else size


def total_size_at(buffer: Buffer, at: int = 0) -> int:
    """totalSize (bytes) of the record at position `at`, as stored: it may be negative."""
    total_size: int = INT.unpack_from(buffer, at + POSITION_TOTAL_SIZE)[0]
    return total_size


def magic_at(buffer: Buffer, at: int = 0) -> int:
    """magicCode of the record at position `at`."""
    magic: int = SIZE_AND_MAGIC.unpack_from(buffer, at)[1]
    return magic


def sys_flag_at(buffer: Buffer, at: int = 0) -> int:
    """sysFlag of the record at position `at`, as stored."""
    sys_flag: int = INT.unpack_from(buffer, at + POSITION_SYS_FLAG)[0]
    return sys_flag


def physical_offset_at(buffer: Buffer, at: int = 0) -> int:
    """physicalOffset of the record at position `at`: where it says that it lies."""
    physical_offset: int = LONG.unpack_from(buffer, at + POSITION_PHYSICAL_OFFSET)[0]
    return physical_offset


def body_crc_at(buffer: Buffer, at: int = 0) -> int:
    """bodyCRC of the record at position `at`, as stored."""
    body_crc: int = INT.unpack_from(buffer, at + POSITION_BODY_CRC)[0]
    return body_crc


def body_length_at(buffer: Buffer, body_at: int) -> int:
    """bodyLength (bytes) of the record whose body lies at position `body_at`, as stored: it may be negative."""
    body_length: int = INT.unpack_from(buffer, body_at - BODY_LENGTH_BACK)[0]
    return body_length


def prepared_offset_at(buffer: Buffer, body_at: int) -> int:
    """preparedTransactionOffset of the record whose body lies at position `body_at`."""
    prepared_offset: int = LONG.unpack_from(buffer, body_at - PREPARED_BACK)[0]
    return prepared_offset


def store_time_of(head: Buffer) -> int | None:
    """storeTimestamp (ms) of the record that `head` begins with; None when no message's magic is there.

    V4_HEAD_SIZE bytes are enough, whatever the hosts; fewer are no record.
    """
    if len(head) < V4_HEAD_SIZE or magic_at(head) not in MAGICS:
        return None
    store_timestamp: int = LONG.unpack_from(head, store_timestamp_position(sys_flag_at(head)))[0]
    return store_timestamp


assert POSITION_STORE_TIMESTAMP + V6_EXTRA + LONG_SIZE <= V4_HEAD_SIZE
assert TOPIC_MAX_LENGTH == (1 << 8 * TOPIC_LENGTH_SIZE - 1) - 1
