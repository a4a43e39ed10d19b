"""The job `reindex`: byte by byte what the engine's own reindex builds, however the logs are cut."""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.bench.workload import Workload, write_log
from engine.config import STORE_SIZES, StoreConfig
from engine.errors import CannotRepair, DamageInTheMiddle, DiskFull, InvalidArgument, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format import names
from engine.format.message import Message
from engine.format.record import POSITION_QUEUE_OFFSET
from engine.pipeline.jobs.reindex import ReindexOptions, rebuilding, run
from engine.pipeline.stores import StoreRef, find_stores
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex.reindex import ReindexPlan, Scope, build
from engine.repair.reindex.swap import BUILD
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.log import rebuild
from tests.engine.opening import assert_sound, message, small
from tests.engine.repair.reindex.test_reindex import derived_files
from tests.engine.repair.test_rules import damage, put, settings
from tests.rstore_cli.test_after_a_kill import killed_reindex
from tests.support import logs, stores
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from engine.pipeline.result import JobResult

pytestmark = pytest.mark.spark

LARGE = "RSTORE_LARGE"
"""Set to 1 in the environment: the log of 1 GiB, too."""


def conf(path: Path, config: StoreConfig) -> Path:
    """The settings that a store can't say itself, as a broker's properties file."""
    path.write_text(
        f"enableLmq={str(config.enable_lmq).lower()}\n"
        f"enableMultiDispatch={str(config.enable_multi_dispatch).lower()}\n"
        f"enableConsumeQueueExt={str(config.enable_consume_queue_ext).lower()}\n"
        f"mappedFileSizeConsumeQueueExt={config.mapped_file_size_consume_queue_ext}\n"
        f"mappedFileSizeCommitLog={config.mapped_file_size_commit_log}\n"
        f"mappedFileSizeConsumeQueue={config.mapped_file_size_consume_queue}\n"
        f"maxHashSlotNum={config.max_hash_slot_num}\n"
        f"maxIndexNum={config.max_index_num}\n"
    )
    return path


def refs(tmp_path: Path, root: Path, config: StoreConfig) -> tuple[StoreRef, ...]:
    return find_stores([str(root)], config=conf(tmp_path / "broker.conf", config))


def alone(config: StoreConfig, root: Path, into: Path, scope: Scope | None = None) -> ReindexPlan:
    """The engine's own."""
    return build(Disk(), config.with_changes(store_path_root_dir=root), str(into), scope or Scope())


def assert_equal(spark: SparkSession, tmp_path: Path, root: Path, config: StoreConfig, **options: Any) -> JobResult:
    """Built into a directory by Spark, and by the engine: the same bytes, the same said; the store as before."""
    before = stores.snapshot(root)
    one, other = tmp_path / "spark", tmp_path / "engine"
    wanted = ReindexOptions(output=str(one), **options)
    result = run(spark, refs(tmp_path, root, config), wanted)
    plan = alone(config.as_given(config.given | set(STORE_SIZES)), root, other, wanted.scope)  # as `conf` gives them
    assert derived_files(one) == derived_files(other)
    assert sorted(os.listdir(one)) == sorted(os.listdir(other))
    (row,) = result.table("stores").to_json()
    assert (row["records"], row["log_end"], row["keys"]) == (plan.records, plan.log_end, plan.keys)
    assert (row["queues_changed"], row["index_changed"]) == (len(plan.queues_changed), plan.index_changed)
    assert (row["queues_kept"], row["index_files"]) == (len(plan.kept), plan.index_files)
    assert [(r["topic"], r["queue_id"], r["min_offset"], r["max_offset"], r["units"], r["changed"])
            for r in result.table("queues").to_json()] == [
        (*q.queue, q.min_offset, q.max_offset, q.units, q.queue in plan.queues_changed) for q in plan.queues
    ]  # fmt: skip
    assert result.notes == tuple(f"{root.name}: {problem}" for problem in plan.problems)
    assert stores.snapshot(root) == before
    shutil.rmtree(one)
    shutil.rmtree(other)
    return result


