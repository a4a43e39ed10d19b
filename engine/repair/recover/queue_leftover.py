"""Units that no record of their queue vouches for: which of them stay, and which give way.

A unit names a record (its physical offset and size); the record names a queue and a queue offset. Both agree for every
unit that was accounted for. For the others the rule is (RECOVERY.md, "When record and unit disagree"):

1. A record of the log claims the unit's place, and lies between its adjacent records in the log: the unit gives way.
2. The unit points at what has expired (before every message that is there) or is lost, at a bridge's record, or
   repeats an adjacent unit (a filled gap; after a queue's last message only as many as may have been lost there): it
   stays, unless it is misplaced (queue_misplaced.py).
3. No sound record of the unit's size is where it points: it gives way.
4. The record has its own unit, at the place that it names: this one is a copy, and gives way.
5. The place that the record names is a hole in its queue: a record before it and one after are there. The record goes
   there, the unit gives way.
6. The units beside it are right, and the record lies between theirs; or it is alone, and the queue can't have, or
   has not reached, the queue offset that its record names: the record's header is damaged, where no CRC tells. The unit
   stays, and the record gets no other.
7. Else the header counts, and the unit gives way.

Memory is bounded: units are read in pieces, records that wait for a unit come from their spool, queue by queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from engine.dataclass import dataclass
from engine.format.numbers import LONG_MAX
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.check.queue_compare import QueueAccount, QueueComparer, real_rows, repeats_adjacent
from engine.inspect.store.queue_rows import QueueRows
from engine.repair.recover.queue_misplaced import Misplaced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.losses import Losses
    from engine.repair.recover.queue_plan import LostRows

FEW = 8
"""So many units next to each other whose records name other places are no flipped bits any more."""
MOST_CLAIMS = 1 << 22
"""Records waiting for a unit that are held in memory together, 16 bytes each."""
_KEY_BITS = 40
"""Queue offsets below 2^40 are looked up by one number with their queue's."""

UnitsAt: TypeAlias = "Callable[[int], tuple[int, list[tuple[int, int]]] | None]"
"""Of the sound record at a physical offset: its size, and each (queue number, queue offset) that it names."""


@dataclass(frozen=True, slots=True)
class LogAfter:
    """The log after the repair, as queues are held against it: physical offsets of its first byte and of its end.

    `lost`: ranges between the two that hold no sound record; `bridged`: other such, over which the repair writes.
    `losses`: how many messages were lost where. `units_at`: tells a record.
    """

    begin: int
    end: int
    lost: Intervals
    bridged: LostRows
    losses: Losses
    units_at: UnitsAt


class Judged(NamedTuple):
    """Units of one queue that were judged: queue offsets and the physical offsets that they name, n of each."""

    number: int
    offsets: NDArray[np.int64]
    physical: NDArray[np.int64]


class KeptRow(NamedTuple):
    """A unit that stays though its record names another place: `claimed`, as (queue number, queue offset).

    `decided`: the record is this queue offset's, as nothing else can be: its queueId or queueOffset is damaged.
    """

    number: int
    offset: int
    physical: int
    claimed: tuple[int, int] | None
    decided: bool = False


class _Open(NamedTuple):
    """Units that point at what may be a record: columns of one length.

    `low`, `high`: where the records of the right units before and after lie (physical).
    """

    number: NDArray[np.int64]
    offset: NDArray[np.int64]
    physical: NDArray[np.int64]
    size: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    def taken(self, which: NDArray[np.bool_]) -> _Open:
        return _Open(*(column[which] for column in self))


