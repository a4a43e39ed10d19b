"""How the broker's own services put messages: at once where puts don't wait, else beside, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.log.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.broker import Broker
    from engine.format.message import Message
    from engine.log.results import PutResult

STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""The message is in the log, whatever else was asked for."""


def put(broker: Broker, message: Message, done: Callable[[PutResult], None], *, wait: bool | None = None) -> None:
    """Put a message; `done` is called in the loop's thread, before this returns where puts don't wait."""
    if not broker.store.puts_wait:
        done(broker.store.put(message, wait=wait))
        return
    future = broker.store.put_async(message, wait=wait)
    future.add_done_callback(lambda found: broker.loop.call_soon_threadsafe(done, found.result()))
