"""`pipeline stats`: what lies in the logs, counted. One pass over them; the rest works on the few columns it keeps.

Those columns (no body among them) are kept by Spark, in memory as far as there is room, else on the executors' disks.
Percentiles are exact for up to some ten thousand different values, else within 0.01 % of the rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import properties
from engine.format.quantities import time_text
from engine.inspect.status.space import HOUR_MS
from engine.pipeline import frames
from engine.pipeline.bins import bin_ms, words
from engine.pipeline.known import demand_known
from engine.pipeline.options import SKIP
from engine.pipeline.result import JobResult, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from engine.pipeline.frames import Watch
    from engine.pipeline.stores import StoreRef

_READ = (
    *("store", "physical_offset", "size", "topic", "queue_id", "tags", "keys", "properties"),
    *("body_length", "born_timestamp", "store_timestamp"),
)
_RANKS = (0.5, 0.9, 0.99, 0.999)
_RANK_NAMES = ("p50", "p90", "p99", "p999")
_ACCURACY = 10_000
_MOST = 10_000
"""Rows of a table that has one for each topic, queue or hour."""


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """What is counted.

    Attributes:
        topic: only its records.
        start_time, end_time: stored at the one (ms) or later, and before the other.
        top: rows of the tables of tags, keys and duplicates.
        on_damage: FAIL, or SKIP: what is damaged is counted.
        split_bytes: about this many bytes of log a task (default: the data source's own).
    """

    topic: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    top: int = 20
    on_damage: str = SKIP
    split_bytes: int | None = None


def run(spark: SparkSession, stores: Sequence[StoreRef], options: StatsOptions) -> JobResult:
    """Tables `topics`, `queues`, `tags`, `hours`, `sizes`, `size_histogram`, `delays`, `keys`, `duplicates`;
    and `times`, where less than a day lies between the first and the last store time.

    Raises:
        InvalidArgument: `top` is below 1; no such topic.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    if options.top < 1:
        raise InvalidArgument(f"top must be ≥ 1, not {options.top}")
    read = frames.read(
        spark,
        stores,
        columns=_READ,
        topic=options.topic,
        start_time=options.start_time,
        end_time=options.end_time,
        on_damage=options.on_damage,
        split_bytes=options.split_bytes,
    )
    records, watch = frames.watched(read)
    stamp = F.col("store_timestamp")
    kept = records.select(
        *(name for name in _READ if name not in ("properties", "born_timestamp", "store_timestamp")),
        stamp,
        frames.property_of(properties.UNIQ_KEY).alias("unique_key"),
        F.try_subtract(stamp, F.col("born_timestamp")).alias("delay"),
        F.try_subtract(stamp, F.pmod(stamp, F.lit(HOUR_MS))).alias("hour"),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        result = _Stats(kept, watch, options.top).result(len(stores))
        if options.topic is not None and not result.facts["messages"]:
            demand_known(stores, [options.topic])
        return result
    finally:
        kept.unpersist()


class _Stats:
    def __init__(self, kept: DataFrame, watch: Watch, top: int) -> None:
        self._kept = kept
        self._watch = watch
        self._top = top
        self._notes: list[str] = []

    def result(self, stores: int) -> JobResult:
        whole = self._whole()
        duplicates, copies, examples = self._duplicates()
        facts = {
            "stores": stores,
            "messages": whole["messages"],
            "bytes": whole["bytes"] or 0,
            "body_bytes": whole["body_bytes"] or 0,
            "first_store_timestamp": whole["first"],
            "last_store_timestamp": whole["last"],
            "duplicate_keys": duplicates,
            "duplicate_messages": copies,
            **self._watch.facts(),
        }
        tables = (
            self._grouped("topics", "By topic", ("topic",), _MOST),
            self._grouped("queues", "By queue", ("topic", "queue_id"), _MOST),
            self._grouped("tags", f"By tag: the {self._top} with the most messages", ("topic", "tags"), self._top),
            self._hours(),
            *self._times(whole["first"], whole["last"]),
            self._sizes(whole),
            self._histogram(),
            self._delays(whole),
            self._keys(),
            examples,
        )
        return JobResult("stats", facts, tables, notes=(*self._watch.notes(), *self._notes))

    def _whole(self) -> Row:
        """All that is asked of the whole: the pass over the logs."""
        from pyspark.sql import functions as F  # noqa: N812

        (totals,) = self._kept.agg(
            *_sums(),
            F.min("store_timestamp").alias("first"),
            F.max("store_timestamp").alias("last"),
            *(one for name in ("size", "body_length", "delay") for one in _distribution(name)),
            F.count_if(F.col("delay") < 0).alias("delay_negative"),
        ).collect()
        return totals

    def _grouped(self, name: str, title: str, by: tuple[str, ...], most: int) -> Table:
        from pyspark.sql import functions as F  # noqa: N812

        groups = self._kept.groupBy(*by).agg(*_sums())
        rows = groups.orderBy(F.desc("messages"), F.desc("bytes"), *by).limit(most + 1).collect()
        if len(rows) > most and name != "tags":
            self._notes.append(f"{name}: the {most} with the most messages")
        columns = (*by, "messages", "bytes", "body_bytes")
        return Table(name, title, columns, tuple(tuple(row[c] for c in columns) for row in rows[:most]))

    def _hours(self) -> Table:
        rows = self._kept.groupBy("hour").agg(*_sums()).orderBy("hour").limit(_MOST + 1).collect()
        if len(rows) > _MOST:
            self._notes.append(f"hours: the first {_MOST}")
        columns = ("hour", "hour_timestamp", "messages", "bytes", "body_bytes")
        return Table(
            "hours",
            "By hour of the store time (UTC)",
            columns,
            tuple(
                (_hour(row["hour"]), row["hour"], row["messages"], row["bytes"], row["body_bytes"])
                for row in rows[:_MOST]
            ),
        )

    def _times(self, first: int | None, last: int | None) -> tuple[Table, ...]:
        """Finer than by hour, where that would be few rows; those without a message are left out."""
        from pyspark.sql import functions as F  # noqa: N812

        width = bin_ms(first, last)
        if width is None:
            return ()
        stamp = F.col("store_timestamp")
        groups = self._kept.groupBy((stamp - F.pmod(stamp, F.lit(width))).alias("time")).agg(*_sums())
        rows = groups.orderBy("time").collect()
        columns = ("time_timestamp", "messages", "bytes", "body_bytes")
        title = f"By {words(width)} of the store time"
        return (Table("times", title, columns, tuple((r["time"], *(r[c] for c in columns[1:])) for r in rows)),)

    def _sizes(self, whole: Row) -> Table:
        columns = ("what", "min", *_RANK_NAMES, "max", "mean")
        rows = tuple((what, *_distributed(whole, name)) for what, name in (("record", "size"), ("body", "body_length")))
        return Table("sizes", "Sizes (bytes)", columns, rows)

    def _histogram(self) -> Table:
        from pyspark.sql import functions as F  # noqa: N812

        bits = F.length(F.bin(F.col("size").cast("long")))
        rows = self._kept.groupBy(bits.alias("bits")).agg(*_sums()).orderBy("bits").collect()
        return Table(
            "size_histogram",
            "Records by size",
            ("from_bytes", "below_bytes", "messages", "bytes"),
            tuple((1 << row["bits"] - 1, 1 << row["bits"], row["messages"], row["bytes"]) for row in rows),
        )

    def _delays(self, whole: Row) -> Table:
        from pyspark.sql import functions as F  # noqa: N812

        groups = self._kept.groupBy("topic").agg(
            *_sums(), *_distribution("delay"), F.count_if(F.col("delay") < 0).alias("delay_negative")
        )
        rows = groups.orderBy(F.desc("messages"), "topic").limit(_MOST).collect()
        columns = ("topic", "messages", "negative", "min", *_RANK_NAMES, "max", "mean")
        return Table(
            "delays",
            "From born to stored (ms); all topics first",
            columns,
            tuple(
                (topic, row["messages"], row["delay_negative"], *_distributed(row, "delay"))
                for topic, row in [(None, whole), *((row["topic"], row) for row in rows)]
            ),
        )

    def _keys(self) -> Table:
        from pyspark.sql import functions as F  # noqa: N812

        words = self._kept.select("topic", "size", F.explode(F.array_distinct("keys")).alias("key"))
        groups = words.groupBy("topic", "key").agg(
            F.count(F.lit(1)).alias("messages"), F.sum(F.col("size").cast("long")).alias("bytes")
        )
        rows = groups.orderBy(F.desc("messages"), "topic", "key").limit(self._top).collect()
        columns = ("topic", "key", "messages", "bytes")
        return Table(
            "keys",
            f"Keys of the most messages: {self._top}",
            columns,
            tuple(tuple(r[c] for c in columns) for r in rows),
        )

    def _duplicates(self) -> tuple[int, int, Table]:
        """Keys that come twice or more, messages that are one too many, examples.

        Within a topic: a delayed message, a half and a retry have the UNIQ_KEY of what they become.
        """
        from pyspark.sql import functions as F  # noqa: N812

        place = F.struct("store", "physical_offset")
        groups = (
            self._kept.where("unique_key is not null")
            .groupBy("topic", "unique_key")
            .agg(F.count(F.lit(1)).alias("messages"), F.min(place).alias("first"), F.max(place).alias("last"))
            .where("messages > 1")
        )
        (whole,) = groups.agg(F.count(F.lit(1)).alias("keys"), F.sum(F.col("messages") - 1).alias("copies")).collect()
        rows = []
        if whole["keys"]:
            rows = groups.orderBy(F.desc("messages"), "topic", "unique_key").limit(self._top).collect()
        columns = ("topic", "unique_key", "messages", "first_store", "first_offset", "last_store", "last_offset")
        table = Table(
            "duplicates",
            "UNIQ_KEYs that a topic has more than once",
            columns,
            tuple((r["topic"], r["unique_key"], r["messages"], *r["first"], *r["last"]) for r in rows),
        )
        return whole["keys"], whole["copies"] or 0, table


def _sums() -> tuple[Column, ...]:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.count(F.lit(1)).alias("messages"),
        F.sum(F.col("size").cast("long")).alias("bytes"),
        F.sum(F.col("body_length").cast("long")).alias("body_bytes"),
    )


def _distribution(name: str) -> tuple[Column, ...]:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.min(name).alias(f"{name}_min"),
        F.percentile_approx(name, list(_RANKS), _ACCURACY).alias(f"{name}_ranks"),
        F.max(name).alias(f"{name}_max"),
        F.avg(F.col(name).cast("double")).alias(f"{name}_mean"),
    )


def _distributed(row: Row, name: str) -> tuple[Any, ...]:
    ranks = row[f"{name}_ranks"] or [None] * len(_RANKS)
    mean = row[f"{name}_mean"]
    return row[f"{name}_min"], *ranks, row[f"{name}_max"], None if mean is None else round(mean, 1)


def _hour(start: int | None) -> str | None:
    """ISO 8601; a time that no calendar has as its number."""
    if start is None:
        return None
    return time_text(start, "%Y-%m-%dT%H:00Z", utc=True) or str(start)
