"""The commands on Spark: `rstore pipeline JOB` over real stores, and that --spark prints what is printed without."""

# ruff: noqa: F811
from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.config import StoreConfig
from tests.rstore_cli.conftest import Cli, _no_settings_from_outside, cli, damage  # noqa: F401 - fixtures
from tests.support import stores
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

Store = Callable[[str], Path]
SMALL = ("--split-bytes", "20000")


def test_verify_is_verify_crc_over_many_stores(
    cli: Cli,
    fixture_copy: Store,
    fixture_store: Store,
    unchanged: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    bad, sound = fixture_copy("clean-small"), fixture_store("lmq")
    damage(bad)
    for store in (bad, sound):
        unchanged(store)
    ran = cli("pipeline", "verify", f"bad={bad}", sound, "--json", "--parquet", tmp_path / "tables", *SMALL)
    assert ran.code == 1
    assert [row["store"] for row in ran.json["stores"]] == ["bad", "lmq"]
    alone = cli("--store", bad, "verify-crc", "--json").json
    assert alone["records"] == ran.json["stores"][0]["records"]
    (place,) = ran.json["damage"]
    (expected,) = alone["damage"]
    assert (place["physical_offset"], place["file"], place["reason"]) == tuple(expected.values())
    text = cli("pipeline", "verify", bad, *SMALL)
    assert text.code == 1
    assert str(place["physical_offset"]) in text.out
    assert cli("pipeline", "verify", sound).code == 0

    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "tables" / "damage.parquet").to_pylist() == ran.json["damage"]


