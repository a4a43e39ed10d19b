"""The planning of a recovery, a bridge or a cut: one reading of the log, compared with queues and index."""

from __future__ import annotations

import bisect
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import RStoreError, StorageError
from engine.format import fastjson, names
from engine.format.checkpoint import SAFETY_MS
from engine.format.numbers import LONG_MAX
from engine.format.quantities import counted
from engine.format.record import BLANK_SIZE
from engine.inspect.check.fresh_rows import FreshRows
from engine.inspect.check.queue_compare import QueueComparer
from engine.inspect.check.stale_tail import StaleJudge
from engine.inspect.store.guessed_sizes import guessed_sizes
from engine.inspect.store.intervals import Intervals, union
from engine.inspect.store.known import known_of
from engine.inspect.store.layout import Layout
from engine.inspect.store.log_clock import store_time_at
from engine.inspect.store.losses import Losses
from engine.inspect.store.odd import AHEAD, PASSED_OVER, QUEUE_EMPTY, WITHOUT_LOG, OddFile, moved_by_hand
from engine.inspect.store.repairs import repairs, stretches, unfinished
from engine.inspect.store.survey import StoreFiles
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Damage, Event, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.log.state import NORMAL_FILES, QueueState, StoreState
from engine.repair.recover.bridge import Bridge
from engine.repair.recover.coverage import Coverage
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
    offset_behind_time,
    read_to_end,
    read_until,
    segment_before,
    start_segment,
)
from engine.repair.recover.memory import Derived, PlannedReading, Remembered, ScanCheckpoint
from engine.repair.recover.plan import LogPlan, RecoverPlan
from engine.repair.recover.planned_rows import PlannedRows
from engine.repair.recover.queue_leftover import LogAfter
from engine.repair.recover.queue_plan import LostRows
from engine.repair.recover.queue_settle import Settler
from engine.repair.recover.refusal import Choices, refusal
from engine.repair.recover.shifted import is_shifted

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.disk import Disk
    from engine.repair.recover.queue_plan import QueuePlan
    from engine.repair.recover.shifted import Shift

CHECKPOINT_AHEAD = "the checkpoint is later than every message: it is not one of this log"
_PIECE = 1 << 20
_SEGMENTS_BACK = 16
"""Segments before recovery's start whose first records are looked at, in case they are stale."""


