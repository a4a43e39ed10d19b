"""Stores as trees of files: copied with their holes, compared byte for byte, and proved untouched.

Everything is read by position through a Disk, in bounded pieces; a store that is only read is opened for reading only.
What lies behind a link below a store is somebody's choice, and may be the whole machine: no copy is made of it, unless
whoever runs the drill follows links. Then each directory is read once, however many links lead to it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import DiskFull, OutsideStore
from engine.files.beneath import FOLLOW_LINKS
from engine.files.written import written
from engine.repair.reach import roots_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry

DIRECTORY = "directory"


class Seen(NamedTuple):
    """What a path held: a digest of its content ("directory" for one) and its modification time (ns)."""

    digest: str
    mtime_ns: int


def walk(disk: Disk, root: str) -> Iterator[Entry]:
    """Everything below a directory, parents first, by name; what links lead to once. Raises StorageError."""
    yield from _below(disk, root, {disk.behind_link(root)})


def _below(disk: Disk, directory: str, met: set[str]) -> Iterator[Entry]:
    """`met`: where the root and links below it lead."""
    for entry in disk.scandir(directory):
        yield entry
        if not entry.is_directory:
            continue
        if disk.link_of(entry.path):
            real = disk.behind_link(entry.path)
            if any(_holds(one, real) or _holds(real, one) for one in met):
                continue
            met.add(real)
        yield from _below(disk, entry.path, met)


def _holds(directory: str, path: str) -> bool:
    return os.path.commonpath((directory, path)) == directory


def demand_own(disk: Disk, config: StoreConfig) -> None:
    """Raise OutsideStore for the first link below a store that a copy would go through. Raises StorageError.

    Folders that may be links (engine.repair.reach) are the store's own; nothing is refused with `follow_links`.
    """
    folders = {link.path for link in roots_of(disk, config).followed}

    def look(directory: str) -> None:
        for entry in disk.scandir(directory):
            if entry.path not in folders and disk.link_of(entry.path) and not entry.target:
                raise OutsideStore(
                    f"the copy would hold what this link leads to, {disk.behind_link(entry.path)}",
                    path=entry.path,
                    hint=f"if you made it: run it again with {FOLLOW_LINKS}; else remove the link",
                )
            if entry.is_directory:
                look(entry.path)

    if not config.follow_links:
        look(os.path.abspath(config.store_path_root_dir))


def blocks(disk: Disk, path: str) -> Iterator[tuple[int, memoryview]]:
    """(place, bytes) of each aligned 64 KiB block of a file that is not all zeros; holes are not read."""
    file = disk.open_reader(path)
    try:
        yield from written(file, 0, file.size())
    finally:
        file.close()


def digest(disk: Disk, path: str) -> str:
    """SHA-256 over a file's length and its blocks with their places: equal exactly for equal bytes, holes or not."""
    hashed = hashlib.sha256(b"%d" % disk.stat(path).size)
    for at, block in blocks(disk, path):
        hashed.update(b"@%d:" % at)
        hashed.update(block)
    return hashed.hexdigest()


def snapshot(disk: Disk, root: str) -> dict[str, Seen]:
    """Every path below `root` with content and time: equal before and after, nothing was written."""
    return {
        os.path.relpath(entry.path, root): Seen(
            digest(disk, entry.path) if entry.is_file else DIRECTORY, entry.mtime_ns
        )
        for entry in walk(disk, root)
    }


def fingerprint(seen: dict[str, Seen]) -> str:
    """One SHA-256 for a whole snapshot."""
    hashed = hashlib.sha256()
    for path, what in sorted(seen.items()):
        hashed.update(f"{path}\0{what.digest}\0{what.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()


def data_bytes(disk: Disk, root: str) -> int:
    """Bytes of all files below `root`, holes left out."""
    total = 0
    for entry in walk(disk, root):
        if entry.is_file:
            total += os.stat(entry.path).st_blocks * 512
    return total


def apparent_bytes(disk: Disk, root: str) -> int:
    """Bytes of all files below `root`, holes included."""
    return sum(entry.size for entry in walk(disk, root) if entry.is_file)


def demand_space(disk: Disk, place: str, needed: int) -> None:
    """Raise DiskFull unless `needed` bytes are usable where `place` is."""
    usable = disk.writable(place)
    if needed > usable:
        raise DiskFull(
            f"the scratch copies take up to {needed} bytes, {usable} are usable",
            path=place,
            hint="use a disk with more space (--scratch), or fewer drills at a time (--jobs 1)",
        )


def copy_tree(disk: Disk, source: str, target: str, *, tell: Callable[[int], None] = lambda _: None) -> None:
    """Copy a directory to `target`, which must not be there: zeros become holes, times are kept.

    Raises StorageError, DiskFull. `tell` is called with the bytes of each file.
    """
    disk.mkdirs(target)
    for entry in walk(disk, source):
        place = os.path.join(target, os.path.relpath(entry.path, source))
        if entry.is_file:
            _copy_file(disk, entry.path, place, entry.size)
            os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns))
            tell(entry.size)
        elif disk.is_dir(entry.path):
            disk.mkdirs(place)


def remove_tree(path: str) -> None:
    """Remove a scratch directory; what is gone already is no error."""
    shutil.rmtree(path, ignore_errors=True)


def _copy_file(disk: Disk, source: str, target: str, size: int) -> None:
    file = disk.open_raw(target, new=True)
    try:
        for at, block in blocks(disk, source):
            file.write(at, block)
        file.set_size(size)
    finally:
        file.close()
