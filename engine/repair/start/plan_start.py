"""`rstore plan-start`: what a broker of one release, started now, would do to this store, and what would be lost by it.

The outcome is Apache's own (`apache_start`); the loss is counted against what is on disk: sound records after the
place where it would cut, messages that some queue would lack, keys in index files that it deletes and doesn't put
again.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.broker_conf.report import read_conf
from engine.config import apache_key
from engine.dataclass import dataclass
from engine.errors import DataIsAbsent, LogMissing, NextStep, Refused, RStoreError, StorageError
from engine.files.lock import holder_of
from engine.format import names, sysflag
from engine.format.judge import Reason
from engine.format.quantities import counted
from engine.inspect import next_step
from engine.inspect.check.config import read_config
from engine.inspect.check.config_start import ConfigStart, config_start
from engine.inspect.check.files import (
    absent_paths,
    as_planned,
    file_findings,
    gap_findings,
    is_log_gone,
    path_findings,
)
from engine.inspect.check.served import check_served
from engine.inspect.finding import Findings
from engine.inspect.store.index_files import entries_before
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.layout import layout_of
from engine.inspect.store.newer import (
    BATCH_QUEUES,
    CONTROLLER,
    FILES,
    PROPERTY_CRC,
    PROPERTY_CRC_FORCED,
    refuse_verdict,
)
from engine.inspect.store.odd import first_error
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.release import Release, release_of
from engine.inspect.store.repairs import repairs
from engine.inspect.store.survey import StoreFiles, survey
from engine.log.derive import TopicQueue
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.recover.following import codes_of
from engine.repair.recover.log_end import Mode
from engine.repair.recover.recover import plan_recover
from engine.repair.start.apache_start import ApacheStart, StartOutcome, apache_start, queue_end
from engine.repair.start.not_shown import short_of
from engine.repair.start.rules import V4, StartRules, rules_for, rules_of

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.recover.plan import RecoverPlan

_SAMPLE = 16 << 20
_PLANNED = frozenset({FILES, PROPERTY_CRC, PROPERTY_CRC_FORCED, BATCH_QUEUES, CONTROLLER})
"""Parts of RocketMQ 5 whose part in a start is known; of others a start may do more."""
_SIZES = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)


@dataclass(slots=True)
class StartPlan:
    """What would happen.

    `after`: records and bytes by queue that the log would lose; `short`: messages that stay in the log, but that their
    queue would lack, or show other bytes for; `index_removed` and `keys_lost`: files deleted, and keys in them that
    nothing puts again. `settings`: those given that don't match the files. `seconds`: how long reading would take.
    `next`: what to do before a broker is started; `wrong`: codes of what a recovery would find in the log. `gone`: no
    file holds a part of the log, under whatever name. `compared`: queues were held against the log; else what is lost
    of them is not known. `absent`: a directory of the log that is not there, while the log lacks what it may hold.
    `rules`: of the release that is started; `sign`: what tells that the store is of RocketMQ 5. `beside`: what the
    release reads beside log, queues and index when it starts, and what is not computed here.
    """

    files: StoreFiles
    apache: ApacheStart
    rules: StartRules = V4
    sign: Release | None = None
    beside: tuple[str, ...] = ()
    after: dict[TopicQueue, tuple[int, int]] = field(default_factory=dict)
    short: dict[TopicQueue, int] = field(default_factory=dict)
    index_removed: list[str] = field(default_factory=list)
    keys_lost: int = 0
    bytes_cut: int = 0
    bytes_to_scan: int = 0
    seconds: float = 0.0
    settings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    next: NextStep | None = None
    wrong: frozenset[str] = frozenset()
    gone: bool = False
    compared: bool = True
    absent: str | None = None

    @property
    def records_after(self) -> int:
        """Sound messages that the log would lose."""
        return sum(records for records, _ in self.after.values())

    @property
    def loses(self) -> list[str]:
        """What would be lost, in words; empty when nothing would."""
        losses = []
        if self.records_after:
            losses.append(f"{counted(self.records_after, 'message')} after {self.apache.end}")
        if self.short:
            losses.append(f"{counted(sum(self.short.values()), 'message')} of {counted(len(self.short), 'queue')}")
        if self.keys_lost:
            losses.append(f"{counted(self.keys_lost, 'key')} of the index")
        return losses

    @property
    def refusal(self) -> RStoreError | None:
        """The error that says that data would be lost, or is absent: a broker continues without it."""
        error = first_error(self.files.odd)
        if isinstance(error, DataIsAbsent):
            return error
        if self.absent is not None:
            return DataIsAbsent(
                "data is absent: this directory of the commit log is missing, and so is a part of the log",
                path=self.absent,
                hint="start no broker",
                next_step=self.next,
            )
        if not self.loses:
            return None
        if self.gone:
            return LogMissing(
                f"there is no commit log: a broker started now would lose {', '.join(self.loses)}",
                path=os.fspath(self.files.config.commit_log_paths[0]),
                hint="start no broker: nothing else contains the messages",
                next_step=self.next,
            )
        return Refused(
            f"a broker started now would lose {', '.join(self.loses)}",
            path=self.files.root,
            hint="start no broker",
            next_step=self.next,
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON of CLI.md "Plans"."""
        apache = self.apache
        return {
            "release": self.rules.release,
            "sign": None if self.sign is None else self.sign.to_json(),
            "notPlanned": list(self.beside),
            "mode": apache.mode.value,
            "abort": self.files.abort,
            "outcome": apache.outcome.value,
            "why": apache.why,
            "startFile": None if apache.start is None else os.path.basename(apache.start.path),
            "minOffset": apache.min_offset,
            "maxOffset": apache.max_offset,
            "truncateTo": apache.end if self.bytes_cut else None,
            "records": apache.records,
            "bytesToScan": self.bytes_to_scan,
            "secondsEstimate": round(self.seconds, 1),
            "bytesCut": self.bytes_cut,
            "damage": [],
            "recordsAfter": self.records_after,
            "after": [
                {"topic": queue.topic, "queueId": queue.queue_id, "records": records, "bytes": size}
                for queue, (records, size) in sorted(self.after.items())
            ],
            "filesRemoved": [os.path.relpath(segment.path, self.files.root) for segment in apache.removed],
            "queues": [
                {
                    "topic": queue.topic,
                    "queueId": queue.queue_id,
                    "messagesLost": self.after.get(queue, (0, 0))[0] + self.short.get(queue, 0),
                }
                for queue in sorted(self.after.keys() | self.short.keys())
            ],
            "index": {"filesRemoved": self.index_removed, "keysLost": self.keys_lost},
            "settings": self.settings,
            "losesData": bool(self.loses),
            "queuesCompared": self.compared,
            "absentDirectory": self.absent,
            "salvage": None,
            "changed": bool(self.bytes_cut or apache.removed or self.index_removed or self.files.abort),
            "problems": self.problems,
            "next": None if self.next is None else self.next.to_json(),
        }


