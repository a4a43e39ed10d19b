"""A thread that works when it is woken: the base of the store's services (Apache ServiceThread).

Invariant: no service ends in silence. Whatever ends its loop before `stop` is handed to `on_failure` as an error of
ours. Nothing polls: a worker without work waits on its condition.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from engine.errors import RStoreError

OnFailure = Callable[[RStoreError], None]
"""Called with what ended a service; decides what the store may still do."""


class Worker(ABC):
    """See the module. Subclasses write `_run`, which loops until `_stopping`.

    Args:
        name: of the thread, and in errors.
        on_failure: called with what ended the loop.

    Attributes:
        woken: it was woken, and has not looked yet. Who wakes it with each put asks first.
    """

    def __init__(self, name: str, on_failure: OnFailure) -> None:
        self.name = name
        self._on_failure = on_failure
        self._condition = threading.Condition()
        self.woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work; a second time does nothing."""
        with self._condition:
            if self._thread is None:
                self._stopping = False
                self._thread = threading.Thread(target=self._guarded, name=self.name, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        if self.woken:  # and not looked yet: it will see what there is to do
            return
        with self._condition:
            if not self.woken:
                self.woken = True
                self._condition.notify_all()

    def stop(self) -> None:
        """Finish what is there to do, and end; returns when it has."""
        with self._condition:
            thread, self._thread = self._thread, None
            self._stopping = True
            self._condition.notify_all()
        if thread is not None:
            thread.join()

    @property
    def running(self) -> bool:
        """Whether it was started and its loop has not ended."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """What the thread does until it is told to stop."""

    def _wait(self, timeout_ms: float | None) -> bool:
        """Until woken, stopped, or after `timeout_ms` (None: for ever); False when it is time to stop."""
        with self._condition:
            self._condition.wait_for(
                lambda: self.woken or self._stopping, None if timeout_ms is None else timeout_ms / 1000
            )
            self.woken = False
            return not self._stopping

    def _pause(self, ms: float) -> bool:
        """So long, whoever wakes it; False when it is time to stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping, ms / 1000)
            return not self._stopping

    def _guarded(self) -> None:
        try:
            self._run()
        except RStoreError as error:
            self._on_failure(error)
        except Exception as error:  # noqa: BLE001 - a bug in here must stop the store, not just this thread
            failure = RStoreError(f"{self.name} stopped unexpectedly: {error!r}", hint="please report this")
            failure.__cause__ = error
            self._on_failure(failure)
        finally:
            self._ended()

    def _ended(self) -> None:  # noqa: B027 - most have nobody who waits
        """The loop is over, however it ended: for who waits for what it would have done."""


def monotonic_ms() -> float:
    """A clock for intervals, ms."""
    return time.monotonic() * 1000
