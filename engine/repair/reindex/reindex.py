"""`rstore reindex`: consume queues and index made anew from the log, by the same parts that dispatch writes them with.

Everything is built aside (`Builder`), compared with what is there, and only what differs is swapped in
(`swap`). So a sound store stays as it is, to the last byte.

What the log can't say any more is taken over from the old files: units and entries of messages before the place where
rebuilding begins (the log's first byte, unless another is given), where they are sound; and the filter bit maps in the
extension, where the old unit names the same message. A queue of which the log has no message keeps its files: its next
queue offset is known from nowhere else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from engine.dataclass import dataclass
from engine.errors import CannotRepair, DamageInTheMiddle, RStoreError
from engine.inspect import next_step
from engine.inspect.finding_codes import Fix
from engine.inspect.store.guessed_sizes import guessed_sizes
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.known import known_places
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.layout import demand_in_order
from engine.inspect.store.odd import demand_movable
from engine.inspect.store.survey import StoreFiles, surveyed
from engine.log.ahead import scan_ahead
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units, joined
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.background import BackgroundWorker
from engine.repair.reindex.batches import BatchQueueBuilder
from engine.repair.reindex.build import BuiltQueue, QueueBuilder
from engine.repair.reindex.index import IndexBuilder

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.source import Segment

_Prepared = TypeVar("_Prepared")

AT_ONCE = 1 << 17
"""Records that are derived before queues and index get what they give."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is rebuilt. `topic`: only its queues, and no index. `start`: from this physical offset on."""

    queues: bool = True
    index: bool = True
    topic: str | None = None
    start: int | None = None