@pytest.mark.parametrize("split_bytes", [9_000, 150_000, 1 << 30])
@pytest.mark.parametrize("name", rebuild.FIXTURES)
def test_fixtures(spark: SparkSession, fixture_store: Store, tmp_path: Path, name: str, split_bytes: int) -> None:
    store, config = fixture_store(name), rebuild.config_of(name, ours=True)
    assert_equal(spark, tmp_path, store, config, split_bytes=split_bytes)
    run(spark, refs(tmp_path, store, config), ReindexOptions(split_bytes, output=str(tmp_path / "out")))
    assert derived_files(tmp_path / "out") == derived_files(store), "Apache's own files"


@pytest.mark.parametrize("name", rebuild.GOLDEN)
def test_golden(spark: SparkSession, golden_store: Store, tmp_path: Path, name: str) -> None:
    store, config = golden_store(name), rebuild.config_of(name, ours=False)
    assert_equal(spark, tmp_path, store, config, split_bytes=120_000)
    run(spark, refs(tmp_path, store, config), ReindexOptions(1 << 20, output=str(tmp_path / "out")))
    assert derived_files(tmp_path / "out") == derived_files(store), "Apache's own files"


def test_several_stores_at_once(spark: SparkSession, fixture_store: Store, tmp_path: Path) -> None:
    chosen = ("clean-small", "crashed-small")
    found = find_stores([str(fixture_store(name)) for name in chosen])
    result = run(spark, found, ReindexOptions(100_000, output=str(tmp_path / "out")))
    assert result.facts["stores"] == 2
    for name in chosen:
        assert derived_files(tmp_path / "out" / name) == derived_files(fixture_store(name))


@pytest.mark.parametrize("start", [70_000, 200_000])
@pytest.mark.parametrize("name", ["clean-small", "transient-ext"])
def test_from_an_offset(spark: SparkSession, fixture_store: Store, tmp_path: Path, name: str, start: int) -> None:
    config = rebuild.config_of(name, ours=True)
    result = assert_equal(spark, tmp_path, fixture_store(name), config, split_bytes=30_000, start=start)
    assert not result.facts["changed"]


def test_a_part(spark: SparkSession, fixture_store: Store, tmp_path: Path) -> None:
    store, config = fixture_store("clean-small"), rebuild.config_of("clean-small", ours=True)
    topic = sorted(path.name for path in (store / names.CONSUMEQUEUE).iterdir())[0]
    for options in ({"index": False}, {"queues": False}, {"topic": topic}):
        assert_equal(spark, tmp_path, store, config, split_bytes=40_000, **options)


@pytest.mark.parametrize("size", [128, pytest.param(1024, marks=pytest.mark.skipif(
    os.environ.get(LARGE) != "1", reason=f"a log of 1 GiB: {LARGE}=1"))])  # fmt: skip
