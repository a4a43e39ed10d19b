"""A snapshot as a store that is read: its files where they lie, in the repository's pieces, for all that reads stores.

Theory. What reads a store asks a `Disk` for names, lengths and bytes. This one has the files of a snapshot below a
directory that no file system has: `LOCATION/snapshots/NAME`, with `commitlog/`, `config/` and what else was backed up
(queues and index are not: they are made from the log). Bytes are fetched piece by piece as they are asked for. What the
system could not read when the snapshot was made is not readable here either: it was stored as zeros, and is not zeros.

Nothing is ever changed through it.
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from engine.backup.log import RepositoryLog, fill
from engine.backup.manifest import PIECE_SIZE
from engine.backup.repository import SNAPSHOTS
from engine.config import OWN_KEYS, STORE_CONF, STORE_SIZES, StoreConfig, apache_key, load_broker, parse
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, Refused, StorageError
from engine.files.disk import Disk
from engine.files.entry import Entry, FileKind
from engine.files.raw_file import RawFile
from engine.format import names
from engine.format.judge import Reason
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.backup.manifest import SegmentRef, Snapshot
    from engine.backup.repository import Repository, SnapshotName
    from engine.files.beneath import At


_PAGE = 4096
"""Bytes that a backup leaves out around one that can't be read (engine.backup.create.pieces)."""


