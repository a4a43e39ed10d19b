"""What `salvage/` in a store tells of its repairs: which there were, which came to their end, which were taken back.

A repair's directory holds `manifest.json` (written before the first change: what changes, and the old bytes),
`applied.json` (written after the last: what the store is then), `undoing.json` while it is taken back, `undone.json`
afterwards, `pruned.json` once what it saved was removed. A manifest without `applied.json` is a repair that was killed:
the next one of its kind resumes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.listing import is_lost_found
from engine.files.written import written
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

MANIFEST = "manifest.json"
APPLIED = "applied.json"
UNDOING = "undoing.json"
UNDONE = "undone.json"
PRUNED = "pruned.json"
REPLAYED = "replayed.json"
KEPT = ("overwrite", "remove", "rename")
"""Actions whose old bytes are in the repair's directory."""
_BAD_JSON = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, StorageError)
_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)
OF_ZEROS = hashlib.sha256().hexdigest()
"""The `digest` of what holds nothing but zeros."""

Listing = dict[str, list[int]]
"""Path in the store (absolute for a log directory elsewhere) → size (bytes) and modification time (ns)."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair. `name` is its directory's; `applied`: what it left, None when it was killed."""

    name: str
    directory: str
    manifest: dict[str, Any]
    applied: dict[str, Any] | None
    undoing: bool
    undone: bool
    pruned: bool

    @property
    def pieces(self) -> list[dict[str, Any]]:
        """What it changed, in the order in which it did."""
        return list(self.manifest["pieces"])

    @property
    def is_config(self) -> bool:
        """Whether it changes config/ and nothing else: it neither ends nor joins a repair of the store (finish.py)."""
        paths = [piece["path"] for piece in self.pieces]
        return bool(paths) and all(path.split(os.sep)[0] == names.CONFIG for path in paths)

    @property
    def is_reindex(self) -> bool:
        """Whether it swaps in queues and index that were built from the log: each new file is there, or is not yet."""
        return self.manifest.get("command") == "reindex"

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.undone:
            return "undone"
        if self.undoing:
            return "undo interrupted"
        return "unfinished" if self.applied is None else "done"

    def to_json(self) -> dict[str, Any]:
        """One of the JSON of `undo --list`."""
        return {
            "id": self.name,
            "command": self.manifest["command"],
            "time": self.manifest["time"],
            "pieces": len(self.pieces),
            "state": self.state,
        }


def repairs(disk: Disk, root: str) -> list[Repair]:
    """Every repair of a store whose manifest can be read, oldest first."""
    base = os.path.join(root, names.SALVAGE)
    listed = [
        repair
        for entry in (disk.scandir(base) if disk.is_dir(base) else ())
        if entry.is_directory and (repair := _repair(disk, entry.name, entry.path)) is not None
    ]
    return sorted(listed, key=lambda repair: (int(repair.manifest.get("number", 0)), repair.name))


def unfinished(listed: Iterable[Repair]) -> list[Repair]:
    """Those of a store's repairs (oldest first) that were killed, and that no finished one has resumed.

    A repair of config/ alone resumes one of its kind only, and so does one of the store.
    """
    out: list[Repair] = []
    for repair in listed:
        if repair.applied is not None:
            out = [one for one in out if one.is_config != repair.is_config]
        elif not repair.undone:
            out.append(repair)
    return out


def manifest_ranges(listed: Iterable[Repair], kind: str) -> list[tuple[int, int]]:
    """Ranges of the log (physical offset, end) that manifests name as "accepted", "bridged" or "healed"."""
    out: list[tuple[int, int]] = []
    for repair in listed:
        if not repair.undone:
            try:
                out += [
                    (int(one["offset"]), int(one["offset"]) + int(one["length"]))
                    for one in repair.manifest.get(kind, [])
                ]
            except _BAD_JSON:
                continue
    return out


