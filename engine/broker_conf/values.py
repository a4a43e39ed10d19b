"""Values as a broker reads them: no blank is stripped, no comment ends a value, and what can't be read is left out.

Sources: MixAll#properties2Object, Integer#parseInt, Long#parseLong, Boolean#parseBoolean, Enum#valueOf.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

from engine.errors import InvalidArgument
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, read_java_int

Value = str | int | bool | None
ENCODING = "iso-8859-1"
"""What Java takes a properties file for. Source: java.util.Properties#load(InputStream)."""
COMMENT = re.compile(r"\s[#!]")
"""Where somebody began a comment after a value: a broker has none there."""
_SHOWN = 32
"""Characters of a value that a message shows, quotes among them."""


class ValueKind(enum.Enum):
    """Type of a key's setter in Java."""

    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    STRING = "String"
    ROLE = "BrokerRole"
    FLUSH = "FlushDiskType"

    @property
    def words(self) -> tuple[str, ...]:
        """The names that `valueOf` takes, for an enum of Java's."""
        return _WORDS.get(self, ())

    @property
    def wanted(self) -> str:
        """What a value must be, for a message."""
        if self.words:
            return "one of " + ", ".join(self.words)
        return {ValueKind.INT: "a 32-bit integer", ValueKind.LONG: "a 64-bit integer"}.get(self, "text")


_WORDS = {
    ValueKind.ROLE: ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    ValueKind.FLUSH: ("SYNC_FLUSH", "ASYNC_FLUSH"),
}
_LIMITS = {ValueKind.INT: (INT_MIN, INT_MAX), ValueKind.LONG: (LONG_MIN, LONG_MAX)}


def read_value(kind: ValueKind, text: str) -> Value:
    """What a broker takes `text` for.

    Raises:
        ValueError: it can't read it, and keeps the value that it has.
    """
    if kind in _LIMITS:
        return read_java_int(text, *_LIMITS[kind])
    if kind is ValueKind.BOOLEAN:
        return text.lower() == "true"
    if kind.words and text not in kind.words:
        raise ValueError(f"not {kind.wanted}: {shown(text)}")
    return text


def demand(key: str, kind: ValueKind, text: str) -> Value:
    """`read_value`, for who may not leave a value out.

    Raises:
        InvalidArgument: a broker can't read it.
    """
    try:
        return read_value(kind, text)
    except ValueError:
        raise InvalidArgument(f"{key} = {shown(text)} is not {kind.wanted}") from None


def as_text(value: Value) -> str:
    """As it would be written."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def as_meant(text: str) -> str:
    """What the file says, of text that Java has made of its bytes by ISO-8859-1: UTF-8 where they are UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode(ENCODING).decode("utf-8")
    except ValueError:
        return text


def split(text: str, separator: str) -> list[str]:
    """As Java's String#split: empty parts at the end are left out."""
    parts = text.split(separator)
    if len(parts) > 1:
        while parts and not parts[-1]:
            parts.pop()
    return parts


def first_wrong(text: str, separator: str, right: Callable[[str], object]) -> str | None:
    """The first part of a list that is not `right`; None: each part is."""
    return next((part for part in split(text, separator) if not right(part)), None)


def shown(text: str, limit: int = _SHOWN) -> str:
    """In quotes for a message, as the file has it: control characters escaped, only the beginning of what is long."""
    text = as_meant(text)
    quoted = repr(text)
    if len(quoted) <= limit:
        return quoted
    head = text[:limit]
    while head and len(repr(head)) > limit - 3:
        head = head[:-1]
    return repr(head + "...")
