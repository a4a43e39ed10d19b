"""A native that puts one message's record where it belongs in the log, in one call.

The plain way is `engine.log.prepare.Preparer.one` and `Prepared.record`, which does whatever this leaves; tests hold
the two equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.format.hosts import V4_SIZE
from engine.format.message import Message
from engine.format.numbers import LONG_MAX
from engine.format.properties import DELAY
from engine.format.record import (
    BLANK_SIZE,
    INT_SIZE,
    POSITION_BODY_CRC,
    POSITION_BODY_LENGTH,
    POSITION_BORN_HOST,
    POSITION_BORN_TIMESTAMP,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    POSITION_STORE_HOST,
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
    attribute,
    byte_at,
    bytes_place,
    bytes_size,
    decrease,
    dictionary_item,
    dictionary_next,
    forget_error,
    get_buffer,
    kind_of,
    make_instance,
    make_number,
    make_tuple,
    memory,
    move,
    number_of,
    put_byte,
    put_int,
    put_long,
    put_short,
    release_buffer,
    room,
    set_attribute,
    set_dictionary_item,
    set_tuple_item,
    text_place,
    tuple_item,
    tuple_size,
    unsigned_at,
    word_at,
)
from engine.log.results import AppendResult

_FIELDS, _RESULT_FIELDS = len(Message._fields), len(AppendResult._fields)
assert (_FIELDS, _RESULT_FIELDS) == (11, 6)
_TOPIC, _BODY, _QUEUE_ID, _PROPERTIES = (
    Message._fields.index(name) for name in ("topic", "body", "queue_id", "properties")
)
_FLAG, _SYS_FLAG, _BORN, _BORN_HOST, _STORE_HOST = (
    Message._fields.index(name) for name in ("flag", "sys_flag", "born_timestamp", "born_host", "store_host")
)
_TIMES, _TRANSACTION = (Message._fields.index(name) for name in ("reconsume_times", "prepared_transaction_offset"))
_NAMES = 5
"""Fields of a message that tell its destination: engine.log.prepare.Preparer."""
_IP_SIZE = V4_SIZE - INT_SIZE
_PORT_END = 1 << 31
_WORD = 8
_NAME_VALUE, _SEPARATOR = 1, 2
_DELAY = DELAY.encode()
_DELAY_BEGIN = int.from_bytes(_DELAY[:INT_SIZE], "big")
assert len(_DELAY) == INT_SIZE + 1
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
def _is_delay(text: Any) -> Any:
    """Whether the bytes of a name of its length are `DELAY`."""
    return unsigned_at(text) == _DELAY_BEGIN and byte_at(text + INT_SIZE) == _DELAY[INT_SIZE]


@inlined
def _size_of(pairs: Any, step: Any) -> Any:
    """Bytes of a dict's properties as stored; −1: the plain way has to say, as of a delayed message."""
    size = -1
    put_long(step, 0)
    while dictionary_next(pairs, step, step + _WORD, step + 2 * _WORD) != 0:
        for part in range(1, 3):
            text = text_place(word_at(step + part * _WORD), step + _LENGTH)
            length = word_at(step + _LENGTH)
            if text == 0 or (part == 1 and length == len(_DELAY) and _is_delay(text)):
                return -1
            size += length + 1
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


@inlined
def _names_destination(message: Any, text: Any, whole_number: Any) -> Any:
    """Whether what tells a message's destination is of these very classes: looked up, others may run Python code."""
    return (
        _is(tuple_item(message, _TOPIC), text)
        and _is(tuple_item(message, _QUEUE_ID), whole_number)
        and _is(tuple_item(message, _FLAG), whole_number)
        and _is(tuple_item(message, _SYS_FLAG), whole_number)
        and _is(tuple_item(message, _TIMES), whole_number)
    )


@inlined
def _destination(message: Any, known: Any, key: Any) -> Any:
    """What is known of where a message goes, lent; 0: nothing, or an exception is set. Takes the empty key."""
    set_tuple_item(key, 0, given(tuple_item(message, _TOPIC)))
    set_tuple_item(key, 1, given(tuple_item(message, _QUEUE_ID)))
    set_tuple_item(key, 2, given(tuple_item(message, _FLAG)))
    set_tuple_item(key, 3, given(tuple_item(message, _SYS_FLAG)))
    set_tuple_item(key, 4, given(tuple_item(message, _TIMES)))
    return dictionary_item(known, key)


