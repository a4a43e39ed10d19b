"""Keys of the log and entries of the index side by side: which are the same, and how often each side has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class KeyGroups(NamedTuple):
    """Groups of (physical offset, key hash), each there once. int64 all.

    `of_keys`, `of_entries`: the group of each key, of each entry. `derived`, `there`: how many of either each has.
    """

    of_keys: NDArray[np.int64]
    of_entries: NDArray[np.int64]
    derived: NDArray[np.int64]
    there: NDArray[np.int64]

    def per_entry(self, of_keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a key says, for each entry of its group; 0 where the log has no such key."""
        import numpy as np

        groups = np.zeros(len(self.derived), dtype=np.int64)
        groups[self.of_keys] = of_keys
        return groups[self.of_entries]


def grouped(
    keys: tuple[NDArray[np.int64], NDArray[np.int64]], entries: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> KeyGroups:
    """Both sides as (physical offsets, key hashes)."""
    import numpy as np

    count = len(keys[0])
    physical, hashes = (np.concatenate(both) for both in zip(keys, entries, strict=True))
    order = np.lexsort((hashes, physical))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(physical[order]) != 0) | (np.diff(hashes[order]) != 0)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    groups = int(new.sum())
    derived, there = (np.bincount(some, minlength=groups) for some in (group[:count], group[count:]))
    return KeyGroups(group[:count], group[count:], derived, there)
