"""In which directory a new segment goes.

One directory, or several (storePathCommitLog with commas): then directory number (offset / file size) mod n
of the sorted directories that take new files. Read-only ones (readOnlyCommitLogStorePaths) are only read;
full ones are passed over as long as there is another. Source: Apache
MultiPathMappedFileQueue.tryCreateMappedFile. Sorting is by UTF-16 code unit there and by code point here: the
same for every path without characters beyond U+FFFF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.errors import InvalidArgument

SPLITTER = ","
"""Apache MessageStoreConfig.MULTI_PATH_SPLITTER."""


class PathPolicy(Protocol):
    """Where segments are, and where the next one goes."""

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories that may hold segments, sorted."""
        ...

    def place(self, offset: int, file_size: int) -> str:
        """The directory of a new segment that starts at `offset` (both in bytes). Raises InvalidArgument: none."""
        ...


class SinglePath:
    """One directory."""

    __slots__ = ("directories",)

    def __init__(self, directory: str) -> None:
        self.directories: tuple[str, ...] = (directory,)

    def place(self, offset: int, file_size: int) -> str:
        """That directory."""
        del offset, file_size
        return self.directories[0]


class MultiPath:
    """Several directories.

    Args:
        paths: that take new segments.
        read_only: that are only read; may name some of `paths`.
        full: says which directories are (nearly) full now; asked at each placement.
    """

    __slots__ = ("_full", "_writable", "directories")

    def __init__(
        self,
        paths: Iterable[str],
        read_only: Iterable[str] = (),
        full: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        wanted, closed = set(paths), set(read_only)
        self._writable = tuple(sorted(wanted - closed))
        self._full = full
        self.directories: tuple[str, ...] = tuple(sorted(wanted | closed))

    def place(self, offset: int, file_size: int) -> str:
        """Round-robin over the directories that are not full; over all when all are."""
        if not self._writable:
            raise InvalidArgument("every commitlog directory is read-only", path=SPLITTER.join(self.directories))
        full = set(self._full())
        open_ones = [path for path in self._writable if path not in full] or self._writable
        return open_ones[offset // file_size % len(open_ones)]


def split_paths(setting: str | None) -> tuple[str, ...]:
    """The directories in a comma-separated setting; blanks around each are dropped, empty ones left out."""
    return tuple(path for part in (setting or "").split(SPLITTER) if (path := part.strip()))
