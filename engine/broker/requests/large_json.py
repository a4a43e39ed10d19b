"""JSON of any size, read in pieces: a parser that is given all of it keeps every thread from the interpreter.

A piece is a value of at most PIECE bytes that nests a few levels; larger ones are taken apart here, member by member.
In a thread the loop goes on between two pieces. What is read is what orjson reads; what it would refuse is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 12
"""Bytes of a value that is parsed at once."""
NESTED_MOST = 64
"""Levels that a value of more than PIECE bytes may have."""
STRING_MAX = 1 << 18
"""Bytes of a string: one is read at once."""
_LEVELS = 5
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\n\r]*+")
_KEY = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb"[-+.0-9a-zA-Z]++")


def _nested(levels: int) -> bytes:
    inner = b"" if levels == 1 else b"|" + _nested(levels - 1)
    return rb'[\[{](?:[^"\[\]{}]++|' + _STRING + inner + rb")*+[\]}]"


_SMALL = re.compile(_nested(_LEVELS), re.DOTALL)
"""A list or an object of few levels, whatever is in it: the parser says whether that is JSON."""


class NotJson(ValueError):
    """It is no standard JSON."""


class BeyondBounds(ValueError):
    """It nests too deeply, or a string is too long."""


def loads(body: bytes) -> Any:
    """The value. In any thread.

    Raises:
        NotJson, BeyondBounds.
    """
    try:
        value, at = _value(body, _skip(body, 0), NESTED_MOST)
    except orjson.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    if _skip(body, at) != len(body):
        raise NotJson("more than one value")
    return value


def _value(body: bytes, at: int, levels: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends. Raises NotJson, BeyondBounds, JSONDecodeError."""
    first = body[at : at + 1]
    if first in (b"{", b"["):
        small = _SMALL.match(body, at, at + PIECE)
        if small is not None:
            return orjson.loads(small[0]), small.end()
        if not levels:
            raise BeyondBounds(f"more than {NESTED_MOST} levels")
        return (_object if first == b"{" else _list)(body, at + 1, levels - 1)
    if first == b'"':
        end = _string_end(body, at)
    else:
        scalar = _SCALAR.match(body, at)
        end = at if scalar is None else scalar.end()
    return orjson.loads(body[at:end]), end


def _string_end(body: bytes, at: int) -> int:
    string = _KEY.match(body, at, at + STRING_MAX)
    if string is not None:
        return string.end()
    if len(body) - at > STRING_MAX and body[at : at + 1] == b'"':
        raise BeyondBounds(f"a string of more than {STRING_MAX} bytes")
    raise NotJson(f"no string at position {at}")


def _object(body: bytes, at: int, levels: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}

    def member(at: int) -> int:
        end = _string_end(body, at)
        key, at = orjson.loads(body[at:end]), _skip(body, end)
        if body[at : at + 1] != b":":
            raise NotJson(f"no colon at position {at}")
        members[key], at = _value(body, _skip(body, at + 1), levels)
        return at

    return members, _each(body, at, b"}", member)


def _list(body: bytes, at: int, levels: int) -> tuple[list[Any], int]:
    items: list[Any] = []

    def item(at: int) -> int:
        value, at = _value(body, at, levels)
        items.append(value)
        return at

    return items, _each(body, at, b"]", item)


def _each(body: bytes, at: int, end: bytes, read: Callable[[int], int]) -> int:
    """Read what is between commas up to `end`; where that is over. Raises NotJson, JSONDecodeError."""
    at = _skip(body, at)
    if body[at : at + 1] == end:
        return at + 1
    while True:
        at = _skip(body, read(at))
        sign = body[at : at + 1]
        if sign == end:
            return at + 1
        if sign != b",":
            raise NotJson(f"no comma at position {at}")
        at = _skip(body, at + 1)


def _skip(body: bytes, at: int) -> int:
    space = _SPACE.match(body, at)
    return at if space is None else space.end()
