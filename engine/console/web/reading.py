"""Blocking engine calls beside the loop: two short ones and a long one at a time, one for all who ask the same, kept
for a moment.

Ten consoles that show the same page cost one reading. What was read is kept for a few answers only, so that memory
stays bounded. What takes long is read anew at most a tenth of the time: an answer stays fresh ten times as long as it
took.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from engine.errors import Shortage

T = TypeVar("T")
THREADS, MOST_WAITING, KEPT = 2, 64, 48
REST = 10
"""An answer is fresh so many times as long as it took."""


class TooBusy(Shortage):
    """More is being read than the console lets wait."""

    code = "busy"


class Reading:
    """See the module. For one loop.

    Attributes:
        epoch: grows when what was read before counts no more.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="console")
        self._long_pool = ThreadPoolExecutor(1, thread_name_prefix="console-long")
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        self._kept: OrderedDict[Hashable, tuple[float, float, Any]] = OrderedDict()
        self.epoch = 0

    async def read(self, key: Hashable, work: Callable[[], T], *, fresh_s: float = 1.0, stale_s: float = 0.0) -> T:
        """What `work` returns, or returned for the same key at most `fresh_s` ago.

        `stale_s`: of what takes long: an answer up to so old is given at once, and a newer one is fetched meanwhile.

        Raises:
            TooBusy. What `work` raises.
        """
        key = (self.epoch, key)
        at, took, value = self._kept.get(key, (0.0, 0.0, None))
        age = time.monotonic() - at if at else float("inf")
        if age <= max(fresh_s, REST * took if stale_s else 0.0):
            return cast(T, value)
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= MOST_WAITING:
                raise TooBusy("the console is busy", hint="reload the page in a moment")
            task = asyncio.get_running_loop().create_task(
                self._run(key, work, self._long_pool if stale_s else self._pool)
            )
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        if age <= stale_s:
            return cast(T, value)
        return cast(T, await asyncio.shield(task))

    def forget(self) -> None:
        """Something has changed: all is read anew."""
        self.epoch += 1
        self._kept.clear()

    async def _run(self, key: Hashable, work: Callable[[], T], pool: ThreadPoolExecutor) -> T:
        began = time.monotonic()
        value = await asyncio.get_running_loop().run_in_executor(pool, work)
        now = time.monotonic()
        self._kept[key] = now, now - began, value
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return value

    def _done(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may wait

    async def close(self) -> None:
        """Wait for what is being read."""
        for pool in (self._pool, self._long_pool):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
