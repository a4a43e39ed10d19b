"""All queues of a store while a start of RocketMQ 5 recovers and dispatches to them; nothing is written.

Source: ConsumeQueueStore (#load, #recover, #getMaxPhyOffsetInConsumeQueue, #truncateDirty, #recoverOffsetTable),
CommitLogDispatcherBuildConsumeQueue (5.3.3, 5.5.0).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from engine.config import BrokerRole
from engine.errors import FormatError, StorageError
from engine.format import checkpoint, names, properties
from engine.format.inner_batch import INNER_BASE, INNER_NUM
from engine.inspect.check.config import read_config
from engine.inspect.finding import Findings
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queues
from engine.inspect.store.config_shapes import TOPICS
from engine.inspect.store.newer import is_true
from engine.inspect.store.survey import QueueFiles
from engine.log.derive import Deriver, DeriveRules, QueueNumbers, TopicQueue
from engine.repair.recover.log_end import Mode
from engine.repair.start.queue_start import StartedBatchQueue, StartedQueue
from engine.repair.start.rules import NormalDispatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.batch import RecordBatch
    from engine.log.derive import Units
    from engine.log.kernels.derive import DerivedPart
    from engine.repair.start.rules import StartRules

_BATCH = "BatchCQ"
_TYPE = "queue.type"
"""The attribute of a topic that says which queues it has. Source: TopicAttributes."""


class StartedQueues:
    """The queues, by topic and id.

    Attributes:
        plain: consume queues of 20-byte units; those that dispatch makes come to them.
        batch: batch consume queues.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        rules: StartRules,
        batch: dict[TopicQueue, StartedBatchQueue],
        batch_topics: frozenset[str],
    ) -> None:
        self._disk = disk
        self._files = files
        self._rules = rules
        self._size = files.config.mapped_file_size_consume_queue
        self.plain = {one.queue: StartedQueue(disk, one, self._size) for one in files.queues}
        self.batch = batch
        self._batch_topics = batch_topics
        self._numbers = QueueNumbers()
        self._deriver = Deriver(DeriveRules.of(files.config), self._numbers)
        self._after = -1
        self._until: int | None = None
        self._dispatches = True

    @property
    def known(self) -> int:
        """The queues' greatest physical offset; −1 without a unit."""
        ends = [one.known for one in self.plain.values()] + [one.known for one in self.batch.values()]
        return max(ends, default=-1)

    def begin(self, mode: Mode, known: int) -> None:
        """Before records are taken: which of them are dispatched. `known`: as it is then."""
        if mode is Mode.NORMAL:
            self._dispatches = self._rules.normal_dispatch is not NormalDispatch.NOTHING
            self._after = known
        elif self._rules.confirm_limits and _waits_for_replicas(self._files):
            self._until = _confirmed(self._disk, self._files)

    def prepare(self, batch: RecordBatch) -> list[DerivedPart] | None:
        """The half of `take` that threads may do."""
        return self._deriver.prepare(batch) if self._dispatches else None

    def take(self, batch: RecordBatch, parts: list[DerivedPart] | None) -> None:
        """Dispatch records that recovery has read, in log order. `parts`: of `prepare`, None: not prepared."""
        import numpy as np

        if not self._dispatches:
            return
        prepared = self._deriver.prepare(batch) if parts is None else parts
        units, _ = self._deriver.finish(batch, prepared)
        physical = _as_records_say(batch, units.physical_offset)
        wanted = physical > self._after
        if self._until is not None:
            wanted &= physical + units.size <= self._until
        for number in np.unique(units.queue[wanted]).tolist():
            mine = np.flatnonzero(wanted & (units.queue == number))
            queue = self._numbers[number]
            if queue.topic in self._batch_topics:
                self._take_batches(batch, units, mine, queue)
            else:
                self._plain(queue).dispatch(physical[mine], units.size[mine], units.queue_offset[mine])

    def cut(self, log_end: int) -> None:
        """Remove units at or after the log end (physical)."""
        for plain in self.plain.values():
            plain.cut(log_end)
        for batch in self.batch.values():
            batch.cut(log_end)

    def settle(self, log_min: int, *, stops: bool) -> str | None:
        """Correct the least offsets by the log's first byte (physical). Why the start fails by it; None: it doesn't."""
        for key, queue in self.plain.items():
            if stops and queue.has_empty_file:
                return (
                    f"consumequeue/{key}: its last file holds no unit, and one before it does: the start fails as it "
                    "corrects the queue's least offset"
                )
            queue.correct_minimum(log_min)
        return None

    def _plain(self, queue: TopicQueue) -> StartedQueue:
        if queue not in self.plain:
            self.plain[queue] = StartedQueue(self._disk, QueueFiles(queue, "", ()), self._size)
        return self.plain[queue]

    def _take_batches(self, batch: RecordBatch, units: Units, mine: NDArray[np.intp], queue: TopicQueue) -> None:
        import numpy as np

        if queue not in self.batch:
            self.batch[queue] = StartedBatchQueue(queue, [])
        for number in mine.tolist():
            record = int(np.searchsorted(batch.offsets(), units.physical_offset[number]))
            pairs = properties.parse(batch.properties(record).decode("utf-8", "replace"))
            if INNER_NUM in pairs and INNER_BASE in pairs:  # else it has no place in the queue, and is passed over
                self.batch[queue].dispatch(int(units.physical_offset[number]))


