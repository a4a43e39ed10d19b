"""The end of a repair: what it left is written down, and the killed ones that it resumed end with it.

A repair of config/ alone (`Repair.is_config`) and one of the store neither end nor join each other: the one shows
nothing of what the other had still to do, and a broker may have committed offsets between them. A killed repair of
config/ needs no resuming, as each file is replaced in one rename: whatever repair comes next closes it (`settle`). A
killed repair of the store must be ended first (`demand_none_of_store`).

A killed repair of the store after which a broker ran ends before the next one changes anything (`parted`, `part`):
taking both back would overwrite what the broker stored.

A command that changes nothing ends no repair but killed ones of its own kind that had done all (`finish_swaps`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.errors import Refused
from engine.inspect.finding_codes import Fix
from engine.inspect.next_step import step
from engine.inspect.store.repairs import APPLIED, Repair, config_places, digest, listing, repairs, unfinished
from engine.repair.salvage.since import changed_since, since_killed

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


def finish(disk: Disk, config: StoreConfig, *, whole: bool = True) -> None:
    """Write what a repair of the store left, the last thing that it does; those that it resumed end with it.

    `whole`: all old bytes were saved; else nobody can take it back.
    """
    killed = _killed(disk, config)
    if any(repair.is_config for repair in killed):
        settle(disk, config)
        killed = _killed(disk, config)
    open_ones = [repair for repair in killed if not repair.is_config]
    if open_ones:
        _close(disk, config, open_ones, whole=whole)
        disk.step("salvage.finished")


def parted(disk: Disk, config: StoreConfig) -> tuple[Repair, ...]:
    """The killed repairs of the store, where something else (a broker) has changed it since: nobody takes them back.

    Asked before the next repair changes anything. Raises nothing: what can't be read can't be taken back either.
    """
    killed = _open(disk, config, of_config=False)
    return tuple(killed) if killed and since_killed(disk, config, killed) is not None else ()


def part(disk: Disk, config: StoreConfig, killed: Sequence[Repair]) -> None:
    """Close these (`parted`), once the manifest of the next repair is there: undo takes that one back alone."""
    if killed:
        _close(disk, config, killed, whole=False)
        disk.step("salvage.parted")


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
        _close(disk, config, open_ones, whole=since_killed(disk, config, open_ones) is None)
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
    """Before a repair of config/: a killed one is resumed where nothing has changed since, else closed.

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
        f"a repair of this store was interrupted: it must be finished before {what}",
        path=open_ones[-1].directory,
        next_step=step(config, Fix.RECOVER),
    )


def _open(disk: Disk, config: StoreConfig, *, of_config: bool) -> list[Repair]:
    return [repair for repair in _killed(disk, config) if repair.is_config == of_config]


def _killed(disk: Disk, config: StoreConfig) -> list[Repair]:
    return unfinished(repairs(disk, os.fspath(config.store_path_root_dir)))


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
