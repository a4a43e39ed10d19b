"""What a repository has: its snapshots in a list, and one in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.backup.create.made import snapshot_json
from engine.dataclass import dataclass
from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.backup.manifest import SegmentPieces, Snapshot
    from engine.backup.repository import Repository, SnapshotName


@dataclass(frozen=True, slots=True)
class ListedSnapshot:
    """A snapshot, or why it can't be read."""

    name: SnapshotName
    snapshot: Snapshot | None
    error: RStoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """One line of `rstore backup list`."""
        if self.snapshot is None:
            error = None if self.error is None else self.error.to_json()
            return {"snapshot": self.name.snapshot_id, "finished": self.name.time_ms, "error": error}
        return {**snapshot_json(self.name, self.snapshot), "error": None}


@dataclass(frozen=True, slots=True)
class SnapshotDetail:
    """A snapshot with what its segments are made of."""

    name: SnapshotName
    snapshot: Snapshot
    segments: tuple[SegmentPieces, ...]

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            **snapshot_json(self.name, self.snapshot),
            "log": [
                {
                    "minOffset": one.offset,
                    "maxOffset": one.end,
                    "records": one.records,
                    "messages": one.messages,
                    "firstStoreTimestamp": one.first_time,
                    "newestStoreTimestamp": one.newest_time,
                    "complete": one.is_complete,
                    "damage": [
                        {"physicalOffset": d.offset, "length": d.length, "reason": d.reason} for d in one.damage
                    ],
                }
                for one in self.segments
            ],
            "fileList": [{"path": one.path, "bytes": one.size} for one in self.snapshot.files],
            "skipped": list(self.snapshot.skipped),
        }


def snapshots_of(repository: Repository, store: str | None = None) -> list[ListedSnapshot]:
    """All snapshots, oldest first, or those of one store. Raises StorageError: the place can't be listed."""
    listed = [
        ListedSnapshot(name, None, one) if isinstance(one, RStoreError) else ListedSnapshot(name, one)
        for name, one in repository.each_there()
    ]
    return [one for one in listed if store is None or one.snapshot is None or one.snapshot.store == store]


def describe(repository: Repository, name: SnapshotName, snapshot: Snapshot) -> SnapshotDetail:
    """A snapshot in full. Raises NotFound, FormatError, StorageError."""
    segments = tuple(repository.get_segment(one.pieces) for one in snapshot.segments)
    return SnapshotDetail(name, snapshot, segments)
