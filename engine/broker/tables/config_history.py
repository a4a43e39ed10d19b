"""Keeps the last states of config/ while the daemon runs (`engine.repair.config.history`), in a thread of its own.

The states that were there are kept before anything is written. Then each file has at most one state a minute, as
offsets change all the time; the last one is kept when the daemon stops. What can't be written is passed over: it is a
precaution, and the next state is tried again.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.inspect.store.config_shapes import TABLES
from engine.repair.config.history import MINUTE_MS, keep, keep_all

if TYPE_CHECKING:
    from engine.files.disk import Disk


class ConfigHistory:
    """Any thread. `note` costs nothing; where the disk wants one change after another (`concurrent`), it writes."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._wake = threading.Condition()
        self._waiting: dict[str, bytes] = {}
        self._kept: dict[str, int] = {}
        self._stopped = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Keep what config/ holds, before anything is written there."""
        keep_all(self._disk, self._root, self._disk.now_ms())

    def note(self, name: str, data: bytes) -> None:
        """A file holds these bytes from now on."""
        if name not in TABLES:
            return
        with self._wake:
            self._waiting[name] = data
            if self._disk.concurrent and not self._stopped:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="config-history", daemon=True)
                    self._thread.start()
                self._wake.notify()
                return
        self._keep_due()

    def close(self) -> None:
        """Keep what waits; nothing is kept any more afterwards."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self._keep_due(all_of_them=True)

    def _run(self) -> None:
        while not self._stopped:
            self._keep_due()
            with self._wake:
                if not self._stopped:
                    self._wake.wait(self._seconds())

    def _seconds(self) -> float | None:
        """Until the next state that waits may be kept; None: nothing waits. With the lock held."""
        if not self._waiting:
            return None
        due = min(self._kept.get(name, 0) + MINUTE_MS for name in self._waiting)
        return max(0.001, (due - self._disk.now_ms()) / 1000)

    def _keep_due(self, *, all_of_them: bool = False) -> None:
        now = self._disk.now_ms()
        with self._wake:
            due = [n for n in self._waiting if all_of_them or now - self._kept.get(n, 0) >= MINUTE_MS]
            taken = {name: self._waiting.pop(name) for name in due}
            self._kept.update(dict.fromkeys(taken, now))
        for name, data in taken.items():
            with suppress(StorageError):
                keep(self._disk, self._root, name, data, now)
