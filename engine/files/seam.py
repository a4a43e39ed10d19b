"""Where every call on the system's files can be seen, refused or counted: the base of `Disk`.

Each call runs within `doing(...)`, which turns what the system reports into engine.errors (with path and offset); a
subclass that overrides `doing` and `step` can refuse, count, record or kill at any of them (faults.py).
"""

from __future__ import annotations

import os
import time

from engine.files.libc import Libc
from engine.files.operations import Doing, Operation

ROOT = 0
"""The user id of root."""


class Seam:
    """The context of a call, named points, syncs and the clock.

    Attributes:
        libc: what Python has no function for.
    """

    def __init__(self) -> None:
        self.libc = Libc()

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        """The context in which one call runs; see operations.Doing."""
        return Doing(operation, path, offset, length, source)

    def step(self, name: str) -> None:
        """A named point in a change, where a test or drill may end the process. Does nothing here."""

    def fsync(self, descriptor: int) -> None:
        """fsync(2): called within `doing`, which turns an OSError into ours."""
        os.fsync(descriptor)

    def now_ms(self) -> int:
        """The clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, ms: float) -> None:
        """Wait."""
        time.sleep(ms / 1000)
