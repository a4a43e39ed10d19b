"""Streaming: every message once, whatever happens to the query; limits, new and expired files, live stores."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from engine.config import StoreConfig
from engine.errors import InvalidArgument, LogIsGone
from engine.files.disk import Disk
from engine.pipeline.options import parse
from engine.pipeline.source import NAME, SplitPartition
from engine.pipeline.splits import log_end
from engine.pipeline.stores import find_stores
from engine.pipeline.stream import StoreStreamReader
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import streaming
from tests.support import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]
ALL = ReadAllAvailable()


def reader(*places: Path, **options: str) -> StoreStreamReader:
    return StoreStreamReader(parse({"path": ",".join(map(str, places)), **options}))


def rows(found: StoreStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    """What a micro-batch gives, in order."""
    made: list[dict[str, Any]] = []
    for partition in found.partitions(start, end):
        assert isinstance(partition, SplitPartition)
        for batch in found.read(partition):
            made += batch.to_pylist()
    return made


def fill(root: Path, count: int, start: int = 0, size: int = 100) -> StoreConfig:
    config = small(root)
    with MessageStore.open(config) as store:
        for i in range(start, start + count):
            assert store.put(message(b"%07d" % i + b"." * size, i % 4))
    return config


def test_micro_batches_are_the_log_in_order(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    found = reader(path, splitbytes="5000")
    start = found.initialOffset()
    end = found.latestOffset(start, ALL)
    assert start == {path.name: 0}
    whole = rows(found, start, end)
    for limited, limit in (("maxBytesPerTrigger", ReadMaxBytes(7000)), ("maxRecordsPerTrigger", ReadMaxRows(37))):
        value = str(getattr(limit, "max_bytes", None) or limit.max_rows)
        some = reader(path, **{limited: value})
        assert some.getDefaultReadLimit() == limit
        made, at, steps = [], start, 0
        while (to := some.latestOffset(at, limit)) != at:
            part = rows(some, at, to)
            if limited == "maxRecordsPerTrigger":
                assert len(part) == 37 or to == end
            assert rows(some, at, to) == part
            made, at, steps = made + part, to, steps + 1
        assert made == whole
        assert at == end
        assert steps > 10


def test_both_limits_hold(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    found = reader(path, maxBytesPerTrigger="1G", maxRecordsPerTrigger="5")
    start = found.initialOffset()
    assert len(rows(found, start, found.latestOffset(start, found.getDefaultReadLimit()))) == 5
    assert found.latestOffset(start, ALL) == found.reportLatestOffset()


def test_what_one_store_does_not_use_goes_to_the_others(tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 400)):
        fill(tmp_path / name, count)
    found = reader(tmp_path / "a", tmp_path / "b", maxRecordsPerTrigger="100")
    start = found.initialOffset()
    made = rows(found, start, found.latestOffset(start, ReadMaxRows(100)))
    counts = {name: sum(row["store"] == name for row in made) for name in ("a", "b")}
    assert counts == {"a": 5, "b": 95}


def test_damage_between_two_micro_batches_is_told_once(fixture_copy: Store) -> None:
    path = fixture_copy("clean-small")
    file = sorted((path / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[20_000:26_000] = bytes(6000)
    file.write_bytes(data)
    found = reader(path, ondamage="mark", maxBytesPerTrigger="1500")
    at, made = found.initialOffset(), []
    while (to := found.latestOffset(at, found.getDefaultReadLimit())) != at:
        made, at = made + rows(found, at, to), to
    assert [row for row in made if row["damage"]] == [
        row for row in rows(found, found.initialOffset(), at) if row["damage"]
    ]
    assert sum(row["damage"] is not None for row in made) == 1
    assert made == rows(found, found.initialOffset(), at)


def test_where_a_query_begins(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    (ref,) = find_stores([str(path)])
    end = log_end(ref, Disk())
    assert reader(path, startingoffsets="latest").initialOffset() == {path.name: end}
    assert reader(path, startingoffsets="earliest").initialOffset() == {path.name: 0}
    some = reader(path, startingoffsets=f'{{"{path.name}": 5000}}')
    first = rows(some, some.initialOffset(), some.latestOffset(some.initialOffset(), ALL))[0]
    whole = rows(some, {path.name: 0}, {path.name: end})
    assert first == next(row for row in whole if row["physical_offset"] >= 5000)
    with pytest.raises(InvalidArgument, match="no such store: x"):
        reader(path, startingoffsets='{"x": 1}').initialOffset()


def test_new_files_come_in_and_only_whole_records(tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    found = reader(tmp_path / "store")
    with MessageStore.open(config) as store:
        store.put(message(b"first"))
        at = found.initialOffset()
        seen = []
        for round_ in range(5):
            for i in range(150):
                store.put(message(b"%d-%d" % (round_, i) + b"." * 300))
            to = found.latestOffset(at, ALL)
            seen += [row["body"] for row in rows(found, at, to)]
            at = to
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
    assert len(seen) == len(set(seen)) == 751
    assert found.latestOffset(at, ALL) == at
    assert_sound(config)


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    config = fill(tmp_path / "store", 50)
    found = reader(tmp_path / "store", maxRecordsPerTrigger="20")
    found.prepareForTriggerAvailableNow()
    fill(tmp_path / "store", 30, start=50)
    at, count = found.initialOffset(), 0
    while (to := found.latestOffset(at, ReadMaxRows(20))) != at:
        count, at = count + len(rows(found, at, to)), to
    assert count == 50
    assert_sound(config)


def test_what_expired_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "store", 1200, size=400)
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    found = reader(tmp_path / "store")
    at = found.initialOffset()
    for file in files[:2]:
        file.unlink()
    with pytest.raises(LogIsGone, match=r"131072 bytes of the log of store expired.*offsets 0 to 131072"):
        found.latestOffset(at, ALL)
    with pytest.raises(LogIsGone):
        found.partitions(at, {"store": 200_000})
    going_on = reader(tmp_path / "store", failondataloss="false")
    made = rows(going_on, at, going_on.latestOffset(at, ALL))
    assert made[0]["physical_offset"] == 131072


def test_a_log_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path / "store", 1200, size=400)
    found = reader(tmp_path / "store")
    end = found.latestOffset(found.initialOffset(), ALL)
    for file in sorted((tmp_path / "store" / "commitlog").iterdir())[1:]:
        file.unlink()
    with pytest.raises(LogIsGone, match="before what the query has read"):
        found.latestOffset(end, ALL)
    assert reader(tmp_path / "store", failondataloss="false").latestOffset(end, ALL) == end
    fill(tmp_path / "other", 3)
    with pytest.raises(LogIsGone, match="not among the stores any more"):
        reader(tmp_path / "other").latestOffset(end, ALL)


def test_a_query_of_spark(spark: SparkSession, tmp_path: Path, fixture_store: Store) -> None:
    """Available now, with a limit, into Parquet; a second run finds nothing new."""
    path = fixture_store("clean-small")
    before = stores.snapshot(path)
    expected = spark.read.format(NAME).load(str(path)).count()
    frame = spark.readStream.format(NAME).option("maxRecordsPerTrigger", "250").load(str(path))
    for _ in range(2):
        write = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = write.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None
    made = spark.read.parquet(str(tmp_path / "out"))
    assert made.count() == made.select("physical_offset").distinct().count() == expected
    assert len(os.listdir(tmp_path / "checkpoint" / "commits")) > 3
    assert stores.snapshot(path) == before


# --- every message once ----------------------------------------------------------------------------------------------

COUNT = 200_000
_WRITE = """
import sys, time
from pathlib import Path
from engine.config import StoreConfig
from engine.format.message import Message
from engine.store import MessageStore
root, count = Path(sys.argv[1]), int(sys.argv[2])
config = StoreConfig(store_path_root_dir=root).with_changes(
    mapped_file_size_commit_log=1 << 22, mapped_file_size_consume_queue=600_000, max_hash_slot_num=1000,
    max_index_num=4000, message_index_enable=False,
)
began = time.monotonic()
with MessageStore.open(config) as store:
    for i in range(count):
        store.put(Message("T", b"message %06d " % i * 4, i % 4))
        if i % 500 == 0:  # as long as the queries take
            time.sleep(max(0.0, began + float(sys.argv[3]) * i / count - time.monotonic()))
