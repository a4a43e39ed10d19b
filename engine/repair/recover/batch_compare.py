"""Batch queues against the log, as it is read: how many units of each are right, one after the other from its first.

A batch queue is the row of its records' units in log order, behind those whose records have expired: where a unit lies
says nothing. So a queue is right as long as the units that come from the log are those that come next in its files.
From the first that is not, all that come are kept, for `BatchSettler` to decide (batch_settle.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.batch_unit import BATCH_UNIT_SIZE, batch_unit_dtype, valid_units
from engine.inspect.store.spool import Spool
from engine.log.batch_rows import as_batch_units, batch_row_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.log.derive import QueueNumbers, TopicQueue
    from engine.repair.recover.batch_disk import HeldBatches, HeldQueue

CHUNK = 1 << 16
"""Units that are compared at once: 3 MB."""
IN_MEMORY = 1 << 20
"""Bytes of a queue's units that stay in memory."""
NAMED = 20
"""Records of one kind that are named one by one."""


@dataclass(slots=True)
class BatchAccount:
    """What is known of one queue.

    `held`: its files. `start`: number of the unit that the log's first record of it has on disk, or gets; `matched`:
    how many from there on are right; `pending`: the units of all other records, in log order; `end`: queue offset after
    the last record; `ordered`: whether their queue offsets ascend.
    """

    queue: TopicQueue
    held: HeldQueue
    start: int
    pending: Spool
    matched: int = 0
    end: int = 0
    ordered: bool = True

    @property
    def units(self) -> int:
        """How many the log has."""
        return self.matched + len(self.pending)


class BatchComparer:
    """Takes the rows (batch_row_dtype) of all batch queues in log order.

    Args:
        disk: how files are reached.
        held: the queues' files.
        numbers: how rows name their queue.
        begin: physical offset of the log's first byte.

    Attributes:
        accounts: by queue, those with a directory and those with a record.
        headers: records whose header says another queue offset than their properties: (queue, physical offset, header).
        findings: what the operator should know.
    """

    def __init__(self, disk: Disk, held: HeldBatches, numbers: QueueNumbers, begin: int) -> None:
        self._disk = disk
        self._held = held
        self._numbers = numbers
        self._begin = begin
        self._chunk: list[NDArray[np.void]] = []
        self._count = 0
        self.accounts: dict[TopicQueue, BatchAccount] = {}
        self.headers: list[tuple[TopicQueue, int, int]] = []
        self.findings: list[str] = []
        self._invalid = 0
        for queue in held.queues:
            self.accounts[queue.queue] = BatchAccount(queue.queue, queue, self._start(queue), _spool())

    def feed(self, rows: NDArray[np.void] | None) -> None:
        """Compare the rows of a batch of the log (perhaps later, together with others)."""
        if rows is None or not len(rows):
            return
        self._chunk.append(rows)
        self._count += len(rows)
        if self._count >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Compare what was fed so far."""
        import numpy as np

        if not self._chunk:
            return
        rows = np.concatenate(self._chunk, dtype=batch_row_dtype())  # else numpy turns bytes round
        self._chunk, self._count = [], 0
        valid = rows["batch_size"] > 0
        for row in rows[~valid]:
            self._invalid += 1
            if self._invalid <= NAMED:
                self.findings.append(
                    f"{self._numbers[int(row['queue'])]}: the properties of the record at "
                    f"{int(row['physical_offset'])} say no queue offsets: it gets no unit"
                )
        rows = rows[valid]
        order = np.argsort(rows["queue"], kind="stable")
        rows = rows[order]
        for group in np.split(rows, np.flatnonzero(np.diff(rows["queue"])) + 1):
            if len(group):
                self._compare(self._numbers[int(group["queue"][0])], group)

    def _compare(self, queue: TopicQueue, rows: NDArray[np.void]) -> None:
        import numpy as np

        account = self.accounts.get(queue)
        if account is None:
            account = self.accounts[queue] = self._new(queue)
        for row in rows[rows["queue_offset"] != rows["base_offset"]]:
            self.headers.append((queue, int(row["physical_offset"]), int(row["queue_offset"])))
        base = rows["base_offset"].astype(np.int64)
        ends = base + rows["batch_size"]
        account.ordered = account.ordered and bool((base >= np.concatenate([[account.end], ends[:-1]])).all())
        account.end = int(ends[-1])
        units = as_batch_units(rows)
        same = 0
        if not len(account.pending):
            at = account.start + account.matched
            there = account.held.read(self._disk, at, at + len(units))
            same = _same_bytes(there, units)
            account.matched += same
        account.pending.add(units[same:])

    def _new(self, queue: TopicQueue) -> BatchAccount:
        """Of a queue without a directory."""
        return BatchAccount(queue, self._held.absent(queue), 0, _spool())

    def _start(self, queue: HeldQueue) -> int:
        """Number of the first unit whose record is in the log; of a queue without one, the first after the others."""
        import numpy as np

        at = queue.first
        for file in queue.files:
            end = file.first + min(file.size // BATCH_UNIT_SIZE, queue.file_units)
            for low in range(file.first, end, CHUNK):
                units = queue.read(self._disk, low, min(low + CHUNK, end))
                expired = valid_units(units) & (units["physical_offset"] < self._begin)
                if not expired.all():
                    return low + int(np.flatnonzero(~expired)[0])
                at = low + len(units)
        return at


def _spool() -> Spool:
    return Spool(batch_unit_dtype(), IN_MEMORY)


def _same_bytes(some: NDArray[np.void], others: NDArray[np.void]) -> int:
    """How many units from the first on have the same bytes."""
    import numpy as np

    def table(units: NDArray[np.void]) -> NDArray[np.uint8]:
        return np.ascontiguousarray(units).view(np.uint8).reshape(len(units), BATCH_UNIT_SIZE)

    differ = (table(some) != table(others)).any(axis=1)
    at = np.flatnonzero(differ)
    return int(at[0]) if len(at) else len(some)
