"""What consumer groups have not read of snapshots: their offsets are those of config/, their queues those of the log.

A snapshot has no consume queues but the ends of expired ones. So its log is read, once, by all executors: where each
queue begins and ends, and what comes after each group's offset. What a store's own queues say is the same, as queues
are made of the log; where the log has damage, messages and bytes are those of what is left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import names, properties, sysflag
from engine.inspect.finding import Findings
from engine.inspect.status.queue_space import QueueSpace, last_row, measure
from engine.inspect.status.status import STATUS_CODES
from engine.inspect.status.unread import UnreadCount, read_offsets
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.survey import survey
from engine.log.derive import TopicQueue
from engine.pipeline import frames
from engine.pipeline.repositories import disk_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.pipeline.stores import StoreRef

_READ = ("topic", "queue_id", "queue_offset", "sys_flag", "store_timestamp")
_OF_LIGHT = ("properties",)
"""Which light queues (LMQ) a message is in, too."""
_CUTS = "store string, topic string, queue_id int, cut long"
_KEY = ("store", "topic", "queue_id")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One store's part that needs no log: its files, what its config/ says, and its findings."""

    store: StoreRef
    disk: Disk
    files: StoreFiles
    unread: UnreadCount
    findings: Findings


@dataclass(frozen=True, slots=True)
class SnapshotUnread:
    """One store's answer, before it is made a table's rows.

    Attributes:
        files: of the snapshot.
        unread: groups and queues.
        findings: of config/ and offsets.
        times: storeTimestamp (ms) of the oldest unread messages, by physical offset.
    """

    files: StoreFiles
    unread: UnreadCount
    findings: Findings
    times: dict[int, int]


class _FirstUnread:
    """Units of a queue, as far as groups ask for them: the first one at or after an offset."""

    def __init__(self, firsts: dict[int, int], low: int) -> None:
        self._firsts = firsts
        self._low = low

    def read(self, start: int, end: int) -> NDArray[np.void]:
        """One unit, with its physical offset alone."""
        import numpy as np

        del end
        wanted = [cut for cut in self._firsts if max(cut, self._low) == start]
        return np.array([(self._firsts[wanted[0]],)], dtype=[("physical_offset", np.int64)])


def snapshot_unread(
    spark: SparkSession, stores: Sequence[StoreRef], most_rows: int, split_bytes: int | None = None
) -> tuple[list[SnapshotUnread], tuple[str, ...]]:
    """What groups have not read, of each of some snapshots; and notes: damage that was passed over.

    Args:
        spark: the session.
        stores: snapshots.
        most_rows: of a kept queue's file, see `measure`.
        split_bytes: about so many bytes of log a task.

    Raises:
        NotAStore, CannotRepair, StorageError, WrongKey, NotFound: a snapshot can't be read.
    """
    looked = [_look(store) for store in stores]
    cuts = [
        (one.store.name, queue.topic, queue.queue_id, cut)
        for one in looked
        for queue in one.unread.queues()
        for cut in one.unread.cuts(queue)
    ]
    has_light = any(names.is_lmq(topic) for _, topic, _, _ in cuts)
    by_queue: dict[tuple[str, str, int], list[Any]] = {}
    read = frames.read(spark, stores, columns=(*_READ, *(_OF_LIGHT if has_light else ())), split_bytes=split_bytes)
    records, watch = frames.watched(read)
    for row in _measured(spark, records, cuts, has_light=has_light).collect():
        by_queue.setdefault((row["store"], row["topic"], row["queue_id"]), []).append(row)
    return [_answer(one, by_queue, most_rows) for one in looked], watch.notes()


def _look(store: StoreRef) -> _Snapshot:
    disk = disk_of(store)
    files = survey(disk, store.config)
    findings = Findings(STATUS_CODES)
    return _Snapshot(store, disk, files, read_offsets(disk, files.config, files.root, findings), findings)


