"""Parts of JSON within a kernel: numbers, text with its escapes, bytes as base64, in UTF-8, as Python's json has them.

What is not UTF-8 is told to the caller. A function writes at a position of `out` and returns the one after it; the
caller sees to it that there is room, and `SLACK` bytes more: whole vectors are stored, and the next part goes over
their ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.log.kernels.intrinsics import (
    BASE64_FROM,
    BASE64_TO,
    base64,
    below64,
    copy,
    equal64,
    first_bit,
    put16,
)
from engine.log.kernels.jit import compiled

SLACK = 64
"""Bytes after the last that a function here may write over."""
ESCAPED = 6
"""Bytes that one byte of a text takes at most."""
_LANES = 64
_QUOTE, _BACKSLASH, _SPACE, _ASCII_END = ord('"'), ord("\\"), 0x20, 0x80
_DIGITS = np.frombuffer("".join(f"{i:02d}" for i in range(100)).encode(), dtype=np.uint8)
_HEX = np.frombuffer("".join(f"{i:02X}" for i in range(256)).encode(), dtype=np.uint8)
_LOWER_HEX = np.frombuffer("".join(f"{i:02x}" for i in range(256)).encode(), dtype=np.uint8)
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_SHORT = np.zeros(256, dtype=np.uint8)
"""The letter after the backslash of bytes that have one of their own."""
for _byte, _letter in (b'""', b"\\\\", b"\bb", b"\ff", b"\nn", b"\rr", b"\tt"):
    _SHORT[_byte] = _letter
_ONE = np.uint64(1)
_ALL = np.uint64((1 << 64) - 1)


@compiled
def decimal(out: Any, at: int, value: Any) -> int:
    """An int64 (but for the least); of another kind `value` would not stay an integer."""
    if value < 0:
        out[at] = ord("-")
        at += 1
        value = -value
    digits = 1
    power = 10
    while digits < 18 and value >= power:
        power *= 10
        digits += 1
    if digits == 18 and value >= 10**18:
        digits = 19
    end = at + digits
    place = end
    while place - at >= 2:
        place -= 2
        put16(out, place, _DIGITS, value % 100)
        value //= 100
    if place > at:
        out[at] = ord("0") + value
    return end


@compiled
def upper_hex(out: Any, at: int, data: Any, begin: int, length: int) -> int:
    """Bytes as two hexadecimal digits each."""
    for i in range(length):
        put16(out, at + 2 * i, _HEX, np.int64(data[begin + i]))
    return at + 2 * length


@compiled
def big_hex(out: Any, at: int, value: int) -> int:
    """The eight bytes of an int64 that is not negative, the same."""
    for i in range(8):
        put16(out, at + 2 * i, _HEX, value >> (56 - 8 * i) & 255)
    return at + 16


@compiled
def position_of(data: Any, begin: int, end: int, byte: int) -> int:
    """Where the first such byte in [begin, end) is; `end` without one."""
    at = begin
    while at < end and at + _LANES <= len(data):
        mask = equal64(data, at, np.uint8(byte))
        if mask:
            return min(at + int(first_bit(mask)), end)
        at += _LANES
    while at < end and data[at] != byte:
        at += 1
    return min(at, end)


@compiled
def escaped(out: Any, at: int, data: Any, begin: int, end: int) -> int:
    """The text data[begin:end] without its quotes; −1 where it is no UTF-8 (something is written then, too)."""
    while begin < end:
        if begin + _LANES <= len(data):
            mask = (
                below64(data, begin, np.uint8(_SPACE))
                | equal64(data, begin, np.uint8(_QUOTE))
                | equal64(data, begin, np.uint8(_BACKSLASH))
                | (below64(data, begin, np.uint8(_ASCII_END)) ^ _ALL)
            )
            left = end - begin
            if left < _LANES:
                mask &= (_ONE << np.uint64(left)) - _ONE
            copy(out, at, data, begin, _LANES)
            plain = min(first_bit(mask), left)
            begin += plain
            at += plain
            if mask == 0:
                continue
        while begin < end:
            byte = np.int64(data[begin])
            if byte >= _ASCII_END:
                length = _sequence(data, begin, end, byte)
                if length == 0:
                    return -1
                for i in range(length):
                    out[at + i] = data[begin + i]
                begin += length
                at += length
                continue
            begin += 1
            if byte >= _SPACE and byte not in (_QUOTE, _BACKSLASH):
                out[at] = byte
                at += 1
                if begin + _LANES <= len(data):
                    break
                continue
            out[at] = _BACKSLASH
            if _SHORT[byte]:
                out[at + 1] = _SHORT[byte]
                at += 2
            else:
                out[at + 1] = ord("u")
                out[at + 2] = out[at + 3] = ord("0")
                put16(out, at + 4, _LOWER_HEX, byte)
                at += 6
    return at


@compiled
def _sequence(data: Any, at: int, end: int, first: Any) -> int:
    """Bytes of the character of UTF-8 that begins with a byte ≥ 0x80 at `at`; 0 where there is none."""
    if first < 0xC2 or first > 0xF4:
        return 0
    length = 2
    if first >= 0xE0:
        length += 1 if first < 0xF0 else 2
    if at + length > end:
        return 0
    least, most = 0x80, 0xBF  # of the second byte: no character in more bytes than it needs, no half of a pair
    if first == 0xE0:
        least = 0xA0
    elif first == 0xED:
        most = 0x9F
    elif first == 0xF0:
        least = 0x90
    elif first == 0xF4:
        most = 0x8F
    if not least <= np.int64(data[at + 1]) <= most:
        return 0
    for i in range(2, length):
        if not 0x80 <= np.int64(data[at + i]) <= 0xBF:
            return 0
    return length


@compiled
def as_base64(out: Any, at: int, data: Any, begin: int, end: int) -> int:
    """The bytes data[begin:end]."""
    while end - begin >= BASE64_FROM and begin + _LANES <= len(data):
        base64(out, at, data, begin)
        begin += BASE64_FROM
        at += BASE64_TO
    while begin < end:
        some = min(end - begin, 3)
        bits = np.int64(data[begin]) << 16
        if some > 1:
            bits |= np.int64(data[begin + 1]) << 8
        if some > 2:
            bits |= np.int64(data[begin + 2])
        for i in range(4):
            out[at + i] = _LETTERS[bits >> (18 - 6 * i) & 63] if i <= some else ord("=")
        begin += some
        at += 4
    return at
