"""Natives of the headers that a daemon under load has to do with: of a request as clients write it, and of the answer
to a send (`engine.log.kernels.native`).

The plain ways are `engine.wire.command.decode_header` and `engine.wire.frames.stored_frame`; tests hold them equal. A
header that is not plain (a blank, a value of another kind, an escape above ASCII, a name that comes twice) is left to
the former, which has the rules. `args` is the address of a native's arguments, a word each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.log.kernels.jit import inlined
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given, same, whole
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    an_error,
    byte_at,
    bytes_place,
    bytes_size,
    decrease,
    dictionary_item,
    forget_error,
    get_buffer,
    make_bytes,
    make_dictionary,
    make_instance,
    make_number,
    make_text,
    move,
    number_of,
    put_byte,
    put_int,
    put_word,
    release_buffer,
    room,
    set_dictionary_item,
    set_tuple_item,
    text_place,
    tuple_item,
    tuple_size,
    word_at,
)
from engine.wire.command import RemotingCommand

_WORD = 8
_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE = 0x22, 0x5C, 0x3A, 0x2C, 0x7B, 0x7D
_MINUS, _ZERO, _NINE, _BLANK, _ASCII_END = 0x2D, 0x30, 0x39, 0x20, 0x80
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_DIGITS = 19
_UNICODE, _UNICODE_SIZE = ord("u"), 5
_ESCAPES = np.zeros(256, dtype=np.uint8)
_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX = np.full(256, -1, dtype=np.int8)
for _digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEX[list(_digits)] = range(16)
_LONGEST = 4096
"""Bytes of a text with escapes."""
_HEAD, _PREFIX = 8, 4
_FIELDS = len(RemotingCommand._fields)
assert RemotingCommand._fields == (
    "code", "opaque", "flag", "remark", "ext", "body", "language", "version", "serialize",
)  # fmt: skip
_NUMBERS, _LANGUAGE, _REMARK, _EXT, _NAMES = 4, 4, 5, 6, 8
_NEEDED = 0b11111
"""The first five fields."""
_buffer = room(BUFFER_WORDS)
_values = room(_NAMES)
_one = room(1)
_length = room(1)
_text = room(_LONGEST // _WORD)
_frame = room(128)
_MOST = 900
"""Bytes of an answer beside its numbers."""


@inlined
def _escaped(at: Any, stop: Any) -> Any:
    """The byte that an escape stands for, after its backslash; −1: none of ASCII."""
    byte = np.int64(_ESCAPES[byte_at(at)])
    if byte:
        return byte
    if byte_at(at) != _UNICODE or stop - at < _UNICODE_SIZE or byte_at(at + 1) != _ZERO or byte_at(at + 2) != _ZERO:
        return -1
    first, second = np.int64(_HEX[byte_at(at + 3)]), np.int64(_HEX[byte_at(at + 4)])
    return first * 16 + second if 0 <= first < _ASCII_END // 16 and second >= 0 else -1


@inlined
def _unescaped(at: Any, stop: Any, out: Any) -> Any:
    """Write a text with escapes to an address; its bytes, or −1: one that is left to the plain way."""
    size = 0
    while at < stop:
        byte = byte_at(at)
        at += 1
        if byte == _BACKSLASH:
            byte = _escaped(at, stop)
            if byte < 0:
                return -1
            at += _UNICODE_SIZE if byte_at(at) == _UNICODE else 1
        put_byte(out + size, byte)
        size += 1
    return size


@inlined
def _string(at: Any, end: Any, scratch: Any, made: Any) -> Any:
    """Make the text of the JSON string at an address; where it ends, or −1. The object goes to the address `made`."""
    stop = at + 1
    plain = True
    sound = at < end and byte_at(at) == _QUOTE
    while sound and stop < end and byte_at(stop) != _QUOTE:
        byte = byte_at(stop)
        sound = byte >= _BLANK
        if byte == _BACKSLASH:
            plain = False
            stop += 1
        stop += 1
    if not sound or stop >= end:
        return -1
    place, size = at + 1, stop - at - 1
    if not plain:
        size = _unescaped(place, stop, scratch) if size <= _LONGEST else -1
        place = scratch
    thing = make_text(place, size, 0) if size >= 0 else 0
    put_word(made, thing)
    return stop + 1 if thing else -1


@inlined
def _number(at: Any, end: Any, out: Any) -> Any:
    """Read the whole number of 32 bits at an address; where it ends, or −1. The number goes to the address `out`."""
    begin = at + 1 if at < end and byte_at(at) == _MINUS else at
    stop = begin
    value = 0
    while stop < end and stop - begin < _DIGITS and _ZERO <= byte_at(stop) <= _NINE:
        value = value * 10 + byte_at(stop) - _ZERO
        stop += 1
    if begin > at:
        value = -value
    zeros = stop > begin and byte_at(begin) == _ZERO and (stop > begin + 1 or begin > at)
    if stop == begin or zeros or not _INT_MIN <= value <= _INT_MAX:
        return -1
    put_word(out, value)
    return stop


@inlined
def _fields(at: Any, end: Any, scratch: Any, one: Any, out: Any) -> Any:
    """Make a dict of the JSON object of texts at an address; where it ends, or −1. It goes to the address `out`."""
    fields = make_dictionary()
    put_word(out, fields)
    if fields == 0 or at >= end or byte_at(at) != _OPEN:
        return -1
    at += 1
    if at < end and byte_at(at) == _CLOSE:
        return at + 1
    while True:
        put_word(one, 0)
        at = _string(at, end, scratch, one)
        name = word_at(one)
        put_word(one, 0)
        at = _string(at + 1, end, scratch, one) if 0 <= at < end and byte_at(at) == _COLON else -1
        value = word_at(one)
        if at >= 0 and set_dictionary_item(fields, name, value) != 0:
            at = -1
        decrease(name)
        decrease(value)
        if at < 0 or at >= end:
            return -1
        if byte_at(at) == _CLOSE:
            return at + 1
        if byte_at(at) != _COMMA:
            return -1
        at += 1


@inlined
def _which(at: Any, size: Any, names: Any, length: Any) -> Any:
    """The number of a name among some; −1: it is another one."""
    for number in range(_NAMES):
        name = text_place(tuple_item(names, number), length)
        if same(at, size, name, word_at(length)):
            return number
    return -1


@inlined
def _parsed(at: Any, end: Any, names: Any, values: Any) -> Any:
    """Read a header's fields: a word or an object each, at the address `values`. Whether all is plain and there."""
    one, scratch, length = _one(), _text(), _length()
    seen = 0
    sound = at < end and byte_at(at) == _OPEN
    while sound:
        at += 1
        stop = at + 1
        while stop < end and byte_at(stop) != _QUOTE:
            stop += 1
        which = -1
        if stop + 2 < end and byte_at(at) == _QUOTE and byte_at(stop + 1) == _COLON:
            which = _which(at + 1, stop - at - 1, names, length)
        if which < 0 or seen >> which & 1:
            return False
        seen |= 1 << which
        at, place = stop + 2, values + which * _WORD
        if which < _NUMBERS:
            at = _number(at, end, place)
        elif which == _EXT:
            at = _fields(at, end, scratch, one, place)
        else:
            at = _string(at, end, scratch, place)
        sound = 0 <= at < end and byte_at(at) == _COMMA
    return at == end - 1 and byte_at(at) == _CLOSE and seen & _NEEDED == _NEEDED


