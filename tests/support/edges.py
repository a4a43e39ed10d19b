"""Bytes that end where memory ends: who reads one more is ended by the system."""

from __future__ import annotations

import ctypes
import mmap


class Edge:
    """A place for bytes right before a page that can't be read. The system ends this process with SIGSEGV there.

    Args:
        size: how many bytes at most.
    """

    def __init__(self, size: int = 1 << 20) -> None:
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._map = mmap.mmap(-1, pages + mmap.PAGESIZE)
        self._whole = memoryview(self._map)
        self._end = pages
        library = ctypes.CDLL(None, use_errno=True)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        done = library.mprotect(ctypes.c_void_p(address + pages), ctypes.c_size_t(mmap.PAGESIZE), 0)
        assert done == 0, "the system protects a page"

    def put(self, data: bytes | memoryview) -> memoryview:
        """The bytes there, those put before are gone; to be used before the next ones are put."""
        place = self._whole[self._end - len(data) : self._end]
        place[:] = data
        return place.toreadonly()
