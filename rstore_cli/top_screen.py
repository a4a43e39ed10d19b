"""The live screen of `rstore top`: drawn by rich, sorted and scrolled by keys that are pressed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from engine.errors import StorageError
from rstore_cli.top_frame import Frame, Look, Sort
from rstore_cli.top_layout import Drawn, TopView, draw, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LEAVE = frozenset({"q", "Q", "\x04", ""})


def show(look: Callable[[], Look], before: Look, interval: float, sort: Sort) -> None:
    """Draw until somebody leaves, by q or Ctrl-C; the terminal is as it was then."""
    console = Console(highlight=False)
    now, trouble, view = before, "", TopView(sort)
    with contextlib.suppress(KeyboardInterrupt), _single_keys(), Live(console=console, screen=True) as live:

        def drawn() -> tuple[Frame, Drawn]:
            frame = Frame.of(before, now, view.sort)
            drawing = draw(frame, view, console.width, console.height, trouble)
            text = [Text(line, style=style, no_wrap=True, overflow="crop") for line, style in drawing.lines]
            live.update(Group(*text), refresh=True)
            return frame, drawing

        while True:
            frame, screen = drawn()
            due = time.monotonic() + interval
            while (left := due - time.monotonic()) > 0:
                for key in _pressed(left):
                    if key in _LEAVE:
                        return
                    view = view.after(key, frame, screen.rows)
                    frame, screen = drawn()
            try:
                before, now, trouble = now, look(), ""
            except StorageError as error:  # it is being started anew, say: the screen stays
                trouble = str(error)


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


def _pressed(wait_s: float) -> list[str]:
    """The keys that are pressed within that time; "" when nobody can press one any more."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return (keys_of(os.read(sys.stdin.fileno(), 64)) or [""]) if ready else []
