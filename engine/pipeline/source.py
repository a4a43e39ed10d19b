"""The data source `rocketmq-store`: the logs of stores as a table, by Spark's Python Data Source API.

    spark.dataSource.register(RocketMQStoreSource)
    spark.read.format("rocketmq-store").option("topic", "Orders").load("/data/broker-*/store")
    spark.readStream.format("rocketmq-store").option("maxBytesPerTrigger", "256M").load("/data/broker-a/store")

Options: engine.pipeline.options. Columns: engine.pipeline.schema. Where each log ends is settled when a query is
planned: a live store is read as far as it was written then; a DataFrame that is used again keeps its plan. A log ends
after its last sound record, as for recovery: a torn tail is no damage here (`verify` tells of it).

Filters. With the option `pushFilters` (and the setting spark.sql.python.filterPushdown.enabled) filters on topic,
queue_id, queue_offset, physical_offset, store_timestamp and store_time are looked at before rows are made, and files
and splits left out. It is off by default, as Spark 4.3 is wrong there: it keeps what was planned with the filters of
one query for every other query of the same `load()`, also where one query reads it twice. Options (`topic`,
`startOffset`, `startTime` …) narrow a read as well, and always rightly.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.pipeline import options as source_options
from engine.pipeline.driver import prepare
from engine.pipeline.failures import carried
from engine.pipeline.filters import pushed
from engine.pipeline.known import demand_known
from engine.pipeline.options import LATEST, MARK, demand_stores
from engine.pipeline.partition import SplitPartition
from engine.pipeline.planning import plan
from engine.pipeline.read import ReadOptions, read_share
from engine.pipeline.repositories import disk_of
from engine.pipeline.schema import spark_schema
from engine.pipeline.stores import find_stores
from engine.pipeline.stream import StoreStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from engine.pipeline.options import SourceOptions
    from engine.pipeline.planning import StoreShare
    from engine.pipeline.stores import StoreRef

NAME = "rocketmq-store"
SHORT_NAME = "rstore"
"""The same data source's other name."""
_PLANNERS = 4
"""Snapshots whose ends are looked for side by side."""
_OF_DAMAGE = "store,file,physical_offset,size,damage"


class RocketMQStoreSource(DataSource):
    """`spark.read.format("rocketmq-store").load(PATH)`: see the module."""

    @classmethod
    def name(cls) -> str:
        """What it is read by. Registering asks for it first: the session is made ready then (driver.py)."""
        prepare((NAME, SHORT_NAME))
        return NAME

    @carried()
    def schema(self) -> str:
        """The columns that were asked for. Raises InvalidArgument."""
        return spark_schema(source_options.parse(self.options).columns)

    @carried()
    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader. Raises InvalidArgument."""
        del schema
        options = source_options.parse(self.options)
        return FilteringReader(options) if options.push_filters else StoreReader(options)

    @carried()
    def streamReader(self, schema: StructType) -> StoreStreamReader:  # noqa: N802 - Spark's name
        """The stream reader. Raises InvalidArgument."""
        del schema
        return StoreStreamReader(source_options.parse(self.options))


class RStoreSource(RocketMQStoreSource):
    """The same, as `spark.read.format("rstore")`: stores and backup repositories alike."""

    @classmethod
    def name(cls) -> str:
        """As RocketMQStoreSource."""
        prepare((NAME, SHORT_NAME))
        return SHORT_NAME


class StoreReader(DataSourceReader):
    """Plans splits on the driver, reads them on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = self._options.wanted

    def take(self, filters: Iterable[Filter]) -> None:
        """Read only what these filters let through, as far as they can be known before rows are made."""
        self._wanted = pushed(self._wanted, filters)

    @carried()
    def partitions(self) -> Sequence[InputPartition]:
        """The shares of all stores.

        Raises:
            InvalidArgument: offsets of a store that isn't there, or such as only a stream has; none of the stores
                knows a topic of the option.
            NotAStore, Refused, CannotRepair: as `find_stores`. FormatError: missing files, with onDamage = fail.
            StorageError.
        """
        disk, options = Disk(), self._options
        if options.starting_offsets == LATEST:
            raise InvalidArgument(
                "startingOffsets = latest is invalid for a batch: a batch ends there", hint="use it for streams only"
            )
        stores = find_stores(options.places, config=options.config, disk=disk, choice=options.repositories)
        demand_known(stores, options.wanted.topics or ())
        names = [store.name for store in stores]
        demand_stores("startingOffsets", options.starting_offsets, names)
        demand_stores("endingOffsets", options.ending_offsets, names)

        def planned(store: StoreRef) -> list[StoreShare]:
            return plan(store, options, options.of_store(self._wanted, store.name), disk_of(store, disk))

        if all(store.snapshot is None for store in stores):
            return [SplitPartition(share) for store in stores for share in planned(store)]
        with ThreadPoolExecutor(_PLANNERS, "rstore-plan") as pool:  # each waits for a few pieces
            return [SplitPartition(share) for shares in pool.map(planned, stores) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A share's rows, as Arrow batches. Raises FormatError: damage, with onDamage = fail. StorageError."""
        if not isinstance(partition, SplitPartition):  # Spark's own, when there are none
            return iter(())
        options = self._options
        read = ReadOptions(options.columns, options.on_damage, self._wanted, options.decompress)
        return read_share(partition.share, read)


class FilteringReader(StoreReader):
    """Takes Spark's filters. Each is given back: Spark looks at every row again, so none needs to be taken whole."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Spark's filters, all of which must hold."""
        self.take(filters)
        return filters


def damage(spark: SparkSession, places: Sequence[str], **options: Any) -> DataFrame:
    """What a read with `onDamage = skip` leaves out: a row for each damaged range and each row of missing files.

    Columns: store, file, physical_offset, size (bytes), damage (why). Counts are an aggregate away.

    Args:
        spark: a session in which the data source is registered.
        places: stores, as `path` has them.
        options: further options of the read; those of damage and columns are set here.

    Raises:
        what Spark raises when the query runs, and as the data source.
    """
    given = {name: value for name, value in options.items() if name.lower() not in ("columns", "ondamage")}
    read = spark.read.format(NAME).options(**given).option("columns", _OF_DAMAGE).option("onDamage", MARK)
    return read.load(",".join(places)).where("damage is not null")
