"""`pipeline export`: logs as Parquet, by topic and day, in directories `topic=…/day=…` as Hive and everybody has them;
with HOUR by hour, too: `topic=…/day=…/hour=…`, 0 to 23.

All columns of the data source, so that `import` can make a store of the table again. `topic` is in the name of the
directory alone, escaped as Spark does; read it as a string (a topic can be 007). A name that no directory can have,
by its length above all, is there as `…~HASH`, and whole in the column `full_topic`, which is null otherwise. `day` is
that of the store time in UTC; records whose store time no calendar has, and damage with MARK, are in
`__HIVE_DEFAULT_PARTITION__`. Each column has a field id in the files (schema.FIELD_IDS), so that a table format which
goes by them, such as Iceberg, can take the files as they are.

Exporting again adds what came since, and never a row twice: see engine.pipeline.exported.
"""

from __future__ import annotations

import os
import secrets
from functools import reduce
from typing import TYPE_CHECKING, Any

from engine.config import STORE_SIZES
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, Refused
from engine.files.disk import Disk
from engine.pipeline import frames
from engine.pipeline.exported import (
    Choice,
    ExportedRange,
    ExportedStore,
    ExportedTable,
    Manifest,
    demand_same,
    local_directory,
    witness_of,
)
from engine.pipeline.known import demand_known
from engine.pipeline.options import FAIL, MARK, SKIP
from engine.pipeline.repositories import disk_of
from engine.pipeline.result import JobResult, Table
from engine.pipeline.schema import COLUMNS, FIELD_IDS
from engine.pipeline.splits import log_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from engine.pipeline.stores import StoreRef

