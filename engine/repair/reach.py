"""How far a change of a store reaches: its own directory, those that its settings name, and links to the folders in it.

The store's directory, the directories of its log and what a command's options name (`--salvage-dir`) are followed
wherever they lead: who runs the command has named them. In the store `commitlog`, `consumequeue`, `index`, `config` and
the like may be links to other disks, and so may be what `--salvage-dir` left in `salvage/`: followed once, if root or
the store's owner made them. All else that is a link is read, and never changed through (engine.files.beneath).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import OutsideStore
from engine.format import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.files.beneath import Roots
    from engine.files.disk import Disk
    from engine.files.operations import Touch


def roots_of(disk: Disk, config: StoreConfig, also: Iterable[str] = ()) -> Roots:
    """Where a change of the store that `config` names may be made. `also`: further directories that somebody named.

    Raises:
        OutsideStore: a folder of the store is a link that somebody else has made. StorageError.
    """
    root = os.path.abspath(config.store_path_root_dir)
    roots = disk.roots(follow=config.follow_links)
    roots.add(root)
    logs = [os.path.abspath(path) for path in config.log_directories]
    for path in (*logs, *map(os.path.abspath, also)):
        if os.path.commonpath((path, root)) != root:
            roots.add(path)
    if disk.exists(root):
        owner = disk.owner(root)
        salvage = os.path.join(root, names.SALVAGE)
        saved = disk.listdir(salvage) if disk.is_dir(salvage) else ()
        folders = [*(os.path.join(root, name) for name in names.FOLDERS), *(path for path in logs if path != root)]
        for path in (*folders, *(os.path.join(salvage, name) for name in saved)):
            roots.add_folder(path, owner)
    roots.add_build(os.path.join(root, names.REINDEX_BUILD))
    return roots


def beneath(disk: Disk, config: StoreConfig, also: Iterable[str] = ()) -> Disk:
    """The disk for a change of this store. Raises as `roots_of`."""
    return disk.beneath(roots_of(disk, config, also))


def building(disk: Disk, config: StoreConfig, directory: str) -> Disk:
    """The disk for who builds files of a store in a directory, of the store or elsewhere: nothing else is changed.

    Raises:
        OutsideStore: as `roots_of`. StorageError.
    """
    root, directory = os.path.abspath(config.store_path_root_dir), os.path.abspath(directory)
    if os.path.commonpath((directory, root)) == root:
        return beneath(disk, config)
    roots = disk.roots(follow=config.follow_links)
    roots.add(directory)
    return disk.beneath(roots)


def outside(disk: Disk, places: Iterable[tuple[str, Touch]]) -> OutsideStore | None:
    """Why a change of these places, each with what is done to it, would end half-way; None where it would not.

    Raises:
        StorageError: the places can't be told.
    """
    try:
        for path, touch in () if disk.follows else places:
            disk.demand_inside(path, touch)
    except OutsideStore as refusal:
        return refusal
    return None


def told_of_links(disk: Disk) -> list[str]:
    """Sentences on the links that changes follow."""
    return [f"{one.path} is a link: what changes below it changes in {one.real}" for one in disk.followed]
