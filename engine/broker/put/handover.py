"""From the store's threads to the loop's: what is handed over is done there, in order, many things for one wake-up."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Handover:
    """See the module. Thread-safe.

    Theory: `_called` is set by who finds it unset, and unset by the loop before it looks: what comes later than that
    look finds it unset and calls again. At worst the loop is woken once for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._called = False
        self._once: set[Callable[[], None]] = set()

    def __call__(self, what: Callable[..., None], *arguments: Any) -> None:
        """Have `what` called by the loop; nothing when that has ended."""
        self._waiting.append((what, arguments))
        if not self._called and not self._loop.is_closed():
            self._called = True
            self._loop.call_soon_threadsafe(self._do)

    def once(self, what: Callable[[], None]) -> None:
        """Have `what` called by the loop when it has done what it does now; once, however often that is asked for.

        When the loop has ended: at once, by who asks.
        """
        if what not in self._once:
            self._once.add(what)
            try:
                self._loop.call_soon_threadsafe(self._do_once, what)
            except RuntimeError:  # it is closed
                self._do_once(what)

    def do(self, what: Callable[..., None], *arguments: Any) -> None:
        """Call `what`, in the loop's thread; when it fails, the loop is told, and others don't wait for ever."""
        try:
            what(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not of the others
            self._loop.call_exception_handler({"message": "a call handed to the event loop failed", "exception": error})

    def _do_once(self, what: Callable[[], None]) -> None:
        self._once.discard(what)
        what()

    def _do(self) -> None:
        self._called = False
        for _ in range(len(self._waiting)):  # and no more: others have their turn
            what, arguments = self._waiting.popleft()
            self.do(what, *arguments)
        if self._waiting and not self._called:
            self._called = True
            self._loop.call_soon(self._do)
