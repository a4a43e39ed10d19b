"""Work that continues beside the caller's: one thing at a time, in the order in which it was given."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from engine.files.disk import Disk


class BackgroundWorker:
    """A thread for work that neither needs what the caller does meanwhile nor is needed by it. A context manager.

    Leaving it waits for what was given last. On a disk that wants each run to make the same changes in the same order
    (`Disk.concurrent`), the work is done at once instead.
    """

    def __init__(self, disk: Disk) -> None:
        self._pool = ThreadPoolExecutor(1, "rstore-beside") if disk.concurrent else None
        self._last: Future[object] | None = None

    def __enter__(self) -> BackgroundWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if kind is None:  # else what the caller met comes first
            self._wait()

    def run(self, work: Callable[[], object]) -> None:
        """Begin some work, when what was given before is done.

        Raises:
            what the work before raised; nothing is begun then.
        """
        if self._pool is None:
            work()
            return
        self._wait()
        self._last = self._pool.submit(work)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()
