"""A terminal of a chosen size, in this process: what a command writes to it, as a person would see it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SGR = re.compile(r"\x1b\[[0-9;]*m")
END = b"\x00the terminal is left\x00"  # while the other end is open: what was not read when it closes may be lost


class Terminal:
    """Collects what is written. `text` is whole once the terminal was left."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._bytes = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while not self._bytes.endswith(END):
            self._bytes += os.read(self._master, 1 << 16)
        self._bytes = self._bytes.removesuffix(END)

    def end(self, slave: int) -> None:
        """Wait for the rest. slave: the descriptor that the text is written to."""
        os.write(slave, END)
        self._reader.join()
        os.close(self._master)

    @property
    def text(self) -> str:
        """All of it, with its escape sequences."""
        return self._bytes.decode().replace("\r\n", "\n")

    @property
    def plain(self) -> str:
        """All of it, without colour."""
        return SGR.sub("", self.text)


@contextmanager
def terminal(columns: int, lines: int = 24, *, term: str = "xterm-256color") -> Iterator[Terminal]:
    """stdout is a terminal of that size until this is left."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    found = Terminal(master)
    with pytest.MonkeyPatch.context() as patch, os.fdopen(slave, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stdout", stream)
        patch.setenv("TERM", term)
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        try:
            yield found
        finally:
            stream.flush()
            found.end(slave)
