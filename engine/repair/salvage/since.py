"""What something else than repairs has changed in a store since they began: a broker that ran, messages that came.

Of a repair that was killed nobody knows how far it came: only files that it was not to touch are held against the
listing that it made before its first change, and after the log end, and where it has lengthened a file of the log,
there may be old bytes and zeros only. A repair that resumes a killed one does so only where nothing has come
between the two: else their old bytes, restored together, would overwrite what was stored in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.errors import StorageError, StoreChanged
from engine.files.written import written
from engine.format import names
from engine.inspect.store.config_files import TEMPORARY
from engine.inspect.store.moves import Way
from engine.inspect.store.repairs import KEPT, Listing, Repair, config_places, holds, listing
from engine.repair.salvage.relocate import is_there
from engine.repair.salvage.salvage import AFTER_LOG_END_WORDS

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

_MADE_ANEW = (
    names.CONSUMEQUEUE,
    names.CONSUMEQUEUE_EXT,
    names.BATCHCONSUMEQUEUE,
    names.INDEX,
    names.CONFIG,
    names.CHECKPOINT,
)
"""Where a repair makes files that its manifest need not name. All else of a listing is the log's, or the abort file."""


def store_changed(path: str, offset: int | None = None) -> StoreChanged:
    """The error for a place that something else than a repair has changed."""
    return StoreChanged(
        "the store has changed since the repair",
        path=path,
        offset=offset,
        hint="what the repair saved can be exported or replayed: rstore salvage list",
    )


def since_killed(disk: Disk, config: StoreConfig, killed: Sequence[Repair]) -> StoreChanged | None:
    """What something else has changed since the oldest of these killed repairs of the store (oldest first) began.

    A piece that can't be read says nothing of what came after the log end: that is a change, too.
    """
    root = os.fspath(config.store_path_root_dir)
    if any("files" not in repair.manifest for repair in killed):  # of a version that made no listing
        return store_changed(killed[0].directory)
    try:
        now = listing(disk, config, config_places(piece for repair in killed for piece in repair.pieces))
        demand_unchanged(disk, root, killed[::-1], now)
    except StoreChanged as changed:
        return changed
    except StorageError as error:
        return store_changed(error.path or killed[0].directory)
    return None


def demand_unchanged(disk: Disk, root: str, chain: Sequence[Repair], now: Listing) -> None:
    """Raise StoreChanged where something else has changed the store since killed repairs of it (newest first) began.

    `now`: a listing of the store's files.
    """
    demand_nothing_between(root, chain)
    _compare_untouched(root, chain, chain[0].manifest["files"], now)
    for repair in chain:
        for piece in repair.pieces:
            if piece["why"] in AFTER_LOG_END_WORDS:
                _demand_tail(disk, root, chain, repair, piece)
        if "end" in repair.manifest:
            _demand_zeros(disk, root, chain, **repair.manifest["end"])


def demand_nothing_between(root: str, chain: Sequence[Repair]) -> None:
    """Raise StoreChanged where something else has changed the store between a killed repair and the next one.

    `chain`: newest first; all but the first were killed.
    """
    for at, repair in enumerate(chain[1:], 1):
        _compare_untouched(root, chain[at:], repair.manifest["files"], chain[at - 1].manifest["files"])


def compare(root: str, then: Listing, now: Listing) -> None:
    """Raise StoreChanged for the first file that differs between two listings."""
    for path in sorted(then.keys() | now.keys()):
        if then.get(path) != now.get(path):
            raise store_changed(os.path.join(root, path))


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


def relocated(repair: Repair) -> Iterator[dict[str, Any]]:
    """The files that a repair was to rename."""
    return (piece for piece in repair.pieces if piece["action"] == "relocate")


def way_of(root: str, piece: dict[str, Any]) -> Way:
    """The names of a file that was renamed."""
    return Way(*(os.path.join(root, piece[name]) for name in ("path", "via", "target")))


