"""`restore`: a store made from a snapshot, in a directory that holds none.

Theory. The log is written aside, as `<commit log directory>.restoring`. Queues and index are made from it there, by a
recovery of the whole log, as ever, while the device still makes the log durable. It gets its name when both are
complete: no broker and no command takes a half restored directory for a store. Then offsets are settled.
`restoring.json` says what is under way: the same command goes on after a kill, and proves what is there by the pieces'
names instead of fetching it again.

A log of some topics alone is made of the snapshot's records (topics.py), after a kill from its beginning.

Every piece is proved by its name before it is written. Files get the time of the restore: retention counts from it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.backup.leases import Lease
from engine.backup.log import RepositoryLog
from engine.backup.restore.cut import Upto, find_end
from engine.backup.restore.files import bytes_of, write_files
from engine.backup.restore.offsets import Offsets, ranges_of, settle_offsets
from engine.backup.restore.queues import make_queues
from engine.backup.restore.segments import SegmentWriter
from engine.backup.restore.topics import TopicsLog, demand_topics, write_topics
from engine.config import STORE_SIZES, apache_key
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NoSpaceToSave, NotFound, Refused, RStoreError, StorageError
from engine.files.libc import Libc
from engine.format import names
from engine.format.names import segment_name
from engine.format.quantities import counted
from engine.inspect.store.config_shapes import TOPICS
from engine.inspect.store.survey import survey
from engine.repair.reach import beneath
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.manifest import SegmentRef, Snapshot
    from engine.backup.repository import Repository, SnapshotName
    from engine.config import StoreConfig
    from engine.files.disk import Disk

UNDER_WAY = "restoring.json"
RESTORING = ".restoring"
_BEGUN = {UNDER_WAY + ".tmp"}
"""What a run that was killed at its very beginning has left."""
_LARGEST_NOTE = 65536
_LOG, _SETTLING = "log", "settling"


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What is restored: how far, and what becomes of the offsets of groups. `jobs`: threads; None: what pays.

    `topics`: these alone, as a store of their own (topics.py); empty: all.
    """

    upto: Upto = field(default_factory=Upto)
    offsets: Offsets = Offsets.AS_WERE
    jobs: int | None = None
    topics: frozenset[str] = frozenset()


@dataclass(slots=True)
class RestoredStore:
    """A store that was restored: its log [`start`, `end`), physical offsets; `cut`: bytes of the snapshot's left out.

    `topics`: those that were restored alone; empty: all.

    `refusal`: why queues and index could not be made: the log has damage, as it had when it was backed up.
    """

    root: str
    name: SnapshotName
    start: int
    end: int
    cut: int
    read: int
    kept: int
    topics: tuple[str, ...] = ()
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    refusal: RStoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "store": self.root,
            "snapshot": self.name.snapshot_id,
            "minOffset": self.start,
            "maxOffset": self.end,
            "bytesCut": self.cut,
            "bytesRestored": self.read,
            "bytesThere": self.kept,
            "topics": list(self.topics),
            "seconds": round(self.seconds, 3),
            "problems": self.problems,
            "refused": None if self.refusal is None else self.refusal.to_json(),
        }


