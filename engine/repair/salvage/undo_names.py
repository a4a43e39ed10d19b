"""What of a repair is no bytes, and is taken back all the same: links, modes, directories, and what was set aside.

A repair's manifest names the directories that were not there (`made`), and of each file that it removes the mode and,
for a link, where it led. A link is made again where what it led to is still what was removed; else its bytes come back
as a file. Directories that came into being go when nothing is in them; what was set aside comes back last, as its place
may be that of a file or directory that the repair has made.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.errors import StoreChanged
from engine.files.listing import Oddness
from engine.format import names
from engine.inspect.store.odd import AFTER_GAP_WORDS
from engine.inspect.store.repairs import holds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.inspect.store.repairs import Listing, Repair
    from engine.repair.salvage.salvage import Saved


def missing_directories(disk: Disk, root: str, pieces: Iterable[Saved]) -> list[str]:
    """Directories below the store's that the repair may make: relative, those that hold others first."""
    wanted = {names.INDEX}
    for piece in pieces:
        for path in (piece.path, piece.target):
            place = os.path.dirname(path)
            if place and not os.path.isabs(place):
                wanted.add(place)
                first, _, rest = place.partition(os.sep)
                if first == names.CONSUMEQUEUE and rest:
                    wanted.add(os.path.join(names.CONSUMEQUEUE_EXT, rest))
    missing = set()
    for directory in wanted:
        place = directory
        while place and place not in missing and not disk.is_dir(os.path.join(root, place)):
            missing.add(place)
            place = os.path.dirname(place)
    return sorted(missing)


def is_made_since(piece: dict[str, Any], repair: Repair, undone: Sequence[Repair]) -> bool:
    """Whether what a repair set aside is an empty file that a killed repair before it had made: it isn't brought back.

    `undone`: the repairs that are undone, newest first. The oldest listed all files before its first change.
    """
    before: Listing = undone[-1].manifest["files"]
    empty = piece["action"] == "move" and piece["why"] in (Oddness.EMPTY.value, *AFTER_GAP_WORDS)
    return empty and repair is not undone[-1] and piece["path"] not in before


def moved_back(disk: Disk, root: str, undone: Sequence[Repair]) -> frozenset[str]:
    """Places of what was set aside and is no longer: an undo that was killed has brought it back."""
    return frozenset(
        piece["path"]
        for repair in undone
        for piece in repair.pieces
        if piece["action"] == "move"
        and not is_made_since(piece, repair, undone)
        and disk.look(os.path.join(root, piece["target"])) is None
    )


def is_aside(disk: Disk, root: str, piece: dict[str, Any]) -> bool:
    """What was to be set aside may still be at its place, or be there again (a repair or undo was killed)."""
    places = [os.path.join(root, piece["target"]), os.path.join(root, piece["path"])]
    aside = next((entry for path in places if (entry := disk.look(path)) is not None), None)
    return aside is not None and (not _is_plain(disk, aside) or aside.size == piece["length"])


def _is_plain(disk: Disk, entry: Entry) -> bool:
    """Whether its size says something: a link's that was moved is that of something else, or of nothing."""
    return entry.is_file and not disk.link_of(entry.path)


def bring_back(disk: Disk, root: str, undone: Sequence[Repair]) -> None:
    """Move what was set aside back to its place, newest first; directories that the repairs made go before and after.

    Raises:
        StoreChanged: something that no repair has made is in its place. StorageError.
    """
    _remove_made(disk, root, undone)
    for repair in undone:
        for piece in reversed(repair.pieces):
            if piece["action"] != "move":
                continue
            disk.step("undo.move")
            path, target = os.path.join(root, piece["path"]), os.path.join(root, piece["target"])
            aside = disk.look(target)
            if aside is None:
                continue
            if is_made_since(piece, repair, undone):
                disk.unlink(target)
                disk.sync_dir(os.path.dirname(target))
                continue
            place = disk.look(path)
            if place is not None and place.is_directory and not disk.remove_dir(path):
                raise StoreChanged(
                    "the store has changed since the repair: there is a directory in its place", path=path
                )
            if place is not None and not place.is_directory and aside.is_directory:
                disk.unlink(path)
            disk.mkdirs(os.path.dirname(path))
            disk.replace(target, path)
            disk.sync_dir(os.path.dirname(path))
            disk.sync_dir(os.path.dirname(target))
    _remove_made(disk, root, undone)


def bring_back_homes(disk: Disk, root: str, undone: Sequence[Repair], homes: Collection[str]) -> None:
    """Move directories back that were set aside once files of the log had been taken out: these come back into them.

    Raises StorageError.
    """
    for piece in (piece for repair in undone for piece in reversed(repair.pieces)):
        if piece["action"] != "move" or piece["path"] not in homes:
            continue
        path, target = os.path.join(root, piece["path"]), os.path.join(root, piece["target"])
        if disk.look(target) is not None and disk.look(path) is None:
            disk.step("undo.move")
            disk.replace(target, path)
            disk.sync_dir(os.path.dirname(path))
            disk.sync_dir(os.path.dirname(target))


def _remove_made(disk: Disk, root: str, undone: Iterable[Repair]) -> None:
    made = {place for repair in undone for place in repair.manifest.get("made", ())}
    for place in sorted(made, key=lambda place: place.count(os.sep), reverse=True):
        path = os.path.join(root, place)
        entry = disk.look(path)
        if entry is not None and entry.is_directory and not disk.link_of(path) and disk.remove_dir(path):
            disk.sync_dir(os.path.dirname(path))


def link_again(disk: Disk, path: str, piece: dict[str, Any]) -> bool:
    """Make the link that a repair removed, where what it led to is still what it was; whether it is there then."""
    target = piece.get("link", "")
    if not target or not link_holds(disk, path, piece):
        return False
    if disk.link_of(path) != target:
        if disk.look(path) is not None:
            disk.unlink(path)
        disk.link(target, path)
        disk.sync_dir(os.path.dirname(path))
    return True


def link_holds(disk: Disk, path: str, piece: dict[str, Any]) -> bool:
    """Whether what the link of a removed file led to is there, with its bytes."""
    target = piece.get("link", "")
    place = os.path.join(os.path.dirname(path), target)
    entry = disk.look(place) if target else None
    length = int(piece["length"])
    return (
        entry is not None and entry.is_file and entry.size == length and holds(disk, place, 0, length, piece["sha256"])
    )
