"""The properties file as Java reads it: ISO-8859-1 with \\u escapes, the last of two lines with a key counts.

Source: java.util.Properties#load(InputStream), which BrokerStartup calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.broker_conf.values import ENCODING
from engine.dataclass import dataclass
from engine.errors import InvalidArgument

_NATURAL = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_LONE_BACKSLASH = re.compile(r"[ \t\f]*\\[\r\n]*")
_NOTHING = re.compile(r"[ \t\f]*(?:[#!].*)?\s*", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\[\r\n]*\Z")
_PLAIN = re.compile(r"[\t\n -\[\]-~]*")
_PLAIN_LINE = re.compile(r"[ \t]*(?:[#!].*|([A-Za-z0-9_.-]+)[ \t]*=[ \t]*(.*))?")

LONGEST = 1 << 20
"""Characters of a configuration, at most: all keys of a broker with their values take 12 KiB."""
MOST_LINES = 100
"""Lines of one value (each but the last ends with a backslash), at most: reading takes the square of their number."""
TRIMMED = "keep the settings that a broker has; the rest of the file is no configuration"


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
        InvalidArgument: as `demand_bounded` and `lines_of`.
    """
    demand_bounded(text := data.decode(ENCODING))
    return lines_of(text)


def lines_of(text: str) -> Properties:
    """The lines of a broker's file that is bounded.

    Raises:
        InvalidArgument: an invalid \\u escape; a broker does not start with it.
    """
    if (plain := plain_lines(text)) is not None:
        return Properties(plain)
    import javaproperties

    lines, number = [], 1
    try:
        for element in javaproperties.parse(_without_lone_backslashes(text)):
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


def plain_lines(text: str) -> tuple[Line, ...] | None:
    """The lines of a text that is `key=value` line by line, in ASCII without a backslash, as nearly every one is; None
    of any other, which javaproperties reads: that takes 0.04 s to be imported.
    """
    if not _PLAIN.fullmatch(text):
        return None
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            return None
        if match[1] is not None:
            lines.append(Line(number, match[1], match[2]))
    return tuple(lines)


def read_strictly(text: str) -> dict[str, str]:
    """Keys and values of a text that is not a broker's file: settings of our own, of TLS, of an admin's request.

    Raises:
        InvalidArgument: an invalid \\u escape, or as `demand_bounded`.
    """
    demand_bounded(text)
    if (plain := plain_lines(text)) is not None:
        return Properties(plain).values
    import javaproperties

    try:
        return javaproperties.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"not a properties file: {error}") from None


def demand_bounded(text: str) -> None:
    """Raise InvalidArgument for a configuration that nobody wrote by hand, and that would take hours to read."""
    if len(text) > LONGEST:
        raise InvalidArgument(f"the configuration has {len(text):,} characters, more than {LONGEST:,}", hint=TRIMMED)
    of_value = 0
    for number, line in enumerate(_NATURAL.findall(text), 1):
        of_value = of_value + 1 if _GOES_ON.search(line) else 0
        if of_value > MOST_LINES:
            raise InvalidArgument(f"line {number}: a value of more than {MOST_LINES} lines", hint=TRIMMED)


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
