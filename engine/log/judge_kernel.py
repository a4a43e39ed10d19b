"""The judge of engine.format.judge as a fast lane within kernels: whether a record is beyond doubt.

Theory: properties are looked at 64 bytes at once. Of each block, three words of bits tell where `\\x01` stands, where
`\\x02`, and where any control character. A string is plain when there are no others, when both alternate, and when no
`\\x01` follows a `\\x02` at once. That they alternate is one subtraction: `\\x02` less `\\x01` leaves a run of bits
for each value, which must begin at every `\\x01` and end at every `\\x02`. All else is left to a loop over the bytes
(values may hold line ends), and what that does not pass to engine.format.judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format import sysflag
from engine.format.judge import PORT_MOST, QUEUE_ID_MOST, RECONSUME_MOST, SKEW_MS, STORED_MOST, SYS_FLAG_KNOWN
from engine.log.jit import compiled
from engine.log.loads import below64, big32, big64, equal64

_BORN_V6 = sysflag.BORN_HOST_V6
_NONE = np.uint64(0)
_ONE = np.uint64(1)
_TOP = np.uint64(63)
_NAME_VALUE = np.uint8(1)
_SEPARATOR = np.uint8(2)
_SPACE = np.uint8(32)
_BLOCK = 64


@compiled
def _each_byte(data: Any, at: int, end: int) -> bool:
    """Whether a properties string is sound: the rule itself, byte by byte."""
    while end > at and data[end - 1] == _SEPARATOR:
        end -= 1
    in_name, start = True, at
    for k in range(at, end):
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
    return not in_name or at == end


@compiled
def properties_are_plain(data: Any, at: int, end: int) -> bool:
    """Whether data[at:end] (uint8[n]) is a sound properties string; 64 bytes before `end` are there."""
    in_value, first, odd = _NONE, _ONE, _NONE
    block_at = at
    while block_at < end:
        left = end - block_at
        load_at, shift = block_at, _NONE
        if left < _BLOCK:
            load_at, shift = end - _BLOCK, np.uint64(_BLOCK - left)
        names = equal64(data, load_at, _NAME_VALUE) >> shift
        separators = equal64(data, load_at, _SEPARATOR) >> shift
        both = names | separators
        values = separators - names - in_value
        edges = values ^ (values << _ONE | in_value)
        odd |= below64(data, load_at, _SPACE) >> shift ^ both | edges ^ both | names & ~values
        odd |= names & (separators << _ONE | first)
        in_value, first = values >> _TOP, separators >> _TOP
        block_at += _BLOCK
    if odd or (at < end and not in_value and data[end - 1] != _SEPARATOR):
        return _each_byte(data, at, end)
    return True


@compiled
def is_plain(data: Any, at: int, flags: int, body_at: int, topic_at: int, properties_at: int, end: int) -> bool:
    """Whether the sound record at `at` of `data` is no suspect, beyond doubt.

    Args:
        data: uint8[n].
        at: position of the record; its bytes are there up to `end`.
        flags: its sysFlag.
        body_at: position of its body.
        topic_at: position of its topic.
        properties_at: position of its properties.
        end: position behind it.
    """
    stored_at = at + 68 if flags & _BORN_V6 else at + 56
    stored, born = big64(data, stored_at), big64(data, at + 40)
    body_length = big32(data, body_at - 4)
    topic_length = properties_at - 2 - topic_at
    odd = flags & ~SYS_FLAG_KNOWN  # all rules of the head in one word: a branch for each takes longer
    odd |= (
        big32(data, at + 12) | big32(data, stored_at - 4) | big32(data, body_at - 20) | big32(data, body_at - 16)
    ) >> 16
    odd |= (big64(data, at + 20) | big64(data, body_at - 12) | body_length | (stored - 1) | (topic_length - 1)) >> 63
    odd |= ((STORED_MOST - 1 - stored) | born | (stored + SKEW_MS - born)) >> 63
    if odd or (body_length == 0 and big32(data, at + 8) != 0):
        return False
    if topic_length <= _BLOCK and topic_at + _BLOCK <= len(data):
        if below64(data, topic_at, _SPACE) << np.uint64(_BLOCK - topic_length):
            return False
    else:
        for k in range(topic_at, properties_at - 2):
            if data[k] < _SPACE:
                return False
    return properties_are_plain(data, properties_at, end)


@compiled
def doubts(data: Any, table: Any, found: Any) -> int:
    """Rows of `table` (int64[n, 13], as engine.log.walk.Row) that are not plain, into `found` (int64[n]); how many."""
    count = 0
    for i in range(len(table)):
        row = table[i]
        if not is_plain(data, row[0], row[5], row[7], row[9], row[11], row[0] + row[1]):
            found[count] = i
            count += 1
    return count


assert QUEUE_ID_MOST == PORT_MOST == RECONSUME_MOST == 0xFFFF
