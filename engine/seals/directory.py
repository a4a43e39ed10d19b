"""Where seals are kept: a file a segment in `seals/` of the store's root, or in a directory that somebody names.

A name that is no seal's is nobody's: it is passed over. A seal is written under another name and renamed, so that it is
whole, or isn't there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format import names
from engine.seals.layout import SealDamaged
from engine.seals.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.config import StoreConfig
    from engine.files.disk import Disk


def seals_directory(root: str) -> str:
    """Where a store keeps its seals, unless somebody names another directory."""
    return os.path.join(root, names.SEALS)


def seal_path(directory: str, offset: int) -> str:
    """The file of a segment's seal, below the directory of seals."""
    return os.path.join(directory, names.segment_name(offset) + names.SEAL_SUFFIX)


def read_seal(disk: Disk, root: str, offset: int) -> Seal | None:
    """The seal of the segment at a physical offset, kept in the store whose root is given; None: there is none.

    Raises as `read_seal_in`.
    """
    return read_seal_in(disk, seals_directory(root), offset)


def read_seal_in(disk: Disk, directory: str, offset: int) -> Seal | None:
    """The seal of the segment at a physical offset in a directory of seals; None: there is none.

    Raises:
        SealDamaged: the file is damaged, torn, or another segment's seal. FormatError: a later version's. StorageError.
    """
    path = seal_path(directory, offset)
    if not disk.exists(path):
        return None
    seal = Seal.decode(disk.read_file(path), path)
    if seal.offset != offset:
        raise SealDamaged(f"this is the seal of segment {seal.offset}", path=path)
    return seal


def sealed_offsets(disk: Disk, directory: str) -> list[int]:
    """Physical offsets of the segments that have a seal's file, damaged ones, too. Raises StorageError."""
    if not disk.is_dir(directory):
        return []
    return sorted(
        offset
        for entry in disk.scandir(directory)
        if (offset := names.seal_offset(entry.name)) is not None and entry.is_file
    )


def write_seal(disk: Disk, directory: str, seal: Seal) -> None:
    """Keep a seal, in place of one that is there; durable when it returns. Raises StorageError, DiskFull."""
    disk.mkdirs(directory)
    disk.write_file_atomically(seal_path(directory, seal.offset), seal.encode())
    disk.step("seal:written")


def remove_seal(disk: Disk, directory: str, offset: int) -> bool:
    """Remove the seal of a segment, durably; False: there was none. Raises StorageError."""
    path = seal_path(directory, offset)
    if disk.look(path) is None:
        return False
    disk.unlink(path, missing_ok=True)
    disk.sync_dir(directory)
    return True


def remove_seals_of(disk: Disk, config: StoreConfig, changed: Callable[[], Iterable[str]]) -> list[int]:
    """Remove the seals of segments that are about to be changed, in the store's own directory of seals.

    Before the first byte changes: killed in between, a segment has no seal, and never one that a repair made wrong.

    Args:
        disk: how files are reached.
        config: names the store.
        changed: paths of files that are changed, of the log and others; only asked where there are seals.

    Returns:
        physical offsets of those that had a seal.

    Raises:
        StorageError: a seal can't be removed: nothing may be changed then.
    """
    directory = seals_directory(os.fspath(config.store_path_root_dir))
    sealed = set(sealed_offsets(disk, directory))
    if not sealed:
        return []
    logs = {os.path.abspath(path) for path in config.log_directories}
    offsets = {
        names.segment_offset(os.path.basename(path))
        for path in map(os.path.abspath, changed())
        if os.path.dirname(path) in logs
    }
    removed = sorted(offset for offset in offsets if offset is not None and offset in sealed)
    for offset in removed:
        remove_seal(disk, directory, offset)
    return removed
