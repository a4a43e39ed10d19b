"""The broker's tables as files in config/, written and found again as Apache does.

A `KeptTable` changes all the time and is written now and then; a `VersionedTable` is written at each change, with a
version that tells other brokers and name servers that it is another.

Sources: ConfigManager, MixAll#string2File, DataVersion.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import CannotMend, FormatError
from engine.format import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

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


class KeptTable(ABC):
    """For the loop's thread alone, but `write`. Who changes it sets `_changed`."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._changed = False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What the file says."""

    def changes(self) -> dict[str, Any] | None:
        """What is to be written, None when nothing has changed since it was asked for last."""
        changed, self._changed = self._changed, False
        return self.to_json() if changed else None

    def write(self, table: dict[str, Any]) -> None:
        """Write what `changes` gave, durably; in any thread. Raises DiskFull, StorageError."""
        try:
            self._file.save(table)
        except BaseException:
            self._changed = True  # the next time, then
            raise


@dataclass(slots=True)
class DataVersion:
    """Which state of a table: `timestamp` in ms, `counter`."""

    timestamp: int
    counter: int = 0

    def next(self, now_ms: int) -> None:
        """Another state."""
        self.timestamp, self.counter = now_ms, self.counter + 1

    def to_json(self) -> dict[str, int]:
        """As everywhere."""
        return {"counter": self.counter, "timestamp": self.timestamp}


class VersionedTable(ABC):
    """For the loop's thread alone. Who changes it calls `_save`; `changed` is called then."""

    def __init__(self, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self.version = DataVersion(now_ms())
        self.changed: Callable[[], None] = lambda: None

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What the file says."""

    def _read(self, name: str) -> dict[str, Any]:
        """The table of that name in the file, whose version is ours then. Raises CannotMend, StorageError."""
        found = self._file.load()
        version = found.get("dataVersion")
        if isinstance(version, dict):
            self.version = DataVersion(int(version.get("timestamp", 0)), int(version.get("counter", 0)))
        table: dict[str, Any] = found.get(name, {})
        return table

    def _save(self) -> None:
        """Another state, durable when this returns. Raises DiskFull, StorageError."""
        self.version.next(self._now_ms())
        self._file.save(self.to_json())
        self.changed()
