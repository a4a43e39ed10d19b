"""The units that the plan of a recovery writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.queue_unit import unit_dtype
from engine.inspect.store.queue_rows import as_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.check.fresh_rows import FreshRows
    from engine.inspect.store.spool import Spool


class PlannedRows:
    """The units that a plan writes: settled ones (row_dtype()), and fresh ones beside them."""

    def __init__(self, settled: Spool, fresh: FreshRows | None) -> None:
        self.settled = settled
        self._fresh = fresh

    def runs(self) -> Iterator[NDArray[np.void]]:
        """The settled units in the parts that are written at once: of one queue, one queue offset after the other."""
        import numpy as np

        for chunk in self.settled.chunks():
            ordered = chunk[np.argsort(chunk["queue"], kind="stable")]
            bounds = np.flatnonzero((np.diff(ordered["queue"]) != 0) | (np.diff(ordered["queue_offset"]) != 1)) + 1
            yield from (run for run in np.split(ordered, bounds) if len(run))

    def missing(self) -> int:
        """Queue offsets between these units that have none, of all queues."""
        ends: dict[int, int] = {}
        missing = 0
        for chunk in self.chunks():
            for number, offset in zip(chunk["queue"].tolist(), chunk["queue_offset"].tolist(), strict=True):
                end = ends.get(number, offset)
                missing += max(0, offset - end)
                ends[number] = max(end, offset + 1)
        return missing

    def fresh_of(self, number: int) -> Iterator[tuple[int, memoryview]]:
        """(first queue offset, consume queue units): the fresh units of a queue, in their order."""
        return self._fresh.rows_of(number) if self._fresh is not None else iter(())

    def chunks(self) -> Iterator[NDArray[np.void]]:
        """All units, as row_dtype(); those of one queue in log order."""
        import numpy as np

        yield from self.settled.chunks()
        for queue in self._fresh.queues() if self._fresh is not None else ():
            for start, data in self.fresh_of(queue.number):
                yield as_rows(queue.number, start, np.frombuffer(data, dtype=unit_dtype()))
