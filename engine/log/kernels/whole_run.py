"""Natives of a get whose records lie in one piece of the log: `engine.log.whole_run` in one call, and views of them.

Tests hold each equal to its plain function. `args` is the address of a native's arguments, a word each.
"""

from __future__ import annotations

from typing import Any

from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import LONG_SIZE
from engine.log.kernels.native import native
from engine.log.kernels.plain_record import given, whole
from engine.log.kernels.python_api import (
    BUFFER_LENGTH,
    BUFFER_WORDS,
    an_error,
    decrease,
    forget_error,
    get_buffer,
    int_at,
    item_of,
    long_at,
    make_number,
    make_slice,
    make_tuple,
    number_of,
    release_buffer,
    room,
    set_tuple_item,
    tuple_item,
    tuple_size,
    word_at,
)

MOST = 256
"""Units that are looked at together."""
_WORD = 8
_FARTHEST = 1 << 62
"""No log goes as far: so sums of such offsets and of sizes don't overflow."""
_buffer = room(BUFFER_WORDS)


@native
def run(own: Any, args: Any, count: Any) -> Any:
    """What `engine.log.whole_run.whole_run` gives, or None.

    Arguments: the units; the physical offset from which on the log is in memory; the most messages; how many of them,
    and how many bytes, from memory; the same from disk; None.
    """
    view = _buffer()
    if get_buffer(word_at(args), view, 0) != 0:
        return 0
    units, there = word_at(view), word_at(view + BUFFER_LENGTH) // UNIT_SIZE
    from_here, most = number_of(word_at(args + _WORD)), max(number_of(word_at(args + 2 * _WORD)), 1)
    at_disk = there > 0 and long_at(units) < from_here
    limits = args + (5 if at_disk else 3) * _WORD
    many = min(most, number_of(word_at(limits)), there)
    bytes_left = number_of(word_at(limits + _WORD))
    seen = many + (1 if there > many else 0)
    fits = 1 <= many < MOST
    if an_error() != 0:
        release_buffer(view)
        forget_error()
        return given(word_at(args + 7 * _WORD))
    first = newest = last = long_at(units) if fits else 0
    largest = 0
    offsets = make_tuple(many) if fits else 0
    sizes = make_tuple(many) if fits else 0
    failed = fits and (offsets == 0 or sizes == 0)
    for number in range(0 if failed or not fits else seen):
        last = long_at(units + number * UNIT_SIZE)
        fits = fits and -_FARTHEST < last < _FARTHEST and (last < from_here) == at_disk
        if number < many:
            size = int_at(units + number * UNIT_SIZE + LONG_SIZE)
            first, newest, largest = min(first, last), max(newest, last), max(largest, size)
            bytes_left -= size
            fits = fits and size > 0
            offset, length = make_number(last), make_number(size)
            set_tuple_item(offsets, number, offset)
            set_tuple_item(sizes, number, length)
            failed = failed or offset == 0 or length == 0
    release_buffer(view)
    fits = fits and bytes_left >= 0
    answer = make_tuple(5) if fits and not failed else 0
    if answer:
        set_tuple_item(answer, 0, offsets)
        set_tuple_item(answer, 1, sizes)
        set_tuple_item(answer, 2, make_number(first))
        set_tuple_item(answer, 3, make_number(newest + largest))
        set_tuple_item(answer, 4, make_number(last))
        return whole(answer, 5)
    decrease(offsets)
    decrease(sizes)
    return 0 if failed or fits else given(word_at(args + 7 * _WORD))  # 0: there was no memory


@native
def views(own: Any, args: Any, count: Any) -> Any:
    """The records of one piece of the log as views: a tuple.

    Arguments: the piece, a memoryview; the physical offset of the first; of each its physical offset and its size.
    """
    piece, base = word_at(args), number_of(word_at(args + _WORD))
    offsets, sizes = word_at(args + 2 * _WORD), word_at(args + 3 * _WORD)
    many = min(tuple_size(sizes), tuple_size(offsets))
    out = make_tuple(many) if many >= 0 else 0
    for number in range(many if out else 0):
        at = number_of(tuple_item(offsets, number)) - base
        first, last = make_number(at), make_number(at + number_of(tuple_item(sizes, number)))
        part = make_slice(first, last, 0) if first and last else 0
        view = item_of(piece, part) if part else 0
        decrease(first)
        decrease(last)
        decrease(part)
        if view == 0:
            decrease(out)
            return 0
        set_tuple_item(out, number, view)
    return out
