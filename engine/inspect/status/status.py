"""What state a store is in, and why, at a glance: files and their ends, never the whole log.

Space by topic and by hour is known from the units of the queues; where they are very many, by samples of them. The rest
are a few looks at the log: its ends (log_state), where the hours begin (log_clock), how fast it grows and when the disk
is full (forecast), what nobody has read yet (unread).
"""

from __future__ import annotations

import enum
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.config import STORE_SIZES, apache_key
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.lock import Holder, holder_of
from engine.format import names
from engine.format.index_file import ENTRY_SIZE
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect import next_step
from engine.inspect.check.config import read_config
from engine.inspect.check.files import as_planned, file_findings, gap_findings, path_findings, space_findings
from engine.inspect.check.served import check_served
from engine.inspect.finding import Finding, Findings
from engine.inspect.finding_codes import CODES, CONFIG_CODES, FILE_CODES, Code, Severity
from engine.inspect.status.batch_space import BatchUnits, last_of, measure_batches
from engine.inspect.status.forecast import Forecast, forecast, rate_of
from engine.inspect.status.log_state import LogState, log_state
from engine.inspect.status.queue_space import last_row, last_within, measure
from engine.inspect.status.space import ALL_HOURS, Hour, SpaceSum, TopicSpace, hours_of
from engine.inspect.status.unread import UnreadCount, unread_of
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queues
from engine.inspect.store.compaction import compaction_of
from engine.inspect.store.layout import layout_of
from engine.inspect.store.log_clock import LogClock, store_time_at
from engine.inspect.store.newer import COMPACTION
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.release import Release, release_of
from engine.inspect.store.repairs import repairs
from engine.inspect.store.survey import StoreFiles, survey, without_rocksdb
from engine.log.index_reader import ClosedIndexFile
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.errors import NextStep
    from engine.files.disk import Disk
    from engine.inspect.store.compaction import CompactedQueue

EXACT_ROWS = 1 << 22
"""Rows that are read at most, about, where not everything is asked for."""
_EXACT_QUEUE = 1 << 15
"""A queue of so few rows is read whole in any case: a sample of it would not cost less."""
HOURS = 24
_RATES = (1, 6, 24)

_ABSENT = ("file-absent", "path-missing")
"""Data that comes back with its disk."""

STATUS_CODES: dict[str, Code] = {
    "consumer-below": Code(
        Severity.WARNING,
        "a consumer offset is below the minimum of its queue: messages expired before the group read them",
        "they can't be restored; the group continues at the minimum. A larger fileReservedTime keeps messages longer",
    ),
    "clock-back": Code(
        Severity.INFO,
        "store times decrease in the log: hours and rates are approximate there",
        "check the broker's clock",
    ),
    **{
        name: CODES[name]
        for name in (
            *FILE_CODES,
            *(
                "log-misplaced",
                "log-surplus",
                "log-missing",
                "path-missing",
                "path-unnamed",
                "log-gap",
                "log-accepted",
                "log-damage",
                "log-tail",
                "unit-missing",
                "checkpoint-missing",
            ),
            *CONFIG_CODES,
            *("consumer-above", "consumer-queue", "delay-range"),
        )
    },
}
"""Every code that status reports; those that check has, too, mean the same."""


class StoreCondition(enum.Enum):
    """The state of a store."""

    CLEAN = "clean"
    CRASHED = "crashed"
    RUNNING = "running"
    LOCKED = "locked"
    EMPTY = "empty"
    LOG_MISSING = "log-missing"
    DAMAGED = "damaged"


_DAMAGE = frozenset(
    {
        "path-missing",
        "file-absent",
        "path-unnamed",
        "file-size",
        "file-stray",
        "repair-unfinished",
        "undo-unfinished",
        "log-gap",
        "log-damage",
    }
    | {"log-misplaced", "log-surplus"}
)
"""Findings with which a store is not as a close or a crash leaves it."""

