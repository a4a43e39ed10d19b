"""Recovery of a closed store: `plan_recover` looks, `engine.repair.apply` changes. A daemon's start runs the same two.
`plan_truncate` is a recovery whose log end is given.

What it does, and where it differs from Apache's (recovery.md has the rules): the log is read from where Apache would
read it; the queues are compared with the whole log, the part before by their units alone; the index is continued from
its last trustworthy entry. Nothing is cut that has sound records behind it unless `cut` says so.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from engine.errors import CannotMend, DamageInTheMiddle, InvalidArgument, LogIsGone, RStoreError, WrongFileSize
from engine.format import names
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Damage, Event, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.log.state import QueueState, StoreState
from engine.repair.coverage import Coverage
from engine.repair.ext_cut import plan_ext_cuts
from engine.repair.index_plan import IndexPlanner
from engine.repair.intervals import Intervals
from engine.repair.log_end import (
    MISSING_SEGMENT,
    LogEnd,
    Mode,
    Stretch,
    gaps_before,
    next_start_damage,
    offset_behind_time,
    read_to_end,
    read_until,
    segment_before,
    start_segment,
)
from engine.repair.plan import LogPlan, RecoverPlan
from engine.repair.queue_compare import QueueComparer
from engine.repair.queue_settle import Settler
from engine.repair.salvage import MANIFEST
from engine.repair.survey import OddFile, StoreFiles, survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.derive import Keys

_PIECE = 1 << 20


def plan_recover(
    disk: Disk,
    config: StoreConfig,
    *,
    mode: Mode | None = None,
    cut: bool = False,
    log_is_gone: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RecoverPlan:
    """The plan for the store that `config` names, computed without writing a byte.

    Args:
        disk: how files are reached.
        config: the store's settings; sizes that nobody gave are inferred.
        mode: normal or abnormal; None: what the abort file says.
        cut: end the log at the first damage even when sound records lie behind it, and go on behind missing segments.
        log_is_gone: a store without a commit log loses its queues, too.
        progress: called with bytes of the log read so far and in all.

    Raises:
        NotAStore, CannotMend: there is no store to plan for. StorageError: it can't be read.
    """
    files = survey(disk, config)
    with ClosedLog(disk, files.log) as log:
        return _Planner(disk, files, log, cut, log_is_gone, progress).plan(
            mode or (Mode.ABNORMAL if files.abort else Mode.NORMAL)
        )


def plan_truncate(
    disk: Disk,
    config: StoreConfig,
    *,
    to_offset: int | None = None,
    to_time: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RecoverPlan:
    """The plan that ends the log at a place that is given: a recovery of the log up to there, the extension cut, too.

    Args:
        disk: how files are reached.
        config: the store's settings; sizes that nobody gave are inferred.
        to_offset: the log's new end (physical), a record's boundary. Or
        to_time: ms; every record stored later goes, and what lies behind the first of them.
        progress: called with bytes of the log read so far and in all.

    Raises:
        InvalidArgument: the log doesn't reach there, or begins behind it. Refused: the middle of a record.
        NotAStore, CannotMend, StorageError.
    """
    files = survey(disk, config)
    mode = Mode.ABNORMAL if files.abort else Mode.NORMAL
    with ClosedLog(disk, files.log) as log:
        planner = _Planner(disk, files, log, False, False, progress)
        if not files.log:
            raise CannotMend("there is no commit log to cut", path=files.root)
        if to_offset is None:
            assert to_time is not None
            to_offset = planner.behind_time(to_time)
            if to_offset is None:
                return planner.plan(mode)
        if to_offset < files.log[0].offset:
            raise InvalidArgument(f"{to_offset} lies before the log's first byte, which is {files.log[0].offset}")
        return planner.plan(mode, to_offset)


class _Planner:
    """One run of planning: the parts that read the log together."""

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        log: ClosedLog,
        cut: bool,
        log_is_gone: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._log = log
        self._cut = cut
        self._log_is_gone = log_is_gone
        self._progress = progress
        config = files.config
        self._numbers = QueueNumbers()
        self._deriver = Deriver(DeriveRules.of(config), self._numbers)
        self._comparer = QueueComparer(disk, files.queues, self._numbers, config.mapped_file_size_consume_queue)
        self._scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        self._to: int | None = None
        self._mends: list[int] = []
        self._damage_before: list[Stretch] = []
        self._read = 0
        self._to_read = 0

    def behind_time(self, timestamp: int) -> int | None:
        """Physical offset of the first record stored later (ms)."""
        return offset_behind_time(self._log, self._scanner, timestamp)

    def plan(self, mode: Mode, to: int | None = None) -> RecoverPlan:
        files = self._files
        self._to = to
        start = start_segment(files, self._log, mode) if files.log else None
        if start is not None and to is not None:
            start = min(start, segment_before(files, to), key=lambda segment: segment.offset)
        index = IndexPlanner(self._disk, files, self._deriver, self._scanner, mode)
        end = LogEnd(0)
        if start is not None:
            self._to_read = files.log[-1].end - start.offset
            coverage = Coverage(self._comparer, self._log, self._scanner, self._feed_before)
            for segment in files.log:
                if segment.end <= start.offset:
                    coverage.check(segment)
            self._damage_before.sort(key=lambda stretch: stretch.offset)

            index.begin(start.offset)

            def feed(event: Event) -> None:
                self._feed(event, index)

            if to is None:
                end = read_to_end(files, self._scanner, start, cut=self._cut, feed=feed)
            else:
                end = read_until(files, self._scanner, start, to, feed=feed)
            end.gaps[:0] = gaps_before(files, start)
        return self._assemble(mode, start, end, index)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _feed_before(self, event: Event) -> None:
        """The log before the start: read only where the queues leave holes."""
        if isinstance(event, RecordBatch):
            self._compare(event)
        elif isinstance(event, Damage):
            self._damage_before.append(Stretch(event.offset, event.length, event.segment.path, event.reason.value))

    def _feed(self, event: Event, index: IndexPlanner) -> None:
        if isinstance(event, RecordBatch):
            index.feed(self._compare(event))
            self._read += event.end - event.start
            if self._progress is not None:
                self._progress(self._read, self._to_read)

    def _compare(self, batch: RecordBatch) -> Keys:
        units, keys = self._deriver.derive(batch)
        self._comparer.feed(units)
        self._mends += [
            batch.base + row.position for row in batch.rows if row.stored_offset != batch.base + row.position
        ]
        return keys

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _assemble(self, mode: Mode, start: Segment | None, end: LogEnd, index: IndexPlanner) -> RecoverPlan:
        files = self._files
        log_min = files.log[0].offset if files.log else 0
        lost = Intervals()
        for stretch in (*self._damage_before, *end.gaps):
            lost.add(stretch.offset, stretch.offset + stretch.length)
        self._comparer.flush()
        settler = Settler(
            self._comparer,
            log_min,
            end.end,
            lost,
            record_size=self._scanner.sound_size,
            abnormal=mode is Mode.ABNORMAL,
        )
        queues = tuple(settler.settle()) if files.log or self._log_is_gone else ()
        index_plan = index.plan(end.end)
        known = accepted_stretches(self._disk, files.root)
        fresh = [s for s in (*end.gaps, *self._damage_before) if (s.offset, s.length) not in known]
        log_plan = self._log_plan(start, log_min, end)
        trap = next_start_damage(files, self._scanner, start, end) if start is not None else None
        return RecoverPlan(
            files=files,
            mode=mode,
            log=log_plan,
            queues=queues,
            writes=settler.writes,
            index=index_plan,
            set_aside=tuple(odd for odd in files.odd if odd.movable),
            problems=self._problems(end, trap, self._comparer.findings, settler.findings, index_plan.findings),
            refusal=self._refusal(end, fresh),
            accepted=tuple((s.offset, s.length) for s in fresh) if self._cut else (),
            trap=trap,
            to=self._to,
            ext=() if self._to is None else plan_ext_cuts(self._disk, files, queues),
            state=StoreState(
                min_offset=log_min if files.log else -1,
                max_offset=end.end,
                queues=tuple(QueueState(q.queue, q.min_offset, q.max_offset, q.max_physical_offset) for q in queues),
                index_files=index_plan.names_after,
            ),
        )

    def _log_plan(self, start: Segment | None, log_min: int, end: LogEnd) -> LogPlan:
        removed = [s for s in self._files.log if s.offset >= end.end and s.offset != log_min and not self._kept(s, end)]
        tail: tuple[str, int, int] | None = None
        cut = 0
        for segment in self._files.log:
            written = self._last_written(segment, max(end.end, segment.offset))
            if written is None:
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
        )

    def _kept(self, segment: Segment, end: LogEnd) -> bool:
        """The segment that starts just at the end stays: the log goes on there (MappedFileQueue#truncateDirtyFiles)."""
        return segment.offset == end.end

    def _last_written(self, segment: Segment, start: int) -> int | None:
        """Physical offset behind the last byte that isn't zero in [start, segment end); None when all are."""
        last: int | None = None
        zeros = bytes(_PIECE)
        for data_start, data_end in self._log.data_ranges(segment, start) if start < segment.end else ():
            for at in range(data_start, data_end, _PIECE):
                data = bytes(self._log.read(at, min(_PIECE, data_end - at)))
                if data != zeros[: len(data)]:
                    last = at + len(data.rstrip(b"\0"))
        return last

    def _problems(self, end: LogEnd, trap: Stretch | None, *findings: list[str]) -> tuple[str, ...]:
        out = [f"{os.path.relpath(o.path, self._files.root)}: {o.why}" for o in self._files.odd]
        if not self._files.checkpoint_ok:
            out.append("the checkpoint is missing or short: it reads as zeros")
        out += [
            f"damage at {s.offset}, {s.length} bytes, before recovery's start: {s.reason}" for s in self._damage_before
        ]
        out += [f"segments missing at {gap.offset}, {gap.length} bytes" for gap in end.gaps]
        out += [f"damage at {s.offset}, {s.length} bytes: {s.reason}" for s in end.damage]
        out += [f"the record at {offset} has a wrong physicalOffset" for offset in self._mends[:20]]
        if trap is not None:
            out.append(
                f"damage at {trap.offset} ({trap.reason}): a normal start would read it and cut there, "
                "so the abort file stays and makes the next start begin behind it"
            )
        for some in findings:
            out += some
        return tuple(out)

    def _refusal(self, end: LogEnd, fresh: list[Stretch]) -> RStoreError | None:
        wrong = next((o for o in self._files.odd if not o.movable and _in_log(self._files, o)), None)
        if wrong is not None:
            return WrongFileSize(
                f"{wrong.why} among the commit log's", path=wrong.path, hint="rstore doctor tells more"
            )
        if not self._files.log:
            held = [queue for queue in self._files.queues if queue.files]
            if held and not self._log_is_gone:
                return LogIsGone(
                    f"{len(held)} consume queues, but no commit log",
                    path=os.fspath(self._files.config.commit_log_paths[0]),
                    hint="is its disk mounted? give --yes-the-log-is-gone if it is really gone",
                )
            return None
        if self._cut:
            return None
        if self._to is not None and (end.damage or fresh):
            first = [*end.damage, *fresh][0]
            return DamageInTheMiddle(
                f"{first.reason}, before the place where the log is to end",
                path=first.path,
                offset=first.offset,
                hint="run rstore recover first, or cut before it; nothing was changed",
            )
        if end.damage:
            first = end.damage[0]
            size = sum(size for _, size in end.behind.values())
            return DamageInTheMiddle(
                f"{first.reason}; {end.records_behind} sound records ({size} bytes) lie behind it",
                path=first.path,
                offset=first.offset,
                hint="--cut ends the log there and saves the rest; nothing was changed",
            )
        if fresh and fresh[0].reason == MISSING_SEGMENT:
            return DamageInTheMiddle(
                f"{fresh[0].length} bytes of the commit log are missing behind this file",
                path=fresh[0].path,
                offset=fresh[0].offset,
                hint="find the missing segments, or give --cut to go on behind them; nothing was changed",
            )
        if fresh:
            return DamageInTheMiddle(
                f"{fresh[0].reason}, in a part of the log that queues must be rebuilt from",
                path=fresh[0].path,
                offset=fresh[0].offset,
                hint="--cut rebuilds what is sound around it; nothing was changed",
            )
        return None


def _in_log(files: StoreFiles, odd: OddFile) -> bool:
    directory = os.path.dirname(odd.path)
    config = files.config
    return directory in [os.fspath(p) for p in (*config.commit_log_paths, *config.read_only_commit_log_paths)]


def accepted_stretches(disk: Disk, root: str) -> set[tuple[int, int]]:
    """Stretches of the log that an earlier repair was told to go on behind."""
    found: set[tuple[int, int]] = set()
    base = os.path.join(root, names.SALVAGE)
    for entry in disk.scandir(base) if disk.exists(base) else ():
        path = os.path.join(entry.path, MANIFEST)
        if not entry.is_file and disk.exists(path):
            manifest = json.loads(disk.read_file(path))
            found |= {(stretch["offset"], stretch["length"]) for stretch in manifest.get("accepted", [])}
    return found
