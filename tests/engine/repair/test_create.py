"""create_store: an empty store that opens, and that Apache's keys describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import STORE_CONF, STORE_SIZES, StoreConfig, load
from engine.errors import Refused
from engine.files.disk import Disk
from engine.repair.create import create_store
from engine.repair.recover.recover import plan_recover

SMALL = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}


def test_the_sizes_are_kept(tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=tmp_path / "store").with_changes(**SMALL)
    sizes = create_store(Disk(), config)
    assert list(sizes.values()) == [SMALL[name] for name in STORE_SIZES]
    kept = load(tmp_path / "store" / STORE_CONF)
    assert {name: getattr(kept, name) for name in STORE_SIZES} == SMALL
    assert kept.given == frozenset(STORE_SIZES)
    assert not plan_recover(Disk(), config).changed


def test_a_log_elsewhere(tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=tmp_path / "store", store_path_commit_log=str(tmp_path / "log"))
    create_store(Disk(), config)
    assert (tmp_path / "log").is_dir()
    assert not (tmp_path / "store" / "commitlog").exists()


def test_what_is_there_is_left(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(Refused):
        create_store(Disk(), StoreConfig(store_path_root_dir=tmp_path))
    with pytest.raises(Refused):
        create_store(Disk(), StoreConfig(store_path_root_dir=tmp_path / "x"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
