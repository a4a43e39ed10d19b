"""A store whose queues and index only lack what dispatch has not done yet: it can be opened as it is.

So a disk that is full keeps nobody from starting: there is no space for a queue's next file, and none for the manifest
of a repair, but nothing is wrong. An open store's dispatch continues where it stopped, as soon as there is space.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.inspect.store.queue_rows import QueueRows
from engine.log.state import QueueState, StoreState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.planned_rows import PlannedRows
    from engine.repair.recover.queue_plan import QueuePlan


def left_to_dispatch(disk: Disk, plan: RecoverPlan) -> StoreState | None:
    """The state in which dispatch does all that the plan would do; None when a repair has more to do than that.

    Raises:
        StorageError: a queue can't be read.
    """
    log, index = plan.log, plan.index
    mends = log.mends or log.requeued or log.bridges or log.shifts or log.taken
    more = mends or log.tail or log.removed or plan.ext or plan.set_aside or plan.accepted
    if (
        more
        or any(queue.changed for queue in plan.batches)
        or plan.unfinished
        or index.removed
        or index.rewinds
        or index.inserts
    ):
        return None
    standing = standing_queues(disk, plan.files, plan.queues, plan.writes)
    if standing is None:
        return None
    done = max((one.max_physical_offset for one in standing), default=-1)
    keyed = (int(keys.physical_offset.min()) for keys in index.tail.chunks() if len(keys)) if index.keys_put else ()
    if min(keyed, default=done) < done:
        return None
    ahead = {queue.queue: queue.max_offset for queue in plan.queues if queue.changed}
    return replace(plan.state, queues=standing, index_files=index.names_after, next_offsets=ahead)


def standing_queues(
    disk: Disk, store: StoreFiles, queues: Iterable[QueuePlan], writes: PlannedRows
) -> tuple[QueueState, ...] | None:
    """How the queues stand now, where all that they lack are the units of the last records; else None.

    Raises:
        StorageError: a queue can't be read.
    """
    files = {queue_files.queue: queue_files for queue_files in store.queues}
    standing: list[QueueState] = []
    for queue in queues:
        if not queue.changed:
            standing.append(_state(queue))
            continue
        if not _only_appends(queue):
            return None
        rows = QueueRows(disk, files[queue.queue]) if queue.queue in files else None
        if rows is None or not queue.old_extent:
            continue
        last = next(iter(rows.chunks(queue.old_extent - 1, queue.old_extent)), None)
        if last is None:
            return None
        end = int(last[1]["physical_offset"][-1]) + int(last[1]["size"][-1])
        standing.append(QueueState(queue.queue, queue.min_offset, queue.old_extent, end))
    done = max((one.max_physical_offset for one in standing), default=-1)
    missing = (int(chunk["physical_offset"].min()) for chunk in writes.chunks() if len(chunk))
    return None if min(missing, default=done) < done else tuple(standing)


def _state(queue: QueuePlan) -> QueueState:
    return QueueState(queue.queue, queue.min_offset, queue.max_offset, queue.max_physical_offset)


def _only_appends(queue: QueuePlan) -> bool:
    """Whether the queue only lacks units at its end."""
    start, end = queue.pre_blanks
    return (
        not queue.units_filled
        and start >= end
        and queue.old_extent <= queue.max_offset
        and all(first >= queue.old_extent for first, _ in queue.written)
        and not queue.renumbered
    )
