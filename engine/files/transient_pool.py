"""Write buffers that stand before the file: messages go to memory first, and to the file in a separate commit.

Theory (Apache TransientStorePool): N buffers of a segment's size, taken once at start, kept from being
swapped where the system allows it. A mapped file borrows one for its time of being written. Commit copies to
the file, flush makes that durable, and readers see only what is committed. The buffer comes back when the
file is full and committed, or shut down.

Invariant: a borrowed buffer is all zeros. Apache hands out the last file's bytes again, and they end up in
the rest of a file after its closing blank record.
"""

from __future__ import annotations

import ctypes
import mmap
import threading

from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.files.libc import address_of


class WriteBuffer:
    """One buffer: `memory` is writable, `size` bytes."""

    __slots__ = ("_address", "_map", "dirty", "locked", "memory", "size")

    def __init__(self, disk: Disk, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size)
        self._address = address_of(self._map)
        self.memory = memoryview(self._map)
        self.locked = disk.libc.mlock(self._address, size)
        self.dirty = False

    def clear(self) -> None:
        """Zero it, if it was ever lent. Does not hold the GIL meanwhile."""
        if self.dirty:
            ctypes.memset(self._address, 0, self.size)

    def unlock(self, disk: Disk) -> None:
        """Let the system swap it again."""
        if self.locked:
            disk.libc.munlock(self._address, self.size)
            self.locked = False


class TransientStorePool:
    """The buffers. Thread-safe.

    Args:
        disk: for the system's memory calls.
        count: buffers (Apache transientStorePoolSize, 5).
        size: bytes of each: the commitlog's file size.
    """

    def __init__(self, disk: Disk, count: int, size: int) -> None:
        if count < 1 or size < 1:
            raise InvalidArgument(f"pool must not be empty: {count} buffers of {size} bytes")
        self._disk = disk
        self._lock = threading.Lock()
        self.size = size
        self._buffers = [WriteBuffer(disk, size) for _ in range(count)]
        self._free = list(reversed(self._buffers))

    @property
    def available(self) -> int:
        """Buffers that could be borrowed now (Apache availableBufferNums)."""
        return len(self._free)

    @property
    def locked(self) -> bool:
        """Whether the system keeps all of them in memory (RLIMIT_MEMLOCK allowing)."""
        return all(buffer.locked for buffer in self._buffers)

    def borrow(self) -> WriteBuffer | None:
        """A zeroed buffer; None when all are out. Zeroing takes some 0.1 s a GiB: do it off the append path."""
        with self._lock:
            if not self._free:
                return None
            buffer = self._free.pop()
        buffer.clear()
        buffer.dirty = True
        return buffer

    def give_back(self, buffer: WriteBuffer) -> None:
        """Return a borrowed buffer; returning it twice does nothing."""
        with self._lock:
            if buffer not in self._free:
                self._free.append(buffer)

    def destroy(self) -> None:
        """Unlock the memory; it is freed with the last reference to it."""
        for buffer in self._buffers:
            buffer.unlock(self._disk)
