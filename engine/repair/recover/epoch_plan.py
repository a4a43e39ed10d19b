"""What becomes of the epochs of a RocketMQ 5 broker under a controller, and of its checkpoint's two physical offsets.

An epoch that begins after the log end never was: a broker that keeps it would tell others that its log reaches so far,
and find a common point there that is none. Where the log was cut, the epoch that begins just at its end goes as well,
as all of its messages are gone. Source: EpochFileCache#truncateSuffixByOffset, #findConsistentPoint; StoreCheckpoint.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import checkpoint, epoch_file, names
from engine.format.checkpoint import ReplicaOffsets
from engine.format.quantities import counted
from engine.inspect.store.epochs import epoch_files

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.format.epoch_file import EpochEntry
    from engine.repair.recover.plan import RecoverPlan


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The epoch file and its copy, which get one content: a broker reads the copy where the file is broken.

    Attributes:
        why: what is wrong with them.
        entries: those that stay; without any both files go.
        removed: those that go.
        paths: of those that are there.
    """

    why: str
    entries: tuple[EpochEntry, ...]
    removed: tuple[EpochEntry, ...]
    paths: tuple[str, ...]

    @property
    def content(self) -> bytes | None:
        """What both get; None: they go."""
        return epoch_file.encode(self.entries) if self.entries else None

    def to_json(self) -> dict[str, Any]:
        """Its keys in the JSON of a plan."""
        return {
            "why": self.why,
            "removed": [{"epoch": one.epoch, "startOffset": one.start_offset} for one in self.removed],
            "epochs": len(self.entries),
        }


def plan_epochs(disk: Disk, plan: RecoverPlan) -> EpochPlan | None:
    """The epochs after a recovery; None: there are none, none changes, or no file of them can be read.

    Raises StorageError.
    """
    held = epoch_files(disk, plan.files)
    if any(os.path.dirname(one.path) != plan.files.root for one in held):  # storePathEpochFile: not in the store
        return None
    used = next((one for one in held if one.entries), None)
    if used is None:
        return None
    end = plan.log.end.end
    cut = plan.to is not None or plan.log.bytes_cut > 0
    last = end - 1 if cut else end
    gone = {entry for one in held for entry in one.entries if entry.start_offset > last}
    broken = [one for one in held if one.problem is not None]
    why = f"{counted(len(gone), 'epoch')} after the log end" if gone else ""
    if broken and not why:
        why = f"{os.path.basename(broken[0].path)} can't be read"
    if not why:
        return None
    kept = tuple(entry for entry in used.entries if entry.start_offset <= last)
    removed = tuple(sorted(gone, key=lambda entry: entry.epoch))
    return EpochPlan(why, kept, removed, tuple(one.path for one in held))


def plan_replica_offsets(disk: Disk, plan: RecoverPlan) -> ReplicaOffsets | None:
    """The checkpoint's offsets of RocketMQ 5 where one is after the log end; else None. Raises StorageError."""
    path = os.path.join(plan.files.root, names.CHECKPOINT)
    entry = disk.look(path)
    if not plan.files.newer or entry is None or not entry.is_file:
        return None
    held = checkpoint.decode_replica_offsets(disk.read_file(path, checkpoint.REPLICA_SIZE))
    end = plan.log.end.end
    if held is None or max(held.master_flushed_offset, held.confirm_phy_offset) <= end:
        return None
    return ReplicaOffsets(min(held.master_flushed_offset, end), min(held.confirm_phy_offset, end))
