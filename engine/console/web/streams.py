"""What moves on a page: server-sent events. One sampler for all who watch the same; none while nobody watches.

A watcher that reads slower than samples come gets the newest, and one that does not read at all is let go.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

import orjson

from engine.errors import RStoreError, Shortage

HISTORY = 720
"""Samples that a new watcher gets."""
MOST_WATCHERS, MOST_SAMPLERS = 256, 64
LINGER_S = 60.0
"""How long a sampler goes on when the last watcher has gone: a page that is reloaded keeps its line."""

Look = Callable[[], Awaitable[dict[str, Any]]]


class Sampler:
    """Looks again and again, and tells who watches. For one loop."""

    def __init__(self, look: Look, period_s: float) -> None:
        self._look = look
        self._period_s = period_s
        self._news = asyncio.Condition()
        self._count = 0
        self._has_ended = False
        self.history: deque[bytes] = deque(maxlen=HISTORY)
        self.watchers = 0
        self.left = time.monotonic()
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._sample()
        finally:  # whoever still watches is not kept waiting
            self._has_ended = True
            async with self._news:
                self._news.notify_all()

    async def _sample(self) -> None:
        while self.watchers or time.monotonic() - self.left < LINGER_S:
            began = time.monotonic()
            try:
                sample = await self._look()
            except RStoreError as error:
                sample = {"error": error.message}
            self.history.append(orjson.dumps({"time": time.time_ns() // 1_000_000, **sample}))
            self._count += 1
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(max(0.05, self._period_s - (time.monotonic() - began)))

    def _is_past(self, count: int) -> bool:
        """Whether there are more samples than that, or no more will come."""
        return self._count != count or self._has_ended

    async def watch(self) -> AsyncGenerator[bytes]:
        """What is kept, then each new sample, or the newest of several; JSON each."""
        self.watchers += 1
        try:
            at = self._count
            for one in list(self.history):
                yield one
            while True:
                async with self._news:
                    await self._news.wait_for(partial(self._is_past, at))
                if self._count == at:
                    return
                at = self._count
                yield self.history[-1]
        finally:
            self.watchers -= 1
            self.left = time.monotonic()


class Samplers:
    """All samplers of a console, by what they look at."""

    def __init__(self) -> None:
        self._samplers: dict[str, Sampler] = {}

    def of(self, key: str, look: Look, period_s: float) -> Sampler:
        """The one that looks at `key`. Raises Shortage: too many watch."""
        self._samplers = {name: one for name, one in self._samplers.items() if not one.task.done()}
        if sum(one.watchers for one in self._samplers.values()) >= MOST_WATCHERS:
            raise Shortage("too many pages are open", hint="close some")
        if key not in self._samplers:
            if len(self._samplers) >= MOST_SAMPLERS:
                raise Shortage("too many different pages are open", hint="close some, and wait a minute")
            self._samplers[key] = Sampler(look, period_s)
        return self._samplers[key]

    async def close(self) -> None:
        """End them."""
        tasks = [one.task for one in self._samplers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
