"""What the engine does to the system's files, by name, and the one place where an OSError becomes ours.

Theory: each system call of this layer runs inside `with disk.doing(operation, path, offset, length)`. The
plain `Doing` only translates an OSError into the typed error that says what was being done, to which file,
where. A `Disk` for tests overrides `doing()` and so sees, refuses or records every operation without a second
copy of any logic.

Invariant: no OSError leaves engine/files.
"""

from __future__ import annotations

from enum import Enum, auto
from types import TracebackType

from engine.errors import from_os_error


class Operation(Enum):
    """A kind of call; the value is the phrase that errors use."""

    OPEN = "opening"
    CREATE = "creating"
    CLOSE = "closing"
    READ = "reading"
    WRITE = "writing"
    ALLOCATE = "allocating"
    ZERO = "zeroing"
    MAP = "mapping"
    SYNC = "syncing"
    SYNC_DIRECTORY = "syncing the directory"
    REPLACE = "renaming"
    UNLINK = "deleting"
    MAKE_DIRECTORY = "creating the directory"
    LINK = "linking"
    LIST = "listing"
    STAT = "reading attributes"
    LOCK = "locking"


class Touch(Enum):
    """What a change does to a path: makes, renames or removes its name; gives it new content at one stroke, under the
    name; or writes into the file that has the name.
    """

    NAME = auto()
    CONTENT = auto()
    BYTES = auto()


class Doing:
    """One operation under way: a context manager that turns an OSError into a StorageError or DiskFull.

    Attributes:
        operation: what is done.
        path: the file or directory it is done to (for REPLACE: the target).
        offset: bytes from the start of the file, None where there is no place.
        length: bytes that it covers, 0 where unknown.
        source: for REPLACE the old name, else None.
    """

    __slots__ = ("length", "offset", "operation", "path", "source")

    def __init__(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> None:
        self.operation = operation
        self.path = path
        self.offset = offset
        self.length = length
        self.source = source

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise from_os_error(error, self.operation.value, self.path, self.offset) from error
