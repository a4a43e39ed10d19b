"""What a terminal can show: its width, whether it takes colour, and text broken to fit it.

Anything else than a terminal (a pipe, a file) gets neither colour nor broken lines.
"""

from __future__ import annotations

import os
import re
from typing import Any

_SGR = {"bold": "1", "dim": "2", "red": "1;31", "green": "32", "yellow": "33"}
_DUMB = frozenset({"", "dumb", "unknown"})
_USUAL = 80
_COMMAND = re.compile(r"rstore -|^(Next: )?rstore [-a-z ]+\(")
_BREAKS = "/-_.%:,@#"
"""Behind one of these a name is broken rather than anywhere."""


def is_terminal(stream: Any) -> bool:
    """Whether a person sits in front of it."""
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
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
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


def wrap(text: str, room: int, *, words: bool = True) -> list[str]:
    """Lines of at most `room` columns, broken at blanks. `words`: one that is longer is broken, too."""
    if cells(text) <= room:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cells(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = _pieces(word, room) if words else [word]
        lines += whole
    return [*lines, line] if line else lines


def holds_command(text: str) -> bool:
    """Whether a command line of ours is in it, to be copied to a shell."""
    return _COMMAND.search(text) is not None


def told(text: str, room: int | None) -> list[str]:
    """Lines of a text, for a terminal of that width (None: none); broken ones go on where their text began.

    A word stays whole, and a text with a command in it is left to the terminal: what is broken can't be copied.
    """
    if "\n" in text:
        return [line for part in text.split("\n") for line in told(part, room)]
    if room is None or holds_command(text) or cells(text) <= room:
        return [text]
    begin = len(text) - len(text.lstrip(" -!"))
    first, *more = wrap(text[begin:], max(room - begin, 1), words=False)
    return [text[:begin] + first, *(" " * begin + line for line in more)]


def _pieces(word: str, room: int) -> list[str]:
    found = []
    while cells(word) > room:
        end = room if word.isascii() else _end(word, room)
        at = max((word.rfind(sign, 0, end) for sign in _BREAKS), default=-1) + 1
        end = at if at > end // 2 else end
        found.append(word[:end])
        word = word[end:]
    return [*found, word]


def _end(word: str, room: int) -> int:
    """How many of its characters fit; one at least."""
    end = 1
    while end < len(word) and cells(word[: end + 1]) <= room:
        end += 1
    return end