def started_queues(disk: Disk, files: StoreFiles, rules: StartRules) -> StartedQueues:
    """The queues as they are recovered from their files. Raises StorageError."""
    log_min = files.log[0].offset if files.log else 0
    listed, _ = batch_queues(disk, files)
    batch = {one.queue: StartedBatchQueue.of(BatchQueueRows(disk, one, log_min), one) for one in listed}
    types = queue_types(disk, files)
    return StartedQueues(disk, files, rules, batch, frozenset(topic for topic, kind in types.items() if kind == _BATCH))


def queue_types(disk: Disk, files: StoreFiles) -> dict[str, str]:
    """The queue.type of the topics of topics.json, or its .bak, that have one. Raises StorageError."""
    table = read_config(disk, files.config, files.root, Findings()).table(TOPICS)
    types: dict[str, str] = {}
    for topic, entry in table.items():
        attributes = entry.get("attributes") if isinstance(entry, dict) else None
        kind = attributes.get(_TYPE) if isinstance(attributes, dict) else None
        if isinstance(kind, str):
            types[topic] = kind
    return types


def wrong_type(disk: Disk, files: StoreFiles) -> str | None:
    """Why load() fails by a topic whose queues are of another type than topics.json says; None: there is none."""
    types = queue_types(disk, files)
    for queue in files.queues:
        if types.get(queue.queue.topic) == _BATCH:
            return (
                f"{names.CONSUMEQUEUE}/{queue.queue.topic}: topics.json says that this topic's queues are batch "
                "consume queues (queue.type=BatchCQ)"
            )
    for topic in sorted(files.newer.batch_topics):
        if types.get(topic) != _BATCH:
            return (
                f"{names.BATCHCONSUMEQUEUE}/{topic}: topics.json does not say that this topic's queues are batch "
                "consume queues (queue.type=BatchCQ)"
            )
    return None


def _as_records_say(batch: RecordBatch, physical: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of records (physical offsets), each as its record itself says it: units are made of that."""
    moved = {at: stored for at, stored, _ in batch.moved()}
    if not moved:
        return physical
    changed = physical.copy()
    for at, stored in moved.items():
        changed[physical == at] = stored
    return changed


def _waits_for_replicas(files: StoreFiles) -> bool:
    """Whether the log's end is what replicas have confirmed. Source: CommitLog#getConfirmOffset (5.3.3)."""
    config = files.config
    slave = config.broker_role is BrokerRole.SLAVE
    return is_true(config, "enableControllerMode") and (slave or is_true(config, "allAckInSyncStateSet"))


def _confirmed(disk: Disk, files: StoreFiles) -> int:
    with contextlib.suppress(StorageError, FormatError):
        data = disk.read_file(os.path.join(files.root, names.CHECKPOINT), checkpoint.REPLICA_SIZE)
        offsets = checkpoint.decode_replica_offsets(data)
        return 0 if offsets is None else offsets.confirm_phy_offset
    return 0
