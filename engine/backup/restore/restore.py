"""`restore`: a store made from a snapshot, in a directory that holds none.

Theory. The log is written aside, as `<commit log directory>.restoring`, and gets its name when it is complete: no
broker and no command takes a half restored directory for a store. Then queues and index are made from it by a recovery
of the whole log, as ever, and offsets are settled. `restoring.json` says what is under way: the same command goes on
after a kill, and proves what is there by the pieces' names instead of fetching it again.

Every piece is proved by its name before it is written. Files get the time of the restore: retention counts from it.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.backup.manifest import PIECE_SIZE, StoredFile
from engine.backup.restore.cut import Upto, find_end
from engine.backup.restore.offsets import Offsets, ranges_of, settle_offsets
from engine.config import STORE_CONF, STORE_SIZES, apache_key
from engine.errors import CannotRepair, InvalidArgument, NoSpaceToSave, Refused, RStoreError
from engine.files.written import is_zeros
from engine.format import names
from engine.format.names import segment_name
from engine.inspect.store.survey import survey
from engine.repair.change import carry_out
from engine.repair.recover.change import RecoverChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.backup.manifest import SegmentRef, Snapshot
    from engine.backup.repository import Repository, SnapshotName
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile

UNDER_WAY = "restoring.json"
RESTORING = ".restoring"
_BEGUN = {UNDER_WAY + ".tmp"}
"""What a run that was killed at its very beginning has left."""
_LARGEST_NOTE = 65536
_LOG, _QUEUES = "log", "queues"


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What is restored: how far, and what becomes of the offsets of groups. `jobs`: threads; None: what pays."""

    upto: Upto = field(default_factory=Upto)
    offsets: Offsets = Offsets.AS_WERE
    jobs: int | None = None


