"""The operations log: who changed what through the console, a line of JSON each, written before and after.

A line `begins` is on the disk before the first byte is changed; one that lacks its `ended` was interrupted.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import orjson

from engine.errors import from_os_error

SHOWN = 500
_TAIL = 1 << 20


class OperationsLog:
    """See the module. Thread-safe.

    Args:
        path: of the file; None: only what this console did is kept, in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._lines: list[dict[str, Any]] = []

    def begin(self, who: str, what: str, plan: dict[str, Any]) -> str:
        """A change is about to be made; its number. Raises StorageError: it can't be noted, and must not be made."""
        number = secrets.token_hex(8)
        self._add({"id": number, "state": "begins", "who": who, "what": what, "plan": plan})
        return number

    def end(self, number: str, *, done: bool, outcome: str) -> None:
        """It has ended. Raises StorageError."""
        self._add({"id": number, "state": "done" if done else "failed", "outcome": outcome})

    def entries(self) -> list[dict[str, Any]]:
        """Changes, newest first: each with its end, if it has one. Raises StorageError."""
        with self._lock:
            lines = list(self._lines) if self._path is None else self._read(self._path)
        by_id: dict[str, dict[str, Any]] = {}
        for line in lines:
            known = by_id.setdefault(str(line.get("id")), {})
            if line.get("state") == "begins":
                known.update(line)
            else:
                known.update({"state": line.get("state"), "outcome": line.get("outcome"), "ended": line.get("time")})
        return list(reversed([one for one in by_id.values() if "what" in one]))[:SHOWN]

    def _read(self, path: Path) -> list[dict[str, Any]]:
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                data = file.read(_TAIL)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise from_os_error(error, "reading the operations log", str(path)) from None
        rows = []
        for line in data.splitlines():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:  # the first of a tail, or torn by a crash
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows

    def _add(self, line: dict[str, Any]) -> None:
        line = {"time": time.time_ns() // 1_000_000, **line}
        with self._lock:
            if self._path is None:
                self._lines = [*self._lines[-2 * SHOWN :], line]
                return
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.write(descriptor, orjson.dumps(line) + b"\n")
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise from_os_error(error, "writing the operations log", str(self._path)) from None
