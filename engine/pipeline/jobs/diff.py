"""`pipeline diff`: two logs record by record, such as a master's and its slave's, which should be one to the byte.

Records meet by their physical offset. What crosses the network for each is its place, its queue and four hashes, never
a body: the executor that reads a body checks its CRC, and that CRC is compared. Where one log begins later (its oldest
files have expired) or ends earlier, that is said apart: only within the range that both have is a difference one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.quantities import counted
from engine.pipeline import frames
from engine.pipeline.known import demand_known
from engine.pipeline.options import SKIP
from engine.pipeline.repositories import disk_of
from engine.pipeline.result import JobResult, Table
from engine.pipeline.splits import log_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from engine.pipeline.frames import Watch
    from engine.pipeline.stores import StoreRef

_PARTS: dict[str, tuple[str, ...]] = {
    "body": ("size", "body_length", "body_crc", "crc_ok"),
    "queue": ("topic", "queue_id", "queue_offset"),
    "properties": ("properties",),
    "header": (
        *("flag", "sys_flag", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
        *("prepared_transaction_offset", "stored_physical_offset"),
    ),
}
"""What is compared: a hash for each of these, so that an answer can say what differs."""
_READ = tuple(name for part in _PARTS.values() for name in part)
_MOST_QUEUES = 10_000


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How two logs are compared.

    Attributes:
        topic: only its records.
        limit: places that are listed, those that come first in the logs.
        on_damage: FAIL, or SKIP: a record that is damaged on one side is missing there.
        split_bytes: about this many bytes of log a task (default: the data source's own).
    """

    topic: str | None = None
    limit: int = 20
    on_damage: str = SKIP
    split_bytes: int | None = None


def run(spark: SparkSession, stores: Sequence[StoreRef], options: DiffOptions) -> JobResult:
    """Tables `queues` (those that differ) and `places`; ok when nothing differs and both logs end together.

    Raises:
        InvalidArgument: not two stores.
    """
    if len(stores) != 2:
        raise InvalidArgument(f"diff takes two stores, not {len(stores)}")
    if options.limit < 0:
        raise InvalidArgument(f"--limit {options.limit} is invalid")
    return _Diff(spark, stores[0], stores[1], options).result()


