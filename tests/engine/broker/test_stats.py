"""What goes through the broker, counted: windows, rates, latencies; by a clock of the test's own."""

from __future__ import annotations

import pytest

from engine.broker.watch.stats import PUT_TIME_BOUNDS, PutTimes, Stats, StatsRate, Totals

MIDNIGHT_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = MIDNIGHT_MS

    def __call__(self) -> int:
        return self.ms


def after(stats: Stats, clock: Clock, seconds: int) -> None:
    """Let time go by, with its ticks."""
    for _ in range(seconds):
        stats.tick()
        clock.ms += 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stats(clock: Clock) -> Stats:
    return Stats(clock, "Cluster")


def test_a_minute_an_hour_and_a_day(stats: Stats, clock: Clock) -> None:
    for _ in range(120):
        stats.put("T", 2, 300)
        after(stats, clock, 1)
    found = stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute.total == 120  # of sixty seconds, two each
    assert found.minute.tps == pytest.approx(2)
    assert (found.minute.average, found.minute.times) == (2, 60)
    assert found.hour.total == found.day.total == 2  # sampled when the daemon began, and not since
    size = stats.view("TOPIC_PUT_SIZE", "T")
    assert size is not None
    assert size.minute.total == 60 * 300
    after(stats, clock, 3600)
    later = stats.view("TOPIC_PUT_NUMS", "T")
    assert later is not None
    assert (later.minute.total, later.hour.total, later.day.total) == (0, 238, 240)


def test_groups_latency_and_what_came_back(stats: Stats, clock: Clock) -> None:
    stats.got("G", "%RETRY%G@x", 32, 4096, 5)
    stats.got("G", "%RETRY%G@x", 16, 2048, 1)
    stats.sent_back("G", "T")
    after(stats, clock, 11)
    got = stats.view("GROUP_GET_NUMS", "%RETRY%G@x@G")
    assert got is not None
    assert (got.minute.total, got.minute.average) == (48, 24)
    assert stats.group_get_tps("G", "%RETRY%G@x") == pytest.approx(got.minute.tps)
    took = stats.view("GROUP_GET_LATENCY", "%RETRY%G@x@G")
    assert took is not None
    assert took.minute.average == 3
    back = stats.view("SNDBCK_PUT_NUMS", "T@G")
    assert back is not None
    assert back.minute.total == 1
    broker = stats.view("BROKER_GET_NUMS", "Cluster")
    assert broker is not None
    assert broker.minute.total == 48


@pytest.mark.parametrize("name", ["TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "BROKER_PUT_NUMS", "QUEUE_PUT_NUMS", "Nothing"])
def test_what_was_never_counted_is_not_there(stats: Stats, name: str) -> None:
    assert stats.view(name, "T@G") is None
    assert stats.view(name, "Cluster") is None


def test_rates_are_told_as_soon_as_the_daemon_is_old_enough(stats: Stats, clock: Clock) -> None:
    after(stats, clock, 10)
    assert stats.rates().put == StatsRate(None, None, None)
    assert str(stats.rates().put) == "  "
    for _ in range(61):
        stats.put("T", 3, 1)
        stats.got("G", "T", 5, 1)
        stats.missed()
        after(stats, clock, 1)
    rates = stats.rates()
    assert rates.put.ten == pytest.approx(3)
    assert rates.put.minute == pytest.approx(3)
    assert rates.put.ten_minutes is None
    assert (rates.hits.ten, rates.misses.ten, rates.transferred.ten, rates.got.ten) == (1, 1, 5, 2)
    assert str(rates.put) == "3.0 3.0 "


def test_totals_outlive_what_is_deleted(stats: Stats) -> None:
    stats.put("T", 3, 30)
    stats.got("G", "T", 2, 20)
    stats.got("H", "T", 1, 10)
    stats.sent_back("G", "T")
    stats.stored(7)
    stats.failed()
    before = stats.totals()
    assert before == Totals(4, 37, 1, 3, 2, 0)
    stats.forget_group("H")
    stats.forget_topic("T")
    assert stats.totals() == before
    assert not stats.topics
    assert not stats.groups
    assert not stats.backs


def test_midnight(stats: Stats, clock: Clock) -> None:
    stats.put("T", 5, 1)
    stats.tick()
    assert stats.morning == Totals()
    clock.ms += 86_400_000
    stats.tick()
    stats.put("T", 2, 1)
    assert (stats.morning.put, stats.yesterday.put) == (5, 0)
    clock.ms += 86_400_000
    stats.tick()
    assert (stats.morning.put, stats.yesterday.put, stats.totals().put) == (7, 5, 7)


MS = 1_000_000


def test_put_times_are_those_of_the_minute_before() -> None:
    times = PutTimes()
    for took in [*[0] * 90, *[15] * 9, 700]:
        times.add_ns(took * MS)
    assert (times.quantile(0.99), times.longest) == (0, 700)
    times.minute_is_over()
    assert 15 < times.quantile(0.95) <= 16  # its class: 15 ms and what is below 16
    assert times.quantile(0.999) == 16  # 99 of a hundred: the rank is a whole number
    assert 700 <= times.quantile(1) <= 701
    assert times.spread().split()[:3] == ["[<=0ms]:90", "[0~10ms]:0", "[10~50ms]:9"]
    assert "[500ms~1s]:1 " in times.spread()
    times.add_ns(60_000 * MS)
    times.minute_is_over()
    assert times.spread().endswith("[10s~]:1 ")
    assert times.quantile(1) == PUT_TIME_BOUNDS[-1] + 1


def test_puts_of_less_than_a_millisecond_have_quantiles() -> None:
    """Nearly all puts are: 0.00 would say nothing of them."""
    times = PutTimes()
    for took_us in range(1, 1000):
        times.add_ns(took_us * 1000)
    times.minute_is_over()
    for share in (0.1, 0.25, 0.5, 0.75, 0.99, 0.999):
        assert abs(times.quantile(share) - share) <= max(0.06 * share, 0.011)
    assert times.spread().startswith("[<=0ms]:999 [0~10ms]:0 ")
    for took_us in [*[12] * 999, 900]:
        times.add_ns(took_us * 1000)
    times.minute_is_over()
    assert f"{times.quantile(0.99):.2f}" in ("0.01", "0.02")
