"""Tests of what must not wait: a FIFO that is opened, a lock that nobody gives back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Hung(BaseException):
    """It waits: no `except OSError` takes this for an answer."""


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raises Hung in what takes longer. In the main thread only."""

    def late(number: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
