"""A queue whose broker may be away for a while: it is asked again, until the patience is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.client.calls import BrokerCalls
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.errors import NoRoute, PeerLost, RefusedByBroker

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.pulling import PullResult
    from engine.client.queues import MessageQueue

GROUP = "rstore-copy"
"""Pulls and sends name a group; this one commits nothing."""
_AGAIN_S = 0.5
_DISPATCH_S = 5.0
"""How long a queue may take to show what its broker has acknowledged."""
_LOOK_S = 0.05

Trouble = NoRoute | PeerLost | RefusedByBroker
TROUBLES = (NoRoute, PeerLost, RefusedByBroker)


class Patience:
    """How long the brokers of one queue's copy have been in trouble.

    Args:
        patience_s: how long a broker that is away or busy is waited for.
        note: is told once, at the beginning of each trouble.
    """

    def __init__(self, patience_s: float, note: Callable[[str], None]) -> None:
        self.patience_s = patience_s
        self.since: float | None = None
        self._note = note

    def over(self) -> None:
        """A broker has answered."""
        self.since = None

    async def wait(self, error: Trouble) -> None:
        """Before something is tried again. Raises the error: it has been tried for long enough."""
        now = time.monotonic()
        if self.since is None:
            self.since = now
            self._note(f"{error.message}; tried again for {self.patience_s:g} s")
        if now - self.since > self.patience_s:
            raise error
        await asyncio.sleep(_AGAIN_S)


class PatientQueue:
    """See the module. No slave is asked: it may lack the last messages. For one loop.

    Attributes:
        calls: what its brokers are asked by.
    """

    def __init__(self, client: ClusterClient, queue: MessageQueue, patience: Patience) -> None:
        self.calls = BrokerCalls(client, masters_only=True)
        self._client = client
        self._queue = queue
        self._patience = patience
        self._wanted = TopicSubscription.of(queue.topic, ALL, TAG, 0)

    def __str__(self) -> str:
        """As errors name it."""
        return f"queue {self._queue.topic}/{self._queue.queue_id} of {self._queue.broker}"

    async def wait(self, error: Trouble) -> None:
        """Before its broker is asked again, which may be elsewhere then. Raises the error: see Patience."""
        self._client.forget_route(self._queue.topic)
        await self._patience.wait(error)

    async def connection(self) -> object:
        """What its master is asked over: another one once that was lost. Raises one of TROUBLES."""
        return await self._client.peers.to(await self.calls.address(self._queue))

    async def pull(self, at: int, most: int, *, wait: bool = False) -> PullResult:
        """What it has from an offset on, asked for once; raises as BrokerCalls.pull."""
        return await self.calls.pull(GROUP, self._queue, at, self._wanted, most=most, wait=wait)

    async def shown(self, at: int, most: int) -> PullResult:
        """What it has from an offset on; while its broker is away it is asked again."""
        while True:
            try:
                result = await self.pull(at, most)
            except TROUBLES as error:
                await self.wait(error)
            else:
                self._patience.over()
                return result

    async def settled(self, known: int, within_s: float | None = None) -> int:
        """Its end, once it shows what is known of it, or has had the time to."""
        until = time.monotonic() + (_DISPATCH_S if within_s is None else within_s)
        while True:
            end = await self._end()
            if end >= known or time.monotonic() > until:
                return end
            await asyncio.sleep(_LOOK_S)

    async def _end(self) -> int:
        while True:
            try:
                end = await self.calls.max_offset(self._queue)
            except TROUBLES as error:
                await self.wait(error)
            else:
                self._patience.over()
                return end
