"""Repairs of config/ and repairs of the store, killed in any order: neither ends, joins or takes back the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CannotRepair, Refused, StoreChanged
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.store.repairs import repairs, unfinished
from engine.log.derive import TopicQueue
from engine.repair.config.consumer_offsets import list_offsets, plan_offset, set_offset
from engine.repair.config.plan import plan_rebuild
from engine.repair.config.restore import plan_restore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.config import write_config
from tests.support.wide import sample

T0 = TopicQueue("T", 0)
OFFSETS = Path("config") / "consumerOffset.json"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    put(root, 40)
    (root / "config").mkdir(exist_ok=True)
    commit(root, 5)
    write_config(root)
    return root


def commit(root: Path, offset: int) -> None:
    """What a broker leaves that consumers committed to."""
    (root / OFFSETS).write_text(f'{{"offsetTable":{{"T@g":{{0:{offset}}}}}}}')


def offset_of(root: Path) -> int:
    (found,) = [one.offset for one in list_offsets(Disk(), settings(root))[0]]
    return found


def set_to(root: Path, offset: int, disk: Disk | None = None) -> None:
    set_offset(disk or Disk(), plan_offset(Disk(), settings(root), "g", T0, offset))


def recover(root: Path, disk: Disk | None = None, *, bridge: bool = False) -> None:
    apply(disk or Disk(), plan_recover(Disk(), settings(root), bridge=bridge))


def take_back(root: Path) -> None:
    undo(Disk(), plan_undo(Disk(), settings(root)))


def open_ones(root: Path) -> list[str]:
    return [one.manifest["command"] for one in unfinished(repairs(Disk(), os.fspath(root)))]


def kill_set(root: Path, number: int | str) -> None:
    disk = FaultyDisk(None)
    if isinstance(number, str):
        disk.kill_at(number)
    else:
        disk.kill_before(number)
    with pytest.raises(Killed):
        set_to(root, 0, disk)


def changes_of_a_set(store: Path, place: Path) -> int:
    disk = FaultyDisk(None)
    set_to(stores.copy(store, place), 0, disk)
    return disk.changes_seen


@pytest.mark.leaves("log-damage")
def test_a_killed_recovery_is_ended_by_a_recovery_alone(store: Path, tmp_path: Path) -> None:
    """Each command that changes config/ is refused, writes nothing, and names the recovery that ends it."""
    damage(store, 3000, b"\xff" * 500)
    found = 0
    for number in range(4, 400, 5):
        root = stores.copy(store, tmp_path / f"killed-{number}")
        disk = FaultyDisk(None)
        disk.kill_before(number)
        try:
            recover(root, disk, bridge=True)
            break
        except Killed:
            pass
        if not open_ones(root):
            continue
        found += 1
        before = stores.snapshot(root)
        for plan in _config_plans(root):
            with pytest.raises(Refused, match="rstore recover") as refused:
                plan()
            assert refused.value.exit_code == 4
        assert stores.snapshot(root) == before
        assert open_ones(root) == ["recover"]
        recover(root, bridge=True)
        assert open_ones(root) == []
        set_to(root, 0)
        check_clean(root, settings(root), known={"log-bridged"}, why="500 bytes were overwritten")
        shutil.rmtree(root)
    else:
        pytest.fail("never came to its end")
    assert found > 3


def _config_plans(root: Path) -> list[Callable[[], object]]:
    return [
        lambda: plan_offset(Disk(), settings(root), "g", T0, "min"),
        lambda: plan_rebuild(Disk(), settings(root)),
        lambda: plan_restore(Disk(), settings(root), "consumerOffset", "x"),
    ]


def test_a_plan_of_before_is_not_carried_out_behind_a_killed_recovery(store: Path) -> None:
    shutil.rmtree(store / "index")
    plan = plan_offset(Disk(), settings(store), "g", T0, 0)
    kill_recovery(store)
    before = stores.snapshot(store)
    with pytest.raises(Refused, match="rstore recover"):
        set_offset(Disk(), plan)
    assert stores.snapshot(store) == before
    recover(store)
    set_to(store, 0)


def kill_recovery(root: Path) -> None:
    disk = FaultyDisk(None)
    disk.kill_at("recover.index-done")
    with pytest.raises(Killed):
        recover(root, disk)


@pytest.mark.leaves("not-closed")
@pytest.mark.wide
def test_undo_of_a_recovery_leaves_what_a_broker_committed(store: Path, tmp_path: Path) -> None:
    """Behind a killed `offsets set`, at each of its steps: nothing takes the broker's offset back."""
    for number in sample(range(1, changes_of_a_set(store, tmp_path / "whole") + 1), 3, 0):
        root = stores.copy(store, tmp_path / f"killed-{number}")
        kill_set(root, number)
        commit(root, 17)
        (root / "abort").touch()
        recover(root)
        assert open_ones(root) == []
        check_clean(root, settings(root))
        take_back(root)
        assert offset_of(root) == 17
        assert (root / "abort").exists()
        with pytest.raises((StoreChanged, CannotRepair)):  # CannotRepair: killed before there was a manifest
            take_back(root)
        assert offset_of(root) == 17


