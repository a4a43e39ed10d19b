"""How much of the log the units of a batch queue of RocketMQ 5 stand for: as queue_space.py, a unit a record.

A record's messages are counted one by one; its bytes are all of theirs, from whichever of them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.batch_unit import valid_units
from engine.inspect.status.queue_space import QueueSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.store.batch_queue import BatchChunk, BatchQueueRows


class BatchUnits:
    """The units of a batch queue by queue offset."""

    def __init__(self, rows: BatchQueueRows) -> None:
        self._rows = rows

    def read(self, start: int, end: int) -> NDArray[np.void]:
        """Those whose messages have queue offsets of [start, end), the first of them at least. Raises StorageError."""
        import numpy as np

        there: list[NDArray[np.void]] = []
        for chunk in self._rows.chunks(self._rows.at_offset(start)):
            units = chunk.units[valid_units(chunk.units)]
            base = units["base_offset"].astype(np.int64)
            there.append(units[(base < end) & (base + units["batch_size"] > start)])
            if len(units) and int(base[-1]) >= end:
                break
        return np.concatenate(there)


def last_of(rows: BatchQueueRows, log_end: int) -> tuple[int, int]:
    """Physical offset and size of the newest record that ends at `log_end` or before; (−1, 0) without one."""
    import numpy as np

    for number in reversed(range(len(rows.files))):
        newest = (-1, 0)
        for chunk in rows.chunks_of(number):
            inside = valid_units(chunk.units)
            inside &= chunk.units["physical_offset"].astype(np.int64) + chunk.units["size"] <= log_end
            if inside.any():
                unit = chunk.units[np.flatnonzero(inside)[-1]]
                newest = int(unit["physical_offset"]), int(unit["size"])
        if newest[0] >= 0:
            return newest
    return -1, 0


def measure_batches(rows: BatchQueueRows, starts: NDArray[np.int64], cuts: Sequence[int], most: int) -> QueueSpace:
    """Add up the units of a batch queue.

    Args:
        rows: the queue.
        starts: physical offsets at which the ranges begin, ascending; what lies before the first is gone.
        cuts: queue offsets for `after`.
        most: the maximum of units of a queue that is read whole; of a longer one, its files are, one in so many.

    Raises:
        StorageError: the system can't read them.
    """
    import numpy as np

    space = QueueSpace(
        rows.min_offset, rows.max_offset, np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    )
    space.after = dict.fromkeys(cuts, 0)
    every = max(1, -(-(rows.last + 1 - rows.files[0].first) // most)) if rows.files else 1
    space.estimated = every > 1 and len(rows.files) > 1
    for number in range(0, len(rows.files), every):
        share = min(every, len(rows.files) - number)
        for chunk in rows.chunks_of(number):
            _add(space, chunk, starts, share)
    return space


def _add(space: QueueSpace, chunk: BatchChunk, starts: NDArray[np.int64], share: int) -> None:
    import numpy as np

    place = np.searchsorted(starts, chunk.units["physical_offset"].astype(np.int64), side="right") - 1
    kept = valid_units(chunk.units) & (place >= 0)
    units, place = chunk.units[kept], place[kept]
    messages, size = units["batch_size"].astype(np.int64), units["size"].astype(np.int64)
    space.messages += np.bincount(place, messages, len(starts)).astype(np.int64) * share
    space.sizes += np.bincount(place, size, len(starts)).astype(np.int64) * share
    ends = units["base_offset"].astype(np.int64) + messages
    for cut in space.after:
        space.after[cut] += int(size[ends > cut].sum()) * share