@dataclass(slots=True)
class ReindexPlan:
    """What was built below `built`, and what of it differs from the store's.

    `queues_changed`: queues whose files differ; `index_changed`: whether the index does. `kept`: queues without a
    message in the log, which stay as they are. `refusal`: why it won't be swapped in, where that was asked after it was
    built: by who writes nothing into the store.
    """

    files: StoreFiles
    built: str
    start_file: str | None
    log_end: int
    records: int
    messages: int = 0
    queues: tuple[BuiltQueue, ...] = ()
    queues_changed: frozenset[TopicQueue] = frozenset()
    kept: tuple[TopicQueue, ...] = ()
    index_built: bool = False
    index_files: int = 0
    keys: int = 0
    index_changed: bool = False
    problems: list[str] = field(default_factory=list)
    refusal: RStoreError | None = None

    @property
    def changed(self) -> bool:
        """Whether swapping in changes a byte."""
        return bool(self.queues_changed) or self.index_changed

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The JSON of CLI.md "Plans"."""
        return {
            "mode": "reindex",
            "abort": self.files.abort,
            "startFile": None if self.start_file is None else os.path.basename(self.start_file),
            "minOffset": self.files.log[0].offset if self.files.log else -1,
            "maxOffset": self.log_end,
            "truncateTo": None,
            "records": self.records,
            "messages": self.messages,
            "bytesCut": 0,
            "damage": [],
            "recordsAfter": 0,
            "filesRemoved": [],
            "queues": [
                {
                    "topic": queue.queue.topic,
                    "queueId": queue.queue.queue_id,
                    "minOffset": queue.min_offset,
                    "maxOffset": queue.max_offset,
                    "unitsCut": max(0, queue.old_extent - queue.max_offset),
                    "unitsRebuilt": queue.units,
                    "changed": queue.queue in self.queues_changed,
                }
                for queue in self.queues
            ],
            "queuesKept": [{"topic": queue.topic, "queueId": queue.queue_id} for queue in self.kept],
            "index": {
                "enabled": self.index_built,
                "files": self.index_files,
                "keysPut": self.keys,
                "changed": self.index_changed,
            },
            "salvage": salvage,
            "changed": self.changed,
            "problems": self.problems,
        }


def build(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    into: str,
    scope: Scope,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ReindexPlan:
    """Build queues and index below the directory `into`, durably, and compare them with the store's.

    `store`: its survey, or the settings that name it. Writes nothing elsewhere. `jobs`: threads that read the log
    (None: one a core).

    Raises:
        CannotRepair: no log. DamageInTheMiddle: run recover first. InvalidArgument: no such topic. DataIsAbsent,
        NotAStore, DiskFull, StorageError.
    """
    files = surveyed(disk, store)
    begin, first = demand_readable(disk, files, scope)
    config = files.config
    numbers = QueueNumbers()
    queues = QueueBuilder(disk, files, into, begin) if scope.queues else None
    index = IndexBuilder(disk, files, into, begin) if scope.index and config.message_index_enable else None
    batches = BatchQueueBuilder(disk, files, into, begin, numbers, topic=scope.topic, wanted=scope.queues)
    plan = ReindexPlan(files, into, first.path, first.offset, 0)
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        deriver = Deriver(DeriveRules.of(config, files.newer.batch_topics), numbers)
        try:
            if index is not None:
                index.take_over(scanner)
            prepare = deriver.prepare_and_let_go
            events = scan_ahead(scanner, first.offset, prepare=prepare, resume=True, threads=jobs)
            with BackgroundWorker(disk) as worker:
                held: list[tuple[Units, Keys]] = []
                many = 0

                def build_held() -> None:
                    units, keys = joined(held)
                    held.clear()
                    if index is not None:
                        worker.run(partial(index.put, keys_from(keys, begin)))
                    for number, some in by_queue(units, begin):
                        if queues is not None and scope.topic in (None, numbers[number].topic):
                            queues.append(numbers[number], some)

                for batch, parts in _sound(events, files, known_places(disk, files.root).accepted, plan.problems):
                    held.append(batches.others(deriver.finish_all(batch, parts or [])))
                    many += len(batch)
                    if many >= AT_ONCE:
                        build_held()
                        many = 0
                    plan.records += len(batch)
                    plan.messages += batch.messages
                    plan.log_end = batch.end
                    if progress is not None:
                        progress(batch.end - first.offset, files.log[-1].end - first.offset)
                if held:
                    build_held()
                if index is not None:
                    worker.run(index.close)
                if queues is not None:
                    queues.close()
                batches.close(log, scanner, plan.log_end)
        except BaseException:
            for builder in (queues, index):
                if builder is not None:
                    with contextlib.suppress(RStoreError):  # what came first is to be reported: a full disk, say
                        builder.close()
            raise
    _compare(disk, plan, scope, queues, batches, index)
    return plan


def demand_readable(disk: Disk, files: StoreFiles, scope: Scope) -> tuple[int, Segment]:
    """As `beginning`; what keeps a log from being read as it lies there is reported before any of it is read.

    Raises:
        CannotRepair: no log, or a file of it that has another name or length. RStoreError: files that nobody may move.
    """
    demand_movable(files.odd)
    demand_in_order(disk, files)
    return beginning(files, scope)


def demand_sound(
    disk: Disk,
    files: StoreFiles,
    scope: Scope,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Read the log as `build` does, and build nothing.

    Raises:
        DamageInTheMiddle: run recover first. CannotRepair, StorageError.
    """
    _, first = demand_readable(disk, files, scope)
    config = files.config
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        events = scan_ahead(scanner, first.offset, prepare=RecordBatch.let_go, resume=True, threads=jobs)
        for batch, _ in _sound(events, files, known_places(disk, files.root).accepted, []):
            if progress is not None:
                progress(batch.end - first.offset, files.log[-1].end - first.offset)


def beginning(files: StoreFiles, scope: Scope) -> tuple[int, Segment]:
    """The physical offset from which on all is rebuilt, and the segment whose start the log is read from.

    Raises:
        CannotRepair: no log.
    """
    if not files.log:
        raise CannotRepair("there is no commit log to rebuild from", path=files.root)
    begin = max(files.log[0].offset, scope.start or 0)
    return begin, next((s for s in reversed(files.log) if s.offset <= begin), files.log[0])