@pytest.mark.parametrize("jobs", [("--from", "150000"), ("--to", "150000"), ()], ids=" ".join)
@pytest.mark.parametrize("form", ["text", "json"])
def test_verify_crc_prints_the_same(
    form: str,
    jobs: tuple[str, ...],
    cli: Cli,
    fixture_copy: Store,
) -> None:
    store = fixture_copy("clean-small")
    damage(store)
    words = ("--store", store, "verify-crc", *jobs, *(["--json"] if form == "json" else []))
    plain, spark = cli(*words), cli(*words, "--spark", *SMALL)
    assert plain.code == spark.code
    if form == "json":
        assert {**plain.json, "seconds": 0} == {**spark.json, "seconds": 0}
    else:
        assert plain.out.splitlines()[1:] == spark.out.splitlines()[1:]
        assert plain.out.partition(", in ")[0] == spark.out.partition(", in ")[0]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--json",),
        ("--json", "--redact", "--topic", "Orders"),
        ("--json", "--limit", "7"),
        ("--json", "--to", "99999"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("split_bytes", ["3000", "200k"])
def test_dump_prints_the_same(
    words: tuple[str, ...],
    split_bytes: str,
    cli: Cli,
    fixture_copy: Store,
) -> None:
    """With damage in the middle, a gap, and what is unwritten."""
    store = fixture_copy("clean-small")
    damage(store)
    sorted((store / "commitlog").iterdir())[2].unlink()
    before = stores.snapshot(store)
    plain = cli("--store", store, "dump", "commitlog", *words)
    spark = cli("--store", store, "dump", "commitlog", *words, "--spark", "--split-bytes", split_bytes)
    assert (spark.code, spark.out) == (plain.code, plain.out)
    assert plain.out
    assert stores.snapshot(store) == before


def test_dump_from_anywhere_prints_the_same(cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage(store)
    (bad,) = (row for row in cli("--store", store, "dump", "commitlog", "--json").lines if row["kind"] == "damage")
    for start in (bad["physicalOffset"] + by for by in (-1, 0, 1, bad["length"])):
        words = ("--store", store, "dump", "commitlog", "--json", "--from", str(start))
        plain, spark = cli(*words), cli(*words, "--spark", "--split-bytes", "5000")
        assert (spark.code, spark.out) == (plain.code, plain.out)


@pytest.fixture
def without_a_queue(fixture_copy: Store) -> Path:
    """A store that lost a queue."""
    store = fixture_copy("clean-small")
    shutil.rmtree(min((store / "consumequeue").glob("*/*")))
    return store


@pytest.mark.parametrize("words", [("pipeline", "reindex"), ("reindex", "--spark")], ids=" ".join)
def test_reindex_shows_asks_and_does_what_it_showed(
    words: tuple[str, ...],
    without_a_queue: Path,
    fixture_store: Store,
    cli: Cli,
) -> None:
    store = without_a_queue
    before = stores.snapshot(store)
    dry = cli("--store", store, *words, "--dry-run", "--json", *SMALL)
    assert dry.code == 1
    assert stores.snapshot(store) == before

    asked = cli("--store", store, *words, *SMALL)
    assert asked.code == 2
    assert "--yes" in asked.error_line
    assert stores.contents(store).keys() - before.keys() <= {"lock"}

    done = cli("--store", store, *words, "--yes", "--json", *SMALL)
    assert done.code == 0, done
    planned, told = dry.json, done.json
    for one in (planned, told):
        for key in ("seconds", "applied", "ok", "salvage", "stores"):
            one.pop(key, None)
    assert told == planned
    assert cli("--store", store, *words, "--dry-run", *SMALL).code == 0
    ours, theirs = (
        stores.contents(store / "consumequeue"),
        stores.contents(fixture_store("clean-small") / "consumequeue"),
    )
    assert ours == theirs
    check_clean(store, StoreConfig(store_path_root_dir=store))


def test_reindex_in_words(without_a_queue: Path, cli: Cli, tmp_path: Path) -> None:
    ran = cli("pipeline", "reindex", without_a_queue, "--yes", "--parquet", tmp_path / "tables")
    assert ran.code == 0
    (salvage,) = (without_a_queue / "salvage").iterdir()
    assert ran.out.splitlines()[-1] == f"Done. Replaced files are in {salvage}"
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"stores.parquet", "queues.parquet"}
    again = cli("pipeline", "reindex", without_a_queue, "--yes")
    assert (again.code, again.out.splitlines()[-1][:13]) == (0, "Nothing to do")


def test_reindex_with_spark_says_the_same(without_a_queue: Path, cli: Cli, tmp_path: Path) -> None:
    words = ("--store", without_a_queue, "reindex")
    assert cli(*words, "--dry-run", "--spark", "--json").json == cli(*words, "--dry-run", "--json").json
    shown = cli(*words, "--dry-run", "--spark").out
    assert "reindex --spark (applies this plan)" in shown
    assert shown.replace("reindex --spark", "reindex") == cli(*words, "--dry-run").out
    plain, spark = tmp_path / "plain", tmp_path / "spark"
    assert cli(*words, "--output", plain).code == 0
    ran = cli(*words, "--output", spark, "--spark", *SMALL)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"Done. The files are in {spark}; the store was not changed.")
    assert stores.contents(plain / "consumequeue") == stores.contents(spark / "consumequeue")
    assert _digests(plain / "index") == _digests(spark / "index")  # their names are times
    assert cli(*words, "--output", spark, "--spark").code == 2


def _digests(directory: Path) -> list[str]:
    return [stores.digest(path) for path in sorted(directory.iterdir())]


def test_what_reindex_refuses_is_said_as_without_spark(fixture_copy: Store, cli: Cli) -> None:
    """Path, offset, hint and code are those of the engine."""
    store = fixture_copy("clean-small")
    damage(store)
    before = stores.contents(store)
    words = ("--store", store, "reindex", "--yes", "--json")
    plain, spark = cli(*words), cli(*words, "--spark", *SMALL)
    assert (spark.code, spark.json["error"]) == (4, plain.json["error"])
    assert spark.json["error"]["code"] == "damage"
    after = stores.contents(store)
    assert {path for path in after if after[path] != before.get(path)} <= {"lock", "."}
    crashed = fixture_copy("crashed-small")
    assert cli("pipeline", "reindex", crashed, "--yes").code == 4


