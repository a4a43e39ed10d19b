"""The broker's tables as files in config/, written and found again as Apache does.

Sources: ConfigManager, MixAll#string2File.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from engine.errors import CannotMend, FormatError
from engine.format import fastjson

if TYPE_CHECKING:
    from engine.files.disk import Disk


class ConfigFile:
    """One table's file, and the one before it (`.bak`)."""

    def __init__(self, disk: Disk, root: str, name: str) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._directory = os.path.join(root, "config")
        self.path = os.path.join(self._directory, name)

    def load(self) -> dict[str, Any]:
        """What the file says, or where it is missing or broken, its `.bak`; {} when neither is there.

        Raises:
            CannotMend: something is there, and can't be read. StorageError.
        """
        wrong: list[str] = []
        for path in (self.path, self.path + ".bak"):
            if not self._disk.exists(path):
                continue
            try:
                text = self._disk.read_file(path).decode("utf-8", "replace").strip()
                found = fastjson.loads(text) if text else None
            except FormatError as error:
                wrong.append(f"{os.path.basename(path)}: {error.message}")
                continue
            if isinstance(found, dict):
                return found
            wrong.append(f"{os.path.basename(path)}: no JSON object")
        if wrong:
            raise CannotMend("; ".join(wrong), path=self.path, hint="mend it, or move it away to begin with none")
        return {}

    def save(self, value: dict[str, Any]) -> None:
        """Replace the file, durably; what it held is in `.bak` then. In any thread. Raises DiskFull, StorageError."""
        text = fastjson.dumps(value).encode()
        with self._lock:
            self._disk.mkdirs(self._directory)
            if self._disk.exists(self.path):
                self._disk.write_file_atomically(self.path + ".bak", self._disk.read_file(self.path))
            self._disk.write_file_atomically(self.path, text)
