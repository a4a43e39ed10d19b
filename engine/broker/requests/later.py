"""Requests whose answer takes its time: a client is asked, files are deleted. The loop continues meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from engine.broker.requests.answers import Answer
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from engine.broker.net.connection import Connection
    from engine.wire.command import RemotingCommand

_Result = TypeVar("_Result")


class Later:
    """See the module. For the loop's thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(
        self, connection: Connection, request: RemotingCommand, work: Coroutine[None, None, RemotingCommand]
    ) -> None:
        """Answer with what `work` gives; what it raises is an answer, too."""
        task = self._loop.create_task(self._finish(connection, request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run what waits for a disk in a thread."""
        return await self._loop.run_in_executor(None, work)

    async def close(self) -> None:
        """The broker stops: nobody is waited for any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _finish(
        connection: Connection, request: RemotingCommand, work: Coroutine[None, None, RemotingCommand]
    ) -> None:
        try:
            answer = await work
        except Answer as found:
            answer = request.answer(found.code, found.remark, found.ext)
        except Exception as error:  # noqa: BLE001 - as the switchboard: a request's error is its answer
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        connection.answer(request, answer)