def test_out_to_a_table_and_back(fixture_store: Store, cli: Cli, tmp_path: Path) -> None:
    store, table, new = fixture_store("clean-small"), tmp_path / "table", tmp_path / "new"
    out = cli("pipeline", "export", store, "--output", table, "--json", *SMALL)
    assert (out.code, out.json["messages"]) == (0, 600)
    again = cli("pipeline", "export", store, "--output", table, "--json")
    assert (again.code, again.json["messages"]) == (0, 0)
    back = cli("pipeline", "import", table, "--output", new, "--json")
    assert (back.code, back.json["messages"]) == (0, 600)
    assert cli("pipeline", "import", table, "--output", new).code == 4
    same = cli("pipeline", "diff", f"old={store}", f"new={new}", "--json", *SMALL)
    assert (same.code, same.json["ok"]) == (0, True)
    check_clean(new, StoreConfig(store_path_root_dir=new))
    other = cli("pipeline", "diff", store, fixture_store("lmq"), "--json")
    assert (other.code, other.json["ok"]) == (1, False)


def test_several_topics_out_and_in(fixture_store: Store, cli: Cli, tmp_path: Path) -> None:
    store, table, new = fixture_store("clean-small"), tmp_path / "table", tmp_path / "new"
    lines = [line for line in cli("--store", store, "dump", "commitlog", "--json").lines if line["kind"] == "message"]
    by_topic = Counter(line["topic"] for line in lines)
    (a, first), (b, second), (c, third), *_ = by_topic.most_common()
    out = cli("pipeline", "export", store, "--output", table, "--topic", a, "--topic", f"{b},{c}", "--json", *SMALL)
    assert (out.code, out.json["messages"]) == (0, first + second + third)
    back = cli("pipeline", "import", table, "--output", new, "--topic", f"{a},{b}", "--json")
    assert (back.code, back.json["messages"]) == (0, first + second)
    check_clean(new, StoreConfig(store_path_root_dir=new))


def test_what_is_in_the_logs(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    counted = cli("pipeline", "stats", store, "--json", *SMALL).json
    lines = [line for line in cli("--store", store, "dump", "commitlog", "--json").lines if line["kind"] == "message"]
    assert counted["messages"] == len(lines)
    assert counted["body_bytes"] == sum(line["bodyLength"] for line in lines)
    topic = lines[0]["topic"]
    found = cli("pipeline", "grep", store, "--topic", topic, "--limit", "1000", "--json", *SMALL).json
    expected = [line["physicalOffset"] for line in lines if line["topic"] == topic]
    assert [row["physical_offset"] for row in found["messages"]] == expected
    assert cli("pipeline", "grep", store, "--queue", "1", "--min-size", "1k", "--limit", "0", "--json").json[
        "matches"
    ] == sum(line["queueId"] == 1 and line["storeSize"] >= 1024 for line in lines)


def test_lag_of_groups(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    queue = min((store / "consumequeue" / "Orders").iterdir())
    (store / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {"Orders@readers": {queue.name: 3}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
    rows = cli("pipeline", "lag", store, "--group", "readers", "--json").json["queues"]
    (row,) = (row for row in rows if row["queue_id"] == int(queue.name))
    assert (row["offset"], row["messages"]) == (3, row["max_offset"] - 3)


def test_an_answer_in_words(fixture_store: Store, cli: Cli) -> None:
    ran = cli("pipeline", "verify", fixture_store("lmq"))
    assert ran.out.splitlines()[0].split() == ["stores", "1"]
    assert "Damage: none" in ran.out


def test_progress_counts_tasks(spark: SparkSession) -> None:
    from engine.pipeline.progress import watched

    seen: list[tuple[int, int]] = []
    with watched(spark, lambda done, total, _: seen.append((done, total))):
        spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("time").sleep(0.4)).count()
    assert (0, 0) not in seen[-1:]
    assert {total for _, total in seen} <= {0, 8}
    assert any(0 < done < 8 for done, _ in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
