"""Natives of a query by key: its hash, the walk over the index, and whether a record is what was asked for.

The plain ways are `engine.format.hashing.java_hash`, `engine.log.index_reader.IndexReader.query` and
`engine.log.reading.has_key`, which do whatever these leave (they give None then); tests hold the two equal. `args` is
the address of a native's arguments, a word each.
"""

from __future__ import annotations

from typing import Any

from engine.format import properties
from engine.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    NO_ENTRY,
    POSITION_BEGIN_TIMESTAMP,
    POSITION_INDEX_COUNT,
    POSITION_OFFSET,
    POSITION_PREVIOUS,
    POSITION_TIME_DIFF,
    SLOT_SIZE,
)
from engine.format.record import (
    MIN_RECORD_SIZE,
    POSITION_TOTAL_SIZE,
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
    an_error,
    byte_at,
    decrease,
    forget_error,
    get_buffer,
    int_at,
    long_at,
    make_list,
    make_number,
    make_tuple,
    number_of,
    release_buffer,
    room,
    set_tuple_item,
    text_place,
    word_at,
)

_WORD = 8
MOST = 4096
"""Entries that are passed without a chance for other threads to run."""
_SECOND = 1000
_FARTHEST = 1 << 62
"""ms: no time is as far, so that sums don't overflow."""
_ASCII_END, _BLANK, _NAME_VALUE, _SEPARATOR = 0x80, 0x20, 1, 2
_UNIQ_KEY_SIZE, _KEYS_SIZE = len(properties.UNIQ_KEY), len(properties.KEYS)
_buffer = room(BUFFER_WORDS)
_length = room(1)


@native
def java_hash(own: Any, args: Any, count: Any) -> Any:
    """The 32 bits of a text's hash, of a text of ASCII. Arguments: the text; the bits of one before it; None."""
    length = _length()
    at = text_place(word_at(args), length)
    bits = number_of(word_at(args + _WORD))
    plain = at != 0
    for place in range(at, at + word_at(length) if plain else at):
        unit = byte_at(place)
        plain = plain and unit < _ASCII_END
        bits = (bits * 31 + unit) & 0xFFFFFFFF
    if plain:
        return make_number(bits)
    forget_error()
    return given(word_at(args + 2 * _WORD))


@native
def offsets(own: Any, args: Any, count: Any) -> Any:
    """Some steps of a walk over an index file: number of the entry that is next, what it is below, how many entries
    were passed, and a list of physical offsets, newest first. None: the plain way walks.

    It ends before an entry whose number or time can't be true, and at the latest after MOST entries: nobody else runs
    meanwhile. The next number is NO_ENTRY where there are no more that may match.

    Arguments: the bytes of the file; the hash; slots and entries of the file; times between which messages were stored
    (ms); how many offsets; number of the first entry, and what that is below (−1: the newest of the slot); None.
    """
    view, none = _buffer(), word_at(args + 9 * _WORD)
    key_hash, slots = number_of(word_at(args + _WORD)), number_of(word_at(args + 2 * _WORD))
    entries, begin = number_of(word_at(args + 3 * _WORD)), number_of(word_at(args + 4 * _WORD))
    end, left = number_of(word_at(args + 5 * _WORD)), number_of(word_at(args + 6 * _WORD))
    number, above = number_of(word_at(args + 7 * _WORD)), number_of(word_at(args + 8 * _WORD))
    if an_error() != 0 or get_buffer(word_at(args), view, 0) != 0:
        forget_error()
        return given(none)
    file, length = word_at(view), word_at(view + BUFFER_LENGTH)
    first = HEADER_SIZE + slots * SLOT_SIZE
    if slots <= 0 or key_hash < 0 or entries < 0 or length < first + entries * ENTRY_SIZE:
        release_buffer(view)
        return given(none)
    if above < 0:  # the header is read after the slot: a writer counts an entry before it names it
        number = int_at(file + HEADER_SIZE + key_hash % slots * SLOT_SIZE)
        above = int_at(file + POSITION_INDEX_COUNT)
    above = min(above, entries)
    start = long_at(file + POSITION_BEGIN_TIMESTAMP)
    passed = 0
    out = make_list(0)
    failed = out == 0 or not -_FARTHEST < start < _FARTHEST
    while not failed and left > 0 and passed < MOST and NO_ENTRY < number < above:
        entry = file + first + number * ENTRY_SIZE
        difference = int_at(entry + POSITION_TIME_DIFF)
        if difference < 0:
            break
        time, newest = start, start
        if number != 1:
            time = start + difference * _SECOND
            newest = time + _SECOND - 1
        if int_at(entry) == key_hash and newest >= begin and time <= end:
            offset = make_number(long_at(entry + POSITION_OFFSET))
            failed = offset == 0 or add_to_list(out, offset) != 0
            decrease(offset)
            left -= 1
        passed += 1
        above, number = number, int_at(entry + POSITION_PREVIOUS)
        if newest < begin:
            number = NO_ENTRY
    release_buffer(view)
    answer = make_tuple(4) if not failed else 0
    if answer == 0:
        decrease(out)
        forget_error()
        return given(none)
    set_tuple_item(answer, 0, make_number(number))
    set_tuple_item(answer, 1, make_number(above))
    set_tuple_item(answer, 2, make_number(passed))
    set_tuple_item(answer, 3, out)
    return whole(answer, 4)


