"""The walk of engine.log.entry_walk as a kernel: the same records, field by field.

As engine.log.kernels.walk it takes plain sound records alone, each in an entry that holds it and no more; what else
there is, `engine.log.entry_walk` says of that very place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.dledger_entry import HEAD_SIZE, NORMAL, POSITION_BODY_LENGTH, POSITION_POS, POSITION_SIZE
from engine.format.judge import Row, Stop
from engine.format.record import (
    MIN_RECORD_SIZE,
    POSITION_BODY_CRC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    V4_HEAD_SIZE,
)
from engine.log.entry_walk import walk_entries
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import big32, big64
from engine.log.kernels.jit import compiled, inlined
from engine.log.kernels.sound import begins, parts, stored_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

_FIELDS = len(Row._fields)
_PLAIN_ROWS = 64
"""As of engine.log.kernels.walk."""


def fast_walk_entries(
    buffer: Buffer, start: int, room: int, base: int, *, check_crc: bool = True, bare: bool = False
) -> tuple[NDArray[np.int64], Stop]:
    """`engine.log.entry_walk.walk_entries`, but the rows as a table, int64[n, 13]; and where it ended, and why."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    tables: list[NDArray[np.int64]] = []
    at = start
    while True:
        table = np.empty(((len(data) - at) // (MIN_RECORD_SIZE + HEAD_SIZE) + 1, _FIELDS), dtype=np.int64)
        count, at = _walk(data, at, room, base, check_crc, table)
        bare = bare and not count
        tables.append(table[:count])
        rows: list[Row] = []
        stop = walk_entries(buffer, at, room, base, rows, check_crc=check_crc, bare=bare, max_rows=_PLAIN_ROWS)
        if rows:
            tables.append(np.array(rows, dtype=np.int64))
            bare = False
        at = stop.position
        if stop.more or stop.blank or stop.reason is not None:
            return tables[0] if len(tables) == 1 else np.concatenate(tables), stop


@inlined
def entry_is_plain(data: Any, at: int, total: int, base: int) -> bool:
    """Whether the header at position `at` of `data` (uint8[n]), all of which is there, is that of a record of `total`
    bytes that follows it. `base`: physical offset of the data's first byte.
    """
    body = big32(data, at + POSITION_BODY_LENGTH)
    size = big32(data, at + POSITION_SIZE)
    named = big64(data, at + POSITION_POS) == base + at
    plain: bool = named and big32(data, at) == NORMAL and body == total and size == total + HEAD_SIZE
    return plain


@compiled
def _walk(data: Any, start: int, room: int, base: int, check_crc: bool, table: Any) -> tuple[int, int]:
    """Rows of `table` (int64[enough, 13]) for the entries from `start` on; (how many, where something else is)."""
    size = len(data)
    at = start
    count = 0
    while size - at >= HEAD_SIZE + V4_HEAD_SIZE:
        record_at = at + HEAD_SIZE
        total = big32(data, record_at)
        if not entry_is_plain(data, at, total, base) or not begins(data, record_at, total, min(room, size)):
            break
        end = record_at + total
        flags, body_at, body_length, topic_at, topic_length, properties_at, properties_length = parts(
            data, record_at, end
        )
        if body_at == 0:
            break
        claimed = big32(data, record_at + POSITION_BODY_CRC)
        if check_crc and body_length and body_crc(data, body_at, body_at + body_length) != claimed:
            break
        table[count, 0] = record_at
        table[count, 1] = total
        table[count, 2] = big32(data, record_at + POSITION_QUEUE_ID)
        table[count, 3] = big64(data, record_at + POSITION_QUEUE_OFFSET)
        table[count, 4] = big64(data, record_at + POSITION_PHYSICAL_OFFSET)
        table[count, 5] = flags
        table[count, 6] = big64(data, stored_at(record_at, flags))
        table[count, 7] = body_at
        table[count, 8] = body_length
        table[count, 9] = topic_at
        table[count, 10] = topic_length
        table[count, 11] = properties_at
        table[count, 12] = properties_length
        count += 1
        at = end
    return count, at
