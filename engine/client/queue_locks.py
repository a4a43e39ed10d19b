"""Locks of queues at their brokers, for ordered consumption: taken, kept alive, given back.

A broker gives a lock to one consumer of a group for 60 s; it is asked again each 20 s, and not believed for longer than
30 s. Source: RebalanceImpl#lock, #lockAll, ProcessQueue#isLockExpired, RebalanceLockManager.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.errors import RStoreError

if TYPE_CHECKING:
    import logging
    from collections.abc import Collection

    from engine.client.calls import BrokerCalls
    from engine.client.queues import MessageQueue

RENEW_S = 20.0
_BELIEVED_S = 30.0


class HeldLocks:
    """See the module. For one loop. `group`: on the wire."""

    def __init__(self, calls: BrokerCalls, group: str, log: logging.Logger) -> None:
        self._calls = calls
        self._group = group
        self._log = log
        self._since: dict[MessageQueue, float] = {}

    @property
    def taken(self) -> set[MessageQueue]:
        """Those that were got, and neither refused since nor given back."""
        return set(self._since)

    def is_held(self, queue: MessageQueue) -> bool:
        """Whether the lock is ours, as far as is known."""
        return time.monotonic() - self._since.get(queue, float("-inf")) < _BELIEVED_S

    async def take(self, queue: MessageQueue) -> bool:
        """Try to get a lock."""
        await self.renew([queue])
        return self.is_held(queue)

    async def renew(self, queues: Collection[MessageQueue]) -> None:
        """Ask for these locks, those that are held among them."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        for broker, own in by_broker.items():
            asked = time.monotonic()
            try:
                locked = await self._calls.lock(self._group, broker, own)
            except RStoreError as error:
                self._log.warning("no locks from %s: %s", broker, error)
                continue
            for queue in own:
                if queue in locked:
                    self._since[queue] = asked
                else:
                    self._since.pop(queue, None)

    async def give_back(self, queues: Collection[MessageQueue]) -> None:
        """They are no longer needed."""
        for queue in queues:
            if self._since.pop(queue, None) is None:
                continue
            try:
                await self._calls.unlock(self._group, queue.broker, [queue])
            except RStoreError as error:
                self._log.warning("the lock of %s was not given back: %s", queue, error)
