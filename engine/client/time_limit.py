"""A time limit for what one task awaits again and again."""

from __future__ import annotations

import asyncio
from types import TracebackType


class TimeLimit:
    """`with limit:` ends what takes longer with TimeoutError, as asyncio.timeout does. For the task that makes it.

    One timer serves all of them, and looks again when it comes too early: an asyncio.timeout for each costs more than a
    quick handler does.

    Args:
        limit_s: how long each may take.
    """

    __slots__ = ("_cancelling", "_expired", "_limit_s", "_loop", "_task", "_timer", "_until")

    def __init__(self, limit_s: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit belongs to a task")
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._cancelling = 0

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        self._expired = False
        self._cancelling = self._task.cancelling()
        self._until = self._loop.time() + self._limit_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._until = None
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        self._timer = None
        if self._until is None:
            return
        if self._until > self._loop.time():
            self._timer = self._loop.call_at(self._until, self._look)
            return
        self._expired = True
        self._task.cancel()
