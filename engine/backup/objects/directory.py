"""Objects as files of a directory. Each is written aside and synced before it takes its name."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from typing import TYPE_CHECKING

from engine.backup.objects.objects import LARGEST, StoredObject
from engine.errors import NotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.files.disk import Disk
    from engine.files.raw_file import Bytes

ASIDE = "aside"
"""The directory of files that have no name yet: what a killed writer leaves in it is nobody's."""
_PRIVATE = 0o700
"""A backup holds all messages: its directory is its owner's."""


class DirectoryObjects:
    """See `Objects`.

    Args:
        disk: the system's files.
        root: the directory; made with the first object.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._numbers = itertools.count()
        self._made: set[str] = set()
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        """See Objects."""
        return self._root

    def get(self, name: str) -> bytes:
        """See Objects."""
        path = self._path(name)
        entry = self._disk.look(path)
        if entry is None:
            raise NotFound("no such object in the repository", path=path)
        if entry.size > LARGEST:
            raise StorageError(f"the object has {entry.size} bytes, more than {LARGEST}", path=path)
        try:
            return self._disk.read_file(path)
        except StorageError:
            if self._disk.look(path) is None:  # it was removed just now
                raise NotFound("no such object in the repository", path=path) from None
            raise

    def put(self, name: str, data: Bytes) -> None:
        """See Objects."""
        path = self._path(name)
        directory = os.path.dirname(path)
        self._make(directory)
        aside = os.path.join(self._root, ASIDE)
        self._make(aside)
        temporary = os.path.join(aside, f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}")
        self._disk.unlink(temporary, missing_ok=True)
        try:
            file = self._disk.open_raw(temporary, new=True)
            try:
                file.write(0, data)
                file.sync(0, len(data))
            finally:
                file.close()
            self._disk.step("object:written")
            self._disk.replace(temporary, path)
        except Exception:
            with contextlib.suppress(StorageError):
                self._disk.unlink(temporary, missing_ok=True)
            raise
        self._disk.sync_dir(directory)

    def put_new(self, name: str, data: Bytes) -> bool:
        """See Objects. Names are chosen so that two writers never want the same one at once."""
        if self._disk.exists(self._path(name)):
            return False
        self.put(name, data)
        return True

    def size(self, name: str) -> int | None:
        """See Objects."""
        entry = self._disk.look(self._path(name))
        return entry.size if entry is not None and entry.is_file else None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See Objects."""
        directory = os.path.join(self._root, prefix)
        if not self._disk.is_dir(directory):
            return
        for entry in self._disk.scandir(directory):
            name = f"{prefix}/{entry.name}"
            if entry.is_directory:
                yield from self.list(name)
            elif entry.is_file:
                yield StoredObject(name, entry.size, entry.mtime_ns / 1e9)

    def delete(self, names: Iterable[str]) -> None:
        """See Objects."""
        directories = set()
        for name in names:
            path = self._path(name)
            self._disk.unlink(path, missing_ok=True)
            directories.add(os.path.dirname(path))
        for directory in sorted(directories):
            if self._disk.is_dir(directory):
                self._disk.sync_dir(directory)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _make(self, directory: str) -> None:
        with self._lock:
            if directory not in self._made:
                self._disk.mkdirs(directory, mode=_PRIVATE)
                self._made.add(directory)
