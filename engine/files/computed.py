"""Files that no file system has: their bytes are computed as they are asked for. Nothing is written through them.

What reads files of a store by name, length and place reads these by the same calls, like a consume queue whose units
lie in a database.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, NoReturn

from engine.dataclass import dataclass
from engine.errors import Refused, StorageError
from engine.files.disk import Disk
from engine.files.entry import Entry, FileKind
from engine.files.raw_file import RawFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.beneath import At


@dataclass(frozen=True, slots=True)
class ComputedEntry:
    """A file: length in bytes, and what gives `length` bytes from a place on."""

    size: int
    content: Callable[[int, int], bytes]


class ComputedDisk(Disk):
    """The system's files, and below some directories such as are computed: those hide what the system has there."""

    def __init__(self) -> None:
        super().__init__(mapped=False)
        self._files: dict[str, ComputedEntry] = {}
        self._below: dict[str, set[str]] = {}

    def add(self, path: str, size: int, content: Callable[[int, int], bytes]) -> None:
        """A file. Its directory has no others but those that are added."""
        self._files[path] = ComputedEntry(size, content)
        self._below.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))

    def look(self, path: str) -> Entry | None:
        """See Disk."""
        if path in self._files:
            return Entry(os.path.basename(path), path, FileKind.FILE, self._files[path].size, 0)
        if path in self._below:
            return Entry(os.path.basename(path), path, FileKind.DIRECTORY, 0, 0)
        return None if os.path.dirname(path) in self._below else super().look(path)

    def stat(self, path: str) -> Entry:
        """See Disk."""
        entry = self.look(path)
        return super().stat(path) if entry is None else entry

    def exists(self, path: str) -> bool:
        """See Disk."""
        return self.look(path) is not None

    def is_dir(self, path: str) -> bool:
        """See Disk."""
        return path in self._below or super().is_dir(path)

    def scandir(self, path: str) -> tuple[Entry, ...]:
        """See Disk."""
        if path not in self._below:
            return super().scandir(path)
        return tuple(self.stat(os.path.join(path, name)) for name in self.listdir(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        """See Disk."""
        return tuple(sorted(self._below[path])) if path in self._below else tuple(super().listdir(path))

    def open_raw(self, path: str, *, writable: bool = False, create: bool = False, new: bool = False) -> RawFile:
        """See Disk. Raises Refused: to be written."""
        if writable or create or new:
            self._refuse(path)
        if path in self._files:
            return ComputedFile(self, path, self._files[path])
        if os.path.dirname(path) in self._below:
            raise StorageError("there is no such file", path=path)
        return super().open_raw(path)

    def _at(self, path: str) -> At:
        self._refuse(path)

    def _held(self, path: str) -> At:
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise Refused("what is computed is never changed", path=path)


class ComputedFile(RawFile):
    """A computed file, open: see RawFile. Thread-safe as far as its content is."""

    __slots__ = ("_entry",)

    def __init__(self, disk: ComputedDisk, path: str, entry: ComputedEntry) -> None:
        super().__init__(disk, path, io.RawIOBase())
        self._entry = entry

    @property
    def descriptor(self) -> int | None:
        """None: the system has no number for it."""
        return None

    def size(self) -> int:
        """See RawFile."""
        return self._entry.size

    def identity(self) -> tuple[int, int]:
        """See RawFile: that of no file."""
        return 0, 0

    def read_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        """See RawFile."""
        data = self.read(offset, len(buffer))
        with memoryview(buffer) as whole:
            whole[: len(data)] = data
        return len(data)

    def read(self, offset: int, length: int) -> memoryview:
        """See RawFile. Raises what its content raises."""
        length = max(0, min(length, self._entry.size - offset))
        return memoryview(self._entry.content(offset, length) if length else b"")

    def close(self) -> None:
        """See RawFile: nothing is held."""
