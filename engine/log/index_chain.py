"""The chains of an index file, made for many entries at once: a stable sort by slot instead of a loop.

Used by the writer, by the check and by the mender, so that they can't disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class NumberedSlots:
    """The slot table of an index file that is gone through from its first entry on.

    Attributes:
        newest: int32[slots], number of the newest entry in each slot, 0 = none yet.
    """

    __slots__ = ("newest",)

    def __init__(self, slots: int) -> None:
        import numpy as np

        self.newest: NDArray[np.int32] = np.zeros(slots, dtype=np.int32)

    @property
    def used(self) -> int:
        """Slots that have an entry."""
        import numpy as np

        return int(np.count_nonzero(self.newest))


class Runs:
    """Entries of a batch, grouped by slot, each group in the order of the entries.

    Attributes:
        order: int64[n], places in the batch, by slot.
        slot: int64[groups], the slots, ascending.
        head: int64[groups], where in `order` each group begins.
        tail: int64[groups], where it ends (its last place).
    """

    __slots__ = ("head", "order", "slot", "tail")

    def __init__(self, slot: NDArray[np.int32]) -> None:
        import numpy as np

        # Slot and place in one number: an ordinary sort of those is a stable sort by slot, and much the fastest.
        packed = slot.astype(np.int64) << 32 | np.arange(len(slot), dtype=np.int64)
        packed.sort()
        self.order = packed & 0xFFFFFFFF
        by_slot = packed >> 32
        self.head = np.flatnonzero(np.diff(by_slot, prepend=-1))
        self.tail = np.append(self.head[1:], len(slot)) - 1
        self.slot = by_slot[self.head]

    def previous(self, first: int, before: NDArray[np.int32]) -> NDArray[np.int32]:
        """The link of each entry, in the order of the batch: int32[n].

        Args:
            first: number of the batch's first entry.
            before: int32[groups], what the first entry of each group is linked to.
        """
        import numpy as np

        numbers = (self.order + first).astype(np.int32)
        linked = np.empty_like(numbers)
        linked[1:] = numbers[:-1]
        linked[self.head] = before
        previous = np.empty_like(numbers)
        previous[self.order] = linked
        return previous


def link(slots: NumberedSlots, key_hash: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    """The links that the entries from number `first` on should have; `slots` is brought up to date.

    A hash below 0 counts as 0.
    """
    import numpy as np

    runs = Runs(np.maximum(key_hash, 0).astype(np.int32) % np.int32(len(slots.newest)))
    previous = runs.previous(first, slots.newest[runs.slot])
    slots.newest[runs.slot] = runs.order[runs.tail] + first
    return previous
