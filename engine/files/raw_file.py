"""A file by position: reads and writes that share no cursor.

Theory: on a file that the system itself opened (`io.FileIO`) this is preadv and pwrite, which need no lock
and release the GIL. Any other file object (a fake file system's) knows only seek, readinto and write: those
are serialized by one lock for all such files, as a write through one of them changes what the others of the
same name hold. The distinction matters beyond speed: a fake file's descriptor number may be a real
descriptor of something else, so calls by number are made on an `io.FileIO` only (`descriptor` is None
otherwise).

Invariant: a read or write is complete, or ends at the end of the file (reads), or raises.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from typing import TYPE_CHECKING, ClassVar

from engine.errors import StorageError
from engine.files.operations import Operation

if TYPE_CHECKING:
    from engine.files.disk import Disk

Bytes = bytes | bytearray | memoryview
"""What this layer writes: contiguous, one byte an item (len() is its size in bytes)."""

NO_SUCH_FEATURE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV, errno.ENOTTY})
"""What a file system says when it can't do a thing at all (as against not now)."""


class RawFile:
    """An open file, read and written by position. Errors: StorageError with path and offset, DiskFull."""

    __slots__ = ("_disk", "_file", "_real", "path")

    _one_at_a_time: ClassVar[threading.RLock] = threading.RLock()
    """Held for each call on a file that is not the system's."""

    def __init__(self, disk: Disk, path: str, file: io.RawIOBase) -> None:
        self._disk = disk
        self._file = file
        self.path = path
        self._real = isinstance(file, io.FileIO)

    @classmethod
    def alone(cls, *, real: bool) -> contextlib.AbstractContextManager[object]:
        """For a call that opens, changes or closes a file: no other one meanwhile, unless files are the system's."""
        return contextlib.nullcontext() if real else cls._one_at_a_time

    @property
    def descriptor(self) -> int | None:
        """The system's number for the file, None on a fake file system. Raises StorageError once it is closed.

        Asked for at each call and never kept: after a close the number may belong to another file.
        """
        if self._file.closed:
            raise StorageError("the file is closed", path=self.path)
        return self._file.fileno() if self._real else None

    def size(self) -> int:
        """Length of the file now, in bytes."""
        with self._disk.doing(Operation.STAT, self.path):
            return os.fstat(self.descriptor or self._file.fileno()).st_size

    def identity(self) -> tuple[int, int]:
        """Device and inode: what tells it from another file of the same name."""
        with self._disk.doing(Operation.STAT, self.path):
            status = os.fstat(self.descriptor or self._file.fileno())
            return status.st_dev, status.st_ino

    def read_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` (bytes); returns the bytes read, fewer only at the end of the file."""
        with memoryview(buffer) as whole, self._disk.doing(Operation.READ, self.path, offset, len(whole)):
            done = 0
            while done < len(whole):
                with whole[done:] as rest:
                    count = self._read_some(rest, offset + done)
                if count == 0:
                    break
                done += count
            return done

    def read(self, offset: int, length: int) -> memoryview:
        """Up to `length` bytes from `offset`, fewer only at the end of the file."""
        if self._real:  # the system fills what it gives: a bytearray would be made of zeros first
            with self._disk.doing(Operation.READ, self.path, offset, length):
                data = os.pread(self._file.fileno(), length, offset)
            if len(data) in (0, length):
                return memoryview(data)
        buffer = bytearray(length)
        count = self.read_into(buffer, offset)
        return memoryview(buffer)[:count].toreadonly()

    def write(self, offset: int, data: Bytes) -> None:
        """Write all of `data` at `offset` (bytes)."""
        with memoryview(data) as whole, self._disk.doing(Operation.WRITE, self.path, offset, len(whole)):
            done = 0
            while done < len(whole):
                with whole[done:] as rest:
                    done += self._write_some(rest, offset + done)

    def set_size(self, size: int) -> None:
        """Make the file `size` bytes long; a longer one gets a hole."""
        with self._disk.doing(Operation.ALLOCATE, self.path, 0, size), self.alone(real=self._real):
            self._file.truncate(size)

    def sync(self, start: int, end: int) -> None:
        """Make the bytes [start, end) durable (the system may sync more), and the file's length with them."""
        with self._disk.doing(Operation.SYNC, self.path, start, end - start):
            # A fake file system's fsync goes by its own numbers.
            self._disk.fsync(self.descriptor or self._file.fileno())

    def allocate(self, start: int, end: int) -> bool:
        """Reserve blocks for [start, end); False where this file system can't, DiskFull when there are none.

        The file never becomes shorter, nor longer than `end`; bytes that are there stay.
        """
        if end <= start:
            return True
        with self._disk.doing(Operation.ALLOCATE, self.path, start, end - start):
            descriptor = self.descriptor
            if descriptor is None:
                return False
            try:
                os.posix_fallocate(descriptor, start, end - start)
            except OSError as error:
                if error.errno in NO_SUCH_FEATURE:
                    return False
                raise
            return True

    def next_data(self, offset: int, end: int) -> int | None:
        """First place in [offset, end) that may hold something else than zeros; None when there is none.

        Where the file system can't tell holes, that is `offset` itself.
        """
        if offset >= end:
            return None
        descriptor = self.descriptor
        if descriptor is None:
            return offset
        try:
            position = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else offset
        return position if position < end else None

    def next_hole(self, offset: int, end: int) -> int:
        """End of the data that starts at `offset`: the first hole in [offset, end), else `end`."""
        descriptor = self.descriptor
        if descriptor is None:
            return end
        try:
            return min(end, os.lseek(descriptor, offset, os.SEEK_HOLE))
        except OSError:
            # A hint only: without it everything counts as data.
            return end

    def forget(self, start: int, end: int) -> None:
        """Ask the system to keep bytes [start, end) in memory no longer: what is read next comes from the disk.

        Pages that some process maps, and those that are not written yet, stay. A hint: where it can't be given, nothing
        happens.
        """
        descriptor = self.descriptor
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        with self._disk.doing(Operation.CLOSE, self.path), self.alone(real=self._real):
            self._file.close()

    def _read_some(self, rest: memoryview, offset: int) -> int:
        descriptor = self.descriptor
        if descriptor is not None:
            return os.preadv(descriptor, [rest], offset)
        with self._one_at_a_time:
            self._file.seek(offset)
            return self._file.readinto(rest) or 0

    def _write_some(self, rest: memoryview, offset: int) -> int:
        descriptor = self.descriptor
        if descriptor is not None:
            return os.pwrite(descriptor, rest, offset)
        with self._one_at_a_time:
            self._file.seek(offset)
            return self._file.write(rest) or 0
