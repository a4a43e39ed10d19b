"""A disk that counts the bytes that are asked for: what a command costs on files that are mostly holes."""

from __future__ import annotations

import os
import threading
from collections import Counter

from engine.files.disk import Disk
from engine.files.operations import Doing, Operation


class CountingDisk(Disk):
    """`read`: bytes of all reads by position, by file name (without its directory)."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()
        self._lock = threading.Lock()

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        if operation is Operation.READ:
            with self._lock:
                self.read[os.path.basename(path)] += length
        return super().doing(operation, path, offset, length, source)
