"""The native of a get that decodes to columns: `engine.log.kernels.get` for few records, without arrays of its own.

Tests hold it equal to the kernel. `args` is the address of a native's arguments, a word each.
"""

from __future__ import annotations

from typing import Any

from engine.format.queue_unit import POSITION_SIZE, UNIT_SIZE
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
    TOPIC_LENGTH_SIZE,
    V4_HEAD_SIZE,
)
from engine.format.record_columns import FIELDS
from engine.log.kernels.jit import inlined
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given, parts, whole
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    an_error,
    forget_error,
    get_buffer,
    int_at,
    long_at,
    make_number,
    make_tuple,
    number_of,
    put_word,
    release_buffer,
    room,
    set_tuple_item,
    word_at,
)

MOST = 256
"""Records that are decoded without a chance for other threads to run."""
_COLUMNS = len(FIELDS)
_WORD = 8
_TO_WRITE = 1
"""PyBUF_WRITABLE."""
_FARTHEST = 1 << 62
"""No log goes as far: so sums of such offsets and of sizes don't overflow."""
_units = room(BUFFER_WORDS)
_data = room(BUFFER_WORDS)
_table = room(BUFFER_WORDS)


@inlined
def _decode(record: Any, at: Any, size: Any, begin: Any, body_length: Any, topic_length: Any, to: Any, row: Any) -> Any:
    """Fill a column of the table, from `to` on, each field `row` bytes after the one before."""
    put_word(to, at)
    put_word(to + row, size)
    put_word(to + 2 * row, MESSAGE_MAGIC)
    put_word(to + 3 * row, int_at(record + POSITION_BODY_CRC))
    put_word(to + 4 * row, int_at(record + POSITION_QUEUE_ID))
    put_word(to + 5 * row, int_at(record + POSITION_FLAG))
    put_word(to + 6 * row, long_at(record + POSITION_QUEUE_OFFSET))
    put_word(to + 7 * row, long_at(record + POSITION_PHYSICAL_OFFSET))
    put_word(to + 8 * row, int_at(record + POSITION_SYS_FLAG))
    put_word(to + 9 * row, long_at(record + POSITION_BORN_TIMESTAMP))
    put_word(to + 10 * row, at + POSITION_BORN_HOST)
    put_word(to + 11 * row, long_at(record + POSITION_STORE_TIMESTAMP))
    put_word(to + 12 * row, at + POSITION_STORE_HOST)
    put_word(to + 13 * row, int_at(record + POSITION_RECONSUME_TIMES))
    put_word(to + 14 * row, long_at(record + POSITION_PREPARED))
    put_word(to + 15 * row, at + V4_HEAD_SIZE)
    put_word(to + 16 * row, body_length)
    put_word(to + 17 * row, at + V4_HEAD_SIZE + body_length + TOPIC_LENGTH_SIZE)
    put_word(to + 18 * row, topic_length)
    put_word(to + 19 * row, at + begin)
    put_word(to + 20 * row, size - begin)


@native
def columns(own: Any, args: Any, count: Any) -> Any:
    """Fill the table: (records, physical offset of the last unit looked at); None: something else is among them.

    Arguments: the units; the bytes of the log; the table, int64[fields, n]; the physical offset of the first byte; that
    from which on the log is in memory; the most messages; how many bytes, and of them, from memory; the same from disk;
    None.
    """
    units_view, data_view, table_view = _units(), _data(), _table()
    if get_buffer(word_at(args), units_view, 0) != 0:
        return 0
    if get_buffer(word_at(args + _WORD), data_view, 0) != 0:
        release_buffer(units_view)
        return 0
    if get_buffer(word_at(args + 2 * _WORD), table_view, _TO_WRITE) != 0:
        release_buffer(data_view)
        release_buffer(units_view)
        return 0
    units, many = word_at(units_view), word_at(units_view + BUFFER_LENGTH) // UNIT_SIZE
    data, length = word_at(data_view), word_at(data_view + BUFFER_LENGTH)
    table, places = word_at(table_view), word_at(table_view + BUFFER_LENGTH) // (_COLUMNS * _WORD)
    base, memory_from = number_of(word_at(args + 3 * _WORD)), number_of(word_at(args + 4 * _WORD))
    most = number_of(word_at(args + 5 * _WORD))
    bytes_in_memory, count_in_memory = number_of(word_at(args + 6 * _WORD)), number_of(word_at(args + 7 * _WORD))
    bytes_in_disk, count_in_disk = number_of(word_at(args + 8 * _WORD)), number_of(word_at(args + 9 * _WORD))
    plain = an_error() == 0 and -_FARTHEST < base < _FARTHEST
    seen = total = last = 0
    over = False
    while plain and not over and seen < many:
        last = long_at(units + seen * UNIT_SIZE)
        size = int_at(units + seen * UNIT_SIZE + POSITION_SIZE)
        if seen > 0:
            in_memory = last >= memory_from
            fits = total + size <= (bytes_in_memory if in_memory else bytes_in_disk)
            over = most <= seen or not fits or seen >= (count_in_memory if in_memory else count_in_disk)
        if not over:
            at = last - base
            there = -_FARTHEST < last < _FARTHEST and 0 <= at <= length - size and seen < places
            record = data + at
            begin, body_length, topic_length = parts(record, size if there else 0)
            plain = begin >= 0
            if plain:
                to, row = table + seen * _WORD, places * _WORD
                _decode(record, at, size, begin, body_length, topic_length, to, row)
                seen += 1
                total += size
    release_buffer(table_view)
    release_buffer(data_view)
    release_buffer(units_view)
    if an_error() != 0:
        forget_error()
    if not plain:
        return given(word_at(args + 10 * _WORD))
    answer = make_tuple(2)
    if answer == 0:
        return 0
    set_tuple_item(answer, 0, make_number(seen))
    set_tuple_item(answer, 1, make_number(last))
    return whole(answer, 2)
