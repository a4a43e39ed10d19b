"""The properties file as Java reads it: ISO-8859-1 with \\u escapes, the last of two lines with a key counts.

Source: java.util.Properties#load(InputStream), which BrokerStartup calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.broker_conf.values import ENCODING
from engine.errors import InvalidArgument

_NATURAL = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_LONE_BACKSLASH = re.compile(r"[ \t\f]*\\[\r\n]*")
_NOTHING = re.compile(r"[ \t\f]*(?:[#!].*)?\s*", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\[\r\n]*\Z")


@dataclass(frozen=True, slots=True)
class Line:
    """A key and its value, as Java has them. `number`: of the line that it begins on, from 1."""

    number: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Properties:
    """The lines of a file, in its order."""

    lines: tuple[Line, ...]

    @property
    def last(self) -> Mapping[str, Line]:
        """By key, the line that counts."""
        return {line.key: line for line in self.lines}

    @property
    def values(self) -> dict[str, str]:
        """By key, what is in force of the text."""
        return {line.key: line.value for line in self.lines}


def read_properties(data: bytes) -> Properties:
    """The lines of a broker's file.

    Raises:
        InvalidArgument: an invalid \\u escape; a broker does not start with it.
    """
    import javaproperties

    lines, number = [], 1
    try:
        for element in javaproperties.parse(_without_lone_backslashes(data.decode(ENCODING))):
            if isinstance(element, javaproperties.KeyValue):
                lines.append(Line(number, _writable(element.key), _writable(element.value)))
            source = element.source
            number += source.count("\n") + source.count("\r") - source.count("\r\n")
    except ValueError as error:
        raise InvalidArgument(
            f"line {number} or later: {error}: no broker starts with this file",
            hint="write a backslash twice where it is meant as one",
        ) from None
    return Properties(tuple(lines))


def _writable(text: str) -> str:
    """Half a pair of surrogates (a \\u escape) as Java writes it wherever it leaves its memory: a question mark."""
    return _HALF.sub("?", text)


def _without_lone_backslashes(text: str) -> str:
    """A first line of nothing but a backslash is an empty one: Java takes the next for a comment if it looks like one.

    javaproperties takes that for a key. At the end of a file Java makes an empty key of it, which is no setting.
    """
    lines, goes_on = [], False
    for line in _NATURAL.findall(text):
        if not goes_on and _LONE_BACKSLASH.fullmatch(line):
            lines.append(line.replace("\\", "", 1))
            continue
        lines.append(line)
        goes_on = (goes_on or not _NOTHING.fullmatch(line)) and _GOES_ON.search(line) is not None
    return "".join(lines)
