"""What a repair is about to remove or overwrite, copied first: `<store>/salvage/<UTC time>-<command>/`.

Each piece is a file of its own beside `manifest.json`, which says what it was, where from, why, and its SHA-256. Copies
and manifest are synced before the first byte of the store changes. The copy costs only what changes: holes are not
read, zeros are noted and not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import DiskFull, InvalidArgument, NoSpaceToSave, StorageError
from engine.files.directories import PRIVATE
from engine.files.written import BLOCK, blocks, blocks_taken, data_ranges
from engine.format import names
from engine.inspect.next_step import bring, command_line
from engine.inspect.store.repairs import (
    MANIFEST,
    OF_ZEROS,
    Listing,
    config_places,
    digest,
    listing,
    relative,
    repairs,
)
from engine.repair.salvage.undo_names import missing_directories
from engine.repair.salvage.unsaved import unsaved
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk

VERSION = 1
AFTER_LOG_END = "after the log end"
AFTER_LOG_END_WORDS = (AFTER_LOG_END, "behind the log's end")
"""Why a piece of the log is saved, in manifests of this version and of earlier ones: undo looks there for messages
that were stored since.
"""
_NOT_COPIED = ("create", "move", "relocate")
_RANGES = 256
"""Ranges between holes of a file that the file system (ext4, XFS) notes in one more block; a single one takes none."""
_PIECE_NOTE = 512
"""Bytes of a manifest that one piece takes, and of what is written when all is done."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [offset, offset + length) of a store file that a repair changes.

    `action`: "overwrite" (the file stays), "remove" (the whole file goes), "create" (there was no file), "move"
    (to quarantine, as `target`), "rename" (into the salvage directory, instead of a copy) or "relocate" (to `target`,
    by way of the name `via`). `source`: where the bytes are before the repair, when that is another file. `becomes`: of
    a file in config/, the SHA-256 of what it gets (hex).
    """

    action: str
    path: str
    offset: int
    length: int
    why: str
    target: str = ""
    via: str = ""
    source: str = ""
    becomes: str = ""

    @property
    def now(self) -> str:
        """Where its bytes are before the repair."""
        return self.source or self.path


@dataclass(frozen=True, slots=True)
class Saved:
    """A piece in the salvage directory: `file` is None when it was all zeros.

    `sha256`: as `engine.inspect.store.repairs.digest` gives it. Of a file that goes: `link`, where it led when it was a
    link, and `mode`, its permission bits. `becomes`: as `Piece` has it.
    """

    action: str
    path: str
    offset: int
    length: int
    why: str
    file: str | None
    sha256: str
    target: str = ""
    via: str = ""
    source: str = ""
    link: str = ""
    mode: int = 0
    becomes: str = ""


def save(
    disk: Disk,
    config: StoreConfig,
    command: str,
    pieces: Sequence[Piece],
    *,
    accepted: Sequence[tuple[int, int]] = (),
    bridged: Sequence[tuple[int, int]] = (),
    healed: Sequence[tuple[int, int]] = (),
    end: tuple[str, int] | None = None,
    into: str | None = None,
    making: Mapping[str, int] | None = None,
    again: Sequence[str] = (),
) -> str:
    """Copy the pieces and write the manifest, durably.

    `accepted`: lost ranges of the log (physical offset, length) that the operator chose to continue after; later
    starts know them from here. `bridged`: ranges that get inert content. `healed`: ranges that get their
    records back. `end`: the log file, and the position in
    it, after which there were zeros alone and no piece lies: what is written there came since. `into`: a
    directory outside of the store, which takes what is saved; salvage/ in the store then has a link to it. `making`:
    what the repair takes itself afterwards (engine.repair.recover.space_needed). `again`: words of the command that
    does the same once more, where that takes --salvage-dir.

    Returns:
        the directory, below the store's salvage/.

    Raises:
        NoSpaceToSave: the file system has no space for them. InvalidArgument: `into` is in the store. StorageError:
        reading or writing failed. Nothing is left behind.
    """
    root = os.fspath(config.store_path_root_dir)
    places = (relative(root, piece.path) for piece in pieces)
    files = listing(disk, config, config_places({"path": place} for place in places))
    _demand_space(disk, config, pieces, files, into, making or {}, again)
    directory = new_directory(disk, root, command, into)
    try:
        saved = []
        for number, piece in enumerate(pieces, 1):
            sha256 = "" if piece.action in _NOT_COPIED else _digest_of(disk, config, piece, again, into)
            saved.append(_save_piece(disk, root, directory, number, piece, sha256))
        disk.step("salvage.copied")
        place = None if end is None else (relative(root, end[0]), end[1])
        write_manifest(
            disk, directory, command, files, saved, accepted=accepted, bridged=bridged, healed=healed, end=place
        )
        disk.step("salvage.written")
    except StorageError as error:
        if not _taken_away(disk, directory):
            error.hint = "; ".join(filter(None, [error.hint, f"{directory} contains an incomplete copy: remove it"]))
        raise
    return directory


def _taken_away(disk: Disk, directory: str) -> bool:
    """Remove what was begun: the manifest first, so that nobody takes the rest for a repair."""
    try:
        disk.unlink(os.path.join(directory, MANIFEST), missing_ok=True)
        remove_tree(disk, disk.behind_link(directory))
        if disk.link_of(directory):
            disk.unlink(directory)
    except StorageError:
        return False
    return True


def write_manifest(
    disk: Disk,
    directory: str,
    command: str,
    files: Listing,
    pieces: Sequence[Saved],
    *,
    accepted: Sequence[tuple[int, int]] = (),
    bridged: Sequence[tuple[int, int]] = (),
    healed: Sequence[tuple[int, int]] = (),
    end: tuple[str, int] | None = None,
) -> None:
    """Write the manifest of a salvage directory, durably. `files`: the store's, listed before the first change."""
    root = os.path.dirname(os.path.dirname(directory))
    known = [repair.manifest.get("number", 0) for repair in repairs(disk, root)]
    number = 1 + max(*known, len(disk.listdir(os.path.dirname(directory))), 0)  # some may be on a disk that is away
    manifest = {
        "version": VERSION,
        "number": number,
        "command": command,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(disk.now_ms() / 1000)),
        "pieces": [asdict(one) for one in pieces],
        "accepted": [{"offset": offset, "length": length} for offset, length in accepted],
        "bridged": [{"offset": offset, "length": length} for offset, length in bridged],
        **({"healed": [{"offset": offset, "length": length} for offset, length in healed]} if healed else {}),
        "made": missing_directories(disk, root, pieces),
        **({} if end is None else {"end": {"path": end[0], "offset": end[1]}}),
        "files": files,
    }
    disk.write_file_atomically(os.path.join(directory, MANIFEST), json.dumps(manifest, indent=1).encode())
    disk.sync_dir(directory)
    disk.sync_dir(os.path.dirname(directory))


