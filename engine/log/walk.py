"""The inner loop of the scanner: follow the chain of records through one buffer.

A record is sound when its magic is a message's, its lengths add up to totalSize, it fits into what is left of its file,
and (unless that is switched off) its body has the CRC that it claims. Its physicalOffset is redundant: one that differs
from the place is reported beside an otherwise sound record, never taken for the place (RECOVERY.md, rules 3, 14, 15).

The loop is plain Python on precompiled structs: one unpack for the fixed part of a record with IPv4 hosts.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from engine.format import sysflag
from engine.format.message import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_SIZE,
    V4_HEAD_SIZE,
)

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_BLANK = struct.Struct(">iI")
_V4 = struct.Struct(">iIiiiqqi8x8xq8x4x8xi")  # totalSize … sysFlag, storeTimestamp, bodyLength
assert _V4.size == V4_HEAD_SIZE
_HEAD = struct.Struct(">iIiiiqqi")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_HOST_FLAGS = sysflag.HOSTS_V6_MASK
_V6_EXTRA = 12


class Reason(enum.Enum):
    """Why a place in the log holds no sound record."""

    EMPTY = "nothing written here (zeros)"
    MAGIC = "no message magic"
    BLANK_LENGTH = "a blank record that doesn't end with its file"
    SIZE = "invalid total size"
    LENGTHS = "lengths that don't add up to the total size"
    CRC = "body CRC mismatch"
    CUT = "the file ends inside a record"
    UNREADABLE = "the system can't read it"


class Row(NamedTuple):
    """One sound record: positions in the buffer, sizes in bytes, storeTimestamp in ms."""

    position: int
    size: int
    queue_id: int
    queue_offset: int
    stored_offset: int
    sys_flag: int
    store_timestamp: int
    body_position: int
    body_length: int
    topic_position: int
    topic_length: int
    properties_position: int
    properties_length: int


class Stop(NamedTuple):
    """Where the walk ended (position in the buffer), and why.

    `more`: bytes from `position` on that the next record needs to be judged (0 when it ended for another reason).
    `blank`: length of the blank record there, 0 for none. `reason`: why it is no sound record.
    """

    position: int
    more: int = 0
    blank: int = 0
    reason: Reason | None = None


def walk(  # noqa: PLR0912 - one loop on purpose: a call per record would double its time
    buffer: Buffer, start: int, room: int, rows: list[Row], *, check_crc: bool = True, max_rows: int = 1 << 30
) -> Stop:
    """Append a `Row` to `rows` for each sound record from `start` on, until something else comes.

    Args:
        buffer: bytes of the log.
        start: position of a record in it.
        room: position (may lie behind the buffer's end) where the file ends.
        rows: gets the records.
        check_crc: whether bodies are read.
        max_rows: stop after as many (`more` is then 0, `reason` None, `blank` 0).
    """
    size_of_buffer = len(buffer)
    view = memoryview(buffer)
    unpack_v4 = _V4.unpack_from
    unpack_short = _SHORT.unpack_from
    add = rows.append
    at = start
    budget = max_rows
    while budget > 0:
        budget -= 1
        if size_of_buffer - at < V4_HEAD_SIZE:
            return _at_the_end(buffer, at, room)
        (total, magic, crc, queue_id, _, queue_offset, offset, flags, stored, body_length) = unpack_v4(buffer, at)
        if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
            return _no_message(total, magic, at, room)
        if total < MIN_RECORD_SIZE or total > room - at:
            return Stop(at, reason=Reason.SIZE)
        end = at + total
        body_at = at + V4_HEAD_SIZE
        if flags & _HOST_FLAGS:
            shift = _V6_EXTRA * ((flags >> 4 & 1) + (flags >> 5 & 1))
            if total < MIN_RECORD_SIZE + shift:
                return Stop(at, reason=Reason.LENGTHS)
            body_at += shift
            if body_at > size_of_buffer:
                return Stop(at, more=total)
            (body_length,) = _INT.unpack_from(buffer, body_at - 4)
            (stored,) = _LONG.unpack_from(buffer, at + 48 + (20 if flags & sysflag.BORN_HOST_V6 else 8))
        if body_length < 0:  # noqa: PLR1730 - Apache's reader takes it for 0 (CommitLog#calMsgLength); max() is slower
            body_length = 0
        topic_length_at = body_at + body_length
        if topic_length_at + 3 > end:
            return Stop(at, reason=Reason.LENGTHS)
        if topic_length_at + 2 > size_of_buffer:
            return Stop(at, more=total)
        if magic == MESSAGE_MAGIC:
            topic_at = topic_length_at + 1
            topic_length = view[topic_length_at]
            if topic_length > 127:
                return Stop(at, reason=Reason.LENGTHS)
        else:
            topic_at = topic_length_at + 2
            (topic_length,) = unpack_short(buffer, topic_length_at)
            if topic_length < 0:
                return Stop(at, reason=Reason.LENGTHS)
        properties_at = topic_at + topic_length + 2
        if properties_at > end:
            return Stop(at, reason=Reason.LENGTHS)
        if properties_at > size_of_buffer:
            return Stop(at, more=total)
        (properties_length,) = unpack_short(buffer, properties_at - 2)
        if properties_length < 0:  # noqa: PLR1730 - as above
            properties_length = 0
        if properties_at + properties_length != end:
            return Stop(at, reason=Reason.LENGTHS)
        if end > size_of_buffer:
            return Stop(at, more=total)
        if check_crc and body_length and crc32(view[body_at:topic_length_at]) & 0x7FFFFFFF != crc:
            return Stop(at, reason=Reason.CRC)
        add(
            Row(
                at, total, queue_id, queue_offset, offset, flags, stored,
                body_at, body_length, topic_at, topic_length, properties_at, properties_length,
            )
        )  # fmt: skip
        at = end
    return Stop(at)


def _at_the_end(buffer: Buffer, at: int, room: int) -> Stop:
    """Fewer bytes than a record's head are in the buffer: a blank record may fit, or more must be read."""
    left = len(buffer) - at
    if left < BLANK_SIZE:
        return Stop(at, more=BLANK_SIZE) if room - at >= BLANK_SIZE else Stop(at, reason=Reason.CUT)
    total, magic = _BLANK.unpack_from(buffer, at)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        return _no_message(total, magic, at, room)
    if total < MIN_RECORD_SIZE or total > room - at:
        return Stop(at, reason=Reason.SIZE)
    return Stop(at, more=total)


def _no_message(total: int, magic: int, at: int, room: int) -> Stop:
    if magic == BLANK_MAGIC:
        return Stop(at, blank=total) if total == room - at else Stop(at, reason=Reason.BLANK_LENGTH)
    return Stop(at, reason=Reason.EMPTY if total == 0 and magic == 0 else Reason.MAGIC)
