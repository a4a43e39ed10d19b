"""The walk of engine.log.walk as a kernel: the same records, field by field, some ten times as fast.

It takes plain sound records only (engine.log.kernels.sound). Anything else (the buffer's end, a blank, damage, a 5.x
record) ends it, and `engine.log.walk` says of that very place what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.judge import Row, Stop
from engine.format.record import (
    MIN_RECORD_SIZE,
    POSITION_BODY_CRC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    V4_HEAD_SIZE,
)
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import big32, big64
from engine.log.kernels.jit import compiled
from engine.log.kernels.sound import begins, parts, stored_at
from engine.log.walk import walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

_FIELDS = len(Row._fields)
_FIELDS = len(Row._fields)
_PLAIN_ROWS = 64
"""Records that are taken one by one where the kernel could not continue: it may have met one odd record among many."""


def fast_walk(buffer: Buffer, start: int, room: int, *, check_crc: bool = True) -> tuple[NDArray[np.int64], Stop]:
    """`engine.log.walk.walk`, but the rows as a table.

    Args:
        buffer: bytes of the log.
        start: position of a record in it.
        room: position (may lie after the buffer's end) where the file ends.
        check_crc: whether bodies are read.

    Returns:
        int64[n, 13], columns in the order of `Row._fields`; and where the walk ended, and why.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    parts: list[NDArray[np.int64]] = []
    at = start
    while True:
        table = np.empty(((len(data) - at) // MIN_RECORD_SIZE + 1, _FIELDS), dtype=np.int64)
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
def _walk(data: Any, start: int, room: int, check_crc: bool, table: Any) -> tuple[int, int]:
    """Rows of `table` (int64[enough, 13]) for the records from `start` on; (how many, where something else is)."""
    size = len(data)
    at = start
    count = 0
    while size - at >= V4_HEAD_SIZE:
        total = big32(data, at)
        if not begins(data, at, total, min(room, size)):
            break
        flags, body_at, body_length, topic_at, topic_length, properties_at, properties_length = parts(
            data, at, at + total
        )
        if body_at == 0:
            break
        claimed = big32(data, at + POSITION_BODY_CRC)
        if check_crc and body_length and body_crc(data, body_at, body_at + body_length) != claimed:
            break
        table[count, 0] = at
        table[count, 1] = total
        table[count, 2] = big32(data, at + POSITION_QUEUE_ID)
        table[count, 3] = big64(data, at + POSITION_QUEUE_OFFSET)
        table[count, 4] = big64(data, at + POSITION_PHYSICAL_OFFSET)
        table[count, 5] = flags
        table[count, 6] = big64(data, stored_at(at, flags))
        table[count, 7] = body_at
        table[count, 8] = body_length
        table[count, 9] = topic_at
        table[count, 10] = topic_length
        table[count, 11] = properties_at
        table[count, 12] = properties_length
        count += 1
        at += total
    return count, at
