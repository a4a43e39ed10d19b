"""How much of the log a queue's units stand for, by ranges of the log and from given queue offsets on: in one pass.

Short queues are read whole. Of a long one, blocks spread evenly are read, each standing for the rows around it: its
first offset and number of messages are exact then, bytes and what falls into which range are estimates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.store.queue_rows import QueueRows, first_at, is_real

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCKS, _BLOCK_ROWS = 32, 1 << 10


@dataclass(slots=True)
class QueueSpace:
    """One queue's part of the log.

    Attributes:
        min_offset: queue offset of the first unit whose message the log still has.
        max_offset: queue offset after the last unit.
        messages, sizes: messages and bytes by range, int64[ranges]. A unit that repeats the one before it (a lost
            message's queue offset) is none.
        after: queue offset asked for → bytes of the messages from there on.
        estimated: whether it was too long to be read whole.
    """

    min_offset: int
    max_offset: int
    messages: NDArray[np.int64]
    sizes: NDArray[np.int64]
    after: dict[int, int] = field(default_factory=dict)
    estimated: bool = False


def last_row(rows: QueueRows) -> int:
    """Queue offset after the last valid row, found by bisection in the last file that holds any."""
    for file in reversed(rows.files):
        start = file.offset // UNIT_SIZE
        places = range(start, start + file.size // UNIT_SIZE)
        end = start + bisect_left(places, True, key=lambda at: int(rows.read(at, at + 1)["size"][0]) <= 0)
        if end > start:
            return end
    return rows.first


def last_within(rows: QueueRows, end: int, log_end: int) -> tuple[int, int]:
    """Physical offset and size of the newest message before the queue offset `end` that ends at `log_end` or before.

    (−1, 0) without one.
    """

    def unit(offset: int) -> tuple[int, int]:
        row = rows.read(offset, offset + 1)
        return (int(row["physical_offset"][0]), int(row["size"][0])) if is_real(row)[0] else (-1, 0)

    if end > rows.first and sum(unit(end - 1)) > log_end:
        end = rows.first + bisect_left(range(rows.first, end), True, key=lambda at: sum(unit(at)) > log_end)
    return unit(end - 1) if end > rows.first else (-1, 0)


def measure(rows: QueueRows, end: int, starts: NDArray[np.int64], cuts: Sequence[int], most_rows: int) -> QueueSpace:
    """Add up the rows of a queue up to the queue offset `end`.

    Args:
        rows: the queue.
        end: queue offset after its last valid row.
        starts: physical offsets at which the ranges begin, ascending; what lies before the first is gone.
        cuts: queue offsets for `after`.
        most_rows: the maximum of units of a queue that is read whole.

    Raises:
        StorageError: the system can't read them.
    """
    import numpy as np

    gone = int(starts[0])
    space = QueueSpace(end, end, np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64))
    blocks = _whole(rows, rows.first, end)
    if end - rows.first > most_rows:
        space.estimated = True
        space.min_offset = first_at(rows, end, gone)
        blocks = _spread(rows, space.min_offset, end)
    before, last = 0, -1
    at_cut: dict[int, int] = dict.fromkeys(cuts, 0)
    for first, many, block in blocks:
        size = block["size"].astype(np.int64)
        physical = block["physical_offset"].astype(np.int64)
        place = np.searchsorted(starts, physical, side="right") - 1
        kept = is_real(block) & (place >= 0)
        if not space.estimated and space.min_offset == end and kept.any():
            space.min_offset = first + int(np.flatnonzero(kept)[0])
        kept &= np.diff(physical, prepend=last) != 0
        last = int(physical[-1]) if len(physical) else last
        share = many / len(block)
        size[~kept] = 0
        counts = np.bincount(place[kept], minlength=len(starts))
        space.messages += np.rint(counts * share).astype(np.int64)
        space.sizes += np.rint(np.bincount(place[kept], size[kept], len(starts)) * share).astype(np.int64)
        for cut in cuts:
            if first < cut < first + many:
                at_cut[cut] = before + round(int(size[: round((cut - first) / share)].sum()) * share)
            elif cut >= first + many:
                at_cut[cut] = before + round(int(size.sum()) * share)
        before += round(int(size.sum()) * share)
    space.after = {cut: before - size for cut, size in at_cut.items()}
    return space


def _whole(rows: QueueRows, start: int, end: int) -> Iterator[tuple[int, int, NDArray[np.void]]]:
    for first, chunk in rows.chunks(start, end):
        yield first, len(chunk), chunk


def _spread(rows: QueueRows, start: int, end: int) -> Iterator[tuple[int, int, NDArray[np.void]]]:
    """(first queue offset, number of rows that it stands for, rows) of blocks spread over [start, end)."""
    edges = [start + (end - start) * i // _BLOCKS for i in range(_BLOCKS + 1)]
    for low, high in pairwise(edges):
        if high > low:
            taken = min(_BLOCK_ROWS, high - low)
            middle = low + (high - low - taken) // 2
            yield low, high - low, rows.read(middle, middle + taken)
