"""The part of the log that recovery doesn't read, compared with the queues all the same.

Every message has exactly one unit, so the units that point into a segment must follow one another without a gap: each
starts where the one before it ends. Where they do, every queue of the segment is whole, and not one byte of the log
needs reading (the queues are a fiftieth of it). Where they don't, the log is read just there: what stands in the hole
is a prepared or rolled back record, a damaged stretch, or a message whose unit is lost (recovery.md, rule 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StorageError
from engine.format.message import BLANK_SIZE, blank_length
from engine.format.queue_unit import UNIT_SIZE
from engine.log.scan import Blank, Damage, Event, RecordBatch, Scanner
from engine.repair.queue_rows import is_real

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.source import LogSource, Segment
    from engine.repair.queue_compare import QueueAccount, QueueComparer

MAX_HOLES = 512
"""A segment with more holes than this is read from end to end: cheaper than many small reads."""


class _Range(NamedTuple):
    """Rows [start, end) of a queue whose units lie between two physical offsets."""

    number: int
    start: int
    end: int
    low: int
    high: int


class Coverage:
    """Compares segments with the queues by their units alone.

    Args:
        comparer: gets the rows that are accounted for, and (through `feed`) the records that had to be read.
        scanner: reads the log where it must be read.
        feed: takes the events of such reads.
        one_unit_each: False where a message may have units in several queues (multi-dispatch): one queue's unit says
            nothing about the others then, and everything is read.
    """

    def __init__(
        self,
        comparer: QueueComparer,
        source: LogSource,
        scanner: Scanner,
        feed: Callable[[Event], None],
        *,
        one_unit_each: bool = True,
    ) -> None:
        self._comparer = comparer
        self._source = source
        self._scanner = scanner
        self._feed = feed
        self._one_unit_each = one_unit_each
        self._ranges: list[_Range] | None = None

    def check(self, segment: Segment) -> None:
        """Account for every unit that points into `segment`, reading it where the units leave holes."""
        import numpy as np

        if not self._one_unit_each:
            self._read(segment.offset, segment.end)
            return
        queues, offsets, starts, ends = self._claims(segment)
        if not len(starts):
            self._read(segment.offset, segment.end)
            return
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        breaks = breaks[~self._same_place(starts, ends, breaks)]
        if len(breaks) > MAX_HOLES:
            self._read(segment.offset, segment.end)
            return
        at = segment.offset
        last: int | None = None  # a run's last unit: right, unless the hole behind it is due to its size
        for whole in np.split(np.arange(len(starts)), breaks):
            run, start = whole, int(starts[whole[0]])
            if start < at:
                continue  # inside of something that was read: a unit that points nowhere
            if start > at:
                reached = self._read(at if last is None else int(starts[last]), start)
                last, at = None, max(reached, start)
                if reached > start:
                    continue
                if reached < start:  # damage, which may go on under the run's first units
                    run, at = self._behind_damage(run, starts)
                    if not len(run):
                        continue
            self._account(queues[run[:-1]], offsets[run[:-1]])
            last, at = int(run[-1]), int(ends[run[-1]])
        if last is None or not self._ends_with_blank(segment, at):
            self._read(at if last is None else int(starts[last]), segment.end)
        else:
            self._account(queues[last : last + 1], offsets[last : last + 1])

    def _behind_damage(self, run: NDArray[np.intp], starts: NDArray[np.int64]) -> tuple[NDArray[np.intp], int]:
        """A run of units without its first ones up to one that points at a sound record, and how far all is read."""
        first = int(starts[run[0]])
        for i, number in enumerate(run):
            start = int(starts[number])
            if self._scanner.sound_size(start):
                reached = max(start, self._read(first, start)) if i else start
                return (run[i:] if reached == start else run[:0]), reached
        return run[:0], first

    def _read(self, start: int, end: int) -> int:
        """Feed [start, end) of the log, past damage; returns how far sound records reach without damage behind them."""
        reached = start
        for event in self._scanner.scan(start, end, resume=True):
            self._feed(event)
            if isinstance(event, RecordBatch | Blank):
                reached = event.end
            elif isinstance(event, Damage):
                reached = event.offset
        return reached

    def _ends_with_blank(self, segment: Segment, at: int) -> bool:
        try:
            return blank_length(self._source.read(at, BLANK_SIZE)) == segment.end - at
        except StorageError:  # the read that follows says so
            return False

    def _same_place(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], breaks: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Breaks that are none: two queues hold the same record (multi-dispatch), or a unit repeats its neighbour's."""
        same: NDArray[np.bool_] = (starts[breaks] == starts[breaks - 1]) & (ends[breaks] == ends[breaks - 1])
        return same

    def _account(self, queues: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        import numpy as np

        if not len(queues):
            return
        order = np.argsort(queues, kind="stable")
        ordered = queues[order]
        bounds = np.flatnonzero(np.diff(ordered)) + 1
        for group in np.split(order, bounds):
            self._comparer.account(int(queues[group[0]])).right.add_many(offsets[group])

    def _claims(
        self, segment: Segment
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Units that point into the segment, by place: queue numbers, queue offsets, starts and ends (physical)."""
        import numpy as np

        parts: list[NDArray[np.int64]] = []
        for found in self._all_ranges():
            if found.low < segment.end and found.high >= segment.offset:
                account = self._comparer.account(found.number)
                assert account.rows is not None
                units = account.rows.read(found.start, found.end)
                physical = units["physical_offset"].astype(np.int64)
                whole = is_real(units) & (physical >= segment.offset) & (physical < segment.end)
                if account.dangling:
                    whole &= ~account.dangling.mask(np.arange(found.start, found.end))
                at = np.flatnonzero(whole)
                size = units["size"][at].astype(np.int64)
                numbers = np.full(len(at), found.number, dtype=np.int64)
                parts.append(np.stack([numbers, at + found.start, physical[at], physical[at] + size]))
        if not parts:
            empty = np.zeros(0, dtype=np.int64)
            return empty, empty, empty, empty
        table = np.concatenate(parts, axis=1)
        order = np.argsort(table[2], kind="stable")
        queues, offsets, starts, ends = table[:, order]
        return queues, offsets, starts, ends

    def _all_ranges(self) -> list[_Range]:
        """Each queue file's rows with the lowest and the highest place that its units name."""
        if self._ranges is None:
            self._ranges = [
                found
                for number, account in self._comparer.accounts.items()
                if account.rows is not None
                for found in self._ranges_of(number, account)
            ]
        return self._ranges

    def _ranges_of(self, number: int, account: QueueAccount) -> list[_Range]:
        rows = account.rows
        assert rows is not None
        out = []
        for file in rows.files:
            start = file.offset // UNIT_SIZE
            end = min(start + file.size // UNIT_SIZE, rows.extent)
            units = rows.read(start, end)
            physical = units["physical_offset"][is_real(units)]
            if len(physical):
                out.append(_Range(number, start, end, int(physical.min()), int(physical.max())))
        return out
