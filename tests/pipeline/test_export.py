"""export: the table says what the log says, and never says it twice, whenever a run was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.config import StoreConfig
from engine.errors import FormatError, InvalidArgument, Refused, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.pipeline.exported import HIDDEN, ExportedTable, read_manifest
from engine.pipeline.jobs import export as job
from engine.pipeline.jobs import import_
from engine.pipeline.jobs.export import ExportOptions, read_table, run
from engine.pipeline.schema import COLUMNS
from engine.pipeline.stores import find_stores
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import plain
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]
DAY = 86_400_000


def put(config: StoreConfig, *messages: Any, at: int = 1_700_000_000_000) -> None:
    with MessageStore.open(config, clock=lambda: at) as store:
        for one in messages:
            assert store.put(one).ok
    assert_sound(config)


def places(spark: SparkSession, table: Path) -> list[tuple[str, int]]:
    rows = read_table(spark, str(table)).select("store", "physical_offset").collect()
    return sorted((row["store"], row["physical_offset"]) for row in rows)


def expected(*stores: tuple[str, Path]) -> list[tuple[str, int]]:
    return sorted((name, record.offset) for name, store in stores for record in plain.records(store))


def test_every_field_of_every_record(
    spark: SparkSession, fixture_store: Store, unchanged: Callable[[Path], None], tmp_path: Path
) -> None:
    store = fixture_store("clean-small")
    unchanged(store)
    result = run(spark, find_stores([f"a={store}"]), ExportOptions(output=str(tmp_path / "t")))
    table = read_table(spark, str(tmp_path / "t"))
    assert set(table.columns) == {*COLUMNS, "day"}
    found = {row["physical_offset"]: row.asDict() for row in table.orderBy("physical_offset").collect()}
    wanted = {row["physical_offset"]: row for row in plain.rows(store)}
    assert list(found) == list(wanted)
    for offset, row in wanted.items():
        row["properties"] = dict(row["properties"])
        assert {name: found[offset][name] for name in row} == row
    facts = result.facts
    assert facts["messages"] == len(wanted)
    assert facts["bytes"] == sum(row["size"] for row in wanted.values())
    files = list((tmp_path / "t").rglob("*.parquet"))
    assert facts["files"] == len(files)
    assert facts["file_bytes"] == sum(file.stat().st_size for file in files)
    assert facts["partitions"] == len({file.parent for file in files})
    assert sum(row[2] for row in result.table("partitions").rows) == len(wanted)


def test_topics_and_days_are_directories(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    topics = ["007", "2023-11-14", "%RETRY%g", "a*b?c", "ä" * 60, "%" * 127, "__HIVE_DEFAULT_PARTITION__", "x=y z"]
    put(config, *(message(f"1 {topic}", topic=topic) for topic in topics), at=0)
    put(config, *(message(f"2 {topic}", topic=topic) for topic in topics), at=3 * DAY + 5)
    put(config, message("no day", topic="007"), at=1 << 60)
    result = run(spark, find_stores([f"s={tmp_path / 's'}"]), ExportOptions(output=str(tmp_path / "t")))
    rows = read_table(spark, str(tmp_path / "t")).select("topic", "day", "body").collect()
    assert sorted((row["topic"], str(row["day"]), bytes(row["body"]).decode()) for row in rows) == sorted(
        [
            *((topic, "1970-01-01", f"1 {topic}") for topic in topics),
            *((topic, "1970-01-04", f"2 {topic}") for topic in topics),
            ("007", "None", "no day"),
        ]
    )
    directories = {path.relative_to(tmp_path / "t").parent.as_posix() for path in (tmp_path / "t").rglob("*.parquet")}
    assert {"topic=007/day=1970-01-01", "topic=007/day=__HIVE_DEFAULT_PARTITION__"} <= directories
    assert "topic=%25RETRY%25g/day=1970-01-04" in directories
    assert {row[0] for row in result.table("partitions").rows} == set(topics)


def test_again_and_grown(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    put(config, *(message(bytes(500), i % 3, f"T{i % 2}") for i in range(200)))
    stores, options = [f"s={tmp_path / 's'}"], ExportOptions(output=str(tmp_path / "t"))
    assert run(spark, find_stores(stores), options).facts["messages"] == 200
    again = run(spark, find_stores(stores), options)
    assert (again.facts["messages"], again.facts["files"]) == (0, 0)
    assert "nothing new" in again.notes[0]
    put(config, *(message(b"more", i % 3, "T0") for i in range(7)))
    assert run(spark, find_stores(stores), options).facts["messages"] == 7
    assert places(spark, tmp_path / "t") == expected(("s", tmp_path / "s"))
    other = small(tmp_path / "o")
    put(other, message("other"))
    both = find_stores([*stores, f"o={tmp_path / 'o'}"])
    assert run(spark, both, options).facts["messages"] == 1
    assert places(spark, tmp_path / "t") == expected(("s", tmp_path / "s"), ("o", tmp_path / "o"))


def test_several_topics(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    put(config, *(message(b"x", topic=topic) for topic in "ABCAB"))
    stores, several = find_stores([f"s={tmp_path / 's'}"]), str(tmp_path / "u")
    assert run(spark, stores, ExportOptions(several, topics=("A", "B"))).facts["messages"] == 4
    assert run(spark, stores, ExportOptions(several, topics=("B",))).facts["messages"] == 0
    only = import_.ImportOptions(f"file://{several}", str(tmp_path / "n"), topics=("B",))
    assert import_.run(spark, (), only).facts["messages"] == 2
    check_clean(tmp_path / "n")
    with pytest.raises(InvalidArgument, match="no message of the topic C"):
        import_.run(spark, (), import_.ImportOptions(several, str(tmp_path / "m"), topics=("B", "C")))
    with pytest.raises(InvalidArgument, match="hdfs: is not a supported file system"):
        run(spark, stores, ExportOptions("hdfs://name/table"))


def test_a_table_of_all_columns_goes_on_with_those_that_it_has(spark: SparkSession, tmp_path: Path) -> None:
    """One that was begun before there were `msg_id` and `born_time`."""
    config = small(tmp_path / "s")
    put(config, message("one"))
    older = tuple(name for name in COLUMNS if name not in ("msg_id", "born_time"))
    run(spark, find_stores([f"s={tmp_path / 's'}"]), ExportOptions(str(tmp_path / "t"), columns=older))
    put(config, message("two"))
    again = run(spark, find_stores([f"s={tmp_path / 's'}"]), ExportOptions(str(tmp_path / "t")))
    assert again.facts["messages"] == 1
    assert set(job.read_table(spark, str(tmp_path / "t")).columns) == {*older, "day"}


def test_choices_that_overlap(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    for hour in range(4):
        put(config, *(message(b"x", topic=topic) for topic in "AB"), at=1_700_000_000_000 + hour * 3_600_000)
    stores, output = find_stores([f"s={tmp_path / 's'}"]), str(tmp_path / "t")
    middle = 1_700_000_000_000 + 2 * 3_600_000
    assert run(spark, stores, ExportOptions(output, topics=("A",))).facts["messages"] == 4
    assert run(spark, stores, ExportOptions(output, topics=("A",), end_time=middle)).facts["messages"] == 0
    assert run(spark, stores, ExportOptions(output, end_time=middle)).facts["messages"] == 2
    assert run(spark, stores, ExportOptions(output)).facts["messages"] == 2
    assert run(spark, stores, ExportOptions(output, start_time=middle)).facts["messages"] == 0
    assert places(spark, tmp_path / "t") == expected(("s", tmp_path / "s"))


class Killed(BaseException):
    pass


class Dying(Disk):
    """Dies at the nth step of that name."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self._name, self._left = name, number

    def step(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                raise Killed


@pytest.mark.parametrize(
    ("step", "number"), [("export.pending", 1), ("export.moved", 1), ("export.moved", 2), ("export.committed", 1)]
)
def test_killed_half_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    config = small(tmp_path / "s")
    put(config, *(message(b"%d" % i, topic=f"T{i % 3}") for i in range(30)))
    stores, options = find_stores([f"s={tmp_path / 's'}"]), ExportOptions(output=str(tmp_path / "t"))
    with monkeypatch.context() as patched:
        patched.setattr(job, "Disk", lambda: Dying(step, number))
        with pytest.raises(Killed):
            run(spark, stores, options)
    assert run(spark, stores, options).facts["messages"] == 0  # the killed run's rows count as its own
    assert places(spark, tmp_path / "t") == expected(("s", tmp_path / "s"))
    assert sorted(path.name for path in (tmp_path / "t" / HIDDEN).iterdir()) == ["export.json", "lock"]


def test_killed_before_anything_was_planned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path / "s")
    put(config, *(message(b"%d" % i) for i in range(5)))
    stores, options = find_stores([f"s={tmp_path / 's'}"]), ExportOptions(output=str(tmp_path / "t"))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ExportedTable, "commit", die)
        with pytest.raises(Killed):
            run(spark, stores, options)
    assert list((tmp_path / "t" / HIDDEN / "staging").rglob("*.parquet"))
    assert run(spark, stores, options).facts["messages"] == 5
    assert places(spark, tmp_path / "t") == expected(("s", tmp_path / "s"))


