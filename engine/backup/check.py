"""`backup check`: whether each snapshot has all that it names, and whether that is what its name says.

Names and lengths of pieces are known from lists; what is in them only by reading: all of it, or a share that is drawn
anew each time.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.backup.archive.archived import archived_names, get_archived
from engine.backup.container import HEAD_SIZE
from engine.backup.manifest import parts_of
from engine.backup.repository import PIECES, SEGMENTS, SNAPSHOTS, place
from engine.dataclass import dataclass
from engine.errors import RStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.backup.repository import Repository

ARCHIVE = "archive"
"""In place of a snapshot's id: an archived segment needs the object."""
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object that is missing or damaged, and the snapshots that need it (short ids)."""

    name: str
    why: str
    snapshots: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {"object": self.name, "why": self.why, "snapshots": list(self.snapshots)}


@dataclass(slots=True)
class RepositoryCheck:
    """What was found.

    Attributes:
        snapshots, pieces: how many there are; `archived`: segments of archives; `size`: bytes of all objects.
        read: pieces that were read and proved.
        unused: objects that no snapshot names, and their bytes: prune removes them.
        bad: what is wrong.
    """

    snapshots: int = 0
    archived: int = 0
    pieces: int = 0
    size: int = 0
    read: int = 0
    unused: int = 0
    unused_size: int = 0
    bad: list[BadObject] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "clean": not self.bad,
            "snapshots": self.snapshots,
            "archivedSegments": self.archived,
            "pieces": self.pieces,
            "bytes": self.size,
            "piecesRead": self.read,
            "unusedObjects": self.unused,
            "unusedBytes": self.unused_size,
            "bad": [one.to_json() for one in self.bad],
            "seconds": round(self.seconds, 3),
        }


@dataclass(slots=True)
class Named:
    """What snapshots and archived segments of a repository name: objects, each with the snapshots (short ids) that need
    it, ARCHIVE among them where an archive does.

    `snapshots`: how many there are, those that can't be read among them. `archived`: how many archived segments. `bad`:
    snapshots and segments that can't be read, so that what they name is not known.
    """

    snapshots: int = 0
    archived: int = 0
    segments: dict[str, set[str]] = field(default_factory=dict)
    pieces: dict[str, set[str]] = field(default_factory=dict)
    bad: list[BadObject] = field(default_factory=list)


def named_by(repository: Repository) -> Named:
    """What snapshots and archived segments name; each segment is read once. Raises StorageError of lists alone."""
    named = Named()
    for name, snapshot in repository.each(repository.snapshots()):
        named.snapshots += 1
        if isinstance(snapshot, RStoreError):
            named.bad.append(BadObject(f"{SNAPSHOTS}/{name.name}", snapshot.message, (name.short,)))
            continue
        for segment in snapshot.segments:
            named.segments.setdefault(segment.pieces, set()).add(name.short)
        for file in snapshot.files:
            for piece in file.pieces:
                if piece is not None:
                    named.pieces.setdefault(piece, set()).add(name.short)
    _name_archived(repository, named)
    with ThreadPoolExecutor(repository.threads(), "rstore-check") as pool:

        def pieces_of(item: tuple[str, set[str]]) -> tuple[set[str], tuple[str | None, ...], BadObject | None]:
            segment, users = item
            try:
                return users, repository.get_segment(segment).pieces, None
            except RStoreError as error:
                return users, (), BadObject(place(SEGMENTS, segment), error.message, tuple(sorted(users)))

        for users, pieces, bad in pool.map(pieces_of, list(named.segments.items())):
            if bad is not None:
                named.bad.append(bad)
            for part in (part for piece in pieces if piece is not None for part in parts_of(piece)):
                named.pieces.setdefault(part, set()).update(users)
    return named


def _name_archived(repository: Repository, named: Named) -> None:
    for name in archived_names(repository):
        named.archived += 1
        try:
            segment = get_archived(repository, name)
        except RStoreError as error:
            named.bad.append(BadObject(name.name, error.message, (ARCHIVE,)))
            continue
        named.segments.setdefault(segment.pieces, set()).add(ARCHIVE)
        for piece in segment.tables:
            named.pieces.setdefault(piece, set()).add(ARCHIVE)


def check_repository(
    repository: Repository,
    share: float = 0.0,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RepositoryCheck:
    """Check a repository.

    Args:
        repository: that is checked.
        share: of its pieces that is read, 0 to 1.
        seed: which ones; None: others each time.
        progress: told how many pieces were read, and of how many.

    Raises:
        StorageError: the place can't be listed.
    """
    began = time.monotonic()
    result = RepositoryCheck()
    named = named_by(repository)
    present: dict[str, int] = {}  # after the snapshots: of a new one, all pieces are in the list
    for below in (SEGMENTS, PIECES):
        for one in repository.objects.list(below):
            present[one.name] = one.size
            result.size += one.size
            result.pieces += below == PIECES
    unread = (one.name for one in named.bad if one.name.startswith(f"{SNAPSHOTS}/"))
    gone = {name for name in unread if repository.objects.size(name) is None}
    result.snapshots, result.archived = named.snapshots - len(gone), named.archived
    result.bad = [one for one in named.bad if one.name not in gone]  # forgotten meanwhile, as a follower does
    wanted = {place(PIECES, piece): users for piece, users in named.pieces.items()}
    for name, users in sorted(wanted.items()):
        size = present.get(name)
        if size is None:
            result.bad.append(BadObject(name, "it is missing", tuple(sorted(users))))
        elif size < HEAD_SIZE:
            result.bad.append(BadObject(name, f"it has {size} bytes, fewer than a header", tuple(sorted(users))))
    needed = wanted.keys() | {place(SEGMENTS, one) for one in named.segments}
    unused = [size for name, size in present.items() if name not in needed]
    result.unused, result.unused_size = len(unused), sum(unused)
    there = sorted(piece for piece in named.pieces if present.get(place(PIECES, piece), 0) >= HEAD_SIZE)
    count = len(there) if share >= 1 else min(len(there), -int(-len(there) * share // 1))
    chosen = there if count == len(there) else random.Random(seed).sample(there, count)
    for bad in _read(repository, chosen, named.pieces, progress):
        result.bad.append(bad)
    result.read = count
    result.seconds = time.monotonic() - began
    return result


def _read(
    repository: Repository,
    pieces: list[str],
    users: dict[str, set[str]],
    progress: Callable[[int, int], None] | None,
) -> Iterator[BadObject]:
    """Those of the pieces that are not what their name says."""

    def judge(piece: str) -> BadObject | None:
        try:
            repository.get_piece(piece)
        except RStoreError as error:
            return BadObject(place(PIECES, piece), error.message, tuple(sorted(users[piece])))
        return None

    done = 0
    with ThreadPoolExecutor(repository.threads(), "rstore-check") as pool:
        for first in range(0, len(pieces), _AT_ONCE):
            for bad in pool.map(judge, pieces[first : first + _AT_ONCE]):
                done += 1
                if progress is not None:
                    progress(done, len(pieces))
                if bad is not None:
                    yield bad
