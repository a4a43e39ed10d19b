"""Batch queues of RocketMQ 5, built aside: settled as a recovery settles them, and written as whole directories."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.format import names
from engine.inspect.store.intervals import union
from engine.inspect.store.known import known_places
from engine.inspect.store.losses import Losses
from engine.log.derive import TopicQueue
from engine.repair.recover.batch_apply import BatchQueueApplier
from engine.repair.recover.batch_compare import BatchComparer
from engine.repair.recover.batch_disk import batches_held
from engine.repair.recover.batch_settle import BatchLog, settle_batches
from engine.repair.reindex.build import BuiltQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import Keys, QueueNumbers, Units
    from engine.log.scan import Scanner
    from engine.log.source import LogSource
    from engine.repair.recover.batch_plan import BatchQueuePlan


class BatchQueueBuilder:
    """Builds batch queues below `into`; units of messages before the physical offset `begin` stay where sound.

    `topic`: only its queues; None: all. A queue of which the log has no message is not built, and none unless `wanted`.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        into: str,
        begin: int,
        numbers: QueueNumbers,
        *,
        topic: str | None,
        wanted: bool,
    ) -> None:
        self._disk = disk
        self._files = files
        self._into = into
        self._begin = begin
        self._numbers = numbers
        self._topic = topic
        self._held = batches_held(disk, files) if wanted and files.newer.batch_topics else None
        self._comparer = None if self._held is None else BatchComparer(disk, self._held, numbers, begin)
        self._plans: tuple[BatchQueuePlan, ...] = ()
        self._units: dict[TopicQueue, int] = {}
        self.problems: list[str] = []

    def others(self, derived: tuple[Units, Keys, NDArray[np.void] | None]) -> tuple[Units, Keys]:
        """Take the rows of what a batch of the log derives to; what is not of batch queues. In log order."""
        units, keys, rows = derived
        if self._comparer is not None and rows is not None:
            self._comparer.feed(self._wanted(rows))
        return units, keys

    def _wanted(self, rows: NDArray[np.void]) -> NDArray[np.void]:
        import numpy as np

        rows = rows[rows["physical_offset"] >= self._begin]
        if self._topic is not None:
            wanted = [self._numbers[number].topic == self._topic for number in rows["queue"].tolist()]
            rows = rows[np.array(wanted, dtype=np.bool_)]
        return rows

    def close(self, log: LogSource, scanner: Scanner, end: int) -> None:
        """Settle the queues, and make those that differ durable. `end`: the log's (physical offset).

        Raises:
            DiskFull, StorageError.
        """
        comparer = self._comparer
        if comparer is None:
            return
        comparer.flush()
        comparer.accounts = {queue: one for queue, one in comparer.accounts.items() if one.units}
        self._units = {queue: one.units for queue, one in comparer.accounts.items()}
        known = known_places(self._disk, self._files.root)
        losses = Losses(log, end, union(known.accepted, known.bridged), self._files.config.max_message_size)
        after = BatchLog(self._begin, end, known.accepted, scanner, losses)
        settled = settle_batches(self._disk, comparer, after)
        self._plans = settled.plans
        self.problems += settled.findings
        BatchQueueApplier(self._disk, [self._aside(plan) for plan in settled.plans if plan.changed]).run()

    def built(self) -> tuple[BuiltQueue, ...]:
        """What was built, by topic and queue id."""
        return tuple(
            BuiltQueue(one.queue, one.min_offset, one.max_offset, -1, self._units.get(one.queue, 0), one.old_extent)
            for one in self._plans
        )

    def changed(self) -> frozenset[TopicQueue]:
        """The queues whose files differ from the store's."""
        return frozenset(plan.queue for plan in self._plans if plan.changed)

    def kept(self) -> tuple[TopicQueue, ...]:
        """The queues that stay as they are: the log has no message of theirs."""
        done = {plan.queue for plan in self._plans}
        held = () if self._held is None else self._held.queues
        wanted = (one for one in held if self._topic in (None, one.queue.topic))
        return tuple(one.queue for one in wanted if one.files and one.queue not in done)

    def _aside(self, plan: BatchQueuePlan) -> BatchQueuePlan:
        """The same plan of a copy of the queue's files that stay."""
        base = os.path.join(self._into, names.BATCHCONSUMEQUEUE)
        directory = names.queue_directory(base, *plan.queue)
        self._disk.mkdirs(directory)
        copies = {}
        for file in plan.held.files:
            if file not in plan.removed:
                target = os.path.join(directory, os.path.basename(file.path))
                self._disk.copy_file(file.path, target)
                copies[file.path] = replace(file, path=target)
        held = replace(plan.held, directory=directory, files=tuple(copies.values()))
        return replace(plan, held=held, removed=(), resized=tuple(copies[file.path] for file in plan.resized))
