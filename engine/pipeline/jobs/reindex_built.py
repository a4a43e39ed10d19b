"""What the tasks built of a store: moved to where one builder would have built it, compared with the old files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.sync_later import SyncLater
from engine.format import names
from engine.inspect.store.guessed_sizes import guessed_sizes
from engine.pipeline.jobs.reindex_rows import Scanned
from engine.pipeline.jobs.reindex_write import APART, NOT_SHARED, Done, IndexDone, QueuesDone, StoreWork
from engine.pipeline.removal import until_quiet
from engine.repair.reindex.reindex import ReindexPlan, Scope, kept_queues
from engine.repair.trees import remove_tree, same_file

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles
    from engine.pipeline.stores import StoreRef


@dataclass(slots=True)
class StoreBuild:
    """One store that is rebuilt: what becomes known of it on the way."""

    disk: Disk
    store: StoreRef
    files: StoreFiles
    plan: ReindexPlan
    begin: int
    first: int
    salvage: str | None = None
    scanned: list[Scanned] = field(default_factory=list)
    kept_index: list[str] = field(default_factory=list)
    index_problems: list[str] = field(default_factory=list)


def take_over(builds: Sequence[StoreBuild], shared: Sequence[StoreWork], done: Sequence[Done], scope: Scope) -> None:
    """Move what tasks built to where one builder would have built it, and say what of it differs."""
    for number, one in enumerate(builds):
        later = SyncLater(one.disk)
        queues = [d for d in done if isinstance(d, QueuesDone) and d.store == number]
        index = [d for d in done if isinstance(d, IndexDone) and d.store == number]
        for some in queues:
            _demand_seen(one.disk, some.place)
            for queue in some.built:
                _move(one, later, some.place, names.queue_directory(names.CONSUMEQUEUE, *queue.queue))
                ext = names.queue_directory(names.CONSUMEQUEUE_EXT, *queue.queue)
                if one.disk.exists(os.path.join(some.place, ext)):
                    _move(one, later, some.place, ext)
        for file in index:
            _demand_seen(one.disk, file.place)
            _move(one, later, file.place, os.path.join(names.INDEX, file.share.name))
        later.flush()
        until_quiet(partial(remove_tree, one.disk, os.path.join(one.plan.built, APART)))
        _compare(one, shared[number], queues, index, scope)


def _demand_seen(disk: Disk, place: str) -> None:
    if not disk.exists(place):
        raise StorageError("an executor has written here, and it is not there", path=place, hint=NOT_SHARED)


def _move(one: StoreBuild, later: SyncLater, place: str, path: str) -> None:
    """A path below what a task wrote, to the same below where all is built."""
    target = os.path.join(one.plan.built, path)
    one.disk.mkdirs(os.path.dirname(target), later=later)
    one.disk.replace(os.path.join(place, path), target)
    later.directory(os.path.dirname(target))


def _compare(
    one: StoreBuild, work: StoreWork, queues: Sequence[QueuesDone], index: Sequence[IndexDone], scope: Scope
) -> None:
    plan, files = one.plan, one.files
    plan.queues = tuple(sorted((queue for some in queues for queue in some.built), key=lambda built: built.queue))
    plan.queues_changed = frozenset(queue for some in queues for queue in some.changed)
    plan.problems += [problem for queue in plan.queues for problem in queue.problems()]
    if scope.queues:
        plan.kept = kept_queues(files, scope, plan.queues)
    plan.problems += one.index_problems
    made = {"queues": any(queue.units for queue in plan.queues), "index": plan.keys > 0}
    plan.problems += guessed_sizes(files, **made)
    if plan.index_built:
        directory = os.path.join(plan.built, names.INDEX)
        plan.index_files = len(one.disk.listdir(directory))
        written = {share.name for share in work.shares}
        kept = [(n, old.path) for n, old in zip(one.kept_index, files.index, strict=False) if n not in written]
        plan.index_changed = (
            plan.index_files != len(files.index)
            or any(file.changed for file in index)
            or any(not same_file(one.disk, path, os.path.join(directory, name)) for name, path in kept)
        )
