"""Requests whose answer takes its time: a client is asked, files are deleted. The loop continues meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from engine.broker.requests import bodies
from engine.broker.requests.answers import Answer
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from engine.broker.net.connection import Connection
    from engine.broker.turns import Turns
    from engine.wire.command import RemotingCommand

_Result = TypeVar("_Result")


class Later:
    """See the module. For the loop's thread alone.

    Attributes:
        turns: of the loop: what is walked by a request that is answered later is walked with `turns.walk`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self.turns = turns
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(
        self, connection: Connection, request: RemotingCommand, work: Coroutine[None, None, RemotingCommand | None]
    ) -> None:
        """Answer with what `work` gives (None: it is answered later still); what it raises is an answer, too."""
        task = self._loop.create_task(self._finish(connection, request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # one that was cancelled before it began

    async def object_of(self, rows: Iterable[tuple[Any, Any]], request: RemotingCommand) -> bytes:
        """A JSON object, or a map by message queue, made in turns. Raises Answer: no frame holds it."""
        return await self._written(b"{", bodies.entries_of, rows, request, b"}")

    async def list_of(self, values: Iterable[Any], request: RemotingCommand) -> bytes:
        """A JSON list, made in turns. Raises Answer: no frame holds it."""
        return await self._written(b"[", bodies.items_of, values, request, b"]")

    async def _written(
        self,
        begin: bytes,
        steps: Callable[[bytearray, Iterable[Any]], Iterator[None]],
        parts: Iterable[Any],
        request: RemotingCommand,
        end: bytes,
    ) -> bytes:
        out = bytearray(begin)
        async for _ in self.turns.walk(steps(out, parts), request.code):
            pass
        out += end
        return bytes(out)

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run what waits for a disk in a thread."""
        return await self._loop.run_in_executor(None, work)

    async def write(self, work: Callable[[], _Result]) -> _Result:
        """Run what changes a file in a thread. Who is cancelled goes when it is done: the store is open until then."""
        future = self._loop.run_in_executor(None, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait((future,))
            raise

    async def close(self) -> None:
        """The broker stops: nobody is waited for any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _finish(
        connection: Connection, request: RemotingCommand, work: Coroutine[None, None, RemotingCommand | None]
    ) -> None:
        try:
            answer = await work
        except Answer as found:
            answer = request.answer(found.code, found.remark, found.ext)
        except Exception as error:  # noqa: BLE001 - as the switchboard: a request's error is its answer
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None:
            connection.answer(request, answer)