def kept_queues(files: StoreFiles, scope: Scope, built: Iterable[BuiltQueue]) -> tuple[TopicQueue, ...]:
    """The queues that stay as they are: the log has no message of theirs."""
    done = {queue.queue for queue in built}
    wanted = (q for q in files.queues if scope.topic is None or q.queue.topic == scope.topic)
    return tuple(q.queue for q in wanted if q.files and q.queue not in done)


def _compare(
    disk: Disk,
    plan: ReindexPlan,
    scope: Scope,
    queues: QueueBuilder | None,
    batches: BatchQueueBuilder,
    index: IndexBuilder | None,
) -> None:
    """What was built, and what of it differs from the store's."""
    if queues is not None:
        plan.queues = tuple(sorted((*queues.built(), *batches.built()), key=lambda built: built.queue))
        plan.queues_changed = queues.changed() | batches.changed()
        plan.problems += [problem for queue in plan.queues for problem in queue.problems()]
        plan.kept = kept_queues(plan.files, scope, plan.queues)
        plan.problems += batches.problems
        plan.kept = tuple(sorted((*plan.kept, *batches.kept())))
        if scope.topic is not None and not plan.queues:
            KnownNames.of(disk, plan.files).demand_topic(scope.topic)
    if index is not None:
        plan.index_built, plan.keys, plan.index_files = True, index.keys, len(index.names())
        plan.index_changed = index.changed()
        plan.problems += index.problems
    made = {"queues": any(queue.units for queue in plan.queues), "index": plan.keys > 0}
    plan.problems += guessed_sizes(plan.files, **made)


def _sound(
    events: Iterator[tuple[Event, _Prepared | None]], files: StoreFiles, accepted: Intervals, problems: list[str]
) -> Iterator[tuple[RecordBatch, _Prepared | None]]:
    """The log's records up to its end; damage and gaps before it must have been accepted in an earlier repair.

    `problems`: gets what is said of each. Raises DamageInTheMiddle.
    """
    held: list[Damage | Gap] = []
    for event, prepared in events:
        if isinstance(event, RecordBatch):
            problems += [step_over(one, accepted, files) for one in held]
            held = []
            yield event, prepared
        elif not isinstance(event, Blank):
            held.append(event)


def step_over(lost: Damage | Gap, accepted: Intervals, files: StoreFiles) -> str:
    """What is said of a range that sound records lie after, and that an earlier repair was allowed to continue after.

    Raises:
        DamageInTheMiddle: none was.
    """
    if accepted.overlap(lost.offset, lost.offset + lost.length) < lost.length:
        raise DamageInTheMiddle(
            f"{lost.reason.value if isinstance(lost, Damage) else 'segments are missing'}; sound records lie after it",
            path=lost.segment.path if isinstance(lost, Damage) else files.root,
            offset=lost.offset,
            hint="nothing was changed",
            next_step=next_step.step(files.config, Fix.BRIDGE),
        )
    return f"stepped over {lost.length} lost bytes at {lost.offset}"


def by_queue(units: Units, begin: int) -> Iterator[tuple[int, Units]]:
    """A batch's units from `begin` (physical) on, queue by queue, in log order."""
    import numpy as np

    if len(units) and int(units.physical_offset[0]) < begin:
        units = units.taken(units.physical_offset >= begin)
    if not len(units):
        return
    small = int(units.queue.max()) < 1 << 16  # numpy counts 2-byte numbers instead of comparing them
    order = np.argsort(units.queue.astype(np.uint16) if small else units.queue, kind="stable")
    bounds = np.flatnonzero(np.diff(units.queue[order])) + 1
    for group in np.split(order, bounds):
        yield int(units.queue[group[0]]), units.taken(group)


def keys_from(keys: Keys, begin: int) -> Keys:
    """A batch's keys from `begin` (physical) on."""
    if not len(keys) or int(keys.physical_offset[0]) >= begin:
        return keys
    return keys.taken(keys.physical_offset >= begin)
