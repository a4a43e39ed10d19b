"""Repositories on Spark: rows and jobs say of a snapshot what they say of its store; damage, keys, exports, fleets."""

# ruff: noqa: F811
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.backup.secret import KeySource
from engine.config import StoreConfig
from engine.errors import FormatError, InvalidArgument, NotReached, Refused, RStoreError, WrongKey
from engine.files.disk import Disk
from engine.pipeline.exported import HIDDEN, read_manifest
from engine.pipeline.failures import translate
from engine.pipeline.jobs import diff, export, grep, lag, reindex, stats, verify
from engine.pipeline.jobs.export import ExportOptions
from engine.pipeline.repositories import RepositoryChoice, snapshot_disk
from engine.pipeline.schema import COLUMNS, FIELD_IDS
from engine.pipeline.spark import session
from engine.pipeline.stores import StoreRef, find_stores, find_two
from engine.store import MessageStore
from tests.engine.backup import archives, repositories
from tests.engine.opening import assert_sound, message, small
from tests.engine.pipeline.test_repositories import back_up
from tests.pipeline.test_export import Dying, Killed, damaged, expected, places
from tests.pipeline.test_lag import NOW, made
from tests.rstore_cli.conftest import Cli, _no_settings_from_outside, cli  # noqa: F401 - fixtures
from tests.support import golden, stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from engine.pipeline.result import JobResult

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]
HOUR = 3_600_000
SMALL = ("clean-small", "crashed-small", "lmq", "transient-ext")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(repositories.SECRET)
    return tmp_path / "key"


def of_repository(place: Path, key: Path) -> tuple[StoreRef, ...]:
    return find_stores((), repositories=[str(place)], choice=RepositoryChoice(key=KeySource(str(key))))


def read(spark: SparkSession, place: str | Path, key: Path, **options: str) -> DataFrame:
    return spark.read.format("rstore").options(keyFile=str(key), **options).load(str(place))


def rows(frame: DataFrame) -> list[Any]:
    return frame.select(*COLUMNS).orderBy("store", "physical_offset").collect()


def without(result: JobResult, *names: str) -> dict[str, Any]:
    """A job's answer without what tells a store from its snapshot."""
    answer = {name: value for name, value in result.to_json().items() if name not in ("seconds", "splits", *names)}
    for row in answer.get("stores", []) if isinstance(answer.get("stores"), list) else []:
        row.pop("path")
    return answer


def test_every_column_of_every_record(
    spark: SparkSession, fixture_store: Store, fixture_copy: Store, golden_store: Store, tmp_path: Path, key: Path
) -> None:
    """Eight stores in one repository, and each by itself; with damage, and in small splits."""
    repository = repositories.new(tmp_path / "r")
    roots = {name: fixture_store(name) for name in SMALL}
    roots |= {f"golden-{name}": golden_store(name) for name in golden.NAMES}
    roots["damaged"], bad = damaged(fixture_copy)
    for name, root in roots.items():
        back_up(repository, name, root)
    before = stores.snapshot(tmp_path / "r")
    own = spark.read.format("rocketmq-store").options(onDamage="mark", splitBytes="200000")
    theirs = rows(own.load(",".join(f"{name}={root}" for name, root in roots.items())))
    ours = read(spark, tmp_path / "r", key, onDamage="mark", splitBytes="200000")
    assert rows(ours) == theirs
    assert {row["store"] for row in theirs} == set(roots)
    assert ours.count() == len(theirs)
    assert [row["physical_offset"] for row in theirs if row["damage"]] == [bad.offset]
    one = read(spark, tmp_path / "r", key, storeName="lmq", columns="physical_offset,store").collect()
    assert [row["physical_offset"] for row in one] == [r["physical_offset"] for r in theirs if r["store"] == "lmq"]
    assert stores.snapshot(tmp_path / "r") == before


def test_store_and_archive_are_one_log(spark: SparkSession, fixture_copy: Store, tmp_path: Path, key: Path) -> None:
    """What a store has deleted, and what it has still: each record once, as before; for jobs, too."""
    store = fixture_copy("clean-small")
    theirs = rows(spark.read.format("rocketmq-store").load(f"a={store}"))
    repository = repositories.new(tmp_path / "r")
    repositories.back_up(repository, store)
    archives.expire(repository, store)
    repositories.back_up(repository, store)
    ours = read(spark, tmp_path / "r", key, archived="true")
    assert rows(ours) == theirs
    choice = RepositoryChoice(key=KeySource(str(key)), archived=True)
    refs = find_stores((), repositories=[str(tmp_path / "r")], choice=choice)
    assert grep.run(spark, refs, grep.GrepOptions(limit=5)).facts["matches"] == len(theirs)


