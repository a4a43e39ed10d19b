"""Which client may consume a queue in order: locks that expire (RebalanceLockManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOCKED_MS = 60_000
"""A lock that is not renewed is gone after that."""


class QueueLocks:
    """By group and queue (broker name, topic, queue id). For the loop's thread alone."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._locks: dict[tuple[str, tuple[str, str, int]], tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, queue: tuple[str, str, int], client: str) -> bool:
        """Whether the client holds the queue now."""
        now = self._now_ms()
        holder, since = self._locks.get((group, queue), (client, now))
        if holder != client and now - since <= LOCKED_MS:
            return False
        self._locks[group, queue] = (client, now)
        return True

    def unlock(self, group: str, queue: tuple[str, str, int], client: str) -> None:
        """The client lets go of the queue, if it holds it."""
        held = self._locks.get((group, queue))
        if held is not None and held[0] == client:
            del self._locks[group, queue]

    def expire(self) -> None:
        """Forget the locks that count no more: of groups and queues that are gone nobody would ever ask."""
        limit = self._now_ms() - LOCKED_MS
        for key in [key for key, (_, since) in self._locks.items() if since < limit]:
            del self._locks[key]