def _measured(
    spark: SparkSession, records: DataFrame, cuts: list[tuple[str, str, int, int]], *, has_light: bool
) -> DataFrame:
    """A row a store, topic, queue and offset of a group: where the queue begins and ends, what comes after."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = F.col("sys_flag").bitwiseAND(sysflag.TRANSACTION_MASK)
    messages = records.where(kind.isin(sysflag.TRANSACTION_NONE, sysflag.TRANSACTION_COMMIT))
    columns = (*_KEY, "queue_offset", "physical_offset", "size", "store_timestamp")
    units = messages.select(*columns)
    if has_light:
        units = units.unionByName(_light(messages).select(*columns))
    joined = units.join(F.broadcast(spark.createDataFrame(cuts, _CUTS)), list(_KEY), "left")
    # a delay level that nobody has delivered yet is read from its start
    cut = F.coalesce("cut", F.when(F.col("topic") == names.SCHEDULE_TOPIC, F.lit(0).cast("long")))
    after = F.col("queue_offset") >= F.col("cut")

    def first(name: str) -> Column:
        return F.min_by(F.when(after, F.col(name)), F.when(after, F.col("queue_offset")))

    return (
        joined.withColumn("cut", cut)
        .groupBy(*_KEY, "cut")
        .agg(
            F.min("queue_offset").alias("low"),
            (F.max("queue_offset") + 1).alias("high"),
            F.sum(F.when(after, F.col("size").cast("long")).otherwise(0)).alias("bytes"),
            first("physical_offset").alias("first"),
            first("store_timestamp").alias("stamp"),
        )
    )


def _light(messages: DataFrame) -> DataFrame:
    """The units of light queues (LMQ): one for each queue that a message names beside its own."""
    from pyspark.sql import functions as F  # noqa: N812

    def parts(name: str) -> Column:
        return F.split(F.regexp_replace(frames.property_of(name), ",+$", ""), ",")

    pairs = F.arrays_zip(
        parts(properties.INNER_MULTI_DISPATCH).alias("topic"),
        parts(properties.INNER_MULTI_QUEUE_OFFSET).alias("queue_offset"),
    )
    named = messages.withColumn("pair", F.explode(pairs))
    lmq = F.col("pair.topic").startswith(names.LMQ_PREFIX)
    return named.withColumns(
        {
            "topic": F.col("pair.topic"),
            "queue_id": F.when(lmq, F.lit(0)).otherwise(F.col("queue_id")),
            "queue_offset": F.expr("try_cast(pair.queue_offset as long)"),
        }
    ).where("queue_offset is not null")


def _answer(one: _Snapshot, by_queue: dict[tuple[str, str, int], list[Any]], most_rows: int) -> SnapshotUnread:
    import numpy as np

    none = np.zeros(1, dtype=np.int64)
    times: dict[int, int] = {}
    kept = {queue.queue: queue for queue in one.files.queues}
    for queue in sorted({*kept, *_queues(by_queue, one.store.name)}):
        rows = by_queue.get((one.store.name, queue.topic, queue.queue_id))
        if rows is None:  # all of it has expired: its last file was kept
            file = QueueRows(one.disk, kept[queue])
            begin = np.array([one.files.log[0].offset if one.files.log else 0], dtype=np.int64)
            one.unread.add(queue, file, measure(file, last_row(file), begin, one.unread.cuts(queue), most_rows))
            continue
        low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
        after = {row["cut"]: row["bytes"] for row in rows if row["cut"] is not None}
        firsts = {row["cut"]: row["first"] for row in rows if row["first"] is not None}
        times |= {row["first"]: row["stamp"] for row in rows if row["first"] is not None}
        one.unread.add(queue, _FirstUnread(firsts, low), QueueSpace(low, high, none, none, after))
    one.unread.finish(one.files.newer.hides)
    return SnapshotUnread(one.files, one.unread, one.findings, times)


def _queues(by_queue: dict[tuple[str, str, int], list[Any]], store: str) -> Iterator[TopicQueue]:
    return (TopicQueue(topic, queue_id) for name, topic, queue_id in by_queue if name == store)
