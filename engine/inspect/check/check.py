"""Everything in a store against everything else, both ways: files, log, queues, extension, index, checkpoint, config.

Reads, writes nothing, takes no lock. The log is read once, in as many threads or processes as are asked for; each
record looks for its unit and its keys, and what no record has asked for is judged then. CHECK.md lists every finding.

Beside a live writer only that is said which holds whatever the writer does next: the end of the log is what is sound,
queues are judged as far as dispatch had come when check began, the index as far as it reached then.

Bounded: windows of the log, chunks of queues and pieces of the index in memory; findings are counted, and the first
ones named.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.dataclass import dataclass
from engine.errors import NextStep, StorageError
from engine.files.lock import holder_of
from engine.format import names
from engine.format.checkpoint import SAFETY_MS
from engine.format.delay import DelayLevels
from engine.format.quantities import counted
from engine.inspect import next_step
from engine.inspect.check import config as check_config
from engine.inspect.check.batch_queues import BatchQueueJudge
from engine.inspect.check.compaction import check_compaction
from engine.inspect.check.entries import check_runs
from engine.inspect.check.files import as_planned, file_findings, path_findings, space_findings, unnamed_finding
from engine.inspect.check.index import IndexPart, check_index_file, check_order
from engine.inspect.check.log import LogPart
from engine.inspect.check.newer_parts import NewerPartsJudge
from engine.inspect.check.queues import LogView, QueueJudge, dispatched
from engine.inspect.check.reading import CheckReading
from engine.inspect.check.rocksdb_queues import check_database
from engine.inspect.check.served import check_served
from engine.inspect.check.verify import judge_tail
from engine.inspect.finding import Finding, Findings, place
from engine.inspect.finding_codes import Fix, Severity
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, LMQ_CONSUMERS, TOPICS
from engine.inspect.store.intervals import Intervals, union
from engine.inspect.store.known import known_places
from engine.inspect.store.layout import layout_of
from engine.inspect.store.losses import Losses
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.repairs import repairs
from engine.inspect.store.settled import settled
from engine.inspect.store.survey import survey
from engine.log.derive import TopicQueue
from engine.log.scan import MISSING_SEGMENT, Scanner
from engine.log.source import ClosedLog, Segment
from engine.log.threads import threads_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import IndexName, StoreFiles

ATTEMPTS = 3
"""How often check begins again when a live broker has removed a file under its hands."""
MOST_INDEX_FILES = 2
"""Index files that are looked at at the same time: each takes some 70 MB."""
_HUGE = (1 << 63) - 1

Mended: TypeAlias = "Callable[[StoreFiles, tuple[Finding, ...]], tuple[Finding, ...]]"
"""Findings of a store, and the same as they are reported once it is known which of them a recovery would leave."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result. `ok`: no error and no warning; notes by the way (info) may be there.

    `counts`: what was looked at, and occurrences by code and severity. `complete`: False when the time was up,
    or the store has parts that are not read.
    `next`: what to do next, None for nothing. `batches`: the store has topics of RocketMQ 5 with several messages in a
    record, which is counted as one.
    """

    ok: bool
    findings: tuple[Finding, ...]
    counts: dict[str, Any]
    root: str = ""
    live: bool = False
    complete: bool = True
    seconds: float = 0.0
    next: NextStep | None = None
    batches: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON of CLI.md "Judgements"."""
        return {
            "ok": self.ok,
            "findings": [f.to_json() for f in self.findings],
            "counts": self.counts,
            "next": None if self.next is None else self.next.to_json(),
        }


def check(
    disk: Disk,
    config: StoreConfig,
    *,
    jobs: int | None = 1,
    time_box_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    mended: Mended | None = None,
) -> CheckResult:
    """Check the store that `config` names.

    Args:
        disk: how files are reached.
        config: the store's settings; sizes, the extension and multi-dispatch are known from the files if it has none.
        jobs: threads that read the log, where there are kernels (None: one a core), else processes (None: what pays
            on this machine; more than one needs real files).
        time_box_ms: stop after so long (ms), and say what was not looked at.
        progress: called with bytes of the log read so far and in all.
        mended: gives the findings as they are to be reported where a recovery of everything is what to do next
            (engine.repair.recover.following); None: as they are.

    Raises:
        NotAStore, CannotRepair: there is no store to check. StorageError: it can't be read.
    """
    began = time.monotonic()
    deadline = None if time_box_ms is None else began + time_box_ms / 1000
    for attempt in range(ATTEMPTS):
        run = _Run(disk, config, jobs, deadline, progress, mended)
        try:
            return run.result(began)
        except StorageError as error:
            gone = error.path is not None and not disk.exists(error.path)
            if not (run.live and gone) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


