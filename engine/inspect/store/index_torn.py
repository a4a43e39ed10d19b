"""Index entries that a power cut may have torn though they agree with adjacent ones.

A disk writes sectors. An entry that lies across two of them may have its first part from the last write, and zeros in
the second. Mostly that shows: an offset below the one before, a wrong link. It doesn't where the true link is 0 (the
first entry of its slot): then only the time (or the low bytes of the offset) is wrong. Just those entries are held
against the log. Few are: one entry in 26 lies across sectors, and the bytes of its time after the border must be 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.index_file import ENTRY_SIZE, NO_ENTRY, time_diff

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.log.index_reader import ClosedIndexFile

SECTOR = 512
_OFFSET_END, _TIME_END = 12, 16
"""Where in an entry the physical offset ends, and the time; the link follows."""
_CHUNK = 1 << 18


def first_torn(file: ClosedIndexFile, count: int, log_min: int, stored_at: Callable[[int], int | None]) -> int | None:
    """Number of the first of the entries 1 … `count` that is torn, None when none is.

    Args:
        file: an index file whose entries agree with each other.
        count: how many of them to look at.
        log_min: physical offset of the log's first byte; nobody can judge entries of what has expired.
        stored_at: store time (ms) of the sound record at a physical offset, None without one.

    Raises:
        StorageError.
    """
    import numpy as np

    begin = file.header.begin_timestamp
    for first in range(1, count + 1, _CHUNK):
        entries = file.entries(first, min(_CHUNK, count + 1 - first))
        start = file.layout.entry_position(first) + ENTRY_SIZE * np.arange(len(entries))
        border = SECTOR - start % SECTOR  # bytes of the entry before the next sector
        lost = np.clip(_TIME_END - border, 0, 4)  # bytes of the time after it
        zeros = entries["time_diff"] & ((np.int64(1) << (8 * lost)) - 1)
        suspect = (border < _TIME_END) & (entries["previous"] == NO_ENTRY) & (zeros == 0)
        suspect &= entries["physical_offset"] >= log_min
        for i in np.flatnonzero(suspect).tolist():
            number = first + i
            stored = stored_at(int(entries["physical_offset"][i]))
            if stored is None:
                if border[i] < _OFFSET_END:  # else it is the record that is damaged
                    return number
            elif time_diff(stored, begin if number > 1 else 0) != int(entries["time_diff"][i]):
                return number
    return None