_WHY = {
    StoreCondition.CLEAN: (
        "closed cleanly: there is no abort file, and no process holds the lock. The log was not read"
    ),
    StoreCondition.CRASHED: "not closed cleanly: the abort file exists, and no process holds the lock",
    StoreCondition.RUNNING: "{who} has the store open",
    StoreCondition.LOCKED: "{who} holds the lock, without an abort file: it is starting, stopping or repairing it",
    StoreCondition.EMPTY: "there is no segment yet",
    StoreCondition.LOG_MISSING: "there are consume queues but no commit log",
    StoreCondition.DAMAGED: "{what}",
}


@dataclass(slots=True)
class StoreStatus:
    """The whole answer. `sizes`: by Apache's key, with whether somebody gave it. `now`: when it was looked at (ms)."""

    files: StoreFiles
    state: StoreCondition
    why: str
    pid: int | None
    now: int
    log: LogState
    sizes: dict[str, tuple[int, bool]]
    disk_used: float
    disk_total: int
    disk_usable: int
    topics: list[TopicSpace]
    hours: list[Hour]
    estimated: bool
    forecast: Forecast
    unread: UnreadCount
    findings: tuple[Finding, ...] = ()
    next: NextStep | None = None
    index_entries: int = 0
    index_timestamp: int = 0
    repairs: list[str] = field(default_factory=list)
    release: Release | None = None
    queues: int = 0
    queue_files: int = 0
    compacted: tuple[CompactedQueue, ...] = ()

    @property
    def messages(self) -> int:
        """Messages that queues show, light queues left out: their messages are other queues', too."""
        return sum(t.messages for t in self.topics if not names.is_lmq(t.topic))

    def to_json(self) -> dict[str, Any]:
        """One document."""
        log, files, older = self.log, self.files, self.hours[0]
        counted = not files.newer.no_queue_files  # queues tell how many messages there are
        return {
            "store": files.root,
            "state": self.state.value,
            "why": self.why,
            "next": None if self.next is None else self.next.to_json(),
            "pid": self.pid,
            "time": self.now,
            "abort": files.abort,
            "newer": files.newer.to_json(),
            "release": None if self.release is None else self.release.to_json(),
            "commitlog": log.to_json(),
            "dispatch": {"records": log.not_dispatched, "bytes": log.not_dispatched_bytes},
            "consumequeue": {
                "topics": len(self.topics),
                "queues": self.queues,
                "files": self.queue_files,
            },
            "compaction": [queue.to_json() for queue in self.compacted],
            "index": {
                "files": len(files.index),
                "entries": self.index_entries,
                "endTimestamp": self.index_timestamp,
            },
            "checkpoint": {
                "valid": files.checkpoint_ok,
                "physicMsgTimestamp": files.checkpoint.physic_msg_timestamp,
                "logicsMsgTimestamp": files.checkpoint.logics_msg_timestamp,
                "indexMsgTimestamp": files.checkpoint.index_msg_timestamp,
            },
            "sizes": {key: size for key, (size, _) in self.sizes.items()},
            "disk": {"usedRatio": self.disk_used, "total": self.disk_total, "usable": self.disk_usable},
            "forecast": self.forecast.to_json(),
            "estimated": self.estimated,
            "messages": self.messages if counted else None,
            "topics": [t.to_json() for t in self.topics],
            "hours": [h.to_json(counted=counted) for h in self.hours[1:]],
            "olderHours": {"bytes": older.size, "messages": older.messages if counted else None},
            "unread": self.unread.to_json(),
            "findings": [f.to_json() for f in self.findings],
            "strayFiles": [{"path": os.path.relpath(o.path, files.root), "why": o.why} for o in files.odd],
            "repairs": self.repairs,
        }


