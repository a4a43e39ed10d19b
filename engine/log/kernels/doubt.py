"""Records that are not plain at a glance (engine.log.kernels.judge), byte by byte: values may hold line ends.

What does not pass here goes to engine.format.judge. Loaded only where there is such a record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.record import POSITION_SYS_FLAG, PROPERTIES_LENGTH_SIZE, TOPIC_LENGTH_SIZE
from engine.log.kernels.intrinsics import big32
from engine.log.kernels.jit import compiled
from engine.log.kernels.judge import head_is_plain, texts_are_plain

_LENGTH = PROPERTIES_LENGTH_SIZE
"""Bytes between topic and properties."""
_NAME_VALUE = np.uint8(1)
_SEPARATOR = np.uint8(2)
_SPACE = np.uint8(32)


@compiled
def texts_are_sound(data: Any, topic_at: int, properties_at: int, end: int) -> bool:
    """Whether topic and properties are sound: the rule itself, byte by byte. Arguments as `texts_are_plain`."""
    if properties_at - _LENGTH == topic_at:
        return False
    for k in range(topic_at, properties_at - _LENGTH):
        if data[k] < _SPACE:
            return False
    start = properties_at
    while end > start and data[end - 1] == _SEPARATOR:
        end -= 1
    in_name = True
    for k in range(properties_at, end):
        byte = data[k]
        if in_name:
            if byte == _NAME_VALUE and k > start:
                in_name = False
            elif byte < _SPACE:
                return False
        elif byte == _SEPARATOR:
            in_name, start = True, k + 1
        elif byte < _SPACE and byte not in (9, 10, 13):
            return False
    return not in_name or properties_at == end


@compiled
def sift(data: Any, rows: Any) -> int:
    """Keep those of `rows` (int64[n, 5]: positions of record, body, topic, properties, end) that are in doubt.

    They are moved to the front; how many there are.
    """
    count = 0
    for i in range(len(rows)):
        at, body_at, topic_at, properties_at, end = rows[i]
        flags = big32(data, at + POSITION_SYS_FLAG)
        plain = head_is_plain(data, at, flags, body_at, topic_at - TOPIC_LENGTH_SIZE - body_at)
        if not plain or not texts_are_sound(data, topic_at, properties_at, end):
            rows[count] = rows[i]
            count += 1
    return count


@compiled
def doubts(data: Any, table: Any, rows: Any) -> int:
    """Rows of `table` (int64[n, 13], as engine.log.walk.Row) that are in doubt, into `found` (int64[n]); how many."""
    count = 0
    for i in range(len(table)):
        row = table[i]
        at, body_at, topic_at, properties_at, end = row[0], row[7], row[9], row[11], row[0] + row[1]
        plain = head_is_plain(data, at, row[5], body_at, row[8])
        if plain and not texts_are_plain(data, topic_at, properties_at, end):
            plain = texts_are_sound(data, topic_at, properties_at, end)
        if not plain:
            rows[count] = i
            count += 1
    return count
