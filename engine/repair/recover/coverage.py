"""The part of the log that recovery doesn't read, compared with the queues all the same.

Every message has exactly one unit, so the units that point into a segment must follow one another without a gap: each
starts where the one before it ends. Where they do, every queue of the segment is whole, and hardly a byte of the log
needs reading (the queues are a fiftieth of it). Where they don't, the log is read just there (from damage on, to the
segment's end): what stands in the hole is a prepared or rolled back record, a damaged range, or a message whose unit is
lost (RECOVERY.md, rule 5).

That each place has a unit doesn't say that it stands in the right queue. So a segment is read from end to end where
units are in doubt: where two of them point at one record, where a queue's do not ascend, and all that a queue file's
units point into when its first or its last one's record names another place. Two units of a file are compared with
their records, no more: swapped or copied directories and files always show, one wrong unit among right ones need not.
These records are read in the order of the log, those of all queues in one pass: a disk must not seek for each queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StorageError
from engine.format.message import blank_length
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import BLANK_SIZE
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.queue_rows import is_real
from engine.log.scan import Blank, Event, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.check.queue_compare import QueueAccount, QueueComparer
    from engine.log.source import LogSource, Segment
    from engine.repair.recover.queue_leftover import UnitsAt

MAX_HOLES = 512
"""A segment with more holes than this is read from end to end: cheaper than many small reads."""


class _Range(NamedTuple):
    """Units [start, end) of a queue whose records lie between two physical offsets. `trusted`: not in doubt."""

    number: int
    start: int
    end: int
    low: int
    high: int
    trusted: bool


class _Probe(NamedTuple):
    """A unit whose record is looked at: where that lies (physical), the unit's range, queue offset and size (bytes)."""

    physical: int
    range: int
    offset: int
    size: int


class _Claims(NamedTuple):
    """Units by place, one of each: queue numbers, queue offsets, starts and ends (physical), and whether the queue's
    next unit repeats it.
    """

    queues: NDArray[np.int64]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    repeated: NDArray[np.bool_]


