"""The store's lock: one process at a time changes a store.

Apache's broker takes `FileChannel.tryLock(0, 1, false)` on `<store>/lock`: a POSIX record lock (fcntl
F_SETLK) on byte [0, 1).

Ours is an *open file description* lock (F_OFD_SETLK) on the same byte. The kernel lets the two kinds exclude
each other in both directions, so Java is refused while we hold it and we while Java does. Two things are
better than with a POSIX lock, which belongs to the process: a second StoreLock in the same process is refused
like any other, and closing some other descriptor of the file (a reader's probe) does not silently drop the
lock. Where the system has no such locks (old kernels, some network file systems, other Unixes) it is the
POSIX lock, with both of these weaknesses.

The kernel does not say who holds an OFD lock (pid −1); then the processes that have the file open are looked
up in /proc, which shows only what this user may see: the pid is a help in the message, nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType

from engine.dataclass import dataclass
from engine.errors import StorageError, StoreLocked
from engine.files.disk import Disk
from engine.files.operations import Operation
from engine.files.raw_file import RawFile

CONTENT = b"lock"
"""What Apache writes into the file (DefaultMessageStore.start)."""

FLOCK = struct.Struct("@hhqqi4x")
"""struct flock on 64-bit Linux: type, whence, start, length, pid."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a store's lock: a process id where the system tells, else None."""

    pid: int | None


class StoreLock:
    """`<store>/lock`. Also a context manager. Released when the process ends, however it does.

    `what`: that is locked, for the error.
    """

    __slots__ = ("_disk", "_file", "_what", "path")

    def __init__(self, disk: Disk, store: str, *, what: str = "the store") -> None:
        self._disk = disk
        self._what = what
        self._file: RawFile | None = None
        self.path = str(Path(store) / "lock")

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._file is not None

    def acquire(self) -> None:
        """Take it, or raise StoreLocked at once; the file is made when absent (its directory is not).

        Errors: StoreLocked with the holder's pid where the system tells; StorageError.
        """
        if self._file is not None:
            raise StoreLocked(f"{self._what} is already locked by this process", path=self.path)
        file = self._disk.open_raw(self.path, writable=True, create=True)
        try:
            with self._disk.doing(Operation.LOCK, self.path):
                refused = not _try_lock(file)
            if refused:
                holder = _holder(self._disk, file)
                who = f"process {holder.pid}" if holder is not None and holder.pid else "another process"
                raise StoreLocked(f"{self._what} is locked by {who}", path=self.path, hint="stop it first")
            if file.read(0, len(CONTENT)) != CONTENT:
                file.write(0, CONTENT)
                file.sync(0, len(CONTENT))
        except BaseException:
            file.close()
            raise
        self._file = file

    def release(self) -> None:
        """Let it go; the file stays. Nothing when it is not held."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder_of(disk: Disk, store: str) -> Holder | None:
    """Who holds the store's lock, None when nobody does: a probe that takes no lock, makes no file, writes nothing.

    It sees a StoreLock of this very process too. What is no file holds no lock. Raises StorageError when the file is
    there but can't be opened.
    """
    path = str(Path(store) / "lock")
    entry = disk.look(path)
    if entry is None or not entry.is_file:
        return None
    file = disk.open_raw(path)
    try:
        return _holder(disk, file)
    finally:
        file.close()


def is_held_by_other(disk: Disk, store: str) -> bool:
    """Whether a StoreLock, or a Java broker, holds the store now; see `holder_of`."""
    return holder_of(disk, store) is not None


def _try_lock(file: RawFile) -> bool:
    request = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        _control(file, "F_OFD_SETLK", fcntl.F_SETLK, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _holder(disk: Disk, file: RawFile) -> Holder | None:
    """Who would refuse us the lock; a probe on an open file."""
    request = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    with disk.doing(Operation.LOCK, file.path):
        answer = _control(file, "F_OFD_GETLK", fcntl.F_GETLK, request)
    kind, _, _, _, pid = FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK or answer == bytes(FLOCK.size):
        return None
    return Holder(pid if pid > 0 else _pid_with_file(disk, file.path))


def _control(file: RawFile, name: str, otherwise: int, request: bytes) -> bytes:
    """fcntl by the OFD command `name` where there is one, else by the POSIX command."""
    if file.descriptor is None:
        # A fake file system's file has no descriptor to lock: nobody else can see it either.
        return bytes(FLOCK.size)
    command = getattr(fcntl, name, None)
    if command is not None:
        try:
            return fcntl.fcntl(file.descriptor, command, request)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
    return fcntl.fcntl(file.descriptor, otherwise, request)


def _pid_with_file(disk: Disk, path: str) -> int | None:
    """A process whose fdinfo shows an OFD write lock on this file; best effort, None where /proc tells nothing."""
    try:
        target = str(Path(path).resolve())
        for name in disk.listdir("/proc"):
            if name.isdigit() and _has_lock(disk, name, target):
                return int(name)
    except (OSError, StorageError):
        return None
    return None


def _has_lock(disk: Disk, pid: str, target: str) -> bool:
    try:
        numbers = disk.listdir(f"/proc/{pid}/fd")
    except (OSError, StorageError):
        # Gone meanwhile, or another user's.
        return False
    return any(_is_lock(Path(f"/proc/{pid}"), number, target) for number in numbers)


def _is_lock(process: Path, number: str, target: str) -> bool:
    try:
        if str((process / "fd" / number).readlink()) != target:
            return False
        return "OFDLCK" in (process / "fdinfo" / number).read_text(encoding="ascii")
    except OSError:  # one of the process's other files, closed since they were listed
        return False
