"""One queue while `Settler` settles it, and the small tools for sets and tables of units that it takes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.check.queue_compare import QueueAccount, real_rows
from engine.inspect.store.intervals import Intervals
from engine.repair.recover.queue_plan import Renumbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class QueueAtWork:
    """One queue while it is settled."""

    account: QueueAccount
    known: Intervals  # units that stay, and units that will be written
    restarts: list[tuple[int, int]] = field(default_factory=list)  # where (physical) offsets begin anew, and at which
    elsewhere: set[int] = field(default_factory=set)  # pending records (physical offsets) that other units hold
    written: Intervals = field(default_factory=Intervals)
    lost: Intervals = field(default_factory=Intervals)  # units on disk whose message was in a bridged range
    last: int | None = None  # queue offset of the last unit settled in log order
    last_physical_end: int = -1
    first_place: int = 0  # physical offset of the first record that gets a unit
    renumbered: list[Renumbered] = field(default_factory=list)
    top: tuple[int, int] = (0, -1)  # after the highest unit written, and after its record
    table: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None


def runs(group: NDArray[np.void]) -> Iterator[NDArray[np.void]]:
    """The records of one queue, in log order, cut where queue offsets don't follow one another."""
    import numpy as np

    breaks = np.flatnonzero(np.diff(group["queue_offset"]) != 1) + 1
    return (run for run in np.split(group, breaks) if len(run))


def table_of(account: QueueAccount) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Units that stay: queue offsets, physical offsets, sizes; by physical offset."""
    import numpy as np

    assert account.rows is not None
    parts = [real_rows(account.rows, start, end) for start, end in account.right]
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    offsets = np.concatenate([p[0] for p in parts])
    rows = np.concatenate([p[1] for p in parts])
    order = np.argsort(rows["physical_offset"], kind="stable")
    return offsets[order], rows["physical_offset"][order].astype(np.int64), rows["size"][order].astype(np.int64)
