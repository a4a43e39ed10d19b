"""Small helpers for files and directories: compare, make zeros, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.files.disk import Disk

_PIECE = 1 << 20


def same_file(disk: Disk, one: str, two: str) -> bool:
    """Whether two files hold the same bytes; holes are zeros, and are not read."""
    left, right = disk.open_reader(one), disk.open_reader(two)
    try:
        size = left.size()
        if right.size() != size:
            return False
        at = 0
        while at < size:
            places = [place for place in (left.next_data(at, size), right.next_data(at, size)) if place is not None]
            if not places:
                return True
            at = min(places)
            length = min(_PIECE, size - at)
            if left.read(at, length) != right.read(at, length):
                return False
            at += length
        return True
    finally:
        left.close()
        right.close()


def is_zero(disk: Disk, path: str) -> bool:
    """Whether a file holds nothing but zeros; holes are not read. Raises StorageError."""
    reader = disk.open_reader(path)
    try:
        size = reader.size()
        at = reader.next_data(0, size)
        while at is not None:
            data = reader.read(at, min(_PIECE, size - at))
            if not data or data != bytes(len(data)):
                return False
            at = reader.next_data(at + len(data), size)
        return True
    finally:
        reader.close()


def zero_range(disk: Disk, path: str, position: int, length: int) -> None:
    """Make bytes [position, position + length) of a file zeros, durably. Raises StorageError."""
    segment = disk.open_segment(path, position + length, mapped=False)
    try:
        segment.zero(position, position + length)
        segment.sync(position, position + length)
    finally:
        segment.close()


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with all that is in it; nothing when it is absent. Raises StorageError."""
    if not disk.exists(path):
        return
    for entry in disk.scandir(path):
        if disk.is_dir(entry.path):
            remove_tree(disk, entry.path)
        else:
            disk.unlink(entry.path)
    disk.remove_dir(path)
