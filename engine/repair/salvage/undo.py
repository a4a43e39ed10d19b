"""Takes the last repair back, byte for byte, from what it saved in `salvage/`.

A repair that was killed is taken back together with the one that resumed it: their old bytes are restored in
reverse order, so that the oldest win. Every step can be done twice: an undo that is killed (`undoing.json` is there
then) is run again, and does all of it again.

It refuses when anything else has changed the store since (since.py). A finished repair left a listing of every file
(size and modification time) and the digest of each place that it changed: all of it must still be so. Of config/ only
those files are part of it that the repair has changed.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair
from engine.files.operations import Touch
from engine.format import names
from engine.inspect.store.odd import demand_present, demand_saved
from engine.inspect.store.repairs import (
    KEPT,
    UNDOING,
    UNDONE,
    Listing,
    Repair,
    config_places,
    holds,
    is_apart,
    listing,
    repairs,
)
from engine.inspect.store.survey import surveyed
from engine.repair.salvage.forged import demand_plausible
from engine.repair.salvage.relocate import is_there, put_back
from engine.repair.salvage.since import (
    changed_since,
    compare,
    demand_nothing_between,
    demand_unchanged,
    place_now,
    relocated,
    store_changed,
    way_of,
)
from engine.repair.salvage.undo_names import (
    bring_back,
    bring_back_homes,
    is_aside,
    is_made_since,
    link_again,
    link_holds,
    moved_back,
)
from engine.repair.trees import zero_range

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What an undo does. `repairs`: newest first; `before`: the files as the oldest of them found them.

    `created`: files that came into being since, and go. `resumed`: an undo was killed, this one ends it.
    `config`: the store's settings.
    """

    root: str
    repairs: tuple[Repair, ...]
    before: Listing
    created: tuple[str, ...]
    resumed: bool
    config: StoreConfig

    @property
    def bytes_restored(self) -> int:
        """Bytes that are written back."""
        return sum(
            int(piece["length"]) for repair in self.repairs for piece in repair.pieces if piece["action"] in KEPT
        )

    def to_json(self, *, done: bool) -> dict[str, Any]:
        """The JSON of `rstore undo`."""
        pieces = [
            piece
            for repair in self.repairs
            for piece in repair.pieces
            if not is_made_since(piece, repair, self.repairs)
        ]
        return {
            "undoes": [repair.name for repair in self.repairs],
            "resumed": self.resumed,
            "bytesRestored": self.bytes_restored,
            "filesRestored": sorted({p.get("source") or p["path"] for p in pieces if p["action"] in _RESTORED}),
            "filesRemoved": list(self.created),
            "changed": True,
            "done": done,
        }


_RESTORED = (*KEPT, "move", "relocate")


def plan_undo(disk: Disk, store: StoreConfig | StoreFiles) -> UndoPlan:
    """What taking back the last repair does; writes nothing. `store`: its survey, or the settings that name it.

    Raises:
        CannotRepair: there is no repair to take back, or what it saved is no longer there.
        StoreChanged: the store is not as the repair left it. DataIsAbsent: a disk is not mounted.
    """
    files = surveyed(disk, store)
    demand_present(files.odd)
    config, root = files.config, files.root
    demand_saved(disk, root)
    chain = _chain(repairs(disk, root))
    if not chain:
        raise CannotRepair(
            "no repair to undo", path=os.path.join(root, names.SALVAGE), hint="rstore undo --list lists all repairs"
        )
    if "files" not in chain[-1].manifest:
        raise CannotRepair("this repair was made by a version whose repairs can't be undone", path=chain[-1].directory)
    pruned = next((repair for repair in chain if repair.pruned), None)
    if pruned is not None:
        raise CannotRepair(
            "the salvage of this repair was pruned (rstore salvage prune): it can't be undone any more",
            path=pruned.directory,
        )
    for repair in chain:
        demand_plausible(disk, config, repair)
        for path in {piece[name] for piece in repair.pieces for name in ("path", "target", "via") if piece.get(name)}:
            disk.demand_inside(os.path.join(root, path))
        for piece in (piece for piece in repair.pieces if piece["action"] == "overwrite"):
            disk.demand_inside(place_now(disk, root, chain, repair, piece), Touch.BYTES)
    _check_saved(disk, root, chain)
    now = listing(disk, config, config_places(piece for repair in chain for piece in repair.pieces))
    resumed = any(repair.undoing for repair in chain)
    if not resumed:
        _check_unchanged(disk, config, root, chain, now)
    before: Listing = chain[-1].manifest["files"]
    named = {piece["path"] for repair in chain for piece in repair.pieces if piece["action"] == "create"}
    renamed = {piece[name] for repair in chain for piece in relocated(repair) for name in ("target", "via")}
    new = (path for path in now if path not in before and path not in renamed and not _was_config(path, chain))
    created = tuple(sorted(path for path in new if not _is_stray(path, chain, named)))
    return UndoPlan(root, tuple(chain), before, created, resumed, config)


