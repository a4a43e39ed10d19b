"""CRC-32 within a kernel, equal to `zlib.crc32`: no call into a library per body, dearer than a small body itself.

The CRC of two ranges that lie side by side is that of the first times x^(8 · bytes of the second) mod P (`moving`),
plus (XOR) that of the second: so bytes whose CRC is known need not be read again for that of a range around them. The
factor is made of the number of bytes, four bits at a time: `_SHIFTS[k][d]` is that of d · 16^k bytes.

Theory: engine.log.kernels.fold, where the processor has a carry-less product. Without it, and for a few bytes, tables
do it all: `_TABLES[k][b]` is what byte b leaves when k bytes follow it, so that 16 bytes are 16 independent look-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.log.kernels.intrinsics import carryless, fold, folds, little64, remainder
from engine.log.kernels.jit import compiled, inlined, later

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REFLECTED = 0xEDB88320
_BLOCK = 16


def _tables() -> NDArray[np.uint32]:
    """uint32[16, 256]."""
    out = np.zeros((_BLOCK, 256), dtype=np.uint32)
    first: NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = (first >> np.uint32(1)) ^ (first & np.uint32(1)) * np.uint32(_REFLECTED)
    out[0] = first
    for k in range(1, _BLOCK):
        out[k] = (out[k - 1] >> np.uint32(8)) ^ first[out[k - 1] & 0xFF]
    return out


_TABLES = _tables()
_FOLDS: Any = folds
_ONE = 1 << 31
"""The polynomial 1, reflected."""
_DIGIT = 4
"""Bits of a number of bytes that are taken at a time."""
_DIGIT_MASK = (1 << _DIGIT) - 1


def _times_x(power: int) -> int:
    return power >> 1 ^ (_REFLECTED if power & 1 else 0)


def _product(one: int, other: int) -> int:
    """Of two polynomials mod P, reflected."""
    total = 0
    for bit in range(32):
        if one & _ONE >> bit:
            total ^= other
        other = _times_x(other)
    return total


def _shifts() -> NDArray[np.uint32]:
    """uint32[8, 16]: x^(8 · d · 16^k) mod P, in hardware divided by x^32, with which `remainder` multiplies."""
    out = np.zeros((32 // _DIGIT, 1 << _DIGIT), dtype=np.uint32)
    less = _ONE
    for _ in range(32 if folds.made() else 0):  # divided by x: P's coefficient of x^0 is 1
        less = (less ^ _REFLECTED) << 1 & 0xFFFFFFFF | 1 if less & _ONE else less << 1
    step = _ONE
    for _ in range(8):
        step = _times_x(step)
    for row in out:
        power = _ONE
        for d in range(len(row)):
            row[d] = _product(power, less)
            power = _product(power, step)
        step = power
    return out


_SHIFTS: Any = later(_shifts)
_BYTE = np.uint64(0xFF)


@compiled
def _of_block(low: Any, high: Any) -> Any:
    """The remainder of 16 bytes (two uint64, little endian)."""
    crc = np.uint32(0)
    for k in range(8):
        shift = np.uint64(8 * k)
        crc ^= _TABLES[15 - k, (low >> shift) & _BYTE] ^ _TABLES[7 - k, (high >> shift) & _BYTE]
    return crc


@inlined
def crc_inlined(data: Any, start: int, end: int) -> Any:
    """As `crc32`: part of each kernel below, as a call within a call costs as much as a small body."""
    register = np.uint32(0xFFFFFFFF)
    if _FOLDS and end - start >= _BLOCK:
        low, high = fold(data, start, end - start)
        return remainder(low, high) ^ register
    at = start
    while end - at >= _BLOCK:
        register = _of_block(little64(data, at) ^ np.uint64(register), little64(data, at + 8))
        at += _BLOCK
    if end - at >= 8:
        word = little64(data, at) ^ np.uint64(register)
        register = np.uint32(0)
        for k in range(8):
            register ^= _TABLES[7 - k, (word >> np.uint64(8 * k)) & _BYTE]
        at += 8
    while at < end:
        register = (register >> np.uint32(8)) ^ _TABLES[0, (register ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return register ^ np.uint32(0xFFFFFFFF)


@compiled
def crc32(data: Any, start: int, end: int) -> Any:
    """CRC-32 of data[start:end] (uint8[n]), as `zlib.crc32`: uint32. The caller has checked the bounds."""
    return crc_inlined(data, start, end)


@compiled
def body_crc(data: Any, start: int, end: int) -> Any:
    """int64: CRC-32 of data[start:end] as a record stores it, `engine.format.hashing.body_crc`."""
    return np.int64(crc_inlined(data, start, end)) & CRC_MASK


@inlined
def times(one: Any, factor: Any) -> Any:
    """uint32: a CRC-32 (uint32), or a factor, times a factor of `moving`."""
    if _FOLDS:
        return remainder(np.uint64(0), carryless(one, factor))
    total = np.uint32(0)
    for bit in range(32):
        if one & np.uint32(_ONE >> bit):
            total ^= factor
        factor = (factor >> np.uint32(1)) ^ (factor & np.uint32(1)) * np.uint32(_REFLECTED)
    return total


@compiled
def moving(size: Any) -> Any:
    """uint32: the factor that makes of a range's CRC-32 its part of that of a range with `size` < 2³² bytes more."""
    factor = _SHIFTS[0, size & _DIGIT_MASK]
    size >>= _DIGIT
    k = 1
    while size:
        if size & _DIGIT_MASK:
            factor = times(factor, _SHIFTS[k, size & _DIGIT_MASK])
        size >>= _DIGIT
        k += 1
    return factor


@inlined
def times_both(one: Any, factor: Any, other: Any, other_factor: Any) -> Any:
    """uint32: the sum of two such products."""
    if _FOLDS:
        return remainder(np.uint64(0), carryless(one, factor) ^ carryless(other, other_factor))
    return times(one, factor) ^ times(other, other_factor)
