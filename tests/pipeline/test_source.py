"""The data source on a real Spark session: every row as Apache reads it, options, filters, damage, live stores."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from engine.errors import FormatError, InvalidArgument, RStoreError
from engine.format import hosts
from engine.format.message import Message, make_msg_id
from engine.format.sysflag import is_consumable
from engine.pipeline.jobs.tasks import run_groups
from engine.pipeline.options import parse
from engine.pipeline.partition import SplitPartition
from engine.pipeline.schema import COLUMNS
from engine.pipeline.source import NAME, FilteringReader, StoreReader, damage
from engine.pipeline.stores import find_stores
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.support import references, stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]
MANY = 20
"""Columns of a scan that reads all of them, as far as Spark prints them."""


def load(spark: SparkSession, *places: Path | str, **options: Any) -> DataFrame:
    return spark.read.format(NAME).options(**options).load(",".join(map(str, places)))


def shares(places: list[Path], **options: str) -> list[Any]:
    """What a read would plan."""
    reader = StoreReader(parse({"path": ",".join(map(str, places)), **options}))
    return [p.share for p in reader.partitions() if isinstance(p, SplitPartition)]


@pytest.mark.parametrize("reference", ["fixtures/clean-small", "fixtures/lmq"])
def test_every_row_as_apache_reads_it(spark: SparkSession, reference: str, reference_store: Store) -> None:
    path = reference_store(reference)
    before = stores.snapshot(path)
    expected = sorted(references.dump(reference, "log"), key=lambda line: line["physicalOffset"])
    for size in ("100000",):
        rows = load(spark, path, splitBytes=size).orderBy("physical_offset").collect()
        assert len(rows) == len(expected)
        for found, line in zip(rows, expected, strict=True):
            assert found.store == path.name
            assert found.physical_offset == line["physicalOffset"] == found.stored_physical_offset
            assert found["size"] == line["size"]
            assert (found.topic, found.queue_id, found.queue_offset) == (
                line["topic"], line["queueId"], line["queueOffset"],
            )  # fmt: skip
            assert (found.tags, found.properties) == (line["tags"], line["properties"])
            assert found["keys"] == [word for word in (line["keys"] or "").split(" ") if word]
            assert (found.body_length, len(found.body), found.crc_ok) == (line["bodyLen"], line["bodyLen"], True)
            assert (found.flag, found.sys_flag) == (line["flag"], line["sysFlag"])
            assert (found.born_timestamp, found.store_timestamp) == (line["bornTimestamp"], line["storeTimestamp"])
            assert found.store_time.timestamp() * 1000 == pytest.approx(line["storeTimestamp"])
            assert found.born_time.timestamp() * 1000 == pytest.approx(line["bornTimestamp"])
            assert found.msg_id == make_msg_id(hosts.parse(found.store_host), line["physicalOffset"])
            assert found.damage is None
    assert stores.snapshot(path) == before


def test_many_stores_by_paths_globs_and_names(spark: SparkSession, tmp_path: Path, fixture_store: Store) -> None:
    for name in ("broker-a", "broker-b"):
        stores.copy(fixture_store("clean-small"), tmp_path / name)
    one = load(spark, tmp_path / "broker-a", columns="store").count()
    by_glob = load(spark, tmp_path / "broker-*", columns="store").groupBy("store").count().collect()
    assert {row.store: row["count"] for row in by_glob} == {"broker-a": one, "broker-b": one}
    several = spark.read.format(NAME).load([str(tmp_path / "broker-a"), f"other={tmp_path / 'broker-b'}"])
    assert {row.store for row in several.select("store").distinct().collect()} == {"broker-a", "other"}


def test_columns_in_the_order_that_was_asked_for(spark: SparkSession, fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    assert load(spark, path, COLUMNS="body, topic ,keys").columns == ["body", "topic", "keys"]
    assert load(spark, path, includeBody="false").columns == [name for name in COLUMNS if name != "body"]
    assert load(spark, path).columns == list(COLUMNS)


CONDITIONS = [
    "topic = 'Hot'",
    "topic in ('Hot', 'TopicA', 'none')",
    "topic = 'Hot' and queue_id = 0 and queue_offset between 3 and 9",
    "physical_offset >= 50000 and physical_offset < 60000",
    "queue_id > 1 and queue_id <= 3",
    "store_timestamp > {middle}",
    "store_time >= timestamp_millis({middle})",
    "store_time < timestamp_millis({middle}) and topic <> 'Hot'",
    "queue_offset in (1, 2)",
    "topic = 'Hot' or queue_id = 1",
    "topic is null",
]


def test_filters_change_nothing(spark: SparkSession, fixture_store: Store) -> None:
    """The same rows as of a filter that Spark looks at itself; with the setting and without."""
    path = fixture_store("clean-small")
    times = sorted(line["storeTimestamp"] for line in references.dump("fixtures/clean-small", "log"))
    columns = "physical_offset,topic,queue_id,queue_offset,store_timestamp,store_time"
    frame = load(spark, path, columns=columns, splitBytes="300000")
    everything = spark.createDataFrame(frame.collect(), frame.schema).cache()
    for condition in CONDITIONS:
        text = condition.format(middle=times[len(times) // 2])
        expected = sorted(everything.where(text).collect())
        pushed = load(spark, path, columns=columns, splitBytes="300000", pushFilters=True)
        assert sorted(pushed.where(text).collect()) == expected, text
        assert len(expected) < everything.count()
    with pytest.raises(Exception, match=r"filterPushdown\.enabled"):
        without(spark, lambda: pushed_again(spark, path).count())
    assert without(spark, lambda: load(spark, path, columns=columns).count()) == everything.count()


def pushed_again(spark: SparkSession, path: Path) -> DataFrame:
    return load(spark, path, pushFilters=True)


def without(spark: SparkSession, run: Callable[[], int]) -> int:
    """With Spark's setting off."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        return run()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_frame_is_used_again_rightly(spark: SparkSession, fixture_store: Store) -> None:
    """Spark keeps a plan, and the filters that went into it: so none do, unless the user said that it may."""
    frame = load(spark, fixture_store("clean-small"), columns="topic")
    everything, hot = frame.count(), frame.where("topic = 'Hot'").count()
    assert 0 < hot < everything
    assert frame.count() == everything
    assert frame.where("topic = 'Hot'").union(frame).count() == hot + everything