@inlined
def _is_ascii(at: Any, size: Any) -> Any:
    """Whether bytes at an address are."""
    plain = True
    for k in range(size):
        plain = plain and byte_at(at + k) < _ASCII_END
    return plain


@inlined
def _has_word(at: Any, size: Any, word: Any, word_size: Any) -> Any:
    """Whether a word (one byte at least) is one of the words between blanks."""
    begin = at
    while begin < at + size:
        stop = begin
        while stop < at + size and byte_at(stop) != _BLANK:
            stop += 1
        if same(begin, stop - begin, word, word_size):
            return True
        begin = stop + 1
    return False


@inlined
def _names_key(at: Any, end: Any, key: Any, key_size: Any, uniq: Any, keys: Any) -> Any:
    """Whether properties name a key, as its own or as one of KEYS: 0 or 1; −1: they are not all ASCII."""
    is_it = False
    among = False
    while at < end:
        split = 0
        stop = at
        while stop < end and byte_at(stop) != _SEPARATOR:
            if byte_at(stop) >= _ASCII_END:
                return -1
            if split == 0 and byte_at(stop) == _NAME_VALUE:
                split = stop
            stop += 1
        if at < split and split + 1 < stop:
            if same(at, split - at, uniq, _UNIQ_KEY_SIZE):
                is_it = same(split + 1, stop - split - 1, key, key_size)
            elif same(at, split - at, keys, _KEYS_SIZE):
                among = key_size > 0 and _has_word(split + 1, stop - split - 1, key, key_size)
        at = stop + 1
    return 1 if is_it or among else 0


@native
def asked_for(own: Any, args: Any, count: Any) -> Any:
    """The size of a plain record of ASCII, if it is of a topic and names a key, else 0; None where it is none.

    Arguments: bytes that begin with the record; topic; key; the names UNIQ_KEY and KEYS; None.
    """
    view, length = _buffer(), _length()
    topic = text_place(word_at(args + _WORD), length)
    topic_size = word_at(length)
    key = text_place(word_at(args + 2 * _WORD), length)
    key_size = word_at(length)
    uniq, keys = text_place(word_at(args + 3 * _WORD), length), text_place(word_at(args + 4 * _WORD), length)
    answer = -1
    if topic and key and uniq and keys and get_buffer(word_at(args), view, 0) == 0:
        record, there = word_at(view), word_at(view + BUFFER_LENGTH)
        size = int_at(record + POSITION_TOTAL_SIZE) if there >= MIN_RECORD_SIZE else 0
        begin, body_length, name_size = parts(record, size if size <= there else 0)
        if begin >= 0:
            answer = _names_key(record + begin, record + size, key, key_size, uniq, keys)
            name = record + V4_HEAD_SIZE + body_length + TOPIC_LENGTH_SIZE
            if not _is_ascii(name, name_size):
                answer = -1
            elif answer == 1:
                answer = size if same(name, name_size, topic, topic_size) else 0
        release_buffer(view)
    if answer >= 0:
        return make_number(answer)
    forget_error()
    return given(word_at(args + 5 * _WORD))