def plan_start(
    disk: Disk,
    config: StoreConfig,
    *,
    conf: str | None = None,
    version: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    files: StoreFiles | None = None,
) -> StartPlan:
    """Compute it, without writing a byte.

    Args:
        disk: how files are reached.
        config: the store's settings.
        conf: the properties file that the broker is started with.
        version: the release that is started (`rules`); None: that of the store, by its own signs.
        progress: called with bytes read and to read.
        files: the store's, where the caller has looked already.

    Raises:
        NotAStore. StorageError: the disk can't read what a start reads; `check` reads what follows. NewerStore: the
        queues that recovery begins with are in RocksDB. InvalidArgument: no rules are known of that release.
    """
    given = None if version is None else rules_of(version)
    files = survey(disk, config) if files is None else files
    refuse_verdict(files.config, files.root, files.newer)
    sign = release_of(disk, files)
    rules = given or rules_for(sign)
    try:
        plan = _outcome(disk, config, files, rules, progress)
    except StorageError as error:
        if error.hint is not None:
            raise
        step = next_step.read(files.config)
        raise StorageError(error.message, path=error.path, offset=error.offset, next_step=step) from None
    plan.sign = sign
    plan.beside = tuple(str(part) for part in files.newer.parts if part.what not in _PLANNED)
    stops = read_conf(disk.read_file(conf)).stops if conf is not None else ()
    _configured(plan, config_start(disk, files.config, files.root), [f"{conf}: {why}" for why in stops])
    _look_for_next(disk, plan)
    return plan


def _configured(plan: StartPlan, start: ConfigStart, conf: Sequence[str]) -> None:
    """What config/ and broker.conf do to the start. Where a table stops it, the store is never opened, and nothing of
    it changes. Most that stops it in broker.conf (delay levels, thread pools) does so when the store was recovered
    (BrokerController#initialize), so what would be lost is shown.
    """
    plan.problems += start.problems
    if plan.apache.outcome is not StartOutcome.OPENS and not start.stops:
        return
    if start.stops:
        plan.apache = replace(plan.apache, outcome=StartOutcome.REFUSES, why=start.stops[0], removed=())
        plan.after, plan.short, plan.index_removed, plan.keys_lost, plan.bytes_cut = {}, {}, [], 0, 0
    elif late := (*start.stops_late, *conf):
        plan.apache = replace(plan.apache, outcome=StartOutcome.REFUSES, why=late[0])


