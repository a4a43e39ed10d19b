"""Which stores are meant: paths and globs, each store with a name of its own, looked at once before anything runs."""

from __future__ import annotations

import glob
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import of_store
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NotAStore, Refused, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import holder_of
from engine.inspect.store.survey import survey
from engine.pipeline.places import local_path
from engine.pipeline.repositories import (
    Repositories,
    RepositoryChoice,
    is_cloud,
    is_repository,
    ref_of,
    split_place,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.backup.snapshot_disk import SnapshotDisk
    from engine.config import StoreConfig
    from engine.log.source import Segment
    from engine.pipeline.repositories import SnapshotRef

EVERY_STORE = RepositoryChoice()
_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class StoreRef:
    """A store that a job reads. Goes to executors: the path must be the same there.

    Attributes:
        name: its own among the stores of a job: what the column `store` says.
        config: its settings, sizes settled.
        segments: the files of its log, by offset, as they were found at planning.
        live: whether a process held its lock then.
        config_file: the broker's properties file that `config` was made of, if any.
        snapshot: where it lies, when it is a snapshot in a backup repository.
    """

    name: str
    config: StoreConfig
    segments: tuple[Segment, ...]
    live: bool
    config_file: str | None = None
    snapshot: SnapshotRef | None = None

    @property
    def root(self) -> str:
        """Its directory; of a snapshot, its object in the repository."""
        if self.snapshot is not None:
            return self.snapshot.root
        return os.fspath(self.config.store_path_root_dir)


def find_stores(
    places: Iterable[str],
    *,
    config: Path | None = None,
    disk: Disk | None = None,
    follow_links: bool = False,
    repositories: Iterable[str] = (),
    choice: RepositoryChoice = EVERY_STORE,
) -> tuple[StoreRef, ...]:
    """The stores at `places`: directories, globs, or either as `NAME=PATH`. In the order given, globs by path.

    Without a name a store has that of its directory; of a glob's, the part of the path that tells them apart. A place
    may be a backup repository, also in object storage: then it stands for the latest snapshot of each store in it, or
    for one, `LOCATION@ID`; those have the names under which they were backed up, where two repositories of a glob have
    the same one with the part of the path before it.

    Args:
        places: at least one, or one of `repositories`.
        config: a broker's properties file that holds for all of them.
        disk: how files are reached.
        follow_links: changes are made through links below the stores' directories, too.
        repositories: further places, which are repositories and nothing else; globs of directories, too.
        choice: which snapshots are meant where a place is a repository, and what opens it.

    Raises:
        NotAStore: no store there (a glob without a match, RocksDB). Refused: two have the same name.
        CannotRepair, InvalidArgument, StorageError: as `survey`, as `of_store`. NotARepository, WrongKey, NotFound,
        FormatError: of a repository.
    """
    disk = disk or Disk()
    by_name: dict[str, StoreRef] = {}
    opened = Repositories(choice)
    for place, is_known in [*((place, False) for place in places), *((place, True) for place in repositories)]:
        named, path = _named(place)
        location, snapshot_id = split_place(path)
        roots = [location] if is_cloud(location) else _roots(location)
        refs: list[StoreRef] = []
        parts: list[str] = []
        for name, root in zip(_names(roots), roots, strict=True):
            if is_known or is_cloud(root) or is_repository(root):
                some = [_snapshot(one, root, config, choice) for one in opened.disks(root, snapshot_id)]
            else:
                some = [_look(disk, name, Path(os.path.abspath(root)), config, follow_links=follow_links)]
            refs += some
            parts += [name] * len(some)
        for ref in _named_so(named, refs, parts):
            other = by_name.setdefault(ref.name, ref)
            if other is not ref:
                raise Refused(
                    f"two stores are named {ref.name}: {other.root} and {ref.root}",
                    hint=f"rename one: OTHER={ref.root if ref.snapshot is None else ref.snapshot.place}",
                )
    if not by_name:
        raise NotAStore("STORE is required", hint="give a directory, or a glob")
    return tuple(by_name.values())


def find_two(
    places: Sequence[str], *, config: Path | None = None, repositories: Iterable[str] = (), choice: RepositoryChoice
) -> tuple[StoreRef, StoreRef]:
    """Two stores, which may be snapshots of the same one: then those have their ID after their name.

    Args:
        places, config, repositories, choice: as for `find_stores`.

    Raises:
        InvalidArgument: there are more, or fewer. Else as `find_stores`.
    """
    refs = [ref for place in places for ref in find_stores([place], config=config, choice=choice)]
    refs += [
        ref for place in repositories for ref in find_stores((), config=config, repositories=[place], choice=choice)
    ]
    if len(refs) != 2:
        raise InvalidArgument(f"diff takes two stores, not {len(refs)}")
    one, two = refs
    if one.name == two.name:
        one, two = _with_id(one), _with_id(two)
    if one.name == two.name:
        raise Refused(
            f"two stores are named {one.name}: {one.root} and {two.root}", hint=f"rename one: OTHER={two.root}"
        )
    return one, two


def _with_id(ref: StoreRef) -> StoreRef:
    return ref if ref.snapshot is None else replace(ref, name=f"{ref.name}@{ref.snapshot.name.short}")


def demand_idle(stores: Iterable[StoreRef]) -> None:
    """Raises StoreLocked: a live process holds one of them."""
    for store in stores:
        if store.live:
            raise StoreLocked(
                "the store is locked by a running process", path=store.root, hint="stop it, or take a copy"
            )


def _named_so(named: str, refs: list[StoreRef], parts: list[str]) -> list[StoreRef]:
    """Snapshots of one glob's repositories with names that tell them apart; `named`: the name that was given."""
    if named:
        return [replace(ref, name=named) for ref in refs]
    counts = Counter(ref.name for ref in refs)
    return [
        replace(ref, name=f"{part}.{ref.name}".replace("/", "_"))
        if ref.snapshot is not None and counts[ref.name] > 1
        else ref
        for ref, part in zip(refs, parts, strict=True)
    ]


def _named(place: str) -> tuple[str, str]:
    """Name ("" for none) and path. What has a slash is no name: a directory may have an = in it.

    Raises InvalidArgument: a path of another scheme than file:.
    """
    name, equals, path = place.partition("=")
    if not equals or "/" in name:
        name, path = "", place
    return name, path if is_cloud(path) else local_path(path)


def _roots(path: str) -> list[str]:
    """Absolute: executors have another working directory."""
    if not _MAGIC & set(path) or os.path.isdir(path):
        return [os.path.abspath(path)]
    roots = sorted(os.path.abspath(one) for one in glob.glob(path) if os.path.isdir(one))
    if not roots:
        raise NotAStore("no directory matches", path=path)
    return roots


def _names(roots: list[str]) -> list[str]:
    """The last part of each path that tells them apart: of /data/a/store and /data/b/store, a and b."""
    parts = [Path(root).resolve().parts for root in roots]
    for at in range(1, min(map(len, parts)) + 1):
        names = [part[-at] for part in parts]
        if len(set(names)) == len(names):
            return names
    return [part[-1] for part in parts]


def _snapshot(disk: SnapshotDisk, location: str, config: Path | None, choice: RepositoryChoice) -> StoreRef:
    file = None if config is None else os.path.abspath(config)
    ref = ref_of(disk, location, choice.key)
    return StoreRef(disk.snapshot.store, disk.config(config), disk.segments, False, file, ref)


def _look(disk: Disk, name: str, root: Path, config: Path | None, *, follow_links: bool) -> StoreRef:
    words = ("--store", os.fspath(root), *(() if config is None else ("-c", os.fspath(config))))
    # what an error says to run next names the store
    files = survey(disk, replace(of_store(root, config), typed=words, follow_links=follow_links))
    live = holder_of(disk, files.root) is not None
    return StoreRef(name, files.config, files.log, live, None if config is None else os.path.abspath(config))
