"""One timer for many awaits: each has its whole time, and is told from a cancellation by others."""

from __future__ import annotations

import asyncio
import time

import pytest

from engine.client.time_limit import TimeLimit


async def quick(limit: TimeLimit, limit_s: float, takes_s: float = 0) -> None:
    """What is not ended, unless the machine stands still for its whole time."""
    began = time.monotonic()
    try:
        with limit:
            await asyncio.sleep(takes_s)
    except TimeoutError:
        assert time.monotonic() - began >= limit_s


def test_what_takes_longer_ends_and_the_next_has_its_own_time() -> None:
    async def run() -> None:
        limit = TimeLimit(0.05)
        for _ in range(3):
            with pytest.raises(TimeoutError), limit:
                await asyncio.sleep(60)
            await quick(limit, 0.05)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        limit.close()

    asyncio.run(run())


def test_quick_ones_in_a_row_are_not_ended_by_the_first_ones_timer() -> None:
    async def run() -> None:
        limit = TimeLimit(1.0)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            await quick(limit, 1.0, 0.01)
        limit.close()

    asyncio.run(run())


def test_a_cancellation_by_others_stays_one() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            limit = TimeLimit(60)
            with limit:
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_nothing_is_ended_between_two() -> None:
    async def run() -> None:
        limit = TimeLimit(0.02)
        await quick(limit, 0.02)
        await asyncio.sleep(0.1)
        await quick(limit, 0.02)
        limit.close()

    asyncio.run(run())
