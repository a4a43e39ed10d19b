"""Columns of records in one pass each: what engine.pipeline.plain_rows makes record by record.

Arrow wants each column of strings in one piece: where the parts lie is found first, then they are copied. Properties
are taken apart as `engine.format.properties.parse` does; a name that comes twice in a record is left to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.record import (
    POSITION_BODY_CRC,
    POSITION_BORN_HOST,
    POSITION_BORN_TIMESTAMP,
    POSITION_FLAG,
    PREPARED_BACK,
    RECONSUME_TIMES_BACK,
    STORE_HOST_BACK,
)
from engine.format.sysflag import HOSTS_V6_MASK
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import big32, big64
from engine.log.kernels.jit import compiled

_NAME_VALUE = np.uint8(1)
_SEPARATOR = np.uint8(2)
_BLANK = np.uint8(32)
_POSITION, _FLAGS, _BODY, _BODY_LENGTH = 0, 5, 7, 8
HEADS = 7
"""Rows that `heads` fills: bodyCRC, flag, bornTimestamp, bornHost, storeHost, reconsumeTimes,
preparedTransactionOffset; a host is its 8 bytes as an int64."""


@compiled
def heads(data: Any, table: Any, out: Any) -> bool:
    """Fill out (int64[HEADS, n]) for the records of `table` (int64[n, 13]); False when a host is IPv6."""
    plain = True
    for i in range(len(table)):
        at = table[i, _POSITION]
        body_at = table[i, _BODY]
        if table[i, _FLAGS] & HOSTS_V6_MASK:
            plain = False
        out[0, i] = big32(data, at + POSITION_BODY_CRC)
        out[1, i] = big32(data, at + POSITION_FLAG)
        out[2, i] = big64(data, at + POSITION_BORN_TIMESTAMP)
        out[3, i] = big64(data, at + POSITION_BORN_HOST)
        out[4, i] = big64(data, body_at - STORE_HOST_BACK)
        out[5, i] = big32(data, body_at - RECONSUME_TIMES_BACK)
        out[6, i] = big64(data, body_at - PREPARED_BACK)
    return plain


@compiled
def bodies_ok(data: Any, table: Any, out: Any) -> None:
    """Fill out (bool[n]): whether a body has its CRC; an empty one has none to check."""
    for i in range(len(table)):
        at = table[i, _BODY]
        length = table[i, _BODY_LENGTH]
        claimed = big32(data, table[i, _POSITION] + POSITION_BODY_CRC)
        out[i] = length == 0 or body_crc(data, at, at + length) == claimed


@compiled
def copy(data: Any, starts: Any, lengths: Any, out: Any) -> bool:
    """The parts at `starts` (int64[n]), of some lengths, one after the other to out (uint8[sum]); False: not ASCII."""
    to = 0
    for i in range(len(starts)):
        length = lengths[i]
        out[to : to + length] = data[starts[i] : starts[i] + length]
        to += length
    bits = np.uint8(0)
    for i in range(to):
        bits |= out[i]
    return bool(bits < 128)


@compiled
def copy_bytes(data: Any, starts: Any, lengths: Any, out: Any) -> None:
    """As `copy`, of what is no text."""
    to = 0
    for i in range(len(starts)):
        length = lengths[i]
        out[to : to + length] = data[starts[i] : starts[i] + length]
        to += length


@compiled
def same(data: Any, a: int, b: int, length: int) -> bool:
    """Whether two parts of `data` are equal."""
    for k in range(length):  # noqa: SIM110 - all() has no kernel
        if data[a + k] != data[b + k]:
            return False
    return True


@compiled
def properties(data: Any, starts: Any, lengths: Any, counts: Any, parts: Any) -> int:
    """The properties of each record, in stored order.

    Args:
        data: bytes of the log.
        starts, lengths: where the properties strings lie: int64[n].
        counts: int64[n], gets how many a record has.
        parts: int64[enough, 4], gets name position and length, value position and length.

    Returns:
        How many in all; −1 when a record has a name twice, −2 when there is no room for all of them.
    """
    total = 0
    for i in range(len(starts)):
        at = starts[i]
        end = at + lengths[i]
        first = total
        while at < end:
            sep = np.int64(-1)
            stop = at
            while stop < end and data[stop] != _SEPARATOR:
                if sep < 0 and data[stop] == _NAME_VALUE:
                    sep = stop
                stop += 1
            if sep > at and sep < stop - 1:
                if total >= len(parts):
                    return -2
                size = sep - at
                for k in range(first, total):
                    if parts[k, 1] == size and same(data, parts[k, 0], at, size):
                        return -1
                parts[total, 0] = at
                parts[total, 1] = size
                parts[total, 2] = sep + 1
                parts[total, 3] = stop - sep - 1
                total += 1
            at = stop + 1
        counts[i] = total - first
    return total


@compiled
def values_of(data: Any, counts: Any, parts: Any, name: Any, starts: Any, lengths: Any) -> None:
    """Where the value of the property `name` (uint8[any]) lies in each record; length −1 where it has none."""
    at = 0
    size = len(name)
    for i in range(len(counts)):
        starts[i] = 0
        lengths[i] = -1
        for k in range(at, at + counts[i]):
            if parts[k, 1] == size:
                equal = True
                for j in range(size):
                    if data[parts[k, 0] + j] != name[j]:
                        equal = False
                        break
                if equal:
                    starts[i] = parts[k, 2]
                    lengths[i] = parts[k, 3]
                    break
        at += counts[i]


@compiled
def words(data: Any, starts: Any, lengths: Any, counts: Any, word_starts: Any, word_lengths: Any) -> int:
    """The words of some values, split at blanks; how many in all. `counts` (int64[n]) gets how many a value has."""
    total = 0
    for i in range(len(starts)):
        first = total
        at = starts[i]
        end = at + max(lengths[i], 0)
        begin = at
        while at <= end:
            if at == end or data[at] == _BLANK:
                if at > begin:
                    word_starts[total] = begin
                    word_lengths[total] = at - begin
                    total += 1
                begin = at + 1
            at += 1
        counts[i] = total - first
    return total


@compiled
def is_topic(data: Any, table: Any, wanted: Any, ends: Any, out: Any) -> None:
    """out (bool[n]): whether a record's topic is one of `wanted` (uint8, one after the other; `ends` int64[k])."""
    for i in range(len(table)):
        at = table[i, 9]
        length = table[i, 10]
        out[i] = False
        begin = np.int64(0)
        for k in range(len(ends)):
            if ends[k] - begin == length:
                equal = True
                for j in range(length):
                    if data[at + j] != wanted[begin + j]:
                        equal = False
                        break
                if equal:
                    out[i] = True
                    break
            begin = ends[k]
