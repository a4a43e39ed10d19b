"""The data source `rocketmq-store`: the logs of stores as a table, by Spark's Python Data Source API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.pipeline.read import FAIL, MARK, SKIP, ReadOptions, read_split
from engine.pipeline.schema import COLUMNS, spark_schema
from engine.pipeline.splits import SPLIT_BYTES, Split, log_end, plan_splits
from engine.pipeline.stores import find_stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "rocketmq-store"


@dataclass
class SplitPartition(InputPartition):
    """A split as Spark's partition."""

    split: Split


class RocketMQStoreSource(DataSource):
    """`spark.read.format("rocketmq-store").load(PATH)`; options as in the module of its reader."""

    @classmethod
    def name(cls) -> str:
        """What it is read by."""
        return NAME

    def schema(self) -> str:
        """The columns that were asked for."""
        return spark_schema(_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        del schema
        return StoreReader(dict(self.options))


class StoreReader(DataSourceReader):
    """Plans splits on the driver, reads them on executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        on_damage = options.get("ondamage", FAIL)
        if on_damage not in (FAIL, MARK, SKIP):
            raise InvalidArgument(f"onDamage = {on_damage}: {FAIL}, {MARK} or {SKIP}")
        self._read = ReadOptions(_columns(options), on_damage)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of all stores."""
        places = self._options.get("path", "").split(",")
        config = self._options.get("config")
        stores = find_stores([p for p in places if p], config=None if config is None else Path(config))
        size = int(self._options.get("splitbytes", SPLIT_BYTES))
        disk = Disk()
        return [
            SplitPartition(split)
            for store in stores
            for split in plan_splits([store], split_bytes=size, end=log_end(store, disk))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A split's rows, as Arrow batches."""
        assert isinstance(partition, SplitPartition)
        return read_split(partition.split, self._read)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    wanted = [word.strip() for word in options.get("columns", "").split(",") if word.strip()] or list(COLUMNS)
    for name in wanted:
        if name not in COLUMNS:
            raise InvalidArgument(f"no such column: {name}", hint="there are " + ", ".join(COLUMNS))
    if options.get("includebody", "true").lower() == "false":
        wanted = [name for name in wanted if name != "body"]
    return tuple(wanted)
