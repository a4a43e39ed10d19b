"""A queue of mapped files: one run of offsets, cut into files of equal size (a commitlog, a consume queue).

Theory (Apache MappedFileQueue): offsets count bytes from the beginning of time; the file that holds one is
found by division, since files follow each other without gaps (a gap is legal, slower, and reported by
`check_self`). The end moves with the last file; `flushed_where` and `committed_where` follow it.

Threads: many readers, one appender, one flusher, one deleter. The file list is a tuple that is replaced under
a lock and read without one, so a reader sees the list of one moment.

Where this differs from Apache: a failed creation is an exception (DiskFull, StorageError), not None; flushing
continues after a gap or after the file at `flushed_where` was deleted, where Apache's stands still for good;
files are deleted from the end backwards in a truncation, so that a crash in it leaves no gap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import FormatError, InvalidArgument, StorageError, WrongFileSize
from engine.files.allocator import SegmentAllocator
from engine.files.disk import Disk
from engine.files.listing import MissingOffsets, Oddness, SegmentListing, list_segments
from engine.files.mapped_file import MappedFile
from engine.files.placement import PathPolicy, SinglePath
from engine.format.names import segment_name

if TYPE_CHECKING:
    from engine.files.open_files import OpenFiles

HANGED_INTERVAL_MS = 60_000
"""How long a held consume queue file is waited for (Apache deleteExpiredFileByOffset)."""

TRUNCATE_INTERVAL_MS = 1000
DESTROY_INTERVAL_MS = 3000


class MappedFileQueue:
    """See the module.

    Args:
        disk: the system's files.
        directory: where the files are, or a PathPolicy for several directories.
        file_size: bytes of each file.
        allocator: makes files ahead of time; None: made when needed.
        allocate_step: bytes of blocks that a file takes at a time when it is appended to; None: all of it. The
            allocator's files are always allocated whole.
        single_pages: it is flushed every few KiB: see MappedFile.single_pages.
        open_files: bounds how many files of all such queues are mapped at a time; None: all stay so.

    Attributes:
        files: those of this moment, by offset; set here alone, each time to a new tuple. Each append and get asks.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str | PathPolicy,
        file_size: int,
        allocator: SegmentAllocator | None = None,
        *,
        allocate_step: int | None = None,
        single_pages: bool = False,
        open_files: OpenFiles | None = None,
    ) -> None:
        if file_size < 1:
            raise InvalidArgument(f"file size must be ≥ 1, not {file_size}")
        self._disk = disk
        self._places: PathPolicy = SinglePath(directory) if isinstance(directory, str) else directory
        self._allocator = allocator
        self._allocate_step = allocate_step
        self.single_pages = single_pages
        self._open_files = open_files
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self.files: tuple[MappedFile, ...] = ()
        self._buffered: tuple[MappedFile, ...] = ()
        self._announced: dict[int, str] = {}
        self.file_size = file_size
        self.flushed_where = 0
        self.committed_where = 0
        self.store_timestamp = 0

    @property
    def directories(self) -> tuple[str, ...]:
        """Where they may be."""
        return self._places.directories

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, *, strict: bool = True, writable: bool = True) -> SegmentListing:
        """Open every segment there is, all positions at its end (Apache doLoad); what was seen is returned.

        `strict` raises WrongFileSize or FormatError for the first entry that is no segment, as Apache refuses to start;
        otherwise such entries are left alone and are in the listing's `odd`.
        """
        listing = list_segments(self._disk, self.directories, self.file_size)
        if strict and listing.odd:
            first = listing.odd[0]
            kind = WrongFileSize if first.why in (Oddness.EMPTY, Oddness.WRONG_SIZE) else FormatError
            raise kind(
                f"{first.why.value}, {first.size} bytes, among files of {self.file_size} bytes",
                path=first.path,
                hint="run rstore doctor",
            )
        opened: list[MappedFile] = []
        try:
            for segment in listing.files:
                file = MappedFile.open(
                    self._disk, segment.path, self.file_size, writable=writable, open_files=self._open_files
                )
                file.allocate_step = self._allocate_step
                opened.append(file)
        except BaseException:
            for file in opened:
                file.shutdown(0)
            raise
        with self._lock:
            self.files = tuple(opened)
        return listing

    def check_self(self) -> tuple[MissingOffsets, ...]:
        """Offsets between the first and the last file that no file holds (Apache logs them as a bug)."""
        files = self.files
        return tuple(
            MissingOffsets(one.file_from_offset + self.file_size, two.file_from_offset)
            for one, two in pairwise(files)
            if two.file_from_offset != one.file_from_offset + self.file_size
        )

    # --- finding ----------------------------------------------------------------------------------------------------

    def first(self) -> MappedFile | None:
        """The oldest file."""
        files = self.files
        return files[0] if files else None

    def last(self, start_offset: int = 0, *, create: bool = False) -> MappedFile | None:
        """The newest file; with `create` the one to append to: a full or missing last one gets a successor.

        The first file of an empty queue starts at `start_offset` rounded down to a file. Never None with `create`.
        Raises DiskFull, StorageError. Source: Apache getLastMappedFile(startOffset, needCreate).
        """
        files = self.files
        if not create:
            return files[-1] if files else None
        if files:
            newest = files[-1]
            return self._create(newest.file_from_offset + self.file_size) if newest.is_full else newest
        return self._create(start_offset - start_offset % self.file_size)

    def find_by_offset(self, offset: int, first_on_not_found: bool = False) -> MappedFile | None:
        """The file that holds `offset` (bytes); else None, or the first file if asked for."""
        files = self.files
        if not files:
            return None
        size = self.file_size
        index = (offset - files[0].file_from_offset) // size
        if 0 <= index < len(files):
            file = files[index]
            if 0 <= offset - file.file_from_offset < size:
                return file
        # A gap before it: every file sits at a smaller index than division says.
        if index >= 0 and offset < files[-1].file_from_offset + size:
            for file in files:
                if 0 <= offset - file.file_from_offset < size:
                    return file
        return files[0] if first_on_not_found else None

    def let_go(self, start: int, end: int) -> None:
        """Have the pages of what lies in [start, end) in the page cache alone: see MappedFile."""
        for file in self.files:
            first, last = start - file.file_from_offset, end - file.file_from_offset
            if first < file.file_size and last > 0:
                file.let_go(max(first, 0), min(last, file.file_size))

    def find_by_time(self, timestamp_ms: int) -> MappedFile | None:
        """The first file that was modified at `timestamp_ms` or later, else the last; None in an empty queue."""
        files = self.files
        for file in files:
            if file.last_modified_ms >= timestamp_ms:
                return file
        return files[-1] if files else None

    # --- offsets (bytes) --------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Start of the first file; −1 in an empty queue."""
        files = self.files
        return files[0].file_from_offset if files else -1

    @property
    def max_offset(self) -> int:
        """End of what readers see; 0 in an empty queue.

        It never lies after a place that waits in a write buffer (Apache's getMaxOffset does, as soon as there is a
        new last file: a reader finds nothing there then).
        """
        files = self.files
        for file in self._buffered:
            if file.has_write_buffer:
                return file.file_from_offset + file.read_position
        return files[-1].file_from_offset + files[-1].read_position if files else 0

    @property
    def max_wrote_position(self) -> int:
        """End of what was appended; 0 in an empty queue."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote_position if files else 0

    def remain_to_commit(self) -> int:
        """Bytes appended, not committed."""
        return self.max_wrote_position - self.committed_where

    def remain_to_flush(self) -> int:
        """Bytes readable, not durable."""
        return self.max_offset - self.flushed_where

    # --- making durable ---------------------------------------------------------------------------------------------

    def flush(self, least_pages: int = 0) -> bool:
        """Flush the file at `flushed_where`; True when that did not move it (Apache's meaning). Raises StorageError.

        One file a call: a caller that wants all loops until True. With `least_pages` 0 the queue's `store_timestamp`
        becomes the file's, as of before the flush.
        """
        with self._flush_lock:
            file = self._file_at_or_after(self.flushed_where)
            if file is None:
                return True
            newest = file.store_timestamp
            where = file.file_from_offset + file.flush(least_pages)
            moved = where != self.flushed_where
            self.flushed_where = where
            if least_pages == 0:
                self.store_timestamp = newest
            return not moved

    def commit(self, least_pages: int = 0) -> bool:
        """Commit the file at `committed_where`; True when that did not move it. Raises DiskFull, StorageError."""
        with self._flush_lock:
            file = self._file_at_or_after(self.committed_where)
            if file is None:
                return True
            where = file.file_from_offset + file.commit(least_pages)
            moved = where != self.committed_where
            self.committed_where = where
            return not moved

    # --- cutting and deleting ---------------------------------------------------------------------------------------

    def truncate_dirty(self, offset: int, *, zero_tail: bool = False) -> None:
        """End the queue at `offset` (bytes): files that start after it are deleted, the one that holds it ends there.

        `zero_tail` also makes the rest of that file zeros, durably. A file that ends at `offset` is left as it is, one
        that starts there stays, empty. Source: Apache truncateDirtyFiles.
        """
        for file in reversed(self.files):
            if file.file_from_offset > offset:
                self._disk.step("truncate:delete")
                self._destroy(file, TRUNCATE_INTERVAL_MS)
            elif offset < file.file_from_offset + self.file_size:
                if zero_tail:
                    file.invalidate_tail(offset - file.file_from_offset)
                file.truncate_to(offset - file.file_from_offset)
                if self.single_pages:
                    # A log is read from its beginning by who catches up. Of queues there may be tens of thousands, and
                    # so many maps: theirs are small, and not split.
                    file.single_pages(file.wrote_position if self._allocate_step is None else 0)
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)

    def delete_last(self) -> None:
        """Delete the newest file."""
        if self.files:
            self._destroy(self.files[-1], TRUNCATE_INTERVAL_MS)

    def delete_first(self, forcibly_ms: int) -> bool:
        """Delete the oldest file, unless it is the last one; False when it stays.

        It stays while somebody holds it, but nobody can from now on: call again. `forcibly_ms` after the first call
        holders are overruled. Raises StorageError: call again. Source: one turn of Apache deleteExpiredFileByTime.
        """
        files = self.files
        return len(files) > 1 and self._delete(files[0], forcibly_ms)

    def delete_expired_by_offset(
        self, offset: int, unit_size: int, last_unit_offset: Callable[[memoryview], int]
    ) -> int:
        """Delete files, oldest first, whose last unit points below `offset`; never the last file. Returns how many.

        `last_unit_offset` is given the `unit_size` bytes at a file's end. Stops at the first that stays.
        Source: Apache deleteExpiredFileByOffset.
        """
        deleted = 0
        for file in self.files[:-1]:
            with_unit = file.select(self.file_size - unit_size, unit_size)
            if with_unit is not None:
                with with_unit:
                    expired = last_unit_offset(with_unit.view) < offset
            else:
                # Shut down earlier, but still held then: its turn again. Otherwise it is not full: not to be judged.
                expired = not file.available
            if not expired or not self._delete(file, HANGED_INTERVAL_MS):
                break
            deleted += 1
        return deleted

    @property
    def hanging(self) -> bool:
        """Whether the first file was to be deleted and is there still: held, or the system refused."""
        file = self.first()
        return file is not None and not file.available

    def retry_delete_first(self, forcibly_ms: int) -> bool:
        """Try again to delete the first file, if it was shut down but is still held; whether it went."""
        file = self.first()
        return file is not None and not file.available and self._delete(file, forcibly_ms)

    def shutdown(self, interval_forcibly_ms: int = TRUNCATE_INTERVAL_MS) -> None:
        """Give all files back (they stay on disk); those that are held, when they are released."""
        for file in self.files:
            file.shutdown(interval_forcibly_ms)

    def destroy(self) -> None:
        """Delete all files, newest first, and the directories that are empty then."""
        for file in reversed(self.files):
            self._destroy(file, DESTROY_INTERVAL_MS)
        self.flushed_where = 0
        self.committed_where = 0
        for directory in self.directories:
            self._disk.remove_dir(directory)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _path(self, offset: int) -> str:
        return str(Path(self._places.place(offset, self.file_size)) / segment_name(offset))

    def _create(self, offset: int) -> MappedFile:
        if self._allocator is not None:
            file = self._take(self._allocator, offset)
        else:
            path = self._path(offset)
            self._disk.mkdirs(str(Path(path).parent))
            file = MappedFile.create(
                self._disk,
                path,
                self.file_size,
                allocate_step=self._allocate_step,
                single_pages=self.single_pages,
                open_files=self._open_files,
            )
        with self._lock:
            file.first_create_in_queue = not self.files
            if file.has_write_buffer:
                self._buffered = (*(other for other in self._buffered if other.has_write_buffer), file)
            self.files = (*self.files, file)
        return file

    def _take(self, allocator: SegmentAllocator, offset: int) -> MappedFile:
        """A file from the allocator, where it was announced: by now the policy may name another directory.

        Two files for one offset would be left otherwise (Apache leaves them). Elsewhere only if it can't be made there.
        """
        path = self._path(offset)
        announced = self._announced.pop(offset, path)
        next_offset = offset + self.file_size
        next_path = self._announced.setdefault(next_offset, self._path(next_offset))
        try:
            return allocator.take(announced, next_path, self.file_size)
        except StorageError:
            if announced == path:
                raise
            allocator.forget(announced)
            return allocator.take(path, next_path, self.file_size)

    def _file_at_or_after(self, where: int) -> MappedFile | None:
        containing = self.find_by_offset(where)
        if containing is not None:
            return containing
        return next((file for file in self.files if file.file_from_offset >= where), None)

    def _delete(self, file: MappedFile, forcibly_ms: int) -> bool:
        self._disk.step("expire:delete")
        if not file.destroy(forcibly_ms):
            return False
        self._forget(file)
        return True

    def _destroy(self, file: MappedFile, interval_ms: int) -> None:
        """Delete whether it is held or not: a file that stays in use goes when its holder lets go, or by force."""
        if not file.destroy(interval_ms):
            file.destroy(0)
        self._forget(file)

    def _forget(self, file: MappedFile) -> None:
        with self._lock:
            self.files = tuple(other for other in self.files if other is not file)
