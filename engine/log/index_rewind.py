"""An index file that keeps its first entries only: links that are wrong then, and the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.index_file import IndexHeader
from engine.log.index_chain import link
from engine.log.index_reader import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.index_chain import NumberedSlots
    from engine.log.index_reader import IndexReader


def relinked(file: IndexReader, keep: int, slots: NumberedSlots) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Ranges of the entries 1 … `keep` with wrong links, linked rightly: the first one's number, entries.

    Fills `slots`, of which no entry is in any.
    """
    import numpy as np

    for first in range(1, keep + 1, CHUNK):
        entries = file.entries(first, min(CHUNK, keep + 1 - first))
        links = link(slots, entries["key_hash"], first)
        wrong = np.flatnonzero(entries["previous"] != links)
        if len(wrong):
            start, end = int(wrong[0]), int(wrong[-1]) + 1
            mended = entries[start:end].copy()
            mended["previous"] = links[start:end]
            yield first + start, mended


def header_of(
    file: IndexReader, keep: int, used: int, previous: tuple[int, int], end_timestamp: int | None
) -> IndexHeader:
    """The header of a file that keeps the entries 1 … `keep`, in `used` slots: see `IndexFile.rewind`."""
    if keep == 0:
        offset, time = previous
        return IndexHeader(time, time, offset, offset)
    first, last = file.entries(1, 1)[0], file.entries(keep, 1)[0]
    begin = file.header.begin_timestamp
    if end_timestamp is None:
        newest = begin if keep == 1 else begin + int(last["time_diff"]) * 1000 + 999
        end_timestamp = file.header.end_timestamp if keep == file.entry_count else newest
    return IndexHeader(
        begin, end_timestamp, int(first["physical_offset"]), int(last["physical_offset"]), used, keep + 1
    )
