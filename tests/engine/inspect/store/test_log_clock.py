"""log_clock: the place of every time, as reading every record tells it, with few looks."""

from __future__ import annotations

import pytest

from engine.format.message import Message
from engine.format.record import store_timestamp_position
from engine.inspect.store import log_clock
from engine.inspect.store.log_clock import LogClock, store_time_at
from tests.support import logs

LIMIT = 4 << 20


def log_of(count: int, *, body: int = 200, segment: int = 1 << 16, step: int = 1000) -> tuple[logs.Built, list[int]]:
    """A log, and the store time of each record: three records share one."""
    built = logs.build((Message("T", bytes([i % 251]) * body) for i in range(count)), segment)
    times = [logs.STORE_TIME + i // 3 * step for i in range(count)]
    for offset, time in zip(built.offsets, times, strict=True):
        built.log.write(offset + store_timestamp_position(0), time.to_bytes(8, "big"))
    return built, times


def first_at(built: logs.Built, times: list[int], time: int) -> int:
    return next((o for o, t in zip(built.offsets, times, strict=True) if t >= time), built.end)


@pytest.mark.parametrize("near", [100, 1000, 1 << 16])
def test_every_time_has_its_place(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_clock, "_NEAR", near)
    built, times = log_of(700)
    clock = LogClock(built.log, built.end, LIMIT)
    assert len(built.log.files) > 2
    for time in sorted({t + d for t in times for d in (-1, 0, 1)}):
        assert clock.offset_of(time) == first_at(built, times, time), time
    assert clock.offset_of(0) == 0
    assert clock.offset_of(times[-1] + 10**9) == built.end


def test_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_clock, "_NEAR", 4 << 10)
    monkeypatch.setattr(log_clock, "_WINDOW", 1 << 10)
    built, times = log_of(12_000, segment=4 << 20)
    clock = LogClock(built.log, built.end, LIMIT)
    built.log.reads = 0
    assert clock.offset_of(times[7777]) == first_at(built, times, times[7777])
    assert built.log.reads < 100


def test_a_segment_that_is_missing_and_one_that_is_damaged() -> None:
    built, times = log_of(900)
    segments = sorted(built.log.files)
    del built.log.files[segments[1]]
    built.log.write(segments[2], bytes(40))
    there = [
        (o, t)
        for o, t in zip(built.offsets, times, strict=True)
        if not segments[1] <= o < segments[2] and o != segments[2]
    ]
    clock = LogClock(built.log, built.end, LIMIT)
    for time in times:
        assert clock.offset_of(time) == next(o for o, t in there if t >= time), time


def test_a_clock_that_went_back_is_told() -> None:
    built, _ = log_of(900)
    at = sorted(built.log.files)[2]
    built.log.write(at + store_timestamp_position(0), (logs.STORE_TIME - 5).to_bytes(8, "big"))
    clock = LogClock(built.log, built.end, LIMIT)
    ((offset, before, there),) = clock.went_back
    assert (offset, there) == (at, logs.STORE_TIME - 5)
    assert before > there


def test_where_no_record_is() -> None:
    built, times = log_of(10)
    assert store_time_at(built.log, built.offsets[4]) == times[4]
    assert store_time_at(built.log, built.offsets[4] + 1) == 0
    assert store_time_at(built.log, 1 << 40) == 0
    built.log.unreadable.add(0)
    assert store_time_at(built.log, 0) == 0
    empty = logs.MemoryLog({0: bytearray(1 << 16)})
    assert LogClock(empty, 0, LIMIT).offset_of(1) == 0
