"""The job `verify`: whatever the stores, the damage and the splits, it names what `rstore verify-crc` names."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.bench.workload import Workload, write_log
from engine.config import StoreConfig, of_store
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format.message import Message
from engine.format.record import POSITION_RECONSUME_TIMES
from engine.inspect.check.verify import VerifyResult, verify
from engine.pipeline.jobs.verify import VerifyOptions, run
from engine.pipeline.stores import find_stores
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.support import golden, mutate, sealed_logs, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from engine.pipeline.result import JobResult

pytestmark = pytest.mark.spark

SPLITS = (7_000, 100_000, 1 << 30)


def alone(root: Path, **options: int) -> VerifyResult:
    return verify(Disk(), StoreConfig(store_path_root_dir=root), **options)


def assert_same(spark: SparkSession, roots: dict[str, Path], options: VerifyOptions) -> JobResult:
    """The job's answer for stores by name is that of the engine, store by store; nothing was written."""
    before = {name: stores.snapshot(root) for name, root in roots.items()}
    result = run(spark, find_stores(f"{name}={root}" for name, root in roots.items()), options)
    given = {key: value for key, value in (("start", options.start), ("end", options.end)) if value is not None}
    rows = {row["store"]: row for row in result.table("stores").to_json()}
    damage: dict[str, list[tuple[object, ...]]] = {name: [] for name in roots}
    for row in result.table("damage").to_json():
        damage[row["store"]].append((row["physical_offset"], row["length"], row["file"], row["reason"]))
    for name, root in roots.items():
        expected = alone(root, **given)
        row = rows[name]
        assert damage[name] == [(b.offset, b.length, Path(b.path).name, b.reason) for b in expected.bad], name
        assert (row["records"], row["bytes"]) == (expected.records, expected.size), name
        assert (row["damaged_places"], row["end"], row["running"]) == (
            len(expected.bad),
            expected.end,
            expected.live,
        ), name
        if expected.records:
            assert row["start"] == expected.start
    assert result.ok == (not any(damage.values()))
    assert result.facts["records"] == sum(row["records"] for row in rows.values())
    assert {name: stores.snapshot(root) for name, root in roots.items()} == before
    return result


@pytest.mark.parametrize("split_bytes", SPLITS)
def test_sound_stores(spark: SparkSession, fixture_store: Store, split_bytes: int) -> None:
    roots = {name: fixture_store(name) for name in ("clean-small", "crashed-small", "lmq", "transient-ext")}
    assert assert_same(spark, roots, VerifyOptions(split_bytes)).ok


@pytest.mark.parametrize("name", golden.NAMES)
def test_golden_stores(spark: SparkSession, golden_store: Store, name: str) -> None:
    assert assert_same(spark, {name: golden_store(name)}, VerifyOptions(300_000)).ok


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory, golden_store: Store, fixture_store: Store) -> dict[str, Path]:
    """Every case of the visible corpora, by id."""
    place = tmp_path_factory.mktemp("cases")
    found: dict[str, Path] = {}
    for store, cases in ((golden_store, golden.cases()), (fixture_store, corpus.fixture_cases())):
        for case in cases:
            root = found[case["id"]] = stores.copy(store(case["base"]), place / case["id"])
            mutate.apply(root, case["ops"])
    return found


@pytest.mark.parametrize("split_bytes", [60_000, 1 << 30])
def test_every_case_of_the_corpora(spark: SparkSession, damaged: dict[str, Path], split_bytes: int) -> None:
    result = assert_same(spark, damaged, VerifyOptions(split_bytes))
    assert not result.ok
    assert result.facts["stores"] == len(damaged)


def test_part_of_a_log(spark: SparkSession, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    rng = random.Random(11)
    with (store / "commitlog" / f"{131072:020d}").open("r+b") as file:
        for at in rng.sample(range(131072), 12):
            file.seek(at)
            file.write(b"\xff")
    for _ in range(6):
        start, end = sorted(rng.sample(range(3 * 131072), 2))
        assert_same(spark, {"s": store}, VerifyOptions(rng.choice(SPLITS[:2]), start, end))
    assert_same(spark, {"s": store}, VerifyOptions(start=200_000))
    assert_same(spark, {"s": store}, VerifyOptions(start=10**12))
    assert_same(spark, {"s": store}, VerifyOptions(end=0))


def test_a_missing_segment_and_a_live_store(spark: SparkSession, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{131072:020d}").unlink()
    assert not assert_same(spark, {"s": store}, VerifyOptions(30_000)).ok
    last = sorted((store / "commitlog").iterdir())[-1]
    with last.open("r+b") as file:  # torn, as what is being written is
        file.seek(100_000)
        file.write(b"torn")
    assert_same(spark, {"s": store}, VerifyOptions(30_000))
    with StoreLock(Disk(), str(store)):
        assert_same(spark, {"s": store}, VerifyOptions(30_000))


def test_a_long_log_by_kernels(spark: SparkSession, tmp_path: Path) -> None:
    """64 MiB in two files, read in 16 splits, with damage on both sides of a border."""
    work = Workload("w", 1000, size=64 << 20, segment=32 << 20)
    write_log(work, tmp_path / "commitlog")
    options = VerifyOptions(4 << 20)
    assert assert_same(spark, {"s": tmp_path}, options).facts["splits"] == 16
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        for border in (4 << 20, 8 << 20, 20 << 20):
            file.seek(border - 3000)
            file.write(random.Random(border).randbytes(6000))
    assert not assert_same(spark, {"s": tmp_path}, options).ok


def test_property_crcs(spark: SparkSession, tmp_path: Path) -> None:
    """Records without one, a client's, and damage; with forceVerifyPropCRC a range is one, wherever the log is cut."""
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    tails = [None if i >= 200 else b"__CRC32#\x011234567890\x02" if i % 9 == 0 else b"" for i in range(500)]
    rows = [(Message("T", b"%05d" % i * 40, 0, {"KEYS": f"k{i}"}), tail) for i, tail in enumerate(tails)]
    for at, _ in sealed_logs.write(store, rows, 1 << 16)[210::50]:
        with (store / "commitlog" / f"{at >> 16 << 16:020d}").open("r+b") as file:
            file.seek((at & 0xFFFF) + POSITION_RECONSUME_TIMES)
            file.write(b"\0\0\0\x07")
    for demand in ("false", "true"):
        conf.write_text(f"forceVerifyPropCRC={demand}\nmappedFileSizeCommitLog=65536\n")
        expected = verify(Disk(), of_store(store, conf))
        result = run(spark, find_stores([str(store)], config=conf), VerifyOptions(7_000))
        facts = result.facts
        assert (facts["property_crc_records"], facts["property_crc_mismatches"]) == (
            expected.property_crcs,
            expected.crc_mismatches,
        )
        for name, places in (("damage", expected.bad), ("unusual", expected.unusual)):
            assert [(row["physical_offset"], row["length"], row["reason"]) for row in result.table(name).to_json()] == [
                (one.offset, one.length, one.reason) for one in places
            ]
        assert (expected.crc_mismatches, len(expected.unusual)) == ((6, 23) if demand == "false" else (29, 0))
