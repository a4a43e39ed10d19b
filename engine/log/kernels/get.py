"""A get without a filter, in one pass: units read, the rules of how much is given, records decoded to columns.

It takes plain records only, all of them in the file where the first one lies. Anything else is left, all of it, to
engine.log.reading and engine.format.record_columns, so that each rule stands in one place; tests hold the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.message import MESSAGE_MAGIC, MIN_RECORD_SIZE, PROPERTIES_MAX_LENGTH, V4_HEAD_SIZE
from engine.format.names import TOPIC_MAX_LENGTH
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record_columns import FIELDS, RecordColumns
from engine.format.sysflag import BORN_HOST_V6, STORE_HOST_V6
from engine.log.kernels.jit import compiled
from engine.log.kernels.loads import big32, big64

if TYPE_CHECKING:
    from engine.log.reading import ReadLimits

_MAGIC = MESSAGE_MAGIC - (1 << 32)
_LEAST = MIN_RECORD_SIZE
_HEAD = V4_HEAD_SIZE
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
    all_units, all_data = np.frombuffer(units, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8)
    all_units.flags.writeable = all_data.flags.writeable = False  # one kind of array: one kernel
    room = min(len(all_units) // UNIT_SIZE, max(max_msgs, 1))
    table = np.empty((_FIELDS, room), dtype=np.int64)
    count, seen, last = _get(
        all_units, all_data, base, log_end - limits.memory, max_msgs,
        limits.bytes_in_memory, limits.count_in_memory, limits.bytes_in_disk, limits.count_in_disk, table,
    )  # fmt: skip
    return None if count < 0 else (RecordColumns(data, table if count == room else table[:, :count]), seen, last)


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
        size = big32(units, seen * UNIT_SIZE + 8)
        if total != 0 and count != 0:
            if max_msgs <= count:
                return count, seen, last
            if last < memory_from:
                if total + size > bytes_in_disk or count > count_in_disk - 1:
                    return count, seen, last
            elif total + size > bytes_in_memory or count > count_in_memory - 1:
                return count, seen, last
        at = last - base
        if size < _LEAST or at < 0 or at > len(data) - size or count >= table.shape[1]:
            return -1, seen, last
        if not _decode(data, at, size, table, count):
            return -1, seen, last
        count += 1
        total += size
    return count, many, last


@compiled
def _decode(data: Any, at: int, size: int, table: Any, i: int) -> bool:
    """Fill a column of the table; False when it is no plain record of that size with IPv4 hosts."""
    flags = big32(data, at + 36)
    length = big32(data, at + 84)
    if big32(data, at) != size or big32(data, at + 4) != _MAGIC or flags & (BORN_HOST_V6 | STORE_HOST_V6):
        return False
    end = at + size
    body_at = at + _HEAD
    if length < 0 or length > size - _HEAD - 3:
        return False
    topic_at = body_at + length + 1
    topic_length = np.int64(data[topic_at - 1])
    own_at = topic_at + topic_length + 2
    if topic_length > TOPIC_MAX_LENGTH or own_at > end:
        return False
    own = np.int64(data[own_at - 2]) << 8 | np.int64(data[own_at - 1])
    if own > PROPERTIES_MAX_LENGTH or own_at + own != end:
        return False
    table[0, i] = at
    table[1, i] = size
    table[2, i] = MESSAGE_MAGIC
    table[3, i] = big32(data, at + 8)
    table[4, i] = big32(data, at + 12)
    table[5, i] = big32(data, at + 16)
    table[6, i] = big64(data, at + 20)
    table[7, i] = big64(data, at + 28)
    table[8, i] = flags
    table[9, i] = big64(data, at + 40)
    table[10, i] = at + 48
    table[11, i] = big64(data, at + 56)
    table[12, i] = at + 64
    table[13, i] = big32(data, at + 72)
    table[14, i] = big64(data, at + 76)
    table[15, i] = body_at
    table[16, i] = length
    table[17, i] = topic_at
    table[18, i] = topic_length
    table[19, i] = own_at
    table[20, i] = own
    return True
