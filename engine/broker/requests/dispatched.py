"""Answers that show all that was acknowledged before the request came.

A put is acknowledged when its record is in the log; dispatch gives it its queue unit and index entries some ms later.
Who asks in between for a queue's end, or for what lies there, would be told that it isn't there. Such a request waits,
off the loop, until dispatch has come to what was in the log when it arrived, and dispatch gathers nothing meanwhile.
Apache answers at once, with what was dispatched (ReputMessageService sleeps 1 ms between turns): BROKER.md 1.2.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from engine.broker.put.handover import Handover

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

MOST_S = 1.0
"""How long a request waits at most; then it is answered with what was dispatched."""


class AfterDispatch:
    """See the module. For the loop's thread alone."""

    def __init__(self, store: MessageStore, later: Later, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._later = later
        self._loop = loop
        self._hand_over = Handover(loop)

    def needed(self) -> bool:
        """Whether anything in the log is not dispatched yet."""
        return self._store.dispatch_lag > 0

    def needed_for(self, topic: str, queue_id: int) -> bool:
        """Whether messages of this queue are not dispatched yet."""
        return self._store.lags(topic, queue_id)

    def answer(
        self, connection: Connection, request: RemotingCommand, work: Callable[[], RemotingCommand | None]
    ) -> None:
        """Answer with what `work` gives when all that is in the log now is dispatched, or after MOST_S."""
        self._later.answer(connection, request, self._after(work))

    async def _after(self, work: Callable[[], RemotingCommand | None]) -> RemotingCommand | None:
        reached: asyncio.Future[None] = self._loop.create_future()
        self._store.when_dispatched(lambda: self._hand_over(_done, reached))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reached, MOST_S)
        return work()


def _done(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)
