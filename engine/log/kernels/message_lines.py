"""Messages from lines of JSON as a kernel: those with topic, queue, body and properties alone, as programs write them.

One pass checks the lines' syntax and writes bodies and properties as records store them, without an object a message.
Whatever else there is (another field, a value of another type, a name twice, `\\u` escapes, a blank line) is for the
plain way, `rstore_cli.put_lines`; tests hold the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.log.kernels.intrinsics import below64, copy, equal64, first_bit
from engine.log.kernels.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_PLACES = 256
_MOST_PROPERTIES = 32
_MOST_DIGITS = 9
_LANES = 64
_TAB, _NEWLINE, _SPACE, _QUOTE, _COMMA, _ZERO, _COLON, _BACKSLASH = b'\t\n ",0:\\'
_OPEN, _CLOSE = b"{}"
_NAME_VALUE, _SEPARATOR = 1, 2
_FIELDS = (b'topic"', b'queueId"', b'body"', b'properties"')
_TOPIC, _QUEUE, _BODY, _PROPERTIES = range(len(_FIELDS))
_TEXT = np.frombuffer(b"".join(_FIELDS), dtype=np.uint8)
_LENGTHS = tuple(map(len, _FIELDS))
_STARTS = tuple(sum(_LENGTHS[:i]) for i in range(len(_FIELDS)))
_ESCAPES = np.zeros(256, dtype=np.uint8)
_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_BODY_LENGTH, _OWN_LENGTH, _WHICH = range(3)


class ParsedLines(NamedTuple):
    """Messages, in the order of their lines.

    Attributes:
        bodies, names: uint8[any], bodies one after another, and properties as they are stored; read-only.
        body_length, own_length: int64[n], bytes of each.
        which: int64[n], the place of each in `places`.
        places: topics (as in the line; None: it has none) and queue ids.
    """

    bodies: NDArray[np.uint8]
    body_length: NDArray[np.int64]
    names: NDArray[np.uint8]
    own_length: NDArray[np.int64]
    which: NDArray[np.int64]
    places: list[tuple[bytes | None, int]]


def parsed_lines(text: bytes) -> ParsedLines | None:
    """The messages of lines, each of which ends with a newline; None: the plain way is to read them.

    Args:
        text: lines, UTF-8.
    """
    count = text.count(b"\n")
    rows = np.empty((3, count), dtype=np.int64)
    places = np.empty((_MOST_PLACES, 3), dtype=np.int64)
    bodies, names = (np.empty(len(text), dtype=np.uint8) for _ in range(2))
    keys = np.empty((_MOST_PROPERTIES, 2), dtype=np.int64)
    parsed, of_bodies, of_names, of_places = _parse(
        np.frombuffer(text, dtype=np.uint8), _TEXT, _ESCAPES, rows, places, bodies, names, keys
    )
    if parsed != count:
        return None
    for array in (bodies, names):
        array.flags.writeable = False
    known = [(None if at < 0 else text[at : at + size], queue) for at, size, queue in places[:of_places].tolist()]
    return ParsedLines(bodies[:of_bodies], rows[_BODY_LENGTH], names[:of_names], rows[_OWN_LENGTH], rows[_WHICH], known)


@compiled
def _run_end(text: Any, at: int) -> int:
    """Where a string's text stops to stand for itself: at a quote, a backslash or a control character."""
    while at + _LANES <= len(text):
        mask = (
            equal64(text, at, np.uint8(_QUOTE))
            | equal64(text, at, np.uint8(_BACKSLASH))
            | below64(text, at, np.uint8(_SPACE))
        )
        if mask != 0:
            at += first_bit(mask)
            return at
        at += _LANES
    while text[at] != _QUOTE and text[at] != _BACKSLASH and text[at] >= _SPACE:
        at += 1
    return at


@compiled
def _string(text: Any, at: int, escapes: Any, out: Any, to: int) -> tuple[int, int]:
    """Write the string whose first quote is before `at`; where its line goes on (−1: not here), and where `out`."""
    while True:
        end = _run_end(text, at)
        copy(out, to, text, at, end - at)
        to += end - at
        if text[end] == _QUOTE:
            return end + 1, to
        if text[end] != _BACKSLASH or escapes[text[end + 1]] == 0:
            return -1, to
        out[to] = escapes[text[end + 1]]
        to += 1
        at = end + 2


@compiled
def _spaces(text: Any, at: int) -> int:
    """Where what is no space begins."""
    while text[at] == _SPACE or text[at] == _TAB:
        at += 1
    return at


@compiled
def _alike(text: Any, at: int, other: Any, begin: int, length: int) -> bool:
    for i in range(length):  # noqa: SIM110 - numba
        if text[at + i] != other[begin + i]:
            return False
    return True


@compiled
def _field(text: Any, at: int, fields: Any) -> int:
    """Which field's name begins here, −1 for another."""
    for i in range(len(_STARTS)):
        begin, length = _STARTS[i], _LENGTHS[i]
        k = 0
        while k < length and text[at + k] == fields[begin + k]:  # up to the line's end at most
            k += 1
        if k == length:
            return i
    return -1


