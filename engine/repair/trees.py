"""Small helpers for files and directories: compare, make zeros, remove."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from engine.files.written import written

if TYPE_CHECKING:
    from engine.files.disk import Disk


def same_file(disk: Disk, one: str, two: str) -> bool:
    """Whether two files hold the same bytes; holes are zeros, and are not read."""
    left, right = disk.open_reader(one), disk.open_reader(two)
    try:
        size = left.size()
        if right.size() != size:
            return False
        pairs = zip_longest(written(left, 0, size), written(right, 0, size), fillvalue=(size, b""))
        return all(one[0] == two[0] and bytes(one[1]) == bytes(two[1]) for one, two in pairs)
    finally:
        left.close()
        right.close()


def zero_range(disk: Disk, path: str, position: int, length: int) -> None:
    """Make bytes [position, position + length) of a file zeros, durably. Raises StorageError."""
    segment = disk.open_segment(path, position + length, mapped=False)
    try:
        segment.zero(position, position + length)
        segment.sync(position, position + length)
    finally:
        segment.close()


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with all that is in it; nothing when it is absent. Of a link the link goes, and no more.

    Raises StorageError.
    """
    entry = disk.look(path)
    if entry is None:
        return
    if not entry.is_directory or disk.link_of(path):
        disk.unlink(path)
        return
    for entry in disk.scandir(path):
        if entry.is_directory and not disk.link_of(entry.path):
            remove_tree(disk, entry.path)
        else:
            disk.unlink(entry.path)
    disk.remove_dir(path)


def sync_file(disk: Disk, path: str, size: int) -> None:
    """A file's first `size` bytes are on disk: who wrote them may have been killed. Raises StorageError."""
    file = disk.open_reader(path)  # a sync changes nothing, and may reach what a link leads to
    try:
        file.sync(0, size)
    finally:
        file.close()
