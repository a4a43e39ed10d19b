"""README's picture: what a broker would do to a damaged store, above what rstore does.

`python -m tests.docs.picture` draws it. The lines are those that RUNBOOK.md's first incident shows, which its test
holds against the commands themselves.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.docs.runbook import Command, incidents

PICTURE = Path(__file__).resolve().parents[2] / "fixtures" / "first-incident.svg"
WIDTH = 92
_BAD, _GOOD = "bold red", "bold green"
_STYLES = ((re.compile(r"LOST.*|after 94058|cuts .*"), _BAD), (re.compile(r"bridged .*|Nothing is wrong.*"), _GOOD))


def draw() -> str:
    """The picture as SVG. It loads nothing from elsewhere."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    commands = incidents()[0].commands
    for title, command in (
        ("What a broker would do, once the file that it names is deleted:", _named(commands, "plan-start")),
        ("What rstore does instead:", _named(commands, "--bridge --dry-run")),
        ("And then:", _named(commands, "check")),
    ):
        console.print(Text(title, style="bold"))
        console.print(Text(f"$ {command.line}", style="cyan"))
        for line in _without_ends(command.shown):
            console.print(_coloured(line))
        console.print()
    svg = console.export_svg(title="rstore", theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def _named(commands: tuple[Command, ...], word: str) -> Command:
    return next(command for command in commands if word in command.line)


def _without_ends(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Lines without the dots that they begin or end with."""
    first, last = (
        next(at for at in order if lines[at] != "…") for order in (range(len(lines)), range(-1, -len(lines), -1))
    )
    return lines[first : len(lines) + last + 1]


def _coloured(line: str) -> Text:
    text = Text(line)
    for pattern, style in _STYLES:
        for found in pattern.finditer(line):
            text.stylize(style, *found.span())
    return text


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
