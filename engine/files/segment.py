"""The bytes of one fixed-size file, in one of two kinds: memory map or channel.

    MapSegment      memory is a writable view of the file; reads cost nothing, appends are one copy
    ChannelSegment  memory is None; reads copy (preadv), writes are calls (pwrite): a full disk is an error, no SIGBUS

Both take positions in bytes from the start of the file, and share everything that goes by call (allocate,
zero, read). Which kind a file gets is decided by `Disk.open_segment`.

Invariants:
- A MapSegment is written through only where blocks are allocated; keeping that is the owner's duty
  (MappedFile does).
- `close` never raises because somebody still reads: the map then lives until the last view of it is gone.
- After a failed sync every later one fails too. The kernel reports a lost write once and then calls the pages
  clean, so a second sync that succeeds would be a lie.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument, OutOfDescriptors, StorageError
from engine.files.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE
from engine.files.operations import Operation
from engine.files.raw_file import NO_SUCH_FEATURE, Bytes, RawFile

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.mapping import Mapping

PAGE = 4096
"""Bytes of a page, as Apache's MappedFile.OS_PAGE_SIZE."""

CHUNK = 1 << 20
"""Bytes that are zeroed, compared or copied at a time."""


class ChannelSegment:
    """A file of `size` bytes, read and written by call. Errors: StorageError, DiskFull, InvalidArgument (bounds).

    Args:
        kept: it holds its descriptor. Else it opens the file for each call: of queue files there may be more than
            descriptors.
    """

    __slots__ = ("_closed", "_disk", "_failed", "_file", "_identity", "_writable", "memory", "path", "size")

    def __init__(self, disk: Disk, file: RawFile, size: int, *, writable: bool = True, kept: bool = True) -> None:
        self._disk = disk
        self._failed: StorageError | None = None
        self._writable = writable
        self._closed = False
        self.memory: memoryview | None = None
        self.path = file.path
        self.size = size
        self._file: RawFile | None = file if kept else None
        self._identity = (0, 0) if kept else file.identity()
        if not kept:
            file.close()

    @property
    def mapped(self) -> bool:
        """Whether this is the map kind."""
        return False

    def whole(self) -> memoryview | None:
        """All bytes of the file in memory, without reading it; None: it is not mapped."""
        return None

    def read(self, position: int, length: int) -> memoryview:
        """The bytes [position, position + length), read-only."""
        self._check(position, length)
        if self._file is not None:
            return self._file.read(position, length)
        with self._raw() as file:
            return file.read(position, length)

    def write(self, position: int, data: Bytes) -> None:
        """Put `data` at `position`."""
        self._check(position, len(data))
        with self._raw() as file:
            file.write(position, data)

    def allocate(self, start: int, end: int) -> bool:
        """Reserve blocks for [start, end); False where the file system can't; DiskFull when there are none."""
        self._check(start, end - start)
        with self._raw() as file:
            return file.allocate(start, end)

    def is_zero(self, start: int, end: int) -> bool:
        """Whether [start, end) holds nothing but zeros; holes and unwritten blocks are not read."""
        with self._raw() as file:
            place = file.next_data(start, end)
            while place is not None:
                stop = file.next_hole(place, end)
                while place < stop:
                    chunk = file.read(place, min(CHUNK, stop - place))
                    if chunk != bytes(len(chunk)):
                        return False
                    # A file that somebody cut meanwhile reads short: nothing is there any more.
                    place += len(chunk) or stop - place
                place = file.next_data(stop, end)
        return True

    def zero(self, start: int, end: int) -> None:
        """Make [start, end) zeros with blocks after them where the file system can; not yet durable: `sync` it.

        Tried in turn: zeroing in place (never gives the blocks away), a hole that is allocated again, zeros written.
        Raises DiskFull when a hole could not be filled again: the bytes are zeros then, but without blocks.
        """
        self._check(start, end - start)
        if end == start:
            return
        with self._raw() as file:
            for mode in (FALLOC_ZERO_RANGE, FALLOC_PUNCH_HOLE):
                if self._fallocate(file, mode | FALLOC_KEEP_SIZE, start, end):
                    file.allocate(start, end)
                    return
            zeros = bytes(min(CHUNK, end - start))
            for place in range(start, end, CHUNK):
                with memoryview(zeros)[: min(CHUNK, end - place)] as part:
                    file.write(place, part)

    def sync(self, start: int, end: int) -> None:
        """Make [start, end) durable. Raises StorageError, and from then on always."""
        if self._failed is not None:
            raise StorageError(
                "an earlier sync failed, so what was written since may be lost",
                path=self.path,
                offset=start,
                hint="close the store; the next start reads what is on the disk",
            ) from self._failed
        try:
            self._sync(start, end)
        except OutOfDescriptors:  # nothing was synced, and nothing was lost
            raise
        except StorageError as error:
            self._failed = error
            raise

    def write_many(self, position: int, data: Bytes) -> None:
        """As `write`, for many bytes where nothing was before: by call, which gets the pages some at a time."""
        self._check(position, len(data))
        with self._raw() as file:
            file.write(position, data)

    def begin_writing(self, start: int, end: int) -> None:
        """Have [start, end) on its way to the device: a `sync` waits less then. A hint: nothing is durable by it.

        Nothing happens where the file can't be opened.
        """
        self._check(start, end - start)
        with contextlib.suppress(StorageError), self._raw() as file:
            if file.descriptor is not None:
                self._disk.libc.begin_writing(file.descriptor, start, end - start)

    def lock_memory(self) -> bool:
        """Keep the file's pages in memory; False when the system would not, or there is no map."""
        return False

    def unlock_memory(self) -> bool:
        """Undo `lock_memory`; False when there is nothing to undo."""
        return False

    def touch(self, start: int, end: int) -> bool:
        """Have the pages of [start, end), from a page's start on, ready to be written; False where not possible."""
        del start, end
        return False

    def let_go(self, start: int, end: int) -> None:
        """Have the pages of [start, end), from a page's start on, in the page cache alone, until they are read."""

    def single_pages(self, start: int, end: int) -> None:
        """[start, end) is going to be appended to, bit by bit: get its pages one by one.

        A touch of a page gets its neighbours, too, as one large folio (up to 2 MiB where the device reads far ahead),
        and a folio is written back whole: a sync of a few KiB would write some hundred times as much. The price: who
        reads what is not in memory gets it page by page.
        """

    def many_pages(self) -> None:
        """Nothing is appended any more: who reads a page gets its neighbours, too."""

    def close(self) -> None:
        """Give the file back; views that are out stay readable. A second time does nothing."""
        self._closed = True
        if self._file is not None:
            self._file.close()

    @contextlib.contextmanager
    def _raw(self) -> Iterator[RawFile]:
        """The open file, for what goes by call in both kinds."""
        if self._file is not None:
            yield self._file
            return
        if self._closed:
            raise StorageError("the file is closed", path=self.path)
        file = self._disk.open_raw(self.path, writable=self._writable)
        try:
            if file.identity() != self._identity:
                raise StorageError("the file was replaced by another one", path=self.path)
            yield file
        finally:
            file.close()

    def _sync(self, start: int, end: int) -> None:
        with self._raw() as file:
            file.sync(start, end)

    def _check(self, position: int, length: int) -> None:
        if position < 0 or length < 0 or position + length > self.size:
            raise InvalidArgument(
                f"{length} bytes are not within the file's {self.size} bytes", path=self.path, offset=position
            )

    def _fallocate(self, file: RawFile, mode: int, start: int, end: int) -> bool:
        with self._disk.doing(Operation.ZERO, self.path, start, end - start):
            descriptor = file.descriptor
            if descriptor is None:
                return False
            try:
                self._disk.libc.fallocate(descriptor, mode, start, end - start)
            except OSError as error:
                if error.errno in NO_SUCH_FEATURE:
                    return False
                raise
            return True


