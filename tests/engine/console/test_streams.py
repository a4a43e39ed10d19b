"""Samplers: one for all who watch, the newest for who is slow, an end for who would wait for nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.console.web.streams import MOST_SAMPLERS, MOST_WATCHERS, Samplers
from engine.errors import Shortage, StorageError


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def test_one_look_serves_all_who_watch_and_a_slow_one_gets_the_newest() -> None:
    async def work() -> None:
        looks = 0

        async def look() -> dict[str, int]:
            nonlocal looks
            looks += 1
            return {"n": looks}

        samplers = Samplers()
        sampler = samplers.of("a", look, 0.0)
        assert samplers.of("a", look, 0.0) is sampler
        slow = sampler.watch()
        first = json.loads(await anext(slow))["n"]
        async for sample in sampler.watch():
            if json.loads(sample)["n"] >= first + 5:
                break
        assert json.loads(await anext(slow))["n"] >= first + 5
        await slow.aclose()
        await samplers.close()

    run(work)


def test_an_error_is_a_sample_and_a_bug_ends_the_stream() -> None:
    async def work() -> None:
        looks = 0

        async def look() -> dict[str, int]:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise StorageError("not now")
            raise KeyError("a bug")

        sampler = Samplers().of("a", look, 0.0)
        samples = [json.loads(one) async for one in sampler.watch()]
        assert [one["error"] for one in samples] == ["not now"]
        with pytest.raises(KeyError):
            await sampler.task

    run(work)


def test_they_are_bounded() -> None:
    async def look() -> dict[str, int]:
        return {}

    async def work() -> None:
        samplers = Samplers()
        for number in range(MOST_SAMPLERS):
            samplers.of(str(number), look, 10.0)
        with pytest.raises(Shortage):
            samplers.of("one more", look, 10.0)
        samplers.of("0", look, 10.0).watchers = MOST_WATCHERS
        with pytest.raises(Shortage):
            samplers.of("0", look, 10.0)
        await samplers.close()

    run(work)
