"""A plan's changes of batch queues: what must be saved before, what they take of the disk, and how they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.files.sync_later import SyncLater
from engine.format.batch_unit import BATCH_UNIT_SIZE
from engine.repair.recover.queue_write import QueueWriter
from engine.repair.salvage.salvage import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.files.disk import Disk
    from engine.repair.recover.batch_plan import BatchQueuePlan


def batch_pieces(plan: BatchQueuePlan) -> Iterator[Piece]:
    """What applying the plan of a queue changes, in that order."""
    held, size = plan.held, plan.held.file_size
    gone = {file.path for file in plan.removed}
    there = {file.first: file for file in held.files if file.path not in gone}
    for file in plan.resized:
        low, high = sorted((file.size, size))
        length = high - low if file.size == high else 0
        yield Piece("overwrite", file.path, low, length, "file size differs from the setting")
    for start, end in (*plan.spans, plan.cleared):
        for first, low, high in parts_of(start, end, held.file_units):
            if first in there and low < min(high, there[first].size):
                length = min(high, there[first].size) - low
                yield Piece("overwrite", there[first].path, low, length, "units that don't match the log")
    made = {first for span in plan.spans for first, _, _ in parts_of(*span, held.file_units)} - there.keys()
    for first in sorted(made):
        yield Piece("create", held.path_of(first), 0, size, "units rebuilt")
    for file in plan.removed:
        yield Piece("remove", file.path, 0, file.size, "units after the log end, or none of the queue")


def parts_of(start: int, end: int, file_units: int) -> Iterator[tuple[int, int, int]]:
    """Units [start, end) by file of a queue: number of its first unit, bytes [low, high) in it."""
    while start < end:
        first = start - start % file_units
        high = min(end, first + file_units)
        yield first, (start - first) * BATCH_UNIT_SIZE, (high - first) * BATCH_UNIT_SIZE
        start = high


class BatchQueueApplier:
    """Does what the plans say of the batch queues, once the log is what they are made of."""

    def __init__(self, disk: Disk, plans: Iterable[BatchQueuePlan]) -> None:
        self._disk = disk
        self._plans = tuple(plans)
        self._later = SyncLater(disk)

    def run(self) -> None:
        """Raises DiskFull, StorageError."""
        for plan in self._plans:
            if plan.changed:
                self._disk.step("recover.batch-queue")
                self._change(plan)
            elif plan.held.files:
                last = plan.held.files[-1]
                self._later.file(last.path, last.size)
        self._later.flush()

    def _change(self, plan: BatchQueuePlan) -> None:
        held = plan.held
        for one in plan.resized:
            self._disk.step("recover.resize-batch-file")
            file = self._disk.open_raw(one.path, writable=True)
            try:
                file.set_size(held.file_size)
            finally:
                file.close()
            self._later.file(one.path, held.file_size)
        for one in plan.removed:  # the name of one that is made may be among them: of a length that is no file's
            self._disk.step("recover.remove-batch-file")
            self._disk.unlink(one.path)
            self._later.directory(held.directory)
        writer = QueueWriter(self._disk, held.directory, held.file_size, self._later, unit_size=BATCH_UNIT_SIZE)
        with writer:
            for start, units in _runs(plan):
                writer.write(start, units)
            if plan.cleared[0] < plan.cleared[1]:
                self._disk.step("recover.batch-queue-cut")
                writer.clear(*plan.cleared)


def _runs(plan: BatchQueuePlan) -> Iterator[tuple[int, bytes]]:
    """Numbers of first units, and the bytes of all that are written from there on."""
    if plan.units is None:
        return
    spans = iter(plan.spans)
    at, end = next(spans, (0, 0))
    for chunk in plan.units.chunks():
        done = 0
        while done < len(chunk):
            if at == end:
                at, end = next(spans)
            many = min(end - at, len(chunk) - done)
            yield at, chunk[done : done + many].tobytes()
            at, done = at + many, done + many
