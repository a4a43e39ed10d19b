"""Natives that make objects of stored bytes: records, properties, the items of a batch.

Each is a fast lane before a plain function, which says what the objects are and does whatever the native leaves; tests
hold the two equal. `args` is the address of a native's arguments, a word each.
"""

from __future__ import annotations

from typing import Any

from engine.format.batch import HEAD_SIZE, ITEM_SIZE, BatchItem
from engine.format.batch import POSITION_BODY_LENGTH as ITEM_BODY_LENGTH
from engine.format.batch import POSITION_FLAG as ITEM_FLAG
from engine.format.hosts import V4_SIZE
from engine.format.message import StoredMessage
from engine.format.record import (
    MESSAGE_MAGIC,
    POSITION_BODY_CRC,
    POSITION_BORN_HOST,
    POSITION_BORN_TIMESTAMP,
    POSITION_FLAG,
    POSITION_PHYSICAL_OFFSET,
    POSITION_PREPARED,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_RECONSUME_TIMES,
    POSITION_STORE_HOST,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
    V4_HEAD_SIZE,
)
from engine.log.kernels.jit import inlined
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given, parts, same, whole
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    add_to_list,
    byte_at,
    decrease,
    forget_error,
    get_buffer,
    int_at,
    item_of,
    long_at,
    make_bytes,
    make_dictionary,
    make_instance,
    make_list,
    make_number,
    make_text,
    number_of,
    release_buffer,
    room,
    set_dictionary_item,
    set_tuple_item,
    short_at,
    text_place,
    tuple_item,
    tuple_size,
    word_at,
)

_FIELDS = len(StoredMessage._fields)
_BORN_HOST, _STORE_HOST, _BODY, _TOPIC, _PROPERTIES = (
    StoredMessage._fields.index(name) for name in ("born_host", "store_host", "body", "topic", "properties_raw")
)
_ITEM_FIELDS = len(BatchItem._fields)
_WORD = 8
_NAME_VALUE, _SEPARATOR = 1, 2
_buffer = room(BUFFER_WORDS)
_length = room(1)


@inlined
def _known(memo: Any, place: Any, size: Any) -> Any:
    """What a mapping has for so many bytes at an address."""
    key = make_bytes(place, size)
    value = item_of(memo, key) if key else 0
    decrease(key)
    return value


@inlined
def _message(
    kind: Any, record: Any, begin: Any, size: Any, body_length: Any, born: Any, stored: Any, topic: Any
) -> Any:
    """The plain record at an address, its properties at `begin`, as an object with hosts and topic that are there."""
    made = make_instance(kind, _FIELDS)
    if made == 0:
        return 0
    set_tuple_item(made, 0, make_number(size))
    set_tuple_item(made, 1, make_number(MESSAGE_MAGIC))
    set_tuple_item(made, 2, make_number(int_at(record + POSITION_BODY_CRC)))
    set_tuple_item(made, 3, make_number(int_at(record + POSITION_QUEUE_ID)))
    set_tuple_item(made, 4, make_number(int_at(record + POSITION_FLAG)))
    set_tuple_item(made, 5, make_number(long_at(record + POSITION_QUEUE_OFFSET)))
    set_tuple_item(made, 6, make_number(long_at(record + POSITION_PHYSICAL_OFFSET)))
    set_tuple_item(made, 7, make_number(int_at(record + POSITION_SYS_FLAG)))
    set_tuple_item(made, 8, make_number(long_at(record + POSITION_BORN_TIMESTAMP)))
    set_tuple_item(made, _BORN_HOST, given(born))
    set_tuple_item(made, 10, make_number(long_at(record + POSITION_STORE_TIMESTAMP)))
    set_tuple_item(made, _STORE_HOST, given(stored))
    set_tuple_item(made, 12, make_number(int_at(record + POSITION_RECONSUME_TIMES)))
    set_tuple_item(made, 13, make_number(long_at(record + POSITION_PREPARED)))
    set_tuple_item(made, _BODY, make_bytes(record + V4_HEAD_SIZE, body_length))
    set_tuple_item(made, _TOPIC, given(topic))
    set_tuple_item(made, _PROPERTIES, make_bytes(record + begin, size - begin))
    return whole(made, _FIELDS)