@compiled
def _number(text: Any, at: int) -> tuple[int, int]:
    """A number of few digits, and where its line goes on; −1: something else."""
    begin, value = at, 0
    while _ZERO <= text[at] <= _ZERO + 9 and at - begin <= _MOST_DIGITS:
        digit: Any = np.int64(text[at])
        value = value * 10 + digit - _ZERO
        at += 1
    digits = at - begin
    if digits == 0 or digits > _MOST_DIGITS or (digits > 1 and text[begin] == _ZERO):
        return 0, -1
    if text[at] != _COMMA and text[at] != _CLOSE and text[at] != _SPACE and text[at] != _TAB:
        return 0, -1
    return value, at


@compiled
def _pairs(text: Any, at: int, escapes: Any, out: Any, to: int, keys: Any) -> tuple[int, int]:
    """Write the properties whose brace is before `at`; returns as `_string`."""
    count, first = 0, to
    at = _spaces(text, at)
    if text[at] == _CLOSE:
        return at + 1, to
    while True:
        if text[at] != _QUOTE or count == len(keys):
            return -1, to
        if to > first:
            out[to] = _SEPARATOR
            to += 1
        name = to
        at, to = _string(text, at + 1, escapes, out, to)
        if at < 0 or to == name:
            return -1, to
        for i in range(count):
            if keys[i, 1] == to - name and _alike(out, keys[i, 0], out, name, to - name):
                return -1, to
        keys[count, 0], keys[count, 1] = name, to - name
        count += 1
        at = _spaces(text, at)
        if text[at] != _COLON:
            return -1, to
        at = _spaces(text, at + 1)
        if text[at] != _QUOTE:
            return -1, to
        out[to] = _NAME_VALUE
        at, to = _string(text, at + 1, escapes, out, to + 1)
        if at < 0:
            return -1, to
        at = _spaces(text, at)
        if text[at] == _CLOSE:
            return at + 1, to
        if text[at] != _COMMA:
            return -1, to
        at = _spaces(text, at + 1)


@compiled
def _place(text: Any, places: Any, count: int, newest: int, topic: int, length: int, queue: int) -> int:
    """The number of a topic and queue among `count` places; `count`: it is new."""
    for k in range(-1, count):
        i = newest if k < 0 else k
        known = places[i, 0]
        alike = places[i, 1] == length and places[i, 2] == queue and (topic < 0) == (known < 0)
        if alike and _alike(text, known, text, topic, length):
            return i
    return count


@compiled
def _parse(  # noqa: PLR0912 - one loop on purpose
    text: Any, fields: Any, escapes: Any, rows: Any, places: Any, bodies: Any, names: Any, keys: Any
) -> tuple[int, int, int, int]:  # fmt: skip
    """How many lines were taken, up to the first that is not plain; the bytes of bodies and of properties; the places.

    The last newline stops whatever is read: it is in no string, and part of nothing else.
    """
    at, line, body, name, many, newest = 0, 0, 0, 0, 0, 0
    while at < len(text):
        seen, topic, length, queue = 0, -1, 0, 0
        body_before, name_before = body, name
        at = _spaces(text, at)
        if text[at] != _OPEN:
            return line, body, name, many
        at = _spaces(text, at + 1)
        going = text[at] != _CLOSE
        while going:
            if text[at] != _QUOTE:
                return line, body, name, many
            field = _field(text, at + 1, fields)
            if field < 0 or seen & (1 << field):
                return line, body, name, many
            seen |= 1 << field
            at = _spaces(text, at + 1 + _LENGTHS[field])
            if text[at] != _COLON:
                return line, body, name, many
            at = _spaces(text, at + 1)
            if field == _QUEUE:
                queue, at = _number(text, at)
            elif field == _PROPERTIES:
                if text[at] != _OPEN:
                    return line, body, name, many
                at, name = _pairs(text, at + 1, escapes, names, name, keys)
            elif text[at] != _QUOTE:
                return line, body, name, many
            elif field == _BODY:
                at, body = _string(text, at + 1, escapes, bodies, body)
            else:
                topic = at + 1
                at = _run_end(text, topic)
                if text[at] != _QUOTE:
                    return line, body, name, many
                length = at - topic
                at += 1
            if at < 0:
                return line, body, name, many
            at = _spaces(text, at)
            going = text[at] == _COMMA
            if going:
                at = _spaces(text, at + 1)
            elif text[at] != _CLOSE:
                return line, body, name, many
        at = _spaces(text, at + 1)
        if text[at] != _NEWLINE:
            return line, body, name, many
        at += 1
        place = 0 if many == 0 else _place(text, places, many, newest, topic, length, queue)
        if place == many:
            if many == len(places):
                return line, body, name, many
            places[many, 0], places[many, 1], places[many, 2] = topic, length, queue
            many += 1
        newest = place
        rows[_BODY_LENGTH, line] = body - body_before
        rows[_OWN_LENGTH, line] = name - name_before
        rows[_WHICH, line] = place
        line += 1
    return line, body, name, many
