"""Units that name lost places, and not as their queue would: no record tells any more, but the units beside them do.

Directories and files of queues are swapped or copied by hand, units by a fault. Where the record of a unit is lost, the
unit is judged by the others: the units of a queue ascend, and units that were copied came together.
"""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING

from engine.format.names import is_lmq
from engine.format.numbers import LONG_MAX
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.check.queue_compare import real_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.check.queue_compare import QueueAccount, QueueComparer
    from engine.inspect.store.queue_rows import QueueRows
    from engine.repair.recover.queue_leftover import LogAfter


class Misplaced:
    """Judges units of the queues of a `QueueComparer`, before any of those is taken for right that only may be."""

    def __init__(self, comparer: QueueComparer, log: LogAfter) -> None:
        self._comparer = comparer
        self._log = log
        self._wrong: dict[str, bool] = {}  # by a file's path

    def mask(
        self,
        number: int,
        account: QueueAccount,
        offsets: NDArray[np.int64],
        physical: NDArray[np.int64],
        lost: NDArray[np.bool_],
        low: int,
        high: int,
    ) -> NDArray[np.bool_]:
        """Which units name lost places, and not as their queue would: they lie among another queue's units (see
        `lies_among_anothers`), in a file of another place, or out of order.

        Args:
            number, account: the queue.
            offsets, physical: queue offset of each unit, and physical offset that it names.
            lost: which of them name a lost place.
            low, high: where the records of the right units before and after lie (physical).
        """
        import numpy as np

        misplaced = np.zeros(len(offsets), dtype=np.bool_)
        at = np.flatnonzero(lost)
        if not len(at) or is_lmq(self._comparer.numbers[number].topic):
            return misplaced
        for run in np.split(at, np.flatnonzero(np.diff(offsets[at]) != 1) + 1):
            misplaced[run] = self.lies_among_anothers(number, account, int(offsets[run[0]]), int(offsets[run[-1]]))
        misplaced[at] |= (physical[at] <= low) | (physical[at] >= high)
        misplaced[at] |= ~self.without_wrong_files(number, account, offsets[at], np.ones(len(at), dtype=np.bool_))
        left = at[~misplaced[at]]
        misplaced[left] = out_of_order(physical[left])
        return misplaced

    def without_wrong_files(
        self, number: int, account: QueueAccount, offsets: NDArray[np.int64], some: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Those of `some` of these units that don't lie in a file that is not this queue's there: two of its units at
        least, and more than agree, show records that name other places. Its units of expired messages are as wrong. Of
        light queues, which the settings may not tell, nothing is known yet.

        To be asked before units that can't be compared with a record are added to `account.right`.
        """
        import numpy as np

        in_wrong_file = np.zeros(len(offsets), dtype=np.bool_)
        rows = account.rows
        assert rows is not None
        for file in rows.files if some.any() and not is_lmq(self._comparer.numbers[number].topic) else ():
            start, end = file.offset // UNIT_SIZE, (file.offset + file.size) // UNIT_SIZE
            here = some & (offsets >= start) & (offsets < end)
            if here.any():
                if file.path not in self._wrong:
                    self._wrong[file.path] = self._is_wrong(account, rows, start, min(end, rows.extent))
                in_wrong_file |= here & self._wrong[file.path]
        return some & ~in_wrong_file

    def _is_wrong(self, account: QueueAccount, rows: QueueRows, start: int, end: int) -> bool:
        import numpy as np

        agree, deny = account.right.overlap(start, end), 0
        for low, high in account.right.missing(start, end):
            beside = [rows.read(low - 1, low), rows.read(high, high + 1)]  # what repeats these is of lost messages
            repeated = [int(row["physical_offset"][0]) for row in beside]
            for piece in rows.pieces(low, high):
                physical = real_rows(rows, *piece)[1]["physical_offset"].astype(np.int64)
                live = (physical >= self._log.begin) & (physical < self._log.end) & ~np.isin(physical, repeated)
                live &= ~self._log.lost.mask(physical) & ~self._log.bridged.places.mask(physical)
                deny += int(live.sum())
        return deny > max(agree, 1)

    def lies_among_anothers(self, number: int, account: QueueAccount, first: int, last: int) -> bool:
        """Whether these units are another queue's, as those beside them are: copied together with one, or two of its
        queue offsets, with no right unit beside them. One alone may be its queue's, and its record's header damaged.
        """
        sides = [(first - 1, first), (last + 1, last)]
        sides = [(beside, mine) for beside, mine in sides if beside not in account.right]
        shown = [(beside, mine, self._shown_elsewhere(number, account, beside)) for beside, mine in sides]
        if any(
            self._is_copied(account, mine, queue, theirs, mine - beside)
            for beside, mine, places in shown
            for queue, theirs in places
        ):
            return True
        if len(sides) < 2:
            return False
        known = {beside: places for beside, _, places in shown}
        for beside in (first - 2, last + 2):
            if beside not in account.right:
                known[beside] = self._shown_elsewhere(number, account, beside)
        seen = Counter(queue for beside, places in known.items() for queue, theirs in places if theirs == beside)
        return max(seen.values(), default=0) > 1

    def _shown_elsewhere(self, number: int, account: QueueAccount, offset: int) -> list[tuple[int, int]]:
        """Queue numbers and offsets of the sound record that a unit names, where none of them is the unit's own."""
        rows = account.rows
        assert rows is not None
        if not rows.first <= offset < rows.extent:
            return []
        row = rows.read(offset, offset + 1)[0]
        seen = self._log.units_at(int(row["physical_offset"]))
        if seen is None or seen[0] != int(row["size"]) or (number, offset) in seen[1]:
            return []
        return seen[1]

    def _is_copied(self, account: QueueAccount, offset: int, queue: int, theirs: int, step: int) -> bool:
        """Whether the unit at `step` from another queue's right unit `theirs` is the one that lies here, too."""
        known, at = self._comparer.accounts.get(queue), theirs + step
        if known is None or known.rows is None or account.rows is None or theirs not in known.right:
            return False
        if not known.rows.first <= at < known.rows.extent:
            return False
        return bool(account.rows.read(offset, offset + 1)[0] == known.rows.read(at, at + 1)[0])


def out_of_order(places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these would have to go for the others to ascend (a place may repeat): as few as possible. bool[n]."""
    import numpy as np

    out = np.zeros(len(places), dtype=np.bool_)
    if not (np.diff(places) < 0).any():
        return out
    ends: list[int] = []  # of the best sequence of each length so far: the place that it ends in
    lengths = []
    for place in places.tolist():
        length = bisect.bisect_right(ends, place)
        ends[length : length + 1] = [place]
        lengths.append(length)
    wanted, bound = len(ends) - 1, LONG_MAX
    for i in range(len(lengths) - 1, -1, -1):
        place = int(places[i])
        out[i] = lengths[i] != wanted or place > bound
        if not out[i]:
            wanted, bound = wanted - 1, place
    return out
