"""How a snapshot is made, and what was made: the answer of `backup create`."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.backup.manifest import Snapshot
    from engine.backup.repository import SnapshotName


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """How a snapshot is made.

    Attributes:
        store: the name that snapshots of one store share; None: host and directory.
        full: read segments again that the snapshot before has, and pieces that the repository has: damaged ones are
            written again.
        rate: bytes a second that are read at most; None: as fast as it goes.
        jobs: threads; None: what pays.
    """

    store: str | None = None
    full: bool = False
    rate: int | None = None
    jobs: int | None = None


@dataclass(slots=True)
class Created:
    """A snapshot that was made: what was read for it, what was taken from the one before.

    `read`, `reused`: bytes that were read, and bytes of segments that were not read again. `notes`: what the operator
    should know.
    """

    name: SnapshotName
    snapshot: Snapshot
    read: int
    reused: int
    seconds: float
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            **snapshot_json(self.name, self.snapshot),
            "bytesRead": self.read,
            "bytesReused": self.reused,
            "seconds": round(self.seconds, 3),
            "notes": self.notes,
        }


def snapshot_json(name: SnapshotName, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in one object, without its segments."""
    return {
        "snapshot": name.snapshot_id,
        "store": snapshot.store,
        "host": snapshot.host,
        "by": snapshot.by,
        "root": snapshot.root,
        "started": snapshot.started,
        "finished": snapshot.finished,
        "minOffset": snapshot.start,
        "maxOffset": snapshot.end,
        "records": snapshot.records,
        "messages": snapshot.messages,
        "newestStoreTimestamp": snapshot.newest_time,
        "damage": snapshot.damaged,
        "segments": len(snapshot.segments),
        "files": len(snapshot.files),
        "running": snapshot.is_live,
        "bytesAdded": snapshot.added,
    }
