"""One batch of records on its way to queues and index: what is left to be written."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.derive import Keys, Units


class BatchToWrite:
    """See the module.

    Args:
        end: physical offset after its last record.
        timestamp: store time of that (ms).

    Attributes:
        keys: for the index; None: none is left.
        groups: (queue number, which rows of `units`) for each queue that is left, rows in log order.
    """

    __slots__ = ("end", "groups", "keys", "timestamp", "units")

    def __init__(self, units: Units, keys: Keys, end: int, timestamp: int) -> None:
        self.units = units
        self.keys: Keys | None = keys if len(keys) else None
        self.end = end
        self.timestamp = timestamp
        self.groups: deque[tuple[int, NDArray[np.intp] | slice]] = deque(_groups(units))


def _groups(units: Units) -> list[tuple[int, NDArray[np.intp] | slice]]:
    count = len(units)
    if count == 0:
        return []
    first = int(units.queue[0])
    if count == 1 or (units.queue == first).all():
        return [(first, slice(None))]
    import numpy as np

    order = np.argsort(units.queue, kind="stable")
    sorted_queues = units.queue[order]
    cuts = np.flatnonzero(np.diff(sorted_queues)) + 1
    return [(int(units.queue[rows[0]]), rows) for rows in np.split(order, cuts)]
