"""Work that nobody waits for: it gives way to all others, on the processor and on the disk."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from engine.files.libc import Libc

_LOWEST = 19
_LOW = 10


def give_way() -> bool:
    """From now on the calling thread gives way: niceness 19, I/O class idle. There is no way back for who isn't root.

    Returns:
        whether the system took the I/O class; schedulers without classes (none, mq-deadline in part) ignore it.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # of Linux's threads, each has its own
    return Libc().idle_io_priority()


def give_some_way() -> None:
    """From now on the process has niceness 10 (or what it had more): it keeps up, and what else runs comes first."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_LOW, os.getpriority(os.PRIO_PROCESS, 0)))


class BytePace:
    """At most so many bytes a second, whoever reads them; None: as fast as it goes. Thread-safe.

    `stop`: ends each wait when it is set.
    """

    def __init__(self, rate: float | None, stop: threading.Event | None = None) -> None:
        self.rate = rate
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, size: int) -> None:
        """Wait until `size` more bytes may be read."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + size / self.rate
        if start > now:
            self._stop.wait(start - now)
