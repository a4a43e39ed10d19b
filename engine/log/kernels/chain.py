"""A native that follows a chain of plain records in few bytes; of any other, `engine.log.walk.walk` is the plain way.

Tests hold the two equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.format.record import MIN_RECORD_SIZE, POSITION_BODY_CRC, POSITION_PHYSICAL_OFFSET, V4_HEAD_SIZE
from engine.log.kernels.crc import crc_inlined
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given, parts
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    an_error,
    forget_error,
    get_buffer,
    int_at,
    long_at,
    make_number,
    memory,
    number_of,
    release_buffer,
    room,
    word_at,
)

_WORD = 8
_buffer = room(BUFFER_WORDS)


@native
def chain_end(own: Any, args: Any, count: Any) -> Any:
    """Where the sound plain records end that follow each other from a position on, each where it says; None: ask the
    plain way.

    Arguments: bytes of the log, few, as nobody else runs meanwhile; the position; where the file ends; what is to be
    added to a position for its physical offset; None.
    """
    view, none = _buffer(), word_at(args + 4 * _WORD)
    at, end = number_of(word_at(args + _WORD)), number_of(word_at(args + 2 * _WORD))
    base = number_of(word_at(args + 3 * _WORD))
    if an_error() != 0 or at < 0 or get_buffer(word_at(args), view, 0) != 0:
        forget_error()
        return given(none)
    data = word_at(view)
    end = min(end, word_at(view + BUFFER_LENGTH))
    while at <= end - MIN_RECORD_SIZE:
        record = data + at
        size = int_at(record)
        if size > end - at or long_at(record + POSITION_PHYSICAL_OFFSET) != base + at:
            break
        begin, body_length, _ = parts(record, size)
        if begin < 0:
            break
        body = memory(record + V4_HEAD_SIZE, body_length)
        crc = np.int64(crc_inlined(body, 0, body_length)) & CRC_MASK
        if body_length > 0 and crc != int_at(record + POSITION_BODY_CRC):
            break
        at += size
    release_buffer(view)
    return make_number(at)
