"""Whether a manifest is one that a repair of this store can have written: judged whole, before undo changes a byte.

Whoever can write into a store can write a manifest, and undo, run by root, would write the bytes of its pieces into the
places that it names. So each place must be one that repairs change: a file of the log, the queues, the index, the
configuration, RocketMQ 5's timer or epochs, the checkpoint, the abort file; written as a repair writes it, with no way
out; each piece a file of the manifest's own directory, no longer than a file of a store can be. What a link leads to is
never reached anyway (engine.files.beneath).
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.errors import CannotRepair
from engine.format import names
from engine.inspect.store.config_files import BACKUP
from engine.inspect.store.repairs import KEPT, MANIFEST, is_below

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.repairs import Repair

_DIRECTORIES = (
    names.COMMITLOG,
    names.CONSUMEQUEUE,
    names.CONSUMEQUEUE_EXT,
    names.BATCHCONSUMEQUEUE,
    names.INDEX,
    names.CONFIG,
    names.TIMER_LOG,
)
_FILES = (
    names.CHECKPOINT,
    names.ABORT,
    f"{names.CHECKPOINT}.tmp",
    names.TIMER_WHEEL,
    names.EPOCH_FILE,
    names.EPOCH_FILE + BACKUP,
)
_LONGEST = 1 << 31
"""Bytes of a store's file, at most: a broker maps each whole. Source: java.nio.MappedByteBuffer."""
_PERMISSIONS = 0o777


def demand_plausible(disk: Disk, config: StoreConfig, repair: Repair) -> None:
    """Raise CannotRepair, which names manifest and piece, where no repair of this store writes such a manifest."""
    root = os.path.abspath(config.store_path_root_dir)
    logs = tuple(os.path.abspath(path) for path in config.log_directories)
    manifest = os.path.join(repair.directory, MANIFEST)
    for number, piece in enumerate(repair.pieces, 1):
        for path in (piece["path"], *(piece.get(name) for name in ("source", "via"))):
            if path and os.path.isabs(path) and os.path.dirname(path) not in logs:
                raise CannotRepair(
                    "a file of the repair is in no directory of the log",
                    path=path,
                    hint=f"{manifest}, piece {number}; give the settings of the repair: -c broker.conf",
                )
        for why in _wrong(disk, root, logs, repair.directory, piece):
            raise _refused(f"piece {number} of the manifest {why}", manifest)
    for path, (size, _) in repair.manifest.get("files", {}).items():
        if not _is_place(root, logs, path):
            raise _refused(f"the manifest lists {path!r}, which is no file that a repair changes", manifest)
        if size >= _LONGEST and any(path == piece["path"] and piece["action"] in KEPT for piece in repair.pieces):
            raise _refused(f"the manifest lists {path!r} with {size} bytes, more than a file of a store has", manifest)
    for path in repair.manifest.get("made", ()):
        if not _is_place(root, logs, os.path.join(path, "x")) and path.split(os.sep)[0] != names.QUARANTINE:
            raise _refused(f"the manifest says that {path!r} was made, which no repair makes", manifest)


def _wrong(disk: Disk, root: str, logs: tuple[str, ...], directory: str, piece: dict[str, Any]) -> Iterator[str]:
    """What no repair writes into a piece."""
    action, path, target = piece["action"], piece["path"], piece.get("target", "")
    for place in filter(None, (path, piece.get("source", ""), piece.get("via", ""))):
        if not _is_place(root, logs, place):
            yield f"names {place!r}, which is no file that a repair changes"
    if action == "move" and (not is_below(target) or target.split(os.sep)[0] != names.QUARANTINE):
        yield f"moves {path!r} to {target!r}, which is not in {names.QUARANTINE}/"
    if action == "relocate" and not _is_place(root, logs, target):
        yield f"renames {path!r} to {target!r}, which is no file that a repair changes"
    if action in KEPT and piece["offset"] + piece["length"] >= _LONGEST:
        yield f"restores {piece['length']} bytes of {path!r} at {piece['offset']}, more than a file of a store has"
    if piece.get("mode", 0) & ~_PERMISSIONS:
        yield f"gives {path!r} the mode {piece['mode']:o}, which is more than permissions"
    sha256 = piece["sha256"]
    if action in KEPT and (len(sha256) != 64 or not set(sha256) <= set(string.hexdigits)):
        yield f"has no SHA-256 of {path!r}"
    yield from _wrong_file(disk, directory, piece)


def _wrong_file(disk: Disk, directory: str, piece: dict[str, Any]) -> Iterator[str]:
    file = piece["file"]
    if file is None:
        return
    if piece["action"] == "rename":
        if file != piece["path"]:
            yield f"has the bytes of {piece['path']!r} in {file!r}"
    elif os.sep in file:
        yield f"has its bytes in {file!r}, which is no piece of this repair"
    elif disk.link_of(os.path.join(directory, file)):
        yield f"has its bytes where a link leads, {file!r}"


def _is_place(root: str, logs: tuple[str, ...], path: str) -> bool:
    """Whether repairs change a file of this name, as manifests write it: normalised, and no directory."""
    if os.path.isabs(path):
        return os.path.normpath(path) == path and path.startswith(tuple(os.path.join(log, "") for log in logs))
    if not is_below(path):
        return False
    first = path.split(os.sep, maxsplit=1)[0]
    if path in _FILES or first in _DIRECTORIES:  # these themselves, where a stray stands in their place
        return True
    return os.path.join(root, path).startswith(tuple(os.path.join(log, "") for log in logs if log != root))


def _refused(what: str, manifest: str) -> CannotRepair:
    return CannotRepair(
        what,
        path=manifest,
        hint="no repair of rstore writes that, and nothing was changed; look who can write there: ls -la",
    )