class Coverage:
    """Compares segments with the queues by their units alone.

    Args:
        comparer: gets the units that are accounted for, and (through `feed`) the records that had to be read.
        scanner: reads the log where it must be read.
        feed: takes the events of such reads.
        units_at: tells the record at a physical offset.
        until: recovery's start (physical): what lies after it is compared anyway.
        one_unit_each: False where a message may have units in several queues (multi-dispatch): one queue's unit says
            nothing about the others then, and everything is read.
    """

    def __init__(
        self,
        comparer: QueueComparer,
        source: LogSource,
        scanner: Scanner,
        feed: Callable[[Event], None],
        units_at: UnitsAt,
        *,
        until: int,
        one_unit_each: bool = True,
    ) -> None:
        self._comparer = comparer
        self._source = source
        self._scanner = scanner
        self._feed = feed
        self._units_at = units_at
        self._until = until
        self._one_unit_each = one_unit_each
        self._ranges: list[_Range] | None = None
        self._doubt = Intervals()  # places that units name out of order

    def check(self, segment: Segment) -> None:
        """Account for every unit that points into `segment`, reading it where the units leave holes."""
        import numpy as np

        if not self._one_unit_each:
            self._read(segment.offset, segment.end)
            return
        claims = self._claims(segment)
        if claims is None or not len(claims.starts):
            self._read(segment.offset, segment.end)
            return
        starts, ends = claims.starts, claims.ends
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        if len(breaks) + int(claims.repeated.sum()) > MAX_HOLES:
            self._read(segment.offset, segment.end)
            return
        at = segment.offset
        last: int | None = None  # a run's last unit: right, unless the hole after it is due to its size
        for run in np.split(np.arange(len(starts)), breaks):
            start = int(starts[run[0]])
            if start < at:
                continue  # inside of something that was read: a unit that points nowhere
            if start > at:
                at = self._read_hole(segment, claims, last, at, start)
                last = None
                if at != start:
                    continue
            sure = self._sure(claims, run)
            self._account(claims, run[:sure])
            last, at = int(run[sure]), int(ends[run[-1]])
        if last is not None and int(ends[last]) == at and self._ends_with_blank(segment, at):
            self._account(claims, np.array([last]))
        else:
            self._read_hole(segment, claims, last, at, segment.end)

    def _sure(self, claims: _Claims, run: NDArray[np.intp]) -> int:
        """How many units of a run, but for its last one, lie before damage at its end, if there is any."""
        sure = len(run) - 1
        if not self._is_sound(claims, int(run[sure])):
            while sure and not self._is_sound(claims, int(run[sure - 1])):
                sure -= 1
        return sure

    def _read_hole(self, segment: Segment, claims: _Claims, last: int | None, at: int, end: int) -> int:
        """Feed the log from `at`, or from the record of the unit `last`, to `end`; returns how far its records reach.

        Where damage ends them, the rest of the segment is fed as well, for any scan to find the damage as this one
        does: a second recovery knows it again.
        """
        start = at if last is None else int(claims.starts[last])
        reached = start
        for event in self._scanner.scan(start, end, resume=True):
            if not isinstance(event, RecordBatch | Blank):
                break
            self._feed(event)
            reached = event.end
        if reached >= end:
            return reached
        self._read(reached, segment.end)
        return segment.end

    def _is_sound(self, claims: _Claims, number: int) -> bool:
        """Whether a unit's record is sound, and as long as it says."""
        start = int(claims.starts[number])
        return self._scanner.sound_size(start) == int(claims.ends[number]) - start

    def _read(self, start: int, end: int) -> None:
        """Feed [start, end) of the log, past damage."""
        for event in self._scanner.scan(start, end, resume=True):
            self._feed(event)

    def _ends_with_blank(self, segment: Segment, at: int) -> bool:
        try:
            return blank_length(self._source.read(at, BLANK_SIZE)) == segment.end - at
        except StorageError:  # the read that follows says so
            return False

    def _account(self, claims: _Claims, run: NDArray[np.intp]) -> None:
        """Account for units; of two that have one place their record tells which is right."""
        import numpy as np

        for i in run[claims.repeated[run]].tolist():
            self._read(int(claims.starts[i]), int(claims.ends[i]))
        run = run[~claims.repeated[run]]
        if not len(run):
            return
        queues = claims.queues[run]
        order = run[np.argsort(queues, kind="stable")]
        bounds = np.flatnonzero(np.diff(claims.queues[order])) + 1
        for group in np.split(order, bounds):
            self._comparer.account(int(claims.queues[group[0]])).right.add_many(claims.offsets[group])

    def _claims(self, segment: Segment) -> _Claims | None:
        """Units that point into the segment. None when some are in doubt."""
        import numpy as np

        parts: list[NDArray[np.int64]] = []
        ranges = self._all_ranges()
        if self._doubt.overlap(segment.offset, segment.end):
            return None
        for one in ranges:
            if one.low < segment.end and one.high >= segment.offset:
                if not one.trusted:
                    return None
                account = self._comparer.account(one.number)
                assert account.rows is not None
                units = account.rows.read(one.start, one.end)
                physical = units["physical_offset"].astype(np.int64)
                whole = is_real(units) & (physical >= segment.offset) & (physical < segment.end)
                if account.dangling:
                    whole &= ~account.dangling.mask(np.arange(one.start, one.end))
                at = np.flatnonzero(whole)
                size = units["size"][at].astype(np.int64)
                numbers = np.full(len(at), one.number, dtype=np.int64)
                parts.append(np.stack([numbers, at + one.start, physical[at], physical[at] + size]))
        table = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), dtype=np.int64)
        order = np.argsort(table[2], kind="stable")
        queues, offsets, starts, ends = table[:, order]
        twice = np.flatnonzero(starts[1:] == starts[:-1])
        if ((queues[twice] != queues[twice + 1]) | (offsets[twice] + 1 != offsets[twice + 1])).any():
            return None
        first = np.ones(len(starts), dtype=np.bool_)
        first[twice + 1] = False
        repeated = np.zeros(len(starts), dtype=np.bool_)
        repeated[:-1] = ~first[1:]
        return _Claims(queues[first], offsets[first], starts[first], ends[first], repeated[first])

    def _all_ranges(self) -> list[_Range]:
        """Each queue file's units with the lowest and the highest place that they name."""
        if self._ranges is None:
            ranges: list[_Range] = []
            probes: list[_Probe] = []
            for number, account in self._comparer.accounts.items():
                if account.rows is not None:
                    self._add_ranges(number, account, ranges, probes)
            for i in self._doubtful(ranges, probes):
                ranges[i] = ranges[i]._replace(trusted=False)
            self._ranges = ranges
        return self._ranges

    def _add_ranges(self, number: int, account: QueueAccount, ranges: list[_Range], probes: list[_Probe]) -> None:
        import numpy as np

        rows = account.rows
        assert rows is not None
        before = np.zeros(0, dtype=np.int64)
        for file in rows.files:
            start = file.offset // UNIT_SIZE
            end = min(start + file.size // UNIT_SIZE, rows.extent)
            units = rows.read(start, end)
            at = np.flatnonzero(is_real(units))
            physical = units["physical_offset"][at].astype(np.int64)
            ordered = np.concatenate([before, physical])
            down = np.flatnonzero(ordered[1:] < ordered[:-1])
            self._doubt.add_many(np.concatenate([ordered[down], ordered[down + 1]]))
            before = ordered[-1:]
            if len(physical):
                read = np.flatnonzero((physical >= self._source.segments[0].offset) & (physical < self._until))
                for i in {int(read[0]), int(read[-1])} if len(read) else ():
                    size = int(units["size"][at[i]])
                    probes.append(_Probe(int(physical[i]), len(ranges), start + int(at[i]), size))
                ranges.append(_Range(number, start, end, int(physical.min()), int(physical.max()), True))

    def _doubtful(self, ranges: list[_Range], probes: list[_Probe]) -> set[int]:
        """Ranges whose probes' records name another queue or queue offset.

        What isn't there, or is damaged, is no reason to doubt.
        """
        doubtful: set[int] = set()
        for probe in sorted(probes):
            if probe.range in doubtful:
                continue
            record = self._units_at(probe.physical)
            unit = (ranges[probe.range].number, probe.offset)
            if record is not None and (record[0] != probe.size or unit not in record[1]):
                doubtful.add(probe.range)
        return doubtful
