"""An event loop in a thread of its own, for who waits in another: the daemon and its clients run in one each."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

T = TypeVar("T")


class LoopThread:
    """See the module. To be closed; also a context manager.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._until_closed()), name=name, daemon=True)
        self._thread.start()
        self._loop = self._started.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done in the loop, and wait; what it gives. Raises what it raises."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have it done in the loop; what is still under way when this is closed is cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, tell: Callable[[], object]) -> None:
        """Have something called in the loop."""
        self._loop.call_soon_threadsafe(tell)

    def close(self) -> None:
        """End the loop and its thread. A second call does nothing."""
        if self._thread.is_alive():
            self.call(self._closed.set)
            self._thread.join()

    async def _until_closed(self) -> None:
        self._started.set_result(asyncio.get_running_loop())
        await self._closed.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
