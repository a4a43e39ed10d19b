"""Every command of the command line, with its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rstore_cli.app import COMMANDS, Commands


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of each command, and the parser's own object (`params`), groups passed over."""
    group = Commands(name="rstore")
    for name in COMMANDS:
        yield from _within((name,), group.get_command(None, name))  # type: ignore[arg-type]


def _within(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, one in inner.items():
        yield from _within((*words, name), one)
