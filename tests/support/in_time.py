"""Tests of what must not wait: a FIFO that is opened, a lock that nobody gives back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hung(BaseException):
    """It waits, in this file and line: no `except OSError` takes this for an answer."""


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raises Hung in what takes longer. In the main thread only."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Hung(f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
