"""The one narrow seam between the engine and the system's files: segments and files, opened, made, written, copied.

Theory: every call that the engine makes on files, directories and the clock goes through a `Disk`, within `doing(...)`
(seam.py). Names and their durability are in directories.py, the space of file systems in file_system.py.

Two kinds of segment (segment.py): the map, and the channel where the file system can't map or can't allocate,
or where `Disk(mapped=False)` asks for it. Readers of closed stores use `open_reader` (preadv): a bad sector
is a StorageError with its offset there, while through a map it is a SIGBUS.

Invariants:
- A segment that was created has blocks for every byte, or is of the channel kind; a creation that fails
  leaves no file.
- A file that replaces another is complete and durable before it takes the name (`write_file_atomically`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import Path
from types import BuiltinFunctionType
from typing import cast

from engine.errors import NotAFile, StorageError
from engine.files.beneath import At, behind_link, demand_one_name
from engine.files.entry import Entry, FileKind, kind_of, look
from engine.files.file_system import FileSystems
from engine.files.operations import Operation
from engine.files.raw_file import Bytes, RawFile
from engine.files.segment import ChannelSegment, MapSegment, Segment
from engine.files.written import blocks

_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY
LARGEST_WHOLE = 256 << 20
"""No file that is read whole has more bytes: configuration, notes of a repair, a store's settings."""


