"""Settle what `BatchComparer` left open, queue by queue: which units a batch queue has, and where they lie.

A queue's units are those of its records, in log order, behind those of expired records that its files still hold. What
decides where record and unit disagree, as no CRC covers what the one says of the other:

1. A unit on disk stays whose record's header or properties say another place, where the units beside it are right and
   its own queue offsets fill the place between theirs: the record is damaged. At the end of a queue, where nothing
   follows, the record counts, if its queue has room where it says.
2. A unit stays that names a lost range of the log, as long as it is in order: it tells what was there. Not one of a
   range that is bridged: gaps between units cost nobody anything.
3. Queue offsets ascend. One record that says others than its neighbours is left out; where they begin anew, the topic
   was deleted and created anew, and the newest life counts. Records whose units are right outweigh others.

Where the first unit lies is told by the right ones: most of them agree.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.format.batch_unit import BATCH_UNIT_SIZE, batch_unit_dtype, valid_units
from engine.format.quantities import counted
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.store.spool import Spool
from engine.repair.recover.batch_compare import CHUNK, NAMED
from engine.repair.recover.batch_files import BatchFiles
from engine.repair.recover.batch_order import ascending, fits_known
from engine.repair.recover.batch_plan import BatchQueuePlan
from engine.repair.recover.queue_misplaced import out_of_order
from engine.repair.recover.queue_plan import Requeued

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.losses import Losses
    from engine.log.derive import TopicQueue
    from engine.log.scan import Scanner
    from engine.repair.recover.batch_compare import BatchAccount, BatchComparer

FEW = 64
"""Units in a row that disagree with their records, from which on no header is taken for damaged."""


@dataclass(frozen=True, slots=True)
class BatchLog:
    """The log after the repair: physical offsets of its first byte and its end, the ranges between that are lost and
    stay so, what reads a record, and tells an inert one.
    """

    begin: int
    end: int
    lost: Intervals
    scanner: Scanner
    losses: Losses

    def record_size(self, offset: int) -> int:
        """Bytes of the sound record at a physical offset; 0 of none, and of an inert one."""
        return 0 if self.losses.is_inert(offset) else self.scanner.sound_size(offset)


@dataclass(frozen=True, slots=True)
class SettledBatches:
    """The plans of all batch queues, what the operator should know, records whose queueId or queueOffset is damaged."""

    plans: tuple[BatchQueuePlan, ...]
    findings: tuple[str, ...]
    requeued: tuple[Requeued, ...]


def settle_batches(disk: Disk, comparer: BatchComparer, log: BatchLog) -> SettledBatches:
    """Settle all queues of a comparer that was flushed. Raises StorageError."""
    settler = BatchSettler(disk, comparer, log)
    plans = settler.settle()
    return SettledBatches(plans, (*comparer.findings, *settler.findings), tuple(settler.requeued))


@dataclass(slots=True)
class _Work:
    """A queue that is settled: the units of its records, in log order, and what its files hold, by number.

    `right`: which of the units on disk are those of a record, just as it says.
    """

    account: BatchAccount
    rows: NDArray[np.void]
    numbers: NDArray[np.int64]
    held: NDArray[np.void]
    right: NDArray[np.bool_]
    kept: list[NDArray[np.void]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)  # physical offsets of records that are another queue's


class _Claim(NamedTuple):
    """What a record says of itself: its queue, and its row there."""

    work: _Work
    at: int


class BatchSettler:
    """Turns the accounts of a `BatchComparer` into plans.

    Args:
        disk: how files are reached.
        comparer: what was compared; its chunk must have been flushed.
        log: the log after the repair.

    Attributes:
        findings: what the operator should know.
        requeued: records whose queueId or queueOffset is damaged.
    """

    def __init__(self, disk: Disk, comparer: BatchComparer, log: BatchLog) -> None:
        self._disk = disk
        self._comparer = comparer
        self._log = log
        self.findings: list[str] = []
        self.requeued: list[Requeued] = []

    def settle(self) -> tuple[BatchQueuePlan, ...]:
        """The plan of every queue, by topic and queue id. Raises StorageError."""
        plans: dict[TopicQueue, BatchQueuePlan] = {}
        anew: list[BatchAccount] = []
        works: list[_Work] = []
        for queue, account in self._comparer.accounts.items():
            plan = self._as_it_is(account)
            if plan is not None:
                plans[queue] = plan
            elif account.ordered and not account.held.files:
                anew.append(account)
            else:
                works.append(self._work(account))
        if any(len(self._doubtful(work)) for work in works):  # their records may say that they are of a new queue
            works += [self._work(account) for account in anew]
            anew = []
        self._headers(works)
        self._disagreements(works)
        for account in anew:
            plans[account.queue] = self._made_anew(account)
        for work in works:
            plan = self._plan(work)
            if plan.changed or plan.held.files:
                plans[plan.queue] = plan
        return tuple(plans[queue] for queue in sorted(plans))

    # --- queues that need no decision -------------------------------------------------------------------------------

    def _as_it_is(self, account: BatchAccount) -> BatchQueuePlan | None:
        """The plan that changes nothing, where nothing is to be changed."""
        held, end = account.held, account.start + account.matched
        if len(account.pending) or not account.ordered or held.extent(self._disk) > end:
            return None
        expired = self._expired(account)
        if expired is None or not BatchFiles(held).are_whole(end):
            return None
        first = high = expired
        if account.matched:
            first = int(held.read(self._disk, account.start, account.start + 1)["base_offset"][0])
            high = account.end
        return BatchQueuePlan(account.queue, held, first, high, high)

    def _expired(self, account: BatchAccount) -> int | None:
        """Queue offset after the units before the first one of the log; None where they are none that expired."""
        import numpy as np

        held, last = account.held, 0
        for low in range(held.first, account.start, CHUNK):
            units = held.read(self._disk, low, min(low + CHUNK, account.start))
            if not valid_units(units).all() or (units["physical_offset"] >= self._log.begin).any():
                return None
            base = units["base_offset"].astype(np.int64)
            ends = base + units["batch_size"]
            if (base < np.concatenate([[last], ends[:-1]])).any():
                return None
            last = int(ends[-1])
        return last

    def _made_anew(self, account: BatchAccount) -> BatchQueuePlan:
        """The plan of a queue without files, whose records ascend: all of it comes from the log."""
        first = next(iter(account.pending.chunks()))
        low, many = int(first["base_offset"][0]), len(account.pending)
        spans = tuple(_offset_spans(account.pending.chunks()))
        return BatchQueuePlan(
            account.queue, account.held, low, account.end, 0, spans=((0, many),), units=account.pending, written=spans
        )

    # --- records and units that disagree ------------------------------------------------------------------------------

    def _work(self, account: BatchAccount) -> _Work:
        import numpy as np

        held = account.held
        matched = held.read(self._disk, account.start, account.start + account.matched)
        rows = _joined([matched, *account.pending.chunks()])
        numbers = [np.zeros(0, dtype=np.int64)]
        units: list[NDArray[np.void]] = []
        for file in held.files:
            end = file.first + min(file.size // BATCH_UNIT_SIZE, held.file_units)
            for low in range(file.first, end, CHUNK):
                some = held.read(self._disk, low, min(low + CHUNK, end))
                at = np.flatnonzero(valid_units(some))
                numbers.append(at + low)
                units.append(some[at])
        all_units = _joined(units)
        return _Work(account, rows, np.concatenate(numbers), all_units, _are_right(rows, all_units))

    def _headers(self, works: list[_Work]) -> None:
        """Records whose header and properties say different queue offsets: which of both continues its queue's?"""
        by_queue = {work.account.queue: work for work in works}
        for queue, physical, named in self._comparer.headers:
            work = by_queue.get(queue)
            if work is None:
                account = self._comparer.accounts[queue]
                base = self._base_of(account, physical)
            else:
                at = _find(work.rows, physical)
                if at is None:
                    continue
                base = int(work.rows[at]["base_offset"])
                size = int(work.rows[at]["batch_size"])
                if not fits_known(work.rows, at, base, size) and fits_known(work.rows, at, named, size) and named >= 0:
                    work.rows[at]["base_offset"] = named
                    self._tell(f"{queue} #{named}: the record at {physical} names queue offset {base} (INNER_BASE)")
                    continue
                work.right = _are_right(work.rows, work.held)
            if base is not None:
                self.requeued.append(Requeued(physical, queue.queue_id, base))
                self._tell(f"{queue} #{base}: the record at {physical} names queue offset {named}")

    def _base_of(self, account: BatchAccount, physical: int) -> int | None:
        for chunk in self._rows_of(account):
            at = _find(chunk, physical)
            if at is not None:
                return int(chunk[at]["base_offset"])
        return None

    def _rows_of(self, account: BatchAccount) -> Iterator[NDArray[np.void]]:
        end = account.start + account.matched
        for low in range(account.start, end, CHUNK):
            yield account.held.read(self._disk, low, min(low + CHUNK, end))
        yield from account.pending.chunks()

    def _live(self, work: _Work) -> NDArray[np.bool_]:
        """Units on disk that name a place in the log, and are not right."""
        import numpy as np

        physical = work.held["physical_offset"].astype(np.int64)
        live: NDArray[np.bool_] = ~work.right & (physical >= self._log.begin) & (physical < self._log.end)
        return live

    def _doubtful(self, work: _Work) -> NDArray[np.intp]:
        """Of those, the ones where the log is not lost."""
        import numpy as np

        return np.flatnonzero(self._live(work) & ~self._log.lost.mask(work.held["physical_offset"].astype(np.int64)))

    def _disagreements(self, works: list[_Work]) -> None:
        import numpy as np

        for work in works:
            lost = self._log.lost.mask(work.held["physical_offset"].astype(np.int64))
            self._keep_lost(work, np.flatnonzero(self._live(work) & lost))
            doubtful = self._doubtful(work)
            if len(doubtful) > FEW * max(1, int(work.right.sum())):
                continue
            for i in doubtful.tolist():
                if self._is_between_right_ones(work, i):
                    self._decide(works, work, i)

    def _keep_lost(self, work: _Work, at: NDArray[np.intp]) -> None:
        """Units of a lost range that are in order stay."""
        import numpy as np

        if not len(at):
            return
        units = work.held[at]
        physical = units["physical_offset"].astype(np.int64)
        units = units[~out_of_order(physical)]
        base = units["base_offset"].astype(np.int64)
        ends = base + units["batch_size"]
        after = np.searchsorted(
            work.rows["physical_offset"].astype(np.int64), units["physical_offset"].astype(np.int64)
        )
        known_base = np.concatenate([work.rows["base_offset"].astype(np.int64), [np.iinfo(np.int64).max]])
        known_end = np.concatenate([[0], work.rows["base_offset"].astype(np.int64) + work.rows["batch_size"]])
        fits = (known_end[after] <= base) & (ends <= known_base[after])
        units, base, ends = units[fits], base[fits], ends[fits]
        if len(units) and (base >= np.concatenate([[0], ends[:-1]])).all():
            work.kept.append(units)

    def _is_between_right_ones(self, work: _Work, i: int) -> bool:
        """Whether the units beside one are right, and its queue offsets continue theirs: of the last, before it alone.

        Queues without any other unit don't tell.
        """
        unit, numbers = work.held[i], work.numbers
        base, end = int(unit["base_offset"]), int(unit["base_offset"]) + int(unit["batch_size"])
        has_before = i > 0 and int(numbers[i - 1]) == int(numbers[i]) - 1
        has_after = i + 1 < len(numbers) and int(numbers[i + 1]) == int(numbers[i]) + 1
        if has_before:
            before = work.held[i - 1]
            is_known = bool(work.right[i - 1]) or int(before["physical_offset"]) < self._log.begin
            if not is_known or int(before["base_offset"]) + int(before["batch_size"]) != base:
                return False
            if int(before["physical_offset"]) >= int(unit["physical_offset"]):
                return False
        if has_after:
            after = work.held[i + 1]
            if not work.right[i + 1] or int(after["base_offset"]) != end:
                return False
            if int(after["physical_offset"]) <= int(unit["physical_offset"]):
                return False
        return has_before or (has_after and int(numbers[i]) == work.account.held.first)

    def _decide(self, works: list[_Work], work: _Work, i: int) -> None:
        """A unit between right ones: its record says another place, or is none of a batch queue."""
        unit, queue = work.held[i].copy(), work.account.queue
        physical, base = int(unit["physical_offset"]), int(unit["base_offset"])
        is_last = i + 1 == len(work.numbers)
        claim = next((_Claim(one, at) for one in works if (at := _find(one.rows, physical)) is not None), None)
        if claim is None:
            if self._log.record_size(physical) == int(unit["size"]) and not self._is_right_elsewhere(physical):
                work.kept.append(work.held[i : i + 1])
                self._tell(f"{queue} #{base}: the record at {physical} is not a message of this queue")
            return
        row = claim.work.rows[claim.at]
        size = int(row["batch_size"])
        has_room = fits_known(claim.work.rows, claim.at, int(row["base_offset"]), size)
        if int(row["size"]) != int(unit["size"]) or (is_last and has_room):
            return
        if claim.work is work and has_room:
            return
        place = {name: row[name] for name in ("tags_code", "store_timestamp", "compacted_offset", "reserved")}
        for name, value in place.items():
            unit[name] = value
        claim.work.dropped.append(physical)
        work.kept.append(_one(unit))
        own = claim.work.account.queue
        self._tell(f"{queue} #{base}: the record at {physical} names {own} #{int(row['base_offset'])}")
        if own.topic == queue.topic and (own != queue or int(row["base_offset"]) != base):
            self.requeued.append(Requeued(physical, queue.queue_id, base))

    def _is_right_elsewhere(self, physical: int) -> bool:
        """Whether a queue without any damage has this record."""
        return any(
            _find(chunk, physical) is not None
            for account in self._comparer.accounts.values()
            for chunk in self._rows_of(account)
            if len(chunk) and int(chunk["physical_offset"][0]) <= physical <= int(chunk["physical_offset"][-1])
        )

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _plan(self, work: _Work) -> BatchQueuePlan:
        import numpy as np

        account, held = work.account, work.account.held
        rows = work.rows
        if work.dropped:
            rows = rows[~np.isin(rows["physical_offset"].astype(np.int64), work.dropped)]
        if work.kept:
            rows = _joined([rows, *work.kept])
            rows = rows[np.argsort(rows["physical_offset"].astype(np.int64), kind="stable")]
        rows = rows[rows["base_offset"] >= 0]
        in_order = ascending(rows, _are_right(work.held, rows))
        for at in np.flatnonzero(~in_order)[:NAMED].tolist():
            row = rows[at]
            self._tell(
                f"{account.queue} #{int(row['base_offset'])}: {counted(int(row['batch_size']), 'message')} of the "
                f"record at {int(row['physical_offset'])} in no queue: others hold these queue offsets, or the topic "
                "was deleted after it and created anew"
            )
        rows = rows[in_order]
        expired, first = self._front(work, rows)
        units = _joined([expired, rows])
        end = first + len(units)
        files = BatchFiles(held)
        spans = _differing(held.read(self._disk, first, end), units, first)
        spool = Spool(batch_unit_dtype())
        for low, high in spans:
            spool.add(units[low - first : high - first])
        low = first - files.whole_before(self._disk, first, self._log.begin)
        last = held.extent(self._disk)
        kept_end = -(-end // held.file_units) * held.file_units
        cleared = (end, min(last, kept_end)) if end < min(last, kept_end) and end > low else (0, 0)
        resized = files.to_resize(low, end)  # one may end inside of a unit: its bytes are no zeros
        if cleared != (0, 0) and not resized and not held.read(self._disk, *cleared).view(np.uint8).any():
            cleared = (0, 0)
        maximum = int(units[-1]["base_offset"]) + int(units[-1]["batch_size"]) if len(units) else 0
        cut, cut_end = self._after_the_log_end(work)
        missing = rows[~_are_right(work.held, rows)]
        seen = work.held[work.right]
        old = int(seen[-1]["base_offset"]) + int(seen[-1]["batch_size"]) if len(seen) else 0
        return BatchQueuePlan(
            queue=account.queue,
            held=held,
            min_offset=int(rows[0]["base_offset"]) if len(rows) else maximum,
            max_offset=maximum,
            old_extent=max(old, cut_end),
            units_cut=cut,
            cut_end=cut_end,
            spans=spans,
            units=spool,
            written=tuple(_offset_spans([missing])),
            cleared=cleared,
            resized=resized,
            removed=files.to_remove(self._disk, low, end),
        )

    def _front(self, work: _Work, rows: NDArray[np.void]) -> tuple[NDArray[np.void], int]:
        """Units of expired records that stay before those of the log, in the first file of both; and the first number.

        Where they are not all there, the others close up: where a unit lies says nothing.
        """
        import numpy as np

        held = work.account.held
        at = self._first_number(work, rows)
        start = at - at % held.file_units
        here = (work.numbers >= start) & (work.numbers < at)
        here &= work.held["physical_offset"].astype(np.int64) < self._log.begin
        expired = work.held[here]
        bound = int(rows[0]["base_offset"]) if len(rows) else np.iinfo(np.int64).max
        ends = expired["base_offset"].astype(np.int64) + expired["batch_size"]
        expired = expired[ends <= bound]
        expired = expired[~out_of_order(expired["physical_offset"].astype(np.int64))]
        expired = expired[ascending(expired, np.zeros(len(expired), dtype=np.bool_))]
        return expired, start

    def _first_number(self, work: _Work, rows: NDArray[np.void]) -> int:
        """The number of the unit that the first of these has: as most of those on disk say, where the log that has
        expired had room for as many records.
        """
        import numpy as np

        held, most = work.account.held, self._log.begin // MIN_RECORD_SIZE
        if len(rows):
            order = np.searchsorted(
                rows["physical_offset"].astype(np.int64), work.held["physical_offset"].astype(np.int64)
            )
            order = np.minimum(order, len(rows) - 1)
            same = rows[order] == work.held
            shifts, counts = np.unique((work.numbers - order)[same], return_counts=True)
            may_be = (shifts >= 0) & (shifts <= most)
            if may_be.any():
                return int(shifts[may_be][np.argmax(counts[may_be])])
        expired = work.held["physical_offset"].astype(np.int64) < self._log.begin
        run = held.first
        for number, is_expired in zip(work.numbers.tolist(), expired.tolist(), strict=True):
            if number != run or not is_expired:
                break
            run += 1
        return run if run <= most else 0

    def _after_the_log_end(self, work: _Work) -> tuple[int, int]:
        """Units that point after the log's end: how many, and the queue offset after the last one's messages."""
        import numpy as np

        ends = work.held["physical_offset"].astype(np.int64) + work.held["size"]
        after = work.held[ends > self._log.end]
        if not len(after):
            return 0, 0
        return len(after), int(after[-1]["base_offset"]) + int(after[-1]["batch_size"])

    def _tell(self, text: str) -> None:
        if len(self.findings) < 10 * NAMED:
            self.findings.append(text)


def _are_right(rows: NDArray[np.void], units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of `units` are among `rows`, byte for byte: bool[len(units)]."""
    import numpy as np

    if not len(rows) or not len(units):
        return np.zeros(len(units), dtype=np.bool_)
    order = np.argsort(rows["physical_offset"].astype(np.int64), kind="stable")
    places = rows["physical_offset"].astype(np.int64)[order]
    at = np.searchsorted(places, units["physical_offset"].astype(np.int64))
    at = np.minimum(at, len(rows) - 1)
    right: NDArray[np.bool_] = rows[order[at]] == units
    return right


def _joined(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Units one after the other, their bytes as they are: numpy would turn them round."""
    import numpy as np

    dtype = batch_unit_dtype()
    return np.concatenate([np.zeros(0, dtype=dtype), *parts], dtype=dtype)


def _find(rows: NDArray[np.void], physical: int) -> int | None:
    """Where the unit of a record is among these, which ascend by physical offset."""
    import numpy as np

    at = int(np.searchsorted(rows["physical_offset"].astype(np.int64), physical))
    return at if at < len(rows) and int(rows[at]["physical_offset"]) == physical else None


def _one(unit: np.void) -> NDArray[np.void]:
    import numpy as np

    out = np.zeros(1, dtype=batch_unit_dtype())
    out[0] = unit
    return out


def _differing(before: NDArray[np.void], units: NDArray[np.void], first: int) -> tuple[tuple[int, int], ...]:
    """Numbers [start, end) of units that are not what is there, those in a row together; the first has `first`."""
    import numpy as np

    at = np.flatnonzero(before != units)
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    return tuple((first + int(run[0]), first + int(run[-1]) + 1) for run in runs if len(run))


def _offset_spans(chunks: Iterator[NDArray[np.void]] | list[NDArray[np.void]]) -> Iterator[tuple[int, int]]:
    """Queue offsets [start, end) of units, those that follow each other together."""
    import numpy as np

    open_start = open_end = -1
    for units in chunks:
        base = units["base_offset"].astype(np.int64)
        ends = base + units["batch_size"]
        cuts = np.flatnonzero(base[1:] != ends[:-1]) + 1
        for run in np.split(np.arange(len(units)), cuts):
            if not len(run):
                continue
            start, end = int(base[run[0]]), int(ends[run[-1]])
            if start != open_end:
                if open_start < open_end:
                    yield open_start, open_end
                open_start = start
            open_end = end
    if open_start < open_end:
        yield open_start, open_end
