"""The end of a repair: what it left is written down, and the killed ones that it went on from end with it.

A repair of config/ alone (`Repair.is_config`) and one of the store neither end nor join each other: the one shows
nothing of what the other had still to do, and a broker may have committed offsets between them. A killed repair of
config/ needs no going on, as each file is replaced in one rename: whatever repair comes next closes it (`settle`). A
killed repair of the store must be ended first (`demand_none_of_store`).

A command that changes nothing ends no repair but killed ones of its own kind that had done all (`finish_swaps`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.errors import Refused
from engine.repair.config.sources import TEMPORARY
from engine.repair.finding import Fix
from engine.repair.next_step import step
from engine.repair.repairs import APPLIED, KEPT, Repair, config_places, digest, holds, listing, repairs, unfinished

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


def finish(disk: Disk, config: StoreConfig, *, whole: bool = True) -> None:
    """Write what a repair of the store left, the last thing that it does; those that it went on from end with it.

    `whole`: all old bytes were saved; else nobody can take it back.
    """
    settle(disk, config)
    open_ones = _open(disk, config, of_config=False)
    if open_ones:
        _close(disk, config, open_ones, whole=whole)
        disk.step("salvage.finished")


def settle(disk: Disk, config: StoreConfig) -> None:
    """Close what is open of repairs of config/ alone, finished or killed.

    Undo takes it back afterwards as far as nothing but these repairs has changed the store since they began.
    """
    open_ones = _open(disk, config, of_config=True)
    if open_ones:
        _close(disk, config, open_ones, whole=changed_since(disk, config, open_ones) is None)
        disk.step("salvage.settled")


def finish_swaps(disk: Disk, config: StoreConfig) -> None:
    """Close killed runs of `reindex` that had swapped in all that they were to, where nothing else is open."""
    open_ones = _open(disk, config, of_config=False)
    root = os.fspath(config.store_path_root_dir)
    if open_ones and all(one.is_reindex and _has_swapped(disk, root, one) for one in open_ones):
        _close(disk, config, open_ones, whole=True)
        disk.step("salvage.finished")


def _has_swapped(disk: Disk, root: str, repair: Repair) -> bool:
    """Whether each old file lies in its salvage directory, and each new one at its place."""
    return all(
        disk.exists(os.path.join(root, piece["path"]))
        if piece["action"] == "create"
        else disk.exists(os.path.join(repair.directory, piece["file"]))
        for piece in repair.pieces
    )


def killed_before_reindex(disk: Disk, config: StoreConfig) -> Refused | None:
    """Why `reindex` does not begin: its end would end a killed repair of another kind, which has more to do."""
    open_ones = [one for one in _open(disk, config, of_config=False) if not one.is_reindex]
    return _interrupted(config, open_ones, "queues or index are rebuilt") if open_ones else None


def begin_config(disk: Disk, config: StoreConfig) -> None:
    """Before a repair of config/: a killed one is gone on from where nothing has changed since, else closed.

    Raises Refused: a killed repair of the store must be ended first.
    """
    demand_none_of_store(disk, config)
    open_ones = _open(disk, config, of_config=True)
    if open_ones and changed_since(disk, config, open_ones) is not None:
        settle(disk, config)


def demand_none_of_store(disk: Disk, config: StoreConfig) -> None:
    """Raise Refused where a repair of the store was killed: config/ is not changed before a recovery has ended it."""
    open_ones = _open(disk, config, of_config=False)
    if open_ones:
        raise _interrupted(config, open_ones, "config/ is changed")


def _interrupted(config: StoreConfig, open_ones: Sequence[Repair], what: str) -> Refused:
    return Refused(
        f"a repair of this store was interrupted: it has to be finished before {what}",
        path=open_ones[-1].directory,
        next_step=step(config, Fix.RECOVER),
    )


def changed_since(disk: Disk, config: StoreConfig, killed: Sequence[Repair]) -> str | None:
    """The first path that something else than these killed repairs of config/ (oldest first) has changed since.

    A file of config/ may be what one of them found or what one was to write; a .tmp is a part of that.
    """
    root = os.fspath(config.store_path_root_dir)
    pieces = [piece for repair in killed for piece in repair.pieces]
    places = config_places(pieces)
    before, now = (
        {path: seen for path, seen in files.items() if path not in places}
        for files in (killed[0].manifest.get("files", {}), listing(disk, config))
    )
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            return os.path.join(root, path)
    for place in places:
        path = os.path.join(root, place)
        if not place.endswith(TEMPORARY) and not _is_theirs(disk, path, [p for p in pieces if p["path"] == place]):
            return path
    return None


def _is_theirs(disk: Disk, path: str, pieces: Sequence[dict[str, Any]]) -> bool:
    if not disk.exists(path):
        return any(piece["action"] in ("create", "move") for piece in pieces)
    found = disk.stat(path)
    if not found.is_file:
        return any(piece["action"] == "move" for piece in pieces)
    if any(
        piece["action"] in KEPT and piece["length"] == found.size and holds(disk, path, 0, found.size, piece["sha256"])
        for piece in pieces
    ):
        return True
    written = {piece["becomes"] for piece in pieces if piece.get("becomes")}
    return any(holds(disk, path, 0, found.size, sha256) for sha256 in written)


def _open(disk: Disk, config: StoreConfig, *, of_config: bool) -> list[Repair]:
    found = unfinished(repairs(disk, os.fspath(config.store_path_root_dir)))
    return [repair for repair in found if repair.is_config == of_config]


def _close(disk: Disk, config: StoreConfig, open_ones: Sequence[Repair], *, whole: bool) -> None:
    pieces = [piece for repair in open_ones for piece in repair.pieces]
    left = _left(disk, config, pieces) if whole else {"version": 1, "files": {}, "ranges": []}
    disk.write_file_atomically(os.path.join(open_ones[-1].directory, APPLIED), json.dumps(left, indent=1).encode())


def _left(disk: Disk, config: StoreConfig, pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    root = os.fspath(config.store_path_root_dir)
    ranges = []
    for piece in pieces:
        path = os.path.join(root, piece["path"])
        if piece["action"] == "overwrite" and disk.exists(path):
            sha256 = digest(disk, path, piece["offset"], piece["length"])
            ranges.append({k: piece[k] for k in ("path", "offset", "length")} | {"sha256": sha256})
    return {"version": 1, "files": listing(disk, config, config_places(pieces)), "ranges": ranges}