def test_jobs_say_the_same(spark: SparkSession, fixture_store: Store, tmp_path: Path, key: Path) -> None:
    repository = repositories.new(tmp_path / "r")
    for name in SMALL:
        back_up(repository, name, fixture_store(name))
    theirs = find_stores([f"{name}={fixture_store(name)}" for name in sorted(SMALL)])
    ours = of_repository(tmp_path / "r", key)
    assert [ref.name for ref in ours] == [ref.name for ref in theirs]
    for run in (
        lambda refs: verify.run(spark, refs, verify.VerifyOptions(100_000)),
        lambda refs: stats.run(spark, refs, stats.StatsOptions()),
        lambda refs: grep.run(spark, refs, grep.GrepOptions(min_size=200, limit=50)),
    ):
        assert without(run(ours)) == without(run(theirs))
    pair = find_two([str(fixture_store("clean-small"))], repositories=[f"{tmp_path}/r"], choice=RepositoryChoice(
        None, ("clean-small",), KeySource(str(key)))
    )  # fmt: skip
    assert pair[1].name.startswith("clean-small@")
    same = diff.run(spark, pair, diff.DiffOptions())
    assert same.ok
    assert same.facts["messages_a"] == same.facts["messages_b"] > 0
    with pytest.raises(Refused, match="reindex can't change a snapshot"):
        reindex.run(spark, ours[:1], reindex.ReindexOptions(output=str(tmp_path / "o")))
    with pytest.raises(Exception) as caught:
        spark.readStream.format("rstore").option("keyFile", str(key)).load(f"{tmp_path}/r").writeStream.format(
            "noop"
        ).option("checkpointLocation", f"{tmp_path}/c").start().awaitTermination(60)
    assert "a stream can't read a snapshot" in str(translate(caught.value))


def test_two_snapshots_differ_by_what_came_since(spark: SparkSession, tmp_path: Path, key: Path) -> None:
    config = small(tmp_path / "s")
    repository = repositories.new(tmp_path / "r")
    ids = []
    for count in (30, 12):
        with MessageStore.open(config) as store:
            for number in range(count):
                assert store.put(message(b"%d" % number)).ok
        ids.append(back_up(repository, "a", config).name.snapshot_id)
    choice = RepositoryChoice(key=KeySource(str(key)))
    result = diff.run(spark, find_two([f"{tmp_path}/r@{one}" for one in ids], choice=choice), diff.DiffOptions())
    assert not result.ok
    assert (result.facts["messages_a"], result.facts["messages_b"]) == (30, 42)
    assert result.facts["only_b_at_the_end"] == 12
    assert_sound(config)


def test_lag_by_the_log(spark: SparkSession, tmp_path: Path, key: Path, fixture_store: Store) -> None:
    """As the queues of the stores have it: groups, delayed messages, light queues, offsets out of range."""
    offsets = {"T0@g": {"0": 3, "1": 0}, "T1@g": {"0": 10, "1": 9}, "T0@h": {"0": 14, "1": 999}, "None@h": {"0": 5}}
    roots = {"made": made(tmp_path / "made", offsets), "lmq": fixture_store("lmq"), "c": fixture_store("clean-small")}
    (roots["made"] / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"3": 2}}))
    repository = repositories.new(tmp_path / "r")
    for name, root in roots.items():
        back_up(repository, name, root)
    theirs = lag.run(spark, find_stores(f"{name}={roots[name]}" for name in sorted(roots)), lag.LagOptions(now=NOW))
    ours = lag.run(spark, of_repository(tmp_path / "r", key), lag.LagOptions(now=NOW))
    assert ours.to_json() == theirs.to_json()
    assert ours.facts["messages"] > 0
    assert ours.facts["above_the_end"] == 1
    mixed = [*of_repository(tmp_path / "r", key), *find_stores([f"too={roots['made']}"])]
    both = lag.run(spark, mixed, lag.LagOptions(now=NOW, group="g"))
    assert {row["store"] for row in both.table("queues").to_json()} == {"made", "too"}


