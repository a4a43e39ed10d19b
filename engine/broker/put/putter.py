"""How messages are put: by the loop, and batches that wait for their flush beside it. While the disk is slow:
engine.broker.put.flow.
"""

from __future__ import annotations

import itertools
from time import perf_counter_ns
from typing import TYPE_CHECKING

from engine.log.results import PutMessageStatus, PutResult
from engine.services.waiting import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.put.flow import Busy, FlowControl
    from engine.format.columns import MessageColumns
    from engine.format.message import Message
    from engine.store import MessageStore

STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""The message is in the log, whatever else was asked for."""


class Putter:
    """See the module. For the loop's thread alone.

    Args:
        store: where messages are put.
        flow: says who makes a put, and is told how long it took.
    """

    def __init__(self, store: MessageStore, flow: FlowControl) -> None:
        self._store = store
        self._flow = flow

    def put(
        self,
        message: Message,
        done: Callable[[PutResult], None],
        *,
        wait: bool | None = None,
        refusable: bool = False,
    ) -> None:
        """Put a message; `done` is called in the loop's thread, before this returns where puts don't wait.

        `refusable`: a client's send, which may be refused when it has waited for too long (OS_PAGECACHE_BUSY with the
        error `flow.Busy`).
        """
        flow, store = self._flow, self._store
        if flow.in_worker_thread:
            work = store.put_async if store.puts_wait else store.put
            flow.run(lambda: work(message, wait=wait), done, _refusal(done) if refusable else None)
            return
        began = perf_counter_ns()
        result = store.begin_put(message, wait=wait)
        took = perf_counter_ns() - began
        if took > flow.slow_ns:
            flow.was_slow(took)
        if isinstance(result, Pending):
            flow.wait_for(result, done)
        else:
            done(result)

    def put_columns(
        self,
        message: Message,
        columns: MessageColumns,
        done: Callable[[tuple[PutResult, ...]], None],
        *,
        wait: bool | None = None,
    ) -> None:
        """Put a client's batch, as `put` with `refusable`; an answer a batch that was made of it."""
        flow, store = self._flow, self._store

        def refuse(busy: Busy) -> None:
            done((PutResult(PutMessageStatus.OS_PAGECACHE_BUSY, error=busy),))

        if flow.in_worker_thread or store.puts_wait:
            flow.run(lambda: store.put_columns(message, columns, wait=wait), done, refuse)
            return
        began = perf_counter_ns()
        results = store.put_columns(message, columns, wait=wait)
        took = perf_counter_ns() - began
        if took > flow.slow_ns:
            flow.was_slow(took)
        done(results)


class QueueTurns:
    """A queue for a message that names none: one after another."""

    def __init__(self) -> None:
        self._turn = itertools.count()

    def next(self, queues: int) -> int:
        """The queue id, of `queues`."""
        return next(self._turn) % max(1, queues)


def _refusal(done: Callable[[PutResult], None]) -> Callable[[Busy], None]:
    return lambda busy: done(PutResult(PutMessageStatus.OS_PAGECACHE_BUSY, error=busy))
