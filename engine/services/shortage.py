"""Whether a lack that was met still lasts: what /health tells is as of now, not of the last try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import DiskFull, Shortage

if TYPE_CHECKING:
    from engine.files.disk import Disk


AT_ONCE = 3
"""Descriptors that making a file takes: of its directory, of the file, of the directory to make the name durable."""


def lasts(error: Shortage, disk: Disk, directory: str, needed: int) -> bool:
    """Whether a try in this directory would meet it again: no space for `needed` bytes, or no descriptor.

    Raises StorageError.
    """
    if isinstance(error, DiskFull):
        return disk.writable(directory) < needed
    try:
        disk.demand_descriptors(directory, AT_ONCE)
    except Shortage:
        return True
    return False
