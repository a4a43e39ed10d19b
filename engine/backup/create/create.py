"""`backup create`: one snapshot of a store, beside its broker or without one.

Theory. The log is append-only: of a segment that the log has left behind no byte is written any more, and the segment
that a broker writes ends, for us, with its last proved record (judging.py). So a copy of the log up to there is what
some moment of the broker was, without its lock. Configuration is read afterwards: offsets of groups may be newer than
the log's end, never older than what had been read when the backup began; a restore that ends earlier takes them back.

What the snapshot before has is not read again: a complete segment of the same length and time is the same segment.
What was stored before a kill is in the repository under its name, and is not stored again.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from engine.backup.create.files import files_beside
from engine.backup.create.judging import judge_segment
from engine.backup.create.pieces import PieceWriter, ReadPace
from engine.backup.leases import Lease
from engine.backup.manifest import SegmentPieces, SegmentRef, Snapshot, StoredFile
from engine.config import STORE_SIZES, apache_key
from engine.errors import NewerStore, RStoreError, StorageError
from engine.files.lock import holder_of
from engine.files.written import written_end
from engine.format import names
from engine.format.quantities import counted
from engine.inspect.store.survey import survey
from engine.log.scan import Scanner
from engine.log.source import ClosedLog, last_begun

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.repository import Repository, SnapshotName
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.source import Segment


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """How a snapshot is made.

    Attributes:
        store: the name that snapshots of one store share; None: host and directory.
        full: read segments again that the snapshot before has, and pieces that the repository has: damaged ones are
            written again.
        rate: bytes a second that are read at most; None: as fast as it goes.
        jobs: threads; None: what pays.
    """

    store: str | None = None
    full: bool = False
    rate: int | None = None
    jobs: int | None = None


@dataclass(slots=True)
class Created:
    """A snapshot that was made: what was read for it, what was taken from the one before.

    `read`, `reused`: bytes that were read, and bytes of segments that were not read again. `notes`: what the operator
    should know.
    """

    name: SnapshotName
    snapshot: Snapshot
    read: int
    reused: int
    seconds: float
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            **snapshot_json(self.name, self.snapshot),
            "bytesRead": self.read,
            "bytesReused": self.reused,
            "seconds": round(self.seconds, 3),
            "notes": self.notes,
        }


def snapshot_json(name: SnapshotName, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in one object, without its segments."""
    return {
        "snapshot": name.snapshot_id,
        "store": snapshot.store,
        "host": snapshot.host,
        "by": snapshot.by,
        "root": snapshot.root,
        "started": snapshot.started,
        "finished": snapshot.finished,
        "minOffset": snapshot.start,
        "maxOffset": snapshot.end,
        "records": snapshot.records,
        "messages": snapshot.messages,
        "newestStoreTimestamp": snapshot.newest_time,
        "damage": snapshot.damaged,
        "segments": len(snapshot.segments),
        "files": len(snapshot.files),
        "running": snapshot.is_live,
        "bytesAdded": snapshot.added,
    }


def store_name(config: StoreConfig) -> str:
    """The name of a store that nobody named: where it is."""
    return f"{socket.gethostname()}:{os.path.abspath(config.store_path_root_dir)}"


