"""Carry out a plan of files in config/: what changes is saved first, then each file is replaced in one rename.

As a broker does it (ConfigManager#persist, MixAll#string2File): what the file held becomes its .bak, but only where
it can be read; a broken file never takes the place of a good .bak.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple

from engine.files.operations import Touch
from engine.inspect.store.config_files import BACKUP, TEMPORARY
from engine.inspect.store.moves import quarantine_target
from engine.repair.salvage.finish import begin_config, settle
from engine.repair.salvage.salvage import Piece, save

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.config.plan import RebuildPlan


class Write(NamedTuple):
    """A file of config/ that gets these bytes. `why`: what the manifest says. `backup`: as `FilePlan` has it."""

    path: str
    data: bytes
    why: str
    backup: str | None = None


def write_files(disk: Disk, config: StoreConfig, root: str, command: str, writes: Sequence[Write]) -> str:
    """Do it. The caller holds the store's lock. Killed at any point: plan and run it again, or undo it.

    Returns:
        the directory that holds what the files were.

    Raises:
        Refused: a killed repair of the store must be ended first. NoSpaceToSave, DiskFull, StorageError: run it again.
    """
    begin_config(disk, config)
    directory = os.path.dirname(writes[0].path)
    pieces = [] if disk.exists(directory) else [Piece("create", directory, 0, 0, "for the files in it")]
    pieces += [piece for write in writes for piece in _pieces(disk, root, write)]
    salvage = save(disk, config, command, pieces)
    disk.mkdirs(directory)
    for piece in (one for one in pieces if one.action == "move"):  # the file, its .bak or a .tmp is none
        disk.mkdirs(os.path.dirname(piece.target))
        disk.move(piece.path, piece.target)
        disk.sync_dir(os.path.dirname(piece.target))
        disk.step("config.set-aside")
    for write in writes:
        disk.step("config.write")
        if write.backup is not None:
            disk.write_file_atomically(
                write.path + BACKUP, disk.read_file(write.path) if write.backup == "old" else write.data
            )
            disk.step("config.backup")
        disk.write_file_atomically(write.path, write.data)
        disk.step("config.written")
    settle(disk, config)
    return salvage


def touched(disk: Disk, paths: Iterable[str]) -> Iterator[tuple[str, Touch]]:
    """What `write_files` does to these files and their .bak: what lies there and is no file is set aside."""
    for path in paths:
        for place in (path, path + BACKUP):
            is_file = disk.exists(place) and disk.stat(place).is_file
            yield place, Touch.CONTENT if is_file else Touch.NAME


def _pieces(disk: Disk, root: str, write: Write) -> list[Piece]:
    pieces = []
    becomes = {write.path: hashlib.sha256(write.data).hexdigest()}
    if write.backup:
        old = disk.read_file(write.path) if write.backup == "old" else write.data
        becomes[write.path + BACKUP] = hashlib.sha256(old).hexdigest()
    places = list(becomes)
    for path in [*places, *(place + TEMPORARY for place in places)]:  # .tmp: of who is killed while he writes
        if not disk.exists(path):
            pieces.append(Piece("create", path, 0, 0, write.why, becomes=becomes.get(path, "")))
        elif disk.stat(path).is_file:
            # What a link leads to is replaced, and the link stays: undo writes through it, too.
            action = "overwrite" if disk.link_of(path) and path in places else "remove"
            size, sha256 = disk.stat(path).size, becomes.get(path, "")
            pieces.append(Piece(action, path, 0, size, write.why, becomes=sha256))
        else:
            pieces.append(Piece("move", path, 0, disk.stat(path).size, write.why, quarantine_target(disk, root, path)))
            pieces.append(Piece("create", path, 0, 0, write.why, becomes=becomes.get(path, "")))
    return pieces


def apply(disk: Disk, plan: RebuildPlan) -> str:
    """Carry out `plan_rebuild`'s plan; returns and raises as `write_files`."""
    files = plan.files
    writes = [Write(one.path, one.data, f"rebuilt: {one.why}", one.backup) for one in plan.changes]
    return write_files(disk, files.config, files.root, "rebuild-config", writes)
