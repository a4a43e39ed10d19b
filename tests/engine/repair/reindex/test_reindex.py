"""Reindex: what Apache's dispatch wrote, made again from the log alone, to the byte; swapped in where it differs."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DamageInTheMiddle, DiskFull
from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.format import names
from engine.log.derive import TopicQueue
from engine.read_store import ReadStore
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex import swap as reindex_swap
from engine.repair.reindex.reindex import ReindexPlan, Scope, build
from tests.conftest import Store
from tests.engine.log import rebuild
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import stores

CLOSED = [("clean-small", True), ("transient-ext", True), ("lmq", True), ("clean-small", False)]
PARTS = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.INDEX)


def config_of(root: Path, name: str, *, ours: bool) -> StoreConfig:
    return rebuild.config_of(name, ours=ours).with_changes(store_path_root_dir=root)


def copy_of(request: pytest.FixtureRequest, name: str, *, ours: bool) -> Path:
    return Path(request.getfixturevalue("fixture_copy" if ours else "golden_copy")(name))


def reindex(
    config: StoreConfig, scope: Scope | None = None, disk: Disk | None = None
) -> tuple[ReindexPlan, str | None]:
    """As the command does it."""
    disk = disk or Disk()
    root = str(config.store_path_root_dir)
    reindex_swap.clear(disk, root)
    built = reindex_swap.build_directory(root)
    disk.mkdirs(built)
    plan = build(disk, config, built, scope or Scope())
    salvage = reindex_swap.swap(disk, plan) if plan.changed else None
    reindex_swap.clear(disk, root)
    return plan, salvage


def derived_files(root: Path) -> tuple[dict[str, str], list[str]]:
    """Digests of queues and extension by path, and of the index files in order."""
    queues = {
        f"{part}/{name}": stores.digest(path)
        for part in PARTS[:2]
        for name, path in rebuild.files_below(root / part).items()
    }
    return queues, [stores.digest(path) for path in rebuild.files_below(root / names.INDEX).values()]


@pytest.mark.parametrize(("name", "ours"), CLOSED)
def test_what_is_there_is_made_again_to_the_byte(request: pytest.FixtureRequest, name: str, ours: bool) -> None:
    root = copy_of(request, name, ours=ours)
    before = stores.contents(root)
    plan, _ = reindex(config_of(root, name, ours=ours))
    assert not plan.changed
    assert plan.problems == []
    assert plan.kept == ()
    assert stores.contents(root) == before


@pytest.mark.leaves("checkpoint-missing", "index-orphaned", "log-missing")
@pytest.mark.parametrize("name", rebuild.GOLDEN)
def test_golden_into_a_directory(golden_store: Store, tmp_path: Path, name: str) -> None:
    store = golden_store(name)
    build(Disk(), config_of(store, name, ours=False), str(tmp_path / "out"), Scope())
    assert derived_files(tmp_path / "out") == derived_files(store)


@pytest.mark.leaves("checkpoint-missing", "index-orphaned", "log-missing")
@pytest.mark.parametrize("name", rebuild.FIXTURES)
def test_fixtures_into_a_directory(fixture_store: Store, tmp_path: Path, name: str) -> None:
    store = fixture_store(name)
    build(Disk(), config_of(store, name, ours=True), str(tmp_path / "out"), Scope())
    assert derived_files(tmp_path / "out") == derived_files(store)


@pytest.mark.parametrize(("name", "ours"), CLOSED)
def test_lost_and_garbled_files_come_back(request: pytest.FixtureRequest, name: str, ours: bool) -> None:
    root = copy_of(request, name, ours=ours)
    expected = derived_files(root)
    config = config_of(root, name, ours=ours)
    queues = sorted((root / names.CONSUMEQUEUE).glob("*/*"))
    shutil.rmtree(queues[0])
    garbled = next(iter(sorted(queues[-1].iterdir())))
    data = bytearray(garbled.read_bytes())
    data[3:60] = bytes(57)
    garbled.write_bytes(data)
    index = sorted((root / names.INDEX).iterdir())[-1]
    index.write_bytes(index.read_bytes()[:40] + bytes(400) + index.read_bytes()[440:])
    plan, salvage = reindex(config)
    assert plan.queues_changed == {TopicQueue(q.parent.name, int(q.name)) for q in (queues[0], queues[-1])}
    assert plan.index_changed
    if name != "transient-ext":
        assert derived_files(root) == expected
    else:  # the bit maps of units that no row names any more are gone, so that addresses move
        assert derived_files(root)[1] == expected[1]
        assert derived_files(root)[0].keys() == expected[0].keys()
    assert salvage is not None
    assert (Path(salvage) / garbled.relative_to(root)).read_bytes() == data
    manifest = json.loads((Path(salvage) / "manifest.json").read_text())
    assert {"rename", "create"} == {piece["action"] for piece in manifest["pieces"]}
    assert not (root / reindex_swap.BUILD).exists()
    again = plan_recover(Disk(), config)
    assert not again.changed
    assert not reindex(config)[0].changed


def test_only_one_topic_and_only_the_index(fixture_copy: Store) -> None:
    root = fixture_copy("clean-small")
    config = config_of(root, "clean-small", ours=True)
    topics = sorted({path.parent.name for path in (root / names.CONSUMEQUEUE).glob("*/*")})
    expected = derived_files(root)
    shutil.rmtree(root / names.CONSUMEQUEUE / topics[0])
    shutil.rmtree(root / names.CONSUMEQUEUE / topics[1])
    shutil.rmtree(root / names.INDEX)
    plan, _ = reindex(config, Scope(index=False, topic=topics[0]))
    assert {queue.topic for queue in plan.queues_changed} == {topics[0]}
    assert (root / names.CONSUMEQUEUE / topics[0]).is_dir()
    assert not (root / names.CONSUMEQUEUE / topics[1]).exists()
    assert not (root / names.INDEX).exists()
    reindex(config, Scope(queues=False))
    assert not (root / names.CONSUMEQUEUE / topics[1]).exists()
    assert derived_files(root)[1] == expected[1]
    reindex(config)
    assert derived_files(root) == expected


@pytest.mark.parametrize("name", ["clean-small", "transient-ext", "lmq"])
@pytest.mark.parametrize("part", [0.2, 0.7])
def test_from_an_offset(fixture_copy: Store, name: str, part: float) -> None:
    root = fixture_copy(name)
    config = config_of(root, name, ours=True)
    before = derived_files(root)
    end = plan_recover(Disk(), config).state.max_offset
    plan, _ = reindex(config, Scope(start=int(end * part)))
    assert not plan.changed
    assert derived_files(root) == before
    assert sum(queue.units for queue in plan.queues) < len(list(ReadStoreUnits(config)))


class ReadStoreUnits:
    """Every unit of a store."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config

    def __iter__(self):
        with ReadStore(self._config) as store:
            for name in store.queues():
                queue = store.find_queue(*name)
                yield from range(queue.min_offset, queue.max_offset)