def restore(
    disk: Disk,
    config: StoreConfig,
    repository: Repository,
    name: SnapshotName,
    snapshot: Snapshot,
    options: RestoreOptions,
    progress: Callable[[int, int], None] | None = None,
) -> RestoredStore:
    """Restore a snapshot to the directory that `config` names.

    Raises:
        StoreLocked: somebody removes objects from the repository now. Refused: something else is there.
        InvalidArgument, NotFound: see `find_end`. NoSpaceToSave: the disk has no space for it. FormatError,
        StorageError: the repository is damaged, or the disk refused.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        unlocked = _hold(stack, repository)
        restored = _Restore(disk, config, repository, name, snapshot, options, progress).run()
    restored.problems += unlocked
    restored.seconds = time.monotonic() - began
    return restored


def _hold(stack: ExitStack, repository: Repository) -> list[str]:
    """A lease while it is restored: nobody removes objects. A repository may be one that we can only read."""
    try:
        stack.enter_context(Lease(repository.objects, "restore"))
    except StorageError as error:
        return [f"the repository was not locked, a prune might have disturbed the restore: {error.message}"]
    return []


class _Restore:
    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        repository: Repository,
        name: SnapshotName,
        snapshot: Snapshot,
        options: RestoreOptions,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._named = disk
        self._repository = repository
        self._name = name
        self._snapshot = snapshot
        self._options = options
        self._progress = progress
        self._config = _sized(config, snapshot)
        self._root = os.fspath(config.store_path_root_dir)
        self._log_directory = os.fspath(config.commit_log_paths[0])
        self._aside = self._log_directory + RESTORING
        self._note = os.path.join(self._root, UNDER_WAY)
        # Others may be able to write there, and it lasts: nothing goes through what they put in its way.
        self._disk = beneath(disk, self._config, (os.path.dirname(self._log_directory),))
        self._done = self._kept = 0
        self._end = self._log_end = 0
        self._problems: list[str] = []
        self._wanted: dict[str, Any] = {}

    def run(self) -> RestoredStore:
        stage = self._begin()
        snapshot = self._snapshot
        segments = self._segments()
        if stage == _LOG and not self._has_its_name():
            refusal = self._make_log(segments)
            self._write_note(_LOG)  # with what the log has become: it may get its name
            self._disk.step("restore:written")
            self._disk.replace(self._aside, self._log_directory)
            self._disk.sync_dir(os.path.dirname(self._log_directory))
        else:  # a run before this one was killed after that; what it has done is done again, which is safe
            refusal = make_queues(self._named, self._config, self._options.jobs)
        self._write_note(_SETTLING)
        self._disk.step("restore:named")
        restored = RestoredStore(
            self._root,
            self._name,
            segments[0].offset if segments else 0,
            self._log_end,
            max(0, snapshot.end - self._end),
            self._done - self._kept,
            self._kept,
            tuple(sorted(self._options.topics)),
            refusal=refusal,
        )
        restored.problems += self._problems + self._settle_offsets()
        self._disk.unlink(self._note)
        self._disk.sync_dir(self._root)
        return restored

    # --- before anything is written ---------------------------------------------------------------------------------

    def _begin(self) -> str:
        """How far a run before this one came; the end of the log. Raises as `restore`."""
        upto = self._options.upto
        wanted = {
            "snapshot": self._name.snapshot_id, "time": upto.time_ms, "offset": upto.offset, "before": upto.before,
            "offsets": self._options.offsets.value, "topics": sorted(self._options.topics),
        }  # fmt: skip
        noted = self._noted()
        if noted is not None:
            if {key: noted.get(key) for key in wanted} != wanted:
                raise Refused(
                    "another restore into this directory is not finished",
                    path=self._note,
                    hint="run that one again, or name an empty directory",
                )
            self._end, self._log_end, self._problems = noted["end"], noted["logEnd"], noted["problems"]
            return str(noted["stage"])
        for place in (self._root, self._log_directory, self._aside):
            if self._disk.exists(place) and (not self._disk.is_dir(place) or set(self._disk.listdir(place)) - _BEGUN):
                raise Refused("the directory is not empty", path=place, hint="name an empty or a new one with --store")
        if self._options.topics:
            self._demand_topics()
        self._end = find_end(self._repository, self._snapshot, upto)
        self._wanted = wanted
        self._demand_space()
        self._disk.mkdirs(self._root)
        self._write_note(_LOG)
        return _LOG

    def _has_its_name(self) -> bool:
        """Whether a run before this one was killed after the log, complete, got its name. Raises Refused."""
        held = self._disk.is_dir(self._log_directory) and bool(self._disk.listdir(self._log_directory))
        if held and self._disk.exists(self._aside):
            raise Refused(
                "another log is in the place of the one that is restored",
                path=self._log_directory,
                hint="something was started on this directory meanwhile: move that log away, and run the restore again",
            )
        return held

    def _noted(self) -> dict[str, Any] | None:
        if not self._disk.exists(self._note):
            return None
        try:
            noted = json.loads(self._disk.read_file(self._note, _LARGEST_NOTE))
            if noted["stage"] not in (_LOG, _SETTLING) or not all(type(noted[key]) is int for key in ("end", "logEnd")):
                raise ValueError
            if not all(isinstance(one, str) for one in noted["problems"]):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("not a note of a restore", path=self._note, hint="name an empty directory") from None
        self._wanted = {key: noted[key] for key in noted if key not in ("stage", "end", "logEnd", "problems")}
        return dict(noted)

    def _write_note(self, stage: str) -> None:
        note = {**self._wanted, "stage": stage, "end": self._end, "logEnd": self._log_end, "problems": self._problems}
        self._disk.write_file_atomically(self._note, json.dumps(note).encode())

    def _demand_space(self) -> None:
        segments = self._segments()
        needed = sum(map(self._length_of, segments))
        needed += segments[-1].size - self._length_of(segments[-1]) if segments else 0
        if self._options.topics:  # how much they are is known when they are read
            return
        place = self._disk.nearest(self._log_directory)
        free = self._disk.writable(place)
        if needed > free:
            raise NoSpaceToSave(f"the log needs {needed} bytes, and {free} are free", path=place)

    def _demand_topics(self) -> None:
        table = next((one for one in self._snapshot.files if one.path == f"{names.CONFIG}/{TOPICS}"), None)
        log = RepositoryLog(self._repository, self._snapshot)
        known = None if table is None else b"".join(bytes_of(self._repository, table))
        demand_topics(log, known, self._options.topics, self._repository.where)

    def _segments(self) -> list[SegmentRef]:
        """Those that the restored log has a part of."""
        return [one for one in self._snapshot.segments if one.offset < self._end]

    def _length_of(self, segment: SegmentRef) -> int:
        """Bytes of a segment that are restored."""
        return min(segment.held, self._end - segment.offset)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _make_log(self, segments: list[SegmentRef]) -> RStoreError | None:
        """The log, aside, with queues and index: all durable. Why these can't be made of it; None: they are."""
        if self._disk.exists(self._log_directory):
            self._disk.remove_dir(self._log_directory)  # an empty one would be in the way of the name
        if self._options.topics:
            self._write_topics(segments)
            refusal = self._make_queues()
        else:
            self._disk.mkdirs(self._aside)
            total = sum(map(self._length_of, segments))
            with SegmentWriter(self._disk, self._repository, self._options.jobs, self._tick_of(total), total) as writer:
                for segment in segments:
                    path = os.path.join(self._aside, segment_name(segment.offset))
                    is_last = segment is segments[-1]
                    writer.write(path, segment, self._length_of(segment), allocate=is_last)
                writer.wait()
                self._log_end = self._end
                refusal = self._make_queues()
        self._disk.sync_dir(self._aside)
        return refusal

    def _make_queues(self) -> RStoreError | None:
        """Of the log aside, with the files that stand beside it."""
        write_files(self._disk, self._repository, self._snapshot, self._root, self._end, self._options.topics)
        config = self._config.with_changes(store_path_commit_log=self._aside)
        libc = Libc()
        libc.give_back_freed()  # what the pieces took
        refusal = make_queues(self._named, config, self._options.jobs)
        if refusal is not None and refusal.path is not None:
            refusal.path = refusal.path.replace(self._aside, self._log_directory, 1)
        libc.give_back_freed()  # a check follows, which takes as much
        return refusal

    def _write_topics(self, segments: list[SegmentRef]) -> None:
        """The records of some topics: from the beginning, also after a kill."""
        topics = self._options.topics
        if self._disk.is_dir(self._aside):
            remove_tree(self._disk, self._aside)
        self._disk.mkdirs(self._aside)
        start = segments[0].offset if segments else 0
        log = RepositoryLog(self._repository, self._snapshot)
        total = max(0, self._end - start)
        with TopicsLog(self._disk, self._aside, start, self._config.mapped_file_size_commit_log) as target:
            written = write_topics(
                log, self._end, topics, target, self._config.max_message_size, self._upto_of(start, total)
            )
        for topic in sorted(topics - written.records.keys()):
            self._problems.append(f"topic {topic!r} has no record in the restored part of the log")
        if written.damaged:
            ranges = counted(written.damaged, "damaged range")
            self._problems.append(f"the snapshot's log has {ranges}: records of these topics may be missing")
        self._log_end = written.end
        self._done = written.end - start

    def _tick_of(self, total: int) -> Callable[[int, bool], None]:
        def tick(size: int, was_there: bool) -> None:
            self._done += size
            if was_there:
                self._kept += size
            if self._progress is not None:
                self._progress(self._done, max(total, self._done))

        return tick

    def _upto_of(self, start: int, total: int) -> Callable[[int], None]:
        def tick(offset: int) -> None:
            self._done = min(offset - start, total)
            if self._progress is not None:
                self._progress(self._done, total)

        return tick

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _settle_offsets(self) -> list[str]:
        files = survey(self._disk, self._config)
        earlier: dict[str, bytes] | None = None
        problems = []
        if self._options.offsets is Offsets.NO_MISSES and self._end < self._snapshot.end:
            older, earlier = self._earlier(), {}
            if older is None:
                problems.append("no snapshot is older than the restored log: groups begin at the start of each queue")
            else:
                wanted = [file for file in older.files if file.path.startswith(names.CONFIG + "/")]
                for file in wanted:
                    earlier[file.path] = b"".join(bytes_of(self._repository, file))
        ranges = ranges_of(self._disk, files)
        return problems + settle_offsets(self._disk, self._root, ranges, self._options.offsets, earlier)

    def _earlier(self) -> Snapshot | None:
        """The newest snapshot of this store whose log is part of what was restored."""
        for name in reversed(self._repository.snapshots()):
            if name.time_ms < self._name.time_ms:
                try:
                    snapshot = self._repository.snapshot(name)
                except NotFound:
                    if self._repository.has_snapshot(name):
                        raise
                    continue  # forgotten since it was listed
                if snapshot.store == self._snapshot.store and snapshot.end <= self._end:
                    return snapshot
        return None


def _sized(config: StoreConfig, snapshot: Snapshot) -> StoreConfig:
    """`config` with the sizes of the snapshot's files. Raises InvalidArgument where other ones were given."""
    changes = {}
    for name in STORE_SIZES:
        size = snapshot.sizes.get(apache_key(name))
        if size is None:
            continue
        if name in config.given and getattr(config, name) != size:
            raise InvalidArgument(
                f"{apache_key(name)} is {getattr(config, name)} in the settings, and {size} in the snapshot",
                hint="leave it out, or give the snapshot's",
            )
        changes[name] = size
    return config.with_changes(**changes, index_tags=config.index_tags or snapshot.index_tags)