def test_lag_of_queues_that_have_expired(spark: SparkSession, tmp_path: Path, key: Path) -> None:
    """Their last file is in the snapshot."""
    root = made(tmp_path / "s", {"T0@g": {"0": 3}, "T1@g": {"0": 1}}, count=400)
    for segment in sorted((root / "commitlog").iterdir())[:-1]:
        segment.unlink()
    back_up(repositories.new(tmp_path / "r"), "s", root)
    theirs = lag.run(spark, find_stores([f"s={root}"]), lag.LagOptions(now=NOW))
    ours = lag.run(spark, of_repository(tmp_path / "r", key), lag.LagOptions(now=NOW))
    assert ours.to_json() == theirs.to_json()


def pieces_of_first_segment(refs: tuple[StoreRef, ...], place: Path) -> list[Path]:
    assert refs[0].snapshot is not None
    log = snapshot_disk(refs[0].snapshot).log
    return [place / "pieces" / name[:2] / name for name in log.pieces_of(log.segments[0]).pieces if name is not None]


def test_a_damaged_repository_is_told(spark: SparkSession, fixture_store: Store, tmp_path: Path, key: Path) -> None:
    place = tmp_path / "r"
    back_up(repositories.new(place), "a", fixture_store("clean-small"))
    refs = of_repository(place, key)
    every = read(spark, place, key).count()
    (piece,) = pieces_of_first_segment(refs, place)
    data = piece.read_bytes()
    for damage in (lambda: piece.write_bytes(data[:-1] + bytes([data[-1] ^ 1])), piece.unlink):
        damage()
        with pytest.raises(FormatError, match="the system can't read it") as error:
            read(spark, place, key, columns="topic").collect()
        assert error.value.offset == 0
        assert "/commitlog/00000000000000000000" in str(error.value.path)
        marked = read(spark, place, key, onDamage="mark")
        (row,) = marked.where("damage is not null").collect()
        assert (row["physical_offset"], row["size"]) == (0, refs[0].segments[0].size)
        assert 0 < marked.count() < every
        result = verify.run(spark, refs, verify.VerifyOptions(60_000))
        assert not result.ok
        assert [(one["physical_offset"], one["reason"]) for one in result.table("damage").to_json()] == [
            (0, "the system can't read it")
        ]
        counted = stats.run(spark, refs, stats.StatsOptions())
        assert counted.facts["damaged_bytes"] == refs[0].segments[0].size
        with pytest.raises(RStoreError):
            export.run(spark, refs, ExportOptions(output=str(tmp_path / "t")))
        assert not list((tmp_path / "t").rglob("*.parquet"))
    piece.mkdir()  # what does not answer is no damage, whatever onDamage says
    for on_damage in ("skip", "mark", "fail"):
        with pytest.raises(NotReached, match="the repository can't give it"):
            read(spark, place, key, onDamage=on_damage, columns="topic").collect()
    with pytest.raises(NotReached):
        verify.run(spark, refs, verify.VerifyOptions())
    with pytest.raises(NotReached):
        export.run(spark, refs, ExportOptions(output=str(tmp_path / "t"), on_damage="skip"))
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_keys_are_shown_nowhere(spark: SparkSession, fixture_store: Store, tmp_path: Path, key: Path) -> None:
    place = tmp_path / "r"
    back_up(repositories.new(place), "a", fixture_store("clean-small"))
    frame = read(spark, place, key).where("topic is not null").select("topic", "size")
    frame.collect()
    shown = str(frame._jdf.queryExecution().toString()) + str(spark.sparkContext.getConf().getAll())
    assert repositories.SECRET.decode() not in shown
    other = tmp_path / "other"
    other.write_text("not the right key")
    for wrong, says in ((other, "opens none"), (tmp_path / "none", "reading|opening")):
        with pytest.raises(RStoreError, match=says):
            read(spark, place, wrong).count()
    with pytest.raises(WrongKey, match="the repository is encrypted"):
        spark.read.format("rstore").load(str(place)).count()
    refs = of_repository(shutil.copytree(place, tmp_path / "other-place"), key)
    key.write_text("changed before the executors ask for it")
    with pytest.raises(WrongKey):
        verify.run(spark, refs, verify.VerifyOptions())
    with pytest.raises(InvalidArgument, match="unknown option: key"):
        spark.read.format("rstore").option("key", repositories.SECRET.decode()).load(str(place)).count()
    with pytest.raises(InvalidArgument, match="shows in Spark's pages"), session(
        conf={"spark.executorEnv.RSTORE_REPO_KEY": repositories.SECRET.decode()}
    ):  # fmt: skip
        pass


