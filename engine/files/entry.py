"""What a name in a directory stands for: its kind, its length, its time.

Theory: a store is regular files and directories. Anything else under a name of the store (a FIFO, a socket, a device)
holds no data; a link whose target does not exist stands for data that is somewhere else, on a disk that is not mounted
more often than not. Links to what is there count as what they lead to.
"""

from __future__ import annotations

import errno
import os
import stat
from enum import Enum

from engine.dataclass import dataclass

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF})
"""What the system says of a path that leads nowhere."""


class FileKind(Enum):
    """What a name stands for (links followed); the value is what messages call it."""

    FILE = "a file"
    DIRECTORY = "a directory"
    FIFO = "a FIFO"
    SOCKET = "a socket"
    DEVICE = "a device"
    ABSENT = "a link whose target does not exist"


_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFIFO: FileKind.FIFO,
    stat.S_IFSOCK: FileKind.SOCKET,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory (links followed).

    Attributes:
        name: without its directory.
        path: with it.
        kind: what it stands for.
        size: bytes.
        mtime_ns: last modification, nanoseconds since 1970; of a link whose target does not exist that of the link.
        target: where a link leads whose target does not exist, as the link says it; else "".
    """

    name: str
    path: str
    kind: FileKind
    size: int
    mtime_ns: int
    target: str = ""

    @property
    def is_file(self) -> bool:
        """A regular file (or a link to one)."""
        return self.kind is FileKind.FILE

    @property
    def is_directory(self) -> bool:
        """A directory (or a link to one)."""
        return self.kind is FileKind.DIRECTORY

    @property
    def what(self) -> str:
        """The kind in words; of a link whose target does not exist, with that target."""
        return f"a link to {self.target}, which does not exist" if self.kind is FileKind.ABSENT else self.kind.value


def kind_of(mode: int) -> FileKind:
    """The kind that st_mode tells."""
    return _KINDS.get(stat.S_IFMT(mode), FileKind.DEVICE)


def entry_of(name: str, path: str) -> Entry:
    """The entry of a name. Raises OSError when nothing is there, or the target of its link is not."""
    status = os.stat(path)
    return Entry(name, path, kind_of(status.st_mode), status.st_size, status.st_mtime_ns)


def look(name: str, path: str) -> Entry | None:
    """The entry of a name, a link whose target does not exist included; None when there is no such name."""
    while True:
        try:
            return entry_of(name, path)
        except OSError as error:
            if error.errno not in GONE:
                raise
        try:
            target, written = os.readlink(path), os.lstat(path).st_mtime_ns
        except OSError as error:
            if error.errno in GONE:
                return None
            if error.errno != errno.EINVAL:
                raise
            continue  # no link: a broker made the file after the first look, which says now what it is
        return Entry(name, path, FileKind.ABSENT, 0, written, target)


def exists(path: str) -> bool:
    """Whether a path leads somewhere; as `Path.exists`, which takes three times as long."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in GONE:
            return False
        raise
    except ValueError:
        return False
    return True
