"""The `abort` mark: an empty file that exists while a broker runs, and so tells the next start that the last
one crashed.

Its name is made durable before anything else is written, and removed as the last act of a clean shutdown.
Source: Apache DefaultMessageStore.createTempFile, isTempFileExist, shutdown.
"""

from __future__ import annotations

from pathlib import Path

from engine.files.disk import Disk


class AbortFile:
    """`<store>/abort`. Errors: StorageError, DiskFull."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, store: str) -> None:
        self._disk = disk
        self.path = str(Path(store) / "abort")

    def exists(self) -> bool:
        """Whether the last run did not end cleanly (or one is under way)."""
        return self._disk.exists(self.path)

    def create(self) -> None:
        """Put the mark there, durably; nothing to do when it is."""
        if not self.exists():
            self._disk.open_raw(self.path, new=True).close()
            self._disk.sync_dir(str(Path(self.path).parent))
            self._disk.step("abort:created")

    def remove(self) -> None:
        """Take the mark away, durably; nothing to do when it is gone."""
        if self.exists():
            self._disk.step("abort:removing")
            self._disk.unlink(self.path)
            self._disk.sync_dir(str(Path(self.path).parent))
