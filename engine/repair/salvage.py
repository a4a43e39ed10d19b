"""What a repair is about to remove or overwrite, copied first: `<store>/salvage/<UTC time>-<command>/`.

Each piece is a file of its own beside `manifest.json`, which says what it was, where from, why, and its SHA-256. Copies
and manifest are synced before the first byte of the store changes. The copy costs only what changes: zeros and holes
are noted, not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from engine.errors import NoRoomToSave
from engine.format import names
from engine.repair.repairs import MANIFEST, Listing, listing, relative, repairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk

VERSION = 1
BEHIND_THE_END = "behind the log's end"
"""Why a piece of the log goes; undo looks there for messages that came since."""
_PIECE = 1 << 20
_MARGIN = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [offset, offset + length) of a store file that a repair changes.

    `action`: "overwrite" (the file stays), "remove" (the whole file goes), "create" (there was no file), "move"
    (to quarantine, as `target`) or "rename" (into the salvage directory, instead of a copy).
    """

    action: str
    path: str
    offset: int
    length: int
    why: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A piece in the salvage directory: `file` is None when it was all zeros."""

    action: str
    path: str
    offset: int
    length: int
    why: str
    file: str | None
    sha256: str
    target: str = ""


def save(
    disk: Disk,
    config: StoreConfig,
    command: str,
    pieces: Sequence[Piece],
    *,
    accepted: Sequence[tuple[int, int]] = (),
    bridged: Sequence[tuple[int, int]] = (),
) -> str:
    """Copy the pieces and write the manifest, durably.

    `accepted`: lost stretches of the log (physical offset, length) that the operator chose to go on behind; later
    starts know them from here. `bridged`: stretches that get inert content.

    Returns:
        the directory.

    Raises:
        NoRoomToSave: the file system has no room for them; nothing is left behind.
        StorageError: reading or writing failed.
    """
    root = os.fspath(config.store_path_root_dir)
    needed = sum(_data_bytes(disk, piece) for piece in pieces)
    usable = disk.usage(root).usable
    if needed + _MARGIN > usable:
        raise NoRoomToSave(
            f"saving what changes takes {needed} bytes, {usable} are usable",
            path=root,
            hint="free space, or give --no-salvage to lose it",
        )
    files = listing(disk, config)
    directory = new_directory(disk, root, command)
    saved = [_save_piece(disk, root, directory, number, piece) for number, piece in enumerate(pieces, 1)]
    disk.step("salvage.copied")
    write_manifest(disk, directory, command, files, saved, accepted=accepted, bridged=bridged)
    disk.step("salvage.written")
    return directory


def write_manifest(
    disk: Disk,
    directory: str,
    command: str,
    files: Listing,
    pieces: Sequence[Saved],
    *,
    accepted: Sequence[tuple[int, int]] = (),
    bridged: Sequence[tuple[int, int]] = (),
) -> None:
    """Write the manifest of a salvage directory, durably. `files`: the store's, listed before the first change."""
    root = os.path.dirname(os.path.dirname(directory))
    number = 1 + max((repair.manifest.get("number", 0) for repair in repairs(disk, root)), default=0)
    manifest = {
        "version": VERSION,
        "number": number,
        "command": command,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(disk.now_ms() / 1000)),
        "pieces": [asdict(one) for one in pieces],
        "accepted": [{"offset": offset, "length": length} for offset, length in accepted],
        "bridged": [{"offset": offset, "length": length} for offset, length in bridged],
        "files": files,
    }
    disk.write_file_atomically(os.path.join(directory, MANIFEST), json.dumps(manifest, indent=1).encode())
    disk.sync_dir(directory)
    disk.sync_dir(os.path.dirname(directory))


def new_directory(disk: Disk, root: str, command: str) -> str:
    """Make the salvage directory of a command that begins now."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(disk.now_ms() / 1000))
    base = os.path.join(root, names.SALVAGE, f"{stamp}-{command}")
    directory, n = base, 1
    while disk.exists(directory):
        n += 1
        directory = f"{base}-{n}"
    disk.mkdirs(directory)
    return directory


def _data_bytes(disk: Disk, piece: Piece) -> int:
    if piece.action in ("create", "move"):
        return 0
    reader = disk.open_reader(piece.path)
    try:
        end = min(piece.offset + piece.length, reader.size())
        total = 0
        start = reader.next_data(piece.offset, end)
        while start is not None:
            hole = reader.next_hole(start, end)
            total += hole - start
            start = reader.next_data(hole, end)
        return total
    finally:
        reader.close()


def _save_piece(disk: Disk, root: str, directory: str, number: int, piece: Piece) -> Saved:
    place = relative(root, piece.path)
    if piece.action in ("create", "move"):
        target = relative(root, piece.target) if piece.target else ""
        return Saved(piece.action, place, piece.offset, piece.length, piece.why, None, "", target)
    name = f"{number:04d}-{os.path.basename(piece.path)}"
    target = os.path.join(directory, name)
    digest = hashlib.sha256()
    zeros = True
    reader = disk.open_reader(piece.path)
    try:
        length = min(piece.length, reader.size() - piece.offset)
        for at in range(piece.offset, piece.offset + length, _PIECE):
            data = reader.read(at, min(_PIECE, piece.offset + length - at))
            digest.update(data)
            zeros = zeros and not any(data) if zeros else False
    finally:
        reader.close()
    if not zeros:
        disk.copy_file(piece.path, target, offset=piece.offset, length=length)
    return Saved(piece.action, place, piece.offset, length, piece.why, None if zeros else name, digest.hexdigest())