class Leftovers:
    """Judges the leftover units of all queues of a `QueueComparer`.

    Args:
        comparer: what was compared; units that stay are added to its accounts.
        log: the log after the repair.
    """

    def __init__(self, comparer: QueueComparer, log: LogAfter) -> None:
        self._comparer = comparer
        self._log = log
        self._open: list[_Open] = []
        self.gone: list[Judged] = []
        self.kept: list[KeptRow] = []
        self._vouched: NDArray[np.int64] | None = None
        self._misplaced = Misplaced(comparer, log)

    def judge(self) -> None:
        """Add every unit that stays to its queue's account.

        `gone` are then the units of bridged messages; `kept` those whose record names another place than theirs, and
        that keep it all the same.
        """
        accounts = self._comparer.accounts
        waiting = [n for n, a in accounts.items() if a.rows is not None and a.pending]
        for number, account in accounts.items():
            if account.rows is not None and not account.pending:
                self._look(number, account, None)
        for number, claims in self._claims(waiting):
            self._look(number, accounts[number], claims)
        if self._open:
            self._comparer.pour_fresh()
            self._settle(_Open(*_joined(self._open)))

    def is_vouched_for(self, physical: int) -> bool:
        """Whether a unit in another queue's file names this record, and has just the queue offset that it names: then
        that is not damaged, and the file is the record's queue's.
        """
        import numpy as np

        if self._vouched is None:
            return False
        at = int(np.searchsorted(self._vouched, physical))
        return at < len(self._vouched) and int(self._vouched[at]) == physical

    # --- one queue's units --------------------------------------------------------------------------------------------

    def _look(self, number: int, account: QueueAccount, claims: NDArray[np.int64] | None) -> None:
        """Judge what the units of one queue tell; `claims`: int64[n, 2], queue and physical offset of its records."""
        import numpy as np

        rows, log = account.rows, self._log
        assert rows is not None
        if claims is not None:
            claims = claims[claims[:, 0].argsort(kind="stable")]
        for gap_start, gap_end in list(account.right.missing(rows.first, rows.extent)):
            low, high = _beside(account, rows, gap_start, gap_end)
            filled = gap_end
            if low >= 0 and gap_end == rows.extent:
                filled = gap_start + log.losses.most(low, gap_end - gap_start)
            claimed: NDArray[np.int64] | None = None
            if claims is not None:
                first, after = claims[:, 0].searchsorted((gap_start, gap_end))
                near = claims[first:after]
                claimed = near[(near[:, 1] > low) & (near[:, 1] < high), 0]
            live = gap_end  # after a message that is there none has expired
            if low >= log.begin:
                live = gap_start
            elif claimed is not None and len(claimed):
                live = int(claimed.min())
            stays: list[NDArray[np.int64]] = []
            for start, end in rows.pieces(gap_start, gap_end):
                offsets, units = real_rows(rows, start, end)
                physical = units["physical_offset"].astype(np.int64)
                gone, lost = log.bridged.places.mask(physical), log.lost.mask(physical)
                free = ~self._misplaced.mask(number, account, offsets, physical, gone | lost, low, high)
                if claimed is not None and len(claimed):
                    free &= ~np.isin(offsets, claimed)
                if not free.all():
                    offsets, units = offsets[free], units[free]
                    physical, gone, lost = physical[free], gone[free], lost[free]
                if gone.any():
                    self.gone.append(Judged(number, offsets[gone], physical[gone]))
                expired = (physical < log.begin) & (offsets < live)
                unsure = expired | (repeats_adjacent(account, units, gap_start, gap_end) & (offsets < filled))
                unsure = self._misplaced.without_wrong_files(number, account, offsets, unsure)
                stay = unsure | (lost & (physical < log.end))
                stay &= ~gone
                stays.append(offsets[stay])
                asked = np.flatnonzero(~gone & ~stay & (physical < log.end))
                if len(asked):
                    same = np.ones(len(asked), dtype=np.int64)
                    size = units["size"][asked].astype(np.int64)
                    self._open.append(
                        _Open(same * number, offsets[asked], physical[asked], size, same * low, same * high)
                    )
            for offsets in stays:
                account.right.add_many(offsets)

    def _claims(self, numbers: list[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The records that wait for a unit, by queue: int64[n, 2], queue offset and physical offset."""
        import numpy as np

        for group in self._groups(numbers):
            parts: dict[int, list[NDArray[np.int64]]] = {number: [] for number in group}
            for chunk in self._comparer.pending.chunks():
                for number in np.unique(chunk["queue"]).tolist():
                    if number in parts:
                        mine = chunk[chunk["queue"] == number]
                        both = [mine["queue_offset"], mine["physical_offset"]]
                        parts[number].append(np.stack(both, axis=1).astype(np.int64))
            for number in group:
                yield number, np.concatenate(parts.pop(number))

    def _groups(self, numbers: list[int]) -> Iterator[list[int]]:
        """The queues, so many at once that their records fit into memory."""
        group: list[int] = []
        many = 0
        for number in numbers:
            pending = self._comparer.accounts[number].pending
            if group and many + pending > MOST_CLAIMS:
                yield group
                group, many = [], 0
            group.append(number)
            many += pending
        if group:
            yield group

    # --- units that point at records of other places ------------------------------------------------------------------

    def _settle(self, rows: _Open) -> None:
        import numpy as np

        claimed = self._claimed_by(rows)
        self._vouched = np.unique(rows.physical[(claimed[:, 1] == rows.offset) & (claimed[:, 0] != rows.number)])
        alone: list[int] = []
        for i in np.flatnonzero(claimed[:, 0] < 0).tolist():
            record = self._log.units_at(int(rows.physical[i]))
            if record is None or record[0] != int(rows.size[i]):
                continue
            number, offset, physical = (int(column[i]) for column in rows[:3])
            of_it = (number, offset) in record[1]  # of a light queue, or a second one, that the settings don't tell
            of_none = not record[1] and self._log.losses.is_inert(physical)  # a queue that lost every message
            if of_it or of_none:
                alone.append(i)
            elif self._stays_without_claim(rows, i, record[1]):
                alone.append(i)
                self.kept.append(KeptRow(number, offset, physical, None))
        for i in alone:
            self._comparer.account(int(rows.number[i])).right.add(int(rows.offset[i]), int(rows.offset[i]) + 1)
        left = claimed[:, 0] >= 0
        left &= (claimed[:, 0] != rows.number) | (claimed[:, 1] != rows.offset)
        left &= ~self._are_holes(claimed, rows, left)
        left &= (rows.low < rows.physical) & (rows.physical < rows.high)
        self._keep_beside_right_ones(rows.taken(left), claimed[left])

    def _claimed_by(self, rows: _Open) -> NDArray[np.int64]:
        """What the records claim that wait for a unit and are pointed at: int64[n, 2], queue and offset; −1: none.

        A record of several queues claims a place in each: a unit is compared with the one of its own topic.
        """
        import numpy as np

        numbers = self._comparer.numbers
        topics = np.array([numbers[number].topic for number in rows.number.tolist()], dtype=object)
        claimed = np.full((len(rows.number), 2), -1, dtype=np.int64)
        order = np.argsort(rows.physical, kind="stable")
        physical = rows.physical[order]
        for chunk in self._comparer.pending.chunks():
            low = np.searchsorted(physical, chunk["physical_offset"], side="left")
            high = np.searchsorted(physical, chunk["physical_offset"], side="right")
            for i in np.flatnonzero(low < high).tolist():
                at = order[int(low[i]) : int(high[i])]
                number = int(chunk["queue"][i])
                fits = (claimed[at, 0] < 0) | (topics[at] == numbers[number].topic)
                at = at[fits & (rows.size[at] == int(chunk["size"][i]))]
                claimed[at] = number, int(chunk["queue_offset"][i])
        return claimed

    def _stays_without_claim(self, rows: _Open, i: int, named: list[tuple[int, int]]) -> bool:
        """Whether a unit stays whose record waits for none, and names other places: none of them is its own unit's."""
        accounts, place = self._comparer.accounts, int(rows.offset[i])
        own = any(number in accounts and offset in accounts[number].right for number, offset in named)
        if own or not int(rows.low[i]) <= int(rows.physical[i]) <= int(rows.high[i]):
            return False
        number = int(rows.number[i])
        return not self._misplaced.lies_among_anothers(number, self._comparer.account(number), place, place)

    def _are_holes(self, claimed: NDArray[np.int64], rows: _Open, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the claimed places are free, with records before them (or at a queue's start) and after them; or
        have a unit that can't stand there beside this one: two units of a queue were swapped.
        """
        import numpy as np

        holes = np.zeros(len(claimed), dtype=np.bool_)
        at = np.flatnonzero(asked)
        beside = self._pending_at(
            (int(claimed[i, 0]), int(claimed[i, 1]) + step) for i in at.tolist() for step in (-1, 1)
        )
        for i in at.tolist():
            number, offset, place = int(claimed[i, 0]), int(claimed[i, 1]), int(rows.physical[i])
            account = self._comparer.accounts[number]
            if offset < 0 or offset in account.right:
                continue
            if number == int(rows.number[i]) and self._is_out_of_order(account, offset, int(rows.offset[i]), place):
                holes[i] = True
                continue
            before = self._place_of(account, number, offset - 1, beside)
            after = self._place_of(account, number, offset + 1, beside)
            follows = offset == 0 or (before is not None and before < place)
            holes[i] = follows and after is not None and after > place
        return holes

    def _is_out_of_order(self, account: QueueAccount, offset: int, other: int, place: int) -> bool:
        """Whether the unit at `offset` names a place on the wrong side of `place`, which the unit at `other` names."""
        rows = account.rows
        if rows is None or not rows.first <= offset < rows.extent:
            return False
        _, units = real_rows(rows, offset, offset + 1)
        return len(units) > 0 and (int(units[0]["physical_offset"]) < place) != (offset < other)

    def _place_of(
        self, account: QueueAccount, number: int, offset: int, pending: dict[tuple[int, int], int]
    ) -> int | None:
        """Where the message of a queue offset lies (physical), None when nobody knows one."""
        if offset in account.right:
            assert account.rows is not None
            return int(account.rows.read(offset, offset + 1)[0]["physical_offset"])
        return pending.get((number, offset))

    def _pending_at(self, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Physical offsets of records that wait for one of these units (queue number, queue offset)."""
        import numpy as np

        limit = 1 << _KEY_BITS
        wanted = np.array([q << _KEY_BITS | o for q, o in places if 0 <= o < limit], dtype=np.int64)
        pending: dict[tuple[int, int], int] = {}
        if len(wanted):
            wanted.sort()
            for chunk in self._comparer.pending.chunks():
                offsets = chunk["queue_offset"]
                keys = (chunk["queue"].astype(np.int64) << _KEY_BITS) | np.clip(offsets, 0, limit - 1)
                at = np.searchsorted(wanted, keys).clip(max=len(wanted) - 1)
                for i in np.flatnonzero((wanted[at] == keys) & (offsets >= 0) & (offsets < limit)).tolist():
                    pending[int(chunk["queue"][i]), int(offsets[i])] = int(chunk["physical_offset"][i])
        return pending

    def _keep_beside_right_ones(self, rows: _Open, claimed: NDArray[np.int64]) -> None:
        """Keep those in a row with one that is right (6)."""
        import numpy as np

        if not len(rows.number):
            return
        order = np.lexsort((rows.offset, rows.number))
        number, offset = rows.number[order], rows.offset[order]
        breaks = np.flatnonzero((np.diff(number) != 0) | (np.diff(offset) != 1)) + 1
        for group in np.split(order, breaks):
            account = self._comparer.account(int(rows.number[group[0]]))
            start, end = int(rows.offset[group[0]]), int(rows.offset[group[-1]]) + 1
            before, after = self._is_live(account, start - 1), self._is_live(account, end)
            beside = before or after
            if not beside and not self._is_the_only_place(rows, claimed, group):
                continue
            first = start == 0 and self._log.begin == 0  # all that was ever put is there
            between = (first or before) and after
            account.right.add(start, end)
            for i in group.tolist():
                own = (int(claimed[i, 0]), int(claimed[i, 1]))
                place = (int(rows.number[i]), int(rows.offset[i]))
                sure = beside or not self._log.begin  # else the file may have another one's name
                decided = sure and len(group) < FEW and self._is_decided(rows, i, place, own, between=between)
                self.kept.append(KeptRow(*place, int(rows.physical[i]), own, decided))

    def _is_live(self, account: QueueAccount, at: int) -> bool:
        """Whether a right unit is of a message that has not expired: others can't be compared, and prove nothing."""
        if account.rows is None or at not in account.right:
            return False
        return int(account.rows.read(at, at + 1)[0]["physical_offset"]) >= self._log.begin

    def _is_the_only_place(self, rows: _Open, claimed: NDArray[np.int64], group: NDArray[np.intp]) -> bool:
        """Whether a single unit's record names a queue offset that its queue can't have, or has not reached: no record
        beside it is there, either.
        """
        i = int(group[0])
        number, offset = (int(one) for one in claimed[i])
        if len(group) > 1 or number != int(rows.number[i]):
            return False
        account, physical = self._comparer.account(number), int(rows.physical[i])
        assert account.rows is not None
        if not 0 <= offset <= physical // MIN_RECORD_SIZE:
            return True
        if self._log.begin or self._log.losses.between(0, physical):  # nobody knows what the queue had before
            return False
        beside = [(number, offset - 1), (number, offset + 1)]
        return (
            offset >= account.rows.extent
            and not any(at in account.right for _, at in beside)
            and not self._pending_at(beside)
        )

    def _is_decided(
        self, rows: _Open, i: int, place: tuple[int, int], claimed: tuple[int, int], *, between: bool
    ) -> bool:
        """Whether the record of a unit that stays can be no other's.

        Queue offsets follow each other: where nothing was lost between the records of the units beside it, one of the
        records there is this unit's, and no other names its place. At a queue's end, or where something was lost, the
        place that the record names must be another's, or one that its queue has not reached.
        """
        log, comparer = self._log, self._comparer
        physical, (number, offset) = int(rows.physical[i]), claimed
        if comparer.numbers[number].topic != comparer.numbers[place[0]].topic:
            return False
        record = log.units_at(physical)
        if record is None or len(record[1]) != 1:  # the header names the first of several queues only
            return False
        if between and not log.losses.between(max(0, int(rows.low[i])), int(rows.high[i])):
            return True
        other = comparer.account(number).right
        return offset < 0 or offset in other or offset > other.end


def _beside(account: QueueAccount, rows: QueueRows, start: int, end: int) -> tuple[int, int]:
    """Where the records of the right units before and after units [start, end) lie (physical): −1 and the largest
    number where there is none.
    """
    low, high = -1, LONG_MAX
    if start - 1 in account.right:
        low = int(rows.read(start - 1, start)[0]["physical_offset"])
    if end in account.right:
        high = int(rows.read(end, end + 1)[0]["physical_offset"])
    return low, high


def _joined(parts: list[_Open]) -> list[NDArray[np.int64]]:
    import numpy as np

    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]
