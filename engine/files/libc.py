"""The few calls of the C library that Python's standard library does not offer, or offers only while holding
the GIL.

`mmap.flush` keeps the GIL for as long as the device takes, which would stop every producer during a flush:
`msync` here releases it (ctypes does around each foreign call). `fallocate` is wanted for its modes.
Addresses are plain integers; whoever passes one keeps its map alive for the call.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import re

from engine.files.mapping import Mapper

FALLOC_KEEP_SIZE = 0x01
FALLOC_PUNCH_HOLE = 0x02
FALLOC_ZERO_RANGE = 0x10
MS_SYNC = 4
MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED = 0, 1, 3, 4
MADV_POPULATE_WRITE = 23
SYNC_FILE_RANGE_WRITE = 2
_OPENAT2 = 437
"""Its number, the same on each machine (but Alpha). Source: openat2(2), Linux 5.6."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_SYNCFS_TELLS = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2]) >= (5, 8)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
_EXT = 0xEF53
_VOUCHING = (_EXT, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994)
"""f_type of ext4, xfs, btrfs, f2fs, tmpfs (statfs(2)). What FUSE and network file systems do is theirs."""


_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "loongarch64": 30, "ppc64le": 273, "s390x": 282}
"""Its number by machine. Source: ioprio_set(2), Linux's syscall tables."""
_IOPRIO_WHO_PROCESS, _IOPRIO_CLASS_IDLE, _IOPRIO_CLASS_SHIFT = 1, 3, 13


def address_of(memory: mmap.mmap | memoryview) -> int:
    """The address of a writable map's first byte; valid for as long as the map is not closed."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Libc:
    """The C library of this process."""

    __slots__ = ("_library", "map_file")

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.msync.argtypes = (pointer, size, ctypes.c_int)
        library.mlock.argtypes = (pointer, size)
        library.munlock.argtypes = (pointer, size)
        library.madvise.argtypes = (pointer, size, ctypes.c_int)
        self._library = library
        self.map_file = Mapper(library).map

    def fallocate(self, descriptor: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2); bytes. Raises OSError (ENOSYS where the library has no such call)."""
        try:
            call = self._library.fallocate
        except AttributeError:
            raise OSError(errno.ENOSYS, "no fallocate") from None
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        while (result := call(descriptor, mode, offset, length)) != 0 and ctypes.get_errno() == errno.EINTR:
            # A signal came first (large allocations can be interrupted): nothing is wrong, ask again.
            continue
        self._checked(result)

    def msync(self, address: int, length: int) -> None:
        """Write a page-aligned range of a map to the device and wait for it; raises OSError."""
        self._checked(self._library.msync(address, length, MS_SYNC))

    def begin_writing(self, descriptor: int, offset: int, length: int) -> bool:
        """Have what is dirty of a range written to the device (sync_file_range(2)) without waiting: a hint, no sync.

        False where the system has no such call, or refuses.
        """
        try:
            call = self._library.sync_file_range
        except AttributeError:
            return False
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        return bool(call(descriptor, offset, length, SYNC_FILE_RANGE_WRITE) == 0)

    def vouches_by_syncfs(self, descriptor: int) -> bool:
        """Whether `syncfs` of this file's system makes durable what fsync(2) would, and tells of errors (Linux 5.8)."""
        if not _SYNCFS_TELLS or not hasattr(self._library, "syncfs"):
            return False
        statfs = (ctypes.c_long * 64)()
        return self._library.fstatfs(descriptor, statfs) == 0 and statfs[0] in _VOUCHING

    def open_beneath(self, directory: int, path: str, flags: int) -> int:
        """A descriptor of what lies below an open directory, where no link is on the way (openat2(2)).

        Raises OSError: ELOOP for a link, EXDEV for a way out of the directory, ENOSYS or EPERM where the system has no
        such call.
        """
        how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
        call = self._library.syscall
        number, here = ctypes.c_long(_OPENAT2), ctypes.c_long(directory)
        result = int(call(number, here, ctypes.c_char_p(os.fsencode(path)), how, ctypes.c_size_t(ctypes.sizeof(how))))
        if result < 0:
            self._checked(result)
        return result

    def is_ext(self, path: str) -> bool:
        """Whether an ext2, ext3 or ext4 file system holds `path` (statfs(2) tells no difference)."""
        statfs = (ctypes.c_long * 64)()
        return self._library.statfs(os.fsencode(path), statfs) == 0 and statfs[0] == _EXT

    def syncfs(self, descriptor: int) -> None:
        """Write all that a file system holds back, and wait for it; raises OSError."""
        self._checked(self._library.syncfs(descriptor))

    def mlock(self, address: int, length: int) -> bool:
        """Keep a range of memory from being swapped; False when the system would not (RLIMIT_MEMLOCK)."""
        return bool(self._library.mlock(address, length) == 0)

    def munlock(self, address: int, length: int) -> bool:
        """Undo `mlock`; False when the system would not."""
        return bool(self._library.munlock(address, length) == 0)

    def will_need(self, address: int, length: int) -> bool:
        """Ask the system to read a range of a map ahead (MADV_WILLNEED); a hint, False when refused."""
        return bool(self._library.madvise(address, length, MADV_WILLNEED) == 0)

    def read_ahead(self, address: int, length: int, *, on: bool) -> bool:
        """Whether who reads a page of a range gets its neighbours, too (MADV_NORMAL, or MADV_RANDOM); a hint."""
        return bool(self._library.madvise(address, length, MADV_NORMAL if on else MADV_RANDOM) == 0)

    def unmap_pages(self, address: int, length: int) -> bool:
        """Take the pages of a range of a shared map of a file out of this process (MADV_DONTNEED); a hint.

        They stay in the page cache, with what was written to them.
        """
        return bool(self._library.madvise(address, length, MADV_DONTNEED) == 0)

    def populate(self, address: int, length: int) -> bool:
        """Have the pages of a range of a writable map as if each had been written to, and none changed.

        False where the system can't (before Linux 5.14), or not here.
        """
        return bool(self._library.madvise(address, length, MADV_POPULATE_WRITE) == 0)

    def limit_heaps(self, count: int) -> None:
        """The maximum of heaps from now on: each thread would else have its own, and keep what it gave back there.

        Nothing where the library is not glibc. Source: M_ARENA_MAX of mallopt(3).
        """
        with contextlib.suppress(AttributeError):
            self._library.mallopt(M_ARENA_MAX, count)

    def keep_freed(self, size: int) -> None:
        """Keep freed blocks of up to `size` bytes (at most 32 MiB) for the next ones, instead of giving them back.

        Else half of the time that a buffer is used would go into getting its pages zeroed again. Nothing where the
        library is not glibc. Source: M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3).
        """
        with contextlib.suppress(AttributeError):
            self._library.mallopt(M_MMAP_THRESHOLD, size)
            self._library.mallopt(M_TRIM_THRESHOLD, 2 * size)

    def give_back_freed(self) -> None:
        """Give what is free back to the system, wherever it lies. Nothing where the library is not glibc."""
        with contextlib.suppress(AttributeError):
            self._library.malloc_trim(0)

    def idle_io_priority(self) -> bool:
        """Let the calling thread read and write only when nobody else does (ioprio_set(2), class idle); a hint.

        False where the system can't, or its schedulers know no classes. Source: ioprio_set(2).
        """
        number = _IOPRIO_SET.get(platform.machine())
        if number is None:
            return False
        words = (number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_CLASS_IDLE << _IOPRIO_CLASS_SHIFT)
        return int(self._library.syscall(*map(ctypes.c_long, words))) == 0

    @staticmethod
    def _checked(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
