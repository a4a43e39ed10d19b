"""`reindex` on Spark: consume queues and index made anew from the logs, to the byte as `rstore reindex` makes them.

Three steps, each bounded by splits, queues and index files, never by records:

1. Executors scan their splits, derive units and keys (reindex_scan.py), and say how many keys and what damage they
   met. Spark keeps the rows on the executors' disks. The driver refuses damage that sound records lie after.
2. Rows go to their targets in log order: units to their queue, keys to the index file that their number says
   (engine.repair.reindex.index.shares). Each queue and each file is built by one task with the engine's own builders
   (reindex_write.py), so that every rule stands in one place: what is filled or refused, taken over, linked.
3. The driver takes over what was built, and the engine's own code swaps in what differs (engine.repair.reindex.swap).

What can't be split is done by one task or the driver: a queue's units are appended by one task, its old rows taken over
by the same; index files of older keys are copied by the driver, before.

All is built below the store (`reindex.tmp`), or below `output`: a directory that the executors see under the same path.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NewerStore, NextStep, StoreChanged, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock, holder_of
from engine.format import names
from engine.inspect.next_step import command_line
from engine.inspect.store.change_gate import ChangeKind
from engine.inspect.store.known import known_places
from engine.inspect.store.survey import survey
from engine.log.scan import Damage, Gap, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.jobs.reindex_built import StoreBuild, take_over
from engine.pipeline.jobs.reindex_rows import Scanned
from engine.pipeline.jobs.reindex_scan import ScanWork, scan_group
from engine.pipeline.jobs.reindex_write import (
    APART,
    StoreWork,
    address,
    build,
    partition,
)
from engine.pipeline.jobs.tasks import Failed, cores_of, grouped, joined, unfailed
from engine.pipeline.known import demand_known
from engine.pipeline.removal import until_quiet
from engine.pipeline.repositories import demand_no_snapshots
from engine.pipeline.result import JobResult, Table
from engine.pipeline.splits import SPLIT_BYTES, plan_splits
from engine.pipeline.stores import demand_idle
from engine.repair.change import demand_lockable, survey_to_change
from engine.repair.reach import beneath, building
from engine.repair.reindex import swap as reindex_swap
from engine.repair.reindex.index import IndexBuilder, shares
from engine.repair.reindex.reindex import ReindexPlan, Scope, beginning, demand_readable, step_over
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from engine.inspect.store.survey import StoreFiles
    from engine.pipeline.splits import Split
    from engine.pipeline.stores import StoreRef

BLOBS_A_TASK = 64 << 20
"""Bytes of units and keys that a task builds from, about."""
_STORES = (
    "store", "path", "records", "log_end", "queues", "queues_changed", "queues_kept", "units", "index_files", "keys",
    "index_changed", "changed", "salvage", "output",
)  # fmt: skip
_QUEUES = ("store", "topic", "queue_id", "min_offset", "max_offset", "units", "changed")


@dataclass(frozen=True, slots=True)
class ReindexOptions:
    """How stores are rebuilt.

    Attributes:
        split_bytes: bytes of log that one task reads, about.
        queues, index: what is rebuilt.
        topic: only the queues of this topic, and no index.
        start: from this physical offset on; what is before stays.
        output: build below this directory, which must be empty or missing, and leave the store alone. Several stores
            get a directory each, of their names.
        apply: swap in what differs. Without it, and without `output`, only what differs is said; that needs a
            directory which executors share, so on a cluster one of both must be given.
    """

    split_bytes: int = SPLIT_BYTES
    queues: bool = True
    index: bool = True
    topic: str | None = None
    start: int | None = None
    output: str | None = None
    apply: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the stores are changed, and so locked."""
        return self.apply and self.output is None

    @property
    def scope(self) -> Scope:
        """The same for the engine."""
        return Scope(self.queues, self.index and self.topic is None, self.topic, self.start)


