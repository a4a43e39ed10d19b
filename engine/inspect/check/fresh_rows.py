"""The units of queues that have none on disk: kept as the bytes that will be written, a queue's together.

Most of a lost directory's queues are rebuilt from units whose queue offsets follow one another, and nothing about them
needs settling. They come this way; a queue whose offsets break off goes to `Settler` after all, with every unit that
it had (`pour`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.queue_unit import UNIT_SIZE, unit_dtype
from engine.inspect.store.spool import ByteSpool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.derive import Units

IN_MEMORY = 24 << 20
"""Bytes of units that stay in memory."""
MOST_GROUPS = 1 << 20
"""Groups of units that are remembered: with more, in a store of very many queues, all of it is settled instead."""
AT_ONCE = 1 << 20
"""Bytes that are given back at once, or more."""
LEAST = 1 << 14
"""Units that must come at once first: for fewer, loading the kernel takes longer than settling them."""


@dataclass(frozen=True, slots=True)
class FreshQueue:
    """Units [start, end) of the queue of this number; the first one's record lies at `first_place` (physical), the last
    one's ends at `end_place`.
    """

    number: int
    start: int
    end: int
    first_place: int
    end_place: int


class FreshRows:
    """See the module. Without numba it takes nothing.

    Args:
        least: units that must come at once first, or none is ever taken.
    """

    def __init__(self, least: int = LEAST) -> None:
        import numpy as np

        self._least: int | None = least  # None: it has begun
        self._off = False
        self._rows = ByteSpool(IN_MEMORY)
        self._groups: list[NDArray[np.int64]] = []  # int64[n, 4]: queue, first queue offset, units, place in the spool
        self._state: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        empty: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._columns = (empty, empty, empty)  # following, first place, end place
        self._poured: set[int] = set()
        self._by_queue = True

    def take(self, number_of_queues: int, with_rows: set[int], units: Units) -> Taken:
        """Keep the units of queues that have none on disk.

        Args:
            number_of_queues: how many have a number.
            with_rows: numbers of queues that have units on disk: their units are left.
            units: in log order.
        """
        import numpy as np

        self._off = self._off or (self._least is not None and (len(units) < self._least or not _has_kernel()))
        self._least = None
        given_up: list[int] = []
        if not self._off and sum(map(len, self._groups)) > MOST_GROUPS:
            self._off = True
            given_up = [queue.number for queue in self.queues()]
        if self._off:
            return Taken([], np.ones(len(units), dtype=np.bool_), given_up)
        from engine.inspect.check.fresh_kernel import BROKEN, LEFT, group_units

        self._grow(number_of_queues, with_rows)
        many = len(units)
        out = np.empty(many * UNIT_SIZE, dtype=np.uint8)
        left = np.zeros(many, dtype=np.bool_)
        groups = np.empty((min(many, number_of_queues), 3), dtype=np.int64)
        taken, grouped = group_units(
            units.queue, units.queue_offset, units.physical_offset, units.size, units.tags_code,
            self._state, *self._columns, out, left, groups,
        )  # fmt: skip
        broken = np.flatnonzero(self._state == BROKEN).tolist()
        self._state[broken] = LEFT
        if taken:
            rows = out[: taken * UNIT_SIZE]
            place = self._rows.add(rows if taken == many else rows.copy())
            counts = groups[:grouped, 2]
            places = place + (np.cumsum(counts) - counts) * UNIT_SIZE
            self._groups.append(np.column_stack([groups[:grouped], places]))
            self._by_queue = False
        return Taken(groups[:grouped, 0].tolist(), left if taken < many else None, broken)

    def pour(self, number: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """Give a queue's units away: (first queue offset, unit_dtype()[n]), in their order."""
        import numpy as np

        for start, data in self.rows_of(number):
            yield start, np.frombuffer(data, dtype=unit_dtype())
        self._poured.add(number)

    def queues(self) -> list[FreshQueue]:
        """Every queue that has units here."""
        import numpy as np

        if not self._groups:
            return []
        following, first_place, end_place = self._columns
        groups = np.concatenate(self._groups)
        numbers, at = np.unique(groups[:, 0], return_index=True)
        return [
            FreshQueue(number, start, int(following[number]), int(first_place[number]), int(end_place[number]))
            for number, start in zip(numbers.tolist(), groups[at, 1].tolist(), strict=True)
            if number not in self._poured
        ]

    def rows_of(self, number: int) -> Iterator[tuple[int, memoryview]]:
        """(first queue offset, consume queue units) of a queue, in their order."""
        import numpy as np

        if number in self._poured or not self._groups:
            return
        if not self._by_queue:
            groups = np.concatenate(self._groups)
            self._groups = [groups[np.argsort(groups[:, 0], kind="stable")]]
            self._by_queue = True
        low, high = self._groups[0][:, 0].searchsorted([number, number + 1]).tolist()
        parts: list[memoryview] = []
        begin = size = 0
        for _, start, many, place in self._groups[0][low:high].tolist():
            if not parts:
                begin = start
            parts.append(self._rows.read(place, many * UNIT_SIZE))
            size += len(parts[-1])
            if size >= AT_ONCE:
                yield begin, _joined(parts)
                parts, size = [], 0
        if parts:
            yield begin, _joined(parts)

    def _grow(self, size: int, with_rows: set[int]) -> None:
        import numpy as np

        from engine.inspect.check.fresh_kernel import LEFT, NEW

        there = len(self._state)
        if size > there:
            states = [LEFT if number in with_rows else NEW for number in range(there, size)]
            self._state = np.concatenate([self._state, np.array(states, dtype=np.uint8)])
            more = np.zeros(size - there, dtype=np.int64)
            following, first_place, end_place = (np.concatenate([one, more]) for one in self._columns)
            self._columns = (following, first_place, end_place)


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of units: the queues that some were kept of; bool[n], those that were not (None: all were); queues
    that were kept of before, and whose units now are to be poured.
    """

    queues: list[int]
    left: NDArray[np.bool_] | None
    broken: list[int]


def _joined(parts: list[memoryview]) -> memoryview:
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def _has_kernel() -> bool:
    try:
        import engine.inspect.check.fresh_kernel  # noqa: F401
    except ImportError:
        return False
    return True
