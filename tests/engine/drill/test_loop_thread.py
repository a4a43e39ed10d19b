"""An event loop in a thread of its own: what is done in it comes back, and nothing is left when it is closed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from engine.drill.loop_thread import LoopThread


async def where() -> str:
    return threading.current_thread().name


async def refused() -> None:
    raise ValueError("refused")


def test_what_is_done_there_comes_back() -> None:
    with LoopThread("there") as there:
        assert there.run(where()) == "there"
        with pytest.raises(ValueError, match="refused"):
            there.run(refused())
        assert there.run(where()) == "there"


def test_what_is_under_way_ends_before_it_is_closed() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.1)
            ended.set()

    there = LoopThread("there")
    waiting = there.begin(wait())
    assert begun.wait(60)
    there.close()
    assert ended.is_set()
    with pytest.raises(CancelledError):
        waiting.result(60)
    there.close()


def test_something_is_called_there() -> None:
    called = threading.Event()
    with LoopThread("there") as there:
        there.call(called.set)
        assert called.wait(60)
