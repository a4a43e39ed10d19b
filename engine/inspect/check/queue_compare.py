"""Every consume queue against the log: which units are right, which are missing, which don't match the log.

The log is fed in order, as units derived from its records. A unit of a queue is *accounted for* when it says what the
record with that queue offset derives to. What is left over on either side is settled in `finish`:

- A record without its unit is *pending*. It is not rebuilt when the queue holds it at another offset (then the
  record's queueOffset is damaged), nor, in normal mode, when another queue holds it (then its topic or queueId is;
  Apache dispatches nothing again there). Else its unit is written, to its own queue offset (RECOVERY.md, rules 5, 16).
- A unit without its record stays when it points into a range of the log that is lost or expired, or repeats an
  adjacent one (a filled gap). Else it is wrong: replaced by what belongs there, or cut after the last right one.

Memory is bounded: records are compared in chunks, pending ones are spooled, units are read in pieces.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.format import names
from engine.format.quantities import counted
from engine.format.queue_unit import EXT_ADDRESS_MAX, UNIT_SIZE
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.queue_rows import QueueRows, as_rows, as_units, is_real, row_dtype
from engine.inspect.store.spool import Spool
from engine.log.derive import Units, concatenated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.check.fresh_rows import FreshQueue, FreshRows
    from engine.inspect.store.queue_rows import HeldRows
    from engine.inspect.store.survey import QueueFiles
    from engine.log.derive import QueueNumbers, TopicQueue

CHUNK_UNITS = 1 << 18
"""Units that are compared at once; twice as many where each queue would have few of them: its file is opened anew."""
MANY_QUEUES = 1000
SECTOR = 512
"""Bytes that a disk writes at once."""

Observer: TypeAlias = "Callable[[TopicQueue, NDArray[np.void], NDArray[np.void]], None]"


@dataclass(slots=True)
class QueueAccount:
    """What is known of one queue: its units on disk, those accounted for, how many records still want a unit.

    `dangling`: units whose extension unit is gone; they are never right.
    """

    rows: QueueRows | None
    right: Intervals = field(default_factory=Intervals)
    pending: int = 0
    dangling: Intervals = field(default_factory=Intervals)


class QueueComparer:
    """Takes units in log order and keeps account of every queue.

    Args:
        disk: how files are reached.
        queues: the queues' files.
        numbers: how units name their queue.
        queue_file_size: setting mappedFileSizeConsumeQueue (bytes).
        observe: judges the tags codes instead: gets the queue, units on disk, and derived ones (row_dtype) of the same
            messages. A unit counts then as right whatever its tags code is.
        fresh: takes the units of queues that have none on disk, as long as it can; they are not pending then.
        held: what bounds the units that are held in memory, where nobody writes the queues meanwhile.
    """

    def __init__(
        self,
        disk: Disk,
        queues: tuple[QueueFiles, ...],
        numbers: QueueNumbers,
        queue_file_size: int,
        observe: Observer | None = None,
        fresh: FreshRows | None = None,
        held: HeldRows | None = None,
    ) -> None:
        self.numbers = numbers
        self._observe = observe
        self._fresh = fresh
        self.file_rows = queue_file_size // UNIT_SIZE
        self.accounts: dict[int, QueueAccount] = {}
        for files in queues:
            rows = QueueRows(disk, files, held) if files.files else None
            self.accounts[numbers.number(files.queue)] = QueueAccount(rows)
        self._with_rows = {number for number, account in self.accounts.items() if account.rows is not None}
        self.pending = Spool(row_dtype())
        self.findings: list[str] = []
        self._chunk: list[Units] = []
        self._chunk_rows = 0
        self._chunk_units = CHUNK_UNITS * (2 if len(self._with_rows) > MANY_QUEUES else 1)

    @property
    def rows(self) -> dict[TopicQueue, QueueRows]:
        """The units on disk of each queue that has any."""
        return {account.rows.queue: account.rows for account in self.accounts.values() if account.rows is not None}

    def account(self, number: int) -> QueueAccount:
        """The account of a queue, a new one for a queue without a directory."""
        account = self.accounts.get(number)
        if account is None:
            account = self.accounts[number] = QueueAccount(None)
        return account

    def feed(self, units: Units) -> None:
        """Compare the units of one batch (perhaps later, together with others)."""
        if not len(units):
            return
        self._chunk.append(units)
        self._chunk_rows += len(units)
        if self._chunk_rows >= self._chunk_units:
            self.flush()

    def flush(self) -> None:
        """Compare what was fed so far."""
        import numpy as np

        if not self._chunk:
            return
        units = concatenated(self._chunk, Units)
        self._chunk, self._chunk_rows = [], 0
        if self._fresh is not None:
            taken = self._fresh.take(len(self.numbers), self._with_rows, units)
            for number in taken.queues:
                self.account(number)
            self._pour(taken.broken)
            if taken.left is None:
                return
            units = units.taken(taken.left)
        queues = units.queue
        small = int(queues.max()) < 1 << 16  # numpy counts 2-byte numbers instead of comparing them
        order = np.argsort(queues.astype(np.uint16) if small else queues, kind="stable")
        by_queue = np.empty(len(queues), dtype=row_dtype())
        for name in by_queue.dtype.names or ():
            by_queue[name] = getattr(units, name)[order]
        self._compare_queues(by_queue)

    def fresh(self) -> list[FreshQueue]:
        """The queues whose units were taken as fresh."""
        return [] if self._fresh is None else self._fresh.queues()

    def pour_fresh(self) -> None:
        """Have all units pending that were taken as fresh."""
        if self._fresh is not None:
            self._pour(queue.number for queue in self._fresh.queues())

    def _pour(self, numbers: Iterable[int]) -> None:
        assert self._fresh is not None
        for number in numbers:
            for start, units in self._fresh.pour(number):
                self._compare(number, as_rows(number, start, units))

    def _compare_queues(self, wanted: NDArray[np.void]) -> None:
        """Units of several queues, queue by queue. A queue that holds just their bytes is asked nothing else."""
        import numpy as np

        offsets = wanted["queue_offset"]
        cuts = np.flatnonzero(np.diff(wanted["queue"])) + 1
        steps = np.ones(len(wanted), dtype=np.int64)
        steps[1:] = np.diff(offsets)
        steps[cuts] = 1
        starts = np.concatenate(([0], cuts))
        jumps = np.add.reduceat(steps != 1, starts, dtype=np.int64)
        units = as_units(wanted)
        ends = [*cuts.tolist(), len(wanted)]
        numbers = wanted["queue"][starts].tolist()
        for number, start, end, jump in zip(numbers, starts.tolist(), ends, jumps.tolist(), strict=True):
            account = self.account(number)
            rows = None if jump or account.dangling or self._observe is not None else account.rows
            first = int(offsets[start])
            if rows is not None and rows.holds(first, units[start * UNIT_SIZE : end * UNIT_SIZE]):
                account.right.add(first, first + end - start)
            else:
                self._compare(number, wanted[start:end])

    def _compare(self, number: int, wanted: NDArray[np.void]) -> None:
        account = self.account(number)
        missing = wanted
        if account.rows is not None:
            right = self._right(account.rows, self.numbers[number], wanted)
            if account.dangling:
                right &= ~account.dangling.mask(wanted["queue_offset"])
            account.right.add_many(wanted["queue_offset"][right])
            missing = _those(wanted, ~right)
        if len(missing):
            account.pending += len(missing)
            self.pending.add(missing)

    def _right(self, rows: QueueRows, queue: TopicQueue, wanted: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which of the wanted units stand at their place."""
        import numpy as np

        offsets = wanted["queue_offset"]
        inside = (offsets >= rows.first) & (offsets < rows.extent)
        right = np.zeros(len(wanted), dtype=np.bool_)
        if not inside.any():
            return right
        low, high = int(offsets[inside].min()), int(offsets[inside].max()) + 1
        if high - low <= 4 * len(wanted) + 4096:
            units = rows.read(low, high)
            if high - low != len(wanted) or (np.diff(offsets) != 1).any():  # else they are those very units
                units = units[offsets[inside] - low]
        else:  # offsets that are far apart: damaged ones among them
            units = np.concatenate([rows.read(int(o), int(o) + 1) for o in offsets[inside]])
        want = _those(wanted, inside)
        same = (units["physical_offset"] == want["physical_offset"]) & (units["size"] == want["size"])
        if self._observe is not None:
            right[inside] = same
            self._observe(queue, _those(units, same), _those(want, same))
            return right
        right[inside] = same & ~lost_delivery_time(queue, units, want) & ~self._torn(offsets[inside], units, want)
        other = (
            same & right[inside] & (units["tags_code"] != want["tags_code"]) & (units["tags_code"] > EXT_ADDRESS_MAX)
        )
        if queue.topic != names.SCHEDULE_TOPIC and other.any():
            self.findings.append(
                f"{queue}: {counted(int(other.sum()), 'unit')} whose tags code does not match its record; kept"
            )
        return right

    def _torn(self, offsets: NDArray[np.int64], units: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.bool_]:
        """Units that a power cut has torn in their tags code: zeros after a sector's border, the rest is right."""
        import numpy as np

        border = SECTOR - offsets % self.file_rows * UNIT_SIZE % SECTOR  # bytes of the unit before the next sector
        lost = np.clip(UNIT_SIZE - border, 0, 8).astype(np.uint64)  # bytes of the tags code after it
        shift = np.minimum(lost * np.uint64(8), np.uint64(63))
        keep = np.where(lost == 8, np.uint64(0), np.uint64(2**64 - 1) << shift)
        left = wanted["tags_code"].astype(np.int64).view(np.uint64) & keep
        torn: NDArray[np.bool_] = (lost > 0) & (border >= UNIT_SIZE - 8)
        torn &= (units["tags_code"] != wanted["tags_code"]) & (
            units["tags_code"].astype(np.int64).view(np.uint64) == left
        )
        return torn


