"""Giving files of the commit log their own names back, and taking that back: files may change places, and whoever does
it may be killed at any step.

All of them get a name of their own in between (`<new name>.moving`), and only then their new ones. In between a mark is
written (`lifted.json` beside the manifest), so that the names and the mark together tell where each file is:

| its name in between | the mark | the file is |
|---|---|---|
| there | | there |
| not there | not there | under its old name |
| not there | there | under its new name |

Taking it back goes the same way from the end to the start. A planning that finds a file under its name in between reads
in the file where it belongs, as of any other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.files.disk import Disk
    from engine.inspect.store.moves import Way

LIFTED = "lifted.json"


def relocate(disk: Disk, ways: Sequence[Way], directory: str | None) -> None:
    """Give files their new names. `directory`: of the repair, where the mark goes; None when nothing is saved.

    Raises StorageError.
    """
    if not ways:
        return
    for way in ways:
        if way.old != way.via:
            disk.step("recover.lift-segment")
            disk.replace(way.old, way.via)
    _sync(disk, ways)
    if directory is not None:
        disk.write_file_atomically(os.path.join(directory, LIFTED), b"{}")
    disk.step("recover.lifted")
    for way in ways:
        disk.step("recover.rename-segment")
        disk.replace(way.via, way.new)
    _sync(disk, ways)


def put_back(disk: Disk, ways: Sequence[Way], directory: str) -> None:
    """Give files their old names back, wherever each is now. Raises StorageError."""
    mark = os.path.join(directory, LIFTED)
    if disk.exists(mark):
        for way in ways:
            if not disk.exists(way.via):
                disk.step("undo.lift-segment")
                disk.replace(way.new, way.via)
        _sync(disk, ways)
        disk.step("undo.lifted")
        disk.unlink(mark)
        disk.sync_dir(directory)
    for way in ways:
        if way.via != way.old and disk.exists(way.via):
            disk.step("undo.rename-segment")
            disk.replace(way.via, way.old)
    _sync(disk, ways)


def is_there(disk: Disk, way: Way, directory: str) -> str:
    """Where the file is now."""
    if disk.exists(way.via):
        return way.via
    return way.new if disk.exists(os.path.join(directory, LIFTED)) else way.old


def _sync(disk: Disk, ways: Iterable[Way]) -> None:
    for directory in sorted({os.path.dirname(path) for way in ways for path in (way.old, way.via, way.new)}):
        disk.sync_dir(directory)