FULL_TOPIC = "full_topic"
DAY, HOUR = "day", "hour"
"""How finely a table is partitioned by time."""
_FIELD_ID = "parquet.field.id"
"""What Spark's writer of Parquet takes a field's number from (ParquetUtils.FIELD_ID_METADATA_KEY)."""
_ALWAYS = ("store", "physical_offset", "size", "topic", "store_timestamp", "damage")
_BEHAVIOUR = ("message_delay_level", "enable_multi_dispatch", "enable_lmq", "max_message_size", "message_index_enable")
"""Settings, beside the sizes, that decide how messages lie in a store."""
_LATER = ("msg_id", "born_time")
"""Columns that came later: a table of all columns that was begun without them continues without them."""
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_LATEST_MS = 253_402_300_799_999
_LONGEST = 200
"""Bytes of an escaped topic in a directory's name (of 255, "topic=" and its kin included)."""
_NONE = "__HIVE_DEFAULT_PARTITION__"
_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported, and where to.

    Attributes:
        output: the table's directory, at the same path for driver and executors; new, or that of an earlier export.
        topics: only their records (default: those of all).
        start_time, end_time: stored at the one (ms) or later, and before the other.
        columns: only these, and those without which a row has no place (default: all).
        include_body: whether there are bodies.
        decompress: bodies as their producers had them.
        on_damage: FAIL, MARK (rows in a partition of their own) or SKIP (named in the answer).
        split_bytes: about this many bytes of log a task (default: the data source's own).
        by: DAY, or HOUR; None: as the table is, a new one by day.
    """

    output: str = ""
    topics: tuple[str, ...] = ()
    start_time: int | None = None
    end_time: int | None = None
    columns: tuple[str, ...] = ()
    include_body: bool = True
    decompress: bool = False
    on_damage: str = FAIL
    split_bytes: int | None = None
    by: str | None = None

    @property
    def choice(self) -> Choice:
        """Which records are asked for."""
        return Choice(tuple(sorted(set(self.topics))), self.start_time, self.end_time)


def run(spark: SparkSession, stores: Sequence[StoreRef], options: ExportOptions) -> JobResult:
    """Tables `partitions`, and `damage` (what SKIP left out); facts: `messages`, `bytes` (of records), `files`, …

    Raises:
        Refused: the directory is no table, or one of other columns, or has rows of another store of that name.
        InvalidArgument, StoreLocked (another export runs), StorageError.
    """
    directory = local_directory(options.output)
    if options.on_damage not in (FAIL, MARK, SKIP):
        raise InvalidArgument(f"onDamage = {options.on_damage} is invalid", hint=f"{FAIL}, {MARK} or {SKIP}")
    if options.by not in (None, DAY, HOUR):
        raise InvalidArgument(f"--by {options.by} is invalid", hint=f"{DAY} or {HOUR}")
    columns = _columns(options)
    disk = Disk()
    with ExportedTable(disk, directory) as table:
        if not options.columns and table.manifest.columns == tuple(n for n in columns if n not in _LATER):
            columns = table.manifest.columns
        _demand_alike(table, columns, options)
        return _Export(spark, stores, options, disk, table, columns).result()


class _Export:
    def __init__(
        self,
        spark: SparkSession,
        stores: Sequence[StoreRef],
        options: ExportOptions,
        disk: Disk,
        table: ExportedTable,
        columns: tuple[str, ...],
    ) -> None:
        self._spark, self._stores, self._options, self._disk = spark, stores, options, disk
        self._table, self._columns = table, columns
        self._notes: list[str] = []
        self._by = options.by or table.manifest.by

    @property
    def _partitions(self) -> tuple[str, ...]:
        return ("topic", "day") if self._by == DAY else ("topic", "day", "hour")

    def result(self) -> JobResult:
        manifest, parts = self._plan()
        partitions: list[tuple[Any, ...]] = []
        damage: list[tuple[Any, ...]] = []
        files: list[tuple[str, int]] = []
        places = 0
        if parts:
            self._write(reduce(lambda a, b: a.unionByName(b), parts))
            partitions, places, damage = self._look()
            there = {row[0] for row in partitions}
            demand_known(self._stores, [topic for topic in self._options.topics if topic not in there])
            skips = self._options.on_damage == SKIP
            files = [one for one in self._table.files() if not (skips and _is_of_damage(one[0]))]
            run = secrets.token_hex(4)
            moves = [
                (path, os.path.join(os.path.dirname(path), f"{run}-{os.path.basename(path)}")) for path, _ in files
            ]
            self._table.commit(moves, manifest)
        facts = {
            "output": self._table.directory,
            "messages": sum(row[-2] for row in partitions),
            "bytes": sum(row[-1] for row in partitions),
            "files": len(files),
            "file_bytes": sum(size for _, size in files),
            "partitions": len(partitions),
            "damaged_places": places,
        }
        shown = partitions[:_MOST_ROWS]
        tables = [Table("partitions", "Added", (*self._partitions, "messages", "bytes"), tuple(shown))]
        if damage:
            named = "left out" if self._options.on_damage == SKIP else "rows with `damage`"
            columns = ("store", "physical_offset", "size", "damage")
            tables.append(Table("damage", f"Damaged ranges ({named})", columns, tuple(damage)))
        return JobResult("export", facts, tuple(tables), notes=tuple(self._notes))

    def _plan(self) -> tuple[Manifest, list[DataFrame]]:
        """What the table will say of itself, and the rows that it lacks, a frame a store."""
        known = self._table.manifest
        manifest = Manifest(self._columns, self._options.decompress, dict(known.stores), self._by)
        parts = []
        for store in self._stores:
            before = known.stores.get(store.name, ExportedStore())
            disk = disk_of(store, self._disk)
            first = store.segments[0].offset if store.segments else 0
            done = before.next_of(self._options.choice)
            start, end = max(first, done or 0), log_end(store, disk)
            if not (store.snapshot is not None and done is not None and end < done):  # one that is older than the table
                demand_same(disk, store, before)
            if done is not None and first > done:
                self._notes.append(
                    f"{store.name}: {first - done} bytes of its log were deleted before they were exported"
                )
            if start >= end:
                self._notes.append(f"{store.name}: nothing new: the table has all messages up to {end}")
                continue
            parts.append(self._rows(store, start, end, again=before.overlaps(start, self._options.choice)))
            manifest.stores[store.name] = ExportedStore(
                _with(before.log_ranges, ExportedRange(start, end, self._options.choice)),
                witness_of(disk, store, max(end, *(s.end for s in before.log_ranges), 0)) or before.witness,
                {name: getattr(store.config, name) for name in (*STORE_SIZES, *_BEHAVIOUR)},
                _with_snapshot(before.snapshots, store, start, end),
            )
        return manifest, parts

    def _rows(self, store: StoreRef, start: int, end: int, *, again: bool) -> DataFrame:
        options = self._options
        rows = frames.read(
            self._spark,
            [store],
            columns=self._columns,
            topics=options.topics,
            start_time=options.start_time,
            end_time=options.end_time,
            start_offset=start,
            on_damage=options.on_damage,
            split_bytes=options.split_bytes,
            decompress=options.decompress,
        )
        rows = rows.select(*self._columns).where(f"physical_offset < {end}")
        if again and not self._table.is_empty():
            there = read_table(self._spark, self._table.directory).select("store", "physical_offset")
            rows = rows.join(there, ["store", "physical_offset"], "left_anti")
        return rows

    def _write(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        topic, stamp = F.col("topic"), F.col("store_timestamp")
        escaped = F.octet_length(F.regexp_replace(topic, r"[^A-Za-z0-9_.\-]", "xxxx"))
        beginning = F.regexp_replace(F.substring(topic, 1, 24), r"[^A-Za-z0-9_.\-]", "_")
        in_files = (*(name for name in self._columns if name != "topic"), FULL_TOPIC)
        partitions = self._partitions
        hour = F.when(stamp.between(0, _LATEST_MS), F.expr(f"int(store_timestamp div {_HOUR_MS} % 24)"))
        named = (escaped > 0) & (escaped <= _LONGEST) & (topic != _NONE)
        (
            rows.withColumns(
                {
                    FULL_TOPIC: F.when(topic.isNotNull() & ~named, topic),
                    "topic": F.when(named | topic.isNull(), topic).otherwise(
                        F.concat(beginning, F.lit("~"), F.substring(F.sha2(topic.cast("binary"), 256), 1, 16))
                    ),
                    "day": F.when(
                        stamp.between(0, _LATEST_MS),
                        F.date_add(F.lit("1970-01-01").cast("date"), F.expr(f"int(store_timestamp div {_DAY_MS})")),
                    ),
                    **({"hour": hour} if self._by == HOUR else {}),
                }
            )
            .select(*(F.col(name).alias(name, metadata={_FIELD_ID: FIELD_IDS[name]}) for name in in_files), *partitions)
            .sortWithinPartitions(*self._partitions, "store", "physical_offset")
            .write.partitionBy(*self._partitions)
            .parquet("file://" + self._table.staging)
        )

    def _look(self) -> tuple[list[tuple[Any, ...]], int, list[tuple[Any, ...]]]:
        """What was written: by topic and day, how many damaged ranges, the first of them."""
        from pyspark.sql import functions as F  # noqa: N812

        if not self._table.files():
            return [], 0, []
        written = read_table(self._spark, self._table.staging)
        records = written.where("damage is null")
        by_time = records.groupBy(*self._partitions).agg(
            F.count(F.lit(1)).alias("messages"), F.sum(F.col("size").cast("long")).alias("bytes")
        )
        rows = by_time.orderBy(*self._partitions).collect()
        damage = written.where("damage is not null")
        places = damage.count()
        first = damage.orderBy("store", "physical_offset").limit(_MOST_ROWS).collect() if places else []
        return (
            [
                (
                    *(r["topic"], None if r["day"] is None else r["day"].isoformat()),
                    *(r[name] for name in (*self._partitions[2:], "messages", "bytes")),
                )
                for r in rows
            ],
            places,
            [(r["store"], r["physical_offset"], r["size"], r["damage"]) for r in first],
        )


def read_table(spark: SparkSession, directory: str) -> DataFrame:
    """An exported table: its columns under their own names and types, `topic` as the records have it, and `day`.

    Raises:
        InvalidArgument: there is no table.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

    place = "file://" + os.path.abspath(directory)
    try:
        columns = spark.read.parquet(place).schema
    except AnalysisException as error:
        raise InvalidArgument(f"not a table: {frames.first_line(error)}", path=directory) from None
    kinds = {"topic": StringType(), "day": DateType(), "hour": IntegerType()}
    schema = StructType([StructField(f.name, kinds.get(f.name, f.dataType)) for f in columns.fields])
    rows = spark.read.schema(schema).parquet(place)
    if FULL_TOPIC not in rows.columns:
        return rows
    return rows.withColumn("topic", F.coalesce(FULL_TOPIC, "topic")).drop(FULL_TOPIC)


def _columns(options: ExportOptions) -> tuple[str, ...]:
    for name in options.columns:
        if name not in COLUMNS:
            raise InvalidArgument(f"no such column: {name}", hint="there are " + ", ".join(COLUMNS))
    wanted = [name for name in COLUMNS if not options.columns or name in (*options.columns, *_ALWAYS)]
    return tuple(name for name in wanted if options.include_body or name != "body")


def _demand_alike(table: ExportedTable, columns: tuple[str, ...], options: ExportOptions) -> None:
    manifest = table.manifest
    if manifest.stores and (manifest.columns, manifest.decompressed) != (columns, options.decompress):
        raise Refused(
            "the table was exported with other columns",
            path=table.directory,
            hint="export with the same columns, body and decompression, or into another directory",
        )
    if manifest.stores and options.by not in (None, manifest.by):
        raise Refused(
            f"the table is partitioned by {manifest.by}",
            path=table.directory,
            hint=f"export with --by {manifest.by}, or into another directory",
        )


def _with_snapshot(
    snapshots: list[tuple[str, int, int]], store: StoreRef, start: int, end: int
) -> list[tuple[str, int, int]]:
    """The ranges that came from snapshots, and this one, where it does."""
    return snapshots if store.snapshot is None else [*snapshots, (store.snapshot.name.snapshot_id, start, end)]


def _with(log_ranges: list[ExportedRange], new: ExportedRange) -> list[ExportedRange]:
    """The ranges and one more, which continues where one of the same choice ends."""
    ranges = list(log_ranges)
    for i, one in enumerate(ranges):
        if one.choice == new.choice and one.end == new.start:
            ranges[i] = ExportedRange(one.start, new.end, one.choice)
            return ranges
    return [*ranges, new]


def _is_of_damage(path: str) -> bool:
    return path.startswith(f"topic={_NONE}{os.sep}")
