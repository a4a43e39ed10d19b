"""Stores in backup repositories: which snapshots are meant, and how driver and executors read them.

Theory. A store of a job may be a snapshot: then its `StoreRef` says where the repository is, which snapshot it is, and
where its key comes from. The key itself goes nowhere: who reads (the driver, a planner, each executor) opens the
repository for itself, with the key of its own file, program or environment. So no plan, no page of Spark's and no log
can show it. A process keeps what it opened last: the next task of the same store opens nothing.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.backup.archive.before import archived_before
from engine.backup.objects.cloud import SCHEMES
from engine.backup.objects.directory import DirectoryObjects
from engine.backup.objects.place import objects_at
from engine.backup.repository import SETTINGS, SNAPSHOTS, SnapshotName, open_repository
from engine.backup.secret import KeySource
from engine.backup.snapshot_disk import SnapshotDisk
from engine.dataclass import dataclass
from engine.errors import FormatError, NotFound, Refused, RStoreError
from engine.files.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.backup.manifest import SegmentPieces, SegmentRef, Snapshot
    from engine.backup.repository import Repository
    from engine.log.source import Segment
    from engine.pipeline.filters import Range
    from engine.pipeline.stores import StoreRef

_AT_SNAPSHOT = re.compile(r"(.+)@([0-9a-f]{4,32}|latest)", re.DOTALL)
_CLOUD = re.compile(rf"(?:{'|'.join(SCHEMES)})://", re.IGNORECASE)
LATEST_SNAPSHOT = "latest"
_KEPT = 8
"""Snapshots that a process knows: what each is made of, and no piece."""


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A snapshot that a job reads. Goes to executors.

    Attributes:
        location: of its repository: a directory (the same path there), or s3://….
        name: its whole name.
        store: the store's name when it was backed up.
        key: where its repository's key comes from, on whichever machine asks.
        archived: segments of the store's archive that are read before its log.
    """

    location: str
    name: SnapshotName
    store: str
    key: KeySource = field(default_factory=KeySource)
    archived: tuple[SegmentRef, ...] = ()

    @property
    def root(self) -> str:
        """Its object: where its files seem to lie."""
        return f"{self.location}/{SNAPSHOTS}/{self.name.name}"

    @property
    def place(self) -> str:
        """As `find_stores` finds this very snapshot."""
        return f"{self.location}@{self.name.snapshot_id}"


@dataclass(frozen=True, slots=True)
class RepositoryChoice:
    """Which snapshots of repositories are meant, and what opens them.

    Attributes:
        snapshot: the beginning of an ID, or "latest"; None: the latest of each store. A place that ends with `@ID` has
            its own.
        stores: only stores of these names; none named: all.
        key: where the keys come from.
        archived: whether the segments of a store's archive are read before its snapshot's log.
    """

    snapshot: str | None = None
    stores: tuple[str, ...] = ()
    key: KeySource = field(default_factory=KeySource)
    archived: bool = False


def is_cloud(path: str) -> bool:
    """Whether a place lies in object storage."""
    return _CLOUD.match(path) is not None


def is_repository(path: str) -> bool:
    """Whether a directory is a repository."""
    return os.path.isfile(os.path.join(path, SETTINGS))


def split_place(path: str) -> tuple[str, str | None]:
    """A place's repository, and the snapshot that it names after the last @; (path, None) for every other place."""
    match = _AT_SNAPSHOT.fullmatch(path)
    if match is None or (not is_cloud(path) and (os.path.isdir(path) or not is_repository(match[1]))):
        return path, None
    return match[1], match[2]


class Repositories:
    """The repositories of one look at places: each is opened, and its snapshots are listed, once.

    Args:
        choice: which snapshots are meant.
    """

    def __init__(self, choice: RepositoryChoice) -> None:
        self._choice = choice
        self._open: dict[str, tuple[Repository, list[SnapshotName]]] = {}

    def disks(self, location: str, wanted: str | None) -> list[SnapshotDisk]:
        """The snapshots that are meant of a repository, by their stores' names.

        Raises:
            NotARepository, WrongKey, NotFound, FormatError, StorageError.
        """
        repository, names = self._opened(location)
        wanted = wanted or self._choice.snapshot
        if wanted is not None and wanted != LATEST_SNAPSHOT:
            name = _named(repository, names, wanted)
            chosen = [(name, repository.snapshot(name))]
        else:
            chosen = _latest(repository, names)
        stores = self._choice.stores
        disks = [SnapshotDisk(repository, *one) for one in chosen if not stores or one[1].store in stores]
        if self._choice.archived:
            disks = [SnapshotDisk(repository, one.name, one.snapshot, archived_before(one)) for one in disks]
        if not disks:
            of = f" of store {' or '.join(map(repr, stores))}" if stores else ""
            raise NotFound(f"no snapshot{of}", path=repository.where, hint="rstore backup list")
        return sorted(disks, key=lambda disk: disk.snapshot.store)

    def _opened(self, location: str) -> tuple[Repository, list[SnapshotName]]:
        if location not in self._open:
            repository = open_repository(objects_at(Disk(), location), self._choice.key.secret)
            self._open[location] = repository, repository.snapshots()
        return self._open[location]