@native
def messages(own: Any, args: Any, count: Any) -> Any:
    """Add records that lie in one piece of the log to a list, up to the first that is not plain; how many it has then.

    Arguments: the bytes; the physical offset of the first; of each record its physical offset and its size (tuples); a
    kind of `StoredMessage`; mappings that give the host of 8 bytes, and the text of a topic; the list, of which the
    n-th is the n-th record; its length.
    """
    view = _buffer()
    if get_buffer(word_at(args), view, 0) != 0:
        return 0
    data, length = word_at(view), word_at(view + BUFFER_LENGTH)
    base = number_of(word_at(args + _WORD))
    offsets, sizes, kind = word_at(args + 2 * _WORD), word_at(args + 3 * _WORD), word_at(args + 4 * _WORD)
    hosts, topics, out = word_at(args + 5 * _WORD), word_at(args + 6 * _WORD), word_at(args + 7 * _WORD)
    done = number_of(word_at(args + 8 * _WORD))
    many = min(tuple_size(sizes), tuple_size(offsets))
    born = stored = topic = born_raw = stored_raw = name_at = name_size = 0
    failed = False
    while done < many and not failed:
        at, size = number_of(tuple_item(offsets, done)) - base, number_of(tuple_item(sizes, done))
        record = data + at
        begin, body_length, topic_length = parts(record, size if at >= 0 and size <= length - at else 0)
        if begin < 0:
            break
        # neighbours have mostly the same hosts and topic
        if born == 0 or word_at(record + POSITION_BORN_HOST) != born_raw:
            decrease(born)
            born_raw, born = word_at(record + POSITION_BORN_HOST), _known(hosts, record + POSITION_BORN_HOST, V4_SIZE)
        if born and (stored == 0 or word_at(record + POSITION_STORE_HOST) != stored_raw):
            decrease(stored)
            stored_raw = word_at(record + POSITION_STORE_HOST)
            stored = _known(hosts, record + POSITION_STORE_HOST, V4_SIZE)
        name = record + V4_HEAD_SIZE + body_length + TOPIC_LENGTH_SIZE
        if born and stored and (topic == 0 or not same(name, topic_length, name_at, name_size)):
            decrease(topic)
            name_at, name_size = name, topic_length
            topic = _known(topics, name_at, name_size)
        message = 0
        if born and stored and topic:
            message = _message(kind, record, begin, size, body_length, born, stored, topic)
        failed = message == 0 or add_to_list(out, message) != 0
        decrease(message)
        done += 1
    decrease(born)
    decrease(stored)
    decrease(topic)
    release_buffer(view)
    return 0 if failed else make_number(done)


@inlined
def _pairs(at: Any, size: Any) -> Any:
    """The properties in so many bytes at an address: a dict, or 0 with an exception set."""
    end = at + size
    pairs = make_dictionary()
    bad = pairs == 0
    while at < end and not bad:
        split = 0
        stop = at
        while stop < end and byte_at(stop) != _SEPARATOR:
            if split == 0 and byte_at(stop) == _NAME_VALUE:
                split = stop
            stop += 1
        if at < split and split + 1 < stop:  # a name, and a value
            name = make_text(at, split - at, 0)
            value = make_text(split + 1, stop - split - 1, 0) if name else 0
            bad = value == 0 or set_dictionary_item(pairs, name, value) != 0
            decrease(name)
            decrease(value)
        at = stop + 1
    if bad:
        decrease(pairs)
        return 0
    return pairs


@native
def properties(own: Any, args: Any, count: Any) -> Any:
    """The properties in stored bytes, as `engine.format.properties.parse` has them; None where they are not UTF-8.

    Arguments: the bytes; None.
    """
    view = _buffer()
    pairs = 0
    if get_buffer(word_at(args), view, 0) == 0:
        pairs = _pairs(word_at(view), word_at(view + BUFFER_LENGTH))
        release_buffer(view)
    if pairs:
        return pairs
    forget_error()
    return given(word_at(args + _WORD))


@native
def text_properties(own: Any, args: Any, count: Any) -> Any:
    """The same of a text; None where it has no UTF-8. Arguments: the text; None."""
    length = _length()
    place = text_place(word_at(args), length)
    pairs = _pairs(place, word_at(length)) if place else 0
    if pairs:
        return pairs
    forget_error()
    return given(word_at(args + _WORD))


@inlined
def _item(kind: Any, at: Any, body_size: Any, own_size: Any) -> Any:
    """The item of a batch at an address."""
    made = make_instance(kind, _ITEM_FIELDS)
    if made == 0:
        return 0
    set_tuple_item(made, 0, make_bytes(at + HEAD_SIZE, body_size))
    set_tuple_item(made, 1, make_number(int_at(at + ITEM_FLAG)))
    set_tuple_item(made, 2, make_bytes(at + ITEM_SIZE + body_size, own_size))
    return whole(made, _ITEM_FIELDS)


@native
def items(own: Any, args: Any, count: Any) -> Any:
    """The items of a batch as a list, as `engine.format.batch.decode` makes them; None where a length does not fit.

    Arguments: the bytes; the class of items; None.
    """
    view = _buffer()
    if get_buffer(word_at(args), view, 0) != 0:
        forget_error()
        return given(word_at(args + 2 * _WORD))
    at = word_at(view)
    end = at + word_at(view + BUFFER_LENGTH)
    out = make_list(0)
    failed = out == 0
    fits = True
    while at < end and fits and not failed:
        body_size = int_at(at + ITEM_BODY_LENGTH) if end - at >= ITEM_SIZE else -1
        own_size = -1
        if 0 <= body_size <= end - at - ITEM_SIZE:
            own_size = short_at(at + ITEM_SIZE + body_size - PROPERTIES_LENGTH_SIZE)
        fits = 0 <= own_size <= end - at - ITEM_SIZE - body_size
        if fits:
            item = _item(word_at(args + _WORD), at, body_size, own_size)
            failed = item == 0 or add_to_list(out, item) != 0
            decrease(item)
            at += ITEM_SIZE + body_size + own_size
    release_buffer(view)
    if fits and not failed:
        return out
    decrease(out)
    return 0 if failed else given(word_at(args + 2 * _WORD))