def listing(disk: Disk, config: StoreConfig, also: Iterable[str] = ()) -> Listing:
    """Every file of log, queues, extension and index, the checkpoint and the abort file; `also`: further paths."""
    root = os.fspath(config.store_path_root_dir)
    files: Listing = {}
    parts = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.BATCHCONSUMEQUEUE, names.INDEX)
    below = [os.path.join(root, name) for name in parts]
    followed: set[str] = set()
    for directory in dict.fromkeys([*config.log_directories, *below]):
        _list_into(disk, root, directory, files, followed)
    for name in (names.CHECKPOINT, names.ABORT, *also):
        entry = disk.look(os.path.join(root, name))
        if entry is not None and entry.is_file:
            files[name] = [entry.size, entry.mtime_ns]
    return files


def config_places(pieces: Iterable[dict[str, Any]]) -> list[str]:
    """The files of config/, and those of RocketMQ 5's timer and epochs, among a repair's pieces (`is_apart`)."""
    return sorted({piece["path"] for piece in pieces if is_apart(piece["path"])})


def is_apart(path: str) -> bool:
    """Whether only a repair that changes this file lists it: of others it is none of their business."""
    return path.startswith((names.CONFIG + os.sep, names.TIMER_LOG + os.sep, names.EPOCH_FILE)) or (
        path == names.TIMER_WHEEL
    )


def relative(root: str, path: str) -> str:
    """A path as manifests name it."""
    return os.path.relpath(path, root) if path.startswith(root + os.sep) else os.path.abspath(path)


def digest(disk: Disk, path: str, offset: int, length: int) -> str:
    """SHA-256 of a range of a file up to the last of its bytes that is not zero, in hex.

    The zeros after it (a gigabyte in a segment that a broker made ahead of time) are not read where they are a hole.
    """
    sha256 = hashlib.sha256()
    last = b""
    at = offset
    reader = disk.open_reader(path)
    try:
        for place, unit in written(reader, offset, min(offset + length, reader.size())):
            sha256.update(last)
            _update_zeros(sha256, place - at)
            last, at = bytes(unit), place + len(unit)
    finally:
        reader.close()
    sha256.update(last.rstrip(b"\0"))
    return sha256.hexdigest()


def holds(disk: Disk, path: str, offset: int, length: int, sha256: str) -> bool:
    """Whether a range of a file is what a manifest says: its `digest`, or the SHA-256 of all of it (older ones)."""
    return digest(disk, path, offset, length) == sha256 or _digest_of_all(disk, path, offset, length) == sha256


def _digest_of_all(disk: Disk, path: str, offset: int, length: int) -> str:
    sha256 = hashlib.sha256()
    at = offset
    reader = disk.open_reader(path)
    try:
        end = min(offset + length, reader.size())
        for place, unit in written(reader, offset, end):
            _update_zeros(sha256, place - at)
            sha256.update(unit)
            at = place + len(unit)
        _update_zeros(sha256, end - at)
    finally:
        reader.close()
    return sha256.hexdigest()


def _update_zeros(sha256: hashlib._Hash, count: int) -> None:
    for at in range(0, count, _PIECE):
        sha256.update(_ZEROS[: min(_PIECE, count - at)])


def _list_into(disk: Disk, root: str, directory: str, files: Listing, followed: set[str]) -> None:
    """`followed`: where links led already; a few that lead to each other would be walked without end."""
    for entry in disk.scandir(directory) if disk.is_dir(directory) else ():
        if entry.is_file:
            files[relative(root, entry.path)] = [entry.size, entry.mtime_ns]
        elif entry.is_directory and not is_lost_found(entry):
            if disk.link_of(entry.path):
                real = disk.behind_link(entry.path)
                if real in followed:
                    continue
                followed.add(real)
            _list_into(disk, root, entry.path, files, followed)


def is_below(path: object) -> bool:
    """Whether this is the name of a file below a directory, and stays there."""
    if type(path) is str and _PLAIN.fullmatch(path):  # most are: a repair may name thousands
        return True
    if not isinstance(path, str) or not path or "\0" in path or os.path.isabs(path):
        return False
    os.fsencode(path)  # a name that can't be one is a ValueError
    return not {"", ".", ".."} & set(path.split(os.sep))


