"""engine.format.inner_batch.place_of as a kernel: which messages each of some records holds, by its properties.

What is not plain digits is left to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format import properties
from engine.format.inner_batch import INNER_BASE, INNER_NUM, MOST_INNER
from engine.format.judge import Row
from engine.log.kernels.jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT, _LENGTH = (Row._fields.index(name) for name in ("properties_position", "properties_length"))
_SEPARATOR = np.uint8(ord(properties.SEPARATOR))
_NUM, _BASE = (
    np.frombuffer((name + properties.NAME_VALUE).encode(), dtype=np.uint8) for name in (INNER_NUM, INNER_BASE)
)
_FIRST = _NUM[0]
assert _BASE[0] == _FIRST
_ZERO, _NINE = np.int64(ord("0")), np.int64(ord("9"))
_DIGITS = 18
"""Of a number that an int64 holds, whatever they are."""
_ABSENT, _ODD = -1, -2


def inner_places(
    data: NDArray[np.uint8],
    table: NDArray[np.int64],
    at: NDArray[np.intp],
    base: NDArray[np.int64],
    size: NDArray[np.int64],
) -> NDArray[np.intp]:
    """Fill `base` and `size` (int64[n]) for the records at places `at` of a batch's table; those left to be asked.

    A record without both properties keeps what is in `base` and `size`.
    """
    left = np.zeros(len(at), dtype=np.bool_)
    data = data.view()
    data.flags.writeable = False
    _fill(data, table, at.astype(np.int64), base, size, left)
    return np.flatnonzero(left)


@inlined
def _value(data: Any, at: int, end: int, name: Any) -> Any:
    """The number in a property, if it has this name: _ABSENT of another one, _ODD of what is no plain number."""
    start = at + len(name)
    if end <= start:
        return np.int64(_ABSENT)
    for k in range(len(name)):
        if data[at + k] != name[k]:
            return np.int64(_ABSENT)
    if end - start > _DIGITS:
        return np.int64(_ODD)
    value = np.int64(0)
    for k in range(start, end):
        digit = np.int64(data[k])
        if digit < _ZERO or digit > _NINE:
            return np.int64(_ODD)
        value = value * 10 + (digit - _ZERO)
    return value


@compiled
def _fill(data: Any, table: Any, records: Any, base: Any, size: Any, left: Any) -> None:
    for i in range(len(records)):
        at = table[records[i], _AT]
        end = at + table[records[i], _LENGTH]
        first, many = np.int64(_ABSENT), np.int64(_ABSENT)
        while at < end:
            stop = at
            while stop < end and data[stop] != _SEPARATOR:
                stop += 1
            if data[at] == _FIRST:
                value = _value(data, at, stop, _NUM)
                if value != _ABSENT:
                    many = value
                value = _value(data, at, stop, _BASE)
                if value != _ABSENT:
                    first = value
            at = stop + 1
        if first == _ABSENT or many == _ABSENT:  # noqa: PLR1714 - a kernel
            continue
        if first < 0 or many < 1 or many > MOST_INNER:
            left[i] = True
        else:
            base[i] = first
            size[i] = many
