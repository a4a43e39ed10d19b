"""The judge of engine.format.judge as a fast lane within kernels: whether a record is beyond doubt.

Theory. What is asked of the head is asked of all its fields at once: bits that must not be set, and the signs of a few
differences. Topic and properties lie one after the other, with two bytes between them, and are looked at 64 bytes at
once. Of each block, three words of bits tell where `\\x01` stands, where `\\x02`, and where any control character.
They are plain when there are no others, none in the topic, when both alternate, and when no `\\x01` follows a `\\x02`
at once. That they alternate is one subtraction: `\\x02` less `\\x01` leaves a run of bits for each value. At a
control character, its bit is that of what the ones before it leave, turned over: set where a value begins and not set
where one ends, if and only if that is what it does. So the bits at control characters must be those of `\\x01`.

Records of a log are much alike. The verdict on topic and properties depends on their lengths and control characters
alone, so texts that have the same ones at the same places as some that are plain are plain: `alike`.

What is not plain at a glance is looked at byte by byte (engine.log.kernels.doubt).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.judge import PORT_MOST, QUEUE_ID_MOST, RECONSUME_MOST, SKEW_MS, STORED_MOST, SYS_FLAG_KNOWN
from engine.format.record import (
    BODY_LENGTH_BACK,
    PORT_SIZE,
    POSITION_BODY_CRC,
    POSITION_BORN_TIMESTAMP,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_SYS_FLAG,
    PREPARED_BACK,
    PROPERTIES_LENGTH_SIZE,
    RECONSUME_TIMES_BACK,
    STORE_PORT_BACK,
)
from engine.log.kernels.intrinsics import alike_below, any_of, below64, big32, big64, equal64
from engine.log.kernels.jit import compiled, inlined
from engine.log.kernels.sound import stored_at

_NONE = np.uint64(0)
_ONE = np.uint64(1)
_TOP = np.uint64(63)
_NAME_VALUE = np.uint8(1)
_SEPARATOR = np.uint8(2)
_SPACE = np.uint8(32)
_BLOCK = 64
_LENGTH = PROPERTIES_LENGTH_SIZE
"""Bytes between topic and properties."""
_TOPIC_MOST = _BLOCK - _LENGTH - 1


def _above(most: int) -> bytes:
    """The bits of an int that are set where it is negative, or more than `most` (all bits of which are set)."""
    return (~most & 0xFFFFFFFF).to_bytes(4, "big")


def _mask(begin: int, size: int, odd: dict[int, bytes]) -> bytes:
    """A mask of `size` bytes from the position `begin` on, with bits that must not be set at other positions."""
    mask = bytearray(size)
    for at, bits in odd.items():
        mask[at - begin : at - begin + len(bits)] = bits
    assert len(mask) == size
    return bytes(mask)


_SIGN = b"\x80"
_FRONT_AT = POSITION_QUEUE_ID
_FRONT = {
    POSITION_QUEUE_ID: _above(QUEUE_ID_MOST),
    POSITION_QUEUE_OFFSET: _SIGN,
    POSITION_SYS_FLAG: _above(SYS_FLAG_KNOWN),
    POSITION_BORN_TIMESTAMP: _SIGN,
}
_front_odd = any_of(_mask(_FRONT_AT, 32, _FRONT))
_BACK_SIZE = 32
_BACK = {
    -STORE_PORT_BACK: _above(PORT_MOST),
    -RECONSUME_TIMES_BACK: _above(RECONSUME_MOST),
    -PREPARED_BACK: _SIGN,
    -BODY_LENGTH_BACK: _SIGN,
}
"""Up to the body, from whose position these count."""
_back_odd = any_of(_mask(-_BACK_SIZE, _BACK_SIZE, _BACK))
_port_odd = any_of(_above(PORT_MOST))

alike = alike_below(int(_SPACE))
"""Whether two ranges have the same control characters at the same places: (data, one, other, length)."""


@inlined
def head_is_plain(data: Any, at: int, flags: int, body_at: int, body_length: int) -> bool:
    """Whether all that the head of the sound record at `at` of `data` (uint8[n]) says can be, whatever its topic."""
    time_at = stored_at(at, flags)
    stored, born = big64(data, time_at), big64(data, at + POSITION_BORN_TIMESTAMP)
    times = (stored - 1) | (STORED_MOST - 1 - stored) | (stored + SKEW_MS - born)
    if times < 0 or _front_odd(data, at + _FRONT_AT) or _back_odd(data, body_at - _BACK_SIZE):
        return False
    return not _port_odd(data, time_at - PORT_SIZE) and (body_length != 0 or big32(data, at + POSITION_BODY_CRC) == 0)


@compiled
def texts_are_plain(data: Any, topic_at: int, properties_at: int, end: int) -> bool:
    """Whether topic and properties are sound at a glance; 64 bytes before `end` are there.

    Args:
        data: uint8[n].
        topic_at: position of the topic.
        properties_at: position of the properties, two bytes after the topic.
        end: position after them.
    """
    topic_length = properties_at - _LENGTH - topic_at
    if topic_length < 1 or topic_length > _TOPIC_MOST:
        return False
    start = np.uint64(properties_at - topic_at)
    here = ~_NONE << start  # bits of the block that are properties
    texts = here | ~(~_NONE << np.uint64(topic_length))
    first = _ONE << start  # where a name begins
    in_value, odd = _NONE, _NONE
    last = end - _BLOCK
    block_at = topic_at
    while block_at < end:
        load_at, shift = block_at, _NONE
        if block_at > last:
            load_at, shift = last, np.uint64(block_at - last)
        names = (equal64(data, load_at, _NAME_VALUE) >> shift) & here
        separators = (equal64(data, load_at, _SEPARATOR) >> shift) & here
        low = (below64(data, load_at, _SPACE) >> shift) & texts
        values = separators - names - in_value
        odd |= low ^ (names | separators) | (values & low) ^ names | names & (separators << _ONE | first)
        in_value, first = values >> _TOP, separators >> _TOP
        here, texts = ~_NONE, ~_NONE
        block_at += _BLOCK
    return not odd and (in_value != 0 or properties_at == end or data[end - 1] == _SEPARATOR)


assert QUEUE_ID_MOST == PORT_MOST == RECONSUME_MOST == 0xFFFF