class Disk(FileSystems):
    """The system's files. Thread-safe; holds no state but the kind of segment that it prefers.

    Args:
        mapped: map segments into memory where the file system can; False: channel only.

    Attributes:
        concurrent: whether changes that don't depend on each other may be made by several threads at once; False where
            each run must make the same ones in the same order.
    """

    def __init__(self, *, mapped: bool = True) -> None:
        super().__init__()
        self.mapped = mapped
        self.concurrent = True

    # --- segments and files -----------------------------------------------------------------------------------------

    def open_segment(
        self,
        path: str,
        size: int,
        *,
        create: bool = False,
        writable: bool = True,
        mapped: bool | None = None,
        blocks: int | None = None,
        kept: bool = True,
    ) -> Segment:
        """Open a file of `size` bytes, or create it (it must not be there) allocated, zeroed and durable.

        `blocks`: bytes at the front of a new file that get blocks (default: all; the rest must be allocated before it
        is written through a map). `mapped` overrides the disk's preference. `kept`: of the channel kind, it holds its
        descriptor; a map holds none. An existing file is opened as it is, whatever its blocks: allocate before writing
        through a map. Raises DiskFull, StorageError (also when an
        existing file is shorter than `size`, which a map would answer with SIGBUS).
        """
        wanted = self.mapped if mapped is None else mapped
        if create:
            first = size if blocks is None else min(blocks, size)
            return self._create_segment(path, size, first, mapped=wanted, kept=kept)
        file = self.open_raw(path, writable=writable)
        try:
            length = file.size()
            if length < size:
                raise StorageError(f"the file has {length} bytes instead of {size}", path=path)
            return self._as_segment(file, size, writable=writable, mapped=wanted, kept=kept)
        except BaseException:
            file.close()
            raise

    def open_raw(self, path: str, *, writable: bool = False, create: bool = False, new: bool = False) -> RawFile:
        """Open a file by position. `create`: make it when absent; `new`: it must not be there yet.

        Never waits. Raises NotAFile for what is no regular file; OutsideStore for a file that is opened for writing
        through a link, or that has other names; StorageError, DiskFull.
        """
        operation = Operation.CREATE if create or new else Operation.OPEN
        with self.doing(operation, path), self._at(path) if writable or create or new else At(path) as at:
            absent = new or (create and at.status() is None)
            mode = "x+b" if absent else "r+b" if writable else "rb"

            def opened(_: str, flags: int) -> int:
                """open(2) that doesn't wait for the other end of a FIFO, nor takes a terminal."""
                return os.open(at.name, flags | _AT_ONCE | at.no_follow, 0o666, dir_fd=at.directory)

            try:
                # RawFile closes it, and there may be thousands.
                with RawFile.alone(real=isinstance(open, BuiltinFunctionType)):
                    file = open(path, mode, buffering=0, opener=opened)  # noqa: SIM115
            except OSError as error:
                entry = look(os.path.basename(path), path)
                if error.errno == errno.ELOOP and at.strict and entry is not None and entry.kind is not FileKind.ABSENT:
                    raise behind_link(path) from error
                if new or entry is None or entry.is_file:
                    raise
                raise _no_file(operation, entry) from error
            try:
                status = os.fstat(file.fileno())
                kind = kind_of(status.st_mode)
                if kind is not FileKind.FILE:
                    raise _no_file(operation, Entry(os.path.basename(path), path, kind, 0, 0))
                if absent:
                    self._settle_file(at, file.fileno() if isinstance(file, io.FileIO) else None, path)
                elif at.strict:
                    demand_one_name(status, path)
            except BaseException:
                file.close()
                raise
        return RawFile(self, path, cast("io.RawIOBase", file))

    def open_reader(self, path: str) -> RawFile:
        """Open a file for positional reading (`size`, `read`, `read_into`, `next_data`), safe on damaged disks."""
        return self.open_raw(path)

    def read_file(self, path: str, limit: int | None = None) -> bytes:
        """A small file whole, or its first `limit` bytes. Raises StorageError for one of more than LARGEST_WHOLE."""
        file = self.open_raw(path)
        try:
            size = file.size()
            if limit is None and size > LARGEST_WHOLE:
                raise StorageError(f"the file has {size} bytes, more than {LARGEST_WHOLE}", path=path)
            return bytes(file.read(0, size if limit is None else min(size, limit)))
        finally:
            file.close()

    def write_file(self, path: str, data: Bytes) -> None:
        """Write a file in place (made when absent), cut to the data's length, synced; its name: `sync_dir`."""
        file = self.open_raw(path, writable=True, create=True)
        try:
            file.write(0, data)
            file.set_size(len(data))
            file.sync(0, len(data))
        finally:
            file.close()

    def write_file_atomically(self, path: str, data: Bytes, *, like: str | None = None) -> None:
        """Give `path` new content at one stroke: after a crash it holds the old bytes or the new ones, whole.

        By way of `<path>.tmp`, which is gone when it fails. Owner and mode of an existing file are kept, or those of
        `like` given; a link stays one: what it leads to is replaced, where links are followed.
        """
        path = self._behind_link(path)
        temporary = path + ".tmp"
        try:
            self.unlink(temporary, missing_ok=True)
            file = self.open_raw(temporary, new=True)
            try:
                file.write(0, data)
                self._copy_owner(like or path, file.descriptor, temporary)
                self.step("write-atomically:written")
                file.sync(0, len(data))
            finally:
                file.close()
            self.step("write-atomically:synced")
            self.replace(temporary, path)
        except Exception:
            with contextlib.suppress(StorageError):
                self.unlink(temporary, missing_ok=True)
            raise
        self.step("write-atomically:replaced")
        self.sync_dir(str(Path(path).parent))

    def copy_file(self, source: str, target: str, *, offset: int = 0, length: int | None = None) -> int:
        """Copy a range (default: all) of `source` into the new file `target`; holes and blocks of zeros become holes.

        Durable with its name when it returns; nothing stays behind when it fails. Returns the length in bytes.
        Raises StorageError when `target` is there already.
        """
        reader = self.open_raw(source)
        try:
            end = reader.size() if length is None else min(reader.size(), offset + length)
            writer = self.open_raw(target, new=True)
            try:
                for place, chunk in blocks(reader, offset, end, shift=-offset):
                    writer.write(place - offset, chunk)
                size = max(0, end - offset)
                writer.set_size(size)
                writer.sync(0, size)
            except Exception:
                writer.close()
                self.unlink(target, missing_ok=True)
                raise
            writer.close()
        finally:
            reader.close()
        self.sync_dir(str(Path(target).parent))
        return size

    def copy_range(self, source: str, source_offset: int, length: int, target: str, target_offset: int) -> None:
        """Overwrite `length` bytes of the existing file `target` with those of `source`; synced.

        Holes and zeros of `source` are made zeros in `target`, where it holds something else: its holes stay. A target
        that ends before them becomes as long.

        Raises StorageError when `source` has fewer bytes there.
        """
        reader = self.open_raw(source)
        try:
            writer = self.open_raw(target, writable=True)
            try:
                end = source_offset + length
                if reader.size() < end:
                    raise StorageError("unexpected end of the file", path=source, offset=reader.size())
                shift = target_offset - source_offset
                at = source_offset
                for place, chunk in blocks(reader, source_offset, end, shift=shift):
                    self._zero(writer, at + shift, place + shift)
                    writer.write(place + shift, chunk)
                    at = place + len(chunk)
                self._zero(writer, at + shift, end + shift)
                if writer.size() < end + shift:
                    writer.set_size(end + shift)
                writer.sync(target_offset, target_offset + length)
            finally:
                writer.close()
        finally:
            reader.close()

    def can_sync_file_system(self, path: str) -> bool:
        """Whether `sync_file_system` works for this file."""
        file = self.open_raw(path)
        try:
            descriptor = file.descriptor
            return descriptor is not None and self.libc.vouches_by_syncfs(descriptor)
        finally:
            file.close()

    def sync_file_system(self, path: str) -> None:
        """Make everything durable on the file system of this file: called within `doing`, for each file in question."""
        descriptor = os.open(path, os.O_RDONLY | _AT_ONCE)
        try:
            self.libc.syncfs(descriptor)
        finally:
            os.close(descriptor)

    def move(self, source: str, target: str) -> None:
        """Rename; a small file also to another file system, by a copy. Raises StorageError."""
        try:
            self.replace(source, target)
        except StorageError:
            entry = self.look(source)
            if entry is None or not entry.is_file or entry.size > LARGEST_WHOLE or self.link_of(source):
                raise
            self.copy_file(source, target)
            self.unlink(source)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _create_segment(self, path: str, size: int, blocks: int, *, mapped: bool, kept: bool) -> Segment:
        with self._held(path) as at:
            file = self.open_raw(path, new=True)
            try:
                self.step("create-segment:named")
                file.set_size(size)
                allocated = file.allocate(0, blocks)
                self.step("create-segment:allocated")
                file.sync(0, size)
                self.sync_dir(str(Path(path).parent))
                return self._as_segment(file, size, writable=True, mapped=mapped and allocated, kept=kept)
            except Exception:
                file.close()
                self._take_back(at, path)
                raise

    def _as_segment(self, file: RawFile, size: int, *, writable: bool, mapped: bool, kept: bool) -> Segment:
        if mapped and size > 0 and file.descriptor is not None:
            with self.doing(Operation.MAP, file.path, 0, size):
                try:
                    return MapSegment(self, file, size, writable=writable)
                except OSError as error:
                    if error.errno not in (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.ENOMEM):
                        raise
        return ChannelSegment(self, file, size, writable=writable, kept=kept)

    def _zero(self, file: RawFile, start: int, end: int) -> None:
        """Make [start, end) zeros: what is so already is left alone."""
        for place, some in blocks(file, start, end):
            file.write(place, bytes(len(some)))


def _no_file(operation: Operation, entry: Entry) -> NotAFile:
    absent = entry.kind is FileKind.ABSENT
    return NotAFile(
        f"{operation.value}: {entry.what}" + ("" if absent else ", not a file"),
        path=entry.path,
        hint="mount the disk that it leads to" if absent else "move it out of the store, then run it again",
    )


Reader = RawFile
"""What `Disk.open_reader` gives."""
