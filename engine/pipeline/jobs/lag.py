"""`pipeline lag`: what consumer groups have not read yet, in as many stores as there are, a store a task.

Of snapshots it is asked of their logs (lag_snapshots.py).

Nothing of the log is read but the oldest unread message of each group: offsets are those of config/, messages and bytes
those of the consume queues (engine.inspect.status.unread, as in `rstore status`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.pipeline.jobs.tasks import run_groups
from engine.pipeline.known import demand_known
from engine.pipeline.result import JobResult, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from engine.inspect.finding import Findings
    from engine.inspect.status.unread import UnreadCount
    from engine.inspect.store.survey import StoreFiles
    from engine.pipeline.stores import StoreRef

_ROWS_AT_MOST = 1 << 22
"""Rows of a queue that are read at most; a longer one is sampled (engine.inspect.status.queue_space)."""


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Whose lag.

    Attributes:
        group, topic: only these.
        now: the time (ms) that ages are counted from (default: now).
    """

    group: str | None = None
    topic: str | None = None
    now: int | None = None


@dataclass(frozen=True, slots=True)
class StoreLag:
    """What a task tells of its store: rows of the tables, without the store's name; notes."""

    queues: tuple[tuple[Any, ...], ...]
    findings: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...]


_QUEUES = (
    *("group", "topic", "queue_id", "offset", "min_offset", "max_offset", "messages", "bytes"),
    *("oldest_timestamp", "age_ms"),
)


def run(spark: SparkSession, stores: Sequence[StoreRef], options: LagOptions) -> JobResult:
    """Tables `groups`, `queues`, `findings` (groups above a queue's end, below its minimum, and the like).

    `offset` is null where nobody knows a group's, and `messages` is 0 then; a delay level's group is the broker.
    Not ok when an offset lies outside of its queue.

    Raises:
        InvalidArgument: no store was given; no such topic or group.
    """
    if not stores:
        raise InvalidArgument("STORE is required")
    from engine.inspect.store.consumers import DELIVERY

    now = Disk().now_ms() if options.now is None else options.now

    lags, damage_notes = _lags(spark, stores, options, now)
    queues = [(store.name, *row) for store, lag in zip(stores, lags, strict=True) for row in lag.queues]
    findings = [(store.name, *row) for store, lag in zip(stores, lags, strict=True) for row in lag.findings]
    if not queues:
        topics, groups_ = ([] if name is None else [name] for name in (options.topic, options.group))
        demand_known(stores, topics, groups_)
    queues.sort(key=lambda row: (-row[7], *row[:4]))
    groups = _groups(queues)
    known = [row for row in queues if row[4] is not None]
    above = sum(row[4] > row[6] for row in known)
    below = sum(row[4] < row[5] and row[1] != DELIVERY for row in known)  # a level without messages stays at 0
    facts = {
        "stores": len(stores),
        "groups": len({row[1] for row in queues}),
        "messages": sum(row[7] for row in queues),
        "bytes": sum(row[8] for row in queues),
        "oldest_age_ms": max((row[10] for row in queues if row[10] is not None), default=None),
        "above_the_end": above,
        "below_the_minimum": below,
    }
    tables = (
        Table(
            "groups",
            "Unread messages by group",
            ("group", "topic", "messages", "bytes", "oldest_timestamp", "age_ms"),
            tuple(groups),
        ),
        Table("queues", "Unread messages by queue", ("store", *_QUEUES), tuple(queues)),
        Table("findings", "Anomalies", ("store", "code", "where", "detail"), tuple(findings)),
    )
    notes = tuple(f"{store.name}: {note}" for store, lag in zip(stores, lags, strict=True) for note in lag.notes)
    return JobResult("lag", facts, tables, ok=not above and not below, notes=(*notes, *damage_notes))


def _lags(
    spark: SparkSession, stores: Sequence[StoreRef], options: LagOptions, now: int
) -> tuple[list[StoreLag], tuple[str, ...]]:
    """The parts of all stores, in their order; notes of all of them."""
    from engine.pipeline.jobs.lag_snapshots import snapshot_unread

    plain = [store for store in stores if store.snapshot is None]
    lags = dict(
        zip(
            (store.name for store in plain),
            run_groups(spark, [[_Work(store, options, now)] for store in plain], _look),
            strict=True,
        )
    )
    snapshots = [store for store in stores if store.snapshot is not None]
    notes: tuple[str, ...] = ()
    if snapshots:
        unread, notes = snapshot_unread(spark, snapshots, _ROWS_AT_MOST)
        for store, one in zip(snapshots, unread, strict=True):
            lags[store.name] = _told(one.unread, one.files, one.findings, options, now, one.times.get)
    return [lags[store.name] for store in stores], notes