@dataclass(slots=True)
class RestoredStore:
    """A store that was restored: its log [`start`, `end`), physical offsets; `cut`: bytes of the snapshot's left out.

    `refusal`: why queues and index could not be made: the log has damage, as it had when it was backed up.
    """

    root: str
    name: SnapshotName
    start: int
    end: int
    cut: int
    read: int
    kept: int
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
        Refused: something else is there. InvalidArgument, NotFound: see `find_end`. NoSpaceToSave: the disk has no
        space for it. FormatError, StorageError: the repository is damaged, or the disk refused.
    """
    began = time.monotonic()
    restored = _Restore(disk, config, repository, name, snapshot, options, progress).run()
    restored.seconds = time.monotonic() - began
    return restored


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
        self._disk = disk
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
        self._done = self._kept = 0
        self._end = 0
        self._wanted: dict[str, Any] = {}

    def run(self) -> RestoredStore:
        stage = self._begin()
        snapshot = self._snapshot
        segments = self._segments()
        if stage == _LOG and not self._has_its_name():
            self._write_log(segments)
            self._write_files()
            self._disk.step("restore:written")
            if segments:
                self._disk.replace(self._aside, self._log_directory)
            else:
                self._disk.mkdirs(self._log_directory)
            self._disk.sync_dir(os.path.dirname(self._log_directory))
        self._write_note(_QUEUES)
        self._disk.step("restore:named")
        restored = RestoredStore(
            self._root,
            self._name,
            segments[0].offset if segments else 0,
            self._end,
            max(0, snapshot.end - self._end),
            self._done - self._kept,
            self._kept,
        )
        try:
            carry_out(RecoverChange(whole=True, keep=False, jobs=self._options.jobs), self._disk, self._config)
        except (Refused, CannotRepair) as refusal:
            restored.refusal = refusal
        restored.problems += self._settle_offsets()
        self._disk.unlink(self._note)
        self._disk.sync_dir(self._root)
        return restored

    # --- before anything is written ---------------------------------------------------------------------------------

    def _begin(self) -> str:
        """How far a run before this one came; the end of the log. Raises as `restore`."""
        upto = self._options.upto
        wanted = {
            "snapshot": self._name.snapshot_id, "time": upto.time_ms, "offset": upto.offset, "before": upto.before,
            "offsets": self._options.offsets.value,
        }  # fmt: skip
        noted = self._noted()
        if noted is not None:
            if {key: noted.get(key) for key in wanted} != wanted:
                raise Refused(
                    "another restore into this directory is not finished",
                    path=self._note,
                    hint="run that one again, or name an empty directory",
                )
            self._end = noted["end"]
            return str(noted["stage"])
        for place in (self._root, self._log_directory, self._aside):
            if self._disk.exists(place) and (not self._disk.is_dir(place) or set(self._disk.listdir(place)) - _BEGUN):
                raise Refused("the directory is not empty", path=place, hint="name an empty or a new one with --store")
        self._end = find_end(self._repository, self._snapshot, upto)
        self._wanted = wanted
        self._demand_space()
        self._disk.mkdirs(self._root)
        self._write_note(_LOG)
        return _LOG

    def _has_its_name(self) -> bool:
        """Whether a run before this one was killed after the log, complete, got its name."""
        return self._disk.is_dir(self._log_directory) and bool(self._disk.listdir(self._log_directory))

    def _noted(self) -> dict[str, Any] | None:
        if not self._disk.exists(self._note):
            return None
        try:
            noted = json.loads(self._disk.read_file(self._note, _LARGEST_NOTE))
            if noted["stage"] not in (_LOG, _QUEUES) or type(noted["end"]) is not int:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("not a note of a restore", path=self._note, hint="name an empty directory") from None
        self._wanted = {key: noted[key] for key in noted if key not in ("stage", "end")}
        return dict(noted)

    def _write_note(self, stage: str) -> None:
        note = {**self._wanted, "stage": stage, "end": self._end}
        self._disk.write_file_atomically(self._note, json.dumps(note).encode())

    def _demand_space(self) -> None:
        segments = self._segments()
        needed = sum(map(self._length_of, segments))
        needed += segments[-1].size - self._length_of(segments[-1]) if segments else 0
        place = self._log_directory
        while not self._disk.exists(place):
            place = os.path.dirname(place)
        free = self._disk.writable(place)
        if needed > free:
            raise NoSpaceToSave(f"the log needs {needed} bytes, and {free} are free", path=place)

    def _segments(self) -> list[SegmentRef]:
        """Those that the restored log has a part of."""
        return [one for one in self._snapshot.segments if one.offset < self._end]

    def _length_of(self, segment: SegmentRef) -> int:
        """Bytes of a segment that are restored."""
        return min(segment.held, self._end - segment.offset)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _write_log(self, segments: list[SegmentRef]) -> None:
        if self._disk.exists(self._log_directory) and segments:
            self._disk.remove_dir(self._log_directory)  # an empty one would be in the way of the name
        self._disk.mkdirs(self._aside)
        total = sum(map(self._length_of, segments))
        threads = self._repository.threads(self._options.jobs)
        with ThreadPoolExecutor(threads, "rstore-restore") as pool:
            for segment in segments:
                pieces = self._repository.get_segment(segment.pieces).pieces
                length = self._length_of(segment)
                path = os.path.join(self._aside, segment_name(segment.offset))
                is_last = segment is segments[-1]
                self._write(pool, threads, path, segment.size, length, pieces, total, allocate=is_last)
        self._disk.sync_dir(self._aside)

    def _write(
        self,
        pool: ThreadPoolExecutor,
        threads: int,
        path: str,
        size: int,
        length: int,
        pieces: tuple[str | None, ...],
        total: int,
        *,
        allocate: bool,
    ) -> None:
        """One file: its first `length` bytes from its pieces, zeros up to `size`."""
        file = self._disk.open_raw(path, writable=True, create=True)
        try:
            there = file.size()
            if there > size:
                file.set_size(0)  # not ours: a piece of another size would stay behind
                there = 0
            file.set_size(size)
            if allocate:
                file.allocate(0, size)
            under_way: deque[Future[tuple[int, bool]]] = deque()
            for at, some, piece in _pieces_of(pieces, length):
                if len(under_way) >= 2 * threads:
                    self._tick(*under_way.popleft().result(), total)
                under_way.append(pool.submit(self._one, file, at, some, piece, at < there))
            while under_way:
                self._tick(*under_way.popleft().result(), total)
            file.sync(0, size)
        finally:
            file.close()

    def _one(self, file: RawFile, at: int, length: int, piece: str | None, may_be_there: bool) -> tuple[int, bool]:
        """One piece, written unless it is there; the bytes, and whether it was."""
        is_whole = length == PIECE_SIZE
        if may_be_there:
            there = file.read(at, length)
            if piece is None and is_zeros(there):
                return length, True
            if piece is not None and is_whole and self._repository.hash_of(bytes(there).rstrip(b"\0")) == piece:
                return length, True
        data = b"" if piece is None else self._repository.get_piece(piece)[:length]
        file.write(at, data)
        if may_be_there and len(data) < length:
            file.write(at + len(data), bytes(length - len(data)))
        self._disk.step("restore:piece")
        return length, False

    def _tick(self, size: int, was_there: bool, total: int) -> None:
        self._done += size
        if was_there:
            self._kept += size
        if self._progress is not None:
            self._progress(self._done, max(total, self._done))

    # --- beside the log ---------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        """Configuration and what else can't be made anew. The checkpoint only of a log that is restored whole."""
        is_whole = self._end >= self._snapshot.end
        for file in self._snapshot.files:
            if (file.path == names.CHECKPOINT and not is_whole) or file.path == STORE_CONF:
                continue
            path = os.path.join(self._root, file.path)
            self._disk.mkdirs(os.path.dirname(path))
            self._write_file(path, file)
        keys = sorted(self._snapshot.sizes.keys() & set(map(apache_key, STORE_SIZES)))
        lines = [f"{key}={self._snapshot.sizes[key]}" for key in keys]
        self._disk.write_file_atomically(os.path.join(self._root, STORE_CONF), ("\n".join(lines) + "\n").encode())

    def _write_file(self, path: str, file: StoredFile) -> None:
        target = self._disk.open_raw(path, writable=True, create=True)
        try:
            target.set_size(0)
            target.set_size(file.size)
            for at, data in _content(self._repository, file):
                target.write(at, data)
            target.sync(0, file.size)
        finally:
            target.close()
        self._disk.sync_dir(os.path.dirname(path))

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
                    earlier[file.path] = b"".join(_bytes_of(self._repository, file))
        ranges = ranges_of(self._disk, files)
        return problems + settle_offsets(self._disk, self._root, ranges, self._options.offsets, earlier)

    def _earlier(self) -> Snapshot | None:
        """The newest snapshot of this store whose log is part of what was restored."""
        for name in reversed(self._repository.snapshots()):
            if name.time_ms < self._name.time_ms:
                snapshot = self._repository.snapshot(name)
                if snapshot.store == self._snapshot.store and snapshot.end <= self._end:
                    return snapshot
        return None


def _pieces_of(pieces: tuple[str | None, ...], length: int) -> Iterator[tuple[int, int, str | None]]:
    """Position, length and name of the pieces of the first `length` bytes."""
    for number, piece in enumerate(pieces):
        at = number * PIECE_SIZE
        if at >= length:
            return
        yield at, min(PIECE_SIZE, length - at), piece


def _content(repository: Repository, file: StoredFile) -> Iterator[tuple[int, bytes]]:
    """A file's bytes by position, zeros left out."""
    for number, piece in enumerate(file.pieces):
        if piece is not None:
            yield number * PIECE_SIZE, repository.get_piece(piece)


def _bytes_of(repository: Repository, file: StoredFile) -> Iterator[bytes]:
    at = 0
    for position, data in _content(repository, file):
        yield bytes(position - at) + data
        at = position + len(data)


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
    return config.with_changes(**changes)