class Progress:
    """Bytes of the log read, over all the passes."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell = tell
        self._done = 0
        self._total = 0

    def expect(self, length: int) -> None:
        """So much more will be read."""
        self._total += length

    def __call__(self, length: int) -> None:
        self._done += length
        if self._tell is not None:
            self._tell(self._done, self._total)


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
        self._begun = stretches(self._killed, "bridged")
        self._choices = choices
        self._progress = progress
        config = files.config
        self._numbers = QueueNumbers()
        self._deriver = Deriver(DeriveRules.of(config), self._numbers)
        # Units of light queues are judged as such, also where nobody said that the broker has them.
        self._judging = Deriver(replace(DeriveRules.of(config), multi_dispatch=True, lmq=True), self._numbers)
        # With the extension a row is more than its unit.
        self._fresh = None if config.enable_consume_queue_ext else FreshRows()
        self._comparer = QueueComparer(
            disk, files.queues, self._numbers, config.mapped_file_size_consume_queue, fresh=self._fresh
        )
        self._dangling = mark_dangling(disk, files, self._comparer.accounts.values())
        self._scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        self._for_one = Scanner(  # kernels are for many records
            log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size, kernels=False
        )
        self._reading = PlannedReading(self._scanner, self._deriver, memory)
        self._to: int | None = None
        self._mends: list[int] = []
        # by (segment, how far off their own offset is): how many records, and where the first lies
        self._shifts: dict[tuple[int, int], tuple[int, int]] = {}
        self._unplaced = 0
        self._newest = 0  # store time (ms) of the newest record that was read
        self._read: list[tuple[int, int]] = []  # of each batch its start, and its last record's store time (ms)
        self._damage_before: list[DamagedRange] = []
        self._damage_ahead: list[DamagedRange] = []  # which the next start would read, and this one need not
        self._undecided: list[str] = []
        self._start_after: int | None = None  # see _ahead

    def behind_time(self, timestamp: int) -> int | None:
        """Physical offset of the first record stored later (ms)."""
        return offset_behind_time(self._log, self._scanner, timestamp)

    def plan(self, mode: Mode, to: int | None = None) -> RecoverPlan:
        files = self._files
        self._to = to
        start = self._start(mode) if files.log else None
        if start is not None and to is not None:
            start = min(start, segment_before(files, to), key=lambda segment: segment.offset)
        index = IndexPlanner(self._disk, files, self._reading, mode, whole=self._choices.whole)
        end = LogEnd(0)
        if start is not None:
            self._progress.expect(files.log[-1].end - start.offset)
            one_unit_each = not self._deriver.rules.multi_dispatch
            ahead = self._ahead(start)
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
            self._damage_before.sort(key=lambda stretch: stretch.offset)

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
        return self._assemble(mode, start, end, index)

    def _ahead(self, start: Segment) -> int:
        """Physical offset from which the log is compared: where a normal start of the recovered store begins, if that
        is before `start`. As far as can be told before the log is read: files behind its end go, so that the third last
        is another one.
        """
        if self._start_after is None:
            log = self._files.log
            if self._choices.ahead is not None:
                after = next(s for s in log if s.end > self._choices.ahead)
            else:
                after = log[max(0, log.index(self._with_a_record(log[-1])) + 1 - NORMAL_FILES)]
            self._start_after = after.offset
        return min(start.offset, self._start_after)

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
        start = start_segment(self._files, self._log, mode)
        short = [segment.offset for segment in self._files.log if segment.short]
        moved = (shift.segment.offset for shift in self._put_back)
        written = (bridge.offset for bridge in (*self._bridges, *self._taken))
        bridged = [*written, *moved, *(low for low, _ in self._begun), *short]
        segments = [found for offset in bridged if (found := self._log.segment_at(offset)) is not None]
        start = min([start, *segments], key=lambda segment: segment.offset)
        return self._before_a_stale_tail(self._with_a_record(start))

    def _with_a_record(self, start: Segment) -> Segment:
        """The last segment up to `start` that begins with a sound record: a log that ends where reading starts is one
        whose next start reads the segment before, with whatever damage it has.
        """
        at = self._files.log.index(start)
        while at and not isinstance(next(self._for_one.scan(self._files.log[at].offset), None), RecordBatch):
            at -= 1
        return self._files.log[at]

    def _before_a_stale_tail(self, start: Segment) -> Segment:
        """The segment to read from so that a stale tail of whole segments is met where it begins, if that is near.

        Heads alone are read, and more only where store times go back between two of them.
        """
        log, last = self._files.log, self._files.log.index(start)
        firsts = {i: store_time_at(self._log, log[i].offset) for i in range(max(0, last - _SEGMENTS_BACK), last + 1)}
        for i in sorted(firsts)[1:]:
            if 0 < firsts[i] < firsts[i - 1]:
                judge = StaleJudge(self._disk, self._files, self._scanner, log[i - 1].offset, self._comparer.rows)
                if judge.judge(log[i].offset, firsts[i - 1]) is not None:
                    return log[i - 1]
        return start

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
            self._unplaced += event.unplaced
            # store times don't go back in a segment that is remembered
            self._newest = max(self._newest, event.last_store_timestamp)
            for units, keys in event.derived():
                self._comparer.feed(units)
                index.feed(keys)
        self._progress(event.end - event.start)

    def _compare(self, batch: RecordBatch, derived: Derived) -> None:
        self._unplaced += derived.unplaced
        self._comparer.feed(derived.units)
        self._read.append((batch.start, batch.last_store_timestamp))
        self._newest = max(self._newest, batch.newest_store_timestamp)
        size = self._files.config.mapped_file_size_commit_log
        for offset, stored, _ in batch.moved():
            self._mends.append(offset)
            key = (offset - offset % size, stored - offset)
            records, first = self._shifts.get(key, (0, offset))
            self._shifts[key] = records + 1, first

    def _in_time(self, offset: int) -> bool:
        """Whether a record was stored when the one in front of it, which was read, had been: else it may be stale."""
        if offset == self._files.log[0].offset:
            return True
        at = bisect.bisect_right(self._read, (offset, LONG_MAX)) - 1
        times = [self._read[at - 1][1]] if at > 0 else []
        for event in self._for_one.scan(self._read[at][0], offset + 1) if at >= 0 else ():
            if isinstance(event, RecordBatch):
                times += event.store_timestamps().tolist()
        return len(times) > 1 and times[-2] <= times[-1]

    def _units_at(self, offset: int) -> tuple[int, list[tuple[int, int]]] | None:
        """Of the sound record at a physical offset: its size, and each (queue number, queue offset) that it names."""
        for event in self._for_one.scan(offset, offset + 1):
            if isinstance(event, RecordBatch):
                units, _ = self._judging.derive(event)
                places = zip(units.queue.tolist(), units.queue_offset.tolist(), strict=True)
                return event.end - event.start, list(places)
        return None

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _assemble(self, mode: Mode, start: Segment | None, end: LogEnd, index: IndexPlanner) -> RecoverPlan:
        files = self._files
        log_min = files.log[0].offset if files.log else 0
        lost = Intervals()
        for stretch in (*self._damage_before, *self._damage_ahead, *end.gaps):
            lost.add(stretch.offset, stretch.offset + stretch.length)
        self._comparer.flush()
        known = known_of(self._done)
        mended = union(known.accepted, known.bridged)
        bridged = LostRows(self._bridges, [(a, b, self._scanner.sound_size(a)) for a, b in self._begun])
        losses = Losses(self._log, end.end, union(lost, bridged.places, mended), files.config.max_message_size)
        settler = Settler(self._comparer, LogAfter(log_min, end.end, lost, bridged, losses, self._units_at))
        queues = tuple(settler.settle()) if files.log or self._choices.log_is_gone else ()
        index_plan = index.plan(end.end, union(lost, bridged.places, mended))
        if not files.log and self._choices.log_is_gone and files.config.message_index_enable:
            every = tuple(one.name for one in files.index)
            index_plan = replace(index_plan, enabled=True, removed=every, names_after=())
        empty = self._empty_ones(queues)
        stuck = tuple(odd for odd in empty if not odd.movable)
        fresh = [
            s
            for s in (*end.gaps, *self._damage_before)
            if known.accepted.overlap(s.offset, s.offset + s.length) < s.length
        ]
        requeued = (r for r in settler.requeued if r.physical_offset < end.end and self._in_time(r.physical_offset))
        traps = self._traps(start, end) if start is not None else []
        log_plan = replace(self._log_plan(start, log_min, end), requeued=tuple(sorted(requeued)))
        trap = traps[0] if traps else None
        ahead = trap is None and log_plan.read_from <= log_min and self._is_ahead()
        return RecoverPlan(
            files=files,
            unfinished=bool(self._killed),
            mode=mode,
            log=log_plan,
            queues=queues,
            writes=PlannedRows(settler.writes, self._fresh),
            index=index_plan,
            set_aside=(*self._set_aside(queues), *(odd for odd in empty if odd.movable)),
            problems=self._problems(
                end, trap, queues, index_plan.keys_put, self._comparer.findings, settler.findings, index_plan.findings
            )
            + ((CHECKPOINT_AHEAD,) if ahead else ()),
            checkpoint_ahead=ahead,
            refusal=refusal(
                self._disk,
                replace(files, odd=(*files.odd, *stuck)),
                self._layout,
                self._choices,
                end,
                fresh,
                self._shifts,
                sum(queue.units_cut for queue in queues),
            ),
            layout=self._layout,
            accepted=tuple((s.offset, s.length) for s in fresh) if self._choices.cut or self._choices.bridge else (),
            trap=trap,
            to=self._to,
            next_start=0 if start is None else next_start(files, end),
            compared_from=0 if start is None else self._ahead(start),
            ext=() if self._to is None else plan_ext_cuts(self._disk, files, queues),
            state=StoreState(
                min_offset=log_min if files.log else -1,
                max_offset=end.end,
                queues=tuple(QueueState(q.queue, q.min_offset, q.max_offset, q.max_physical_offset) for q in queues),
                index_files=index_plan.names_after,
                trap=traps[-1].offset if traps else None,
            ),
        )

    def _traps(self, start: Segment, end: LogEnd) -> list[DamagedRange]:
        """Damage before the start that a normal start of the recovered store would read, and cut the log at."""
        first = next_start(self._files, end)
        found = [stretch for stretch in self._damage_ahead if stretch.offset >= first]
        return damage_between(self._scanner, first, self._ahead(start)) + found

    def _set_aside(self, queues: tuple[QueuePlan, ...]) -> tuple[OddFile, ...]:
        """Strays; and what a broker passes over, when it stands where a topic's directory has to be."""
        base = os.path.join(self._files.root, names.CONSUMEQUEUE)
        topics = {os.path.join(base, queue.queue.topic) for queue in queues if queue.changed}
        strays = (odd for odd in self._files.odd if odd.movable or (odd.code == PASSED_OVER and odd.path in topics))
        return (*strays, *self._layout.aside)

    def _empty_ones(self, queues: tuple[QueuePlan, ...]) -> list[OddFile]:
        """Files of queues that begin behind them; and where the log is gone, those without a unit."""
        found = [(file, AHEAD) for queue in queues for file in queue.ahead]
        if not self._files.log:
            idle = {queue.queue for queue in queues if not queue.changed}
            found += [(file, WITHOUT_LOG) for one in self._files.queues if one.queue in idle for file in one.files]
        return [
            moved_by_hand(
                self._disk, self._files.root, OddFile(file.path, file.size, why, movable=True, code=QUEUE_EMPTY)
            )
            for file, why in found
        ]

    def _log_plan(self, start: Segment | None, log_min: int, end: LogEnd) -> LogPlan:
        removed = [s for s in self._files.log if s.offset >= end.end and s.offset != log_min and not self._kept(s, end)]
        tail: tuple[str, int, int] | None = None
        blank: tuple[str, int] | None = None
        cut = 0
        for segment in self._files.log:
            written = self._last_written(segment, max(end.end, segment.offset))
            if written is None:
                continue
            if end.closed and segment not in removed and written <= end.end + BLANK_SIZE:
                blank = (segment.path, end.end - segment.offset)
                continue
            cut += written - max(end.end, segment.offset)
            if segment not in removed:
                position = end.end - segment.offset
                tail = (segment.path, position, segment.size - position)
        return LogPlan(
            start_file=None if start is None else start.path,
            min_offset=log_min if self._files.log else -1,
            end=end,
            damage_before=tuple(self._damage_before),
            tail=tail,
            removed=tuple(s.path for s in reversed(removed)),
            bytes_cut=cut,
            mends=tuple(m for m in self._mends if m < end.end),
            bridges=self._bridges,
            taken=self._taken,
            shifts=self._put_back,
            read_from=self._read_from(start, log_min),
            blank=blank,
        )

    def _is_ahead(self) -> bool:
        """Whether the checkpoint is later than all records that were read: it is not one of this log."""
        point = self._files.checkpoint
        times = (point.physic_msg_timestamp, point.logics_msg_timestamp, point.index_msg_timestamp)
        return self._newest > 0 and (min(times) < 0 or max(times) > self._newest + SAFETY_MS)

    def _read_from(self, start: Segment | None, log_min: int) -> int:
        """Physical offset from which every record was read: `find_bridges` reads all, whatever recovery starts with."""
        return log_min if start is None or self._choices.bridge else start.offset

    def _kept(self, segment: Segment, end: LogEnd) -> bool:
        """The segment that starts just at the end stays: the log goes on there (MappedFileQueue#truncateDirtyFiles)."""
        return segment.offset == end.end

    def _last_written(self, segment: Segment, start: int) -> int | None:
        """Physical offset behind the last byte that isn't zero in [start, segment end); None when all are."""
        last: int | None = None
        zeros = bytes(_PIECE)
        for data_start, data_end in self._log.data_ranges(segment, start) if start < segment.end else ():
            for at in range(data_start, data_end, _PIECE):
                try:
                    data = bytes(self._log.read(at, min(_PIECE, data_end - at)))
                except StorageError:  # nobody knows what is there: something
                    last = min(at + _PIECE, data_end)
                    continue
                if data != zeros[: len(data)]:
                    last = at + len(data.rstrip(b"\0"))
        return last

    def _problems(
        self, end: LogEnd, trap: DamagedRange | None, queues: tuple[QueuePlan, ...], keys_put: int, *findings: list[str]
    ) -> tuple[str, ...]:
        out = [f"{os.path.relpath(o.path, self._files.root)}: {o.said}" for o in self._files.odd]
        out += self._layout.problems
        if not self._files.checkpoint_ok:
            out.append("the checkpoint is missing or too short: a broker reads its times as 0")
        out += [
            f"damage at {s.offset}, {s.length} bytes, before recovery's start: {s.reason}" for s in self._damage_before
        ]
        out += [f"{shift.words}; they are put back" for shift in self._put_back]
        out += [
            f"{one.length} bytes of records from {one.offset} on are taken from a copy of their segment"
            for one in self._taken
        ]
        out += [f"damage at {b.offset}, {b.length} bytes, is bridged: {b.reason}" for b in self._bridges]
        out += [f"segments missing at {gap.offset}, {gap.length} bytes" for gap in end.gaps]
        out += [f"damage at {s.offset}, {s.length} bytes: {s.reason}" for s in end.damage]
        if end.stale is not None:
            out.append(
                f"{end.stale.records} whole records from {end.stale.offset} to {end.stale.end} are stale: they were "
                "stored before the record in front of them, and their queues do not go on there; they are set aside"
            )
        out += self._undecided
        out += [f"the record at {offset} has a wrong physicalOffset" for offset in self._mends[:20]]
        out += self._oddities(queues, end)
        if self._dangling:
            out.append(
                f"{counted(self._dangling, 'unit names', 'units name')} an extension unit that is not there: made anew"
            )
        made = any(queue.units_rebuilt for queue in queues)
        out += guessed_sizes(self._files, queues=made, index=keys_put > 0)
        if self._unplaced:
            out.append(
                f"{counted(self._unplaced, 'message names', 'messages name')} a topic that is no directory name: "
                "the log has them, no queue"
            )
        if trap is not None:
            out.append(
                f"damage at {trap.offset} ({trap.reason}): a normal start would read it and cut there, "
                "so the abort file stays and makes the next start begin after it"
            )
        for some in findings:
            out += some
        return tuple(out)

    def _oddities(self, queues: tuple[QueuePlan, ...], end: LogEnd) -> list[str]:
        """What recovery does all the same, but the operator may know better."""
        out = []
        cut = sum(queue.units_cut for queue in queues)
        if cut and not end.damage:
            out.append(
                f"{counted(cut, 'unit points', 'units point')} after the log's end at {end.end}: "
                "are segments missing there?"
            )
        known = _known_topics(self._disk, self._files.root)
        there = {found.queue.topic for found in self._files.queues if found.files}
        revived = {q.queue.topic for q in queues if q.units_rebuilt} - there
        for topic in sorted(revived - known) if known else ():
            if not names.is_system_topic(topic):
                out.append(f"{topic} gets its queues back, but config/topics.json doesn't have it: was it deleted?")
        return out


def _known_topics(disk: Disk, root: str) -> set[str]:
    """The topics of config/topics.json; none when it can't be read."""
    path = os.path.join(root, names.CONFIG, "topics.json")
    try:
        table = fastjson.loads(disk.read_file(path).decode("utf-8", "replace"))["topicConfigTable"]
        return set(table)
    except (RStoreError, TypeError, LookupError):
        return set()