def status(
    disk: Disk,
    config: StoreConfig,
    *,
    hours: int = HOURS,
    rate_hours: int = 24,
    full: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> StoreStatus:
    """Look at the store that `config` names.

    Args:
        disk: the system's files.
        config: the store's settings.
        hours: recent hours of the log that are distinguished.
        rate_hours: recent hours whose rate counts for the forecast.
        full: read every unit, and tell all hours apart (a year's at most).
        progress: called with steps done so far and in all.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    named = survey(disk, config)
    try:
        return _look(disk, named, hours, rate_hours, full=full, progress=progress)
    except FormatError as error:
        if named.rocksdb is None:
            raise
        return _look(disk, without_rocksdb(named, error), hours, rate_hours, full=full, progress=progress)


def _look(
    disk: Disk,
    named: StoreFiles,
    hours: int,
    rate_hours: int,
    *,
    full: bool,
    progress: Callable[[int, int], None] | None,
) -> StoreStatus:
    """As `status`. Raises FormatError, too: what RocksDB has of the queues can't be read to its end."""
    holder = holder_of(disk, named.root)
    findings = Findings(STATUS_CODES)
    done = repairs(disk, named.root)
    layout = None if holder is not None else layout_of(disk, named)
    file_findings(disk, named, findings, live=holder is not None, done=done, layout=layout)
    files = as_planned(named, layout)
    gap_findings(disk, files, findings, done)
    space_findings(disk, files, findings)
    path_findings(disk, files.config, findings)
    batches = _batches(disk, files)
    steps = _Steps(progress, 2 * len(files.queues) + len(batches))
    # Before the queues: what a live consumer reads meanwhile must not look as if it were ahead of them.
    config_files = read_config(disk, files.config, files.root, findings)
    unread = unread_of(disk, config_files, files.config, files.root, findings)
    check_served(disk, files, config_files, findings, live=holder is not None)
    queues, last = _ends(disk, files, batches, steps)
    now = disk.now_ms()
    writing = now if holder is not None and files.abort else None
    entries, index_timestamp = _index(disk, files)
    with ClosedLog(disk, files.log) as log:
        ends = log_state(log, files, last, live=holder is not None)
        if holder is None:
            _end_findings(ends, files, findings)
        clock = LogClock(log, ends.max_offset, files.config.max_message_size) if files.log else None
        most = ALL_HOURS if full else hours
        space = SpaceSum(hours_of(clock, files.log, ends.min_timestamp, ends.max_timestamp, most))
        limit = 1 << 62 if full else max(_EXACT_QUEUE, EXACT_ROWS // max(1, len(queues) + len(batches)))
        for rows, end in queues:
            measured = measure(rows, end, space.starts, unread.cuts(rows.queue), limit)
            space.topic(rows.queue.topic).queues += 1
            space.add(rows.queue.topic, measured)
            unread.add(rows.queue, rows, measured)
            steps.done()
        _measure_batches(batches, space, unread, limit, steps)
        unread.finish(lambda _: files.newer.no_queue_files)
        rates = []
        if clock is not None and ends.max_timestamp > 0:
            for offset, before, there in clock.went_back:
                findings.add("clock-back", "log", f"commitlog {offset}", f"at {offset}: {before} ms, then {there} ms")
            rates = [
                rate_of(clock, files.log, ends.min_timestamp, ends.max_timestamp, window, writing)
                for window in (rate_hours, *_RATES)
            ]
        for group in unread.groups.values():
            group.oldest_timestamp = store_time_at(log, group.oldest) if group.oldest >= 0 else 0
    units = sum(t.messages for t in space.topics.values())
    derived_ratio = (units * UNIT_SIZE + entries * ENTRY_SIZE) / max(1, ends.max_offset - max(0, ends.min_offset))
    usage_at = next((os.fspath(p) for p in files.config.commit_log_paths if disk.exists(os.fspath(p))), files.root)
    usage = disk.usage(usage_at)
    who = f"process {holder.pid}" if holder is not None and holder.pid else "another process"
    reported = findings.result()
    if any(f.code in _ABSENT for f in reported):  # a queue's minimum is that of the files which are there
        reported = tuple(f for f in reported if f.code != "consumer-below")
    state, what = _state(files, holder, reported)
    following = next_step.of_findings(files.config, reported, everything=False, live=holder is not None)
    return StoreStatus(
        files=named,
        state=state,
        why=_WHY[state].format(who=who, what=what),
        pid=None if holder is None else holder.pid,
        now=now,
        log=ends,
        sizes={apache_key(n): (int(getattr(files.config, n)), n in files.config.given) for n in STORE_SIZES},
        disk_used=disk.disk_used_ratio(usage_at),
        disk_total=usage.total,
        disk_usable=usage.usable,
        topics=space.by_size(),
        hours=space.hours,
        estimated=space.estimated,
        forecast=forecast(disk, files, rates[1:], rates[0] if rates else None, derived_ratio, writing),
        unread=unread,
        findings=next_step.advised(files.config, reported, following),
        next=None if state is StoreCondition.EMPTY else following,
        index_entries=entries,
        index_timestamp=index_timestamp,
        repairs=[repair.directory for repair in done],
        release=release_of(disk, files),
        queues=len(files.queues) + len(batches),
        queue_files=sum(len(q.files) for q in files.queues) + sum(len(one.files) for one in batches),
        compacted=compaction_of(disk, files).queues if files.newer.has(COMPACTION) else (),
    )


class _Steps:
    """Counts what is done."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def done(self) -> None:
        """One more."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def _state(files: StoreFiles, holder: Holder | None, reported: tuple[Finding, ...]) -> tuple[StoreCondition, str]:
    """The state, and what is wrong with the files of a store that no process has."""
    if holder is not None:
        return (StoreCondition.RUNNING if files.abort else StoreCondition.LOCKED), ""
    if any(one.code == "log-missing" for one in reported):
        return StoreCondition.LOG_MISSING, ""
    wrong = [one for one in reported if one.code in _DAMAGE]
    if wrong:
        more = f"; and {len(wrong) - 1} more (listed below)" if len(wrong) > 1 else ""
        return StoreCondition.DAMAGED, f"{wrong[0].where}: {wrong[0].message}{more}"
    if files.abort:
        return StoreCondition.CRASHED, ""
    return (StoreCondition.CLEAN if files.log else StoreCondition.EMPTY), ""


def _end_findings(ends: LogState, files: StoreFiles, findings: Findings) -> None:
    """What looking at the log end told of a store that no process has."""
    if ends.damage is not None:
        offset, reason = ends.damage
        findings.add("log-damage" if ends.inside else "log-tail", "log", f"commitlog {offset}", reason)
    if ends.not_dispatched and not files.newer.no_queue_files:
        detail = f"the last {ends.not_dispatched_bytes} bytes of the log"
        findings.add("unit-missing", "queues", "consumequeue", detail, ends.not_dispatched)


def _ends(
    disk: Disk, files: StoreFiles, batches: list[BatchQueueRows], steps: _Steps
) -> tuple[list[tuple[QueueRows, int]], tuple[int, int]]:
    """Each queue with the queue offset of its end; physical offset and size of the newest message, (−1, 0) for none.

    That of the newest that the log can hold: where its last segments are lost, its end is looked for near their begin.
    """
    ends: list[tuple[QueueRows, int]] = []
    newest = (-1, 0)
    log_end = files.log[-1].held_end if files.log else 0
    for queue in files.queues:
        rows = QueueRows(disk, queue)
        end = last_row(rows)
        ends.append((rows, end))
        newest = max(newest, last_within(rows, end, log_end))
        steps.done()
    return ends, max([newest, *(last_of(batch_rows, log_end) for batch_rows in batches)])


def _batches(disk: Disk, files: StoreFiles) -> list[BatchQueueRows]:
    """The batch queues of RocketMQ 5."""
    log_min = files.log[0].offset if files.log else 0
    return [BatchQueueRows(disk, queue, log_min) for queue in batch_queues(disk, files)[0]]


def _measure_batches(
    batches: list[BatchQueueRows], space: SpaceSum, unread: UnreadCount, limit: int, steps: _Steps
) -> None:
    for rows in batches:
        measured = measure_batches(rows, space.starts, unread.cuts(rows.queue), limit)
        space.topic(rows.queue.topic).queues += 1
        space.add(rows.queue.topic, measured)
        unread.add(rows.queue, BatchUnits(rows), measured)
        steps.done()


def _index(disk: Disk, files: StoreFiles) -> tuple[int, int]:
    """Entries of all index files, and store time (ms) of the newest of them."""
    entries = newest = 0
    for index in files.index:
        if index.whole:
            with ClosedIndexFile(disk, index.path, files.index_layout) as file:
                entries += file.entry_count
                newest = max(newest, file.header.end_timestamp)
    return entries, newest
