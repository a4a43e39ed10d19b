"""The fields of a request's header, read as Java's headers are: text by name, a missing or broken one is told."""

from __future__ import annotations

from collections.abc import Mapping

from engine.broker.answers import BadField
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN


def text(ext: Mapping[str, str], name: str) -> str:
    """A field that must be there. Raises BadField."""
    found = ext.get(name)
    if found is None:
        raise BadField(f"the custom field <{name}> is null")
    return found


def number(ext: Mapping[str, str], name: str, default: int | None = None) -> int:
    """An int field. Raises BadField."""
    found = ext.get(name)
    if found is not None:
        try:
            if INT_MIN <= (value := int(found)) <= INT_MAX:
                return value
        except ValueError:
            pass
    return _number(ext, name, default, INT_MIN, INT_MAX)


def long(ext: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A long field. Raises BadField."""
    return _number(ext, name, default, LONG_MIN, LONG_MAX)


def flag(ext: Mapping[str, str], name: str) -> bool:
    """A boolean field, false when it is missing. Source: Boolean.parseBoolean."""
    return ext.get(name, "").lower() == "true"


def _number(ext: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int:
    found = ext.get(name)
    if found is None and default is not None:
        return default
    try:
        value = int(text(ext, name))
    except ValueError:
        raise BadField(f"{name} = {found!r} is no number") from None
    if not low <= value <= high:
        raise BadField(f"{name} = {value} is out of range")
    return value
