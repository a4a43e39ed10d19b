"""What `--from` of `heal` names: a repository, another store, a running broker."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from rstore_cli.repository import open_repo

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.heal.sources import HealSource

_REPOSITORY = "repo:"
_ADDRESS = re.compile(r"[^/\s]+:[0-9]{1,5}")
_SETTINGS = "rstore-repository.json"


def source_of(
    given: str,
    disk: Disk,
    config: StoreConfig,
    *,
    key_file: Path | None,
    key_command: str | None,
    name: str | None,
    ha_port: int | None,
    acl: Path | None,
) -> HealSource:
    """The source that one `--from` names, open.

    Raises:
        InvalidArgument: nothing of this kind. RStoreError: it can't be opened.
    """
    location = given.removeprefix(_REPOSITORY)
    if given.startswith(_REPOSITORY) or "://" in given or os.path.exists(os.path.join(given, _SETTINGS)):
        from engine.heal.sources import RepositorySource

        return RepositorySource(open_repo(location, key_file, key_command), name)
    if os.path.isdir(given):
        from engine.heal.sources import StoreSource

        return StoreSource(disk, os.path.abspath(given), os.fspath(config.store_path_root_dir))
    if _ADDRESS.fullmatch(given):
        return _peer(given, config, ha_port, acl)
    raise InvalidArgument(
        f"--from {given}: no store, repository or broker",
        hint="a directory, repo:LOCATION, s3://NAME/PREFIX, or HOST:PORT of a broker",
    )


def _peer(address: str, config: StoreConfig, ha_port: int | None, acl: Path | None) -> HealSource:
    from engine.heal.peer import PeerSource
    from rstore_cli.master_options import master_of

    return PeerSource(master_of(config, address, ha_port=ha_port, acl=acl))