@inlined
def _is_v4(host: Any, kind: Any, names: Any, whole_number: Any) -> Any:
    """Whether an object is a host (of that very class) with an IPv4 address. `names`: of its attributes."""
    if not _is(host, kind):
        return False
    ip, port = attribute(host, tuple_item(names, 0)), attribute(host, tuple_item(names, 1))
    plain = ip != 0 and port != 0 and bytes_size(ip) == _IP_SIZE and _is(port, whole_number)
    if plain:
        number = number_of(port)
        plain = -_PORT_END <= number < _PORT_END
    decrease(ip)
    decrease(port)
    return plain and an_error() == 0


@inlined
def _put_host(at: Any, host: Any, names: Any) -> None:
    """Write such a host to an address."""
    ip, port = attribute(host, tuple_item(names, 0)), attribute(host, tuple_item(names, 1))
    move(at, bytes_place(ip), _IP_SIZE)
    put_int(at + _IP_SIZE, number_of(port))
    decrease(ip)
    decrease(port)


@inlined
def _fill(answer: Any, offsets: Any, physical: Any, size: Any, stored: Any, queue_offset: Any, store_host: Any) -> Any:
    """Make an AppendResult of an empty one, and an empty tuple of one item; whether it could be."""
    set_tuple_item(offsets, 0, given(physical))
    set_tuple_item(answer, 0, given(physical))
    set_tuple_item(answer, 1, make_number(size))
    set_tuple_item(answer, 2, given(stored))
    set_tuple_item(answer, 3, given(queue_offset))
    set_tuple_item(answer, 4, given(store_host))
    set_tuple_item(answer, 5, given(offsets))
    there = tuple_item(offsets, 0) != 0
    for field in range(_RESULT_FIELDS):
        there = there and tuple_item(answer, field) != 0
    return there and an_error() == 0


