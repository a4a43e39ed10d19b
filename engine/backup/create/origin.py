"""Where a store is backed up from: its own files, or a running broker elsewhere (remote.py)."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from engine.backup.create.files import ends_of_expired, files_beside, seals_of
from engine.backup.create.sealed import seal_of
from engine.config import STORE_SIZES, apache_key
from engine.errors import NewerStore, StorageError
from engine.files.listing import list_segments
from engine.files.lock import holder_of
from engine.files.written import written_end
from engine.format import names
from engine.inspect.next_step import plain_store
from engine.inspect.store.newer import FILES, PROPERTY_CRC, PROPERTY_CRC_FORCED, Newer
from engine.inspect.store.survey import survey
from engine.log.source import ClosedLog, Segment, last_begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.seals.seal import Seal

    Read = Callable[[int, int], memoryview]
    TakeFile = Callable[[str, Read, int], None]
    """Takes a file beside the log: its path in the store, what reads it, its length."""

_LOCK_S = 10.0
"""How long a broker is taken to run: who looks reads what all processes have open. (One that has stopped since has left
no record that is half written.)"""
_RESTORED = frozenset({FILES, PROPERTY_CRC, PROPERTY_CRC_FORCED})
"""Parts of a RocketMQ 5 store that the log and config/ restore, or its broker makes anew: it has more then, if
anything."""
_SURVEY_S = 600.0
"""How old what was seen of the store's queues may be while it is followed."""


