"""The fields of a request's header, read as Java's headers are: text by name, a missing or broken one is reported.

And the parts of a JSON body, which may be anything: a client's mistake is its answer, never an error of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.broker.requests.answers import Answer, BadField
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from engine.wire.codes import ResponseCode


def text(ext: Mapping[str, str], name: str) -> str:
    """A field that must be there. Raises BadField."""
    field = ext.get(name)
    if field is None:
        raise BadField(f"the custom field <{name}> is null")
    return field


def number(
    ext: Mapping[str, str], name: str, default: int | None = None, low: int = INT_MIN, high: int = INT_MAX
) -> int:
    """An int field, `default` when it is missing, if there is one. Raises BadField: also beyond [low, high]."""
    field = ext.get(name)
    if field is None and default is not None:
        return default
    try:
        value = int(text(ext, name) if field is None else field)
    except ValueError:
        raise BadField(f"{name} = {field!r} is not a number") from None
    if not low <= value <= high:
        raise BadField(f"{name} = {value} is out of range")
    return value


def long(ext: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A long field. Raises BadField."""
    return number(ext, name, default, LONG_MIN, LONG_MAX)


def flag(ext: Mapping[str, str], name: str) -> bool:
    """A boolean field, false when it is missing. Source: Boolean.parseBoolean."""
    return ext.get(name, "").lower() == "true"


def objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects in a JSON body, empty when it is missing. Raises Answer."""
    entries = body.get(name) or []
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise Answer(ResponseCode.SYSTEM_ERROR, f"{name} is not a list of objects")
    return entries


def whole(body: Mapping[str, Any], name: str, default: int) -> int:
    """A number in a JSON body, an int or its text, `default` when it is missing. Raises Answer."""
    field = body.get(name)
    if field is None:
        return default
    try:
        value = int(field)
    except (TypeError, ValueError, OverflowError):
        raise Answer(ResponseCode.SYSTEM_ERROR, f"{name} = {field!r} is not a number") from None
    if not LONG_MIN <= value <= LONG_MAX:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"{name} = {value} is out of range")
    return value