@pytest.mark.leaves("index-missing")
@pytest.mark.wide
def test_a_killed_offset_and_a_recovery_are_taken_back_one_by_one(store: Path, tmp_path: Path) -> None:
    """Where nothing else has changed the store: the recovery first, then what was left of the offset."""
    shutil.rmtree(store / "index")
    before = stores.contents(store / "config"), stores.contents(store / "commitlog")
    for number in sample(range(1, changes_of_a_set(store, tmp_path / "whole") + 1), 3, 1):
        root = stores.copy(store, tmp_path / f"killed-{number}")
        kill_set(root, number)
        left = stores.contents(root / "config")
        begun = repairs(Disk(), os.fspath(root))
        recover(root)
        check_clean(root, settings(root))
        take_back(root)
        assert stores.contents(root / "config") == left
        assert not (root / "index").exists()
        if begun:
            take_back(root)
            assert (stores.contents(root / "config"), stores.contents(root / "commitlog")) == before
        with pytest.raises(CannotRepair, match="no repair"):
            take_back(root)


@pytest.mark.wide
def test_a_killed_offset_is_gone_on_from_by_the_next(store: Path, tmp_path: Path) -> None:
    """One undo takes both back; but not what a broker committed between them."""
    before = stores.contents(store / "config")
    for number in sample(range(1, changes_of_a_set(store, tmp_path / "whole") + 1), 3, 2):
        root = stores.copy(store, tmp_path / f"killed-{number}")
        kill_set(root, number)
        if not open_ones(root):  # before its manifest, or behind its end
            continue
        broker = stores.copy(root, tmp_path / f"broker-{number}")
        set_to(root, 3)
        assert open_ones(root) == []
        take_back(root)
        assert stores.contents(root / "config") == before
        commit(broker, 17)
        set_to(broker, 3)
        take_back(broker)
        assert offset_of(broker) == 17
        check_clean(broker, settings(broker))


def test_undo_of_a_killed_offset_is_refused_once_a_broker_has_written(store: Path) -> None:
    """Also where the store's other files are as they were."""
    kill_set(store, "config.written")
    commit(store, 17)
    with pytest.raises(StoreChanged):
        take_back(store)
    assert offset_of(store) == 17
    recover(store)


@pytest.mark.leaves("index-missing")
def test_a_killed_recovery_behind_a_killed_offset(store: Path) -> None:
    """The recovery has closed it before its own first change: both are taken back, one by one."""
    shutil.rmtree(store / "index")
    before = stores.contents(store / "config")
    kill_set(store, "config.written")
    kill_recovery(store)
    assert open_ones(store) == ["recover"]
    recover(store)
    check_clean(store, settings(store))
    take_back(store)
    assert not (store / "index").exists()
    assert offset_of(store) == 0
    take_back(store)
    assert stores.contents(store / "config") == before


@pytest.mark.leaves("config-bak", "file-stray")
@pytest.mark.parametrize("suffix", ["", ".bak", ".tmp", ".bak.tmp"])
def test_a_directory_in_the_place_of_a_file_is_set_aside(suffix: str, store: Path) -> None:
    """`rebuild-config` and `offsets set` come to their end, and undo brings the directory back."""
    place = store / f"{OFFSETS}{suffix}"
    if suffix:
        place.mkdir()
    else:
        place.rename(f"{place}.bak")
        place.mkdir()
    (place / "kept").write_text("x")
    before = stores.contents(store / "config")
    set_to(store, 0)
    assert open_ones(store) == []
    assert offset_of(store) == 0
    check_clean(store, settings(store))
    take_back(store)
    assert stores.contents(store / "config") == before
