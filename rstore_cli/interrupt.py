"""Ctrl-C where it may not strike anywhere: while a store is open, it waits for the end of the put that is under way.

KeyboardInterrupt can come up between any two instructions, also while a lock of the store is held; then closing the
store would wait for that lock for ever.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """Defers SIGINT within `held()`. A context manager; does nothing outside of the main thread."""

    def __init__(self) -> None:
        self._holding = 0
        self._pending = False
        self._before: object = None
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._active:
            self._before = signal.signal(signal.SIGINT, self._strike)
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No KeyboardInterrupt in here; one that is due comes at the end."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
        if self._pending and not self._holding:
            self._pending = False
            raise KeyboardInterrupt

    def _strike(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._holding:
            self._pending = True
        else:
            raise KeyboardInterrupt


@contextlib.contextmanager
def ended_by_a_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP as Ctrl-C in here, for work that has directories and processes of its own to clear away.

    One that is ignored (nohup) stays so. Does nothing outside of the main thread.
    """

    def strike(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, strike) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