@inlined
def _command(kind: Any, values: Any, language: Any, body: Any, serialize: Any, none: Any) -> Any:
    """The command of a header's fields."""
    made = make_instance(kind, _FIELDS)
    if made == 0:
        return 0
    remark, ext = word_at(values + _REMARK * _WORD), word_at(values + _EXT * _WORD)
    set_tuple_item(made, 0, make_number(word_at(values)))
    set_tuple_item(made, 1, make_number(word_at(values + _WORD)))
    set_tuple_item(made, 2, make_number(word_at(values + 2 * _WORD)))
    set_tuple_item(made, 3, given(remark if remark else none))
    set_tuple_item(made, 4, given(ext if ext else none))
    set_tuple_item(made, 5, given(body))
    set_tuple_item(made, 6, given(language))
    set_tuple_item(made, 7, make_number(word_at(values + 3 * _WORD)))
    set_tuple_item(made, 8, given(serialize))
    return whole(made, _FIELDS)


@native
def request(own: Any, args: Any, count: Any) -> Any:
    """The command of a plain JSON header, as `decode_header` makes it; None: that has to say.

    Arguments: the header's bytes; the frame's body; the class of commands; codes of languages by name; how a JSON
    header is noted; names of fields (`engine.broker.net.headers`); None.
    """
    view, values, none = _buffer(), _values(), word_at(args + 6 * _WORD)
    if get_buffer(word_at(args), view, 0) != 0:
        return 0
    for number in range(_NAMES):
        put_word(values + number * _WORD, 0)
    begin = word_at(view)
    command = 0
    if _parsed(begin, begin + word_at(view + BUFFER_LENGTH), word_at(args + 5 * _WORD), values):
        language = dictionary_item(word_at(args + 3 * _WORD), word_at(values + _LANGUAGE * _WORD))
        if language:
            command = _command(
                word_at(args + 2 * _WORD), values, language, word_at(args + _WORD), word_at(args + 4 * _WORD), none
            )
    for number in range(_NUMBERS, _NAMES):
        decrease(word_at(values + number * _WORD))
    release_buffer(view)
    if command:
        return command
    forget_error()
    return given(none)


