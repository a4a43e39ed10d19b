"""The walk of engine.log.walk as a kernel: the same records, field by field, some ten times as fast.

It takes plain sound records only. Anything else (the buffer's end, a blank, damage, a 5.x record) ends it, and
`engine.log.walk` says of that very place what it is: so there is one judge, and this is only a fast lane before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format import sysflag
from engine.format.message import MESSAGE_MAGIC, MIN_RECORD_SIZE, V4_HEAD_SIZE
from engine.log.kernels.crc import crc32
from engine.log.kernels.jit import compiled
from engine.log.kernels.loads import big32, big64
from engine.log.walk import Row, Stop, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

_FIELDS = len(Row._fields)
_MAGIC = MESSAGE_MAGIC - (1 << 32)
_HEAD = V4_HEAD_SIZE
_LEAST = MIN_RECORD_SIZE
_BORN_V6 = sysflag.BORN_HOST_V6
_STORE_V6 = sysflag.STORE_HOST_V6
_PLAIN_ROWS = 64
"""Records that are taken one by one where the kernel could not go on: it may have met one odd record among many."""


def fast_walk(buffer: Buffer, start: int, room: int, *, check_crc: bool = True) -> tuple[NDArray[np.int64], Stop]:
    """`engine.log.walk.walk`, but the rows as a table.

    Args:
        buffer: bytes of the log.
        start: position of a record in it.
        room: position (may lie behind the buffer's end) where the file ends.
        check_crc: whether bodies are read.

    Returns:
        int64[n, 13], columns in the order of `Row._fields`; and where the walk ended, and why.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    parts: list[NDArray[np.int64]] = []
    at = start
    while True:
        table = np.empty(((len(data) - at) // _LEAST + 1, _FIELDS), dtype=np.int64)
        count, at = _walk(data, at, room, check_crc, table)
        parts.append(table[:count])
        rows: list[Row] = []
        stop = walk(buffer, at, room, rows, check_crc=check_crc, max_rows=_PLAIN_ROWS)
        if rows:
            parts.append(np.array(rows, dtype=np.int64))
        at = stop.position
        if stop.more or stop.blank or stop.reason is not None:
            return parts[0] if len(parts) == 1 else np.concatenate(parts), stop


@compiled
def _walk(  # noqa: PLR0915 - one loop on purpose
    data: Any, start: int, room: int, check_crc: bool, table: Any
) -> tuple[int, int]:
    """Rows of `table` (int64[enough, 13]) for the records from `start` on; (how many, where something else is)."""
    size = len(data)
    at = start
    count = 0
    while size - at >= _HEAD:
        total = big32(data, at)
        if big32(data, at + 4) != _MAGIC or total < _LEAST or total > size - at or total > room - at:
            break
        end = at + total
        flags = big32(data, at + 36)
        body_at = at + _HEAD
        stored_at = at + 56
        if flags & (_BORN_V6 | _STORE_V6):
            if flags & _BORN_V6:
                body_at += 12
                stored_at += 12
            if flags & _STORE_V6:
                body_at += 12
            if total < _LEAST + body_at - at - _HEAD:
                break
        body_length = max(big32(data, body_at - 4), 0)
        topic_at = body_at + body_length + 1
        if topic_at + 2 > end:
            break
        topic_length = np.int64(data[topic_at - 1])
        properties_at = topic_at + topic_length + 2
        if topic_length > 127 or properties_at > end:
            break
        properties_length = np.int64(data[properties_at - 2]) << 8 | np.int64(data[properties_at - 1])
        if properties_length > 0x7FFF:
            properties_length = np.int64(0)
        if properties_at + properties_length != end:
            break
        if check_crc and body_length:
            found = np.int64(crc32(data, body_at, body_at + body_length)) & 0x7FFFFFFF
            if found != (big32(data, at + 8) & 0xFFFFFFFF):
                break
        table[count, 0] = at
        table[count, 1] = total
        table[count, 2] = big32(data, at + 12)
        table[count, 3] = big64(data, at + 20)
        table[count, 4] = big64(data, at + 28)
        table[count, 5] = flags
        table[count, 6] = big64(data, stored_at)
        table[count, 7] = body_at
        table[count, 8] = body_length
        table[count, 9] = topic_at
        table[count, 10] = topic_length
        table[count, 11] = properties_at
        table[count, 12] = properties_length
        count += 1
        at = end
    return count, at