@dataclass(slots=True)
class _Seen:
    """What was looked at."""

    files: int = 0
    log_files: int = 0
    records: int = 0
    messages: int = 0
    size: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    keys: int = 0
    config_files: int = 0
    skipped: list[str] = field(default_factory=list)


class _Run:
    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        jobs: int | None,
        deadline: float | None,
        progress: Callable[[int, int], None] | None,
        mended: Mended | None,
    ) -> None:
        self._disk = disk
        self._mended = mended
        self._jobs = jobs
        self._deadline = deadline
        self._progress = progress
        self._named = named = survey(disk, settled(disk, config))
        self.live = holder_of(disk, named.root) is not None
        self._layout = None if self.live else layout_of(disk, named)
        self._files = files = as_planned(named, self._layout)
        self._known = known_places(disk, files.root)
        self._findings = Findings()
        self._files = files = check_database(disk, files, self._findings, live=self.live)
        self._stale_from: int | None = None
        self._seen = _Seen(log_files=len(files.log), queues=len(files.queues), index_files=len(files.index))

    def result(self, began: float) -> CheckResult:
        """Look at everything."""
        self._names()
        config = check_config.read_config(self._disk, self._files.config, self._files.root, self._findings)
        self._seen.config_files = config.files
        until = self._until() if self.live else None
        index = self._index()
        parts = self._log(index)
        lost = self._log_end(parts)
        self._queues(parts, lost, until, config)
        self._against_queues(config)
        self._checkpoint(parts)
        if self._seen.skipped:
            self._findings.add("time-box", "time", "the store", "; ".join(self._seen.skipped))
        if self.live:
            self._findings.add("ends-not-checked", "lock", names.LOCK)
        findings = self._findings.result()
        everything = not self._seen.skipped
        following = next_step.of_findings(self._files.config, findings, everything=everything, live=self.live)
        if self._stays_without(parts) and following == next_step.THEIRS:
            following = next_step.queues_anew(self._files.config, self._files.newer.queue_database)
        rebuild = next_step.step(self._files.config, Fix.REBUILD)
        if self._mended is not None and everything and not self.live and following == rebuild:
            findings = self._mended(self._named, findings)  # what it would leave names no command
            following = next_step.of_findings(self._files.config, findings, everything=True)
        findings = next_step.advised(self._files.config, findings, following)
        by_severity = Counter(f.severity for f in findings)
        return CheckResult(
            ok=not any(f.severity is not Severity.INFO for f in findings),
            findings=findings,
            counts=self._counts(by_severity),
            root=self._files.root,
            live=self.live,
            complete=everything and not self._files.newer.not_looked_at,
            batches=bool(self._files.newer.batch_topics),
            seconds=time.monotonic() - began,
            next=following,
        )

    def _stays_without(self, parts: list[LogPart]) -> bool:
        """Whether a record has no unit in RocksDB that its broker takes for dispatched."""
        rocksdb = self._files.rocksdb
        if rocksdb is None:
            return False
        return any(
            int(row["physical_offset"]) < rocksdb.dispatched and part.queues[int(row["queue"])] in rocksdb.read
            for part in parts
            if part.pending is not None
            for row in part.pending
        )

    def _counts(self, by_severity: Counter[Severity]) -> dict[str, Any]:
        seen = self._seen
        return {
            "logFiles": seen.log_files,
            "records": seen.records,
            "messages": seen.messages,
            "bytes": seen.size,
            "queues": seen.queues,
            "units": seen.units,
            "indexFiles": seen.index_files,
            "indexEntries": seen.index_entries,
            "keys": seen.keys,
            "configFiles": seen.config_files,
            "errors": by_severity[Severity.ERROR],
            "warnings": by_severity[Severity.WARNING],
            "infos": by_severity[Severity.INFO],
            "byCode": self._findings.totals(),
        }

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    # --- files ------------------------------------------------------------------------------------------------------

    def _names(self) -> None:
        """What the names and lengths of files alone tell."""
        files, findings = self._files, self._findings
        done = repairs(self._disk, files.root)
        file_findings(self._disk, self._named, findings, live=self.live, done=done, layout=self._layout)
        space_findings(self._disk, files, findings)
        path_findings(self._disk, files.config, findings)
        for start, end in self._known.bridged:
            segment = next((s for s in files.log if s.offset <= start < s.end), None)
            if segment is not None:
                findings.add("log-bridged", segment.path, place(segment.path, start), f"{end - start} bytes at {start}")

    def _checkpoint(self, parts: list[LogPart]) -> None:
        files, point = self._files, self._files.checkpoint
        if not files.checkpoint_ok:
            return
        newest = max((part.newest for part in parts), default=0)
        times = {
            "physicMsgTimestamp": point.physic_msg_timestamp,
            "logicsMsgTimestamp": point.logics_msg_timestamp,
            "indexMsgTimestamp": point.index_msg_timestamp,
        }
        # Retention leaves the last file, which may hold no record yet: nothing is read too late there.
        judged = newest and not self.live and all(part.in_time for part in parts) and not self._seen.skipped
        for name, value in times.items():
            if value < 0 or (judged and value > newest + SAFETY_MS):
                self._findings.add(
                    "checkpoint-ahead",
                    names.CHECKPOINT,
                    names.CHECKPOINT,
                    f"{name} is {value}, the newest store time is {newest}",
                )

    # --- index ------------------------------------------------------------------------------------------------------

    def _index(self) -> list[IndexPart] | None:
        """Each file by itself; None when the index can't be compared with the log."""
        files = self._files
        if not files.config.message_index_enable:
            return None
        parts = []
        whole = [one for one in files.index if one.whole]

        def look(one: IndexName) -> IndexPart | None:
            if self._late():
                return None
            growing = self.live and one is whole[-1]
            return check_index_file(self._disk, one, files.index_layout, growing=growing)

        with ThreadPoolExecutor(min(threads_of(self._jobs), MOST_INDEX_FILES)) as pool:
            for number, part in enumerate(pool.map(look, whole)):
                if part is None:
                    self._seen.skipped.append(
                        f"{len(whole) - number} of {counted(len(whole), 'index file')}, and the keys of the log"
                    )
                    pool.shutdown(cancel_futures=True)
                    return None
                self._findings.merge(part.findings)
                self._seen.index_entries += part.entries
                parts.append(part)
        check_order(parts, self._findings)
        self._outside(parts)
        return parts

    def _outside(self, parts: list[IndexPart]) -> None:
        """Entries that point after the last segment: no window of the log meets them."""
        end = self._files.log[-1].end if self._files.log else 0
        if self.live:
            return
        for part in parts:
            for piece in part.pieces:
                if piece.high >= end:
                    where = f"index/{part.name}"
                    self._findings.add(
                        "index-orphaned", where, where, f"an entry names {piece.high}, after the last segment"
                    )

    # --- log --------------------------------------------------------------------------------------------------------

    def _log(self, index: list[IndexPart] | None) -> list[LogPart]:
        """The log against queues and index, up to where it ends: a stale tail after that is no part of it."""
        files = self._files
        if not files.log:
            return []
        pieces = None if index is None else tuple(piece for part in index for piece in part.pieces)
        reading = CheckReading(
            self._disk, files, pieces, self.live, self._deadline, self._known.bridged, self._jobs, self._progress
        )
        parts = reading.parts(None)
        stale = reading.stale(parts)
        if stale is not None:
            self._stale_from = stale.offset
            segment = next(s for s in files.log if s.offset <= stale.offset < s.end)
            where = place(segment.path, stale.offset)
            detail = f"{counted(stale.records, 'record')} from {stale.offset} to {stale.end}"
            self._findings.add("log-stale", segment.path, where, detail, stale.records)
            parts = reading.parts(stale.offset)
        if files.dledger is not None:
            check_runs(self._disk, files, [part.entries for part in parts], self._findings, live=self.live)
        for part in parts:
            self._findings.merge(part.findings)
            self._seen.records += part.records
            self._seen.messages += part.messages
            self._seen.size += part.size
            self._seen.keys += part.keys
            if not part.in_time:
                left = part.until - part.reached
                self._seen.skipped.append(f"the log from {part.reached} to {part.until} ({left} bytes)")
        return parts

    def _log_end(self, parts: list[LogPart]) -> Intervals:
        """Damage and gaps, but not the log end; the ranges that are lost."""
        files = self._files
        last = max((i for i, part in enumerate(parts) if part.end is not None), default=-1)
        lost = Intervals()
        end = 0
        with ClosedLog(self._disk, files.log) as log:
            for i, part in enumerate(parts):
                middle = [*part.lost, *(part.held if i < last else [])]
                for damage in middle:
                    lost.add(damage.offset, damage.end)
                    self._damaged_range("log-damage", damage.segment, damage.offset, damage.length, damage.reason.value)
                end = part.end or end
                if i >= last and part.in_time:
                    for bad in judge_tail(log, part.held, self.live):
                        self._findings.add("log-tail", bad.path, place(bad.path, bad.offset), bad.reason)
        gaps = [(one, two.offset) for one, two in pairwise(files.log) if one.end < two.offset]
        for one, until in gaps:
            lost.add(one.end, until)
            self._damaged_range("log-gap", one, one.end, until - one.end, MISSING_SEGMENT)
        known = self._known.accepted
        missing = [(one.end, until) for one, until in gaps if known.overlap(one.end, until) < until - one.end]
        unnamed_finding(self._disk, files, missing, self._findings)
        for part in parts:
            for physical, name, number in part.into_damage:
                if self.live and physical >= end:
                    continue
                code = "index-lost" if physical in lost else "index-orphaned"
                where = f"index/{name}"
                self._findings.add(code, where, f"{where} entry {number}", f"entry {number} names {physical}")
        return lost

    def _damaged_range(self, code: str, segment: Segment, offset: int, length: int, reason: str) -> None:
        known = self._known.accepted.overlap(offset, offset + length) == length
        where = place(segment.path, offset)
        detail = f"{length} bytes at {offset}: {reason}"
        self._findings.add("log-accepted" if known else code, segment.path, where, detail)

    # --- queues -----------------------------------------------------------------------------------------------------

    def _until(self) -> int:
        """Up to where queues are held against a log that a process writes: what is in both by now (physical offset)."""
        log = self._files.log
        return min(dispatched(self._disk, self._files), log[-1].end if log else 0)

    def _queues(
        self, parts: list[LogPart], lost: Intervals, until: int | None, config: check_config.ConfigFiles
    ) -> None:
        files = self._files
        topics = config.table(TOPICS) if TOPICS in config.tables else None
        seen = Intervals()
        for part in parts:
            seen.add(part.start, part.reached)
        if parts and all(part.in_time for part in parts):
            seen.add(parts[-1].start, _HUGE)
        if until is not None:
            seen = _below(seen, until)
        with ClosedLog(self._disk, files.log) as log:
            scanner = Scanner(log, max_message_size=files.config.max_message_size)
            log_min = files.log[0].offset if files.log else 0
            end = files.log[-1].end if files.log else 0
            lost_or_repaired = union(lost, self._known.accepted, self._known.bridged)
            losses = Losses(log, end, lost_or_repaired, files.config.max_message_size)
            view = LogView(log_min, seen, lost, losses, scanner.sound_size, until, self._deadline)
            if files.log:
                judge = QueueJudge(self._disk, files, self._findings, view, topics)
                judge.judge(parts)
                self._seen.units = judge.units
                if not judge.in_time:
                    self._seen.skipped.append("units without a matching record")
            if files.log and files.newer.batch_topics:
                batches = BatchQueueJudge(self._disk, files, self._findings, view, topics)
                batches.judge(scanner, self._stale_from)
                self._seen.queues += batches.queues
                self._seen.units += batches.units
                if not batches.in_time:
                    self._seen.skipped.append("batch consume queues")
            if files.newer and not self.live:
                self._newer_parts(parts, log)

    def _newer_parts(self, parts: list[LogPart], log: ClosedLog) -> None:
        """Compacted topics; timer and epochs, where the log end is known."""
        units, in_time = check_compaction(self._disk, self._files, self._findings, self._deadline)
        self._seen.units += units
        if not in_time:
            self._seen.skipped.append("compacted topics")
        if not all(part.in_time for part in parts):
            self._seen.skipped.append("timer messages and epochs")
            return
        end = max((part.end for part in parts if part.end is not None), default=0)
        judge = NewerPartsJudge(self._disk, self._files, self._findings, end, self._deadline)
        judge.judge(log)
        self._seen.units += judge.units
        if not judge.in_time:
            self._seen.skipped.append("units of the timer log")

    def _against_queues(self, config: check_config.ConfigFiles) -> None:
        files, findings = self._files, self._findings
        ends: dict[TopicQueue, int] = {}
        starts: dict[TopicQueue, int] = {}
        wanted = config.tables.keys() & {CONSUMERS, LMQ_CONSUMERS, DELAYS}
        for queue in files.queues if wanted else ():
            rows = QueueRows(self._disk, queue)
            ends[queue.queue], starts[queue.queue] = (rows.extent, rows.first) if queue.files else (0, 0)
        check_config.check_consumers(config, ends, findings, files.newer)
        levels = DelayLevels.or_defaults(files.config.message_delay_level)
        check_config.check_delays(config, levels, ends, starts, findings)
        present = {queue.queue.topic for queue in files.queues} | files.newer.batch_topics
        if not files.newer.no_queue_files:
            check_config.check_topics(config, present, findings)
        check_served(self._disk, files, config, findings, live=self.live)


def _below(some: Intervals, end: int) -> Intervals:
    out = Intervals()
    for start, stop in some:
        out.add(start, min(stop, end))
    return out
