"""Many units of a queue with their records' bytes, a run of them at a time: for who reads a whole queue.

Nothing is judged: a run says where its units point, and has the bytes that are there. What lies near each other in a
file is read at once.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from engine.dataclass import dataclass
from engine.format.record import MIN_RECORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from engine.log.source import SegmentedLog

RUN_BYTES = 1 << 20
"""Bytes that are read for a run, about; one record may have more."""
_NEAR = 64 << 10
"""Bytes between two records that are read, too: a read of its own takes longer than so many."""


@dataclass(frozen=True, slots=True)
class UnitRun:
    """n units that follow each other in a queue: physical offsets and sizes (bytes) that they name, int64[n] each.

    `reads`: physical offsets [low, high) that hold their records; `at`: int64[n], their positions in the bytes of all
    reads, one after another.
    """

    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    at: NDArray[np.int64]
    reads: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.places)

    def read(self, log: SegmentedLog) -> memoryview | None:
        """The bytes; None: some are not there, or a record would lie in two files. Raises StorageError."""
        parts = []
        for low, high in self.reads:
            segment = log.segment_at(low)
            if segment is None or high > segment.end:
                return None
            part = log.read(low, high - low)
            if len(part) < high - low:
                return None
            parts.append(part)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def runs(units: NDArray[np.void], log: SegmentedLog) -> Iterator[UnitRun]:
    """The runs of some units, in their order, up to one that can point at no record.

    Args:
        units: unit_dtype()[n].
        log: whose segments they point into.
    """
    places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    starts = np.array([segment.offset for segment in log.segments], dtype=np.int64)
    odd = np.flatnonzero((sizes < MIN_RECORD_SIZE) | (places < 0) | (places > np.iinfo(np.int64).max - sizes))
    count = int(odd[0]) if len(odd) else len(places)
    places, sizes = places[:count], sizes[:count]
    ends = places + sizes
    gaps = places[1:] - ends[:-1]
    files = np.searchsorted(starts, places, side="right")
    apart = (gaps < 0) | (gaps > _NEAR) | (files[1:] != files[:-1])
    borders = [0, *(np.flatnonzero(apart) + 1).tolist(), count]
    first, reads, at, size = 0, list[tuple[int, int]](), list["NDArray[np.int64]"](), 0
    for low, high in itertools.pairwise(borders):
        begin = low
        while begin < high:
            stop = max(begin + 1, int(np.searchsorted(ends[begin:high], places[begin] + RUN_BYTES, "right")) + begin)
            reads.append((int(places[begin]), int(ends[stop - 1])))
            at.append(places[begin:stop] - places[begin] + size)
            size += reads[-1][1] - reads[-1][0]
            begin = stop
            if size >= RUN_BYTES // 2:
                yield UnitRun(places[first:stop], sizes[first:stop], np.concatenate(at), tuple(reads))
                first, reads, at, size = stop, [], [], 0
    if reads:
        yield UnitRun(places[first:count], sizes[first:count], np.concatenate(at), tuple(reads))