def _those(rows: NDArray[np.void], which: NDArray[np.bool_]) -> NDArray[np.void]:
    """`rows[which]`, without a copy where it is all of them."""
    return rows if which.all() else rows[which]


def lost_delivery_time(queue: TopicQueue, units: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.bool_]:
    """Units of delayed messages that carry a tag's hash: Apache's abnormal recovery wrote them (RECOVERY.md, rule 6).

    A delivery time that differs from ours, but lies after the store time, was computed with delay levels that we
    don't know of, and stands.
    """
    import numpy as np

    if queue.topic != names.SCHEDULE_TOPIC:
        return np.zeros(len(units), dtype=np.bool_)
    lost: NDArray[np.bool_] = (
        (units["tags_code"] != wanted["tags_code"])
        & (units["tags_code"] > EXT_ADDRESS_MAX)
        & (units["tags_code"] < wanted["store_timestamp"])
    )
    return lost


def real_rows(rows: QueueRows, start: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """What in [start, end) are units of messages: queue offsets int64[n], units unit_dtype()[n]."""
    import numpy as np

    units = rows.read(start, end)
    at = np.flatnonzero(is_real(units))
    return (at + start).astype(np.int64), units[at]


def repeats_adjacent(account: QueueAccount, units: NDArray[np.void], start: int, end: int) -> NDArray[np.bool_]:
    """Units that repeat the accounted unit before (or, at the queue's front, after) their range: filled gaps.

    All between them and that unit do: another one of the same bytes is a copy, and may be of any place.

    Args:
        account: the queue's.
        units: those of the range, or of a piece of it.
        start: queue offset where the range of units that are not accounted for starts.
        end: queue offset after it.
    """
    import numpy as np

    repeats = np.zeros(len(units), dtype=np.bool_)
    rows = account.rows
    assert rows is not None
    for at in (start - 1, end):
        if at in account.right:
            model = rows.read(at, at + 1)[0]
            same = (units["physical_offset"] == model["physical_offset"]) & (units["size"] == model["size"])
            towards = slice(None) if at < start else slice(None, None, -1)
            repeats |= np.logical_and.accumulate(same[towards])[towards]
    return repeats


def point_at_records(
    units: NDArray[np.void], asked: NDArray[np.bool_], record_size: Callable[[int], int]
) -> NDArray[np.bool_]:
    """Which of the units asked for point at a sound record of just their size."""
    import numpy as np

    pointing = np.zeros(len(units), dtype=np.bool_)
    for at in np.flatnonzero(asked):
        pointing[at] = record_size(int(units["physical_offset"][at])) == int(units["size"][at])
    return pointing