def run(spark: SparkSession, stores: Sequence[StoreRef], options: ReindexOptions) -> JobResult:
    """Rebuild queues and index of stores that nobody has open; `ok`: nothing differs, or it was swapped in or output.

    Facts: stores, splits, records, queues, queues_changed, units, keys, index_files, changed (stores), applied,
    seconds. Tables: `stores`, `queues`. Notes: what an operator should hear of, by store.

    Raises:
        StoreLocked: a live process holds one. DamageInTheMiddle: run recover first. CannotRepair: no log, or (unless
        with `output`) the store was not closed. InvalidArgument: `output` is not empty, or is needed. DiskFull,
        StorageError. Nothing was changed then, but stores of the same job that were swapped before.
    """
    with rebuilding(spark, stores, options) as rebuilt:
        if options.apply:
            rebuilt.apply()
        return rebuilt.result()


@contextlib.contextmanager
def rebuilding(spark: SparkSession, stores: Sequence[StoreRef], options: ReindexOptions) -> Iterator[Rebuilt]:
    """As `run`, with all built and nothing swapped in yet: for who looks at it first.

    With `options.apply` the stores are locked, and what was built lies below them, as long as the context is open.

    Raises:
        As `run`.
    """
    began = time.monotonic()
    demand_idle(stores)
    with contextlib.ExitStack() as stack:
        demanded = [_demand(stack, store, options) for store in stores]
        builds = [
            _begin(stack, spark, store, files, options, many=len(stores) > 1)
            for store, files in zip(stores, demanded, strict=True)
        ]
        splits = _build_all(spark, builds, options)
        for one in builds:
            _demand_still_idle(one, options)
        yield Rebuilt(builds, options, splits, began)


@dataclass(slots=True)
class Rebuilt:
    """Stores whose queues and index stand aside. `began`: on the monotonic clock (s)."""

    _builds: Sequence[StoreBuild]
    _options: ReindexOptions
    _splits: int
    _began: float
    _applied: bool = False

    @property
    def plans(self) -> list[ReindexPlan]:
        """What would be swapped in, store by store."""
        return [one.plan for one in self._builds]

    @property
    def salvage(self) -> list[str | None]:
        """Where the old files are, store by store; None where nothing was swapped."""
        return [one.salvage for one in self._builds]

    @property
    def changed(self) -> bool:
        """Whether swapping in changes a byte."""
        return any(plan.changed for plan in self.plans)

    def apply(self) -> None:
        """Swap in what differs. Raises DiskFull, StorageError: run it again."""
        for one in self._builds:
            _finish(one, self._options)
        self._applied = self._options.in_place

    def result(self) -> JobResult:
        """What `run` answers."""
        seconds = time.monotonic() - self._began
        return _result(self._builds, self._options, self._splits, seconds, applied=self._applied)


# --- where it is built -----------------------------------------------------------------------------------------------


def _demand(stack: contextlib.ExitStack, store: StoreRef, options: ReindexOptions) -> StoreFiles:
    """The store's files, its lock taken (to apply), and what refuses told, before any store is changed."""
    demand_no_snapshots((store,), "reindex can't change")
    disk = Disk()
    demand_lockable(disk, store.config, ChangeKind.QUEUES)
    disk = beneath(disk, store.config)
    if options.in_place:
        stack.enter_context(StoreLock(disk, store.root))
    files = survey_to_change(disk, store.config, ChangeKind.QUEUES)
    if files.newer.batch_topics:
        raise NewerStore(
            "jobs on Spark do not rebuild batch consume queues",
            path=files.root,
            next_step=NextStep(command_line(files.config, "reindex"), "rebuilds them on this machine"),
        )
    demand_readable(disk, files, options.scope)
    refused = None if options.output is not None else reindex_swap.refusal(disk, files)
    if refused is not None:
        raise refused
    return files