class MapSegment(ChannelSegment):
    """The same file, with its bytes in memory: `memory` is all of it, writable unless opened for reading.

    It keeps no descriptor: a store may have tens of thousands of queue files. What goes by call (allocate, zero) opens
    the file again for the moment. `park` gives the map up, too; the next use makes it again.

    Attributes:
        on_mapped: called when it was mapped again after `park`, by the thread that wanted it.
    """

    __slots__ = ("_map", "_mapping_lock", "_single_from", "on_mapped")

    def __init__(self, disk: Disk, file: RawFile, size: int, *, writable: bool) -> None:
        """Map it. Raises OSError as mmap does: the caller decides whether to continue by channel."""
        descriptor = file.descriptor
        if descriptor is None:
            raise OSError(errno.ENODEV, "no descriptor to map")
        mapping = disk.libc.map_file(descriptor, size, writable=writable)
        super().__init__(disk, file, size, writable=writable, kept=False)
        self._single_from: int | None = None
        self._mapping_lock = threading.Lock()
        self.on_mapped: Callable[[], None] | None = None
        self._map: Mapping | None = mapping
        self.memory = mapping.memory

    @property
    def mapped(self) -> bool:
        """Whether this is the map kind."""
        return True

    @property
    def parked(self) -> bool:
        """Whether the map was given up, and the file was not."""
        return self._map is None and not self._closed

    def park(self) -> None:
        """Give up the map until the file is used again. Views that are out stay readable; what was written is kept."""
        with self._mapping_lock:
            self.memory = self._map = None

    def unpark(self) -> None:
        """Have the map again. Raises StorageError: closed, replaced, or the system has no map or descriptor left."""
        with self._mapping_lock:
            if self._map is not None:
                return
            if self._closed:
                raise StorageError("the file is closed", path=self.path)
            with self._raw() as file, self._disk.doing(Operation.MAP, self.path, 0, self.size):
                if file.size() < self.size:
                    raise StorageError(f"the file has {file.size()} bytes instead of {self.size}", path=self.path)
                descriptor = file.descriptor
                if descriptor is None:
                    raise OSError(errno.ENODEV, "no descriptor to map")
                mapping = self._disk.libc.map_file(descriptor, self.size, writable=self._writable)
                if self._single_from is not None:
                    start = self._single_from
                    self._disk.libc.read_ahead(mapping.address + start, self.size - start, on=False)
            self._map, self.memory = mapping, mapping.memory
        if self.on_mapped is not None:
            self.on_mapped()

    def whole(self) -> memoryview | None:
        """All bytes themselves, read-only: what is written later shows. Raises StorageError."""
        return (self._map or self._mapping()).readable

    def read(self, position: int, length: int) -> memoryview:
        """The bytes [position, position + length) themselves, read-only: what is written later shows."""
        if position < 0 or length < 0 or position + length > self.size:
            self._check(position, length)
        mapping = self._map
        return (mapping or self._mapping()).readable[position : position + length]

    def write(self, position: int, data: Bytes) -> None:
        """Copy `data` to `position`."""
        self._check(position, len(data))
        self._mapping().memory[position : position + len(data)] = data

    def lock_memory(self) -> bool:
        """mlock and MADV_WILLNEED on the whole map (Apache MappedFile.mlock); False when refused."""
        mapping = self._map
        if mapping is None or not self._writable:
            return False
        locked = self._disk.libc.mlock(mapping.address, self.size)
        self._disk.libc.will_need(mapping.address, self.size)
        return locked

    def unlock_memory(self) -> bool:
        """munlock on the whole map."""
        mapping = self._map
        return mapping is not None and self._writable and self._disk.libc.munlock(mapping.address, self.size)

    def touch(self, start: int, end: int) -> bool:
        """As of the base; nothing in the map changes."""
        mapping = self._map  # held, so that a `close` meanwhile leaves the map alone
        if mapping is None or not self._writable:
            return False
        return self._disk.libc.populate(mapping.address + start, end - start)

    def let_go(self, start: int, end: int) -> None:
        """As of the base."""
        mapping = self._map
        if mapping is not None:
            self._disk.libc.unmap_pages(mapping.address + start, end - start)

    def single_pages(self, start: int, end: int) -> None:
        """As of the base."""
        first = start // PAGE * PAGE
        if not self._writable or end <= first:
            return
        self._single_from = first
        mapping = self._map
        if mapping is not None:
            self._disk.libc.read_ahead(mapping.address + first, end - first, on=False)

    def many_pages(self) -> None:
        """As of the base."""
        self._single_from = None
        mapping = self._map
        if mapping is not None and self._writable:
            self._disk.libc.read_ahead(mapping.address, self.size, on=True)

    def close(self) -> None:
        """Unmap, or leave the map to its last reader, and close the file. A second time does nothing."""
        with self._mapping_lock:
            self._closed = True
            self.memory = self._map = None
        super().close()

    def _mapping(self) -> Mapping:
        mapping = self._map
        while mapping is None:
            self.unpark()
            mapping = self._map
        return mapping

    def _sync(self, start: int, end: int) -> None:
        if self._closed:
            raise StorageError("the file is closed", path=self.path)
        mapping = self._map  # held: the memory can't go meanwhile
        if mapping is None:
            super()._sync(start, end)
            return
        first = start // PAGE * PAGE
        with self._disk.doing(Operation.SYNC, self.path, start, end - start):
            if end > start:
                self._disk.libc.msync(mapping.address + first, end - first)


Segment = ChannelSegment
"""What `Disk.open_segment` gives: the channel kind, or its map kind."""
