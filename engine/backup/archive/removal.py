"""`backup forget --archived-before`: the oldest segments of archives are forgotten, and `prune` frees what they named.

Only a run from the beginning of an archive goes, oldest first, one object after the other: an archive that was cut
anywhere in between begins later, and has no hole. Of several objects at one offset the one that counts goes last.
Nobody else works in the repository meanwhile (leases.py): a store is not deleting, on the ground of what goes here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any

from engine.backup.archive.archived import archived_names, get_archived, newest_of
from engine.backup.leases import Lease
from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument, NotFound
from engine.format.nearest import did_you_mean, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.archive.archived import ArchivedName, ArchivedSegment
    from engine.backup.repository import Repository

_THREADS = 16


@dataclass(frozen=True, slots=True)
class ArchiveRemoval:
    """What goes of one archive.

    Attributes:
        archive: its id; `store`: the name of the store's snapshots, "" where no segment that was read tells it.
        names: the objects that go, in that order.
        segments: how many segments these are, of `size` bytes in the store; `end`: physical offset after the last.
        newest_time: the latest store time in them, ms; None: no segment that can be read goes.
        stay: how many segments stay; `begins`: the physical offset of the first of them, None: none does.
    """

    archive: str
    store: str
    names: tuple[ArchivedName, ...]
    segments: int
    size: int
    end: int
    newest_time: int | None
    stay: int
    begins: int | None

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "archive": self.archive,
            "store": self.store,
            "segments": self.segments,
            "bytes": self.size,
            "newestStoreTimestamp": self.newest_time,
            "segmentsKept": self.stay,
            "minOffset": self.begins,
        }


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What goes of each archive that is meant."""

    archives: tuple[ArchiveRemoval, ...]

    @property
    def changed(self) -> bool:
        """Whether anything goes."""
        return any(one.names for one in self.archives)

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {"archives": [one.to_json() for one in self.archives], "changed": self.changed}


def forget_archived(
    repository: Repository, before_ms: int, store: str | None, agrees: Callable[[RemovalPlan], bool]
) -> RemovalPlan:
    """Forget segments whose messages were all stored before a time, of the archives of `store` or of all, where
    `agrees` says so of the plan. What they named stays until `prune`.

    Raises:
        StoreLocked: somebody works in the repository. As `plan_removal`.
    """
    with Lease(repository.objects, "backup forget --archived-before", removes=True) as lease:
        plan = plan_removal(repository, before_ms, store)
        if plan.changed and agrees(plan):
            for one in plan.archives:
                for name in one.names:
                    lease.demand()
                    repository.objects.delete([name.name])
        return plan


def plan_removal(repository: Repository, before_ms: int, store: str | None) -> RemovalPlan:
    """What would go. Raises InvalidArgument: no archive is that of `store`; NotReached, StorageError."""
    removals = [
        _of_archive(repository, archive, list(names), before_ms)
        for archive, names in groupby(archived_names(repository), key=lambda one: one.archive)
    ]
    meant = tuple(one for one in removals if store in (None, one.store))
    if store is not None and not meant:
        hint = did_you_mean(store, {one.store for one in removals}) or None
        raise InvalidArgument(f"no archive of a store {visible(store)}", path=repository.where, hint=hint)
    return RemovalPlan(meant)


def _of_archive(repository: Repository, archive: str, names: Sequence[ArchivedName], before_ms: int) -> ArchiveRemoval:
    """A segment that can't be read goes where a later one does: its messages are older."""
    at_offset = {offset: list(some) for offset, some in groupby(names, key=lambda one: one.offset)}
    offsets = list(at_offset)
    waiting: list[ArchivedName] = []
    others: list[ArchivedName] = []
    counting: list[ArchivedName] = []
    gone, size, end, store = 0, 0, 0, ""
    newest: int | None = None
    with ThreadPoolExecutor(_THREADS, "rstore-archive") as pool:
        for number, (segment, name) in enumerate(_each(pool, repository, at_offset)):
            some = at_offset[offsets[number]]
            if segment is None:
                waiting += some
                continue
            store = store or segment.store
            if segment.newest_time >= before_ms:
                break
            others += [*waiting, *(one for one in some if one != name)]
            counting.append(name)
            waiting = []
            gone, size, end = number + 1, size + segment.size, segment.end
            newest = max(newest or 0, segment.newest_time)
    stay = len(offsets) - gone
    begins = offsets[gone] if stay else None
    return ArchiveRemoval(archive, store, (*others, *counting), gone, size, end, newest, stay, begins)


def _each(
    pool: ThreadPoolExecutor, repository: Repository, at_offset: dict[int, list[ArchivedName]]
) -> Iterator[tuple[ArchivedSegment | None, ArchivedName]]:
    """Of each offset the segment that counts, and its name; None: none of its objects can be read."""

    def read(some: list[ArchivedName]) -> tuple[ArchivedSegment | None, ArchivedName]:
        readable: list[tuple[ArchivedSegment, ArchivedName]] = []
        for name in some:
            try:
                readable.append((get_archived(repository, name), name))
            except (FormatError, NotFound):
                continue
        if not readable:
            return None, some[0]
        counts = newest_of(segment for segment, _ in readable)[some[0].offset]
        return next((segment, name) for segment, name in readable if segment is counts)

    every = list(at_offset.values())
    for first in range(0, len(every), _THREADS):
        yield from pool.map(read, every[first : first + _THREADS])
