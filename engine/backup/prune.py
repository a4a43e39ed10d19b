"""`backup forget` and `backup prune`: snapshots go, then what neither a snapshot nor an archived segment names.

Prune works alone (leases.py): what it lists as unused stays unused. It refuses while a snapshot or a segment can't be
read, as what they name would be taken for unused. Killed, it has removed some of what nobody needs.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.backup.check import ARCHIVE, named_by
from engine.backup.leases import Lease
from engine.backup.objects.directory import ASIDE
from engine.backup.repository import PIECES, SEGMENTS, SNAPSHOTS, place
from engine.backup.retention import Keep, kept
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, Refused, RStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.manifest import Snapshot
    from engine.backup.objects.objects import StoredObject
    from engine.backup.repository import Repository, SnapshotName

_AT_ONCE = 1000


@dataclass(slots=True)
class ForgetPlan:
    """Snapshots that go, and those that stay."""

    forgotten: list[tuple[SnapshotName, Snapshot]] = field(default_factory=list)
    stay: list[tuple[SnapshotName, Snapshot]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "forgotten": [name.snapshot_id for name, _ in self.forgotten],
            "kept": [name.snapshot_id for name, _ in self.stay],
            "changed": bool(self.forgotten),
        }


@dataclass(slots=True)
class UnusedObjects:
    """Objects that go; what stays is `used`, in bytes."""

    names: list[str] = field(default_factory=list)
    size: int = 0
    used: int = 0

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "objects": len(self.names), "bytes": self.size, "bytesKept": self.used, "changed": bool(self.names)
        }  # fmt: skip


def plan_forget(repository: Repository, ids: Sequence[str], keep: Keep, store: str | None) -> ForgetPlan:
    """Which snapshots go: those with these ids, or all that `keep` does not keep, of each store or of `store` alone.

    Raises:
        InvalidArgument: both, or neither. NotFound: no such snapshot. FormatError: one can't be read.
    """
    if bool(ids) == bool(keep):
        raise InvalidArgument("name snapshots, or what is kept", hint="backup forget ID, or --keep-daily 7")
    named = {repository.find(one)[0].snapshot_id for one in ids}
    by_store: dict[str, list[tuple[SnapshotName, Snapshot]]] = {}
    for name, snapshot in repository.each_there():
        if isinstance(snapshot, RStoreError):
            raise snapshot
        by_store.setdefault(snapshot.store, []).append((name, snapshot))
    plan = ForgetPlan()
    for its_store, some in by_store.items():
        stays = None if ids or store not in (None, its_store) else kept([name for name, _ in some], keep)
        for name, snapshot in some:
            goes = name.snapshot_id in named if ids else stays is not None and name.snapshot_id not in stays
            (plan.forgotten if goes else plan.stay).append((name, snapshot))
    return plan


def forget(repository: Repository, plan: ForgetPlan) -> None:
    """Remove the snapshots; their pieces stay until `prune`. Raises StorageError."""
    repository.objects.delete(f"{SNAPSHOTS}/{name.name}" for name, _ in plan.forgotten)


def prune(repository: Repository, agrees: Callable[[UnusedObjects], bool]) -> UnusedObjects:
    """Remove what no snapshot names, where `agrees` says so of the plan; nobody else works in the repository then.

    Raises:
        StoreLocked: somebody does. Refused: a snapshot can't be read. StorageError.
    """
    with Lease(repository.objects, "backup prune", removes=True) as lease:
        plan = plan_prune(repository)
        if plan.names and agrees(plan):
            for first in range(0, len(plan.names), _AT_ONCE):
                lease.demand()
                repository.objects.delete(plan.names[first : first + _AT_ONCE])
        return plan


def plan_prune(repository: Repository) -> UnusedObjects:
    """What `prune` would remove. Raises Refused: a snapshot can't be read; StorageError."""
    every = list(_all(repository))  # before the snapshots: what is written after this list is not removed
    named = named_by(repository)
    for bad in named.bad:
        raise Refused(
            f"{bad.name} can't be read ({bad.why}): what it names would be removed",
            path=os.path.join(repository.where, bad.name),
            hint="look at it with rstore backup check" + _to_forget(bad.snapshots),
        )
    used = {place(SEGMENTS, one) for one in named.segments} | {place(PIECES, one) for one in named.pieces}
    plan = UnusedObjects()
    for one in every:
        if one.name in used:
            plan.used += one.size
        else:
            plan.names.append(one.name)
            plan.size += one.size
    return plan


def _to_forget(needed_by: tuple[str, ...]) -> str:
    snapshots = " ".join(one for one in needed_by if one != ARCHIVE)
    return f"; forget the snapshots that need it: {snapshots}" if snapshots else ""


def _all(repository: Repository) -> Iterator[StoredObject]:
    for below in (SEGMENTS, PIECES, ASIDE):
        yield from repository.objects.list(below)
