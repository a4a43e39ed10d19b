"""Files of config/ whose last write found no space or no descriptor: for /health, while that lasts.

The broker serves clients all the same, but what is only in memory would be lost by a crash, and a topic that can't be
written is refused.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from engine.errors import Shortage, StorageError
from engine.services.shortage import lasts

if TYPE_CHECKING:
    from engine.files.disk import Disk

_SLACK = 16 * 1024
"""Bytes that a write takes beside the new file and the `.bak`: names, and blocks that are not full."""


class Unwritten:
    """See the module. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._errors: dict[str, tuple[Shortage, int]] = {}

    def failed(self, path: str, error: Shortage, size: int) -> None:
        """The file could not be replaced by one of `size` bytes."""
        with self._lock:
            self._errors[path] = (error, size)

    def written(self, path: str) -> None:
        """It was."""
        if self._errors:
            with self._lock:
                self._errors.pop(path, None)

    def errors(self) -> tuple[Shortage, ...]:
        """Of each file that could not be written now, either. What has space again is forgotten: it is written soon, or
        with its next change.
        """
        if not self._errors:
            return ()
        with self._lock:
            known = dict(self._errors)
        over = [path for path, (error, size) in known.items() if not self._still(path, error, size)]
        with self._lock:
            for path in over:
                if self._errors.get(path) is known[path]:
                    del self._errors[path]
        return tuple(error for path, (error, _) in known.items() if path not in over)

    def _still(self, path: str, error: Shortage, size: int) -> bool:
        try:
            return lasts(error, self._disk, os.path.dirname(path), 2 * size + _SLACK)
        except StorageError:
            return True
