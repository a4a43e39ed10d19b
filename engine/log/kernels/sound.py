"""The fast lane before engine.format.judge: whether a plain sound record lies at a place, for every kernel that asks.

It knows records of 4.9 whose bytes are all there, and says no more than yes or no. What gets a no (damage, a record of
5.x, the buffer's end) is judged by `engine.format.judge.judge_record`, which has the rules; tests hold the two equal.
The last rule, the body's CRC, is a call that kernels make themselves (`body_crc`): within a function that becomes part
of theirs it would count the array's references, record by record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.names import TOPIC_MAX_LENGTH
from engine.format.record import (
    BODY_LENGTH_BACK,
    LENGTHS_SIZE,
    MESSAGE_MAGIC,
    MIN_RECORD_SIZE,
    POSITION_MAGIC,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    TOPIC_LENGTH_SIZE,
    V4_HEAD_SIZE,
    V6_EXTRA,
)
from engine.format.sysflag import BORN_HOST_V6, HOSTS_V6_MASK, STORE_HOST_V6
from engine.log.kernels.intrinsics import big32
from engine.log.kernels.jit import inlined

PLAIN_MAGIC = MESSAGE_MAGIC - (1 << 32)
"""Of a record of 4.9, as a signed int."""
assert (TOPIC_LENGTH_SIZE, PROPERTIES_LENGTH_SIZE) == (1, 2)


@inlined
def begins(data: Any, at: int, total: int, room: int) -> bool:
    """Whether a record of `total` bytes, as position `at` of `data` (uint8[n]) says, may be there; `room`: file's end.

    A record's fixed part is there.
    """
    return big32(data, at + POSITION_MAGIC) == PLAIN_MAGIC and MIN_RECORD_SIZE <= total <= room - at


@inlined
def parts(data: Any, at: int, end: int) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """Of the record at [at, end): sysFlag; position and length of body, topic and properties.

    The first position is 0 where the lengths don't add up.
    """
    flags = big32(data, at + POSITION_SYS_FLAG)
    body_at = at + V4_HEAD_SIZE
    if flags & HOSTS_V6_MASK:
        if flags & BORN_HOST_V6:
            body_at += V6_EXTRA
        if flags & STORE_HOST_V6:
            body_at += V6_EXTRA
        if body_at + LENGTHS_SIZE > end:
            return flags, 0, 0, 0, 0, 0, 0
    body_length = max(big32(data, body_at - BODY_LENGTH_BACK), 0)
    topic_at = body_at + body_length + TOPIC_LENGTH_SIZE
    if topic_at + PROPERTIES_LENGTH_SIZE > end:
        return flags, 0, 0, 0, 0, 0, 0
    topic_length = np.int64(data[topic_at - 1])
    properties_at = topic_at + topic_length + PROPERTIES_LENGTH_SIZE
    if topic_length > TOPIC_MAX_LENGTH or properties_at > end:
        return flags, 0, 0, 0, 0, 0, 0
    properties_length = np.int64(data[properties_at - 2]) << 8 | np.int64(data[properties_at - 1])
    if properties_length > PROPERTIES_MAX_LENGTH:  # negative
        properties_length = np.int64(0)
    if properties_at + properties_length != end:
        return flags, 0, 0, 0, 0, 0, 0
    return flags, body_at, body_length, topic_at, topic_length, properties_at, properties_length


@inlined
def stored_at(at: int, flags: int) -> int:
    """Position of storeTimestamp in the record at `at`."""
    return at + POSITION_STORE_TIMESTAMP + (V6_EXTRA if flags & BORN_HOST_V6 else 0)
