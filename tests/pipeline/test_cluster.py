"""A real cluster: one master, two workers, executors that have the package as a zip and the store's path, no more."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.bench.workload import Workload, write_log
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import names
from engine.inspect.check.verify import verify
from engine.pipeline.jobs.reindex_write import APART
from engine.pipeline.spark import SparkMissing, find_java
from engine.repair.reindex.reindex import Scope, build
from engine.repair.reindex.swap import BUILD
from tests.conftest import Store
from tests.engine.opening import assert_sound
from tests.engine.repair.reindex.test_reindex import derived_files
from tests.pipeline.cluster import Cluster, executors_of, run_driver, standalone
from tests.support import fixtures, stores

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("cluster_driver.py")
SPLIT = 30_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_java()
    except SparkMissing as missing:
        pytest.skip(str(missing))
    with standalone(tmp_path_factory.mktemp("cluster") / "here") as found:
        yield found


def drive(cluster: Cluster, *work: tuple[str, Path, dict[str, Any]]) -> dict[str, Any]:
    done = run_driver(cluster, DRIVER, json.dumps([[job, str(store), options] for job, store, options in work]))
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_verify_reindex_and_export(cluster: Cluster, fixture_copy: Store, tmp_path: Path) -> None:
    sound, damaged, torn = (fixture_copy("clean-small") for _ in range(3))
    expected = derived_files(sound)
    shutil.rmtree(sorted((sound / names.CONSUMEQUEUE).glob("*/*"))[0])
    with (damaged / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.seek(SPLIT - 2000)
        file.write(b"\xff" * 4000)
    shutil.copytree(damaged, torn, dirs_exist_ok=True)
    large = tmp_path / "large"
    work = Workload("w", 1000, queues=6, size=40 << 20, segment=20 << 20)
    write_log(work, large / names.COMMITLOG)
    before = {root: stores.snapshot(root) for root in (damaged, torn, large)}
    found = drive(
        cluster,
        ("verify", large, {"split_bytes": 5 << 20}),
        ("verify", Path(os.path.relpath(damaged)), {"split_bytes": SPLIT}),  # executors are in other directories
        ("reindex", large, {"split_bytes": 5 << 20, "output": str(tmp_path / "large-built")}),
        ("reindex", sound, {"split_bytes": SPLIT, "apply": True}),
        ("reindex", torn, {"split_bytes": SPLIT, "apply": True}),
        ("export", sound, {"output": str(tmp_path / "table")}),
    )
    assert {place.rpartition(".zip/")[2] for place, _ in found["executors"]} == {"engine/pipeline/jobs"}
    assert all(".zip/" in place for place, _ in found["executors"])
    assert len({directory for _, directory in found["executors"]}) == 2, "two executors"
    first, second, built, applied, refused, exported = found["answers"]

    alone = verify(Disk(), StoreConfig(store_path_root_dir=large))
    assert (first["ok"], first["splits"], first["records"]) == (True, 8, alone.records)
    bad = verify(Disk(), StoreConfig(store_path_root_dir=damaged)).bad
    assert bad
    assert [(d["physical_offset"], d["length"], d["reason"]) for d in second["damage"]] == [
        (b.offset, b.length, b.reason) for b in bad
    ]

    build(Disk(), StoreConfig(store_path_root_dir=large), str(tmp_path / "engine"), Scope())
    assert derived_files(tmp_path / "large-built") == derived_files(tmp_path / "engine")
    assert built["records"] == alone.records
    assert (applied["ok"], applied["changed"]) == (True, 1)
    assert derived_files(sound) == expected
    assert_sound(StoreConfig(store_path_root_dir=sound))
    assert refused["error"] == "DamageInTheMiddle"
    assert not (torn / BUILD).exists()

    records = fixtures.manifest("clean-small")
    assert records["maxPhyOffset"] == applied["stores"][0]["log_end"]
    assert exported["messages"] == applied["records"]
    assert sum(1 for path in (tmp_path / "table").rglob("*.parquet")) == exported["files"]
    for root, seen in before.items():
        now = stores.snapshot(root)
        for one in (".", "lock"):  # the lock was taken, and the build directory made and removed
            now.pop(one, None)
            seen.pop(one, None)
        assert now == seen


def test_a_dry_run_says_what_it_needs(cluster: Cluster, fixture_store: Store) -> None:
    (answer,) = drive(cluster, ("reindex", fixture_store("clean-small"), {}))["answers"]
    assert answer["error"] == "InvalidArgument"
    assert "--output" in answer["text"]


def test_an_executor_is_killed_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """While queues are being written: what it wrote, and what Spark kept on its disk, is made again by others."""
    root, out = tmp_path / "store", tmp_path / "out"
    write_log(Workload("w", 200, queues=300, size=32 << 20, segment=32 << 20), root / names.COMMITLOG)
    work = ("reindex", root, {"split_bytes": 3 << 20, "output": str(out)})
    killed: list[int] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not killed:
            if any((out / APART).glob("*/consumequeue/*/*")):
                killed.extend(executors_of(cluster)[:1])
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_one)
        (answer,) = drive(cluster, work)["answers"]
        killing.result()
    assert killed, "it was done before it could be killed"
    assert answer.get("error") is None, answer
    build(Disk(), StoreConfig(store_path_root_dir=root), str(tmp_path / "engine"), Scope())
    assert derived_files(out) == derived_files(tmp_path / "engine")
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "engine")), "nothing of the one that was killed"
