"""`backup status`: how old the newest snapshot of each store is, and, where the store is on this machine, what it has
that the snapshot has not."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import apache_key, of_store
from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.files.listing import list_segments
from engine.files.written import is_zeros
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment, last_begun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.manifest import Snapshot
    from engine.backup.repository import Repository, SnapshotName
    from engine.files.disk import Disk

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupLag:
    """One store.

    Attributes:
        store: its name in the repository.
        name, snapshot: the newest snapshot.
        log_end: where its log ends now, physical; None: it is not on this machine.
        lag_ms: without `log_end`: since the snapshot was begun; else the age of the oldest message that it has not.
        snapshots: of this store in the repository.
    """

    store: str
    name: SnapshotName
    snapshot: Snapshot
    log_end: int | None
    lag_ms: int
    snapshots: int

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of the log that the snapshot has not; None: it is not known."""
        return None if self.log_end is None else max(0, self.log_end - self.snapshot.end)

    def to_json(self, most_ms: int | None) -> dict[str, Any]:
        """One line of `rstore backup status`; `most_ms`: more is late."""
        return {
            "store": self.store,
            "snapshot": self.name.snapshot_id,
            "started": self.snapshot.started,
            "finished": self.snapshot.finished,
            "snapshots": self.snapshots,
            "maxOffset": self.snapshot.end,
            "logEnd": self.log_end,
            "lagBytes": self.lag_bytes,
            "lagMs": self.lag_ms,
            "late": most_ms is not None and self.lag_ms > most_ms,
        }


def backup_lags(disk: Disk, repository: Repository, store: str | None = None) -> tuple[list[BackupLag], list[str]]:
    """Each store, or `store` alone, by name; and which snapshots can't be read.

    Raises:
        StorageError: the repository can't be listed.
    """
    newest: dict[str, tuple[SnapshotName, Snapshot]] = {}
    counts: dict[str, int] = {}
    unreadable = []
    for name, snapshot in repository.each_there():
        if isinstance(snapshot, RStoreError):
            unreadable.append(f"snapshot {name.short} can't be read: {snapshot}")
        elif store in (None, snapshot.store):
            newest[snapshot.store] = name, snapshot
            counts[snapshot.store] = counts.get(snapshot.store, 0) + 1
    now_ms = disk.now_ms()
    return [_lag(disk, *newest[one], counts[one], now_ms) for one in sorted(newest)], unreadable


def _lag(disk: Disk, name: SnapshotName, snapshot: Snapshot, count: int, now_ms: int) -> BackupLag:
    age = max(0, now_ms - snapshot.started)
    try:
        end, oldest = _since(disk, snapshot)
    except RStoreError:
        end, oldest = None, None
    if end is None:
        return BackupLag(snapshot.store, name, snapshot, None, age, count)
    lag = 0 if end <= snapshot.end else age if oldest is None else min(age, max(0, now_ms - oldest))
    return BackupLag(snapshot.store, name, snapshot, end, lag, count)


def _since(disk: Disk, snapshot: Snapshot) -> tuple[int | None, int | None]:
    """Where the store's log ends now, None: it is not here; and the storeTimestamp of the first message that the
    snapshot has not. Raises RStoreError."""
    size = snapshot.sizes.get(apache_key("mapped_file_size_commit_log"), 0)
    if snapshot.host != socket.gethostname() or not disk.is_dir(snapshot.root) or size <= 0:
        return None, None
    listing = list_segments(disk, of_store(Path(snapshot.root)).log_directories, size)
    segments = [Segment(one.offset, one.size, one.path) for one in listing.files]
    if not segments:
        return None, None
    with ClosedLog(disk, segments) as log:
        last = last_begun(log)
        if last is None:
            return snapshot.end, None
        end = _end(log, max(snapshot.end, last.offset), last.end)
        return max(end, snapshot.end), next(_times(log, snapshot.end), None) if end > snapshot.end else None


def _times(log: ClosedLog, start: int) -> Iterator[int]:
    for event in Scanner(log, kernels=False).scan(start, start + _PIECE, resume=True):
        if isinstance(event, RecordBatch):
            yield event.first_store_timestamp


def _end(log: ClosedLog, start: int, end: int) -> int:
    """The offset after the last byte that was written, of those in a row from `start` on."""
    at = last = start
    while at < end:
        data = log.read(at, min(_PIECE, end - at))
        if is_zeros(data):
            break
        last = at + len(bytes(data).rstrip(b"\0"))
        at += len(data)
    return last