def place_now(disk: Disk, root: str, chain: Sequence[Repair], repair: Repair, piece: dict[str, Any]) -> str:
    """Where the file of a piece is now: a repair, or its undo, was killed while it renamed files.

    Without a name of its own repair it may have got one from a killed one before (`chain`: newest first).
    """
    source = piece.get("source")
    for one in chain[chain.index(repair) :]:
        for way in relocated(one):
            if (way["path"] == source) if one is repair else (not source and way["target"] == piece["path"]):
                return is_there(disk, way_of(root, way), one.directory)
    return os.path.join(root, piece["path"])


def _compare_untouched(root: str, chain: Sequence[Repair], before: Listing, now: Listing) -> None:
    """Raise StoreChanged for the first difference that none of these killed repairs was to make."""
    touched = {
        piece[name]
        for repair in chain
        for piece in repair.pieces
        for name in (("path", "target", "via") if piece["action"] == "relocate" else ("path",))
    }
    aside = (piece["path"] for repair in chain for piece in repair.pieces if piece["action"] == "move")
    moved = tuple(os.path.join(path, "") for path in aside)
    fresh = {path for path in now if path not in before and path.split(os.sep)[0] in _MADE_ANEW}
    compare(
        root,
        {path: seen for path, seen in before.items() if path not in touched and not path.startswith(moved)},
        {path: seen for path, seen in now.items() if path not in touched | fresh and not path.startswith(moved)},
    )


def _demand_tail(disk: Disk, root: str, chain: Sequence[Repair], repair: Repair, piece: dict[str, Any]) -> None:
    """After the log end a killed repair leaves old bytes and zeros: anything else are messages that came since."""
    import numpy as np

    path = place_now(disk, root, chain, repair, piece)
    if not disk.exists(path):
        return
    offset, length = int(piece["offset"]), int(piece["length"])
    saved = None if piece["file"] is None else disk.open_reader(os.path.join(repair.directory, piece["file"]))
    reader = disk.open_reader(path)
    try:
        for place, unit in written(reader, offset, min(offset + length, reader.size())):
            some, old = np.frombuffer(unit, np.uint8), np.zeros(len(unit), np.uint8)
            if saved is not None:
                kept = np.frombuffer(saved.read(place - offset, len(some)), np.uint8)
                old[: len(kept)] = kept  # fewer where the piece is not whole any more
            strange = np.flatnonzero((some != 0) & (some != old))
            if len(strange):
                raise store_changed(path, place + int(strange[0]))
    finally:
        reader.close()
        if saved is not None:
            saved.close()


def _demand_zeros(disk: Disk, root: str, chain: Sequence[Repair], path: str, offset: int) -> None:
    """The log ended here, before zeros alone, and no repair was to write after it but its own pieces."""
    pieces = [piece for repair in chain for piece in repair.pieces if piece["path"] == path]
    own = sorted((int(piece["offset"]), int(piece["offset"]) + int(piece["length"])) for piece in pieces)
    place = os.path.join(root, path)
    if not disk.exists(place):
        return
    reader = disk.open_reader(place)
    try:
        for low, high in [*own, (reader.size(), reader.size())]:
            for at, unit in written(reader, offset, max(low, offset)):
                raise store_changed(place, at + len(unit) - len(bytes(unit).lstrip(b"\0")))
            offset = max(offset, high)
    finally:
        reader.close()


def _is_theirs(disk: Disk, path: str, pieces: Sequence[dict[str, Any]]) -> bool:
    if not disk.exists(path):
        return any(piece["action"] in ("create", "move") for piece in pieces)
    entry = disk.stat(path)
    if not entry.is_file:
        return any(piece["action"] == "move" for piece in pieces)
    if any(
        piece["action"] in KEPT and piece["length"] == entry.size and holds(disk, path, 0, entry.size, piece["sha256"])
        for piece in pieces
    ):
        return True
    written_by_it = {piece["becomes"] for piece in pieces if piece.get("becomes")}
    return any(holds(disk, path, 0, entry.size, sha256) for sha256 in written_by_it)