def new_directory(disk: Disk, root: str, command: str, into: str | None = None) -> str:
    """Make the salvage directory of a command that begins now; with `into`, a link to a new one below that.

    Where the store's file system has no block left for salvage/ itself, that is the link.

    Raises:
        InvalidArgument: `into` lies in the store. StorageError.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(disk.now_ms() / 1000))
    top = os.path.join(root, names.SALVAGE)
    base = os.path.join(top, f"{stamp}-{command}")
    directory, n = base, 1
    while disk.exists(directory):
        n += 1
        directory = f"{base}-{n}"
    if into is None:
        disk.mkdirs(directory, mode=PRIVATE)
        return directory
    place = _outside(disk, root, into)
    try:
        disk.mkdirs(top, mode=PRIVATE)
    except DiskFull:
        disk.mkdirs(place, mode=PRIVATE)
        disk.make_link(top, place)
        disk.mkdirs(directory, mode=PRIVATE)
        return directory
    target = os.path.join(place, os.path.basename(directory))
    disk.mkdirs(target, mode=PRIVATE)
    disk.make_link(directory, target)
    return directory


def _outside(disk: Disk, root: str, into: str) -> str:
    """The directory for this store below `into`: many stores may have theirs there. Raises InvalidArgument."""
    store, place = disk.behind_link(root), disk.behind_link(into)
    if os.path.commonpath([store, place]) == store:
        raise InvalidArgument("--salvage-dir must be outside of the store", path=into)
    digest = hashlib.sha256(os.fsencode(store)).hexdigest()[:8]
    return os.path.join(place, f"{os.path.basename(store)}-{digest}")


def _demand_space(
    disk: Disk,
    config: StoreConfig,
    pieces: Sequence[Piece],
    files: Listing,
    into: str | None,
    making: Mapping[str, int],
    again: Sequence[str],
) -> None:
    """Raise NoSpaceToSave unless file systems take what is saved (data, notes, blocks that are begun), and is made."""
    root = os.fspath(config.store_path_root_dir)
    place = root if into is None else disk.nearest(_outside(disk, root, into))
    here = disk.device(place)
    made = sum(count for path, count in making.items() if disk.device(path) == here)
    demand_space_needed(disk, {path: count for path, count in making.items() if disk.device(path) != here})
    free = disk.writable(place)
    usable = free - made
    notes = 2 * len(json.dumps(files, indent=1)) + _PIECE_NOTE * len(pieces) + 6 * BLOCK
    if notes + sum(_bytes_to_copy(disk, piece, look=False) for piece in pieces) <= usable:
        return
    # zeros that have blocks are not kept either
    needed = notes + sum(_bytes_to_copy(disk, piece, look=True) for piece in pieces)
    if needed <= usable:
        return
    saves = command_line(config, *again, "--salvage-dir", "DIR")
    helps = again and into is None and usable >= 0
    advice = f"free space, or save on another disk: {saves}" if helps else "free space"
    also = f", and {made} bytes for the files that it writes" if made else ""
    raise NoSpaceToSave(
        f"saving what the repair changes needs {needed} bytes{also}, {free} are free",
        path=place,
        next_step=bring(advice),
    )


def demand_space_needed(disk: Disk, making: Mapping[str, int]) -> None:
    """Raise NoSpaceToSave unless disks have the space that a repair takes (engine.repair.recover.space_needed)."""
    for path, count in making.items():
        free = disk.writable(path)
        if count > free:
            raise NoSpaceToSave(
                f"the files that the repair writes need {count} bytes, {free} are free",
                path=path,
                next_step=bring("free space"),
            )


def _bytes_to_copy(disk: Disk, piece: Piece, *, look: bool) -> int:
    """Bytes of the blocks that a copy of a piece takes at most. With `look` it is read: those that it takes."""
    if piece.action in _NOT_COPIED:
        return 0
    reader = disk.open_reader(piece.now)
    try:
        end = min(piece.offset + piece.length, reader.size())
        runs = data_ranges(reader, piece.offset, end)
        if look:
            runs = ((at, at + len(run)) for at, run in blocks(reader, piece.offset, end, shift=-piece.offset))
        ranges = [(low - piece.offset, high - piece.offset) for low, high in runs]
        return blocks_taken(ranges) + (-(-len(ranges) // _RANGES) * BLOCK if len(ranges) > 1 else 0)
    finally:
        reader.close()


def _digest_of(disk: Disk, config: StoreConfig, piece: Piece, again: Sequence[str], into: str | None) -> str:
    """`digest` of a piece. It reads all that a copy does: an I/O error of the disk is met here."""
    try:
        return digest(disk, piece.now, piece.offset, piece.length)
    except StorageError as error:
        raise unsaved(error, config, again, into) from None


def _save_piece(disk: Disk, root: str, directory: str, number: int, piece: Piece, sha256: str) -> Saved:
    place, target, via, source = (
        relative(root, path) if path else "" for path in (piece.path, piece.target, piece.via, piece.source)
    )
    if piece.action in _NOT_COPIED:
        return Saved(
            piece.action, place, piece.offset, piece.length, piece.why, None, "", target, via, becomes=piece.becomes
        )
    name = f"{number:04d}-{os.path.basename(piece.path)}"
    copy = os.path.join(directory, name)
    length = max(0, min(piece.length, disk.stat(piece.now).size - piece.offset))
    file = None if sha256 == OF_ZEROS else name
    if file is not None:
        disk.copy_file(piece.now, copy, offset=piece.offset, length=length)
    saved = Saved(piece.action, place, piece.offset, length, piece.why, file, sha256, target, source=source)
    saved = replace(saved, becomes=piece.becomes)
    return saved if piece.action == "overwrite" else goes(disk, piece.now, saved)


def goes(disk: Disk, path: str, saved: Saved) -> Saved:
    """With what a file that goes is beside its bytes."""
    return replace(saved, link=disk.link_of(path), mode=disk.mode(path))
