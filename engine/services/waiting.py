"""What a put waits for: a flush, a slave. One is made for each put, thousands a second, so it is as slim as can be."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.errors import RStoreError
from engine.log.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable


class FlushFuture:
    """PUT_OK when durable, another status when it took too long or nobody was there, or the error of what failed.

    Thread-safe. Beside concurrent.futures.Future: no condition until somebody blocks, and the first outcome counts.
    """

    __slots__ = ("_calls", "_event", "_lock", "_outcome")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcome: PutMessageStatus | RStoreError | None = None
        self._calls: list[Callable[[], object]] = []
        self._event: threading.Event | None = None

    @classmethod
    def settled(cls, outcome: PutMessageStatus | RStoreError) -> FlushFuture:
        """One that has its outcome from the beginning."""
        future = cls()
        future.settle(outcome)
        return future

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome is not None

    @property
    def outcome(self) -> PutMessageStatus | RStoreError | None:
        """None: there is none yet."""
        return self._outcome

    def settle(self, outcome: PutMessageStatus | RStoreError) -> None:
        """Give it its outcome, unless it has one; who waits is told."""
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
        calls, self._calls = self._calls, []  # who is told may hold this: a ring, for the garbage collector to find
        if self._event is not None:
            self._event.set()
        for call in calls:
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called when there is an outcome: at once, or in the thread that gives it."""
        with self._lock:
            if self._outcome is None:
                self._calls.append(call)
                return
        call()

    def wait(self, timeout_s: float) -> bool:
        """Whether there is an outcome after `timeout_s` at most."""
        with self._lock:
            if self._outcome is not None:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(timeout_s)
