"""The planning of a recovery, a bridge or a cut: one reading of the log, compared with queues and index."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.format import names
from engine.inspect.check.fresh_rows import FreshRows
from engine.inspect.check.queue_compare import QueueComparer
from engine.inspect.check.stale_tail import StaleJudge
from engine.inspect.store.intervals import Intervals, union
from engine.inspect.store.known import known_of
from engine.inspect.store.layout import Layout
from engine.inspect.store.losses import Losses
from engine.inspect.store.odd import AHEAD, PASSED_OVER, QUEUE_EMPTY, WITHOUT_LOG, OddFile, moved_by_hand
from engine.inspect.store.queue_rows import HeldRows, row_dtype
from engine.inspect.store.repairs import manifest_ranges, repairs, unfinished
from engine.inspect.store.spool import Spool
from engine.inspect.store.survey import StoreFiles
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Damage, Event, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.log.state import QueueState, StoreState
from engine.repair.recover.batch_compare import BatchComparer
from engine.repair.recover.batch_disk import batches_held, with_batch_queues
from engine.repair.recover.batch_settle import BatchLog, SettledBatches, settle_batches
from engine.repair.recover.bridge import Bridge
from engine.repair.recover.coverage import Coverage
from engine.repair.recover.demanded_crc import demanded_crc_refusal
from engine.repair.recover.ext_cut import plan_ext_cuts
from engine.repair.recover.ext_dangling import mark_dangling
from engine.repair.recover.index_plan import IndexPlanner
from engine.repair.recover.log_end import (
    DamagedRange,
    LogEnd,
    Mode,
    damage_between,
    gaps_before,
    next_start,
    offset_after_time,
    read_to_end,
    read_until,
    segment_before,
)
from engine.repair.recover.log_tail import tail_of
from engine.repair.recover.memory import Derived, PlannedReading, Remembered, ScanCheckpoint
from engine.repair.recover.noticed import Noticed
from engine.repair.recover.plan import LogPlan, RecoverPlan
from engine.repair.recover.planned_rows import PlannedRows
from engine.repair.recover.problems import CHECKPOINT_AHEAD, of_a_trap, of_queues_and_index, of_the_log
from engine.repair.recover.queue_leftover import LogAfter
from engine.repair.recover.queue_plan import LostRows
from engine.repair.recover.queue_settle import Settler
from engine.repair.recover.read_start import ReadStart
from engine.repair.recover.refusal import Choices, refusal
from engine.repair.recover.rocksdb_aside import plan_rocksdb
from engine.repair.recover.shifted import is_shifted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.repair.recover.progress import Progress
    from engine.repair.recover.queue_plan import QueuePlan, Requeued
    from engine.repair.recover.shifted import Shift


class Planner:
    """One run of planning: the parts that read the log together."""

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        layout: Layout,
        log: ClosedLog,
        memory: ScanCheckpoint,
        bridges: tuple[Bridge, ...],
        taken: tuple[Bridge, ...],
        shifts: tuple[Shift, ...],
        choices: Choices,
        progress: Progress,
    ) -> None:
        self._disk = disk
        self._files = files
        self._layout = layout
        self._log = log
        self._bridges = bridges
        self._taken = taken
        self._put_back = shifts
        self._done = repairs(disk, files.root)
        self._killed = unfinished(self._done)
        self._begun = manifest_ranges(self._killed, "bridged")
        self._choices = choices
        self._progress = progress
        config = files.config
        self._numbers = QueueNumbers()
        rules = DeriveRules.of(config, files.newer.batch_topics)
        self._deriver = Deriver(rules, self._numbers)
        self._batches: BatchComparer | None = None
        if files.newer.batch_topics:
            held = batches_held(disk, files)
            self._batches = BatchComparer(disk, held, self._numbers, files.log[0].offset if files.log else 0)
            self._files = files = with_batch_queues(disk, files, held)
        # Units of light queues are judged as such, also where nobody said that the broker has them.
        self._judging = Deriver(replace(rules, multi_dispatch=True, lmq=True), self._numbers)
        # With the extension more than the unit is written.
        self._fresh = None if config.enable_consume_queue_ext else FreshRows()
        self._comparer = QueueComparer(
            disk,
            files.queues,
            self._numbers,
            config.mapped_file_size_consume_queue,
            fresh=self._fresh,
            held=HeldRows(),
        )
        self._dangling = mark_dangling(disk, files, self._comparer.accounts.values())
        self._scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        self._for_one = Scanner(  # kernels are for many records
            log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size, kernels=False
        )
        self._reading = PlannedReading(self._scanner, self._deriver, memory)
        self._to: int | None = None
        self._noticed = Noticed(files, self._for_one)
        self._damage_before: list[DamagedRange] = []
        self._damage_ahead: list[DamagedRange] = []  # which the next start would read, and this one need not
        self._undecided: list[str] = []
        self._starts = ReadStart(disk, files, log, self._scanner, self._for_one, self._comparer)

    def after_time(self, timestamp: int) -> int | None:
        """Physical offset of the first record stored later (ms)."""
        return offset_after_time(self._log, self._scanner, timestamp)

    def plan(self, mode: Mode, to: int | None = None) -> RecoverPlan:
        """Read and compare all that there is to be: the plan. `to`: the log end (physical), where it is given.

        The log is compared from where a normal start of the recovered store begins, if that is before the start.
        """
        files = self._files
        self._to = to
        start = self._start(mode) if files.log else None
        if start is not None and to is not None:
            start = min(start, segment_before(files, to), key=lambda segment: segment.offset)
        index = IndexPlanner(self._disk, files, self._reading, mode, whole=self._choices.whole)
        end = LogEnd(0)
        ahead = 0
        if start is not None:
            self._progress.expect(files.log[-1].end - start.offset)
            one_unit_each = not self._deriver.rules.multi_dispatch and self._batches is None
            ahead = min(start.offset, self._starts.after(self._choices.ahead))
            coverage = Coverage(
                self._comparer,
                self._log,
                self._scanner,
                self._feed_before,
                self._units_at,
                until=ahead,
                one_unit_each=one_unit_each,
            )
            for segment in files.log:
                if segment.end <= ahead:
                    coverage.check(segment)
                elif segment.end <= start.offset:
                    self._read_ahead(segment)
            self._damage_before.sort(key=lambda damage_range: damage_range.offset)

            index.begin(start.offset)

            def feed(event: RecordBatch | Remembered, derived: Derived | None) -> None:
                self._feed(event, derived, index)

            if to is None:
                stale = StaleJudge(self._disk, files, self._scanner, start.offset, self._comparer.rows)
                end = read_to_end(
                    files, self._reading, start, stale, self._is_shifted, cut=self._choices.cut, feed=feed
                )
                self._undecided = stale.findings
            else:
                end = read_until(files, self._reading, start, to, feed=feed)
            end.gaps[:0] = gaps_before(files, start)
        return self._assemble(mode, start, ahead, end, index)

    def _read_ahead(self, segment: Segment) -> None:
        """Compare what the next start would: it finds nothing to mend then. Damage there is none of this recovery's."""
        for event in self._scanner.scan(segment.offset, segment.end, resume=True):
            if isinstance(event, RecordBatch):
                self._compare(event, self._reading.derive(event))
            elif isinstance(event, Damage):
                self._damage_ahead.append(
                    DamagedRange(event.offset, event.length, event.segment.path, event.reason.value)
                )

    def _is_shifted(self, damage: Damage) -> bool:
        return is_shifted(self._disk, damage.segment, self._files.config.max_message_size, damage.offset)

    def _start(self, mode: Mode) -> Segment:
        """Where reading starts: where Apache would, or with the first bridge or short file before; or the first."""
        if self._choices.whole:
            return self._files.log[0]
        moved = (shift.segment.offset for shift in self._put_back)
        bridged = (bridge.offset for bridge in (*self._bridges, *self._taken))
        return self._starts.of(mode, (*bridged, *moved, *(low for low, _ in self._begun)))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _feed_before(self, event: Event) -> None:
        """The log before the start: read only where the queues leave holes."""
        if isinstance(event, RecordBatch):
            self._compare(event, self._reading.derive(event))
        elif isinstance(event, Damage):
            self._damage_before.append(DamagedRange(event.offset, event.length, event.segment.path, event.reason.value))

    def _feed(self, event: RecordBatch | Remembered, derived: Derived | None, index: IndexPlanner) -> None:
        if isinstance(event, RecordBatch):
            assert derived is not None
            self._compare(event, derived)
            index.feed(derived.keys)
        else:
            self._noticed.remembered(event)
            for one in event.derived():
                self._feed_units(one)
                index.feed(one.keys)
        self._progress(event.end - event.start)

    def _compare(self, batch: RecordBatch, derived: Derived) -> None:
        self._feed_units(derived)
        self._noticed.batch(batch, derived.unplaced)

    def _feed_units(self, derived: Derived) -> None:
        self._comparer.feed(derived.units)
        if self._batches is not None:
            self._batches.feed(derived.batches)

    def _units_at(self, offset: int) -> tuple[int, list[tuple[int, int]]] | None:
        """Of the sound record at a physical offset: its size, and each (queue number, queue offset) that it names."""
        for event in self._for_one.scan(offset, offset + 1):
            if isinstance(event, RecordBatch):
                units, _ = self._judging.derive(event)
                places = zip(units.queue.tolist(), units.queue_offset.tolist(), strict=True)
                return event.end - event.start, list(places)
        return None

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _assemble(
        self, mode: Mode, start: Segment | None, compared_from: int, end: LogEnd, index: IndexPlanner
    ) -> RecoverPlan:
        files = self._files
        log_min = files.log[0].offset if files.log else 0
        lost = Intervals()
        for damage_range in (*self._damage_before, *self._damage_ahead, *end.gaps):
            lost.add(damage_range.offset, damage_range.offset + damage_range.length)
        self._comparer.flush()
        known = known_of(self._done)
        mended = union(known.accepted, known.bridged)
        bridged = LostRows(self._bridges, [(a, b, self._scanner.sound_size(a)) for a, b in self._begun])
        losses = Losses(self._log, end.end, union(lost, bridged.places, mended), files.config.max_message_size)
        settler = Settler(self._comparer, LogAfter(log_min, end.end, lost, bridged, losses, self._units_at))
        queues = tuple(settler.settle()) if files.log or self._choices.log_is_gone else ()
        batches = self._settle_batches(log_min, end, lost, losses)
        index_plan = index.plan(end.end, union(lost, bridged.places, mended))
        if not files.log and self._choices.log_is_gone and files.config.message_index_enable:
            every = tuple(one.name for one in files.index)
            index_plan = replace(index_plan, enabled=True, removed=every, names_after=())
        log_plan = self._log_plan(start, log_min, end, (*settler.requeued, *batches.requeued))
        writes = PlannedRows(settler.writes, self._fresh)
        units_cut = sum(queue.units_cut for queue in queues) + sum(queue.units_cut for queue in batches.plans)
        rocksdb = plan_rocksdb(self._disk, files, queues, writes, log_changes=log_plan.mended)
        if rocksdb.alone:
            queues, writes = (), PlannedRows(Spool(row_dtype()), None)
        empty = self._empty_ones(queues)
        stuck = tuple(odd for odd in empty if not odd.movable)
        fresh = [
            s
            for s in (*end.gaps, *self._damage_before)
            if known.accepted.overlap(s.offset, s.offset + s.length) < s.length
        ]
        traps = self._traps(compared_from, end) if start is not None else []
        trap = traps[0] if traps else None
        next_read = 0 if start is None else next_start(files, end)
        if trap is not None or rocksdb.starts_again:
            next_read = min(next_read, log_plan.read_from)
        ahead = trap is None and log_plan.read_from <= log_min and self._noticed.is_after(files.checkpoint)
        return RecoverPlan(
            files=files,
            unfinished=bool(self._killed),
            mode=mode,
            log=log_plan,
            queues=queues,
            batches=batches.plans,
            writes=writes,
            index=index_plan,
            set_aside=(*self._set_aside(queues), *(odd for odd in empty if odd.movable), *rocksdb.aside),
            problems=(
                *of_the_log(files, self._layout, log_plan, self._noticed, self._undecided),
                *of_queues_and_index(
                    self._disk,
                    files,
                    (*queues, *batches.plans),
                    end,
                    dangling=self._dangling,
                    unplaced=self._noticed.unplaced,
                    keys=index_plan.keys_put,
                ),
                *([] if trap is None else [of_a_trap(trap)]),
                *self._comparer.findings,
                *settler.findings,
                *batches.findings,
                *index_plan.findings,
                *([CHECKPOINT_AHEAD] if ahead else []),
            ),
            checkpoint_ahead=ahead,
            refusal=rocksdb.refusal
            or refusal(
                self._disk,
                replace(files, odd=(*files.odd, *stuck)),
                self._layout,
                self._choices,
                end,
                fresh,
                self._noticed.moved,
                units_cut,
            )
            or demanded_crc_refusal(files, self._log, self._scanner, next_read, end.end),
            layout=self._layout,
            accepted=tuple((s.offset, s.length) for s in fresh) if self._choices.cut or self._choices.bridge else (),
            trap=trap,
            to=self._to,
            next_start=0 if start is None else next_start(files, end),
            compared_from=compared_from,
            starts_again=rocksdb.starts_again,
            ext=() if self._to is None else plan_ext_cuts(self._disk, files, queues),
            state=StoreState(
                min_offset=log_min if files.log else -1,
                max_offset=end.end,
                queues=tuple(QueueState(q.queue, q.min_offset, q.max_offset, q.max_physical_offset) for q in queues),
                index_files=index_plan.names_after,
                trap=traps[-1].offset if traps else None,
            ),
        )

    def _settle_batches(self, log_min: int, end: LogEnd, lost: Intervals, losses: Losses) -> SettledBatches:
        if self._batches is None or not (self._files.log or self._choices.log_is_gone):
            return SettledBatches((), (), ())
        self._batches.flush()
        log = BatchLog(log_min, end.end, lost, self._for_one, losses)
        return settle_batches(self._disk, self._batches, log)

    def _traps(self, compared_from: int, end: LogEnd) -> list[DamagedRange]:
        """Damage before the start that a normal start of the recovered store would read, and cut the log at."""
        first = next_start(self._files, end)
        ahead = [damage_range for damage_range in self._damage_ahead if damage_range.offset >= first]
        return damage_between(self._scanner, first, compared_from) + ahead

    def _set_aside(self, queues: tuple[QueuePlan, ...]) -> tuple[OddFile, ...]:
        """Strays; and what a broker passes over, when it stands where a topic's directory has to be."""
        base = os.path.join(self._files.root, names.CONSUMEQUEUE)
        topics = {os.path.join(base, queue.queue.topic) for queue in queues if queue.changed}
        strays = (odd for odd in self._files.odd if odd.movable or (odd.code == PASSED_OVER and odd.path in topics))
        return (*strays, *self._layout.aside)

    def _empty_ones(self, queues: tuple[QueuePlan, ...]) -> list[OddFile]:
        """Files of queues that begin after them; and where the log is gone, those without a unit."""
        empty = [(file, AHEAD) for queue in queues for file in queue.ahead]
        if not self._files.log:
            idle = {queue.queue for queue in queues if not queue.changed}
            empty += [(file, WITHOUT_LOG) for one in self._files.queues if one.queue in idle for file in one.files]
        return [
            moved_by_hand(
                self._disk, self._files.root, OddFile(file.path, file.size, why, movable=True, code=QUEUE_EMPTY)
            )
            for file, why in empty
        ]

    def _log_plan(self, start: Segment | None, log_min: int, end: LogEnd, requeued: Iterable[Requeued]) -> LogPlan:
        """`find_bridges` reads the whole log, whatever recovery starts with."""
        tail = tail_of(self._files, self._log, end)
        in_log = (one for one in requeued if one.physical_offset < end.end)
        return LogPlan(
            start_file=None if start is None else start.path,
            min_offset=log_min if self._files.log else -1,
            end=end,
            damage_before=tuple(self._damage_before),
            tail=tail.zeroed,
            removed=tail.removed,
            bytes_cut=tail.bytes_cut,
            mends=tuple(offset for offset in self._noticed.mends if offset < end.end),
            bridges=self._bridges,
            taken=self._taken,
            shifts=self._put_back,
            read_from=log_min if start is None or self._choices.bridge else start.offset,
            blank=tail.blank,
            requeued=tuple(sorted(one for one in in_log if self._noticed.is_in_time(one.physical_offset))),
        )