class StoreOrigin(Protocol):
    """See the module. For one thread.

    Attributes:
        root: the store's directory, or the broker's address.
        name: what the store is called where nobody named it.
        is_live: whether a process may write to it.
        abort: whether the store's abort file was there.
        sizes: of the store's files, by Apache's keys.
        index_tags: whether its broker indexes tags, as far as is known.
        max_message_size: bytes.
        start: the log start, physical, also where the log is empty.
        segments: those that were begun, by offset; the last one may be written.
        notes: what the operator should know; taken out by who tells it.
    """

    root: str
    name: str
    is_live: bool
    abort: bool
    sizes: dict[str, int]
    index_tags: bool
    max_message_size: int
    start: int
    segments: tuple[Segment, ...]
    notes: list[str]

    def look(self) -> None:
        """See what is there now. Raises StorageError."""
        ...

    def opened(self, segment: Segment) -> AbstractContextManager[ClosedLog]:
        """A log that has this segment, with what was written by `look`."""
        ...

    def mtime_ns(self, segment: Segment) -> int:
        """When its file was written; 0: nobody knows. Raises StorageError."""
        ...

    def written(self, segment: Segment) -> int:
        """Bytes of the last segment up to the last that is not zero."""
        ...

    def has(self, segment: Segment) -> bool:
        """Whether it is there still: retention begins at the log start. Raises StorageError."""
        ...

    def is_same(self, segment: Segment, first: bytes) -> bool:
        """Whether a segment that was backed up, and begins with `first`, is the one that is there."""
        ...

    def seal(self, segment: Segment) -> Seal | None:
        """The seal of a segment; None: it has none."""
        ...

    def grown(self, end: int, mark: bytes) -> bool:
        """Whether there may be records after physical offset `end`, where the records end that are known.

        `mark`: the bytes before it: where they are others now, it has another log end since.
        """
        ...

    def files(self, take: TakeFile) -> tuple[str, ...]:
        """Give each file beside the log to `take`; why others are not given. Raises StorageError."""
        ...

    def configuration(self) -> list[bytes]:
        """The content of config/. Raises StorageError."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


class LocalOrigin:
    """A store on this machine, beside its broker or without one. As StoreOrigin; follows what is in it by `look`.

    Raises:
        NotAStore, NewerStore, StorageError.
    """

    def __init__(self, disk: Disk, config: StoreConfig, name: str) -> None:
        self._disk = disk
        self._config = config
        self.name = name
        self.notes: list[str] = []
        self._log = ClosedLog(disk, ())
        self.is_live = False
        self._asked = 0.0
        self._survey()
        self._see()

    def look(self) -> None:
        """As StoreOrigin: a listing of the log's directories, and now and then of all.

        Files are opened again: a broker's recovery, or a repair, deletes segments after the log end, which are made
        again under the same names.
        """
        self._log.close()
        if time.monotonic() - self._surveyed >= _SURVEY_S:
            self._survey()
        else:
            config = self._files.config
            listing = list_segments(self._disk, config.log_directories, config.mapped_file_size_commit_log)
            self._log.replace([Segment(one.offset, one.size, one.path) for one in listing.files])
        self._see()

    def _survey(self) -> None:
        self._surveyed = time.monotonic()
        self._files = survey(self._disk, self._config)
        stays = tuple(part for part in self._files.newer.parts if part.what not in _RESTORED)
        if stays:
            raise NewerStore(
                f"{Newer(stays).described}: no backup of such a store is made",
                path=self._files.root,
                hint=None
                if self._files.dledger is None
                else f"for a plain store with its messages: {plain_store(self._files.root)}",
            )
        self._log.replace(self._files.log)
        self._expired: list[str] | None = None
        self.root = self._files.root
        self.abort = self._files.abort
        self.sizes = {apache_key(one): int(getattr(self._files.config, one)) for one in STORE_SIZES}
        self.max_message_size = self._files.config.max_message_size
        self.index_tags = self._files.config.index_tags

    def _see(self) -> None:
        self.start = self._log.segments[0].offset if self._log.segments else 0
        if not self.is_live or time.monotonic() - self._asked >= _LOCK_S:
            self._asked = time.monotonic()
            self.is_live = holder_of(self._disk, self.root) is not None
        last = last_begun(self._log) if self.is_live else self._last_written()
        self.segments = tuple(one for one in self._log.segments if last is not None and one.offset <= last.offset)

    def _last_written(self) -> Segment | None:
        """The last segment that holds anything: in a store that nobody has open, also one whose first page was lost."""
        return next((one for one in reversed(self._log.segments) if self.written(one)), None)

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[ClosedLog]:
        """As StoreOrigin."""
        yield self._log

    def mtime_ns(self, segment: Segment) -> int:
        """As StoreOrigin."""
        return self._disk.stat(segment.path).mtime_ns

    def written(self, segment: Segment) -> int:
        """As StoreOrigin; all of it where the disk can't read some."""
        reader = self._disk.open_reader(segment.path)
        try:
            return written_end(reader, 0, segment.size)
        except StorageError:
            return segment.size
        finally:
            reader.close()

    def has(self, segment: Segment) -> bool:
        """As StoreOrigin."""
        return self._disk.exists(segment.path)

    def is_same(self, segment: Segment, first: bytes) -> bool:
        """As StoreOrigin: its file's time tells."""
        return True

    def seal(self, segment: Segment) -> Seal | None:
        """As StoreOrigin; none that can't be read: a scrub tells why."""
        return seal_of(self._disk, self.root, segment.offset, segment.size)

    def grown(self, end: int, mark: bytes) -> bool:
        """As StoreOrigin."""
        if not self.segments:
            return False
        last = self.segments[-1]
        if last.offset >= end or last.end < end or bytes(self._log.read(end - len(mark), len(mark))) != mark:
            return True
        return any(self._log.read(end, 8))

    def files(self, take: TakeFile) -> tuple[str, ...]:
        """As StoreOrigin; a file that is gone meanwhile is none: a broker replaces its tables."""
        if self._expired is None:
            self._expired = ends_of_expired(self._disk, self._files)
        beside = files_beside(self._disk, self._files, self._expired)
        for path in beside.paths:
            self._give(path, take)
        unread = []
        seals = seals_of(self._disk, self._files, self._log.segments)
        for path in seals.paths:
            try:
                self._give(path, take)
            except StorageError as error:
                if error.path != os.path.join(self.root, path):
                    raise
                unread.append(f"{path}: {error.message}")  # a segment without its seal is one all the same
        config = os.path.join(self.root, names.CONFIG) + os.sep
        odd = (one for one in self._files.odd if not one.path.startswith(config))
        skipped = (*beside.skipped, *seals.skipped, *unread)
        return (*(f"{os.path.relpath(one.path, self.root)}: {one.why}" for one in odd), *skipped)

    def _give(self, path: str, take: TakeFile) -> None:
        absolute = os.path.join(self.root, path)
        try:
            reader = self._disk.open_reader(absolute)
        except StorageError:
            if self._disk.exists(absolute):
                raise
            return
        try:
            take(path, reader.read, reader.size())
        finally:
            reader.close()

    def configuration(self) -> list[bytes]:
        """As StoreOrigin."""
        held: list[bytes] = []
        for path in files_beside(self._disk, self._files, []).paths:
            if path.startswith(names.CONFIG):
                try:
                    held += [
                        path.encode("utf-8", "surrogateescape"),
                        self._disk.read_file(os.path.join(self.root, path)),
                    ]
                except StorageError:  # it is replaced just now
                    held.append(b"")
        return held

    def close(self) -> None:
        """As StoreOrigin."""
        self._log.close()
