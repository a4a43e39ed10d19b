"""forecast: the rate of a window, and when the disk reaches what, on a disk of a chosen size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig, parse
from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.files.lock import StoreLock
from engine.inspect.status.forecast import longest_wait
from engine.inspect.status.status import StoreStatus, status
from tests.engine.inspect.aged import HOUR, START, STEP, age, records
from tests.support import fixtures

Store = Callable[[str], Path]
NAME = "crashed-small"


class RoomyDisk(Disk):
    """The real disk, but for the room that its file systems claim, and the time."""

    def __init__(self, used: int, entire: int, now: int, far: str | None = None) -> None:
        super().__init__()
        self._room, self._now, self._far = (used, entire), now, far

    def usage(self, path: str) -> Usage:
        used, entire = self._room
        return Usage(entire + 77, used, entire - used)  # root's reserve belongs to neither

    def now_ms(self) -> int:
        return self._now

    def device(self, path: str) -> int:
        return 2 if self._far is not None and path.startswith(self._far) else 1


@pytest.fixture
def aged(fixture_copy: Store) -> Path:
    store = fixture_copy(NAME)
    age(store, NAME)
    return store


def bytes_since(start: int) -> int:
    """Log bytes from the first record stored at `start` or later up to the log's end."""
    first = next(r["physicalOffset"] for r in records(NAME) if r["time"] >= start)
    return int(fixtures.manifest(NAME)["maxPhyOffset"]) - first


LAST = max(r["time"] for r in records(NAME))
"""Store time of the newest message (ms)."""


def look(store: Path, disk: Disk, **options: Any) -> StoreStatus:
    conf = options.pop("conf", "")
    base = parse(conf) if conf else StoreConfig()
    return status(disk, base.with_changes(store_path_root_dir=store), **options)


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
@pytest.mark.parametrize("hours", [1, 6, 24])
def test_the_rate_of_a_store_that_stands_still(hours: int, aged: Path) -> None:
    found = look(aged, RoomyDisk(10, 100, LAST + 1000 * HOUR), rate_hours=hours).forecast
    start = LAST - hours * HOUR
    assert found.rate is not None
    assert (found.rate.start, found.rate.end, found.rate.live) == (start, LAST, False)
    assert found.rate.size == bytes_since(start)
    assert found.rate.per_hour == round(bytes_since(start) / hours)
    assert [r.hours for r in found.rates] == [1, 6, 24]
    assert all(t.at is None for s in found.file_systems for t in s.thresholds)


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_the_rate_of_a_store_that_is_written_ends_now(aged: Path) -> None:
    now = LAST + 3 * HOUR
    with StoreLock(Disk(), str(aged)):
        found = look(aged, RoomyDisk(10, 100, now), rate_hours=4).forecast
        assert found.rate is not None
        assert (found.rate.end, found.rate.live, found.rate.size) == (now, True, bytes_since(LAST - HOUR))
        silent = look(aged, RoomyDisk(10, 100, now + 100 * HOUR), rate_hours=4).forecast
    assert silent.rate is not None
    assert (silent.rate.size, silent.rate.per_hour) == (0, 0)
    assert [t.state for t in silent.file_systems[0].thresholds] == ["never"] * 3
    assert silent.file_systems[0].steady_ratio is None


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_a_log_younger_than_the_window(aged: Path) -> None:
    found = look(aged, RoomyDisk(10, 100, LAST), rate_hours=5000).forecast
    assert found.rate is not None
    assert (found.rate.start, found.rate.hours) == (START, 5000)
    assert found.rate.size == bytes_since(START)


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_when_the_disk_fills(aged: Path) -> None:
    now = LAST + STEP
    entire = 1 << 30
    used = entire * 80 // 100
    with StoreLock(Disk(), str(aged)):
        (system,) = look(aged, RoomyDisk(used, entire, now)).forecast.file_systems
    assert system.used_ratio == 0.80
    first, second, third = system.thresholds
    assert (first.percent, first.state, first.hours, first.at) == (75, "already", 0.0, now)
    for threshold, percent in ((second, 85), (third, 90)):
        assert threshold.hours is not None
        assert threshold.at is not None
        reached = used + threshold.hours * system.per_hour
        assert reached == pytest.approx(entire * percent / 100, rel=1e-3)
        assert threshold.at == now + round(threshold.hours * HOUR)


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_queues_and_index_grow_with_the_log(aged: Path) -> None:
    found = look(aged, RoomyDisk(1, 1 << 40, LAST))
    units = sum(t.messages for t in found.topics)
    beside = (units * 20 + found.index_entries * 20) / (found.log.max_offset - found.log.min_offset)
    assert found.forecast.rate is not None
    (system,) = found.forecast.file_systems
    assert system.per_hour == round(found.forecast.rate.per_hour * (1 + beside))
    assert system.log_bytes == found.log.size


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_used_is_rounded_up_to_a_whole_per_cent(aged: Path) -> None:
    found = look(aged, RoomyDisk(74_001, 100_000, LAST)).forecast.file_systems[0]
    assert found.used_ratio == 0.75
    assert found.thresholds[0].state == "ahead"
    found = look(aged, RoomyDisk(75_000, 100_000, LAST)).forecast.file_systems[0]
    assert found.thresholds[0].state == "already"


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
@pytest.mark.parametrize(
    ("conf", "percent"), [("", 75), ("diskMaxUsedSpaceRatio=60", 60), ("diskMaxUsedSpaceRatio=99", 95)]
)
def test_the_first_threshold_is_the_setting(conf: str, percent: int, aged: Path) -> None:
    found = look(aged, RoomyDisk(10, 100, LAST), conf=conf).forecast.file_systems[0]
    assert [t.percent for t in found.thresholds] == sorted([percent, 85, 90])


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_retention_levels_the_log_off(aged: Path) -> None:
    conf = "fileReservedTime=10\ndeleteWhen=04;16"
    found = look(aged, RoomyDisk(1 << 20, 1 << 40, LAST), conf=conf).forecast
    kept = found.retention
    assert found.rate is not None
    assert (kept.reserved, kept.given, kept.wait) == (10, True, 12)
    assert kept.steady == found.rate.per_hour * 22 + fixtures.manifest(NAME)["settings"]["mappedFileSizeCommitLog"]
    assert all(t.retention_holds for t in found.file_systems[0].thresholds)
    tight = look(aged, RoomyDisk(700_000, 1_000_000, LAST), conf="fileReservedTime=1000").forecast
    assert tight.file_systems[0].steady_ratio is not None
    assert tight.file_systems[0].steady_ratio > 0.9
    assert not any(t.retention_holds for t in tight.file_systems[0].thresholds)


