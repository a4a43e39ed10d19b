"""`restore --from-dledger`: a plain store made of a DLedger store, in a directory that holds none.

Theory. Each record leaves its entry and goes to the end of a plain log, as it is but for its physicalOffset: queue
offsets, times, hosts, properties and bodies stay. What names a physical offset changes with it: the message IDs that
brokers make of them, and a settled transaction's preparedTransactionOffset, which is followed to its half message. The
new log begins where the old one does; segments that were plain before DLedger came keep their offsets.

As a restore of topics alone (topics.py): the log is written aside, queues and index are made of it there, it gets its
name when they are complete; then what lies beside it comes. After a kill the same command begins again, or goes on with
what lies beside. The source is only read.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from bisect import bisect_left
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.backup.create.files import ends_of_expired, files_beside
from engine.backup.restore.queues import make_queues
from engine.backup.restore.topics import TopicsLog
from engine.config import STORE_CONF, STORE_SIZES, apache_key
from engine.dataclass import dataclass
from engine.errors import CannotRepair, FormatError, InvalidArgument, NewerStore, NoSpaceToSave, Refused, StoreLocked
from engine.files.lock import holder_of
from engine.format import names
from engine.format.quantities import counted
from engine.format.record import LONG, PREPARED_BACK, body_position, sys_flag_at
from engine.format.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, transaction_type
from engine.format.topic_rules import HALF_TOPIC
from engine.inspect.store.dledger import read_notes
from engine.inspect.store.newer import DLEDGER, FILES, OWN_CONFIG, TIMER
from engine.inspect.store.survey import survey
from engine.log.scan import Blank, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.reach import beneath
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Damage, Gap

UNDER_WAY = "restoring.json"
_ASIDE = ".restoring"
_BEGUN = {UNDER_WAY + ".tmp"}
_LARGEST_NOTE = 65536
_LOG, _BESIDE = "log", "beside"
_LISTED = 20
"""Lost ranges that are listed one by one."""


@dataclass(frozen=True, slots=True)
class DLedgerPlan:
    """What a migration would do; nothing of the log was read for it.

    Attributes:
        source, target: directories of the two stores.
        start, end: physical offsets of the source's log, up to its last file's end.
        plain_segments, entry_files: how many.
        size: bytes that the source's log takes at most.
        beside: files that are taken along, by their path in the store.
        notes: what there is to know.
    """

    source: str
    target: str
    start: int
    end: int
    plain_segments: int
    entry_files: int
    size: int
    beside: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "source": self.source,
            "store": self.target,
            "minOffset": self.start,
            "maxOffset": self.end,
            "plainSegments": self.plain_segments,
            "entryFiles": self.entry_files,
            "bytes": self.size,
            "files": list(self.beside),
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class MigratedStore:
    """A plain store that was made: its log [`start`, `end`), physical offsets.

    `lost`: damaged or missing ranges of the source, the first of them (offset, length, why); `lost_ranges`,
    `lost_bytes`: of all. `prepared`: preparedTransactionOffsets that were followed. `refusal`: why queues and index
    could not be made.
    """

    plan: DLedgerPlan
    start: int = 0
    end: int = 0
    records: int = 0
    messages: int = 0
    prepared: int = 0
    lost: list[tuple[int, int, str]] = field(default_factory=list)
    lost_ranges: int = 0
    lost_bytes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    refusal: RStoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "store": self.plan.target,
            "source": self.plan.source,
            "minOffset": self.start,
            "maxOffset": self.end,
            "records": self.records,
            "messages": self.messages,
            "lost": [{"physicalOffset": at, "length": length, "reason": why} for at, length, why in self.lost],
            "lostRanges": self.lost_ranges,
            "lostBytes": self.lost_bytes,
            "files": list(self.plan.beside),
            "seconds": round(self.seconds, 3),
            "problems": self.problems,
            "refused": None if self.refusal is None else self.refusal.to_json(),
        }


def plan_migration(disk: Disk, config: StoreConfig, source: StoreConfig) -> DLedgerPlan:
    """What would be done. `config` names the directory of the new store, `source` the DLedger store.

    Raises:
        CannotRepair: the source is no DLedger store, or has no entry. NewerStore: it keeps what a plain store of files
        can't take. StoreLocked: a process has it open. Refused: the new directory is not empty. NoSpaceToSave,
        NotAStore, StorageError.
    """
    root, target = os.fspath(source.store_path_root_dir), os.fspath(config.store_path_root_dir)
    if os.path.realpath(root) == os.path.realpath(target):
        raise InvalidArgument("--from-dledger names the directory that is to become the new store", path=root)
    files = survey(disk, source)
    _demand_movable(files)
    holder = holder_of(disk, root)
    if holder is not None:
        raise StoreLocked(
            f"process {holder.pid or '?'} has the DLedger store open", path=root, hint="stop its broker first"
        )
    _demand_empty(disk, config)
    size = sum(segment.size for segment in files.log)
    place = disk.nearest(os.fspath(config.commit_log_paths[0]))
    free = disk.writable(place)
    if size > free:
        raise NoSpaceToSave(f"the log needs up to {size} bytes, and {free} are free", path=place)
    beside = _beside(disk, files)
    return DLedgerPlan(
        root,
        target,
        files.log[0].offset,
        files.log[-1].end,
        sum(not one.in_entries for one in files.log),
        sum(one.in_entries for one in files.log),
        size,
        tuple(beside),
        tuple(_notes(disk, files)),
    )


def migrate(
    disk: Disk,
    config: StoreConfig,
    source: StoreConfig,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MigratedStore:
    """Make the plain store. Raises as `plan_migration`."""
    began = time.monotonic()
    plan = plan_migration(disk, config, source)
    made = _Migration(disk, config, survey(disk, source), plan, jobs, progress).run()
    made.seconds = time.monotonic() - began
    return made


# --- before anything is written ---------------------------------------------------------------------------------------


def _demand_movable(files: StoreFiles) -> None:
    if files.dledger is None or not any(one.in_entries for one in files.log):
        what = "not a DLedger store" if files.dledger is None else "a DLedger store without an entry"
        raise CannotRepair(what, path=files.root, hint="a plain store is opened as it is")
    stays = [str(part) for part in files.newer.parts if part.what not in (DLEDGER, FILES)]
    if stays:
        waiting = " (dump timerlog --due lists the messages that wait)" if files.newer.has(TIMER) else ""
        raise NewerStore(
            f"the DLedger store keeps what a plain store of files can't take: {', '.join(stays)}",
            path=files.root,
            hint="its own broker, with a copy of the topics (rstore copy), takes its messages elsewhere" + waiting,
        )


def _demand_empty(disk: Disk, config: StoreConfig) -> None:
    """Nothing may be in the directories of the new store but what an interrupted run has left. Raises Refused."""
    root, log = os.fspath(config.store_path_root_dir), os.fspath(config.commit_log_paths[0])
    if disk.exists(os.path.join(root, UNDER_WAY)):
        return
    for place in (root, log, log + _ASIDE):
        if disk.exists(place) and (not disk.is_dir(place) or set(disk.listdir(place)) - _BEGUN):
            raise Refused("the directory is not empty", path=place, hint="name an empty or a new one with --store")


def _beside(disk: Disk, files: StoreFiles) -> list[str]:
    """Paths in the store of what is taken along: config/, and the ends of queues whose messages have all expired."""
    taken_along = files_beside(disk, files, ends_of_expired(disk, files))
    return [path for path in taken_along.paths if path not in (names.CHECKPOINT, STORE_CONF)]


def _notes(disk: Disk, files: StoreFiles) -> list[str]:
    assert files.dledger is not None
    notes = ["physical offsets change, and with them the message IDs that brokers make of them; clients' IDs stay"]
    if not files.log[0].in_entries:
        notes.append("plain segments before the first entry keep their offsets")
    noted = read_notes(disk, files.dledger)
    if noted.committed_index is not None and noted.end_index is not None and noted.end_index > noted.committed_index:
        count = counted(noted.end_index - noted.committed_index, "entry", "entries")
        notes.append(f"{count} after the last committed one that the member noted are taken, too")
    if files.abort:
        notes.append("the store was not closed cleanly: its group may have more on other brokers")
    return notes


# --- the run ----------------------------------------------------------------------------------------------------------


class _Migration:
    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        files: StoreFiles,
        plan: DLedgerPlan,
        jobs: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        sizes = {name: getattr(files.config, name) for name in STORE_SIZES}
        for name, size in sizes.items():
            if name in config.given and getattr(config, name) != size:
                raise InvalidArgument(
                    f"{apache_key(name)} is {getattr(config, name)} in the settings, and {size} in the DLedger store",
                    hint="leave it out, or give the DLedger store's",
                )
        known = any(f"{names.CONFIG}/{name}" in plan.beside for name in OWN_CONFIG)  # as RocketMQ 5's
        self._config = config.with_changes(**sizes, index_tags=known and files.config.index_tags)
        self._source = disk
        self._files = files
        self._plan = plan
        self._jobs = jobs
        self._progress = progress
        self._root = plan.target
        self._log = os.fspath(config.commit_log_paths[0])
        self._aside = self._log + _ASIDE
        self._note = os.path.join(self._root, UNDER_WAY)
        self._disk = beneath(disk, self._config, (os.path.dirname(self._log),))
        self._made = MigratedStore(plan)

    def run(self) -> MigratedStore:
        """See `migrate`."""
        made = self._made
        stage = self._begin()
        if stage == _LOG:
            self._write_log()
            made.refusal = self._make_queues()
            self._write_note(_BESIDE)
            self._disk.step("restore:written")
            self._disk.replace(self._aside, self._log)
            self._disk.sync_dir(os.path.dirname(self._log))
        elif self._disk.exists(self._aside):  # killed before it got its name
            self._disk.replace(self._aside, self._log)
            self._disk.sync_dir(os.path.dirname(self._log))
        self._disk.step("restore:named")
        for path in self._plan.beside:
            if not path.startswith(names.CONSUMEQUEUE + "/"):
                self._copy(path)
        self._disk.unlink(self._note)
        self._disk.sync_dir(self._root)
        return made

    def _begin(self) -> str:
        """How far a run before this one came. Raises Refused."""
        if self._disk.exists(self._note):
            noted = self._noted()
            if noted.get("source") != self._plan.source:
                raise Refused(
                    "another restore into this directory is not finished",
                    path=self._note,
                    hint="run that one again, or name an empty directory",
                )
            if noted.get("stage") == _BESIDE:
                made = self._made
                made.start, made.end, made.records, made.messages, made.prepared = noted["totals"]
                made.lost = [(at, length, why) for at, length, why in noted["lost"]]
                made.lost_ranges, made.lost_bytes = noted["lostTotals"]
                made.problems = list(noted["problems"])
                return _BESIDE
            self._remove_begun()
        self._disk.mkdirs(self._root)
        self._write_note(_LOG)
        return _LOG

    def _remove_begun(self) -> None:
        """What a run that was killed while it wrote the log has left: it is written again."""
        made = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.INDEX, names.SALVAGE)
        for path in (self._aside, *(os.path.join(self._root, name) for name in made)):
            if self._disk.is_dir(path):
                remove_tree(self._disk, path)

    def _noted(self) -> dict[str, Any]:
        try:
            noted = json.loads(self._disk.read_file(self._note, _LARGEST_NOTE))
        except (ValueError, RecursionError):
            noted = None
        if not isinstance(noted, dict):
            raise Refused("not a note of a restore", path=self._note, hint="name an empty directory")
        return noted

    def _write_note(self, stage: str) -> None:
        made = self._made
        note = {
            "source": self._plan.source,
            "stage": stage,
            "totals": [made.start, made.end, made.records, made.messages, made.prepared],
            "lost": made.lost,
            "lostTotals": [made.lost_ranges, made.lost_bytes],
            "problems": made.problems,
        }
        self._disk.write_file_atomically(self._note, json.dumps(note).encode())

    def _write_log(self) -> None:
        """The log, aside: durable."""
        if self._disk.is_dir(self._log):
            self._disk.remove_dir(self._log)  # an empty one would be in the way of the name
        self._disk.mkdirs(self._aside)
        files, made = self._files, self._made
        start = files.log[0].offset
        size = self._config.mapped_file_size_commit_log
        total = files.log[-1].end - start
        halves = _Halves()
        held: list[Damage | Gap] = []
        with ClosedLog(self._source, files.log) as log, TopicsLog(self._disk, self._aside, start, size) as target:
            scanner = Scanner(log, max_message_size=self._config.max_message_size)
            plain = {segment.offset for segment in files.log if not segment.in_entries}
            for event in scanner.scan(start, resume=True):
                if isinstance(event, RecordBatch):
                    self._lost(held)
                    if event.start in plain:
                        target.begin(event.start)
                    self._records(event, target, halves)
                elif not isinstance(event, Blank):
                    held.append(event)
                if self._progress is not None:
                    self._progress(min(event.end - start, total), total)
            self._tail(log, held)
            target.finish()
            made.start, made.end = start, target.end

    def _records(self, batch: RecordBatch, target: TopicsLog, halves: _Halves) -> None:
        made = self._made
        made.records += len(batch)
        made.messages += batch.messages
        for i in range(len(batch)):
            record = batch.record(i)
            if batch.topic(i) == halves.topic:
                halves.add(batch.offset(i), target.append(record))
                continue
            flags = sys_flag_at(record)
            if transaction_type(flags) in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
                at = body_position(flags) - PREPARED_BACK
                moved = halves.new_place(LONG.unpack_from(record, at)[0])
                if moved is not None:
                    changed = bytearray(record)
                    LONG.pack_into(changed, at, moved)
                    record = memoryview(changed)
                    made.prepared += 1
            target.append(record)

    def _lost(self, held: list[Damage | Gap]) -> None:
        """Damage with a sound record after it."""
        made = self._made
        for one in held:
            why = "segments are missing" if not hasattr(one, "reason") else one.reason.value
            made.lost_ranges += 1
            made.lost_bytes += one.length
            if len(made.lost) < _LISTED:
                made.lost.append((one.offset, one.length, why))
        held.clear()

    def _tail(self, log: ClosedLog, held: list[Damage | Gap]) -> None:
        """What follows the last record: nothing where it is empty."""
        from engine.inspect.check.verify import judge_tail

        damage: list[Any] = [one for one in held if hasattr(one, "reason")]
        for bad in judge_tail(log, damage, False):
            self._made.problems.append(
                f"{bad.length} bytes at {bad.offset}, after the last record, were not taken: {bad.reason}"
            )

    def _make_queues(self) -> RStoreError | None:
        keys = sorted(map(apache_key, STORE_SIZES))
        sizes = {apache_key(name): getattr(self._config, name) for name in STORE_SIZES}
        text = "".join(f"{key}={sizes[key]}\n" for key in keys)
        self._disk.write_file_atomically(os.path.join(self._root, STORE_CONF), text.encode())
        for path in self._plan.beside:
            if path.startswith(names.CONSUMEQUEUE + "/"):
                self._copy(path)
        config = self._config.with_changes(store_path_commit_log=self._aside)
        refusal = make_queues(self._source, config, self._jobs)
        if refusal is not None and refusal.path is not None:
            refusal.path = refusal.path.replace(self._aside, self._log, 1)
        return refusal

    def _copy(self, path: str) -> None:
        """A file of the source, to the same place in the new store: durable."""
        source, target = os.path.join(self._files.root, path), os.path.join(self._root, path)
        entry = self._source.look(source)
        if entry is None or not entry.is_file:
            raise FormatError("the file went away while the store was read", path=source)
        self._disk.mkdirs(os.path.dirname(target))
        self._disk.write_file_atomically(target, self._source.read_file(source, entry.size))


class _Halves:
    """Where half messages have gone: 16 bytes each. They are added by their old place."""

    topic = HALF_TOPIC.encode()

    def __init__(self) -> None:
        self._old = array("q")
        self._new = array("q")

    def add(self, old: int, new: int) -> None:
        """One has moved."""
        self._old.append(old)
        self._new.append(new)

    def new_place(self, old: int) -> int | None:
        """Where the half message of an offset lies now; None: none was there."""
        at = bisect_left(self._old, old)
        return self._new[at] if at < len(self._old) and self._old[at] == old else None