def _outcome(
    disk: Disk,
    config: StoreConfig,
    files: StoreFiles,
    rules: StartRules,
    progress: Callable[[int, int], None] | None,
) -> StartPlan:
    with ClosedLog(disk, files.log) as log:
        plan = StartPlan(files, apache_start(disk, files, log, rules, progress=progress), rules)
        plan.settings = _settings(disk, config)
        plan.problems += [f"{os.path.relpath(odd.path, files.root)}: {odd.why}" for odd in files.odd]
        if not files.log and not files.queues:
            plan.problems.append("neither a commit log nor queues: a broker starts a new store")
        if plan.apache.outcome in (StartOutcome.REFUSES, StartOutcome.CRASHES) and not plan.apache.late:
            return plan
        if not files.log:
            _count_all_queues(disk, plan)
            return plan
        _measure(plan, log)
        _count_after(plan, log)
        skipped = _skipped(plan, log)
    _count_short(disk, plan, skipped)
    if plan.apache.mode is Mode.ABNORMAL:
        _count_keys(disk, plan)
    return plan


def _look_for_next(disk: Disk, plan: StartPlan) -> None:
    """As status, doctor and check say it: by the files, and by what recovery would find in the log."""
    files = plan.files
    live = holder_of(disk, files.root) is not None
    done = repairs(disk, files.root)
    findings = Findings()
    layout = None if live else layout_of(disk, files)
    plan.gone = is_log_gone(files, layout)
    file_findings(disk, files, findings, live=live, done=done, layout=layout)
    planned = as_planned(files, layout)
    gap_findings(disk, planned, findings, done)
    path_findings(disk, files.config, findings)
    check_served(disk, planned, read_config(disk, files.config, files.root, findings), findings, live=live)
    for code in plan.wrong:
        findings.add(code, "log", names.COMMITLOG)
    if not plan.gone or files.queues:
        plan.next = next_step.of_findings(files.config, findings.result(), everything=False, live=live)


def _settings(disk: Disk, config: StoreConfig) -> list[str]:
    """Sizes that were given, and that the files contradict."""
    if not config.given & set(_SIZES):
        return []
    try:
        inferred = survey(disk, config.as_given(config.given - set(_SIZES))).config
    except RStoreError as error:
        return [error.message]
    return [
        f"{apache_key(name)} = {getattr(config, name)}, the files have {getattr(inferred, name)}"
        for name in _SIZES
        if name in config.given and getattr(inferred, name) != getattr(config, name)
    ]


def _measure(plan: StartPlan, log: ClosedLog) -> None:
    """Bytes that recovery reads, and how long that takes at the rate of a short measurement (read, CRC)."""
    start = plan.apache.start
    assert start is not None
    plan.bytes_to_scan = max(0, plan.apache.end - start.offset)
    began, done = time.perf_counter(), 0
    while done < min(_SAMPLE, plan.bytes_to_scan):
        piece = log.read(start.offset + done, 1 << 20)
        if not piece:
            break
        zlib.crc32(piece)
        done += len(piece)
    if done:
        plan.seconds = plan.bytes_to_scan * (time.perf_counter() - began) / done


def _count_after(plan: StartPlan, log: ClosedLog) -> None:
    """Sound records that lie after the end."""
    scanner = Scanner(log, max_message_size=plan.files.config.max_message_size)
    last = plan.apache.end
    for event in scanner.scan(plan.apache.end, resume=True):
        if isinstance(event, RecordBatch):
            last = event.end
            for i, row in enumerate(event.rows):
                if sysflag.is_consumable(row.sys_flag):
                    queue = TopicQueue(event.topic(i).decode("utf-8", "replace"), row.queue_id)
                    records, size = plan.after.get(queue, (0, 0))
                    plan.after[queue] = (records + 1, size + row.size)
    plan.bytes_cut = last - plan.apache.end


def _skipped(plan: StartPlan, log: ClosedLog) -> list[tuple[int, int]]:
    """Ranges that dispatch leaves out: from a bad record on the rest of its file (ReputMessageService#doReput)."""
    skipped: list[tuple[int, int]] = []
    if plan.apache.mode is Mode.ABNORMAL:
        return skipped  # recovery itself has dispatched all that it read
    scanner = Scanner(log, check_crc=False, max_message_size=plan.files.config.max_message_size)
    for segment in log.segments:
        low, high = max(segment.offset, plan.apache.dispatch_from), min(segment.end, plan.apache.end)
        for event in scanner.scan(low, high) if low < high else ():
            if isinstance(event, Damage) and event.reason is not Reason.BLANK_LENGTH:
                skipped.append((event.offset, high))
    return skipped


