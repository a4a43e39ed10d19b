"""What RocketMQ 5's timer log makes of the timer wheel: the units that wait, by due time, and which are reached.

Theory: a broker goes through the due times one after the other, takes the last unit of each from the wheel, and follows
the chain of previous units; before that, when it starts, it sets the wheel right by the timer log. So the last unit of
a due time in the log is where its chain begins, and each unit must name the one before it. Who is not named is not
delivered, nor is what lies before him. Source: TimerMessageStore#dequeue, #recoverAndRevise.

Bounded: units are counted by due time in one pass over the log, and then kept for as many due times at once as make
`AT_ONCE` units (60 bytes each), in a pass for each such part.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import timer_wheel
from engine.format.timer_log import NO_UNIT, UNIT_SIZE, due_times, unit_dtype
from engine.inspect.store.timer_log import TimerBatch, timer_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.inspect.store.timer_log import TimerFiles, TimerRow

AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Units of some due times, all that there are: by due time, those of one in the order of the timer log.

    Attributes:
        due: in units of the precision, int64[n].
        offsets: where each lies in the timer log (bytes), int64[n].
        units: unit_dtype()[n].
    """

    due: NDArray[np.int64]
    offsets: NDArray[np.int64]
    units: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.due)

    def firsts(self) -> NDArray[np.bool_]:
        """Which is the first of its due time: bool[n]."""
        import numpy as np

        first = np.ones(len(self), np.bool_)
        first[1:] = self.due[1:] != self.due[:-1]
        return first

    def begins(self) -> NDArray[np.bool_]:
        """Which unit names another one than that before it of its due time: where the chain begins, or is torn.

        That of a first unit which names none is not torn. bool[n].
        """
        import numpy as np

        before = np.full(len(self), NO_UNIT, np.int64)
        before[1:] = self.offsets[:-1]
        before[self.firsts()] = NO_UNIT
        torn: NDArray[np.bool_] = self.units["previous"].astype(np.int64) != before
        return torn

    def reached(self) -> NDArray[np.bool_]:
        """Which units a broker comes to: those from the last torn place of their due time on. bool[n]."""
        import numpy as np

        if not len(self):
            return np.zeros(0, np.bool_)
        group = np.cumsum(self.firsts()) - 1
        last_torn = np.full(int(group[-1]) + 1, -1, np.int64)
        torn = np.flatnonzero(self.begins())
        np.maximum.at(last_torn, group[torn], torn)
        reached: NDArray[np.bool_] = np.arange(len(self)) >= last_torn[group]
        return reached


class Counted:
    """The timer log, read once: how many units each due time has, and what lies after the last thing in it.

    Attributes:
        rows: what is wrong in the log, in its order (the first `most`).
        end: offset after the last unit or blank (bytes).
        last: place in the log (bytes) and fields of the last unit; None: there is none.
        taken: the highest physical offset that a unit names, −1 without one.
        units: how many there are.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        timer: TimerFiles,
        first_due: int,
        precision: int,
        *,
        most: int = 1000,
        live: bool | None = None,
    ) -> None:
        """`first_due`: units of earlier due times do not wait; `live`: see `timer_batches`. Raises StorageError."""
        import numpy as np

        self._disk, self._files, self._timer = disk, files, timer
        self._first_due, self.precision = first_due, precision
        self.rows: list[TimerRow] = []
        self.end = timer.files[0].offset if timer.files else 0
        self.last: tuple[int, NDArray[np.void]] | None = None
        self.taken = -1
        self.units = 0
        self._counts = np.zeros(timer_wheel.SLOTS, np.int64)
        self._due = np.full(timer_wheel.SLOTS, -1, np.int64)
        self._last = np.full(timer_wheel.SLOTS, NO_UNIT, np.int64)
        for item in timer_batches(disk, files, timer, live=live):
            if isinstance(item, TimerBatch):
                self._add(item)
            elif item.unit is None and item.reason is not None and len(self.rows) < most:
                self.rows.append(item)
            if not isinstance(item, TimerBatch) and item.reason is None:
                self.end = item.offset + item.length

    def _add(self, batch: TimerBatch) -> None:
        import numpy as np

        self.units += len(batch.units)
        self.end = batch.offset + len(batch.units) * UNIT_SIZE
        self.last = (self.end - UNIT_SIZE, batch.units[-1].copy())
        self.taken = max(self.taken, int(batch.units["physical_offset"].max()))
        due = due_times(batch.units) // self.precision
        waiting = np.flatnonzero(due >= self._first_due)
        due = due[waiting]
        slots = due % timer_wheel.SLOTS
        self._due[slots] = due  # of equal ones the last counts, as in the wheel
        self._last[slots] = batch.offset + waiting * UNIT_SIZE
        np.add.at(self._counts, slots, 1)

    def wheel(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By slot: the due time (in units of the precision, −1: none waits), and the place of its last unit (bytes)."""
        return self._due, self._last

    def count_of(self, dues: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many units are in the slot of each due time (in units of the precision): int64[n]."""
        counts: NDArray[np.int64] = self._counts[dues % timer_wheel.SLOTS]
        return counts

    def waiting(self, at_once: int = AT_ONCE) -> Iterator[Waiting]:
        """The units that wait, in parts, by due time. Where two due times have one slot, the last one has it."""
        import numpy as np

        used = np.flatnonzero(self._counts)
        order = used[np.argsort(self._due[used], kind="stable")]
        if not len(order):
            return
        sums = np.cumsum(self._counts[order])
        bounds = [0]
        while bounds[-1] < len(order):
            before = int(sums[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(sums, before + at_once, side="right"))))
        for low, high in pairwise(bounds):
            yield self._between(int(self._due[order[low]]), int(self._due[order[high - 1]]))

    def _between(self, low: int, high: int) -> Waiting:
        """Units of due times [low, high]."""
        import numpy as np

        dues, offsets, units = [], [], []
        for item in timer_batches(self._disk, self._files, self._timer):
            if not isinstance(item, TimerBatch):
                continue
            due = due_times(item.units) // self.precision
            mine = np.flatnonzero((due >= low) & (due <= high) & (due == self._due[due % timer_wheel.SLOTS]))
            if len(mine):
                dues.append(due[mine])
                offsets.append(item.offset + mine * UNIT_SIZE)
                units.append(item.units[mine])
        due = np.concatenate([np.zeros(0, np.int64), *dues])
        order = np.argsort(due, kind="stable")
        every = np.concatenate([np.zeros(0, unit_dtype()), *units])
        return Waiting(due[order], np.concatenate([np.zeros(0, np.int64), *offsets])[order], every[order])
