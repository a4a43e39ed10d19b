"""Which stores are meant: paths and globs, each store with a name of its own, looked at once before anything runs."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import of_store
from engine.errors import NotAStore, Refused, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import holder_of
from engine.inspect.store.survey import survey
from engine.pipeline.places import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.log.source import Segment

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
    """

    name: str
    config: StoreConfig
    segments: tuple[Segment, ...]
    live: bool
    config_file: str | None = None

    @property
    def root(self) -> str:
        """Its directory."""
        return os.fspath(self.config.store_path_root_dir)


def find_stores(
    places: Iterable[str], *, config: Path | None = None, disk: Disk | None = None, follow_links: bool = False
) -> tuple[StoreRef, ...]:
    """The stores at `places`: directories, globs, or either as `NAME=PATH`. In the order given, globs by path.

    Without a name a store has that of its directory; of a glob's, the part of the path that tells them apart.

    Args:
        places: at least one.
        config: a broker's properties file that holds for all of them.
        disk: how files are reached.
        follow_links: changes are made through links below the stores' directories, too.

    Raises:
        NotAStore: no store there (a glob without a match, RocksDB, DLedger). Refused: two have the same name.
        CannotRepair, InvalidArgument, StorageError: as `survey`, as `of_store`.
    """
    disk = disk or Disk()
    by_name: dict[str, StoreRef] = {}
    for place in places:
        named, path = _named(place)
        roots = _roots(path)
        for name, root in zip(_names(roots), roots, strict=True):
            ref = _look(disk, named or name, Path(os.path.abspath(root)), config, follow_links=follow_links)
            other = by_name.setdefault(ref.name, ref)
            if other is not ref:
                raise Refused(
                    f"two stores are named {ref.name}: {other.root} and {ref.root}",
                    hint=f"rename one: OTHER={ref.root}",
                )
    if not by_name:
        raise NotAStore("STORE is required", hint="give a directory, or a glob")
    return tuple(by_name.values())


def demand_idle(stores: Iterable[StoreRef]) -> None:
    """Raises StoreLocked: a live process holds one of them."""
    for store in stores:
        if store.live:
            raise StoreLocked(
                "the store is locked by a running process", path=store.root, hint="stop it, or take a copy"
            )


def _named(place: str) -> tuple[str, str]:
    """Name ("" for none) and path. What has a slash is no name: a directory may have an = in it.

    Raises InvalidArgument: a path of another scheme than file:.
    """
    name, equals, path = place.partition("=")
    return (name, local_path(path)) if equals and "/" not in name else ("", local_path(place))


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


def _look(disk: Disk, name: str, root: Path, config: Path | None, *, follow_links: bool) -> StoreRef:
    words = ("--store", os.fspath(root), *(() if config is None else ("-c", os.fspath(config))))
    # what an error says to run next names the store
    files = survey(disk, replace(of_store(root, config), typed=words, follow_links=follow_links))
    live = holder_of(disk, files.root) is not None
    return StoreRef(name, files.config, files.log, live, None if config is None else os.path.abspath(config))