def test_what_the_log_has_no_more_is_taken_over(tmp_path: Path) -> None:
    put(tmp_path, 300)
    put(tmp_path, 3, topic="Old")
    put(tmp_path, 300, first=300)
    log = sorted((tmp_path / names.COMMITLOG).iterdir())
    for path in log[: -(len(log) // 4)]:
        path.unlink()
    assert not plan_recover(Disk(), settings(tmp_path)).changed
    before = derived_files(tmp_path)
    plan, _ = reindex(settings(tmp_path))
    assert not plan.changed
    assert {queue.topic for queue in plan.kept} == {"Old"}
    assert derived_files(tmp_path) == before
    # Rows before the log's first byte that are no units can't be taken over: the first file is filled up.
    queue = next(iter(sorted((tmp_path / names.CONSUMEQUEUE / "T" / "0").iterdir())))
    queue.write_bytes(bytes(40) + queue.read_bytes()[40:])
    plan, _ = reindex(settings(tmp_path))
    assert plan.changed
    assert not plan_recover(Disk(), settings(tmp_path)).changed


@pytest.mark.leaves("log-damage")
def test_damage_is_for_recover(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    before = stores.contents(tmp_path)
    with pytest.raises(DamageInTheMiddle, match="recover --bridge"):
        build(Disk(), settings(tmp_path), str(tmp_path / reindex_swap.BUILD), Scope())
    reindex_swap.clear(Disk(), str(tmp_path))
    assert stores.contents(tmp_path) == before


def test_random_damage_to_all_that_is_derived(tmp_path: Path) -> None:
    put(tmp_path, 400)
    expected = derived_files(tmp_path)
    rng = random.Random(7)
    for part in (names.CONSUMEQUEUE, names.INDEX):
        for path in rebuild.files_below(tmp_path / part).values():
            data = bytearray(path.read_bytes())
            for _ in range(20):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data)
    reindex(settings(tmp_path))
    assert derived_files(tmp_path) == expected


@pytest.mark.leaves("index-missing")
def test_a_wrong_setting_does_not_fill_the_disk(fixture_copy: Store) -> None:
    """Ten keys a file of 4 MB: hundreds of files for one small store."""

    class Small(Disk):
        def usage(self, path: str) -> Usage:
            return dataclasses.replace(super().usage(path), usable=64 << 20)

    root = fixture_copy("clean-small")
    shutil.rmtree(root / "index")
    config = StoreConfig(store_path_root_dir=root).with_changes(max_index_num=10, max_hash_slot_num=1_000_000)
    before = stores.contents(root)
    with pytest.raises(DiskFull, match="maxIndexNum = 10"):
        reindex(config, disk=Small())
    after = stores.contents(root)
    assert {path: digest for path, digest in after.items() if "reindex.tmp" not in path} == before
