"""Machine code that a process of this user has kept in a file: read and written where nobody else can, and mapped.

Who can put bytes into such a file runs what he likes as this user. So a file counts only if it and its directory belong
to this user, nobody else can write them, and neither is a link: both are opened first and asked then, and what is
mapped are the very bytes that were read. Directories above may be anybody's: whoever can exchange those can only bring
back what this user has written himself.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.files.libc import address_of

_MOST = 4 << 20
"""Bytes of a file: kernels have some ten KiB."""
_WORD = (1 << 64) - 1


def read_own(directory: Path, name: str) -> bytes | None:
    """The file's bytes; None where there is none, or none that only this user can have written."""
    try:
        with _opened(directory) as place:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or not _is_own(status) or status.st_size > _MOST:
                    return None
                return file.read(_MOST)
    except OSError:
        return None


def write_own(directory: Path, name: str, data: bytes) -> None:
    """Write a file that `read_own` reads, at once (a reader sees the one before, or all of it). Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(directory) as place:
        aside = f".{name}.{os.urandom(8).hex()}"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(aside, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=place)
            raise


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """The directory's descriptor. Raises OSError: also where others can write there."""
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_own(os.fstat(place)):
            raise PermissionError(f"others can write {directory}")
        yield place
    finally:
        os.close(place)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class MappedCode:
    """Code in memory that can be run and no longer written, for as long as this object is there.

    Args:
        image: its bytes.
        inner: (place, target) for each 8 bytes that get the address of another place of the image.
        outer: (place, name) for each 8 bytes that get the address of a function of the C library.

    Raises:
        OSError: the system does not allow it.
        AttributeError: the C library has no such function.
    """

    __slots__ = ("_memory", "address")

    def __init__(self, image: bytes, inner: Sequence[tuple[int, int]], outer: Sequence[tuple[int, str]]) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        protect = library.mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        memory = mmap.mmap(-1, len(image), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[:] = image
        self.address = address_of(memory)
        for place, target in inner:
            struct.pack_into("<Q", memory, place, self.address + target & _WORD)
        for place, name in outer:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            struct.pack_into("<Q", memory, place, address or 0)
        if protect(self.address, len(image), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._memory = memory


class _Method(ctypes.Structure):
    """PyMethodDef. Source: Python/C API Reference Manual, Common Object Structures."""

    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_FASTCALL = 0x80


def builtin(name: str, code: MappedCode, entry: int) -> Callable[..., Any]:
    """The function at a place of the code, as one of Python's own; it keeps the code for as long as it is there.

    It is called by the convention METH_FASTCALL: what is not written for that ends the process.
    """
    method = _Method(name.encode(), code.address + entry, _FASTCALL, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    made: Callable[..., Any] = make(ctypes.addressof(method), (code, method), None)
    return made