def undo(disk: Disk, plan: UndoPlan) -> None:
    """Do what the plan says. The caller holds the store's lock. Killed at any point: plan and run it again.

    Raises:
        StorageError, DiskFull: run it again. CannotRepair: a restored place is not what it was.
    """
    for repair in plan.repairs:
        disk.write_file_atomically(os.path.join(repair.directory, UNDOING), b"{}")
    disk.step("undo.begun")
    back = moved_back(disk, plan.root, plan.repairs)
    homes = {os.path.dirname(piece["path"]) for repair in plan.repairs for piece in relocated(repair)}
    bring_back_homes(disk, plan.root, plan.repairs, homes)
    for repair in plan.repairs:
        for piece in reversed(repair.pieces):
            if piece["action"] != "move" and not (piece["action"] == "create" and piece["path"] in back):
                disk.step(f"undo.{piece['action']}")
                _restore(disk, plan, repair, piece)
    for path in plan.created:
        disk.step("undo.created")
        _remove(disk, os.path.join(plan.root, path), plan.repairs)
    bring_back(disk, plan.root, plan.repairs)
    _remove(disk, os.path.join(plan.root, f"{names.CHECKPOINT}.tmp"), plan.repairs)  # of a repair that was killed
    _check_restored(disk, plan)
    _set_times(disk, plan)
    for repair in plan.repairs:  # the oldest last: killed in between, the rest is done again, with its old bytes
        disk.step("undo.end")
        disk.write_file_atomically(os.path.join(repair.directory, UNDONE), b"{}")


def _chain(done: list[Repair]) -> list[Repair]:
    """The last repair, newest first with the killed ones of its kind (`Repair.is_config`) that it resumed."""
    chain: list[Repair] = []
    for repair in reversed([one for one in done if not one.undone]):
        if chain and (repair.applied is not None or repair.is_config != chain[0].is_config):
            break
        chain.append(repair)
    return chain


# --- whether it may ---------------------------------------------------------------------------------------------------


def _check_saved(disk: Disk, root: str, chain: list[Repair]) -> None:
    later: set[str] = set()
    for repair in chain:
        for piece in repair.pieces:
            if is_made_since(piece, repair, chain):
                continue
            if piece["action"] == "move" and not is_aside(disk, root, piece):
                path = os.path.join(root, piece["target"])
                raise CannotRepair("a file that the repair moved to quarantine/ is missing", path=path)
            if piece["file"] is not None and not _is_saved(disk, root, repair, piece, later):
                path = os.path.join(repair.directory, piece["file"])
                raise CannotRepair("saved piece is corrupt (SHA-256 mismatch)", path=path)
        later |= {piece["path"] for piece in repair.pieces if piece["action"] in KEPT}

    newest = next((at for at, repair in enumerate(chain) if next(relocated(repair), None)), None)
    if newest is not None:  # a repair before it knows older names
        repair = chain[newest]
        since = (piece for one in chain[: newest + 1] for piece in one.pieces)
        removed = {piece["path"] for piece in since if piece["action"] == "remove"}  # restored before
        for way in (way_of(root, piece) for piece in relocated(repair) if piece["target"] not in removed):
            if not disk.exists(is_there(disk, way, repair.directory)):
                raise CannotRepair("a file that the repair renamed is missing", path=way.new)


def _is_saved(disk: Disk, root: str, repair: Repair, piece: dict[str, Any], later: Container[str]) -> bool:
    """A file that is to be renamed may still have its old name, when the repair was killed before.

    `later`: the files that the repairs which resumed it have changed. These hold what one of them was before.
    """
    places = [os.path.join(repair.directory, piece["file"])]
    if piece["action"] == "rename" and not disk.exists(places[0]):
        if piece["path"] in later:
            return True
        places = [os.path.join(root, piece["path"])]
    if piece["action"] == "rename" and link_holds(disk, os.path.join(root, piece["path"]), piece):
        return True
    length = int(piece["length"])  # the digest leaves zeros at the end out
    return all(
        disk.exists(path) and disk.stat(path).size >= length and holds(disk, path, 0, length, piece["sha256"])
        for path in places
    )


def _check_unchanged(disk: Disk, config: StoreConfig, root: str, chain: list[Repair], now: Listing) -> None:
    applied = chain[0].applied
    if applied is not None:
        compare(root, applied["files"], now)
        for place in applied["ranges"]:
            path = os.path.join(root, place["path"])
            if not holds(disk, path, place["offset"], place["length"], place["sha256"]):
                raise store_changed(path, int(place["offset"]))
        if not chain[0].is_config:
            demand_nothing_between(root, chain)
    elif not chain[0].is_config:
        demand_unchanged(disk, root, chain, now)
    elif (changed := changed_since(disk, config, chain[::-1])) is not None:
        raise store_changed(changed)


def _was_config(path: str, chain: list[Repair]) -> bool:
    """Whether a file of config/ was there before the first repair that changed it: only those that do list it."""
    for repair in reversed(chain):
        if path in config_places(repair.pieces):
            return path in repair.manifest["files"]
    return False