"""


def start(*words: str) -> subprocess.Popen[bytes]:
    """A process of its own, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """A process with all its children (Spark's JVM and its workers), at once, without a word."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def test_every_message_once(spark: SparkSession, tmp_path: Path) -> None:
    """The engine writes 200 000 messages while a query reads them into Parquet, which is killed and started twice."""
    root, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "checkpoint"
    words = ("-m", "tests.pipeline.streaming", str(root), str(out), str(checkpoint))
    writer = start("-c", _WRITE, str(root), str(COUNT), "25")
    while not list(root.glob("commitlog/0*")):
        time.sleep(0.05)
    kills = 0
    while kills < 2:
        query = start(*words, "4M")
        try:
            _wait_for_batches(query, checkpoint, 1)
        finally:
            kill(query)
        kills += 1
        batches = len(list((checkpoint / "commits").glob("[0-9]*")))
        assert batches > 0
    assert writer.wait(120) == 0
    last = streaming.begin(spark, str(root), str(out), str(checkpoint), "32M", now=True)
    assert last.awaitTermination(120)
    assert last.exception() is None
    made = spark.read.parquet(str(out))
    bodies = [f"message {i:06d} " * 4 for i in (0, COUNT // 2, COUNT - 1)]
    assert made.count() == COUNT
    assert made.select("store", "physical_offset").distinct().count() == COUNT
    assert made.select("body").distinct().count() == COUNT
    assert made.where(made.body.cast("string").isin(bodies)).count() == len(bodies)
    config = StoreConfig(store_path_root_dir=root).with_changes(message_index_enable=False)
    assert_sound(config.with_changes(max_hash_slot_num=1000, max_index_num=4000))
    shutil.rmtree(out)


def _wait_for_batches(query: subprocess.Popen[bytes], checkpoint: Path, more: int) -> None:
    """Until that many micro-batches more are done, and the next one has begun: the kill comes in the middle of it."""
    done = len(list((checkpoint / "commits").glob("[0-9]*")))
    until = time.monotonic() + 90
    while time.monotonic() < until:
        assert query.poll() is None, "the query ended"
        commits = len(list((checkpoint / "commits").glob("[0-9]*")))
        begun = len(list((checkpoint / "offsets").glob("[0-9]*")))
        if commits >= done + more and begun > commits:
            return
        time.sleep(0.005)
    raise AssertionError("the query does not get on")
