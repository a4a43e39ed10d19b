"""The lag of a follower, where monitors read it: a file for node_exporter's textfile collector, and the store's daemon.

Nothing is written into a store: its daemon (`rstore serve`) is told over its socket, and exports what it was told.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from engine.daemon import DaemonConnection
from engine.errors import RStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backup.create.follow import FollowState
    from engine.files.disk import Disk

_TOLD_S = 2.0


class LagReports:
    """See the module.

    Args:
        disk: for the file.
        metrics_file: its path; None: there is none.
        root: the store's directory, whose daemon is told; None: the store is on another machine.

    Attributes:
        error: why a report could not be made; None: all were.
    """

    def __init__(self, disk: Disk, metrics_file: str | None, root: Path | None) -> None:
        self._disk = disk
        self._file = metrics_file
        self._daemon = None if root is None else DaemonConnection(root)
        self._told = 0.0
        self.error: RStoreError | None = None

    def tell(self, state: FollowState) -> None:
        """Report a round. Never raises."""
        self.error = None
        try:
            if self._file is not None:
                self._disk.write_file_atomically(self._file, metrics_text(state, time.time()))
            if self._daemon is not None and (time.monotonic() - self._told >= _TOLD_S or state.failures):
                self._told = time.monotonic()
                lag_ms = round(state.lag_s(time.time()) * 1000)
                self._daemon.ask("POST", "/backup", {"maxOffset": state.end, "lagMs": lag_ms}, wait_s=_TOLD_S)
        except RStoreError as error:
            self.error = error

    def close(self, state: FollowState) -> None:
        """The last report: the lag grows from now on."""
        self._told = 0.0
        with contextlib.suppress(RStoreError):
            self.tell(state)


def metrics_text(state: FollowState, now_s: float) -> bytes:
    """What Prometheus reads of a follower."""
    store = state.store.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    rows = (
        ("lag_seconds", "Seconds since all of the store was in the backup repository.", state.lag_s(now_s)),
        ("covered_timestamp_seconds", "When all of the store was in the backup repository last.", state.covered_s),
        ("max_offset", "Physical offset up to which the newest snapshot has the log.", state.end),
        ("failures", "Rounds in a row that failed.", state.failures),
    )
    text = "".join(
        f"# HELP rstore_backup_{name} {means}\n# TYPE rstore_backup_{name} gauge\n"
        f'rstore_backup_{name}{{store="{store}"}} {value:.3f}\n'
        for name, means, value in rows
    )
    return text.encode("utf-8", "surrogateescape")
