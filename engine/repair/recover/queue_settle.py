"""Settle what `QueueComparer` left open, queue by queue: which units stay, which are written, where each queue ends."""

from __future__ import annotations

import os
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

from engine.format.quantities import counted
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.check.queue_compare import QueueComparer, real_rows
from engine.inspect.store.intervals import union
from engine.inspect.store.queue_rows import QueueRows, row_dtype
from engine.inspect.store.spool import Spool
from engine.repair.recover.queue_at_work import QueueAtWork, runs, table_of
from engine.repair.recover.queue_leftover import Leftovers
from engine.repair.recover.queue_plan import QueuePlan, Renumbered, Requeued

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.listing import SegmentFile
    from engine.inspect.check.queue_compare import QueueAccount
    from engine.inspect.store.intervals import Intervals
    from engine.repair.recover.queue_leftover import LogAfter

MAX_FILL = 1 << 22
"""Units that one jump of queue offsets may fill; a larger one is a damaged field."""
NAMED = 20
"""Findings of one kind that are named one by one."""


class Settler:
    """Turns the accounts of a `QueueComparer` into plans.

    Args:
        comparer: what was compared; its chunk must have been flushed.
        log: the log after the repair.
    """

    def __init__(self, comparer: QueueComparer, log: LogAfter) -> None:
        self._comparer = comparer
        self._log = log
        self._leftovers = Leftovers(comparer, log)
        self._queues: dict[int, QueueAtWork] = {}
        self.findings: list[str] = []
        self.requeued: list[Requeued] = []
        self.writes = Spool(row_dtype())

    def settle(self) -> list[QueuePlan]:
        """The plan of every queue, by topic and queue id; `writes` holds the units to write, in log order."""
        self._judge_leftovers()
        for number, account in self._comparer.accounts.items():
            self._state(number).known = union(account.right)
        for fresh in self._comparer.fresh():
            state = self._state(fresh.number)
            state.written.add(fresh.start, fresh.end)
            state.first_place, state.last_physical_end = fresh.first_place, fresh.end_place
            state.last, state.top = fresh.end - 1, (fresh.end, fresh.end_place)
        self._place_all()
        plans = [self._plan(number) for number in self._comparer.accounts]
        return sorted(plans, key=lambda plan: plan.queue)

    def _state(self, number: int) -> QueueAtWork:
        state = self._queues.get(number)
        if state is None:
            account = self._comparer.account(number)
            state = self._queues[number] = QueueAtWork(account, account.right)
        return state

    # --- units without a record --------------------------------------------------------------------------------------

    def _judge_leftovers(self) -> None:
        """Units that no record of their queue vouches for: those that stay, those of bridged messages."""
        leftovers = self._leftovers
        leftovers.judge()
        for gone in leftovers.gone:
            self._state(gone.number).lost.add_many(gone.offsets)
        many_of: Counter[tuple[int, str]] = Counter()
        for number, offset, physical, claimed, decided in leftovers.kept:
            if decided:
                self.requeued.append(Requeued(physical, self._comparer.numbers[number].queue_id, offset))
            if claimed is not None:  # the unit that it has is its only one
                self._state(claimed[0]).elsewhere.add(physical)
            what = "has another queue offset" if claimed and claimed[0] == number else "is not a message of this queue"
            many_of[number, what] += 1
            if many_of[number, what] <= NAMED:
                self.findings.append(f"{self._comparer.numbers[number]} #{offset}: the record at {physical} {what}")
        for (number, what), many in many_of.items():
            if many > NAMED:
                self.findings.append(f"{self._comparer.numbers[number]}: {many - NAMED} more: the record {what}")

    # --- records without a unit --------------------------------------------------------------------------------------

    def _place_all(self) -> None:
        self._find_restarts()
        for number, group in self._pending_groups():
            self._place(number, group)

    def _pending_groups(self) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The pending records in log order, those of one queue together: (queue number, records)."""
        import numpy as np

        for chunk in self._comparer.pending.chunks():
            steps = np.diff(chunk["queue"])
            ordered = chunk  # the comparer adds them queue by queue: most chunks are in order
            if (steps < 0).any():
                ordered = chunk[np.argsort(chunk["queue"], kind="stable")]
                steps = np.diff(ordered["queue"])
            bounds = np.flatnonzero(steps) + 1
            for group in np.split(ordered, bounds):
                if len(group):
                    yield int(group["queue"][0]), group

    def _find_restarts(self) -> None:
        """Where the offsets of a queue without units begin anew: its topic was deleted and made again (or damaged).

        Several records in a row must say so; one alone, where the queue continues, is a damaged field. What was
        there before, from that queue offset on, is no message of the queue any more: the newest life counts, as it does
        for a broker that kept its queues.
        """
        tops: dict[int, int] = {}
        for number, group in self._pending_groups():
            if not self._comparer.account(number).right:
                row_runs = list(runs(group))
                for run, following in zip_longest(row_runs, row_runs[1:]):
                    start, end = int(run["queue_offset"][0]), int(run["queue_offset"][-1]) + 1
                    top = tops.get(number, 0)
                    then = top if following is None else int(following["queue_offset"][0])
                    if following is not None and len(run) == 1 and start != top and then in (top, top + 1):
                        continue
                    if len(run) > 1 and 0 <= start < top:
                        self._state(number).restarts.append((int(run["physical_offset"][0]), start))
                        tops[number] = end
                    else:
                        tops[number] = max(top, end)

    def _place(self, number: int, group: NDArray[np.void]) -> None:
        """Give the pending records of one queue their units."""
        import numpy as np

        state = self._state(number)
        if state.elsewhere:
            group = group[~np.isin(group["physical_offset"], list(state.elsewhere))]
        for physical, start in state.restarts:
            earlier = (group["physical_offset"] < physical) & (group["queue_offset"] >= start)
            if earlier.any():
                self.findings.append(
                    f"{self._comparer.numbers[number]} #{start}: queue offsets restart at the record at {physical}; "
                    f"{counted(int(earlier.sum()), 'record')} before it in no queue"
                )
                group = group[~earlier]
        for run in runs(group):
            for part in self._parts(state, run):
                self._place_run(state, number, part, len(run))

    def _parts(self, state: QueueAtWork, run: NDArray[np.void]) -> list[NDArray[np.void]]:
        """A run, cut where others hold its queue offsets rightly, if a part of it can have its own."""
        import numpy as np

        held = state.known.mask(run["queue_offset"])
        if not held.any() or held.all():
            return [run]
        parts = np.split(run, np.flatnonzero(np.diff(held)) + 1)
        free = [part for part in parts if int(part["queue_offset"][0]) not in state.known]
        may_be = (
            self._precedes_later_rows(state, int(part["physical_offset"][0]), int(part["queue_offset"][-1]) + 1)
            for part in free
        )
        return parts if any(may_be) else [run]

    def _place_run(self, state: QueueAtWork, number: int, run: NDArray[np.void], many: int) -> None:
        """Place records whose queue offsets follow one another, of `many` that do: then it is no flipped field."""
        start, end = int(run["queue_offset"][0]), int(run["queue_offset"][-1]) + 1
        physical = int(run["physical_offset"][0])
        follows = start - 1 in state.known or start - 1 in state.written
        free = start >= 0 and not state.known.overlap(start, end) and not state.written.overlap(start, end)
        free = free and start <= physical // MIN_RECORD_SIZE and self._precedes_later_rows(state, physical, end)
        sure = follows or not (state.known or state.written) or self._leftovers.is_vouched_for(physical)
        if not (free and sure):
            expected, after = self._expected(state, physical)
            queue = self._comparer.numbers[number]
            if not free or (expected is not None and not self._may_jump(start, expected, after, run, many)):
                if many > 1 or expected is None or expected in state.known or expected in state.written:
                    self.findings.append(
                        f"{queue} #{start}: {counted(len(run), 'record')} from {physical} on: queue offsets that "
                        "others hold, or invalid ones"
                    )
                    return
                self.findings.append(f"{queue} #{expected}: the record at {physical} names queue offset {start}")
                state.renumbered.append(Renumbered(physical, start, expected))
                named = self._log.units_at(physical)
                if named is not None and len(named[1]) == 1:
                    self.requeued.append(Requeued(physical, queue.queue_id, expected))
                run = run.copy()
                run["queue_offset"] = start = expected
                end = start + 1
            elif expected is not None and start > expected:
                self.findings.append(f"{queue} #{expected} to #{start - 1}: no record for these queue offsets")
        if not state.written:
            state.first_place = physical
        state.written.add(start, end)
        state.last, state.last_physical_end = end - 1, int(run["physical_offset"][-1]) + int(run["size"][-1])
        state.top = max(state.top, (end, state.last_physical_end))
        self.writes.add(run)

    def _precedes_later_rows(self, state: QueueAtWork, physical: int, end: int) -> bool:
        """Whether units of records after `physical` have queue offsets from `end` on: never an older message after."""
        import numpy as np

        if state.account.rows is None:
            return True
        offsets, physicals, _ = self._table_of(state)
        at = int(np.searchsorted(physicals, physical, side="right"))
        return at == len(offsets) or int(offsets[at]) >= end

    def _table_of(self, state: QueueAtWork) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        if state.table is None:
            state.table = table_of(state.account)
        return state.table

    def _expected(self, state: QueueAtWork, physical: int) -> tuple[int | None, int]:
        """The queue offset that a record at `physical` should have: after the nearest unit before it in the log.

        Returns:
            (None, −1) when there is no such unit; else the offset, and where that unit's record ends (physical).
        """
        import numpy as np

        best: tuple[int | None, int] = (None, -1)
        if state.last is not None and state.last_physical_end <= physical:
            best = (state.last + 1, state.last_physical_end)
        if state.account.rows is not None:
            offsets, physicals, sizes = self._table_of(state)
            at = int(np.searchsorted(physicals, physical, side="left")) - 1
            if at >= 0 and int(physicals[at]) + int(sizes[at]) > best[1]:
                best = (int(offsets[at]) + 1, int(physicals[at]) + int(sizes[at]))
        return best

    def _may_jump(self, start: int, expected: int, after: int, run: NDArray[np.void], many: int) -> bool:
        """Whether queue offsets may go from `expected` to `start` (rule 16), or whether the field is damaged.

        Messages that were lost in between took at least their smallest record each. Without a lost range only a jump
        that holds for several records, or isn't one flipped bit, is believed.
        """
        if start == expected:
            return True
        if start < expected:
            return False
        jump = start - expected
        place = int(run["physical_offset"][0])
        lost = self._log.lost.overlap(after, place) + self._log.bridged.places.overlap(after, place)
        if jump <= lost // self._least(int(run["queue"][0])):
            return True
        return jump <= MAX_FILL and (many > 1 or (start ^ expected).bit_count() > 1)

    def _least(self, number: int) -> int:
        """Bytes that a record of a queue takes at least."""
        return MIN_RECORD_SIZE + len(os.fsencode(self._comparer.numbers[number].topic))

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _plan(self, number: int) -> QueuePlan:
        state = self._state(number)
        account = state.account
        rows = account.rows
        end = max(account.right.end, state.written.end)
        whole = union(account.right, state.written) if state.written else account.right
        extent = rows.extent if rows is not None else 0
        cut, cut_end = (
            self._after_the_log_end(rows, max(end, rows.first)) if rows is not None and extent > end else (0, 0)
        )
        first, front, inert = whole.start, (0, 0), None
        if self._log.bridged:
            known = rows is not None or self._log.begin > 0
            place = None if known else state.first_place
            front, inert = self._log.bridged.front(state.lost, whole, place, self._least(number))
            end = max(whole.end, self._lost_end(state, whole)) if whole or inert is not None else 0
        if state.lost and not end:
            self.findings.append(f"{self._comparer.numbers[number]}: every message is lost; its queue offsets restart")
        fills = tuple(whole.missing(first, end)) if whole else ()
        begin = front[0] if front[0] < front[1] else first
        return QueuePlan(
            queue=self._comparer.numbers[number],
            number=number,
            min_offset=begin if begin < first else self._min_offset(state),
            max_offset=end,
            max_physical_offset=sum(inert) if inert else self._max_physical(state, whole.end),
            old_extent=extent if rows is not None and rows.files else 0,
            units_cut=cut,
            cut_end=cut_end,
            units_rebuilt=state.written.total(),
            fills=fills,
            from_after=tuple(
                (low, high)
                for low, high in fills
                if high in whole and self._is_lost(account, low - 1) and not self._is_lost(account, high)
            ),
            pre_blanks=self._pre_blanks(rows, begin),
            ahead=self._ahead(rows, begin) if whole and rows is not None else (),
            written=tuple(state.written),
            front=front,
            inert=inert,
            renumbered=tuple(state.renumbered),
        )

    def _after_the_log_end(self, rows: QueueRows, start: int) -> tuple[int, int]:
        """Units from a queue offset on that point after the log end: how many, and after the last one."""
        cut = last = 0
        for piece in rows.pieces(start, rows.extent):
            offsets, units = real_rows(rows, *piece)
            after = offsets[units["physical_offset"] + units["size"] > self._log.end]
            cut, last = cut + len(after), int(after[-1]) + 1 if len(after) else last
        return cut, last

    def _ahead(self, rows: QueueRows, begin: int) -> tuple[SegmentFile, ...]:
        """Files before the one in which the queue begins: no unit in them is the queue's."""
        first = (begin - begin % self._comparer.file_rows) * UNIT_SIZE
        return tuple(file for file in rows.files if file.offset + file.size <= first)

    def _is_lost(self, account: QueueAccount, at: int) -> bool:
        """Whether a unit on disk shows a message that the log lacks."""
        if account.rows is None or at not in account.right:
            return False
        return int(account.rows.read(at, at + 1)[0]["physical_offset"]) in self._log.lost

    def _lost_end(self, state: QueueAtWork, whole: Intervals) -> int:
        """Queue offset after the last lost message.

        Units of another queue's file name bridged places, too: none counts after a unit that shows a sound message, and
        no more than the damage after the queue's last message can have held.
        """
        if not whole:
            return state.lost.end
        end = whole.end
        for low, high in state.lost:
            if high > end:
                if low > end and self._shows_a_message(state.account, end, low):
                    break
                end = high
        wanted = end - whole.end
        return whole.end + min(wanted, self._log.losses.most(self._max_physical(state, whole.end), wanted))

    def _shows_a_message(self, account: QueueAccount, start: int, end: int) -> bool:
        """Whether one of the units [start, end) shows a sound record."""
        if account.rows is None:
            return False
        for piece in account.rows.pieces(start, end):
            _, units = real_rows(account.rows, *piece)
            for row in units.tolist():
                seen = self._log.units_at(row[0])
                if seen is not None and seen[0] == row[1]:
                    return True
        return False

    def _pre_blanks(self, rows: QueueRows | None, first: int) -> tuple[int, int]:
        """What of the first file must be filled before its first unit: a zero there ends the queue for Apache."""
        import numpy as np

        start = first - first % self._comparer.file_rows
        if rows is not None and first > start:
            units = rows.read(start, first)
            model = np.frombuffer(PRE_BLANK.encode(), dtype=units.dtype)
            if (units == model).all():
                return first, first
        return start, first

    def _min_offset(self, state: QueueAtWork) -> int:
        """First real unit at or after the log's first byte; 0 without one (ConsumeQueue#correctMinOffset)."""
        import numpy as np

        candidates = [state.written.start] if state.written else []
        rows = state.account.rows
        if rows is not None:
            for start, end in state.account.right:
                first = rows.message_at(start)  # mostly that is it: of many queues not each unit is judged
                if first is not None and first[0] >= self._log.begin:
                    return min((start, *candidates))
                for piece in rows.pieces(start, end):
                    offsets, units = real_rows(rows, *piece)
                    live = np.flatnonzero(units["physical_offset"] >= self._log.begin)
                    if len(live):
                        candidates.append(int(offsets[live[0]]))
                        return min(candidates)
        return min(candidates, default=0)

    def _max_physical(self, state: QueueAtWork, end: int) -> int:
        if not end:
            return -1
        if end == state.top[0]:
            return state.top[1]
        assert state.account.rows is not None
        place, size = state.account.rows.place_of(end - 1)
        return place + size
