"""Backups as a drill makes them: the repository lies beside the scene's store, and is encrypted.

Options of the commands are those of the command line; `key` is the secret, DEFAULT_KEY where the script names none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.drill.outcome import CommandOutcome
from engine.format.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.backup.objects.directory import DirectoryObjects
    from engine.backup.repository import Repository
    from engine.config import StoreConfig
    from engine.files.disk import Disk

DEFAULT_KEY = "the key of the drill"
_STORE = "drill"
"""The name of the drill's store in its repository: its directory is another with each copy."""
_MADE = "1970-01-01T00:00:00+00:00"


def repository_of(root: str) -> str:
    """Where the repository of the store at `root` lies: a disk of its own."""
    return os.path.join(os.path.dirname(root), "repository")


def backup_init(disk: Disk, config: StoreConfig, options: Mapping[str, Any]) -> CommandOutcome:
    """`rstore backup init`. Raises RStoreError."""
    from engine.backup.repository import create_repository

    create_repository(_objects(disk, config), _key(options), _MADE, "drill")
    return CommandOutcome(summary="an empty repository", changed=True)


def backup_create(disk: Disk, config: StoreConfig, options: Mapping[str, Any]) -> CommandOutcome:
    """`rstore backup create`. Raises RStoreError."""
    from engine.backup.create.create import CreateOptions, create

    create_options = CreateOptions(_STORE, jobs=1, full=bool(options.get("full")))
    created = create(disk, config, _open(disk, config, options), create_options)
    return CommandOutcome(
        summary=f"{counted(created.snapshot.messages, 'message')}, {created.snapshot.added} bytes added", changed=True
    )


def backup_check(disk: Disk, config: StoreConfig, options: Mapping[str, Any]) -> CommandOutcome:
    """`rstore backup check --all`. Raises RStoreError."""
    from engine.backup.check import check_repository

    checked = check_repository(_open(disk, config, options), 1.0)
    summary = f"{counted(checked.read, 'piece')} read, {len(checked.bad)} bad"
    return CommandOutcome(1 if checked.bad else 0, None, summary)


def restore_store(disk: Disk, config: StoreConfig, options: Mapping[str, Any]) -> CommandOutcome:
    """`rstore restore`, into the scene's own directory. Raises RStoreError."""
    from engine.backup.restore.cut import Upto
    from engine.backup.restore.restore import RestoreOptions, restore
    from engine.inspect.check.check import check

    repository = _open(disk, config, options)
    upto = Upto(time_ms=options.get("to_time"), offset=options.get("to_offset"))
    restored = restore(disk, config, repository, *repository.find("latest", None), RestoreOptions(upto, jobs=1))
    is_sound = restored.refusal is None and check(disk, config).ok
    return CommandOutcome(
        0 if is_sound else 1,
        None,
        f"offsets {restored.start} to {restored.end}",
        changed=True,
        log_begin=restored.start,
        log_end=restored.end,
    )


def _objects(disk: Disk, config: StoreConfig) -> DirectoryObjects:
    from engine.backup.objects.directory import DirectoryObjects

    return DirectoryObjects(disk, repository_of(os.fspath(config.store_path_root_dir)))


def _open(disk: Disk, config: StoreConfig, options: Mapping[str, Any]) -> Repository:
    from engine.backup.repository import open_repository

    return open_repository(_objects(disk, config), lambda: _key(options))


def _key(options: Mapping[str, Any]) -> bytes:
    return str(options.get("key", DEFAULT_KEY)).encode()
