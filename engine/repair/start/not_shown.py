"""Messages of the log that the queues of a start would not show: they lack the unit, or have another one there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.inspect.store.intervals import Intervals
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.start.queue_start import StartedQueue
    from engine.repair.start.started_queues import StartedQueues

_NEAR = 1 << 12
"""Queue offsets by which a start may show a message early or late: units that are lost let the later ones move up."""


def short_of(
    disk: Disk,
    files: StoreFiles,
    repair: RecoverPlan,
    started: StartedQueues,
    moved: Intervals,
    end: int,
) -> Iterator[tuple[TopicQueue, int]]:
    """By queue, how many messages before the log end `end` (physical) a start's queues don't show.

    `repair`: what the queues would hold if nothing were lost; `moved`: where files of the log lie under names of
    others, so that other bytes are read there.
    """
    import numpy as np

    places = Intervals()
    for segment in files.log:
        places.add(segment.offset, segment.end)

    repaired = min(end, repair.log.end.end)
    written: dict[TopicQueue, list[NDArray[np.int64]]] = {}
    ends = {queue.queue: queue.max_offset for queue in repair.queues}
    numbers = {queue.number: queue.queue for queue in repair.queues}
    hidden = files.newer.hides
    for chunk in repair.writes.chunks():
        for number in np.unique(chunk["queue"]):
            queue = numbers[int(number)]
            mine = chunk[(chunk["queue"] == number) & (chunk["physical_offset"] < repaired)]
            if len(mine) and not hidden(queue.topic):
                offsets = mine["queue_offset"].astype(np.int64)
                written.setdefault(queue, []).append(offsets)
                yield queue, _missing(started.plain.get(queue), offsets, mine["physical_offset"])
    for queue_files in files.queues:
        queue = queue_files.queue
        if not queue_files.files or hidden(queue.topic):
            continue
        rows, mine_started = QueueRows(disk, queue_files), started.plain[queue]
        done = np.concatenate(written[queue]) if queue in written else np.zeros(0, dtype=np.int64)
        for first, units in rows.chunks(max(rows.first, mine_started.kept), min(rows.extent, ends.get(queue, 0))):
            there = is_real(units) & places.mask(units["physical_offset"]) & (units["physical_offset"] < repaired)
            offsets = np.flatnonzero(there) + first
            offsets = offsets[~np.isin(offsets, done)]
            yield queue, _missing(mine_started, offsets, units["physical_offset"][offsets - first])
        below = max(rows.first, min(mine_started.kept, mine_started.minimum))  # units that stay, and nobody is given
        for first, units in rows.chunks(rows.first, below):
            there = is_real(units) & places.mask(units["physical_offset"]) & (units["physical_offset"] < repaired)
            yield queue, int((there & ~np.isin(np.arange(first, first + len(units)), done)).sum())
        for _, units in rows.chunks(below, mine_started.kept) if moved else ():
            yield queue, int((is_real(units) & moved.mask(units["physical_offset"])).sum())
    yield from _after(disk, files, started, repaired, end)


def _after(
    disk: Disk, files: StoreFiles, started: StartedQueues, low: int, high: int
) -> Iterator[tuple[TopicQueue, int]]:
    """The same of sound records in [low, high) (physical): behind damage that the start passes over unread."""
    if low >= high:
        return
    numbers = QueueNumbers()
    deriver = Deriver(DeriveRules.of(files.config), numbers)
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        for event in scanner.scan(low, high, resume=True):
            if isinstance(event, RecordBatch):
                units, _ = deriver.derive(event)
                for number in set(units.queue.tolist()):
                    mine = units.queue == number
                    queue = numbers[number]
                    if not files.newer.hides(queue.topic):
                        plain = started.plain.get(queue)
                        yield queue, _missing(plain, units.queue_offset[mine], units.physical_offset[mine])


def _missing(queue: StartedQueue | None, offsets: NDArray[np.int64], physical: NDArray[np.int64]) -> int:
    """How many of the messages (queue offset, physical offset) have no unit in the queue, there or near that place."""
    import numpy as np

    if queue is None or not len(offsets):
        return len(offsets)
    low, high = max(int(offsets.min()) - _NEAR, queue.minimum), min(int(offsets.max()) + _NEAR, queue.end)
    if low >= high:
        return len(offsets)
    units = queue.read(low, high)
    shown = np.isin(physical, units["physical_offset"][is_real(units)])
    return len(offsets) - int(shown.sum())
