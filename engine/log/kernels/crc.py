"""CRC-32 within a kernel, equal to `zlib.crc32`: no call into a library per body, dearer than a small body itself.

Theory: engine.log.kernels.fold, where the processor has a carry-less product. Without it, and for a few bytes, tables
do it all: `_TABLES[k][b]` is what byte b leaves when k bytes follow it, so that 16 bytes are 16 independent look-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.log.kernels.fold import fold, folds_in_hardware, remainder
from engine.log.kernels.jit import compiled, inlined
from engine.log.kernels.loads import little64

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
_FOLDS = folds_in_hardware()
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
def _crc(data: Any, start: int, end: int) -> Any:
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
    return _crc(data, start, end)


@compiled
def body_crc(data: Any, start: int, end: int) -> Any:
    """int64: CRC-32 of data[start:end] as a record stores it, `engine.format.hashing.body_crc`."""
    return np.int64(_crc(data, start, end)) & CRC_MASK
