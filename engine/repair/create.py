"""An empty store: the directories, a checkpoint of zeros, and the sizes that were asked for.

A store's sizes are known from its files, but a new one has none yet. So they are written to `rstore.conf` in the store,
a properties file with Apache's keys, which rstore reads underneath a broker.conf. A broker doesn't know it: give the
same keys to its own.

The sizes are written first, the checkpoint last. Without it, and with nothing but what is made before it, somebody was
interrupted: the next run makes the rest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.config import STORE_CONF, STORE_SIZES, apache_key
from engine.errors import Refused
from engine.format import names
from engine.format.checkpoint import FILE_SIZE
from engine.inspect.store.path_slips import slip_for_a_new_store
from engine.repair.reach import beneath

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


def create_store(disk: Disk, config: StoreConfig) -> dict[str, int]:
    """Make an empty store at the root of `config`.

    Returns:
        its sizes, by Apache's keys.

    Raises:
        Refused: something is there already. DataIsAbsent: a path has a blank or a comment, and the directory without it
        is there. DiskFull, StorageError.
    """
    root = os.fspath(config.store_path_root_dir)
    slip = slip_for_a_new_store(disk, config)
    if slip is not None:
        raise slip
    for place in (root, *map(os.fspath, config.commit_log_paths)):
        if disk.exists(place) and not _is_begun(disk, place, config):
            raise Refused("the directory is not empty", path=place, hint="name an empty or a new directory")
    return complete_store(disk, config)


def complete_store(disk: Disk, config: StoreConfig) -> dict[str, int]:
    """`create_store` where it may have been killed halfway: makes what is missing. The sizes come first.

    Raises:
        DiskFull, StorageError. OutsideStore: a link leads out of it.
    """
    root = os.fspath(config.store_path_root_dir)
    disk = beneath(disk, config)
    sizes = {apache_key(name): int(getattr(config, name)) for name in STORE_SIZES}
    disk.mkdirs(root)
    lines = ["# The sizes with which this store was made (rstore init).", *(f"{k}={v}" for k, v in sizes.items())]
    disk.write_file_atomically(os.path.join(root, STORE_CONF), ("\n".join(lines) + "\n").encode())
    for place in (*map(os.fspath, config.commit_log_paths), *_places(root)):
        disk.mkdirs(place)
    if not disk.exists(os.path.join(root, names.CHECKPOINT)):
        disk.write_file_atomically(os.path.join(root, names.CHECKPOINT), bytes(FILE_SIZE))
    return sizes


def _is_begun(disk: Disk, place: str, config: StoreConfig) -> bool:
    """Whether it is an empty directory, or holds only what an interrupted run has made."""
    if not disk.is_dir(place):
        return False
    root = os.fspath(config.store_path_root_dir)
    made = {*map(os.fspath, config.commit_log_paths), *_places(root)}
    files = {os.path.join(root, name) for name in (STORE_CONF, STORE_CONF + ".tmp", names.CHECKPOINT + ".tmp")}
    for path in (os.path.join(place, name) for name in disk.listdir(place)):
        if disk.is_dir(path):
            if path not in made or disk.listdir(path):
                return False
        elif path not in files:
            return False
    return True


def _places(root: str) -> list[str]:
    return [os.path.join(root, name) for name in (names.CONSUMEQUEUE, names.INDEX, names.CONFIG)]
