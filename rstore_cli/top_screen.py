"""The live screen of `rstore top`: drawn by rich, sorted by a key that is pressed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from engine.errors import StorageError
from rstore_cli.render import printable
from rstore_cli.top_frame import Frame, Look, Sort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_KEYS = {"p": Sort.PUT, "g": Sort.GET, "l": Sort.LAG, "n": Sort.NAME}
_LEAVE = ("q", "Q", "\x04", "")
_AROUND = 16
"""Lines of a screen that are no rows of a table."""


def show(look: Callable[[], Look], before: Look, interval: float, sort: Sort) -> None:
    """Draw until somebody leaves, by q or Ctrl-C; the terminal is as it was then."""
    console = Console(highlight=False)
    now, trouble = before, ""
    with contextlib.suppress(KeyboardInterrupt), _single_keys(), Live(console=console, screen=True) as live:
        while True:
            live.update(_drawn(Frame.of(before, now, sort), sort, console.height, trouble), refresh=True)
            due = time.monotonic() + interval
            while (left := due - time.monotonic()) > 0:
                key = _key(left)
                if key in _LEAVE:
                    return
                if key in _KEYS:
                    sort = _KEYS[key]
                    live.update(_drawn(Frame.of(before, now, sort), sort, console.height, trouble), refresh=True)
            try:
                before, now, trouble = now, look(), ""
            except StorageError as error:  # it is being started anew, say: the screen stays
                trouble = str(error)


def _drawn(frame: Frame, sort: Sort, height: int, trouble: str) -> Group:
    facts = Table.grid(padding=(0, 2))
    for name, value in frame.facts():
        facts.add_row(Text(name, style="bold"), Text(value))
    if trouble:
        facts.add_row(Text("trouble", style="bold red"), Text(printable(trouble)))
    most = max((height - _AROUND) // 2, 3)
    return Group(
        facts,
        _table(frame.topic_table(most), texts=1),
        _table(frame.group_table(most), texts=2),
        Text(f"sorted by {sort.value}   p puts  g gets  l lag  n name  q leave", style="dim"),
    )


def _table(content: tuple[Sequence[str], list[list[str]]], *, texts: int) -> Table:
    heads, rows = content
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Keys are read as they are pressed, and not shown."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(wait_s: float) -> str | None:
    """A key that is pressed within that time; "" when nobody can press one any more."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else None