class _Diff:
    def __init__(self, spark: SparkSession, a: StoreRef, b: StoreRef, options: DiffOptions) -> None:
        self._spark, self._a, self._b, self._options = spark, a, b, options
        self._starts = [store.segments[0].offset if store.segments else 0 for store in (a, b)]
        self._ends = [log_end(store, disk_of(store)) for store in (a, b)]
        self._from, self._to = max(self._starts), max(*self._starts, min(self._ends))

    def result(self) -> JobResult:
        from pyspark import StorageLevel
        from pyspark.sql import functions as F  # noqa: N812

        (a, watch_a), (b, watch_b) = self._side(self._a, "a"), self._side(self._b, "b")
        joined = (
            a.join(b, "physical_offset", "full_outer")
            .select(
                "physical_offset",
                F.coalesce("topic_a", "topic_b").alias("topic"),
                F.coalesce("queue_id_a", "queue_id_b").alias("queue_id"),
                "queue_offset_a",
                "queue_offset_b",
                F.col("there_a").isNotNull().alias("in_a"),
                F.col("there_b").isNotNull().alias("in_b"),
                (F.col("physical_offset") >= self._to).alias("after"),
                *((~F.col(f"{part}_a").eqNullSafe(F.col(f"{part}_b"))).alias(part) for part in _PARTS),
            )
            .withColumns(_kinds())
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        try:
            queues, notes = self._queues(joined)
            places = self._places(joined)
        finally:
            joined.unpersist()
        if self._options.topic is not None and not queues:
            demand_known((self._a, self._b), [self._options.topic])
        return self._answer(queues, places, (watch_a, watch_b), notes)

    def _side(self, store: StoreRef, name: str) -> tuple[DataFrame, Watch]:
        """The records of one store from where both logs have begun, each as its place and hashes."""
        from pyspark.sql import functions as F  # noqa: N812

        read = frames.read(
            self._spark,
            [store],
            columns=_READ,
            topic=self._options.topic,
            start_offset=self._from,
            on_damage=self._options.on_damage,
            split_bytes=self._options.split_bytes,
        )
        records, watch = frames.watched(read)
        side = records.select(
            "physical_offset",
            *(F.col(one).alias(f"{one}_{name}") for one in ("topic", "queue_id", "queue_offset")),
            F.lit(True).alias(f"there_{name}"),
            F.col("crc_ok").alias(f"sound_{name}"),
            *(F.xxhash64(*map(_hashable, fields)).alias(f"{part}_{name}") for part, fields in _PARTS.items()),
        )
        # a body with a CRC mismatch is like no other: its CRC and length say nothing of it
        bad = F.when(F.col(f"sound_{name}"), F.col(f"body_{name}")).otherwise(F.hash(F.lit(name)).cast("long"))
        return side.withColumn(f"body_{name}", bad).drop(f"sound_{name}"), watch

    def _queues(self, joined: DataFrame) -> tuple[list[tuple[Any, ...]], list[str]]:
        from pyspark.sql import functions as F  # noqa: N812

        wrong = F.col("missing_in_a") | F.col("missing_in_b") | F.col("differing")
        groups = joined.groupBy("topic", "queue_id").agg(
            F.count_if("in_a").alias("messages_a"),
            F.count_if("in_b").alias("messages_b"),
            *(F.count_if(F.col(kind)).alias(kind) for kind in _kinds()),
            F.min(F.when(wrong, F.col("physical_offset"))).alias("first_offset"),
        )
        rows = groups.orderBy(F.col("first_offset").asc_nulls_last(), "topic", "queue_id").limit(_MOST_QUEUES + 1)
        columns = ("topic", "queue_id", "messages_a", "messages_b", *_kinds(), "first_offset")
        queues = [tuple(row[c] for c in columns) for row in rows.collect()]
        return queues[:_MOST_QUEUES], [f"the first {_MOST_QUEUES} queues"] if len(queues) > _MOST_QUEUES else []

    def _places(self, joined: DataFrame) -> Table:
        from pyspark.sql import functions as F  # noqa: N812

        a, b = self._a.name, self._b.name
        what = F.concat_ws(", ", *(F.when(F.col(part), F.lit(part)) for part in _PARTS))
        kind = (
            F.when(F.col("differing"), F.concat(F.lit("differs: "), what))
            .when(~F.col("in_a"), F.lit(f"missing in {a}"))
            .otherwise(F.lit(f"missing in {b}"))
        )
        rows = []
        if self._options.limit:
            wrong = joined.where("missing_in_a or missing_in_b or differing").withColumn("what", kind)
            rows = wrong.orderBy("physical_offset").limit(self._options.limit).collect()
        columns = ("physical_offset", "what", "topic", "queue_id", "queue_offset_a", "queue_offset_b")
        return Table(
            "places", "Where they differ first", columns, tuple(tuple(row[c] for c in columns) for row in rows)
        )

    def _answer(
        self, queues: list[tuple[Any, ...]], places: Table, watches: tuple[Watch, Watch], notes: list[str]
    ) -> JobResult:
        a, b = self._a.name, self._b.name
        columns = ("topic", "queue_id", "messages_a", "messages_b", *_kinds(), "first_offset")
        sums = {name: sum(row[columns.index(name)] for row in queues) for name in columns[2:-1]}
        firsts = [row[-1] for row in queues if row[-1] is not None]
        after = sums["only_a_at_the_end"], sums["only_b_at_the_end"]
        even = self._ends[0] == self._ends[1]
        facts = {
            "a": a,
            "b": b,
            "common_from": self._from,
            "common_to": self._to,
            "first_divergence": min(firsts, default=None),
            **sums,
            **{
                f"{key}_{name}": value
                for name, watch in zip("ab", watches, strict=True)
                for key, value in watch.facts().items()
            },
        }
        notes_all = [*notes, *self._ranges(after)]
        for name, watch in zip((a, b), watches, strict=True):
            notes_all += [f"{name}: {note}" for note in watch.notes()]
        wrong = tuple(
            row for row in queues if row[-1] is not None or row[columns.index("only_a_at_the_end")] or row[-2]
        )
        titled = f"Queues that differ (a: {a}, b: {b})"
        return JobResult(
            "diff",
            facts,
            (Table("queues", titled, columns, wrong), places),
            ok=not firsts and even,
            notes=tuple(notes_all),
        )

    def _ranges(self, after: tuple[int, int]) -> list[str]:
        """What only one of the logs has, before and after what both have."""
        notes = []
        names, starts, ends = (self._a.name, self._b.name), self._starts, self._ends
        for one, other in ((0, 1), (1, 0)):
            if starts[one] < starts[other]:
                notes.append(
                    f"{names[other]} starts at {starts[other]}, {names[one]} at {starts[one]}: "
                    f"the {starts[other] - starts[one]} bytes before are not compared"
                )
            if ends[one] > ends[other]:
                notes.append(
                    f"{names[other]} ends at {ends[other]}, {names[one]} at {ends[one]}: "
                    f"{counted(after[one], 'message after it is', 'messages after it are')} only in {names[one]}"
                )
        return notes


def _kinds() -> dict[str, Column]:
    """What a row of the joined logs says, by the name of its column."""
    from pyspark.sql import functions as F  # noqa: N812

    after, a, b = F.col("after"), F.col("in_a"), F.col("in_b")
    differs = F.lit(False)
    for part in _PARTS:
        differs = differs | F.col(part)
    return {
        "missing_in_a": ~a & ~after,
        "missing_in_b": ~b & ~after,
        "differing": a & b & differs,
        "only_a_at_the_end": a & ~b & after,
        "only_b_at_the_end": b & ~a & after,
    }


def _hashable(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.map_entries(name) if name == "properties" else F.col(name)