class SnapshotDisk(Disk):
    """See the module. Thread-safe.

    Args:
        repository: that has it.
        name: the snapshot's.
        snapshot: itself.
        archived: segments below its log that are read as if they were in it (engine.backup.archive.before).
    """

    def __init__(
        self, repository: Repository, name: SnapshotName, snapshot: Snapshot, archived: tuple[SegmentRef, ...] = ()
    ) -> None:
        super().__init__(mapped=False)
        self.archived = archived
        if archived:
            segments = (*archived, *snapshot.segments)
            snapshot = replace(snapshot, start=archived[0].offset, segments=segments)
        self.repository = repository
        self.name = name
        self.snapshot = snapshot
        self.root = f"{repository.where}/{SNAPSHOTS}/{name.name}"
        self.log = RepositoryLog(repository, snapshot)
        self._roots_as_written = (self.root, os.fspath(Path(self.root)))  # a path has no s3://
        self._files: dict[str, tuple[int, int, Callable[[], FilePieces]]] = {}
        self._below: dict[str, set[str]] = {"": set()}
        for ref, segment in zip(snapshot.segments, self.log.segments, strict=True):
            path = f"{names.COMMITLOG}/{names.segment_name(ref.offset)}"
            self._add(path, ref.size, ref.mtime_ns, partial(self._of_segment, segment))
        for file in snapshot.files:
            self._add(file.path, file.size, snapshot.finished * 1_000_000, partial(FilePieces, file.pieces))
        if not snapshot.segments:
            self._directory(names.COMMITLOG)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The log's files, by offset, each with how many bytes from its start were held."""
        return tuple(
            Segment(ref.offset, ref.size, self.path_of(f"{names.COMMITLOG}/{names.segment_name(ref.offset)}"),
                    held=ref.held)
            for ref in self.snapshot.segments
        )  # fmt: skip

    def path_of(self, relative: str) -> str:
        """Where a file of the store seems to lie."""
        return f"{self.root}/{relative}"

    def config(self, file: Path | None = None) -> StoreConfig:
        """The store's settings: its own file, over it a broker's properties file, and the sizes that its files have.

        Raises:
            InvalidArgument: a value that makes no sense. StorageError.
        """
        own = self.path_of(STORE_CONF)
        base = StoreConfig()
        if self.exists(own):
            try:
                base = parse(self.read_file(own).decode(), path=Path(own), only=OWN_KEYS)
            except UnicodeDecodeError as error:
                raise InvalidArgument("the configuration is not UTF-8 text", path=own, offset=error.start) from None
        config = base if file is None else load_broker(file, base)
        by_key = {apache_key(name): name for name in STORE_SIZES}
        sizes = {by_key[key]: size for key, size in self.snapshot.sizes.items() if key in by_key}
        return config.with_changes(
            store_path_root_dir=Path(self.root),
            store_path_commit_log=None,
            read_only_commit_log_store_paths=None,
            **sizes,
        )

    # --- names ------------------------------------------------------------------------------------------------------

    def look(self, path: str) -> Entry | None:
        """See Disk."""
        relative = self._relative(path)
        if relative is None:
            return None
        name = os.path.basename(path)
        if relative in self._below:
            return Entry(name, path, FileKind.DIRECTORY, 0, self.snapshot.finished * 1_000_000)
        if relative in self._files:
            size, mtime_ns, _ = self._files[relative]
            return Entry(name, path, FileKind.FILE, size, mtime_ns)
        return None

    def stat(self, path: str) -> Entry:
        """See Disk."""
        entry = self.look(path)
        if entry is None:
            raise StorageError("the snapshot has no such file", path=path)
        return entry

    def exists(self, path: str) -> bool:
        """See Disk."""
        return self.look(path) is not None

    def is_dir(self, path: str) -> bool:
        """See Disk."""
        return self._relative(path) in self._below

    def scandir(self, path: str) -> tuple[Entry, ...]:
        """See Disk."""
        return tuple(self.stat(os.path.join(path, name)) for name in self.listdir(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        """See Disk."""
        relative = self._relative(path)
        if relative is None or relative not in self._below:
            raise StorageError("the snapshot has no such directory", path=path)
        return tuple(sorted(self._below[relative]))

    def link_of(self, path: str) -> str:
        """See Disk: there are no links."""
        return ""

    def behind_link(self, path: str) -> str:
        """See Disk."""
        return path

    def is_mount_point(self, path: str) -> bool:
        """See Disk."""
        return False

    def may(self, path: str, *, write: bool) -> bool:
        """See Disk."""
        return not write

    def is_read_only(self, path: str) -> bool:
        """See Disk."""
        return True

    # --- bytes ------------------------------------------------------------------------------------------------------

    def open_raw(self, path: str, *, writable: bool = False, create: bool = False, new: bool = False) -> RawFile:
        """See Disk. Raises Refused: to be written."""
        if writable or create or new:
            self._refuse(path)
        relative = self._relative(path)
        if relative is None or relative not in self._files:
            raise StorageError("the snapshot has no such file", path=path)
        size, _, content = self._files[relative]
        return SnapshotFile(self, path, size, content)

    def _at(self, path: str) -> At:
        self._refuse(path)

    def _held(self, path: str) -> At:
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise Refused("a snapshot is never changed", path=path, hint="restore it: rstore restore")

    # --- inside -----------------------------------------------------------------------------------------------------

    def _relative(self, path: str) -> str | None:
        for root in self._roots_as_written:
            if path == root:
                return ""
            if path.startswith(root + "/"):
                return path[len(root) + 1 :]
        return None

    def _add(self, path: str, size: int, mtime_ns: int, content: Callable[[], FilePieces]) -> None:
        self._files[path] = size, mtime_ns, content
        parent, _, name = path.rpartition("/")
        self._directory(parent)
        self._below[parent].add(name)

    def _directory(self, path: str) -> None:
        if path not in self._below:
            self._below[path] = set()
            parent, _, name = path.rpartition("/")
            self._directory(parent)
            self._below[parent].add(name)

    def _of_segment(self, segment: Segment) -> FilePieces:
        """Raises StorageError, NotReached."""
        self.log.read(segment.offset, 0)  # a list that is damaged is what a read says it is
        listed = self.log.pieces_of(segment)
        # whole pages are lost, and a record of which one byte is in such a page is not sound: they lie between records
        lost = tuple(
            (
                -(-(one.offset - segment.offset) // _PAGE) * _PAGE,
                (one.offset + one.length - segment.offset) // _PAGE * _PAGE,
            )
            for one in listed.damage
            if one.reason == Reason.UNREADABLE.value
        )
        return FilePieces(listed.pieces, segment.offset, lost)


@dataclass(frozen=True, slots=True)
class FilePieces:
    """What a file is made of.

    Attributes:
        pieces: their names, one for each PIECE_SIZE bytes; None, and after the last: zeros.
        start: physical offset of its first byte; 0 of a file beside the log.
        lost: positions [start, end) that could not be read when it was backed up.
    """

    pieces: tuple[str | None, ...]
    start: int = 0
    lost: tuple[tuple[int, int], ...] = ()


class SnapshotFile(RawFile):
    """A file of a snapshot, open: see RawFile. Thread-safe. What it is made of is asked for with the first byte."""

    __slots__ = ("_content", "_log", "_size")

    def __init__(self, disk: SnapshotDisk, path: str, size: int, content: Callable[[], FilePieces]) -> None:
        super().__init__(disk, path, io.RawIOBase())
        self._log = disk.log
        self._size = size
        self._content = content

    @property
    def descriptor(self) -> int | None:
        """None: the system has no number for it."""
        return None

    def size(self) -> int:
        """See RawFile."""
        return self._size

    def identity(self) -> tuple[int, int]:
        """See RawFile: that of no file."""
        return 0, 0

    def read_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        """See RawFile. Raises StorageError: the repository has none of it, or damage; NotReached."""
        content, log = self._content(), self._log
        with memoryview(buffer) as whole:
            length = max(0, min(len(whole), self._size - offset))
            for start, end in content.lost:
                if start < offset + length and end > offset:
                    why = f"when it was backed up: {Reason.UNREADABLE.value}"
                    raise StorageError(why, path=self.path, offset=content.start + max(start, offset))
            with whole[:length] as part:
                fill(part, offset, content.pieces, lambda name, at: log.piece(name, content.start + at))
            return length

    def read(self, offset: int, length: int) -> memoryview:
        """See RawFile."""
        out = bytearray(max(0, min(length, self._size - offset)))
        self.read_into(out, offset)
        return memoryview(out).toreadonly()

    def next_data(self, offset: int, end: int) -> int | None:
        """See RawFile: the next byte of a piece."""
        end = min(end, self._size)
        for number, name in self._pieces(offset):
            if name is not None:
                at = max(offset, number * PIECE_SIZE)
                return at if at < end else None
        return None

    def next_hole(self, offset: int, end: int) -> int:
        """See RawFile."""
        at = offset
        for number, name in self._pieces(offset):
            if name is None:
                break
            at = (number + 1) * PIECE_SIZE
        return min(end, at)

    def close(self) -> None:
        """See RawFile: nothing is held."""

    def _pieces(self, offset: int) -> Iterator[tuple[int, str | None]]:
        """Number and name of each piece from a position on; where nobody can tell, all of it may be data."""
        first = offset // PIECE_SIZE
        try:
            pieces = self._content().pieces
        except StorageError:
            yield from ((number, "") for number in range(first, -(-self._size // PIECE_SIZE)))
        else:
            yield from enumerate(pieces[first:], first)
