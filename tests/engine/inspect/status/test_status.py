"""status: ends, times and space from a glance are those of the whole store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.record import store_timestamp_position
from engine.inspect.status import queue_space
from engine.inspect.status import status as module
from engine.inspect.status.space import ALL_HOURS, OLDER
from engine.inspect.status.status import StoreCondition, status
from engine.log.scan import Scanner
from tests.engine.inspect import aged
from tests.engine.inspect.aged import HOUR
from tests.support import fixtures

Store = Callable[[str], Path]


def look(store: Path, **options: Any) -> module.StoreStatus:
    return status(Disk(), StoreConfig(store_path_root_dir=store), **options)


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_a_glance_sees_the_end(name: str, fixture_store: Store) -> None:
    found = look(fixture_store(name))
    log = [line for line in fixtures.dump(name) if line["type"] == "log"]
    assert found.log.max_offset == fixtures.manifest(name)["maxPhyOffset"]
    assert found.log.min_timestamp == log[0]["storeTimestamp"]
    assert found.log.max_timestamp == log[-1]["storeTimestamp"]
    assert (found.log.not_dispatched, found.log.damage, found.log.missing) == (0, None, 0)
    queues = [line for line in fixtures.dump(name) if line["type"] == "queue"]
    assert sum(t.messages for t in found.topics) == sum(q["max"] - q["min"] for q in queues)


@pytest.mark.leaves("unit-missing")
def test_what_is_not_dispatched_yet(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    whole = look(store)
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    last = max(messages, key=lambda m: m["cqPhyOffset"])
    path = store / "consumequeue" / last["cqTopic"] / str(last["cqQueueId"])
    at = last["cqOffset"] * 20
    with (path / f"{at // 2000 * 2000:020d}").open("r+b") as file:
        file.seek(at % 2000)
        file.write(bytes(20))
    found = look(store)
    assert (found.log.not_dispatched, found.log.not_dispatched_bytes) == (1, last["cqSize"])
    assert found.log.max_offset == whole.log.max_offset


@pytest.mark.leaves("unit-missing")
def test_queues_that_are_gone(fixture_copy: Store) -> None:
    import shutil

    store = fixture_copy("clean-small")
    whole = look(store)
    shutil.rmtree(store / "consumequeue")
    found = look(store)
    assert (found.state, found.log.max_offset) == (StoreCondition.CLEAN, whole.log.max_offset)
    assert found.log.not_dispatched > 500


@pytest.mark.leaves("log-damage", "unit-missing")
def test_damage_at_the_end_is_seen(fixture_copy: Store) -> None:
    import shutil

    store = fixture_copy("clean-small")
    shutil.rmtree(store / "consumequeue")
    with (store / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.write(bytes(100))
    damage = look(store).log.damage
    assert damage is not None
    assert damage[0] == 131072


def test_many_units_are_estimated_unless_all_are_asked_for(
    fixture_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fixture_store("clean-small")
    exact = look(store)
    monkeypatch.setattr(module, "EXACT_ROWS", 40)
    monkeypatch.setattr(module, "_EXACT_QUEUE", 40)
    monkeypatch.setattr(queue_space, "_BLOCKS", 8)
    monkeypatch.setattr(queue_space, "_BLOCK_ROWS", 8)
    rough = look(store)
    assert (exact.estimated, rough.estimated) == (False, True)
    by_name = {t.topic: t for t in rough.topics}
    assert any(t.estimated for t in rough.topics)
    for topic in exact.topics:
        assert by_name[topic.topic].messages == topic.messages
        assert 0.2 < by_name[topic.topic].size / topic.size < 5
    assert look(store, full=True).topics == exact.topics


@pytest.mark.leaves("checkpoint-ahead", "unit-delivery-other")
@pytest.mark.parametrize("name", ["clean-small", "lmq"])
@pytest.mark.parametrize("hours", [1, 5, 24, 1000])
def test_space_by_hour_is_what_the_log_holds(name: str, hours: int, fixture_copy: Store) -> None:
    store = fixture_copy(name)
    aged.age(store, name)
    found = look(store, hours=hours)
    log = aged.records(name)
    first = max(log[0]["time"] // HOUR, log[-1]["time"] // HOUR - hours + 1) * HOUR
    assert [h.start for h in found.hours[1:]] == list(range(first, log[-1]["time"] + 1, HOUR))

    def hour_of(time: int) -> int:
        return OLDER if time < first else time // HOUR * HOUR

    places = [r["physicalOffset"] for r in log] + [found.log.max_offset]
    sizes: Counter[int] = Counter()
    for record, after in zip(log, places[1:], strict=True):
        sizes[hour_of(record["time"])] += after - record["physicalOffset"]
    assert {h.start: h.size for h in found.hours if h.size} == sizes
    assert sum(h.size for h in found.hours) == found.log.max_offset
    cells: dict[tuple[str, int], list[int]] = {}
    for unit in aged.units(name):
        cell = cells.setdefault((unit["topic"], hour_of(unit["time"])), [0, 0])
        cell[0] += 1
        cell[1] += unit["size"]
    assert {(t.topic, hour): cell for t in found.topics for hour, cell in t.hours.items()} == cells
    by_hour: Counter[int] = Counter()
    for (_, hour), (messages, _) in cells.items():
        by_hour[hour] += messages
    assert {h.start: h.messages for h in found.hours if h.messages} == by_hour


@pytest.mark.leaves("checkpoint-ahead", "unit-delivery-other")
def test_full_tells_all_hours(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    aged.age(store, "clean-small")
    found = look(store, full=True, hours=1)
    log = aged.records("clean-small")
    assert len(found.hours) - 1 == log[-1]["time"] // HOUR - log[0]["time"] // HOUR + 1
    assert (found.hours[0].size, found.hours[0].messages) == (0, 0)


@pytest.mark.leaves("index-witness", "record-suspect", "unit-delivery-time", "unit-witness")
def test_a_store_time_centuries_off_costs_no_centuries(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    log = aged.records("clean-small")
    last = log[-1]["physicalOffset"]
    with (store / "commitlog" / f"{last // 131072 * 131072:020d}").open("r+b") as file:
        file.seek(last % 131072 + store_timestamp_position(log[-1]["sysFlag"]))
        file.write((1 << 60).to_bytes(8, "big"))
    found = look(store, full=True)
    assert len(found.hours) == ALL_HOURS + 1
    assert sum(h.size for h in found.hours) == found.log.max_offset


def test_units_whose_messages_are_gone_do_not_count(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{0:020d}").unlink()
    kept = [u for u in aged.units("clean-small") if u["physicalOffset"] >= 131072]
    found = look(store)
    assert sum(t.messages for t in found.topics) == len(kept)
    assert sum(t.size for t in found.topics) == sum(u["size"] for u in kept)


def test_the_oldest_and_the_newest_message(fixture_store: Store) -> None:
    log = [line for line in fixtures.dump("crashed-small") if line["type"] == "log"]
    state = look(fixture_store("crashed-small")).log
    for place, record in ((state.oldest, log[0]), (state.newest, log[-1])):
        assert place is not None
        assert (place.offset, place.timestamp) == (record["physicalOffset"], record["storeTimestamp"])
        assert (place.topic, place.queue_id) == (record["topic"], record["queueId"])
        assert Path(place.path).name == f"{place.offset // 131072 * 131072:020d}"


@pytest.mark.leaves("checkpoint-ahead", "unit-delivery-other")
def test_a_clock_that_went_back(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    aged.age(store, "clean-small")
    record = next(r for r in aged.records("clean-small") if r["physicalOffset"] == 131072)
    with (store / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.seek(store_timestamp_position(record["sysFlag"]))
        file.write((aged.START - HOUR).to_bytes(8, "big"))
    assert [f.code for f in look(store).findings] == ["clock-back"]


@pytest.mark.leaves("index-orphaned", "log-missing")
def test_without_a_log_the_queues_still_tell(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    whole = look(store)
    for path in (store / "commitlog").iterdir():
        path.unlink()
    found = look(store)
    assert found.state is StoreCondition.LOG_MISSING
    assert [(t.topic, t.messages, t.size) for t in found.topics] == [
        (t.topic, t.messages, t.size) for t in whole.topics
    ]
    assert (found.log.oldest, found.log.newest, found.forecast.rate) == (None, None, None)


@pytest.mark.leaves("index-orphaned", "unit-orphaned")
def test_the_end_of_a_log_that_lost_its_last_segments(fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("clean-small")
    segments = sorted((store / "commitlog").iterdir())
    for path in segments[2:]:
        path.unlink()
    begun: list[int] = []
    scan = Scanner.scan

    def watched(self: Scanner, start: int, *args: Any, **options: Any) -> Any:
        begun.append(start)
        return scan(self, start, *args, **options)

    monkeypatch.setattr(Scanner, "scan", watched)
    found = look(store)
    left = [r for r in aged.records("clean-small") if r["physicalOffset"] < 2 * 131072]
    assert found.log.newest is not None
    assert found.log.newest.offset == left[-1]["physicalOffset"]
    assert found.log.newest.timestamp == left[-1]["storeTimestamp"]
    assert begun[0] == left[-1]["physicalOffset"] + left[-1]["size"]
    assert sum(t.messages for t in found.topics) > 0
