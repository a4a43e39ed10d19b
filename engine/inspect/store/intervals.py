"""Sets of integers as few intervals: which units of a queue are accounted for, which ranges of the log are lost."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_FEW = 16
"""So many times fewer values than intervals are looked for one by one: an array of all intervals costs more."""


class Intervals:
    """A set of integers as sorted, disjoint, non-touching half-open intervals."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __contains__(self, value: int) -> bool:
        at = bisect.bisect_right(self._starts, value) - 1
        return at >= 0 and value < self._ends[at]

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def end(self) -> int:
        """After the largest member, 0 for an empty set."""
        return self._ends[-1] if self._ends else 0

    @property
    def start(self) -> int:
        """The smallest member, 0 for an empty set."""
        return self._starts[0] if self._starts else 0

    def total(self) -> int:
        """How many integers are in the set."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add [start, end)."""
        if start >= end:
            return
        low = bisect.bisect_left(self._ends, start)
        high = bisect.bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def add_many(self, values: NDArray[np.int64]) -> None:
        """Add every value of an array."""
        import numpy as np

        if not len(values):
            return
        steps = np.diff(values)
        if len(steps) and int(steps.min()) < 1:  # queues are mostly in order already
            values = np.unique(values)
            steps = np.diff(values)
        breaks = np.flatnonzero(steps != 1)
        starts, ends = values[[0, *(breaks + 1)]].tolist(), values[[*breaks, -1]].tolist()
        for start, end in zip(starts, ends, strict=True):
            self.add(start, end + 1)

    def overlap(self, start: int, end: int) -> int:
        """How many members lie in [start, end)."""
        low, high = bisect.bisect_right(self._ends, start), bisect.bisect_left(self._starts, end)
        inside = zip(self._starts[low:high], self._ends[low:high], strict=True)
        return sum(max(0, min(end, e) - max(start, s)) for s, e in inside)

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The intervals of [start, end) that are not in the set."""
        at = start
        for s, e in self:
            if e <= at:
                continue
            if s >= end:
                break
            if s > at:
                yield at, s
            at = e
        if at < end:
            yield at, end

    def mask(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the values are members: bool[len(values)]."""
        import numpy as np

        if not self._starts:
            return np.zeros(len(values), dtype=np.bool_)
        if len(values) * _FEW < len(self._starts):
            return np.fromiter((value in self for value in values.tolist()), np.bool_, len(values))
        at = np.searchsorted(np.array(self._starts, dtype=np.int64), values, side="right") - 1
        inside: NDArray[np.bool_] = (at >= 0) & (values < np.array(self._ends, dtype=np.int64)[at])
        return inside


def union(*sets: Intervals) -> Intervals:
    """The members of all sets."""
    out = Intervals()
    for one in sets:
        for start, end in one:
            out.add(start, end)
    return out