def _count_short(disk: Disk, plan: StartPlan, skipped: list[tuple[int, int]]) -> None:
    """Messages of the log that their queue lacks, or loses to a unit that is none, and that dispatch doesn't bring."""
    try:
        repair = plan_recover(disk, plan.files, cut=True)
        plan.wrong = codes_of(repair)
    except RStoreError as error:
        plan.problems.append(f"queues were not compared with the log: {error}")
        plan.compared = False
        return
    if repair.log.end.gaps or any(queue.units_cut for queue in repair.queues):
        plan.absent = next(iter(absent_paths(disk, plan.files.config)), None)
    moved = repair.layout.relocations
    root = plan.files.root
    plan.problems += [
        f"{os.path.relpath(one.path, root)}: its records belong to {os.path.basename(one.target)}, so a broker reads "
        "other bytes there"
        for one in moved
    ]
    places = Intervals()
    for segment in repair.layout.segments:
        if segment.source is not None:
            places.add(segment.offset, segment.end)
    if plan.apache.queues is None:
        _count_not_dispatched(disk, plan, repair, places, skipped)
        return
    for queue, count in short_of(disk, plan.files, repair, plan.apache.queues, places, plan.apache.end):
        _add(plan, queue, count)


def _count_not_dispatched(
    disk: Disk, plan: StartPlan, repair: RecoverPlan, places: Intervals, skipped: list[tuple[int, int]]
) -> None:
    """The same where dispatch follows recovery. `places`: files of the log under names of others."""
    import numpy as np

    ends = {
        queue_files.queue: queue_end(disk, queue_files, plan.files.config.mapped_file_size_consume_queue)
        for queue_files in plan.files.queues
        if queue_files.files
    }
    queues = {queue.number: queue.queue for queue in repair.queues}
    for chunk in repair.writes.chunks():
        for number in np.unique(chunk["queue"]):
            queue = queues[int(number)]
            physical = chunk["physical_offset"][chunk["queue"] == number]
            lost = physical < _dispatched_from(plan, ends.get(queue, (0, -1))[1])
            for start, end in skipped:
                lost |= (physical >= start) & (physical < end)
            _add(plan, queue, int((lost & (physical < plan.apache.end)).sum()))
    for queue_files in plan.files.queues:
        if queue_files.files:
            rows = QueueRows(disk, queue_files)
            first, known = ends[queue_files.queue]
            for _, units in rows.chunks(rows.first, first) if places else ():
                _add(plan, queue_files.queue, int((is_real(units) & places.mask(units["physical_offset"])).sum()))
            limit = min(_dispatched_from(plan, known), plan.apache.end)
            for _, units in rows.chunks(first, max(first, rows.extent)):
                _add(plan, queue_files.queue, int((is_real(units) & (units["physical_offset"] < limit)).sum()))


def _dispatched_from(plan: StartPlan, known: int) -> int:
    """Where dispatch begins for a queue: abnormal recovery passes over what the queue says that it has."""
    return max(plan.apache.dispatch_from, known) if plan.apache.mode is Mode.ABNORMAL else plan.apache.dispatch_from


def _add(plan: StartPlan, queue: TopicQueue, count: int) -> None:
    if count:
        plan.short[queue] = plan.short.get(queue, 0) + count


def _count_all_queues(disk: Disk, plan: StartPlan) -> None:
    """Without a commit log every queue goes, and with it the queue offsets that consumers hold."""
    for queue_files in plan.files.queues:
        rows = QueueRows(disk, queue_files)
        units = sum(int(is_real(chunk).sum()) for _, chunk in rows.chunks(rows.first, rows.extent))
        if units:
            plan.short[queue_files.queue] = units


def _count_keys(disk: Disk, plan: StartPlan) -> None:
    """Index files newer than the checkpoint go; keys of what recovery doesn't read again go with them."""
    if not plan.files.config.message_index_enable:
        return
    for index_file in plan.files.index:
        if not index_file.whole:
            plan.problems.append(f"index/{index_file.name}: {index_file.size} bytes, which does not match the settings")
            continue
        with ClosedIndexFile(disk, index_file.path, plan.files.index_layout) as file:
            if file.header.end_timestamp > plan.files.checkpoint.index_msg_timestamp:
                plan.index_removed.append(index_file.name)
                plan.keys_lost += entries_before(file, file.entry_count, plan.apache.dispatch_from)
