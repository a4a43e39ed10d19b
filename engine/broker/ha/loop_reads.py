"""The event loop reads in place of a thread: what comes is answered without a change of threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_END_S = 5.0


class LoopReads:
    """As `engine.broker.ha.link.Reads`. Called in any thread but the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, descriptor: int, look: Callable[[], bool]) -> Callable[[], None]:
        """As of Reads. Raises RuntimeError: the loop is closed."""
        loop = self._loop
        ended = threading.Event()

        def readable() -> None:
            if not look():
                loop.remove_reader(descriptor)

        def remove() -> None:
            loop.remove_reader(descriptor)
            ended.set()

        def end() -> None:
            try:
                loop.call_soon_threadsafe(remove)
            except RuntimeError:  # it is closed, and reads nothing
                return
            ended.wait(_END_S)

        loop.call_soon_threadsafe(loop.add_reader, descriptor, readable)
        return end
