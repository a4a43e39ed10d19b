"""What a terminal can show: its width, whether it takes colour, and text broken to fit it.

Anything else than a terminal (a pipe, a file) gets neither colour nor broken lines.
"""

from __future__ import annotations

import os
import re
from typing import Any

from rstore_cli.printed_commands import places

_SGR = {"bold": "1", "dim": "2", "red": "1;31", "green": "32", "yellow": "33"}
_DUMB = frozenset({"", "dumb", "unknown"})
_USUAL = 80
_NAMED = re.compile(r"[0-9]{8}T[0-9]{6}Z-|(?<![0-9])(?:[0-9]{20}|[0-9]{17})(?![0-9])")
"""What names a repair, or a file of the log (20 digits), a queue or the index (17)."""
_LEAD = re.compile(r" *(?:[0-9]+  )?[-! ]*")
"""What the lines of a text after its first are indented by: blanks, the number of a line, the mark of a list."""
_BLANK = re.compile(r" +(?!(?:(?<=[0-9] )(?:(?:d|h|min|s|ms|bytes?|[KMGT]iB)\b|%)|(?<=-[0-9]{2} )[0-9]{2}:[0-9]{2}))")
"""Where a line may be broken: neither between a number and its unit nor between a date and its time."""


def is_terminal(stream: Any) -> bool:
    """Whether a person looks at it."""
    return bool(getattr(stream, "isatty", lambda: False)())


def is_dumb() -> bool:
    """Whether TERM names a terminal that takes no escape sequences."""
    return os.environ.get("TERM", "") in _DUMB


def takes_colour(stream: Any) -> bool:
    """A terminal that takes escape sequences, and NO_COLOR (https://no-color.org) is not set."""
    return is_terminal(stream) and not is_dumb() and not os.environ.get("NO_COLOR")


def width(stream: Any) -> int | None:
    """Columns of a terminal; COLUMNS overrides what the system says. None where there is no terminal."""
    if not is_terminal(stream):
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL
    except (OSError, ValueError, AttributeError):
        return _USUAL


def paint(text: str, style: str) -> str:
    """Text in a style: bold, dim, red, green, yellow. Ask `takes_colour` first."""
    return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if text else text


def cells(text: str) -> int:
    """Columns that a text takes on a terminal: two for a Chinese character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, room: int, *, right: bool = False) -> str:
    """Text with blanks, `room` columns wide; to the right of them with `right`."""
    blanks = " " * (room - cells(text))
    return blanks + text if right else text + blanks


def shorten(text: str, room: int) -> str:
    """A name in at most `room` columns: "…" stands for the middle of a longer one, as both ends tell names apart."""
    if cells(text) <= room:
        return text
    tail = max(room - 1, 0) // 2
    return _first(text, max(room - 1, 0) - tail) + "…" + _first(text[::-1], tail)[::-1]


def _first(text: str, room: int) -> str:
    """As many of its characters as fit."""
    if text.isascii():
        return text[:room]
    end = 0
    while end < len(text) and cells(text[: end + 1]) <= room:
        end += 1
    return text[:end]


def wrap(text: str, room: int, *, whole: bool = True) -> list[str]:
    """Lines of at most `room` columns, broken at blanks: never between a number and its unit, or a date and its time.

    A longer word is shortened in its middle. `whole`: a command, a path and a file's name are not, as what is shortened
    can't be copied: it stands on a line of its own, which the terminal breaks.
    """
    if cells(text) <= room:
        return [text]
    lines, line = [], ""
    for word in words(text):
        part = word if whole and is_copied(word) else shorten(word, room)
        joined = f"{line} {part}" if line else part
        if line and cells(joined) > room:
            lines.append(line)
            joined = part
        line = joined
    return [*lines, line] if line else lines


def words(text: str) -> list[str]:
    """What a line is never broken within: words, numbers with their units, commands to be copied."""
    parts: list[str] = []
    at = 0
    for begin, end in places(text):
        first = max(at, text.rfind(" ", 0, begin) + 1)  # with the sign before it
        parts += _BLANK.split(text[at:first].strip(" "))
        at = end
        while at < len(text) and text[at] not in " (":  # and after it
            at += 1
        parts.append(text[first:at])
    parts += _BLANK.split(text[at:].strip(" "))
    return [word for word in parts if word]


def is_copied(word: str) -> bool:
    """Whether it is a command of ours, an absolute path, a repair's id or a store's file, to be copied as a whole."""
    return word.lstrip("('\"").startswith(("/", "rstore ", "sudo ")) or _NAMED.search(word) is not None


def fold_text(text: str, room: int | None) -> list[str]:
    """Lines of a text, for a terminal of that width (None: none); broken ones continue where their text began."""
    if "\n" in text:
        return [line for part in text.split("\n") for line in fold_text(part, room)]
    if room is None or cells(text) <= room:
        return [text]
    lead = _LEAD.match(text)
    begin = lead.end() if lead is not None else 0
    first, *more = wrap(text[begin:], max(room - begin, 1))
    return [text[:begin] + first, *(" " * begin + line for line in more)]
