"""Memory that shows a file, and holds no descriptor of it.

Theory: a map needs the file's descriptor only for the moment in which it is made (mmap(2)). Python's `mmap.mmap` keeps
a copy of it as long as the map lives (before 3.13 always), and a store has a file for each queue: descriptors would be
used up by some hundred topics. So the call is made here.

Invariant: the memory is given back when the last view of it is gone, never before: whoever holds one may read it.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from engine.dataclass import dataclass

_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map: where it begins (valid while `memory` or a view made of it is there), and its bytes.

    `readable`: the same bytes, read-only.
    """

    address: int
    memory: memoryview
    readable: memoryview


class Mapper:
    """Makes maps. Thread-safe. `library`: the C library."""

    __slots__ = ("_kinds", "_mmap", "_munmap")

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        prototype = ctypes.CFUNCTYPE(pointer, pointer, size, number, number, number, ctypes.c_long, use_errno=True)
        self._mmap = prototype(("mmap", library))
        self._munmap = ctypes.CFUNCTYPE(number, pointer, size, use_errno=True)(("munmap", library))
        self._kinds: dict[int, type[ctypes.Array[ctypes.c_char]]] = {}

    def map(self, descriptor: int, size: int, *, writable: bool) -> Mapping:
        """The first `size` bytes of an open file, shared with all who have it open; raises OSError as mmap(2)."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = self._mmap(None, size, protection, mmap.MAP_SHARED, descriptor, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        memory = memoryview(self._kind(size).from_address(address)).cast("B")
        readable = memory.toreadonly()
        return Mapping(address, memory if writable else readable, readable)

    def _kind(self, size: int) -> type[ctypes.Array[ctypes.c_char]]:
        """An array that gives its pages back when nothing refers to it any more. Of one size there is one kind."""
        kind = self._kinds.get(size)
        if kind is None:
            unmap, address_of = self._munmap, ctypes.addressof

            def give_back(pages: ctypes.Array[ctypes.c_char]) -> None:
                unmap(address_of(pages), size)

            kind = self._kinds[size] = type("Pages", (ctypes.c_char * size,), {"__slots__": (), "__del__": give_back})
        return kind