@inlined
def _put_decimal(at: Any, value: Any) -> Any:
    """Write a number above −10^18 in decimal digits; where it ends."""
    if value < 0:
        put_byte(at, _MINUS)
        at += 1
        value = -value
    size = 1
    power = 10
    while size < _DIGITS - 1 and value >= power:
        power *= 10
        size += 1
    for place in range(size):
        put_byte(at + size - 1 - place, _ZERO + value % 10)
        value //= 10
    return at + size


@inlined
def _put_piece(at: Any, pieces: Any, number: Any) -> Any:
    """Write one of some bytes; where it ends."""
    piece = tuple_item(pieces, number)
    move(at, bytes_place(piece), bytes_size(piece))
    return at + bytes_size(piece)


@native
def stored(own: Any, args: Any, count: Any) -> Any:
    """The frame that answers a send, as `stored_frame` makes it; None for numbers that are left to that.

    Arguments: what stands before, between and after its texts (five bytes); what the ids of messages begin with
    (bytes); physical offset, queue id, queue offset, opaque; None.
    """
    pieces, head = word_at(args), word_at(args + _WORD)
    physical, queue_id = number_of(word_at(args + 2 * _WORD)), number_of(word_at(args + 3 * _WORD))
    queue_offset, opaque = number_of(word_at(args + 4 * _WORD)), number_of(word_at(args + 5 * _WORD))
    largest = 10**17
    size = bytes_size(head) if tuple_size(pieces) == 5 else _MOST + 1
    if size <= _MOST:
        for number in range(5):
            size += bytes_size(tuple_item(pieces, number))
    if (
        an_error() != 0
        or size > _MOST
        or not physical >= 0
        or not -largest < queue_id < largest
        or not -largest < queue_offset < largest
        or not -largest < opaque < largest
    ):
        forget_error()
        return given(word_at(args + 6 * _WORD))
    frame = _frame()
    at = _put_piece(frame + _HEAD, pieces, 0)
    move(at, bytes_place(head), bytes_size(head))
    at += bytes_size(head)
    for place in range(16):
        digit = physical >> (60 - 4 * place) & 15
        put_byte(at + place, _ZERO + digit if digit < 10 else 0x37 + digit)
    at = _put_piece(at + 16, pieces, 1)
    at = _put_piece(_put_decimal(at, queue_id), pieces, 2)
    at = _put_piece(_put_decimal(at, queue_offset), pieces, 3)
    at = _put_piece(_put_decimal(at, opaque), pieces, 4)
    put_int(frame, at - frame - _PREFIX)
    put_int(frame + _PREFIX, at - frame - _HEAD)
    return make_bytes(frame, at - frame)
