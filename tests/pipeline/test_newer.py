"""The data source on stores of RocketMQ 5: a row for each record of the log, as `dump commitlog` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.dump.dump import dump_log
from engine.pipeline.source import NAME
from tests.support import newer, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
STORES = ("batch", "compaction", "killed", "property-crc", "rocksdb", "rocksdb-both", "rocksdb-v2", "tiered")
"""Batches in a record, property CRCs, queues and configuration in RocksDB beside a plain log."""


@pytest.mark.leaves
def test_every_record_is_a_row_as_the_log_has_it(spark: SparkSession, tmp_path: Path) -> None:
    roots = [newer.unpack(name, tmp_path) for name in STORES]
    before = {root.name: stores.snapshot(root) for root in roots}
    rows = spark.read.format(NAME).load(",".join(map(str, roots))).orderBy("store", "physical_offset").collect()
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