def test_export_adds_what_a_snapshot_has_more(spark: SparkSession, tmp_path: Path, key: Path) -> None:
    """By hour, killed at each of its steps, from snapshots and then from the store itself: each row once."""
    config, table = small(tmp_path / "s"), tmp_path / "t"
    repository = repositories.new(tmp_path / "r")
    snapshots = []
    for hour in range(3):
        grow(config, hour)
        snapshots.append(back_up(repository, "s", config).name.snapshot_id)
    options = ExportOptions(output=str(table), by="hour")
    choice = RepositoryChoice(key=KeySource(str(key)))
    of = [find_stores([f"{tmp_path}/r@{one}"], choice=choice) for one in snapshots]
    assert export.run(spark, of[0], options).facts["messages"] == 10
    steps = [("export.pending", 1), ("export.moved", 1), ("export.committed", 1)]
    grow(config, 3)
    for refs, (step, number) in zip((of[1], of[2], find_stores([str(tmp_path / "s")])), steps, strict=True):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(export, "Disk", lambda step=step, number=number: Dying(step, number))
            with pytest.raises(Killed):
                export.run(spark, refs, options)
        assert export.run(spark, refs, ExportOptions(output=str(table))).facts["messages"] == 0
    assert places(spark, table) == expected(("s", tmp_path / "s"))
    assert len(places(spark, table)) == 40
    hours = {path.parent.name for path in table.rglob("*.parquet")}
    assert hours == {"hour=22", "hour=23", "hour=0", "hour=1"}
    assert sorted(path.name for path in (table / HIDDEN).iterdir()) == ["export.json", "lock"]
    manifest = read_manifest(Disk(), str(table))
    assert manifest is not None
    assert [one[0] for one in manifest.stores["s"].snapshots] == snapshots
    assert [one[1] for one in manifest.stores["s"].snapshots] == [
        0,
        *(one[2] for one in manifest.stores["s"].snapshots),
    ][:3]
    older = export.run(spark, of[0], options)
    assert older.facts["messages"] == 0
    assert "nothing new" in older.notes[0]
    with pytest.raises(Refused, match="the table is partitioned by hour"):
        export.run(spark, of[0], ExportOptions(output=str(table), by="day"))
    numbers_of(table)
    assert_sound(config)


def grow(config: StoreConfig, hour: int) -> None:
    with MessageStore.open(config, clock=lambda: 1_700_000_000_000 + hour * HOUR) as store:
        for number in range(10):
            assert store.put(message(b"%d" % number, topic=f"T{number % 2}")).ok


def numbers_of(table: Path) -> None:
    """Each column of each file has its number."""
    from pyarrow import parquet

    for path in table.rglob("*.parquet"):
        schema = parquet.read_schema(path)
        numbers = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
        assert numbers == {name: FIELD_IDS[name] for name in schema.names}
        assert set(schema.names) == FIELD_IDS.keys() - {"topic"}


def test_a_fleet_on_the_command_line(cli: Cli, spark: SparkSession, fixture_store: Store, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(repositories.SECRET)
    for place in ("east", "west"):
        back_up(repositories.new(tmp_path / "r" / place), "broker", fixture_store("clean-small"))
    shutil.copytree(fixture_store("clean-small"), tmp_path / "here")
    repo = ("--repo", tmp_path / "r" / "*", "--key-file", key)
    ran = cli("pipeline", "verify", tmp_path / "here", *repo, "--json")
    assert ran.code == 0, ran
    assert [row["store"] for row in ran.json["stores"]] == ["here", "east.broker", "west.broker"]
    assert len({(row["records"], row["bytes"], row["end"]) for row in ran.json["stores"]}) == 1
    found = cli("pipeline", "grep", *repo, "--json", "--limit", "1000", "--min-size", "1k")
    assert found.code == 0
    by_store = [
        {row["physical_offset"] for row in found.json["messages"] if row["store"] == name}
        for name in ("east.broker", "west.broker")
    ]
    assert by_store[0] == by_store[1] != set()
    same = cli("pipeline", "diff", *repo, "--json")
    assert same.code == 0
    one = cli("pipeline", "lag", "--repo", tmp_path / "r" / "east", "--key-command", f"cat {key}", "--json")
    assert one.code in (0, 1)
    assert one.json["stores"] == 1
    wrong = cli("pipeline", "stats", *repo[:2], "--key-file", tmp_path / "none")
    assert wrong.code == 5
    both = cli("pipeline", "stats", *repo, "--key-command", "true")
    assert both.code == 2
    assert cli("pipeline", "verify", *repo, "--name", "nobody").code == 1
    assert cli("--store", tmp_path / "r" / "east", "verify-crc", "--spark").code == 4
