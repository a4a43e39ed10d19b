"""Repositories for tests, and stores to back up that are made here."""

from __future__ import annotations

from pathlib import Path

from engine.backup.create.create import Created, CreateOptions, create
from engine.backup.objects.place import objects_at
from engine.backup.repository import Repository, create_repository, open_repository
from engine.backup.restore.cut import Upto
from engine.backup.restore.offsets import Offsets
from engine.backup.restore.restore import RestoredStore, RestoreOptions, restore
from engine.config import StoreConfig, of_store
from engine.files.disk import Disk

SECRET = b"a secret of a test"


def new(place: Path | str, secret: bytes | None = SECRET, disk: Disk | None = None) -> Repository:
    """An empty repository."""
    objects = objects_at(disk or Disk(), str(place))
    create_repository(objects, secret, "2026-11-27T00:00:00+00:00", "test")
    return open_repository(objects, lambda: secret)


def back_up(repository: Repository, store: Path | StoreConfig, disk: Disk | None = None, **options: object) -> Created:
    """A snapshot of a store, named `a`."""
    config = store if isinstance(store, StoreConfig) else of_store(store)
    return create(disk or Disk(), config, repository, CreateOptions("a", **options))  # type: ignore[arg-type]


def bring_back(
    repository: Repository,
    to: Path,
    wanted: str = "latest",
    offsets: Offsets = Offsets.AS_WERE,
    disk: Disk | None = None,
    topics: tuple[str, ...] = (),
    **upto: object,
) -> RestoredStore:
    """A store restored from a snapshot."""
    options = RestoreOptions(Upto(**upto), offsets, None, frozenset(topics))  # type: ignore[arg-type]
    return restore(disk or Disk(), of_store(to), repository, *repository.find(wanted), options)


def log_of(store: Path) -> dict[str, bytes]:
    """The segments of a store that hold anything, zeros at their end left out."""
    files = {path.name: path.read_bytes().rstrip(b"\0") for path in sorted((store / "commitlog").iterdir())}
    return {name: data for name, data in files.items() if data}
