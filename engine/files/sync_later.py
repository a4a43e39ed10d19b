"""Files and directories that are made durable together: a rebuilt store has tens of thousands of queue files.

A sync of each waits for the device each time. From a number on, the file system is asked once to write all that it
holds (syncfs(2)), which waits once. Errors are reported by it since Linux 5.8; before that, each is synced for itself.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from engine.files.operations import Operation

if TYPE_CHECKING:
    from engine.files.disk import Disk

MANY = 64
"""Files and directories from which on the file system is asked as a whole."""


class SyncLater:
    """What is to be made durable by `flush`. Not thread-safe."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, int] = {}
        self._directories: dict[str, None] = {}

    def file(self, path: str, size: int) -> None:
        """The first `size` bytes of a file."""
        self._files[path] = max(size, self._files.get(path, 0))

    def directory(self, path: str) -> None:
        """The names in a directory."""
        self._directories[path] = None

    def forget(self, path: str) -> None:
        """A file that is gone."""
        self._files.pop(path, None)

    def flush(self) -> None:
        """Make it all durable.

        Raises:
            StorageError, DiskFull.
        """
        if len(self._files) + len(self._directories) < MANY or not self._flush_at_once():
            for path, size in self._files.items():
                file = self._disk.open_raw(path, writable=True)
                try:
                    file.sync(0, size)
                finally:
                    file.close()
            for path in self._directories:
                self._disk.sync_dir(path)
        self._files.clear()
        self._directories.clear()

    def _flush_at_once(self) -> bool:
        """By file system; False where that can't be asked."""
        places: dict[int, str] = {}  # a file of each file system
        devices: dict[str, int] = {}
        for path in self._files:
            directory = os.path.dirname(path)
            if directory not in devices:
                devices[directory] = self._disk.device(directory)
            places.setdefault(devices[directory], path)
        elsewhere = {self._disk.device(path) for path in self._directories} - places.keys()
        if elsewhere or not all(map(self._disk.can_sync_file_system, places.values())):
            return False
        with contextlib.ExitStack() as stack:  # one call, which may fail for any of them
            for path, size in self._files.items():
                stack.enter_context(self._disk.doing(Operation.SYNC, path, 0, size))
            for path in self._directories:
                stack.enter_context(self._disk.doing(Operation.SYNC_DIRECTORY, path))
            for path in places.values():
                self._disk.sync_file_system(path)
        return True
