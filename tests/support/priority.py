"""Commands that run at the lowest priority end with their process; in a test, their process goes on."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SYSCALLS = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""ioprio_set(2) and ioprio_get(2) by machine."""
_PROCESS = 1


@contextmanager
def priority_kept() -> Iterator[None]:
    """The calling thread has its niceness and I/O class again afterwards, where the system lets it (root)."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    set_io, get_io = _SYSCALLS.get(platform.machine(), (0, 0))
    library = ctypes.CDLL(None, use_errno=True)
    io_before = library.syscall(get_io, _PROCESS, 0) if get_io else -1
    try:
        yield
    finally:
        if os.getpriority(os.PRIO_PROCESS, 0) != before:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, before)
            if io_before >= 0:
                library.syscall(set_io, _PROCESS, 0, io_before)
