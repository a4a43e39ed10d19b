"""Many JSON lines at once to stdout, as bytes. Ctrl-C cuts no line of a block: it comes when the block is written.

A block goes past the text layer of stdout where that is UTF-8; elsewhere (another encoding, no bytes below) through it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from rstore_cli.interrupt import Interrupts

if TYPE_CHECKING:
    from types import TracebackType

    from engine.format.buffers import Buffer


class BlockWriter:
    """Writes to stdout while its context is open. `ascii`: stdout is not UTF-8 (`Output.ascii`)."""

    def __init__(self, *, ascii: bool) -> None:  # noqa: A002 - json's own word
        self._interrupts = Interrupts()
        self._bytes: Any = None if ascii else getattr(sys.stdout, "buffer", None)
        self._flushes = bool(getattr(sys.stdout, "line_buffering", False))

    def __enter__(self) -> Self:
        sys.stdout.flush()  # what was written before stands before
        self._interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.__exit__(kind, error, trace)

    def write(self, block: Buffer) -> None:
        """Whole lines. Raises BrokenPipeError, OSError; KeyboardInterrupt, when they are written."""
        with self._interrupts.held():
            if self._bytes is None:
                sys.stdout.write(str(block, "utf-8"))
                return
            self._bytes.write(block)
            if self._flushes:
                self._bytes.flush()