def manifest_in(data: bytes) -> dict[str, Any] | None:
    """The manifest that a file holds, None when nothing but somebody else can have written it."""
    try:
        manifest: dict[str, Any] = json.loads(data)
        return manifest if _is_manifest(manifest) else None
    except _BAD_JSON:
        return None


def _repair(disk: Disk, name: str, directory: str) -> Repair | None:
    """A manifest that can't be read, or contains an invalid value, tells of nothing."""
    try:
        manifest = manifest_in(disk.read_file(os.path.join(directory, MANIFEST)))
        applied = os.path.join(directory, APPLIED)
        left = json.loads(disk.read_file(applied)) if disk.exists(applied) else None
        if manifest is None or not (left is None or _is_applied(left)):
            return None
    except _BAD_JSON:
        return None
    marks = [disk.exists(os.path.join(directory, mark)) for mark in (UNDOING, UNDONE, PRUNED)]
    return Repair(name, directory, manifest, left, *marks)


# --- whether it can be ------------------------------------------------------------------------------------------------

_ACTIONS = (*KEPT, "create", "move", "relocate")
_LARGEST = 1 << 62
_PLAIN = re.compile(r"[A-Za-z0-9_%-][A-Za-z0-9_%.-]*(?:/[A-Za-z0-9_%-][A-Za-z0-9_%.-]*)*")
"""Names below a directory that are so at a glance: no part of them begins with a dot."""


def _is_manifest(manifest: dict[str, Any]) -> bool:
    words = (manifest.get("command", ""), manifest.get("time", ""))
    manifest_ranges = [*manifest.get("accepted", []), *manifest.get("bridged", [])]
    return (
        all(isinstance(word, str) for word in words)
        and _is_count(manifest.get("number", 0))
        and all(_is_piece(piece) for piece in manifest["pieces"])
        and all(_is_count(one["offset"], one["length"]) for one in manifest_ranges)
        and _is_listing(manifest.get("files", {}))
        and all(is_below(place) for place in manifest.get("made", []))
        and ("end" not in manifest or (_is_place(manifest["end"]["path"]) and _is_count(manifest["end"]["offset"])))
    )


def _is_applied(applied: dict[str, Any]) -> bool:
    return _is_listing(applied["files"]) and all(
        _is_place(one["path"]) and _is_count(one["offset"], one["length"]) and isinstance(one["sha256"], str)
        for one in applied["ranges"]
    )


def _is_piece(piece: dict[str, Any]) -> bool:
    file, target, link = piece["file"], piece.get("target", ""), piece.get("link", "")
    via, source = piece.get("via", ""), piece.get("source", "")
    return (
        piece["action"] in _ACTIONS
        and _is_place(piece["path"])
        and _is_count(piece["offset"], piece["length"])
        and isinstance(piece["why"], str)
        and isinstance(piece["sha256"], str)
        and ((file is None and piece["action"] != "rename") or (piece["action"] in KEPT and is_below(file)))
        and (is_below(target) if piece["action"] == "move" else target == "" or _is_place(target))
        and (_is_place(target) and _is_place(via) if piece["action"] == "relocate" else via == "")
        and (source == "" or _is_place(source))
        and isinstance(piece.get("becomes", ""), str)
        and isinstance(link, str)
        and "\0" not in link
        and _is_count(piece.get("mode", 0))
    )


def _is_listing(files: dict[str, Any]) -> bool:
    return all(_is_place(path) and len(seen) == 2 and _is_count(seen[0], abs(seen[1])) for path, seen in files.items())


def _is_place(path: object) -> bool:
    """Below the store, or absolute: in a log directory elsewhere, which only the settings tell."""
    if isinstance(path, str) and os.path.isabs(path):
        return "\0" not in path and bool(os.fsencode(path))
    return is_below(path)


def _is_count(*numbers: object) -> bool:
    for number in numbers:  # noqa: SIM110 - no generator: it is asked of each of thousands of pieces
        if type(number) is not int or not 0 <= number < _LARGEST:
            return False
    return True