def _begin(
    stack: contextlib.ExitStack,
    spark: SparkSession,
    store: StoreRef,
    files: StoreFiles,
    options: ReindexOptions,
    *,
    many: bool,
) -> StoreBuild:
    """A directory made to build in, which is removed at the end. The store is locked (to apply)."""
    if options.output is not None:
        output = os.path.abspath(options.output)
        into = os.path.join(output, store.name) if many else output
        disk = building(Disk(), store.config, into)
        _output(stack, disk, into)
    elif options.apply:
        disk = beneath(Disk(), store.config)
        into, files = reindex_swap.begin(disk, files, options.scope)
        stack.callback(until_quiet, lambda: reindex_swap.clear(disk, store.root))
    else:
        if not str(spark.sparkContext.master).startswith("local"):
            raise InvalidArgument(
                "on a cluster it is built in a directory that all executors see", hint="give --output, or apply it"
            )
        into = stack.enter_context(tempfile.TemporaryDirectory(prefix="rstore-reindex-", ignore_cleanup_errors=True))
        disk = building(Disk(), store.config, into)
    store = replace(store, segments=files.log)  # what was found before the lock may have grown
    begin, first = beginning(files, options.scope)
    plan = ReindexPlan(files, into, first.path, first.offset, 0)
    return StoreBuild(disk, store, files, plan, begin, first.offset)


def _demand_still_idle(one: StoreBuild, options: ReindexOptions) -> None:
    """A store that is only read isn't locked. Raises StoreLocked: somebody has opened it meanwhile."""
    if not options.in_place and holder_of(one.disk, one.files.root) is not None:
        raise StoreLocked("a process has opened the store while it was read", path=one.files.root, hint="stop it first")
    if not options.in_place and survey(one.disk, one.store.config) != one.files:
        raise StoreChanged("the store has changed while it was read", path=one.files.root, hint="run it again")


def _output(stack: contextlib.ExitStack, disk: Disk, directory: str) -> None:
    """Make the directory when it is missing; it is emptied again when the job fails."""
    if disk.exists(directory) and (not disk.is_dir(directory) or disk.listdir(directory)):
        raise InvalidArgument("--output requires an empty directory", path=directory)
    there = disk.exists(directory)
    disk.mkdirs(directory)

    def leave(kind: type[BaseException] | None, *_: object) -> bool:
        if kind is not None:
            until_quiet(lambda: remove_tree(disk, directory))
            if there:
                disk.mkdirs(directory)
        return False

    stack.push(leave)


# --- reading and building --------------------------------------------------------------------------------------------