def test_a_long_log(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """One file, sixteen splits; several index files, whose headers follow each other."""
    work = Workload("w", 1024, queues=12, size=size << 20, segment=size << 20)
    root = tmp_path / "store"
    write_log(work, root / names.COMMITLOG)
    config = work.config(root).with_changes(max_hash_slot_num=20_000, max_index_num=90_001)
    result = assert_equal(spark, tmp_path, root, config, split_bytes=(size << 20) // 16)
    assert result.facts["splits"] >= 16
    assert result.facts["index_files"] > 2


def test_applied(spark: SparkSession, fixture_copy: Store, tmp_path: Path) -> None:
    root = fixture_copy("clean-small")
    expected = derived_files(root)
    config = StoreConfig(store_path_root_dir=root)
    queues = sorted((root / names.CONSUMEQUEUE).glob("*/*"))
    shutil.rmtree(queues[0])
    (garbled,) = queues[-1].iterdir()
    garbled.write_bytes(bytes(60) + garbled.read_bytes()[60:])
    index = sorted((root / names.INDEX).iterdir())[-1]
    index.write_bytes(index.read_bytes()[:40] + bytes(400) + index.read_bytes()[440:])
    before = stores.snapshot(root)
    dry = run(spark, find_stores([str(root)]), ReindexOptions(50_000))
    assert (dry.ok, dry.facts["queues_changed"], dry.facts["changed"]) == (False, 2, 1)
    assert stores.snapshot(root) == before
    done = run(spark, find_stores([str(root)]), ReindexOptions(50_000, apply=True))
    assert done.ok
    assert derived_files(root) == expected
    (row,) = done.table("stores").to_json()
    assert (Path(row["salvage"]) / garbled.relative_to(root)).read_bytes()[:60] == bytes(60)
    assert not (root / BUILD).exists()
    assert_sound(config)
    settled = stores.contents(root)
    again = run(spark, find_stores([str(root)]), ReindexOptions(50_000, apply=True))
    assert (again.ok, again.facts["changed"]) == (True, 0)
    assert stores.contents(root) == settled
    assert_sound(config)


def test_what_executors_build_is_as_the_store_is(spark: SparkSession, fixture_copy: Store) -> None:
    """A store that only its group may read stays so."""
    root = fixture_copy("clean-small")
    shutil.rmtree(min(min((root / "consumequeue").iterdir()).iterdir()))
    for path in (root, *root.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    assert run(spark, find_stores([str(root)]), ReindexOptions(50_000, apply=True)).facts["applied"]
    for path in (*(root / "consumequeue").rglob("*"), *(root / "index").iterdir()):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_what_the_log_has_no_more_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    put(root, 300)
    put(root, 3, topic="Old")
    put(root, 300, first=300)
    log = sorted((root / names.COMMITLOG).iterdir())
    for path in log[: -(len(log) // 4)]:
        path.unlink()
    assert not plan_recover(Disk(), settings(root)).changed
    result = assert_equal(spark, tmp_path, root, settings(root), split_bytes=5_000)
    assert not result.facts["changed"]
    shutil.rmtree(root / names.CONSUMEQUEUE / "T" / "1", ignore_errors=True)
    queue = next(iter(sorted((root / names.CONSUMEQUEUE / "T" / "0").iterdir())))
    queue.write_bytes(bytes(40) + queue.read_bytes()[40:])
    assert_equal(spark, tmp_path, root, settings(root), split_bytes=5_000)
    assert run(spark, refs(tmp_path, root, settings(root)), ReindexOptions(5_000, apply=True)).ok
    assert_sound(settings(root))


def test_what_was_accepted_is_stepped_over(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    offsets = put(root, 300)
    gone = sorted((root / names.COMMITLOG).iterdir())[2]
    gone.unlink()
    lost = next(at for at in offsets if at > int(gone.name) + 40_000)
    damage(root, lost + 90, b"\xff")
    apply(Disk(), plan_recover(Disk(), settings(root), cut=True))
    result = assert_equal(spark, tmp_path, root, settings(root), split_bytes=6_000)
    assert any("stepped over" in note for note in result.notes)


def test_queue_offsets_that_can_not_be_true(spark: SparkSession, tmp_path: Path) -> None:
    """Jumps, offsets that are taken, negative and huge ones: each rule of the queue needs all that came before."""
    rng = random.Random(3)
    made = logs.build(
        (Message(f"T{i % 3}", rng.randbytes(60), queue_id=i % 2, properties={"KEYS": f"k{i}"}) for i in range(900)),
        segment_size=65536,
    )
    for at in rng.sample(made.offsets, 120):
        number = rng.choice((rng.randrange(200), 10**12, -5, 1 << 62, rng.randrange(400)))
        made.log.write(at + POSITION_QUEUE_OFFSET, number.to_bytes(8, "big", signed=True))
    root = tmp_path / "store"
    (root / names.COMMITLOG).mkdir(parents=True)
    for first, data in made.log.files.items():
        (root / names.COMMITLOG / f"{first:020d}").write_bytes(data)
    config = StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=90
    )
    for split_bytes in (3_000, 17_000):
        result = assert_equal(spark, tmp_path, root, config, split_bytes=split_bytes)
    assert {"filled", "duplicate"} <= {word.rstrip(",.") for note in result.notes for word in note.split()}
    assert result.facts["index_files"] == 11


def test_damage_is_for_recover(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    offsets = put(root, 300)
    damage(root, offsets[260] + 90, b"\xff")
    before = stores.contents(root)
    for options in ({"apply": True}, {"output": str(tmp_path / "out")}, {}):
        with pytest.raises(DamageInTheMiddle, match="recover --bridge") as ours:
            run(spark, refs(tmp_path, root, settings(root)), ReindexOptions(5_000, **options))
        with pytest.raises(DamageInTheMiddle) as engines:
            alone(settings(root), root, tmp_path / "engine")
        told = re.sub(r"rstore --store \S+( -c \S+)? recover", "rstore recover", str(ours.value))
        assert told == str(engines.value)  # the engine was asked by a configuration that nobody has named
        now = stores.contents(root)
        now.pop("lock", None)
        before.pop("lock", None)
        assert now == before
    assert not (tmp_path / "out").exists()


def test_refused(spark: SparkSession, fixture_copy: Store, tmp_path: Path) -> None:
    crashed, clean = fixture_copy("crashed-small"), fixture_copy("clean-small")
    before = stores.contents(clean)
    with pytest.raises(CannotRepair, match="was not closed"):
        run(spark, find_stores([str(crashed)]), ReindexOptions(apply=True))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InvalidArgument, match="empty directory"):
        run(spark, find_stores([str(clean)]), ReindexOptions(output=str(tmp_path / "full")))
    with StoreLock(Disk(), str(clean)):
        for options in (ReindexOptions(apply=True), ReindexOptions(output=str(tmp_path / "out"))):
            with pytest.raises(StoreLocked):
                run(spark, find_stores([str(clean)]), options)
    with rebuilding(spark, find_stores([str(clean)]), ReindexOptions(apply=True)) as aside:
        assert not aside.changed
        with pytest.raises(StoreLocked):
            StoreLock(Disk(), str(clean)).acquire()
    unlocked = find_stores([str(clean)])
    with StoreLock(Disk(), str(clean)), pytest.raises(StoreLocked, match="while it was read"):
        run(spark, unlocked, ReindexOptions(output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    with StoreLock(Disk(), str(clean)), pytest.raises(StoreLocked):  # taken between planning and building
        run(spark, unlocked, ReindexOptions(apply=True))
    shutil.rmtree(clean / names.INDEX)
    config = StoreConfig().with_changes(max_index_num=2, max_hash_slot_num=400_000_000)
    with pytest.raises(DiskFull, match="maxIndexNum = 2"):
        run(spark, refs(tmp_path, clean, rebuild.config_of("clean-small", ours=True).with_changes(
            max_index_num=config.max_index_num, max_hash_slot_num=config.max_hash_slot_num)),
            ReindexOptions(apply=True))  # fmt: skip
    after = stores.contents(clean)
    assert {path: digest for path, digest in before.items() if not path.startswith(names.INDEX)} == after


@pytest.mark.parametrize("odd", [False, True], ids=["not closed", "another name"])
def test_what_is_refused_is_told_before_a_store_is_changed(spark: SparkSession, tmp_path: Path, odd: bool) -> None:
    """The first store's killed swap stays as it is when the second is refused, and so does the second's."""
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        killed_reindex(root, lambda disk: disk.kill_at("reindex.swap-in"))
    if odd:
        last = max((roots[1] / "commitlog").iterdir())
        last.rename(last.with_name(f"{int(last.name) + 1:020d}"))
    else:
        (roots[1] / "abort").touch()
    before = [stores.contents(root) for root in roots]
    found = [one for root in roots for one in refs(tmp_path, root, settings(root))]
    with pytest.raises(CannotRepair, match="wrong name or size" if odd else "was not closed"):
        run(spark, found, ReindexOptions(5_000, apply=True))
    for root, held in zip(roots, before, strict=True):
        now = stores.contents(root)
        assert {path for path in held.keys() | now.keys() if held.get(path) != now.get(path)} <= {"lock"}
    apply(Disk(), plan_recover(Disk(), settings(roots[1]), bridge=odd))
    assert run(spark, found, ReindexOptions(5_000, apply=True)).facts["applied"]
    for root in roots:
        check_clean(root, settings(root))


@pytest.mark.parametrize("in_place", [True, False])
def test_a_store_that_has_grown_since_it_was_found(spark: SparkSession, tmp_path: Path, in_place: bool) -> None:
    """What counts is what is there under the lock."""
    config = small(tmp_path / "store")
    for start in (0, 300):
        with MessageStore.open(config) as store:
            for i in range(start, start + 300):
                assert store.put(message(b"%d" % i * 100, i % 3, KEYS=f"k{i}")).ok
        if start == 0:
            found = refs(tmp_path, tmp_path / "store", config)
    output = None if in_place else str(tmp_path / "out")
    result = run(spark, found, ReindexOptions(apply=in_place, output=output, split_bytes=20_000))
    assert result.facts["records"] == 600
    assert_sound(config)
    with MessageStore.open(config) as store:
        assert sum(store.max_offset("T", queue) for queue in range(3)) == 600
