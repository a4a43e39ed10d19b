"""`backup create`: one snapshot of a store, beside its broker, without one, or of a broker elsewhere (copier.py)."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from engine.backup.create.copier import StoreCopier, user
from engine.backup.create.made import Created, CreateOptions, snapshot_json
from engine.backup.create.origin import LocalOrigin
from engine.backup.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.create.origin import StoreOrigin
    from engine.backup.repository import Repository
    from engine.config import StoreConfig
    from engine.files.disk import Disk

__all__ = ["CreateOptions", "Created", "create", "create_from", "snapshot_json", "store_name", "user_and_host"]


def store_name(config: StoreConfig) -> str:
    """The name of a store that nobody named: where it is."""
    return f"{socket.gethostname()}:{os.path.abspath(config.store_path_root_dir)}"


def create(
    disk: Disk,
    config: StoreConfig,
    repository: Repository,
    options: CreateOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Created:
    """Make a snapshot of the store that `config` names.

    Raises:
        NotAStore, NewerStore, StorageError. StoreLocked: somebody removes objects from the repository now.
    """
    return create_from(disk, LocalOrigin(disk, config, store_name(config)), repository, options, progress)


def create_from(
    disk: Disk,
    origin: StoreOrigin,
    repository: Repository,
    options: CreateOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Created:
    """Make a snapshot of a store, wherever it is; `origin` is closed. Raises as `create`, and what `origin` raises."""
    try:
        with Lease(repository.objects, "backup create") as lease:
            return StoreCopier(disk, origin, repository, options, progress).take(lease)
    finally:
        origin.close()


def user_and_host() -> str:
    """Who works here, for notes."""
    return f"{user()}@{socket.gethostname()}"
