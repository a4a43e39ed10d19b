"""What a peer's JSON says, field by field, each judged when it is asked for. No I/O.

A peer may be hostile, of another version or no RocketMQ at all: what is missing, of another type or out of range is a
FormatError that names peer, request and field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.errors import FormatError
from engine.format import fastjson
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.wire import object_keys

_SHOWN = 40
"""Characters of a value that an error quotes."""


class PeerObject:
    """A JSON object. `of`: whose answer to what, as errors name it."""

    __slots__ = ("fields", "of")

    def __init__(self, value: object, of: str) -> None:
        """Raises FormatError: `value` is no object."""
        if not isinstance(value, Mapping):
            raise FormatError(f"malformed {of}: no JSON object")
        self.fields: Mapping[str, Any] = value
        self.of = of

    @classmethod
    def parse(cls, body: bytes | memoryview, of: str) -> PeerObject:
        """The object that a body is, integer keys as strings. Raises FormatError."""
        return cls(_loaded(_text(body), of), of)

    @classmethod
    def parse_table(
        cls, body: bytes | memoryview, name: str, of: str
    ) -> tuple[list[tuple[PeerObject, PeerObject]], PeerObject]:
        """Rows of the table under a name, whose keys are objects, too; and the object without them.

        Raises:
            FormatError: it is not so.
        """
        try:
            rows, rest = object_keys.split(_text(body), name)
        except FormatError as error:
            raise FormatError(f"malformed {of}: {error.message}") from None
        for row in rows:
            _demand_unicode(row, of)
        return [(cls(key, of), cls(value, of)) for key, value in rows], cls(_loaded(rest, of), of)

    def text(self, name: str, default: str | None = None) -> str:
        """A text, or a number as text. `default`: of a field that is missing or null."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._no("text", name, value)
        return value if isinstance(value, str) else str(value)

    def number(self, name: str, *, least: int = LONG_MIN, most: int = LONG_MAX, default: int | None = None) -> int:
        """An integer, or the text of one."""
        value = self._value(name, default)
        try:
            if isinstance(value, str):
                return parse_int(value, least, most)
            if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
                return value
        except ValueError:
            pass
        raise self._no("number that it can be", name, value)

    def real(self, name: str, default: float | None = None) -> float:
        """A number, finite."""
        value = self._value(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONG_MAX:
            return float(value)
        raise self._no("number", name, value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._no("true or false", name, value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where the field is missing or null."""
        values = self._list(name)
        if not all(isinstance(one, str) for one in values):
            raise self._no("list of texts", name, values)
        return tuple(values)

    def objects(self, name: str) -> list[PeerObject]:
        """A list of objects; empty where the field is missing or null."""
        return [PeerObject(one, f"{self.of} ({name})") for one in self._list(name)]

    def part(self, name: str) -> PeerObject:
        """An object; an empty one where the field is missing or null."""
        return PeerObject(self._value(name, {}), f"{self.of} ({name})")

    def table(self, name: str) -> dict[str, PeerObject]:
        """Objects by name, sorted; empty where the field is missing or null."""
        table = self.part(name)
        return {key: PeerObject(value, f"{table.of}") for key, value in sorted(table.fields.items())}

    def words(self, name: str) -> dict[str, str]:
        """Texts, numbers and truth values by name, as text, sorted; empty where the field is missing or null."""
        table = self.part(name)
        return {
            key: str(value).lower() if isinstance(value, bool) else table.text(key, "")
            for key, value in sorted(table.fields.items())
        }

    def has(self, name: str) -> bool:
        """Whether there is anything under a name."""
        return bool(self.fields.get(name))

    def _list(self, name: str) -> list[Any]:
        value = self._value(name, [])
        if not isinstance(value, list):
            raise self._no("list", name, value)
        return value

    def _value(self, name: str, default: object) -> Any:
        value = self.fields.get(name)
        if value is None:
            if default is None:
                raise FormatError(f"malformed {self.of}: no {name}")
            return default
        return value

    def _no(self, what: str, name: str, value: object) -> FormatError:
        text = repr(value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        return FormatError(f"malformed {self.of}: {name} is no {what}: {shown}")


def _text(body: bytes | memoryview) -> str:
    return bytes(body).decode("utf-8", "replace")


def _loaded(text: str, of: str) -> Any:
    try:
        value = fastjson.loads(text)
    except FormatError as error:
        raise FormatError(f"malformed {of}: {error.message}") from None
    if "\\u" in text:
        _demand_unicode(value, of)
    return value


def _demand_unicode(value: object, of: str) -> None:
    """Half a surrogate pair is no character: no terminal, file or peer takes it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise FormatError(f"malformed {of}: not all of it is Unicode text") from None