def _is_stray(path: str, chain: list[Repair], named: set[str]) -> bool:
    """A file that is there, but was set aside by the repair and is back already (an undo that was killed)."""
    moved = {
        piece["path"]
        for repair in chain
        for piece in repair.pieces
        if piece["action"] == "move" and not is_made_since(piece, repair, chain)
    }
    return path in moved - named


# --- doing it ---------------------------------------------------------------------------------------------------------


def _restore(disk: Disk, plan: UndoPlan, repair: Repair, piece: dict[str, Any]) -> None:
    path = place_now(disk, plan.root, plan.repairs, repair, piece)
    if piece["action"] in KEPT and disk.look(path) is None and _is_new(plan, piece):
        return
    match piece["action"]:
        case "relocate":
            if piece == next(relocated(repair)):  # the first of them: those after it have left their places, too
                put_back(disk, [way_of(plan.root, one) for one in relocated(repair)], repair.directory)
        case "overwrite":
            _write_back(disk, plan, repair, piece, path)
        case "remove":
            _make_again(disk, repair, piece, path)
        case "rename":
            if disk.look(os.path.join(repair.directory, piece["file"])) is not None:
                _make_again(disk, repair, piece, path)
        case _:
            if piece["path"] not in plan.before:
                _remove(disk, path, plan.repairs)


def _is_new(plan: UndoPlan, piece: dict[str, Any]) -> bool:
    """Whether a killed repair had made the file that the next one changed: gone, it stays gone.

    Of config/, timer and epochs the oldest listing names only the files that its repair changes.
    """
    name = piece.get("source") or piece["path"]
    renamed = (one[way] for repair in plan.repairs for one in relocated(repair) for way in ("path", "target", "via"))
    return name not in plan.before and not is_apart(name) and name not in renamed


def _write_back(disk: Disk, plan: UndoPlan, repair: Repair, piece: dict[str, Any], path: str) -> None:
    offset, length = int(piece["offset"]), int(piece["length"])
    file = disk.open_raw(path, writable=True, create=True)
    try:
        before: Listing = repair.manifest.get("files", plan.before)
        size = before.get(piece.get("source") or piece["path"], [file.size()])[0]
        if file.size() != size:
            file.set_size(size)
    finally:
        file.close()
    if piece["file"] is not None:
        disk.copy_range(os.path.join(repair.directory, piece["file"]), 0, length, path, offset)
        return
    if length:  # else the file ended before it
        zero_range(disk, path, offset, length)


def _make_again(disk: Disk, repair: Repair, piece: dict[str, Any], path: str) -> None:
    disk.mkdirs(os.path.dirname(path))
    if link_again(disk, path, piece):
        return
    if disk.look(path) is not None:
        disk.unlink(path)
    if piece["file"] is not None:
        disk.copy_file(os.path.join(repair.directory, piece["file"]), path)
    else:
        file = disk.open_raw(path, new=True)
        try:
            file.set_size(int(piece["length"]))
            file.sync(0, int(piece["length"]))
        finally:
            file.close()
        disk.sync_dir(os.path.dirname(path))
    if piece.get("mode"):
        disk.set_mode(path, int(piece["mode"]) & 0o777)


def _remove(disk: Disk, path: str, chain: Sequence[Repair]) -> None:
    """Remove a file; a directory, if it is empty.

    Of a repair that didn't name the directories that it made, also those of a queue that holds no other file.
    """
    if disk.is_dir(path):
        if disk.remove_dir(path):
            disk.sync_dir(os.path.dirname(path))
    elif disk.exists(path):
        disk.unlink(path)
        directory = os.path.dirname(path)
        disk.sync_dir(directory)
        listed = all("made" in repair.manifest for repair in chain)
        if not listed and names.CONSUMEQUEUE in path and disk.remove_dir(directory):
            disk.remove_dir(os.path.dirname(directory))


def _check_restored(disk: Disk, plan: UndoPlan) -> None:
    """The oldest repair's pieces are what it found, and every file has its old length."""
    for piece in plan.repairs[-1].pieces:
        if piece["action"] in KEPT:
            path = os.path.join(plan.root, piece.get("source") or piece["path"])
            if not holds(disk, path, int(piece["offset"]), int(piece["length"]), piece["sha256"]):
                raise CannotRepair(
                    "the restored file differs from the saved one", path=path, offset=int(piece["offset"])
                )
    for path, (size, _) in _sizes(plan):
        if disk.stat(path).size != size:
            raise CannotRepair(f"the restored file does not have {size} bytes", path=path)


def _set_times(disk: Disk, plan: UndoPlan) -> None:
    """As before, too: retention goes by them, and so does taking back the repair before this one."""
    for path, seen in plan.before.items():
        place = os.path.join(plan.root, path)
        if disk.stat(place).mtime_ns != seen[1]:
            disk.step("undo.time")
            disk.set_modified(place, seen[1])


def _sizes(plan: UndoPlan) -> Iterator[tuple[str, list[int]]]:
    return ((os.path.join(plan.root, path), seen) for path, seen in plan.before.items())
