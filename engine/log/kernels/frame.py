"""The walk of engine.format.batch.places as a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.batch import HEAD_SIZE, ITEM_SIZE, POSITION_BODY_LENGTH, POSITION_FLAG
from engine.log.kernels.intrinsics import big32
from engine.log.kernels.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

_HEAD = HEAD_SIZE
_LEAST = ITEM_SIZE
_SHORT = _LEAST - _HEAD


def table_of(frame: Buffer) -> NDArray[np.int64] | None:
    """int64[n, 5]: what `engine.format.batch.places` gives; None where it raises."""
    data = np.frombuffer(frame, dtype=np.uint8)
    data.flags.writeable = False
    table = np.empty((len(data) // _LEAST + 1, 5), dtype=np.int64)
    count = _places(data, table)
    return None if count < 0 else table[:count]


@compiled
def _places(data: Any, table: Any) -> int:
    size = len(data)
    at = 0
    count = 0
    while at < size:
        if size - at < _HEAD:
            return -1
        flag = big32(data, at + POSITION_FLAG)
        body_length = big32(data, at + POSITION_BODY_LENGTH)
        body_at = at + _HEAD
        at = body_at + body_length
        if body_length < 0 or at + _SHORT > size:
            return -1
        length = np.int64(data[at]) << 8 | np.int64(data[at + 1])
        at += _SHORT
        if length > 0x7FFF or at + length > size:
            return -1
        table[count, 0] = flag
        table[count, 1] = body_at
        table[count, 2] = body_length
        table[count, 3] = at
        table[count, 4] = length
        count += 1
        at += length
    return count
