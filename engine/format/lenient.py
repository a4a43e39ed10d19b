"""JSON as far as it can be read: what fastjson takes beside the standard's form, and text that is cut or spoilt.

fastjson (1.2.69, Apache 4.9.8) reads single quotes, keys without quotes, comments, commas that are missing or too many,
a byte order mark, and zeros after the end; `odd` names what of it was met. Where the text can't be read any further,
`broken` says why, and the value is what stands before that place: complete entries only, as the last number may be cut.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.dataclass import dataclass

TWICE = "a duplicate key (the last one is used)"
DEEPEST = 64
"""Levels of objects and lists; no file of a broker has more than six."""
_TOKEN = re.compile(
    r"""(?P<space>[\s\ufeff]++)|(?P<comment>/\*.*?\*/|//[^\n]*+)|(?P<string>"(?:[^"\\]|\\.)*+")|"""
    r"""(?P<single>'(?:[^'\\]|\\.)*+')|(?P<number>[+-]?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?)|"""
    r"""(?P<word>[A-Za-z_$][\w$@%.-]*+)|(?P<mark>[{}\[\]:,])""",
    re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_DIGITS = 400
"""Of a number that is believed: the largest double has 309."""


@dataclass(frozen=True, slots=True)
class LenientResult:
    """What was read. `at`: the character where it is broken."""

    value: Any
    odd: tuple[str, ...] = ()
    broken: str | None = None
    at: int = 0


class _Broken(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._end = len(text.rstrip("\0 \t\r\n"))
        self._odd: dict[str, None] = {}
        self._stack: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []
        self._root: Any = None
        self._done = False
        self._colon = False
        self._keys_of_last: str | None = None
        self._last: tuple[dict[str, Any] | list[Any], str | None] | None = None
        """Where a number stands that the end of the text may have cut."""

    def read(self) -> LenientResult:
        at, broken = 0, None
        if "\0" in self._text[self._end :]:
            self._odd["zeros after the end"] = None
        try:
            comma = value = False
            while at < self._end:
                match = _TOKEN.match(self._text, at, self._end)
                if match is None:
                    raise _Broken(f"unexpected {self._text[at]!r}")
                kind, text = match.lastgroup, match.group()
                if kind == "comment":
                    self._odd["comments"] = None
                elif kind == "space":
                    if "\ufeff" in text:
                        self._odd["a byte order mark"] = None
                elif text == ",":
                    if not self._stack or self._keys[-1] is not None:
                        raise _Broken("unexpected ','")
                    self._note(comma or not value, "extra commas")
                    comma, value = True, False
                else:
                    closing = text in ("}", "]") and kind == "mark"
                    expects_key = bool(self._keys) and isinstance(self._stack[-1], dict) and self._keys[-1] is None
                    self._note(closing and comma, "extra commas")
                    in_list = bool(self._stack) and isinstance(self._stack[-1], list)
                    self._note(not closing and value and (expects_key or in_list), "missing commas")
                    value = self._take(str(kind), text, match.end())
                    comma = False
                at = match.end()
            if not self._done:
                raise _Broken("unexpected end")
        except _Broken as error:
            broken = str(error)
        if broken is not None and self._last is not None:
            self._forget_last()
        return LenientResult(self._root, tuple(self._odd), broken, at)

    def _note(self, met: bool, what: str) -> None:
        if met:
            self._odd[what] = None

    def _take(self, kind: str, text: str, end: int) -> bool:
        """One token that is neither space nor comma; whether it ended a value."""
        self._last = None
        if self._done:
            raise _Broken("text after the end")
        if kind == "mark":
            return self._mark(text)
        if self._keys and isinstance(self._stack[-1], dict) and self._keys[-1] is None:
            self._key(kind, text)
            return False
        self._put(self._scalar(kind, text))
        if kind == "number" and end == self._end and self._stack:
            self._last = (self._stack[-1], self._keys_of_last)
        return True

    def _mark(self, text: str) -> bool:
        if text == ":" and self._keys and self._keys[-1] is not None and not self._colon:
            self._colon = True
            return False
        if text in "{[":
            if len(self._stack) >= DEEPEST:
                raise _Broken("nested too deeply")
            made: dict[str, Any] | list[Any] = {} if text == "{" else []
            self._put(made, opens=True)
            self._stack.append(made)
            self._keys.append(None)
            return False
        if text in "}]":
            if not self._stack or isinstance(self._stack[-1], dict) != (text == "}") or self._keys[-1] is not None:
                raise _Broken(f"unexpected {text!r}")
            self._stack.pop()
            self._keys.pop()
            self._done = not self._stack
            return True
        raise _Broken(f"unexpected {text!r}")

    def _key(self, kind: str, text: str) -> None:
        quoted = kind in ("string", "single")
        key = str(self._scalar(kind, text)) if quoted else text
        self._note(kind == "word", "keys without quotes")
        self._note(key in self._stack[-1], TWICE)
        self._keys[-1], self._colon = key, False

    def _scalar(self, kind: str, text: str) -> Any:
        if kind == "number":
            self._note(_PLAIN_NUMBER.fullmatch(text) is None, "numbers that are not in JSON's form")
            if len(text) > _DIGITS:
                raise _Broken(f"a number of {len(text)} digits")
            return float(text) if set(text) & set(".eE") else int(text)
        if kind == "word":
            if text not in _WORDS:
                raise _Broken(f"unexpected {text[:60]!r}")
            return _WORDS[text]
        if kind == "single":
            self._odd["single quotes"] = None
            text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            return json.loads(text, strict=False)
        except ValueError:
            raise _Broken("invalid escape in a string") from None

    def _put(self, value: Any, *, opens: bool = False) -> None:
        self._keys_of_last = None
        if not self._stack:
            self._root = value
            self._done = not opens
            return
        top = self._stack[-1]
        if isinstance(top, list):
            top.append(value)
            return
        key = self._keys[-1]
        if key is None or not self._colon:
            raise _Broken("a value without a key")
        top[key] = value
        self._keys_of_last = key
        self._keys[-1] = None

    def _forget_last(self) -> None:
        assert self._last is not None
        container, key = self._last
        if isinstance(container, list):
            container.pop()
        elif key is not None:
            container.pop(key, None)


def read(text: str) -> LenientResult:
    """The value in `text`, as far as it can be read; integer keys as strings. Never raises."""
    return _Reader(text).read()
