"""A native that puts one message's record where it belongs in the log, in one call.

The plain way is `engine.log.prepare.Preparer.one` and `Prepared.record`, which does whatever this leaves; tests hold
the two equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.format.message import Message
from engine.format.record import (
    BLANK_SIZE,
    POSITION_BODY_CRC,
    POSITION_BODY_LENGTH,
    POSITION_BORN_TIMESTAMP,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    POSITION_STORE_TIMESTAMP,
    POSITION_TOTAL_SIZE,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    V4_HEAD_SIZE,
)
from engine.log.kernels.crc import crc_inlined
from engine.log.kernels.jit import inlined
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    an_error,
    bytes_place,
    bytes_size,
    decrease,
    dictionary_next,
    forget_error,
    get_buffer,
    kind_of,
    make_number,
    memory,
    move,
    number_of,
    put_byte,
    put_int,
    put_long,
    put_short,
    release_buffer,
    room,
    text_place,
    tuple_item,
    word_at,
)

_BODY, _PROPERTIES, _BORN = (Message._fields.index(name) for name in ("body", "properties", "born_timestamp"))
_WORD = 8
_NAME_VALUE, _SEPARATOR = 1, 2
_buffer = room(BUFFER_WORDS)
_step = room(4)  # of a dict: its state, a name, a value; then how long one of these is
_LENGTH = 3 * _WORD


@inlined
def _is(thing: Any, kind: Any) -> Any:
    """Whether an object is of this very class."""
    own_kind = kind_of(thing)
    decrease(own_kind)
    return own_kind == kind


@inlined
def _size_of(pairs: Any, step: Any) -> Any:
    """Bytes of a dict's properties as stored; −1: the plain way has to say."""
    size = -1
    put_long(step, 0)
    while dictionary_next(pairs, step, step + _WORD, step + 2 * _WORD) != 0:
        for part in range(1, 3):
            if text_place(word_at(step + part * _WORD), step + _LENGTH) == 0:
                return -1
            size += word_at(step + _LENGTH) + 1
    return max(size, 0)


@inlined
def _put_properties(at: Any, pairs: Any, step: Any) -> None:
    """Write a dict's properties to an address."""
    first = True
    put_long(step, 0)
    while dictionary_next(pairs, step, step + _WORD, step + 2 * _WORD) != 0:
        for part in range(1, 3):
            if not first:
                put_byte(at, _NAME_VALUE if part == 2 else _SEPARATOR)
                at += 1
            first = False
            text = text_place(word_at(step + part * _WORD), step + _LENGTH)
            move(at, text, word_at(step + _LENGTH))
            at += word_at(step + _LENGTH)


@native
def lay(own: Any, args: Any, count: Any) -> Any:
    """Write a message's record into a file's memory; its size, or None: nothing was written, do it the plain way.

    Arguments: the memory; where to write; how far the file has room, and how long it is; a tuple of what makes the
    record: message; its template (fixed part with IPv4 hosts, then topic); queue offset, physical offset and store
    time; the most bytes of a body; the classes `dict` and `int`; None.
    """
    begin, end = number_of(word_at(args + _WORD)), number_of(word_at(args + 2 * _WORD))
    end = min(end, number_of(word_at(args + 3 * _WORD)) - BLANK_SIZE)
    what = word_at(args + 4 * _WORD)
    message, template, none = tuple_item(what, 0), tuple_item(what, 1), tuple_item(what, 8)
    queue_offset, physical = number_of(tuple_item(what, 2)), number_of(tuple_item(what, 3))
    stored, most = number_of(tuple_item(what, 4)), number_of(tuple_item(what, 5))
    dictionary, whole = tuple_item(what, 6), tuple_item(what, 7)
    body, pairs, birth = tuple_item(message, _BODY), tuple_item(message, _PROPERTIES), tuple_item(message, _BORN)
    step, view = _step(), _buffer()
    born = body_size = 0
    head_size = bytes_size(template)
    own_size = -1
    if body and pairs and birth and _is(pairs, dictionary) and _is(birth, whole):
        born, body_size = number_of(birth), bytes_size(body)
        if 0 <= body_size <= most:
            own_size = _size_of(pairs, step)
    size = head_size + body_size + PROPERTIES_LENGTH_SIZE + own_size
    fits = 0 <= own_size <= PROPERTIES_MAX_LENGTH and 0 <= begin <= end - size and head_size >= V4_HEAD_SIZE
    answer = make_number(size)
    if not fits or an_error() != 0 or get_buffer(word_at(args), view, 1) != 0:
        decrease(answer)
        forget_error()
        return given(none)
    if end > word_at(view + BUFFER_LENGTH):
        release_buffer(view)
        decrease(answer)
        return given(none)
    record, head, content = word_at(view) + begin, bytes_place(template), bytes_place(body)
    move(record, head, V4_HEAD_SIZE)
    put_int(record + POSITION_TOTAL_SIZE, size)
    put_int(record + POSITION_BODY_CRC, np.int64(crc_inlined(memory(content, body_size), 0, body_size)) & CRC_MASK)
    put_long(record + POSITION_QUEUE_OFFSET, queue_offset)
    put_long(record + POSITION_PHYSICAL_OFFSET, physical)
    put_long(record + POSITION_BORN_TIMESTAMP, born)
    put_long(record + POSITION_STORE_TIMESTAMP, stored)
    put_int(record + POSITION_BODY_LENGTH, body_size)
    at = record + V4_HEAD_SIZE
    move(at, content, body_size)
    at += body_size
    move(at, head + V4_HEAD_SIZE, head_size - V4_HEAD_SIZE)
    at += head_size - V4_HEAD_SIZE
    put_short(at, own_size)
    _put_properties(at + PROPERTIES_LENGTH_SIZE, pairs, step)
    release_buffer(view)
    return answer
