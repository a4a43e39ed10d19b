"""Streaming on a real Spark session: every message once, whatever happens to the query."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from engine.config import StoreConfig
from engine.errors import InvalidArgument
from engine.pipeline.options import parse
from engine.pipeline.source import NAME
from engine.pipeline.stream import StoreStreamReader
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import streaming
from tests.support import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]


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
    """A process with all its children (Spark's JVM, first, and its workers), without a word: all of its session."""
    family = [int(place.name) for place in Path("/proc").glob("[0-9]*") if _session(int(place.name)) == process.pid]
    for pid in sorted(family, key=lambda pid: pid == process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(20)


def _session(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return 0


def test_every_message_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine writes 200 000 messages while a query reads them into Parquet, which is killed and started twice."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # who is killed leaves something behind
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


def test_a_limit_counts_what_is_asked_for(tmp_path: Path) -> None:
    """One message in a hundred: micro-batches of five of them, and none that is empty."""
    with MessageStore.open(small(tmp_path / "store")) as store:
        for i in range(1000):
            store.put(message(b"%05d" % i, topic="Rare" if i % 100 == 99 else "Common"))
    assert_sound(small(tmp_path / "store"))
    options = {"path": str(tmp_path / "store"), "topic": "Rare", "maxRecordsPerTrigger": "5"}
    reader = StoreStreamReader(parse(options))
    at, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        rows = [batch.num_rows for part in reader.partitions(at, end) for batch in reader.read(part)]
        batches.append(sum(rows))
        at = end
    assert batches == [5, 5]
    with pytest.raises(InvalidArgument, match="endingOffsets is invalid for a stream"):
        StoreStreamReader(parse({**options, "endingOffsets": '{"store": 5}'}))


def _wait_for_batches(query: subprocess.Popen[bytes], checkpoint: Path, more: int) -> None:
    """Until that many micro-batches more are done, and the next one has begun: the kill comes in the middle of it."""
    done = len(list((checkpoint / "commits").glob("[0-9]*")))
    until = time.monotonic() + 300
    while time.monotonic() < until:
        assert query.poll() is None, "the query ended"
        commits = len(list((checkpoint / "commits").glob("[0-9]*")))
        begun = len(list((checkpoint / "offsets").glob("[0-9]*")))
        if commits >= done + more and begun > commits:
            return
        time.sleep(0.005)
    raise AssertionError("the query does not get on")
