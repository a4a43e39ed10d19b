"""Which heads in a range of log are worth a closer look before a boundary: the others can't reach it.

Theory. `Boundaries` asks of every head in the MiBs before a place whether a scan could step from it beyond the place.
Nearly all of them lie too far away for that by every length that they have, and that is known for all of them at once:
a head is left out only where `Boundaries` would say no by its first four bytes, its own offset and its body's length.
What is left, some dozen of them, it looks at one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.format import sysflag
from engine.format.record import (
    BLANK_MAGIC_BYTES,
    BODY_LENGTH_BACK,
    INT_SIZE,
    LONG_SIZE,
    MAGIC_BYTES,
    MAGIC_SIZE,
    POSITION_MAGIC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_SYS_FLAG,
    V4_HEAD_SIZE,
    V6_EXTRA,
    WHOLE_HEAD_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_BEGINNINGS = tuple(sorted({magic[:-1] for magic in (*MAGIC_BYTES, BLANK_MAGIC_BYTES)}))
"""What the magics begin with; those of messages differ in their last byte alone, and only they begin so."""


def reaching(before: bytes, end: int, place: int, offset: int, segment_end: int, after_body: int) -> Iterator[int]:
    """Positions of heads that may reach beyond `offset`; never leaves out one that does.

    Args:
        before: the log from the physical offset `place` on.
        end: position in it; heads from there on are not asked for.
        place: physical offset of its first byte.
        offset: the physical offset that is to be reached.
        segment_end: physical offset where the file ends.
        after_body: bytes that follow a body at most.
    """
    data = np.frombuffer(before, dtype=np.uint8)
    heads = np.concatenate([_heads_with_magic(data, beginning, end) for beginning in _BEGINNINGS])
    whole = heads + WHOLE_HEAD_SIZE <= len(data)
    yield from heads[~whole].tolist()
    heads = heads[whole]
    if not len(heads):
        return
    at = place + heads
    claimed = at + _int32(data, heads)
    by_size = (claimed > offset) & (claimed <= segment_end)
    own = _int64(data, heads + POSITION_PHYSICAL_OFFSET) == at
    flags = _int32(data, heads + POSITION_SYS_FLAG)
    shift = V6_EXTRA * (((flags & sysflag.BORN_HOST_V6) != 0).astype(np.int64) + ((flags & sysflag.STORE_HOST_V6) != 0))
    head_end = V4_HEAD_SIZE + shift
    body_end = at + head_end + np.maximum(0, _int32(data, heads + head_end - BODY_LENGTH_BACK))
    by_lengths = own & (body_end + after_body > offset)
    yield from heads[by_size | by_lengths].tolist()


def _heads_with_magic(data: NDArray[np.uint8], beginning: bytes, end: int) -> Numbers:
    """Positions before `end` of heads whose magic begins so: looked for two bytes at a time, which is faster."""
    stop = min(end + POSITION_MAGIC, len(data) - MAGIC_SIZE + 1)
    parts = []
    for first in (POSITION_MAGIC, POSITION_MAGIC + 1):
        pairs = data[first : first + max(0, stop - first + 1) // 2 * 2].view("<u2")
        parts.append(2 * np.flatnonzero(pairs == beginning[0] | beginning[1] << 8) + first)
    heads: Numbers = np.concatenate(parts)
    for i, byte in enumerate(beginning[2:], 2):
        heads = heads[data[heads + i] == byte]
    return heads - POSITION_MAGIC


def _int32(data: NDArray[np.uint8], at: Numbers) -> Numbers:
    """Big-endian integers of 4 bytes at some positions."""
    return _taken(data, at, INT_SIZE).view(">i4").ravel().astype(np.int64)


def _int64(data: NDArray[np.uint8], at: Numbers) -> Numbers:
    return _taken(data, at, LONG_SIZE).view(">i8").ravel().astype(np.int64)


def _taken(data: NDArray[np.uint8], at: Numbers, size: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(data[at[:, None] + np.arange(size)])
