"""What is left when every record has looked for its unit: units that no record vouches for, records without a unit.

The same questions as recovery asks (queue_settle.py), without deciding what becomes of them.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.format.queue_unit import PRE_BLANK, PRE_BLANK_SIZE, UNIT_SIZE
from engine.inspect.check.log import queue_place
from engine.inspect.check.queue_compare import QueueAccount, point_at_records, repeats_adjacent
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.queue_rows import QueueRows, is_real

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.check.log import LogPart
    from engine.inspect.finding import Findings
    from engine.inspect.store.losses import Losses
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue


@dataclass(frozen=True, slots=True)
class LogView:
    """What the log is, for judging units (physical offsets).

    `seen`: what was compared. `lost`: ranges without sound records that the log continues after. `losses`: how many
    messages were lost where. `live_until`: with a live writer, where dispatch had come to at the start; nothing after
    it is judged.
    """

    log_min: int
    seen: Intervals
    lost: Intervals
    losses: Losses
    record_size: Callable[[int], int]
    live_until: int | None
    deadline: float | None


class QueueJudge:
    """Judges all queues of a store. `topics`: those that are configured, None when nobody knows.

    Attributes:
        units: those that are a message's.
    """

    def __init__(
        self, disk: Disk, files: StoreFiles, findings: Findings, view: LogView, topics: Collection[str] | None = None
    ) -> None:
        self._topics = topics
        self._newer = files.newer
        self._begins: dict[TopicQueue, int] = {}
        self._findings = findings
        self._view = view
        self._accounts: dict[TopicQueue, QueueAccount] = {
            q.queue: QueueAccount(QueueRows(disk, q) if q.files else None) for q in files.queues
        }
        self._elsewhere: set[int] = set()
        self.units = 0
        self.in_time = True

    def judge(self, parts: Iterable[LogPart]) -> None:
        """Everything that the parts of the log have left open."""
        parts = list(parts)
        for part in parts:
            for number, spans in part.right:
                right = self._accounts.setdefault(part.queues[number], QueueAccount(None)).right
                for start, end in spans:
                    right.add(start, end)
        for queue, account in self._accounts.items():
            self.units += account.right.total()
            if account.rows is not None:
                self._rows(queue, account)
        for part in parts:
            self._pending(part)

    def _rows(self, queue: TopicQueue, account: QueueAccount) -> None:
        rows = account.rows
        assert rows is not None
        self._gaps(queue, rows)
        end = rows.extent
        if self._view.live_until is not None:
            end -= 1  # it may be half written
        for gap_start, gap_end in list(account.right.missing(rows.first, end)):
            for at, units in rows.chunks(gap_start, gap_end):
                if self._late():
                    return
                self._judge(queue, account, at, units, (gap_start, gap_end))

    def _gaps(self, queue: TopicQueue, rows: QueueRows) -> None:
        """Units whose files are missing."""
        for one, two in pairwise(rows.files):
            start, end = (one.offset + one.size) // UNIT_SIZE, two.offset // UNIT_SIZE
            if start < end:
                detail = f"queue offsets {start} to {end - 1}"
                self._findings.add("queue-gap", str(queue), queue_place(queue, start), detail)

    def _judge(
        self,
        queue: TopicQueue,
        account: QueueAccount,
        first: int,
        units: NDArray[np.void],
        open_range: tuple[int, int],
    ) -> None:
        """Units from queue offset `first` on that are not accounted for; `open_range`: all of them in a row."""
        import numpy as np

        view = self._view
        offsets = np.arange(first, first + len(units), dtype=np.int64)
        real = is_real(units)
        front = offsets < account.right.start if account.right else np.ones(len(units), dtype=np.bool_)
        filling = (units["physical_offset"] == PRE_BLANK.physical_offset) & (units["size"] == PRE_BLANK_SIZE)
        filling &= units["tags_code"] == PRE_BLANK.tags_code
        if account.rows is None or not account.rows.may_lack_units:  # else its record says that it has no unit
            filling &= front
        self._note("unit-invalid", queue, offsets, units, ~real & ~filling)
        physical = units["physical_offset"].astype(np.int64)
        left = real & ~(front & (physical < view.log_min))
        repeated = left & repeats_adjacent(account, units, *open_range)
        surplus = repeated & (offsets >= self._filled(account, open_range))
        lost = left & ~repeated & view.lost.mask(physical)
        left &= ~repeated & ~lost & (view.seen.mask(physical) | (physical < view.log_min))
        elsewhere = point_at_records(units, left, view.record_size)
        for at in np.flatnonzero(elsewhere).tolist():
            if view.losses.is_inert(int(physical[at])):
                elsewhere[at] = left[at] = False
                lost[at] = True
        self._elsewhere.update(physical[elsewhere].tolist())
        self._note("unit-repeated", queue, offsets, units, repeated & ~surplus)
        self._note("unit-surplus", queue, offsets, units, surplus)
        self._note("unit-lost", queue, offsets, units, lost)
        self._note("unit-foreign", queue, offsets, units, elsewhere)
        self._note("unit-orphaned", queue, offsets, units, left & ~elsewhere)

    def _filled(self, account: QueueAccount, open_range: tuple[int, int]) -> int:
        """Up to which queue offset units of a range may repeat an adjacent one: after a queue's last message only so
        many as may have been lost there, as recovery says (queue_leftover.py).
        """
        start, end = open_range
        rows = account.rows
        assert rows is not None
        if end < rows.extent or start - 1 not in account.right or self._view.live_until is not None:
            return end
        last = int(rows.read(start - 1, start)[0]["physical_offset"])
        return start + self._view.losses.most(last, end - start)

    def _note(
        self,
        code: str,
        queue: TopicQueue,
        offsets: NDArray[np.int64],
        units: NDArray[np.void],
        which: NDArray[np.bool_],
    ) -> None:
        import numpy as np

        at = np.flatnonzero(which)
        if len(at):
            named = ", ".join(f"#{offsets[i]}: {int(units['physical_offset'][i])}" for i in at[:3])
            self._findings.add(code, str(queue), queue_place(queue, int(offsets[at[0]])), named, len(at))

    def _pending(self, part: LogPart) -> None:
        """Records without a unit, unless one at another place points at them (that one is noted)."""
        assert part.pending is not None
        until = self._view.live_until
        for row in part.pending:
            physical = int(row["physical_offset"])
            if physical in self._elsewhere or (until is not None and physical >= until):
                continue
            queue, offset = part.queues[int(row["queue"])], int(row["queue_offset"])
            if self._newer.hides(queue.topic):
                continue
            detail = f"#{offset}: the record at {physical}"
            code = "unit-deleted" if self._was_deleted(queue, offset, physical) else "unit-missing"
            self._findings.add(code, str(queue), queue_place(queue, offset), detail)
        if part.more_pending and until is None and not self._newer.some_queues:
            self._findings.add("unit-missing", "consumequeue", "consumequeue", count=part.more_pending)

    def _was_deleted(self, queue: TopicQueue, offset: int, physical: int) -> bool:
        """Whether the record belongs to a life of its topic that is over.

        Nobody has configured the topic, and it has no queue; or the queue was begun anew after the record: its first
        unit lies after it, and yet has a queue offset that is no larger.
        """
        account = self._accounts.get(queue)
        if account is None or account.rows is None:
            return (
                self._topics is not None and queue.topic not in self._topics and not names.is_system_topic(queue.topic)
            )
        if not account.right or offset < account.right.start:
            return False
        if queue not in self._begins:
            first = account.rows.read(account.right.start, account.right.start + 1)
            self._begins[queue] = int(first["physical_offset"][0])
        return physical < self._begins[queue]

    def _late(self) -> bool:
        late = self._view.deadline is not None and time.monotonic() > self._view.deadline
        self.in_time &= not late
        return late


def dispatched(disk: Disk, files: StoreFiles) -> int:
    """Physical offset of the newest message that any queue holds at this moment; 0 without one."""
    newest = 0
    for queue in files.queues:
        if queue.files:
            rows = QueueRows(disk, queue)
            last = rows.read(max(rows.first, rows.extent - 2), rows.extent)
            real = last[is_real(last)]
            if len(real):
                newest = max(newest, int(real["physical_offset"].max()))
    return newest
