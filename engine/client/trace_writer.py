"""Writes records of traces to the trace topic, some at a time, beside what is traced. Never in its way.

What can't be kept is counted and lost, as with Apache's client: a trace is no part of a message's life.
Source: AsyncTraceDispatcher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from engine.client.messages import OutgoingMessage
from engine.client.trace import TRACE_TOPIC, TraceRecord, encode, keys_of
from engine.errors import RStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.client import ClusterClient
    from engine.client.producer import Producer

_BATCH = 100
_KEPT = 2048
_SIZE = 120_000
"""Bytes of a trace message: Apache's limit is 128,000, with a batch's keys beside."""
_PERIOD_S = 0.2
_END_S = 3.0


class TraceWriter:
    """See the module. For the client's loop.

    Args:
        group: of who is traced, without namespace. `role`: PRODUCE or CONSUME.

    Attributes:
        discarded: records that were not written.
    """

    def __init__(self, client: ClusterClient, group: str, role: str) -> None:
        self._client = client
        self._producer: Producer = client.producer(f"_INNER_TRACE_PRODUCER-{group}-{role}")
        self._waiting: deque[TraceRecord] = deque()
        self._task: asyncio.Task[None] | None = None
        self.discarded = 0

    def new_request_id(self) -> str:
        """Joins the two records of a handler call."""
        return self._client.new_id()

    def note(self, records: Sequence[TraceRecord]) -> None:
        """Have records written soon."""
        free = max(0, _KEPT - len(self._waiting))
        self._waiting.extend(records[:free])
        self.discarded += len(records[free:])
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what waits, for 3 s at most."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(_END_S):
                await self._write()
        except TimeoutError:
            self.discarded += len(self._waiting)
        if self.discarded:
            self._client.log.warning("%s records of traces were not written", self.discarded)

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(_PERIOD_S)
            await self._write()

    async def _write(self) -> None:
        while self._waiting:
            records = self._next()
            message = OutgoingMessage(TRACE_TOPIC, "".join(map(encode, records)).encode(), keys=keys_of(records))
            try:
                await self._producer.send(message)
            except asyncio.CancelledError:
                self._waiting.extendleft(reversed(records))
                raise
            except RStoreError as error:
                self.discarded += len(records)
                self._client.log.warning("a trace was not written: %s", error)

    def _next(self) -> list[TraceRecord]:
        """The next records, as many as one message takes."""
        records: list[TraceRecord] = []
        size = 0
        while self._waiting and len(records) < _BATCH:
            size += len(encode(self._waiting[0]).encode())
            if records and size > _SIZE:
                break
            records.append(self._waiting.popleft())
        return records