def damaged(fixture_copy: Store) -> tuple[Path, plain.Record]:
    store = fixture_copy("clean-small")
    bad = plain.records(store)[20]
    with sorted((store / "commitlog").iterdir())[0].open("r+b") as file:
        file.seek(bad.offset)
        file.write(b"\xff" * 4)
    return store, bad


def test_damage(spark: SparkSession, fixture_copy: Store, tmp_path: Path) -> None:
    store, bad = damaged(fixture_copy)
    stores, count = find_stores([f"s={store}"]), len(plain.records(store))
    with pytest.raises(Exception, match=str(bad.offset)):
        run(spark, stores, ExportOptions(output=str(tmp_path / "fail")))
    assert not list((tmp_path / "fail").rglob("*.parquet"))
    skipped = run(spark, stores, ExportOptions(output=str(tmp_path / "skip"), on_damage="skip"))
    marked = run(spark, stores, ExportOptions(output=str(tmp_path / "mark"), on_damage="mark"))
    for result in (skipped, marked):
        assert (result.facts["messages"], result.facts["damaged_places"]) == (count, 1)
        assert result.table("damage").rows[0][:3] == ("s", bad.offset, bad.message.total_size)
    assert places(spark, tmp_path / "skip") == expected(("s", store))
    assert places(spark, tmp_path / "mark") == sorted([*expected(("s", store)), ("s", bad.offset)])


