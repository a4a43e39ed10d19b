"""Tests of what must not wait: a FIFO that is opened, a lock that nobody gives back, a loop without an end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 10
"""How many times its processor time something may take by the clock: on a busy machine it waits for its turn, too."""


class Hung(BaseException):
    """It waits, in this file and line: no `except OSError` takes this for an answer."""


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Raises Hung in what takes more processor time than that, or `PATIENCE` times as long by the clock.

    In the main thread only.
    """

    def late(number: int, frame: FrameType | None) -> None:
        raise Hung(f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE * seconds)}
    before = {number: signal.signal(number, late) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