def create(
    disk: Disk,
    config: StoreConfig,
    repository: Repository,
    options: CreateOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Created:
    """Make a snapshot of the store that `config` names.

    Raises:
        NotAStore, NewerStore, StorageError. StoreLocked: somebody removes objects from the repository now.
    """
    with Lease(repository.objects, "backup create") as lease:
        return _Creator(disk, config, repository, options, progress).run(lease)


class _Creator:
    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        repository: Repository,
        options: CreateOptions,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._disk = disk
        self._repository = repository
        self._options = options
        self._progress = progress
        self._began = time.monotonic()
        self._started = _now_ms()
        self._files = survey(disk, config)
        if self._files.newer:
            raise NewerStore("backups of RocketMQ 5's stores are not made yet", path=self._files.root)
        self._live = holder_of(disk, self._files.root) is not None
        self._store = options.store or store_name(config)
        self._notes: list[str] = []
        self._done = self._total = self._read = self._reused = 0
        self._damaged = self._records = self._segments_added = 0

    def run(self, lease: Lease) -> Created:
        files = self._files
        before = {} if self._options.full else self._segments_before()
        with ClosedLog(self._disk, files.log) as log, self._writer() as writer:
            last = last_begun(log) if self._live else _last_written(self._disk, log)
            begun = [one for one in files.log if last is not None and one.offset <= last.offset]
            self._total = sum(one.size for one in begun)
            scanner = Scanner(log, max_message_size=files.config.max_message_size)
            segments: list[SegmentRef] = []
            for one in begun:
                segment = self._segment(log, scanner, writer, one, before.get(one.offset), is_last=one is last)
                if segment is not None:
                    segments.append(segment)
            self._disk.step("backup:log")
            beside = files_beside(self._disk, files)
            stored = tuple(file for path in beside.paths if (file := self._file(writer, path)) is not None)
            self._note_unreadable(writer.unreadable)
        skipped = (
            *(
                f"{os.path.relpath(odd.path, files.root)}: {odd.why}"
                for odd in files.odd
                if not self._is_config(odd.path)
            ),
            *beside.skipped,
        )
        snapshot = Snapshot(
            store=self._store,
            host=socket.gethostname(),
            by=_user(),
            version=_version(),
            root=files.root,
            started=self._started,
            finished=_now_ms(),
            start=segments[0].offset if segments else files.log[0].offset if files.log else 0,
            end=segments[-1].offset + segments[-1].held if segments else 0,
            is_live=self._live,
            abort=files.abort,
            records=self._records,
            messages=sum(one.messages for one in segments),
            damaged=self._damaged,
            newest_time=max((one.newest_time for one in segments), default=0),
            sizes={apache_key(name): int(getattr(files.config, name)) for name in STORE_SIZES},
            segments=tuple(segments),
            files=stored,
            skipped=skipped,
            added=writer.added + self._segments_added,
        )
        self._disk.step("backup:stored")
        lease.demand()
        name = self._repository.put_snapshot(snapshot)
        self._note(name, snapshot)
        return Created(name, snapshot, self._read, self._reused, time.monotonic() - self._began, self._notes)

    def _writer(self) -> PieceWriter:
        options = self._options
        return PieceWriter(self._repository, options.jobs, ReadPace(options.rate), self._tick, prove=options.full)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _segments_before(self) -> dict[int, SegmentRef]:
        """The segments of this store's newest snapshot, by offset; none where it can't be read, which is noted."""
        for name in reversed(self._repository.snapshots()):
            try:
                snapshot = self._repository.snapshot(name)
            except RStoreError as error:
                self._notes.append(f"snapshot {name.short} can't be read, so more is read again: {error}")
                continue
            if snapshot.store == self._store and snapshot.root == self._files.root:
                return {one.offset: one for one in snapshot.segments if one.is_complete}
        return {}

    def _segment(
        self,
        log: ClosedLog,
        scanner: Scanner,
        writer: PieceWriter,
        segment: Segment,
        before: SegmentRef | None,
        *,
        is_last: bool,
    ) -> SegmentRef | None:
        """A segment's pieces, stored; None where the broker has deleted it meanwhile: retention begins at the front."""
        try:
            mtime_ns = self._disk.stat(segment.path).mtime_ns
            if before is not None and not is_last and (before.size, before.mtime_ns) == (segment.size, mtime_ns):
                known = self._known(before)
                if known is not None:
                    return known
            return self._read_segment(log, scanner, writer, segment, mtime_ns, is_last=is_last)
        except StorageError:
            if not self._live or self._disk.exists(segment.path):
                raise
            self._notes.append(f"the broker deleted segment {segment.offset} while the backup was made")
            self._total -= segment.size
            return None

    def _known(self, before: SegmentRef) -> SegmentRef | None:
        """A segment of the snapshot before, whose list of pieces is still there; None: it isn't."""
        try:
            known = self._repository.get_segment(before.pieces)
        except RStoreError as error:
            self._notes.append(f"segment {before.offset} is stored again: {error}")
            return None
        self._count(known)
        self._reused += known.held
        self._tick(before.size, read=False)
        return before

    def _read_segment(
        self, log: ClosedLog, scanner: Scanner, writer: PieceWriter, segment: Segment, mtime_ns: int, *, is_last: bool
    ) -> SegmentRef:
        live = self._live and is_last
        judged = judge_segment(self._disk, log, scanner, segment, live=live, jobs=self._options.jobs)
        written = segment.size if not is_last else _written(self._disk, segment)
        held = judged.end - segment.offset if live else written
        unreadable = writer.unreadable
        pieces = writer.put(lambda at, length: log.read(segment.offset + at, length), held)
        self._tick(segment.size - held, read=False)
        made = SegmentPieces(
            segment.offset,
            segment.size,
            held,
            pieces,
            judged.records,
            judged.messages,
            judged.first_time,
            judged.newest_time,
            not is_last and not judged.unreadable and writer.unreadable == unreadable,
            tuple(judged.damage),
        )
        name, added = self._repository.put_segment(made, prove=self._options.full)
        self._segments_added += added
        self._count(made)
        return SegmentRef(
            made.offset, made.size, made.held, name, mtime_ns, made.is_complete, made.messages, made.newest_time
        )

    def _is_config(self, path: str) -> bool:
        """Whether `files_beside` tells of it."""
        return path.startswith(os.path.join(self._files.root, names.CONFIG) + os.sep)

    def _count(self, segment: SegmentPieces) -> None:
        self._records += segment.records
        self._damaged += len(segment.damage)

    # --- beside the log ---------------------------------------------------------------------------------------------

    def _file(self, writer: PieceWriter, path: str) -> StoredFile | None:
        """A file beside the log; None where it is gone: a broker replaces its tables."""
        absolute = os.path.join(self._files.root, path)
        try:
            reader = self._disk.open_reader(absolute)
        except StorageError:
            if self._disk.exists(absolute):
                raise
            return None
        try:
            size = reader.size()
            return StoredFile(path, size, writer.put(reader.read, size))
        finally:
            reader.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _tick(self, size: int, *, read: bool = True) -> None:
        self._done += size
        if read:
            self._read += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def _note_unreadable(self, pages: int) -> None:
        if pages:
            self._notes.append(f"the disk could not read {counted(pages, 'page')} of 4 KiB: zeros in the backup")

    def _note(self, name: SnapshotName, snapshot: Snapshot) -> None:
        if snapshot.damaged:
            ranges = counted(snapshot.damaged, "damaged range")
            self._notes.append(f"the log has {ranges}, and so has the backup: rstore backup show {name.short}")
        if snapshot.skipped:
            self._notes.append(f"not backed up: {'; '.join(snapshot.skipped[:3])}")
        if not snapshot.segments:
            self._notes.append("the log is empty")


def _written(disk: Disk, segment: Segment) -> int:
    """Bytes of a segment up to the last that is not zero; all of them where the disk can't read some."""
    reader = disk.open_reader(segment.path)
    try:
        return written_end(reader, 0, segment.size)
    except StorageError:
        return segment.size
    finally:
        reader.close()


def _last_written(disk: Disk, log: ClosedLog) -> Segment | None:
    """The last segment that holds anything: in a store that nobody has open, also one whose first page was lost."""
    return next((one for one in reversed(log.segments) if _written(disk, one)), None)


def user_and_host() -> str:
    """Who works here, for notes."""
    return f"{_user()}@{socket.gethostname()}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _version() -> str:
    try:
        return version("rstore")
    except PackageNotFoundError:
        return "unknown"