def test_some_columns(spark: SparkSession, tmp_path: Path) -> None:
    put(small(tmp_path / "s"), message(b"x", KEYS="k"))
    stores = find_stores([f"s={tmp_path / 's'}"])
    run(spark, stores, ExportOptions(output=str(tmp_path / "t"), columns=("keys", "body"), include_body=False))
    found = read_table(spark, str(tmp_path / "t"))
    assert set(found.columns) == {*job._ALWAYS, "keys", "day"}
    with pytest.raises(Refused, match="other columns"):
        run(spark, stores, ExportOptions(output=str(tmp_path / "t")))
    with pytest.raises(InvalidArgument, match="no such column: colour"):
        run(spark, stores, ExportOptions(output=str(tmp_path / "u"), columns=("colour",)))


def test_another_store_of_the_same_name(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(small(tmp_path / name), message(f"of {name}"), at=1_700_000_000_000)
    options = ExportOptions(output=str(tmp_path / "t"))
    run(spark, find_stores([f"s={tmp_path / 'a'}"]), options)
    with pytest.raises(Refused, match="another store named s"):
        run(spark, find_stores([f"s={tmp_path / 'b'}"]), options)


def test_where_no_table_can_be(spark: SparkSession, tmp_path: Path) -> None:
    put(small(tmp_path / "s"), message(b"x"))
    stores = find_stores([f"s={tmp_path / 's'}"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(Refused, match="the directory is not empty"):
        run(spark, stores, ExportOptions(output=str(tmp_path / "full")))
    with pytest.raises(InvalidArgument, match="the directory of the table is required"):
        run(spark, stores, ExportOptions())
    with pytest.raises(InvalidArgument, match="s3: is not a supported file system"):
        run(spark, stores, ExportOptions(output="s3://bucket/t"))
    run(spark, stores, ExportOptions(output=str(tmp_path / "t")))
    lock = StoreLock(Disk(), str(tmp_path / "t" / HIDDEN))
    with lock, pytest.raises(StoreLocked):
        run(spark, stores, ExportOptions(output=str(tmp_path / "t")))
    manifest = tmp_path / "t" / HIDDEN / "export.json"
    manifest.write_text(json.dumps({"version": 99}))
    with pytest.raises(FormatError, match="another version of rstore"):
        read_manifest(Disk(), str(tmp_path / "t"))
    manifest.write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        run(spark, stores, ExportOptions(output=str(tmp_path / "t")))


def test_a_log_that_went_on_while_nobody_exported(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    put(config, *(message(bytes(1000)) for _ in range(20)))
    options = ExportOptions(output=str(tmp_path / "t"))
    run(spark, find_stores([f"s={tmp_path / 's'}"]), options)
    put(config, *(message(bytes(1000)) for _ in range(150)))
    for segment in sorted((tmp_path / "s" / "commitlog").iterdir())[:1]:
        segment.unlink()
    result = run(spark, find_stores([f"s={tmp_path / 's'}"]), options)
    assert "bytes of its log were deleted before they were exported" in result.notes[0]
    found = places(spark, tmp_path / "t")
    assert len(found) == len(set(found)) == 20 + len(plain.records(tmp_path / "s"))


def test_a_table_that_holds_nothing_yet_is_added_to(spark: SparkSession, fixture_store: Store, tmp_path: Path) -> None:
    store = fixture_store("clean-small")
    table = tmp_path / "t"
    nothing = run(spark, find_stores([f"a={store}"]), ExportOptions(output=str(table), start_time=1 << 52))
    assert nothing.facts["messages"] == 0
    run(spark, find_stores([f"a={store}"]), ExportOptions(output=str(table)))
    assert places(spark, table) == expected(("a", store))
