"""A get without a filter, in one pass: units read, the rules of how much is given, records decoded to columns.

It takes plain records only, all of them in the file where the first one lies. Anything else is left, all of it, to
engine.log.reading and engine.format.record_columns, so that each rule stands in one place; tests hold the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.queue_unit import POSITION_SIZE, UNIT_SIZE
from engine.format.record import (
    MESSAGE_MAGIC,
    MIN_RECORD_SIZE,
    POSITION_BODY_CRC,
    POSITION_BORN_HOST,
    POSITION_BORN_TIMESTAMP,
    POSITION_FLAG,
    POSITION_MAGIC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_PREPARED,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_RECONSUME_TIMES,
    POSITION_STORE_HOST,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
)
from engine.format.record_columns import FIELDS, RecordColumns
from engine.format.sysflag import HOSTS_V6_MASK
from engine.log.kernels.columns import MOST
from engine.log.kernels.intrinsics import big32, big64
from engine.log.kernels.jit import compiled
from engine.log.kernels.sound import PLAIN_MAGIC, parts
from engine.log.natives import COLUMNS

if TYPE_CHECKING:
    from engine.log.reading import ReadLimits

_FIELDS = len(FIELDS)


def get(
    units: memoryview, base: int, data: memoryview, log_end: int, max_msgs: int, limits: ReadLimits
) -> tuple[RecordColumns, int, int] | None:
    """The records of some units, as far as one get gives them.

    Args:
        units: whole units of the queue, at least one.
        base: physical offset of the first byte of `data`.
        data: bytes of the log.
        log_end: as in `engine.log.reading.get_message`.
        max_msgs, limits: how much may be given.

    Returns:
        The records, units seen, physical offset of the last unit looked at; None when something else is among them.
    """
    room = _room(units, max_msgs)
    native = COLUMNS.after(1) if room <= MOST else None
    if native is None:
        return by_kernel(units, base, data, log_end, max_msgs, limits)
    table = np.empty((_FIELDS, room), dtype=np.int64)
    answer = native(units, data, table, base, *_bounds(log_end, max_msgs, limits), None)
    return None if answer is None else (RecordColumns(data, table[:, : answer[0]]), *answer)


def by_kernel(
    units: memoryview, base: int, data: memoryview, log_end: int, max_msgs: int, limits: ReadLimits
) -> tuple[RecordColumns, int, int] | None:
    """As `get`, without the native: for many records, and where no code is kept."""
    all_units, all_data = np.frombuffer(units, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8)
    all_units.flags.writeable = all_data.flags.writeable = False  # one kind of array: one kernel
    table = np.empty((_FIELDS, _room(units, max_msgs)), dtype=np.int64)
    count, seen, last = _get(all_units, all_data, base, *_bounds(log_end, max_msgs, limits), table)
    return None if count < 0 else (RecordColumns(data, table[:, :count]), seen, last)


def _room(units: memoryview, max_msgs: int) -> int:
    """How many records may be given."""
    return min(len(units) // UNIT_SIZE, max(max_msgs, 1))


def _bounds(log_end: int, max_msgs: int, limits: ReadLimits) -> tuple[int, int, int, int, int, int]:
    """How much may be given, as `_get` and the native take it: from `memory_from` on."""
    return (
        log_end - limits.memory,
        max_msgs,
        limits.bytes_in_memory,
        limits.count_in_memory,
        limits.bytes_in_disk,
        limits.count_in_disk,
    )


@compiled
def _get(
    units: Any, data: Any, base: int, memory_from: int, max_msgs: int,
    bytes_in_memory: int, count_in_memory: int, bytes_in_disk: int, count_in_disk: int, table: Any,
) -> tuple[int, int, Any]:  # fmt: skip
    """Fills `table`: (records or −1, units seen, last physical offset). In memory lies what starts at `memory_from`."""
    count = 0
    total = 0
    last = np.int64(0)
    many = len(units) // UNIT_SIZE
    for seen in range(many):
        last = big64(units, seen * UNIT_SIZE)
        size = big32(units, seen * UNIT_SIZE + POSITION_SIZE)
        if total != 0 and count != 0:
            if max_msgs <= count:
                return count, seen, last
            if last < memory_from:
                if total + size > bytes_in_disk or count > count_in_disk - 1:
                    return count, seen, last
            elif total + size > bytes_in_memory or count > count_in_memory - 1:
                return count, seen, last
        at = last - base
        if size < MIN_RECORD_SIZE or at < 0 or at > len(data) - size or count >= table.shape[1]:
            return -1, seen, last
        if not _decode(data, at, size, table, count):
            return -1, seen, last
        count += 1
        total += size
    return count, many, last


@compiled
def _decode(data: Any, at: int, size: int, table: Any, i: int) -> bool:
    """Fill a column of the table; False when it is no plain record of that size with IPv4 hosts."""
    flags = big32(data, at + POSITION_SYS_FLAG)
    if big32(data, at) != size or big32(data, at + POSITION_MAGIC) != PLAIN_MAGIC or flags & HOSTS_V6_MASK:
        return False
    _, body_at, length, topic_at, topic_length, own_at, own = parts(data, at, at + size)
    if body_at == 0:
        return False
    table[0, i] = at
    table[1, i] = size
    table[2, i] = MESSAGE_MAGIC
    table[3, i] = big32(data, at + POSITION_BODY_CRC)
    table[4, i] = big32(data, at + POSITION_QUEUE_ID)
    table[5, i] = big32(data, at + POSITION_FLAG)
    table[6, i] = big64(data, at + POSITION_QUEUE_OFFSET)
    table[7, i] = big64(data, at + POSITION_PHYSICAL_OFFSET)
    table[8, i] = flags
    table[9, i] = big64(data, at + POSITION_BORN_TIMESTAMP)
    table[10, i] = at + POSITION_BORN_HOST
    table[11, i] = big64(data, at + POSITION_STORE_TIMESTAMP)
    table[12, i] = at + POSITION_STORE_HOST
    table[13, i] = big32(data, at + POSITION_RECONSUME_TIMES)
    table[14, i] = big64(data, at + POSITION_PREPARED)
    table[15, i] = body_at
    table[16, i] = length
    table[17, i] = topic_at
    table[18, i] = topic_length
    table[19, i] = own_at
    table[20, i] = own
    return True
