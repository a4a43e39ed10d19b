"""status: ends, times and space from a glance are those of the whole store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair import status as module
from engine.repair.status import State, status
from tests.support import fixtures

Store = Callable[[str], Path]


def look(store: Path) -> module.StoreStatus:
    return status(Disk(), StoreConfig(store_path_root_dir=store))


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_a_glance_sees_the_end(name: str, fixture_store: Store) -> None:
    found = look(fixture_store(name))
    log = [line for line in fixtures.dump(name) if line["type"] == "log"]
    assert found.log.max_offset == fixtures.manifest(name)["maxPhyOffset"]
    assert found.log.min_timestamp == log[0]["storeTimestamp"]
    assert found.log.max_timestamp == log[-1]["storeTimestamp"]
    assert (found.log.behind, found.log.damage, found.log.missing) == (0, None, 0)
    queues = [line for line in fixtures.dump(name) if line["type"] == "queue"]
    assert sum(t.messages for t in found.topics) == sum(q["max"] - q["min"] for q in queues)


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
    assert (found.log.behind, found.log.behind_bytes) == (1, last["cqSize"])
    assert found.log.max_offset == whole.log.max_offset


def test_queues_that_are_gone(fixture_copy: Store) -> None:
    import shutil

    store = fixture_copy("clean-small")
    whole = look(store)
    shutil.rmtree(store / "consumequeue")
    found = look(store)
    assert (found.state, found.log.max_offset) == (State.CLEAN, whole.log.max_offset)
    assert found.log.behind > 500


def test_damage_at_the_end_is_seen(fixture_copy: Store) -> None:
    import shutil

    store = fixture_copy("clean-small")
    shutil.rmtree(store / "consumequeue")
    with (store / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.write(bytes(100))
    damage = look(store).log.damage
    assert damage is not None
    assert damage[0] == 131072


def test_long_queues_are_estimated(fixture_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = look(fixture_store("clean-small"))
    monkeypatch.setattr(module, "EXACT_ROWS", 40)
    monkeypatch.setattr(module, "_SAMPLES", 4)
    monkeypatch.setattr(module, "_SAMPLE_ROWS", 8)
    rough = look(fixture_store("clean-small"))
    by_name = {t.topic: t for t in rough.topics}
    assert any(t.estimated for t in rough.topics)
    for topic in exact.topics:
        assert by_name[topic.topic].messages == topic.messages
        assert 0.2 < by_name[topic.topic].size / topic.size < 5
