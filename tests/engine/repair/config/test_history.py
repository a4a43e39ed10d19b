"""The history of config/: what a daemon keeps, what is listed, what comes back."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.tables.config_history import ConfigHistory
from engine.config import StoreConfig
from engine.errors import CannotRepair, InvalidArgument
from engine.files.disk import Disk
from engine.format import fastjson
from engine.inspect.store.config_shapes import CONSUMERS, TOPICS
from engine.repair.config.history import DAYS, HOURS, MINUTE_MS, NEWEST, keep, states, too_many
from engine.repair.config.plan import plan_rebuild
from engine.repair.config.restore import history, plan_restore, restore
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.broker.client import Client, daemon
from tests.engine.repair.test_rules import put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.config import write_config


class Clock(Disk):
    """A disk with a clock of its own."""

    now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now


def config(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root)


def test_a_daemon_keeps_what_was_there_and_what_came(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def run(topic: str) -> None:
        async with daemon(root) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put(topic, b"x")).code == 0

    asyncio.run(run("Old"))
    shutil.rmtree(root / "config.history")
    before = (root / "config" / TOPICS).read_bytes()
    asyncio.run(run("New"))
    kept = states(Disk(), str(root), TOPICS)
    assert [state.data(Disk()) for state in kept][-1] == before
    assert "New" in fastjson.loads(kept[0].data(Disk()).decode())["topicConfigTable"]
    assert "1 topic new (New)" in history(Disk(), config(root), "topics.json")[0].change


def test_offsets_are_kept_once_a_minute(tmp_path: Path) -> None:
    disk = Clock()
    disk.concurrent = False
    found = ConfigHistory(disk, str(tmp_path))
    for i in range(60):
        found.note(CONSUMERS, b'{"offsetTable":{"T@g":{0:%d}}}' % i)
        disk.now += 5_000
    kept = [state.data(disk) for state in states(disk, str(tmp_path), CONSUMERS)]
    assert kept == [b'{"offsetTable":{"T@g":{0:%d}}}' % i for i in (48, 36, 24, 12, 0)]
    found.close()  # the last one is kept at the end
    assert states(disk, str(tmp_path), CONSUMERS)[0].data(disk).endswith(b"{0:59}}}")


def test_a_thread_of_its_own_writes(tmp_path: Path) -> None:
    found = ConfigHistory(Disk(), str(tmp_path))
    found.note(TOPICS, b'{"topicConfigTable":{}}')
    found.note(TOPICS, b'{"topicConfigTable":{"A":{}}}')
    found.note("kvConfig.json", b"{}")
    found.close()
    assert states(Disk(), str(tmp_path), TOPICS)[0].data(Disk()) == b'{"topicConfigTable":{"A":{}}}'
    assert not (tmp_path / "config.history" / "kvConfig.json").exists()


def test_the_same_state_is_kept_once(tmp_path: Path) -> None:
    disk = Disk()
    assert keep(disk, str(tmp_path), TOPICS, b"{}", 1_700_000_000_000)
    assert not keep(disk, str(tmp_path), TOPICS, b"{}", 1_700_000_100_000)
    assert not keep(disk, str(tmp_path), TOPICS, b"", 1_700_000_100_000)
    assert keep(disk, str(tmp_path), TOPICS, b"[]", 1_600_000_000_000)  # a clock that went back
    assert [state.data(disk) for state in states(disk, str(tmp_path), TOPICS)] == [b"[]", b"{}"]


@given(st.lists(st.integers(0, 20 * 24 * 60), max_size=60))
def test_few_stay_and_they_reach_back(minutes: list[int]) -> None:
    """As states come one after another: bounded, the newest always there, one a day for a week."""
    now, kept = 1_700_000_000_000, []
    for step in minutes:
        now += 1 + step * MINUTE_MS
        kept.insert(0, now)
        for gone in too_many(kept):
            kept.remove(gone)
        assert kept[0] == now
        assert len(kept) <= NEWEST + HOURS + DAYS


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    put(root, 40)
    write_config(root)
    for i in range(3):
        keep(Disk(), str(root), CONSUMERS, b'{"offsetTable":{"T@g":{0:%d,1:4}}}' % i, 1_700_000_000_000 + i * MINUTE_MS)
    (root / "config" / CONSUMERS).write_text('{"offsetTable":{"T@g":{0:9,1:4}}}')
    return root


@pytest.mark.parametrize(("at", "offset"), [("20231114T221420.000Z", 1), (1_700_000_000_000 + 90_000, 1), (1 << 50, 2)])
def test_a_state_is_brought_back(at: str | int, offset: int, store: Path) -> None:
    before = stores.snapshot(store / "config")
    plan = plan_restore(Disk(), settings(store), "consumerOffset.json", at)
    assert plan.changed
    assert "1 offset changed" in plan.change
    assert stores.snapshot(store / "config") == before
    restore(Disk(), plan)
    assert fastjson.loads((store / "config" / CONSUMERS).read_text())["offsetTable"]["T@g"]["0"] == offset
    assert not plan_restore(Disk(), settings(store), CONSUMERS, at).changed
    check_clean(store, settings(store))
    undo(Disk(), plan_undo(Disk(), settings(store)))
    assert {p: s.digest for p, s in stores.snapshot(store / "config").items()} == {
        p: s.digest for p, s in before.items()
    }


def test_a_topic_table_that_comes_back_has_a_new_version(store: Path) -> None:
    keep(Disk(), str(store), TOPICS, (store / "config" / TOPICS).read_bytes(), 1_700_000_000_000)
    now = json.loads((store / "config" / TOPICS).read_text())
    now["dataVersion"] = {"counter": 41, "timestamp": 1}
    del now["topicConfigTable"]["T"]
    (store / "config" / TOPICS).write_text(json.dumps(now))
    restore(Disk(), plan_restore(Disk(), settings(store), TOPICS, 1 << 50))
    new = json.loads((store / "config" / TOPICS).read_text())
    assert "T" in new["topicConfigTable"]
    assert new["dataVersion"]["counter"] == 42
    assert not plan_restore(Disk(), settings(store), TOPICS, 1 << 50).changed


def test_what_can_not_be_brought_back(store: Path) -> None:
    keep(Disk(), str(store), TOPICS, b"{", 1_700_000_000_000)
    with pytest.raises(CannotRepair):
        plan_restore(Disk(), settings(store), TOPICS, 1 << 50)
    for name, at in ((TOPICS, 5), ("nothing.json", 1 << 50), (CONSUMERS, "20231114T221420.001Z")):
        with pytest.raises(InvalidArgument):
            plan_restore(Disk(), settings(store), name, at)


def test_a_rebuild_takes_from_the_history(store: Path) -> None:
    (store / "config" / CONSUMERS).unlink()
    plan = plan_rebuild(Disk(), settings(store))
    (one,) = plan.changes
    assert one.value["offsetTable"] == {"T@g": {"0": 2, "1": 4}}
    assert one.sources[0].startswith("config.history/consumerOffset.json/")
