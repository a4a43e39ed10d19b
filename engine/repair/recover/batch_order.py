"""Which records of a batch queue can be one queue's: queue offsets that ascend in log order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def fits_known(rows: NDArray[np.void], at: int, base: int, size: int) -> bool:
    """Whether a record of these (batch_unit_dtype(), in log order) may have the queue offsets [base, base + size)."""
    if at > 0 and int(rows[at - 1]["base_offset"]) + int(rows[at - 1]["batch_size"]) > base:
        return False
    return at + 1 == len(rows) or base + size <= int(rows[at + 1]["base_offset"])


def ascending(rows: NDArray[np.void], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which records (batch_unit_dtype(), in log order) are of the queue's newest life, each in order: bool[n].

    `known`: those whose units are right on disk, which outweigh others. One alone that is not in order is left out;
    where queue offsets begin anew, what came before from there on is.
    """
    import numpy as np

    stays = np.ones(len(rows), dtype=np.bool_)
    base = rows["base_offset"].astype(np.int64)
    ends = base + rows["batch_size"]
    if (base[1:] >= ends[:-1]).all():
        return stays
    there = np.flatnonzero(known)
    if len(there) and (base[there][1:] >= ends[there][:-1]).all():
        after = np.searchsorted(there, np.arange(len(rows)))
        low = np.concatenate([[0], ends[there]])
        high = np.concatenate([base[there], [np.iinfo(np.int64).max]])
        stays = known | ((low[after] <= base) & (ends <= high[after]))
    at = np.flatnonzero(stays)
    kept = _in_order(base[at].tolist(), ends[at].tolist())
    stays[:] = False
    stays[at[kept]] = True
    return stays


def _in_order(base: list[int], ends: list[int]) -> list[int]:
    """Places of those that ascend: see `ascending`."""
    kept: list[int] = []
    last = len(base) - 1
    for k in range(len(base)):
        while kept and base[k] < ends[kept[-1]]:
            before = ends[kept[-2]] if len(kept) > 1 else 0
            if k == last or base[k + 1] >= ends[kept[-1]]:
                break  # one alone: the queue goes on after it
            if base[k] >= before and base[k + 1] >= ends[k]:
                kept.pop()  # the one before was alone, or a life of it
                continue
            while kept and ends[kept[-1]] > base[k]:
                kept.pop()
        else:
            kept.append(k)
    return kept