def _build_all(spark: SparkSession, builds: Sequence[StoreBuild], options: ReindexOptions) -> int:
    """All stores in two Spark jobs; the number of splits."""
    from pyspark import StorageLevel

    places = {one.store.name: (number, one.begin) for number, one in enumerate(builds)}
    splits = [
        split for one in builds for split in plan_splits([one.store], split_bytes=options.split_bytes, start=one.first)
    ]
    count = itertools.count()
    groups = [
        [_work(places[split.store.name], next(count), split, options.scope) for split in joined(group)]
        for group in grouped(splits, cores_of(spark))
    ]
    context = spark.sparkContext
    rows = context.parallelize(groups, len(groups)).flatMap(scan_group).persist(StorageLevel.DISK_ONLY)
    try:
        reports = sorted(unfailed(rows.flatMap(_said).collect()))
        for scanned in reports:
            builds[scanned.store].scanned.append(scanned)
        for one in builds:
            _judge(one)
        shared = context.broadcast(tuple(_share(one, options) for one in builds))
        size = sum(40 * scanned.units + 20 * scanned.keys for scanned in reports)
        tasks = max(2 * cores_of(spark), size // BLOBS_A_TASK)
        try:
            built = (
                rows.flatMap(partial(address, shared))
                .repartitionAndSortWithinPartitions(tasks, partition)
                .mapPartitions(partial(build, shared))
                .collect()
            )
            take_over(builds, shared.value, list(unfailed(built)), options.scope)
            if options.topic is not None and not any(one.plan.queues for one in builds):
                demand_known([one.store for one in builds], [options.topic])
        finally:
            shared.destroy()
    finally:
        rows.unpersist()
    return len(splits)


def _work(place: tuple[int, int], number: int, split: Split, scope: Scope) -> ScanWork:
    """A piece of work for the store that has this number, and is rebuilt from this physical offset on."""
    store, begin = place
    return ScanWork(store, number, split, begin, scope)


def _said(row: object) -> list[Scanned | Failed]:
    return [row] if isinstance(row, Scanned | Failed) else []


def _judge(one: StoreBuild) -> None:
    """Records counted, the log end, and what lies in its middle. Raises DamageInTheMiddle."""
    plan = one.plan
    plan.records = sum(scanned.records for scanned in one.scanned)
    plan.messages = sum(scanned.messages for scanned in one.scanned)
    end = max((scanned.end for scanned in one.scanned if scanned.end is not None), default=None)
    if end is None:
        return
    plan.log_end = end
    lost: list[Damage | Gap] = [damage for scanned in one.scanned for damage in scanned.damage]
    segments = [segment for segment in one.files.log if segment.offset >= one.first]
    for before, segment in pairwise(segments):
        if before.end < segment.offset:
            lost.append(Gap(before.end, segment.offset - before.end))
    accepted = known_places(one.disk, one.files.root).accepted
    for lost_range in sorted(lost, key=lambda lost_range: lost_range.offset):
        if lost_range.offset < end:
            plan.problems.append(step_over(lost_range, accepted, one.files))


def _share(one: StoreBuild, options: ReindexOptions) -> StoreWork:
    """What executors are told of a store. Index files of older keys are there then."""
    files, plan, disk = one.files, one.plan, one.disk
    disk.mkdirs(os.path.join(plan.built, APART))
    counts = [scanned.keys for scanned in one.scanned]
    starts = dict(zip((s.split for s in one.scanned), accumulate(counts, initial=0), strict=False))
    index_shares = []
    if options.scope.index and files.config.message_index_enable:
        plan.index_built = True
        plan.keys = sum(counts)
        index = IndexBuilder(disk, files, plan.built, one.begin)
        try:
            with ClosedLog(disk, files.log) as log:
                limit = files.config.max_message_size
                scanner = Scanner(log, check_crc=files.config.check_crc_on_recover, max_message_size=limit)
                index.take_over(scanner)
        finally:
            index.close()
        one.index_problems = index.problems
        one.kept_index = index.names()
        index_shares = shares(disk, os.path.join(plan.built, names.INDEX), files.index_layout, plan.keys)
    return StoreWork(files, plan.built, one.begin, tuple(index_shares), starts)


# --- the end ---------------------------------------------------------------------------------------------------------


def _finish(one: StoreBuild, options: ReindexOptions) -> None:
    """Swap in what differs, where that was asked for."""
    if not options.in_place:
        return
    if one.plan.changed:
        one.salvage = reindex_swap.swap(one.disk, one.plan)
    else:
        reindex_swap.unchanged(one.disk, one.files.config)


def _result(
    builds: Sequence[StoreBuild], options: ReindexOptions, splits: int, seconds: float, *, applied: bool
) -> JobResult:
    plans = [one.plan for one in builds]
    changed = sum(plan.changed for plan in plans)
    facts = {
        "stores": len(builds),
        "splits": splits,
        "records": sum(plan.records for plan in plans),
        "queues": sum(len(plan.queues) for plan in plans),
        "queues_changed": sum(len(plan.queues_changed) for plan in plans),
        "units": sum(queue.units for plan in plans for queue in plan.queues),
        "keys": sum(plan.keys for plan in plans),
        "index_files": sum(plan.index_files for plan in plans),
        "changed": changed,
        "applied": applied,
        "seconds": round(seconds, 3),
    }
    queues = [
        (one.store.name, q.queue.topic, q.queue.queue_id, q.min_offset, q.max_offset, q.units, q.queue in changes)
        for one in builds
        for changes in [one.plan.queues_changed]
        for q in one.plan.queues
    ]
    return JobResult(
        "reindex",
        facts,
        (
            Table("stores", "Stores", _STORES, tuple(_row(one, options) for one in builds)),
            Table("queues", "Queues", _QUEUES, tuple(queues)),
        ),
        ok=not changed or applied or options.output is not None,
        notes=tuple(f"{one.store.name}: {problem}" for one in builds for problem in one.plan.problems),
    )


def _row(one: StoreBuild, options: ReindexOptions) -> tuple[object, ...]:
    plan = one.plan
    return (
        one.store.name,
        one.store.root,
        plan.records,
        plan.log_end,
        len(plan.queues),
        len(plan.queues_changed),
        len(plan.kept),
        sum(queue.units for queue in plan.queues),
        plan.index_files,
        plan.keys,
        plan.index_changed,
        plan.changed,
        one.salvage,
        plan.built if options.output is not None else None,
    )
