"""The rule of every --rate: small delays don't lower it, a long one is not made up for."""

from __future__ import annotations

import asyncio
import time

import pytest

from engine.client.pace import Pace


def test_many_that_wait_share_one_rate() -> None:
    pace = Pace(10)
    assert [pace.begin(5.0, 1) for _ in range(4)] == pytest.approx([5.0, 5.1, 5.2, 5.3])
    assert pace.begin(5.0, 10) == pytest.approx(5.4)
    assert pace.begin(5.0, 1) == pytest.approx(6.4)


def test_small_delays_don_t_lower_the_rate() -> None:
    pace, now, begins = Pace(100), 0.0, []
    for number in range(101):
        begins.append(pace.begin(now, 1))
        now = begins[-1] + (0.03 if number % 5 == 0 else 0.0)  # some waits end late
    assert begins[-1] == pytest.approx(1.0, abs=0.01)


def test_a_long_delay_is_not_made_up_for() -> None:
    pace = Pace(100)
    assert pace.begin(0.0, 1) == 0.0
    begins = [pace.begin(60.0, 1) for _ in range(111)]
    assert begins.count(60.0) == 11  # of the last tenth of a second
    assert begins[-1] == pytest.approx(61.0)


def test_who_waits_is_held() -> None:
    async def run() -> float:
        pace, began = Pace(50), time.monotonic()
        await asyncio.gather(*(pace.wait() for _ in range(11)))
        return time.monotonic() - began

    assert asyncio.run(run()) >= 0.2
    assert asyncio.run(Pace(None).wait()) is None