@inlined
def _laid(args: Any, what: Any, key: Any, answer: Any, offsets: Any) -> Any:  # noqa: PLR0912, PLR0915 - one way
    """As `lay`, into an AppendResult and tuples that are made already: 1; 0: do it the plain way; −1: an exception."""
    message, table, same_ones = tuple_item(what, 0), tuple_item(what, 2), tuple_item(what, 5)
    physical, stored = tuple_item(what, 3), tuple_item(what, 4)
    dictionary, whole_number = tuple_item(same_ones, 1), tuple_item(same_ones, 2)
    host, names = tuple_item(same_ones, 4), tuple_item(same_ones, 7)
    begin, end = number_of(word_at(args + 2 * _WORD)), number_of(word_at(args + 3 * _WORD))
    end = min(end, number_of(word_at(args + 4 * _WORD)) - BLANK_SIZE)
    most, physical_offset, store_timestamp = number_of(tuple_item(same_ones, 0)), number_of(physical), number_of(stored)
    if an_error() != 0 or tuple_size(message) != _FIELDS:
        return 0
    transaction, birth = tuple_item(message, _TRANSACTION), tuple_item(message, _BORN)
    if not _names_destination(message, tuple_item(same_ones, 3), whole_number):
        return 0
    if not _is(transaction, whole_number) or number_of(transaction) != 0 or not _is(birth, whole_number):
        return 0
    destination = _destination(message, tuple_item(what, 1), key)
    if destination == 0:
        return 0
    template, queue = tuple_item(destination, 0), tuple_item(destination, 1)
    born_host, store_host = tuple_item(message, _BORN_HOST), tuple_item(message, _STORE_HOST)
    # than those in the template, which the first client of the queue had
    other_born, other_store = born_host != tuple_item(destination, 2), store_host != tuple_item(destination, 3)
    if other_born and not _is_v4(born_host, host, names, whole_number):
        return 0
    if other_store and not _is_v4(store_host, host, names, whole_number):
        return 0
    queue_number = dictionary_item(table, queue)
    if queue_number == 0 or not _is(queue_number, whole_number):
        return 0
    body, pairs = tuple_item(message, _BODY), tuple_item(message, _PROPERTIES)
    queue_offset, born = number_of(queue_number), number_of(birth)
    body_size, head_size = bytes_size(body), bytes_size(template)
    step, view = _step(), _buffer()
    own_size = -1
    if 0 <= body_size <= most and _is(pairs, dictionary):
        own_size = _size_of(pairs, step)
    size = head_size + body_size + PROPERTIES_LENGTH_SIZE + own_size
    fits = 0 <= own_size <= PROPERTIES_MAX_LENGTH and 0 <= begin <= end - size and head_size >= V4_HEAD_SIZE
    if not fits or not 0 <= queue_offset < LONG_MAX or an_error() != 0:
        return 0
    next_offset, next_position = make_number(queue_offset + 1), make_number(begin + size)
    ready = next_offset != 0 and next_position != 0
    ready = ready and _fill(answer, offsets, physical, size, stored, queue_number, store_host)
    counted = False
    if ready and get_buffer(word_at(args + _WORD), view, 1) == 0:
        ready = end <= word_at(view + BUFFER_LENGTH)
        if ready:
            record, head, content = word_at(view) + begin, bytes_place(template), bytes_place(body)
            move(record, head, V4_HEAD_SIZE)
            crc = np.int64(crc_inlined(memory(content, body_size), 0, body_size)) & CRC_MASK
            put_int(record + POSITION_TOTAL_SIZE, size)
            put_int(record + POSITION_BODY_CRC, crc)
            put_long(record + POSITION_QUEUE_OFFSET, queue_offset)
            put_long(record + POSITION_PHYSICAL_OFFSET, physical_offset)
            put_long(record + POSITION_BORN_TIMESTAMP, born)
            put_long(record + POSITION_STORE_TIMESTAMP, store_timestamp)
            put_int(record + POSITION_BODY_LENGTH, body_size)
            if other_born:
                _put_host(record + POSITION_BORN_HOST, born_host, names)
            if other_store:
                _put_host(record + POSITION_STORE_HOST, store_host, names)
            at = record + V4_HEAD_SIZE
            move(at, content, body_size)
            at += body_size
            move(at, head + V4_HEAD_SIZE, head_size - V4_HEAD_SIZE)
            at += head_size - V4_HEAD_SIZE
            put_short(at, own_size)
            _put_properties(at + PROPERTIES_LENGTH_SIZE, pairs, step)
            counted = set_attribute(word_at(args), tuple_item(same_ones, 6), next_position) == 0
            if counted and set_dictionary_item(table, queue, next_offset) != 0:
                set_attribute(word_at(args), tuple_item(same_ones, 6), word_at(args + 2 * _WORD))
                counted = False
            if not counted:  # what lies after the end must not look like a record
                put_long(record, 0)
        release_buffer(view)
    else:
        ready = False
    decrease(next_offset)
    decrease(next_position)
    if counted:
        return 1
    return -1 if ready else 0


@native
def lay(own: Any, args: Any, count: Any) -> Any:
    """Append a message's record to a file in memory, count it there and in its queue; the AppendResult.

    None: nothing was done, do it the plain way. No signal's exception comes in between, and no other thread: what may
    run Python code comes first (tuples are made: in Python 3.11 that may collect garbage), or is left to the plain way.

    Arguments: the file; its memory; where to write; how far the file has room, and how long it is; a tuple of the
    message; what is known of destinations, a dict: (head and topic of a record with IPv4 hosts, queue, born host, store
    host) by topic, queue id, flag, sysFlag and reconsumeTimes; the next queue offsets, a dict by queue; physical offset
    and store time; and a tuple of what is always the same: the most bytes of a body, the classes `dict`, `int`, `str`,
    `Host` and `AppendResult`, the name `wrote_position`, the names `ip` and `port` in a tuple, None.
    """
    what = word_at(args + 5 * _WORD)
    same_ones = tuple_item(what, 5)
    key, answer, offsets = make_tuple(_NAMES), make_instance(tuple_item(same_ones, 5), _RESULT_FIELDS), make_tuple(1)
    done = 0
    if key != 0 and answer != 0 and offsets != 0:
        done = _laid(args, what, key, answer, offsets)
    decrease(key)
    decrease(offsets)
    if done > 0:
        return answer
    decrease(answer)
    if done < 0:
        return 0
    forget_error()
    return given(tuple_item(same_ones, 8))
