"""Counted use of a resource that may have to go away by force.

Theory (Apache ReferenceResource): the count starts at 1, the owner's own. Readers `hold` and `release`.
`shutdown` ends new holds and gives up the owner's count; when the last reader releases, the resource is
cleaned up. A reader that never lets go is overruled: a later `shutdown`, at least the interval after the
first, drives the count far below zero and cleans up.

Invariants: `hold` never succeeds after `shutdown`; `_cleanup` runs at most once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

FORCED = 1000
"""How far below zero a forced shutdown puts the count, so that late releases change nothing (Apache's value)."""


class ReferenceCounted(ABC):
    """Base of what is held and released. Thread-safe.

    Args:
        now_ms: the clock, ms.
    """

    __slots__ = ("_available", "_cleaned", "_count", "_first_shutdown_ms", "_now_ms", "_reference_lock")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._reference_lock = threading.Lock()
        self._count = 1
        self._available = True
        self._cleaned = False
        self._first_shutdown_ms = 0
        self._now_ms = now_ms

    @property
    def available(self) -> bool:
        """Whether it can still be held: `shutdown` was not called yet."""
        return self._available

    @property
    def reference_count(self) -> int:
        """Users, the owner included; zero or less when it is over."""
        return self._count

    @property
    def cleanup_over(self) -> bool:
        """Whether nobody uses it any more and it has been cleaned up."""
        return self._count <= 0 and self._cleaned

    def hold(self) -> bool:
        """Count one more user; False after `shutdown`."""
        with self._reference_lock:
            if not self._available or self._count <= 0:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """Count one user less; the last one cleans up."""
        with self._reference_lock:
            self._release()

    def shutdown(self, interval_forcibly_ms: int) -> None:
        """End new holds; called again `interval_forcibly_ms` or more after the first time, end those that last."""
        with self._reference_lock:
            if self._available:
                self._available = False
                self._first_shutdown_ms = self._now_ms()
                self._release()
            elif self._count > 0 and self._now_ms() - self._first_shutdown_ms >= interval_forcibly_ms:
                self._count = -FORCED - self._count
                self._release()

    def _release(self) -> None:
        self._count -= 1
        if self._count <= 0 and not self._available and not self._cleaned:
            self._cleaned = True
            self._cleanup()

    @abstractmethod
    def _cleanup(self) -> None:
        """Give the resource back; called once, with the lock held."""
