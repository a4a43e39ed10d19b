"""The data source on stores of RocketMQ 5: a row for each record of the log, as `dump commitlog` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from engine.config import StoreConfig
from engine.errors import NewerStore
from engine.files.disk import Disk
from engine.format.record import MESSAGE_MAGIC_V2
from engine.inspect.check.verify import verify as verify_log
from engine.inspect.dump.dump import dump_log
from engine.pipeline.jobs import reindex, verify
from engine.pipeline.source import NAME
from engine.pipeline.stores import find_stores
from tests.support import newer, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
STORES = (
    "batch", "compaction", "dledger", "killed", "long-topic", "property-crc", "rocksdb", "rocksdb-both", "rocksdb-v2",
    "tiered",
)  # fmt: skip
"""Batches in a record, records of the second version, property CRCs, a log in DLedger's entries, RocksDB."""


@pytest.mark.leaves
def test_every_record_is_a_row_as_the_log_has_it(spark: SparkSession, tmp_path: Path) -> None:
    roots = [newer.unpack(name, tmp_path) for name in STORES]
    before = {root.name: stores.snapshot(root) for root in roots}
    frame = spark.read.format(NAME).option("splitBytes", "1500")
    rows = frame.load(",".join(map(str, roots))).orderBy("store", "physical_offset").collect()
    assert {root.name: stores.snapshot(root) for root in roots} == before
    for root in roots:
        messages = [
            row.message for row in dump_log(Disk(), StoreConfig(store_path_root_dir=root)) if row.message is not None
        ]
        mine = [row for row in rows if row.store == root.name]
        assert len(mine) == len(messages) >= 20
        for row, message in zip(mine, messages, strict=True):
            assert (row.physical_offset, row["size"]) == (message.physical_offset, message.total_size)
            assert (row.topic, row.queue_id, row.queue_offset) == (
                message.topic,
                message.queue_id,
                message.queue_offset,
            )
            assert (row.properties, bytes(row.body)) == (message.properties, message.body)
            assert (row.sys_flag, row.store_timestamp) == (message.sys_flag, message.store_timestamp)
            assert (row.crc_ok, row.damage) == (True, None)


@pytest.mark.leaves
def test_records_of_the_second_version_are_among_them(tmp_path: Path, spark: SparkSession) -> None:
    """A retry topic whose name takes two bytes for its length, by the data source and with its filter."""
    root = newer.unpack("long-topic", tmp_path)
    config = StoreConfig(store_path_root_dir=root)
    raw = [one for one in dump_log(Disk(), config) if one.message is not None and len(one.message.topic) > 127]
    topic = raw[0].message.topic if raw[0].message else ""
    log = (root / "commitlog" / f"{0:020d}").read_bytes()
    assert {log[one.offset + 4 : one.offset + 8] for one in raw} == {MESSAGE_MAGIC_V2.to_bytes(4, "big")}
    frame = spark.read.format(NAME).load(str(root))
    rows = frame.where(frame.topic == topic).orderBy("queue_offset").collect()
    assert [row.physical_offset for row in rows] == [one.offset for one in raw]
    assert [row.queue_offset for row in rows] == [0, 1, 2]
    assert len({row.properties["ORIGIN_MESSAGE_ID"] for row in rows}) == 3


@pytest.mark.leaves
def test_jobs_and_filters_read_a_dledger_store(spark: SparkSession, tmp_path: Path) -> None:
    root = newer.unpack("dledger", tmp_path)
    config = StoreConfig(store_path_root_dir=root)
    frame = spark.read.format(NAME).option("topic", "T").option("consumable", "true").load(str(root))
    middle = sorted(row.physical_offset for row in frame.collect())[7:12]
    some = frame.where((frame.physical_offset >= middle[0]) & (frame.physical_offset <= middle[-1]))
    assert sorted(row.physical_offset for row in some.collect()) == middle
    data = root / "dledger-n0" / "data" / f"{0:020d}"
    for damaged in (False, True):
        if damaged:  # a body
            content = bytearray(data.read_bytes())
            content[middle[2] + 90] ^= 1
            data.write_bytes(content)
        told = verify.run(spark, find_stores([str(root)]), verify.VerifyOptions(split_bytes=700))
        alone = verify_log(Disk(), config)
        assert told.facts["splits"] > 3
        assert (told.facts["records"], told.ok) == (alone.records, not damaged)
        assert told.table("damage").rows == tuple(
            (root.name, one.offset, one.length, data.name, one.reason) for one in alone.bad
        )
    with pytest.raises(NewerStore, match="DLedger"):
        reindex.run(spark, find_stores([str(root)]), reindex.ReindexOptions())