def test_a_filter_reads_less(spark: SparkSession, fixture_store: Store) -> None:
    """Filters come through to the reader, which plans fewer splits."""
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    path = fixture_store("clean-small")
    reader = FilteringReader(parse({"path": str(path), "splitbytes": "20000"}))
    everything = len(reader.partitions())
    filters = [GreaterThanOrEqual(("physical_offset",), 50_000), LessThan(("physical_offset",), 60_000)]
    assert list(reader.pushFilters(filters)) == filters
    assert 0 < len(reader.partitions()) <= 3 < everything


def test_offsets_and_times_as_options(spark: SparkSession, fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    lines = sorted(references.dump("fixtures/clean-small", "log"), key=lambda line: line["physicalOffset"])
    low, high = lines[20]["physicalOffset"], lines[90]["physicalOffset"]
    found = load(spark, path, columns="physical_offset", startOffset=low, endOffset=high, splitBytes=3000)
    assert sorted(r.physical_offset for r in found.collect()) == [line["physicalOffset"] for line in lines[20:90]]
    middle = sorted(line["storeTimestamp"] for line in lines)[len(lines) // 2]
    for options, expected in (
        ({"startTime": middle}, [x for x in lines if x["storeTimestamp"] >= middle]),
        ({"endTime": middle}, [x for x in lines if x["storeTimestamp"] < middle]),
        ({"startTime": "2001-01-01", "endTime": "2001-01-02"}, []),
    ):
        assert load(spark, path, columns="topic", **options).count() == len(expected)


def test_a_topic(spark: SparkSession, fixture_store: Store) -> None:
    """All of its records, or those that consumers see."""
    path = fixture_store("clean-small")
    for topic in ("Hot", "Hot,Orders"):
        lines = [x for x in references.dump("fixtures/clean-small", "log") if x["topic"] in topic.split(",")]
        for only in (False, True):
            expected = [x["physicalOffset"] for x in lines if not only or is_consumable(x["sysFlag"])]
            found = load(spark, path, topic=topic, consumable=only, columns="physical_offset,topic").collect()
            assert sorted(row.physical_offset for row in found) == sorted(expected)


@pytest.mark.parametrize("name", ["zeros", "missing"])
def test_damage(spark: SparkSession, fixture_copy: Store, name: str) -> None:
    path = fixture_copy("clean-small")
    files = sorted((path / "commitlog").iterdir())
    whole = load(spark, path, columns="topic").count()
    if name == "missing":
        files[1].unlink()
    else:
        with files[1].open("r+b") as file:
            file.seek(300)
            file.write(b"\xff" * 700)
    with pytest.raises(Exception, match="segments are missing" if name == "missing" else "no message magic|lengths"):
        load(spark, path).count()
    marked = load(spark, path, onDamage="mark").where("damage is not null").collect()
    assert len(marked) == 1
    (row,) = marked
    assert row.store == path.name
    assert row.file == files[1].name
    assert row.topic is None
    assert row["size"] > 0
    left = load(spark, path, onDamage="skip", columns="topic").count()
    assert 0 < left < whole
    told = [(r.physical_offset, r["size"], r.damage) for r in damage(spark, [str(path)]).collect()]
    assert told == [(row.physical_offset, row["size"], row.damage)]


def test_a_body_that_its_crc_does_not_fit_is_a_row(spark: SparkSession, fixture_copy: Store) -> None:
    path = fixture_copy("clean-small")
    line = next(x for x in references.dump("fixtures/clean-small", "log") if x["bodyLen"] > 50)
    file = sorted((path / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[line["physicalOffset"] + 100] ^= 1
    file.write_bytes(data)
    wrong = load(spark, path, columns="physical_offset,crc_ok").where("not crc_ok").collect()
    assert [row.physical_offset for row in wrong] == [line["physicalOffset"]]


def test_files_of_another_time_are_not_read(tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for i in range(400):
            assert store.put(message(b"x" * 900, i % 4))
    assert_sound(config)
    (ref,) = find_stores([str(tmp_path / "store")])
    times = _first_times(tmp_path / "store")
    assert len(times) > 4
    middle = times[len(times) // 2]
    path = [tmp_path / "store"]
    everything = {share.split.segment for share in shares(path)}
    assert everything == set(ref.segments)
    far = shares(path, starttime=str(times[-1] + 10 * 3_600_000))
    assert {share.split.segment for share in far} == {ref.segments[-1]}
    assert shares(path, endtime=str(times[0] - 10 * 3_600_000)) == []
    near = {share.split.segment for share in shares(path, starttime=str(middle), clockslack="0")}
    assert ref.segments[-1] in near
    assert len(near) <= len(everything)


def _first_times(store: Path) -> list[int]:
    return [int.from_bytes(file.read_bytes()[56:64], "big") for file in sorted((store / "commitlog").iterdir())]


def test_a_live_store_is_read_to_where_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for i in range(300):
            store.put(message(b"%05d" % i))
        frame = load(spark, tmp_path / "store", columns="body", splitBytes=5000)
        assert sorted(bytes(row.body) for row in frame.collect()) == [b"%05d" % i for i in range(300)]
        store.put(Message("T", b"later"))
        assert frame.count() in (300, 301)
    assert_sound(config)


def test_misuse(spark: SparkSession, tmp_path: Path, fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    raft = tmp_path / "raft"
    for name in ("commitlog", "dledger-n0", "dledger-n1"):
        (raft / name).mkdir(parents=True)
    for x in ("a", "b"):
        (tmp_path / x / "store" / "commitlog").mkdir(parents=True)
    for places, options, text in (
        ([tmp_path / "none"], {}, "no store here"),
        ([f"{tmp_path}/none-*"], {}, "no directory matches"),
        ([raft], {}, "a DLedger store of several brokers: dledger-n0, dledger-n1"),
        ([tmp_path / "a" / "store", tmp_path / "b" / "store"], {}, "two stores are named store"),
        ([path], {"onDamage": "maybe"}, "there are fail, mark, skip"),
        ([path], {"splitByte": "1"}, "unknown option: splitbyte .there are path, columns"),
        ([path], {"columns": "nope"}, "no such column: nope .there are store, file"),
        ([path], {"splitBytes": "much"}, "splitBytes: not a size"),
    ):
        with pytest.raises(Exception, match=text):
            load(spark, *places, **options).count()
    with pytest.raises(RStoreError, match="STORE is required"):
        find_stores([])


def test_columns_that_are_not_selected_are_not_read(spark: SparkSession, fixture_store: Store) -> None:
    """Whatever the query: the columns that it needs, and the rows that it has with all of them read."""
    path = str(fixture_store("clean-small"))

    def read(frame: DataFrame) -> list[set[str]]:
        """The columns of each scan."""
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        return [set(re.findall(r"(\w+)#\d+", line)) for line in plan.splitlines() if "RelationV2" in line]

    def queries(frame: DataFrame) -> list[tuple[DataFrame, list[set[str]]]]:
        other = frame.select(frame.physical_offset.alias("place"), frame.queue_offset.alias("number"))
        joined = frame.join(other, frame.physical_offset == other.place).select("topic", "number")
        sorted_ = frame.orderBy("physical_offset").select("body")
        return [
            (frame.groupBy().count(), [{"size"}]),
            (frame.select("topic"), [{"topic"}]),
            (frame.where("queue_id = 1").select("body"), [{"body", "queue_id"}]),
            (frame.groupBy("topic").count(), [{"topic"}]),
            (frame.select("topic").union(frame.select("file")), [{"topic"}, {"file"}]),
            (joined, [{"physical_offset", "topic"}, {"physical_offset", "queue_offset"}]),
            (sorted_, [{"physical_offset", "body"}]),
            (frame, [set(COLUMNS)]),
            (frame.union(frame), [set(COLUMNS)] * 2),
        ]

    every = ",".join(COLUMNS)
    pairs = zip(queries(load(spark, path)), queries(load(spark, path, columns=every)), strict=True)
    for (narrow, columns), (whole, _) in pairs:
        narrowed = [found for found, wanted in zip(read(narrow), columns, strict=True) if len(wanted) < MANY]
        assert narrowed == [wanted for wanted in columns if len(wanted) < MANY]
        assert all(len(found) >= MANY for found in read(whole))
    for i in (0, 2, 5):
        narrow, whole = (queries(load(spark, path, **more))[i][0] for more in ({}, {"columns": every}))
        assert sorted(map(str, narrow.collect())) == sorted(map(str, whole.collect()))
    assert load(spark, path).count() == 600


def test_a_batch_between_offsets(spark: SparkSession, tmp_path: Path, fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    places = [row.physical_offset for row in load(spark, path).select("physical_offset").collect()]
    low, high = sorted(places)[100], sorted(places)[400]
    both = [path, f"other={path}"]
    options = {"startingOffsets": json.dumps({path.name: low}), "endingOffsets": json.dumps({path.name: high})}
    found = load(spark, *both, **options).groupBy("store").count().collect()
    assert {row["store"]: row["count"] for row in found} == {path.name: 300, "other": 600}
    assert load(spark, path, startingOffsets="earliest", endingOffsets="latest").count() == 600
    for wrong, text in (
        ({"startingOffsets": "latest"}, "startingOffsets = latest is invalid for a batch: a batch ends there"),
        ({"endingOffsets": "earliest"}, "endingOffsets = earliest: must be latest, or"),
        ({"startingOffsets": '{"nobody": 1}'}, "startingOffsets: no such store: nobody"),
        ({"endingOffsets": '{"nobody": 1}'}, "endingOffsets: no such store: nobody"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            shares([path], **wrong)


def test_paths_as_uris(spark: SparkSession, fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    for uri in (f"file://{path}", f"file:{path}", f"FILE://localhost{path}", f"me=file://{path}"):
        assert load(spark, uri, columns="store").count() == 600
    for uri, text in (
        ("hdfs://name/data", "hdfs: is not a supported file system"),
        ("a=hdfs:/data", "hdfs: is not a supported"),
        ("file://elsewhere/data", "the files are on another machine"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            load(spark, uri).count()


def test_an_empty_store_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path / "store")):
        pass
    assert load(spark, tmp_path / "store").count() == 0


def test_damage_outside_of_what_is_asked_for(spark: SparkSession, fixture_copy: Store) -> None:
    path = fixture_copy("clean-small")
    file = sorted((path / "commitlog").iterdir())[0]
    with file.open("r+b") as opened:
        opened.seek(20_000)
        opened.write(b"\xff" * 400)
    with pytest.raises(FormatError):
        load(spark, path, endOffset=30_000).count()
    assert load(spark, path, startOffset=30_000, columns="topic").count() > 0
    assert load(spark, path, endOffset=19_000, columns="topic").count() > 0


def frozen(_: int) -> int:
    """How many objects the worker's search for garbage passes over."""
    return gc.get_freeze_count()


def test_a_worker_searches_its_modules_for_garbage_once(spark: SparkSession) -> None:
    """Spark's daemon collects garbage behind every task: what is imported is taken out of that after the first one."""
    assert max(max(run_groups(spark, [[1], [2]], frozen)) for _ in range(3)) > 1000
