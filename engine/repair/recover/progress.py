"""How far a planning is, over all the passes that read the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress:
    """Bytes of the log read, over all the passes."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell = tell
        self._done = 0
        self._total = 0

    def expect(self, length: int) -> None:
        """So much more will be read."""
        self._total += length

    def __call__(self, length: int) -> None:
        self._done += length
        if self._tell is not None:
            self._tell(self._done, self._total)
