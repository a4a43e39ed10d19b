"""What the operator should know of a recovery, a sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.errors import RStoreError
from engine.format import fastjson, names
from engine.format.quantities import counted
from engine.inspect.store.guessed_sizes import guessed_sizes
from engine.repair.recover.batch_plan import BatchQueuePlan

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.layout import Layout
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.log_end import DamagedRange, LogEnd
    from engine.repair.recover.noticed import Noticed
    from engine.repair.recover.plan import LogPlan
    from engine.repair.recover.queue_plan import QueuePlan

CHECKPOINT_AHEAD = "the checkpoint is newer than every message: it does not belong to this log"
_MENDS_NAMED = 20


def of_the_log(
    files: StoreFiles, layout: Layout, log: LogPlan, noticed: Noticed, undecided: Sequence[str]
) -> Iterator[str]:
    """Stray files in the store's directory, and what the plan changes in the log.

    `undecided`: sentences about tails of which nothing proves that they are stale.
    """
    end = log.end
    yield from (f"{os.path.relpath(odd.path, files.root)}: {odd.description}" for odd in files.odd)
    yield from layout.problems
    if not files.checkpoint_ok:
        yield "the checkpoint is missing or too short: a broker reads its times as 0"
    for damage in log.damage_before:
        yield f"damage at {damage.offset}, {damage.length} bytes, before recovery's start: {damage.reason}"
    yield from (f"{shift.words}; they will be moved back" for shift in log.shifts)
    for taken in log.taken:
        yield f"{taken.length} bytes of records from {taken.offset} on are taken from a copy of their segment"
    for bridge in log.bridges:
        yield f"damage at {bridge.offset}, {bridge.length} bytes, is bridged: {bridge.reason}"
    yield from (f"segments missing at {gap.offset}, {gap.length} bytes" for gap in end.gaps)
    yield from (f"damage at {damage.offset}, {damage.length} bytes: {damage.reason}" for damage in end.damage)
    if end.stale is not None:
        yield (
            f"{end.stale.records} whole records from {end.stale.offset} to {end.stale.end} are stale: they were "
            "stored earlier than the record before them, and their queue offsets don't continue; they are saved and "
            "removed"
        )
    yield from undecided
    yield from (f"the record at {offset} has a wrong physicalOffset" for offset in noticed.mends[:_MENDS_NAMED])


def of_queues_and_index(
    disk: Disk,
    files: StoreFiles,
    queues: Sequence[QueuePlan | BatchQueuePlan],
    end: LogEnd,
    *,
    dangling: int,
    unplaced: int,
    keys: int,
) -> Iterator[str]:
    """What recovery does although the operator may know better: a deleted topic, a segment that is only absent.

    Args:
        disk: how files are reached.
        files: the store.
        queues: the plan of each.
        end: the log end.
        dangling: number of units that name a missing extension unit.
        unplaced: number of messages whose topic can't name a queue's directory.
        keys: number of keys that are inserted into the index.
    """
    cut = sum(queue.units_cut for queue in queues)
    if cut and not end.damage:
        yield (
            f"{counted(cut, 'unit points', 'units point')} after the log end at {end.end}: are segments missing there?"
        )
    known = _known_topics(disk, files.root)
    batches = [queue for queue in queues if isinstance(queue, BatchQueuePlan)]
    there = {one.queue.topic for one in files.queues if one.files} | {
        one.queue.topic for one in batches if one.held.files
    }
    revived = {queue.queue.topic for queue in queues if queue.units_rebuilt} - there
    for topic in sorted(revived - known) if known else ():
        if not names.is_system_topic(topic):
            yield f"{topic} gets its queues back, but config/topics.json doesn't have it: was it deleted?"
    if dangling:
        yield f"{counted(dangling, 'unit names', 'units name')} an extension unit that does not exist: rebuilt"
    yield from guessed_sizes(
        files, queues=any(queue.units_rebuilt for queue in queues if queue not in batches), index=keys > 0
    )
    if unplaced:
        yield (
            f"{counted(unplaced, 'message names', 'messages name')} a topic that is no valid directory name: "
            "they stay in the log, in no queue"
        )


def of_a_trap(trap: DamagedRange) -> str:
    """Damage that stays in the log and that a normal start would cut at."""
    return (
        f"damage at {trap.offset} ({trap.reason}): a normal start would read it and cut there, "
        "so the abort file stays and makes the next start begin after it"
    )


def _known_topics(disk: Disk, root: str) -> set[str]:
    """The topics of config/topics.json; none when it can't be read."""
    path = os.path.join(root, names.CONFIG, "topics.json")
    try:
        return set(fastjson.loads(disk.read_file(path).decode("utf-8", "replace"))["topicConfigTable"])
    except (RStoreError, TypeError, LookupError):
        return set()