class _Work(NamedTuple):
    """What a task is told."""

    store: StoreRef
    options: LagOptions
    now: int


def _look(work: _Work) -> StoreLag:
    """On an executor."""
    return store_lag(*work)


def store_lag(store: StoreRef, options: LagOptions, now: int) -> StoreLag:
    """One store's part: a row a group, topic and queue.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    import numpy as np

    from engine.inspect.finding import Findings
    from engine.inspect.status.queue_space import last_row, measure
    from engine.inspect.status.status import STATUS_CODES
    from engine.inspect.status.unread import read_offsets
    from engine.inspect.store.log_clock import store_time_at
    from engine.inspect.store.queue_rows import QueueRows
    from engine.inspect.store.survey import survey
    from engine.log.source import ClosedLog

    disk = Disk()
    files = survey(disk, store.config)
    findings = Findings(STATUS_CODES)
    unread = read_offsets(disk, files.config, files.root, findings)
    begin = np.array([files.log[0].offset if files.log else 0], dtype=np.int64)
    for queue in files.queues:
        rows = QueueRows(disk, queue)
        cuts = unread.cuts(rows.queue)
        unread.add(rows.queue, rows, measure(rows, last_row(rows), begin, cuts, _ROWS_AT_MOST))
    unread.finish(files.newer.hides)
    with ClosedLog(disk, files.log) as log:
        return _told(unread, files, findings, options, now, lambda oldest: store_time_at(log, oldest))


def _told(
    unread: UnreadCount,
    files: StoreFiles,
    findings: Findings,
    options: LagOptions,
    now: int,
    time_of: Callable[[int], int | None],
) -> StoreLag:
    """What is asked for of what was counted; `time_of`: storeTimestamp (ms) of a message by its physical offset."""
    from engine.inspect.store.newer import BATCH_QUEUES, ROCKSDB_CONFIG, ROCKSDB_QUEUES

    queue_rows = []
    notes = [f"{name} has no consumer offset: lag unknown" for name in unread.without]
    newer, hidden = files.newer, {BATCH_QUEUES}
    hidden |= {ROCKSDB_QUEUES} if newer.no_queue_files else set()
    hidden |= {ROCKSDB_CONFIG} if newer.no_config_files else set()
    notes += [f"{part.what} ({part.where}): not read" for part in newer.parts if part.what in hidden]
    if unread.source is None and not newer.no_config_files:
        notes.append(f"lag unknown: config/{unread.name} is missing")
    estimated = False
    for group in unread.by_messages():
        if options.group not in (None, group.group) or options.topic not in (None, group.topic):
            continue
        estimated |= group.estimated
        for line in group.queues:
            stamp = (time_of(line.oldest) if line.oldest >= 0 else 0) or 0
            age = None if stamp <= 0 else now - stamp
            queue_rows.append(
                (
                    *(group.group, group.topic, line.queue_id, line.offset, line.min_offset, line.max_offset),
                    *(line.messages, line.size, stamp or None, age),
                )
            )
    if estimated:
        notes.append(f"bytes of queues with more than {_ROWS_AT_MOST} messages are estimates")
    odd = tuple((f.code, f.where, f.message) for f in findings.result())
    return StoreLag(tuple(queue_rows), odd, tuple(notes))


def _groups(queues: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The queues of all stores added up by group and topic, the most unread first."""
    sums: dict[tuple[str, str], list[Any]] = {}
    for _, group, topic, *_, messages, size, stamp, age in queues:
        row = sums.setdefault((group, topic), [0, 0, None, None])
        row[0] += messages
        row[1] += size
        if stamp is not None and (row[2] is None or stamp < row[2]):
            row[2], row[3] = stamp, age
    rows = [(*key, *row) for key, row in sums.items()]
    return sorted(rows, key=lambda row: (-row[2], *row[:2]))