@pytest.mark.parametrize(
    ("hours", "wait"), [({4}, 24), ({4, 16}, 12), ({1, 2, 3}, 22), (set(), None), ({0, 23}, 23), ({4, 5}, 23)]
)
def test_the_longest_wait_for_an_hour(hours: set[int], wait: int | None) -> None:
    assert longest_wait(hours) == wait


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_no_deletion_is_promised_that_delete_when_prevents(aged: Path) -> None:
    found = look(aged, RoomyDisk(10, 100, LAST), conf="deleteWhen=04 # at night").forecast
    kept = found.retention
    assert (kept.wait, kept.steady, kept.stops) == (None, None, True)
    assert kept.problem is not None
    assert "nothing is ever deleted, however full the disk is" in kept.problem
    assert [(t.percent, t.does) for t in found.file_systems[0].thresholds] == [
        (75, "nothing is deleted (deleteWhen)"),
        (90, "puts are refused"),
    ]
    assert not any(t.retention_holds for t in found.file_systems[0].thresholds)
    partly = look(aged, RoomyDisk(10, 100, LAST), conf="deleteWhen=04; 16").forecast
    assert (partly.retention.wait, partly.retention.stops) == (24, True)
    assert partly.file_systems[0].thresholds[0].does == "files are deleted at 04 o'clock only (deleteWhen)"


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_the_ratios_of_the_jvm_are_settings(aged: Path) -> None:
    conf = "rocketmq.broker.diskSpaceWarningLevelRatio=0.955\nrocketmq.broker.diskSpaceCleanForciblyRatio=0.7"
    found = look(aged, RoomyDisk(96, 100, LAST), conf=conf).forecast.file_systems[0]
    assert [(t.percent, t.state) for t in found.thresholds] == [(70, "already"), (75, "already"), (95.5, "already")]


@pytest.mark.leaves
def test_two_file_systems(fixture_copy: Store) -> None:
    store = fixture_copy(NAME)
    age(store, NAME)
    other = store.parent / "elsewhere"
    other.mkdir()
    moved = sorted((store / "commitlog").iterdir())[1]
    os.replace(moved, other / moved.name)
    conf = f"storePathCommitLog={store / 'commitlog'},{other}"
    found = look(store, RoomyDisk(10, 1 << 40, LAST, far=str(other)), conf=conf).forecast
    near, far = found.file_systems
    size = fixtures.manifest(NAME)["settings"]["mappedFileSizeCommitLog"]
    assert near.paths == (str(store / "commitlog"), str(store))
    assert (far.paths, far.log_bytes) == ((str(other),), size)
    assert found.rate is not None
    assert far.per_hour == round(found.rate.per_hour / 2)
    assert near.per_hour == round(found.rate.per_hour * (0.5 + found.derived_ratio))


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = look(tmp_path, RoomyDisk(10, 100, LAST)).forecast
    assert (found.rate, found.rates) == (None, ())
    assert [t.state for t in found.file_systems[0].thresholds] == ["never"] * 3


def test_less_than_an_hour_forecasts_nothing(fixture_store: Store) -> None:
    """crashed-small as it is: some minutes of a load test, which would be 42 days of such writing."""
    found = look(fixture_store(NAME), RoomyDisk(80, 100, LAST)).forecast
    assert found.rate is not None
    assert found.rate.per_hour > 0
    assert not found.rate.enough
    (system,) = found.file_systems
    assert [t.state for t in system.thresholds] == ["already", "unknown", "unknown"]
    assert (system.per_hour, system.steady_ratio, found.retention.steady) == (0, None, None)
