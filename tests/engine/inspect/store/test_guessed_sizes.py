"""No command makes files of Apache's default size in silence, where neither a setting nor a file tells the size."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.index_file import IndexLayout
from engine.inspect.store.guessed_sizes import guessed_sizes, of_puts
from engine.inspect.store.survey import survey
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex.reindex import Scope, build
from tests.conftest import Store

pytestmark = pytest.mark.leaves("index-missing", "unit-missing")

DEFAULT = "index file size unknown: new files get Apache's default, 420000040 bytes"
LAYOUT = {"max_hash_slot_num": 200, "max_index_num": 800}


@pytest.fixture
def without_index(fixture_copy: Store) -> Path:
    store = fixture_copy("clean-small")
    shutil.rmtree(store / "index")
    return store


def told(store: Path, **changes: int) -> list[str]:
    return of_puts(survey(Disk(), StoreConfig(store_path_root_dir=store).with_changes(**changes)))


def test_the_index_is_lost(without_index: Path) -> None:
    assert IndexLayout(5_000_000, 20_000_000).file_size == 420_000_040
    (problem,) = told(without_index)
    assert problem.startswith(DEFAULT)
    assert "-c broker.conf" in problem
    assert told(without_index, **LAYOUT) == []
    plan = plan_recover(Disk(), StoreConfig(store_path_root_dir=without_index))
    assert plan.index.keys_put
    assert problem in plan.problems


def test_reindex_tells_it(without_index: Path, tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=without_index, **LAYOUT)  # not given: as if these were the defaults
    plan = build(Disk(), config, str(tmp_path), Scope(queues=False, index=True))
    size = IndexLayout(200, 800).file_size
    assert any(f"new files get Apache's default, {size} bytes" in problem for problem in plan.problems)
    plan = build(Disk(), config.with_changes(**LAYOUT), str(tmp_path), Scope(queues=False, index=True))
    assert plan.problems == []


def test_the_queues_are_lost_too(without_index: Path) -> None:
    shutil.rmtree(without_index / "consumequeue")
    queues, index = told(without_index)
    assert "queue file size unknown: new files get Apache's default, 6000000 bytes" in queues
    assert index.startswith(DEFAULT)
    files = survey(Disk(), StoreConfig(store_path_root_dir=without_index))
    assert guessed_sizes(files, queues=False, index=False) == []


def test_a_whole_store_tells_its_sizes(fixture_store: Store) -> None:
    assert told(fixture_store("clean-small")) == []
