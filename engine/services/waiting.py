"""What puts wait for: a flush, a slave. Thousands wait a second: those that come together share what they wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import RStoreError
from engine.log.results import AppendResult, PutMessageStatus, PutResult

if TYPE_CHECKING:
    from collections.abc import Callable

_OK = PutMessageStatus.PUT_OK


class FlushFuture:
    """PUT_OK when durable, another status when it took too long or nobody was there, or the error of what failed.

    Thread-safe. Beside concurrent.futures.Future: no condition, for which those who block would queue once more when
    they are told; and the first outcome counts.
    """

    __slots__ = ("_calls", "_lock", "_outcome")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcome: PutMessageStatus | RStoreError | None = None
        self._calls: list[Callable[[], object]] = []

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
        """Give it its outcome, unless it has one; who waits is told. Raises what the first of them raises."""
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
        calls, self._calls = self._calls, []  # who is told may hold this: a ring, for the garbage collector to find
        failure: Exception | None = None
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the others are told all the same: nobody else would tell them
                failure = failure or error
        if failure is not None:
            raise failure

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called when there is an outcome: at once, or in the thread that gives it."""
        with self._lock:
            if self._outcome is None:
                self._calls.append(call)
                return
        call()

    def wait(self, timeout_s: float) -> bool:
        """Whether there is an outcome after `timeout_s` at most."""
        told = threading.Lock()
        told.acquire()
        self.then(told.release)
        return told.acquire(timeout=max(0.0, timeout_s))


class Pending(NamedTuple):
    """A put that is in the log and waits: for its flush, for a slave. Puts of one group share these futures."""

    append: AppendResult
    waiting: tuple[FlushFuture, ...]

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called when nothing is waited for any more: at once, or in the thread that has flushed."""
        if len(self.waiting) == 1:
            self.waiting[0].then(call)
            return
        left = len(self.waiting)
        lock = threading.Lock()

        def one_done() -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                call()

        for future in self.waiting:
            future.then(one_done)

    def wait(self, patience_s: float) -> PutResult:
        """The answer, when nothing is waited for any more."""
        for future in self.waiting:
            if not future.wait(patience_s):
                break
        return self.result()

    def result(self) -> PutResult:
        """The answer, as far as there is one: the last that is not PUT_OK counts, an error before all."""
        status = _OK
        for future in self.waiting:
            outcome = future.outcome or RStoreError("flush or slave acknowledgement timed out")
            if isinstance(outcome, RStoreError):
                return PutResult(PutMessageStatus.UNKNOWN_ERROR, self.append, outcome)
            if outcome is not _OK:
                status = outcome
        return PutResult(status, self.append)