def _named(repository: Repository, names: Iterable[SnapshotName], wanted: str) -> SnapshotName:
    matching = [name for name in names if name.snapshot_id.startswith(wanted.lower())]
    if len(matching) != 1:
        what = "no snapshot has" if not matching else "several snapshots have"
        raise NotFound(f"{what} an id that begins with {wanted!r}", path=repository.where, hint="rstore backup list")
    return matching[0]


def _latest(repository: Repository, names: list[SnapshotName]) -> list[tuple[SnapshotName, Snapshot]]:
    """The latest snapshot of each store. Raises FormatError, StorageError: one can't be read, and may be the latest."""
    latest: dict[str, tuple[SnapshotName, Snapshot]] = {}
    for name, snapshot in repository.each(names[::-1]):
        if isinstance(snapshot, RStoreError):
            raise snapshot
        latest.setdefault(snapshot.store, (name, snapshot))
    return list(latest.values())


def ref_of(disk: SnapshotDisk, location: str, key: KeySource) -> SnapshotRef:
    """The snapshot of a disk, as it is sent to executors."""
    where = os.path.abspath(location) if isinstance(disk.repository.objects, DirectoryObjects) else location
    return SnapshotRef(where, disk.name, disk.snapshot.store, key, disk.archived)


def disk_of(store: StoreRef, disk: Disk | None = None) -> Disk:
    """How the files of a store are reached: `disk` (default: the system's), or its snapshot's.

    Raises:
        WrongKey, NotFound, NotARepository, FormatError, StorageError: the repository, or the snapshot, can't be opened.
    """
    if store.snapshot is None:
        return disk or Disk()
    return snapshot_disk(store.snapshot)


def snapshot_disk(ref: SnapshotRef) -> SnapshotDisk:
    """The files of a snapshot; what was read of them by another disk is read again. Raises as `disk_of`."""
    repository, snapshot = opened(replace(ref, archived=()))
    return SnapshotDisk(repository, ref.name, snapshot, ref.archived)


@lru_cache(maxsize=_KEPT)
def opened(ref: SnapshotRef) -> tuple[Repository, Snapshot]:
    """A repository, open, and one of its snapshots, without an archive: neither changes. Raises as `disk_of`."""
    repository = open_repository(objects_at(Disk(), ref.location), ref.key.secret)
    return repository, repository.snapshot(ref.name)


def in_time(disk: SnapshotDisk, segments: Sequence[Segment], times: Range, slack: int) -> set[Segment]:
    """The segments in which records of that store time (ms) can be, by what the repository says of each.

    The newest time of a segment is that of all its records; a first time tells that all of it is too new only where the
    clock was not set back by more than `slack`. One with damage is left in: nobody counted what lies there.

    Raises:
        NotReached. A segment whose description is damaged is left in.
    """

    def look(segment: Segment) -> SegmentPieces | None:
        try:
            return disk.log.pieces_of(segment)
        except (NotFound, FormatError):
            return None

    with ThreadPoolExecutor(disk.repository.threads(), "rstore-segments") as pool:
        listed = list(pool.map(look, segments))
    firsts = [one.first_time for one in listed if one is not None and one.records]
    in_order = firsts == sorted(firsts)
    return {
        segment
        for segment, one in zip(segments, listed, strict=True)
        if one is None
        or one.damage
        or not one.records
        or not (one.newest_time < times.low or (in_order and one.first_time - slack > times.high))
    }


def demand_no_snapshots(stores: Iterable[StoreRef], what: str) -> None:
    """Raises Refused: one of the stores is a snapshot; `what`: who can't read it, or would change it."""
    for store in stores:
        if store.snapshot is not None:
            raise Refused(f"{what} a snapshot", path=store.root, hint="restore it first: rstore restore")
