"""Stores and manifests that somebody else has written: what rstore makes of them stays in the store.

A store here is a small tree. An input is read two bytes at a time: what somebody puts there (links out of it, links in
it, hard links, a FIFO, files, directories), and what a change does, in any order. The directory outside is the same at
the end, whatever came between.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

from engine.config import StoreConfig
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.inspect.store.repairs import KEPT, Repair, manifest_in
from engine.repair.reach import beneath
from engine.repair.salvage.forged import demand_plausible
from engine.repair.trees import remove_tree, zero_range
from tests.support.in_memory import memory

NAMES = (
    "lock",
    "config",
    "config/t",
    "config/t.tmp",
    "commitlog",
    "commitlog/0",
    "consumequeue/T",
    "consumequeue/T/0",
    "salvage",
    "salvage/x",
    "salvage/x/m",
    "recover.progress",
    "recover.progress/1",
    "quarantine/a/b",
    "../victim/file",
    "config/../../victim/below/deep",
)
PLACES = 13
"""Of the names: those in which somebody can put something."""
ROOT = "/nowhere/store"


@functools.cache
def _place() -> tuple[Path, list[tuple[object, ...]]]:
    """A directory of this process, gone at its end; and what is outside of the store in it."""
    holder = tempfile.TemporaryDirectory(prefix="rstore-fuzz-", dir=memory())
    _HOLDERS.append(holder)
    victim = Path(holder.name) / "victim"
    (victim / "below").mkdir(parents=True)
    (victim / "file").write_bytes(b"theirs")
    (victim / "below" / "deep").write_bytes(b"theirs, too")
    (victim / "below").chmod(0o711)
    return Path(holder.name), _seen(str(victim))


@functools.cache
def _disk() -> Disk:
    return Disk()


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _seen(victim: str) -> list[tuple[object, ...]]:
    out: list[tuple[object, ...]] = []
    for path in (victim, victim + "/below", victim + "/file", victim + "/below/deep"):
        status = os.lstat(path)
        data: object = sorted(os.listdir(path)) if stat.S_ISDIR(status.st_mode) else _bytes(path)
        out.append((status.st_mode, status.st_uid, status.st_ino, status.st_mtime_ns, data))
    return out


def _bytes(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _put(kind: int, name: str, root: str, victim: str) -> None:
    """What somebody does who can write into the store."""
    path = f"{root}/{name}"
    parent = os.path.dirname(path)
    with contextlib.suppress(OSError):
        if f"{os.path.realpath(parent)}/".startswith(f"{victim}/"):
            return
        os.makedirs(parent, exist_ok=True)
        match kind % 8:
            case 0 | 1 | 2 | 5 as link:
                # A folder that root has linked elsewhere is a part of the store: these are another user's.
                is_folder = parent == root or os.path.basename(parent) == "salvage"
                if is_folder and os.geteuid() != 0:
                    return
                os.symlink(_led_to(link, kind, parent, root, victim), path)
                os.lchown(path, 12345, 12345)
            case 3:
                os.link(f"{victim}/file", path)
            case 4:
                os.mkfifo(path)
            case 6:
                with open(path, "xb", buffering=0) as file:  # through no link or hard link
                    file.write(b"some bytes")
            case _:
                os.mkdir(path)


def _led_to(link: int, kind: int, parent: str, root: str, victim: str) -> str:
    """Out of the store, in two ways or by a relative path; or to another place in it."""
    if link == 5:
        return f"{root}/{NAMES[kind // 8 % PLACES]}"
    return (victim, f"{victim}/file", os.path.relpath(f"{victim}/below", parent))[link]


def _change(disk: Disk, kind: int, path: str, root: str) -> None:
    match kind % 12:
        case 0:
            disk.open_raw(path, writable=True).close()
        case 1:
            disk.write_file(path, b"changed")
        case 2:
            disk.write_file_atomically(path, b"changed")
        case 3:
            disk.mkdirs(path)
        case 4:
            disk.unlink(path, missing_ok=True)
        case 5:
            disk.remove_dir(path)
        case 6:
            disk.replace(path, os.path.join(root, NAMES[kind // 12 % len(NAMES)]))
        case 7:
            disk.set_mode(path, 0o777)
        case 8:
            disk.set_modified(path, 1_000_000_000)
        case 9:
            remove_tree(disk, path)
        case 10:
            zero_range(disk, path, 0, 3)
        case _:
            disk.copy_file(os.path.join(root, "lock"), path)


def store(data: bytes) -> object:
    """Somebody's links and rstore's changes, in turn; how many changes were made."""
    place, before = _place()
    root, victim, made = place / "store", str(place / "victim"), 0
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (root / "config").mkdir()
    (root / "lock").write_bytes(b"lock")
    disk: Disk | None = None
    for at in range(0, min(len(data), 64) - 1, 2):
        kind, number = data[at], data[at + 1]
        if number & 0x80:
            _put(kind, NAMES[number % PLACES], str(root), victim)
            continue
        with contextlib.suppress(RStoreError):
            disk = disk or beneath(_disk(), StoreConfig(store_path_root_dir=root))
            _change(disk, kind, os.path.join(root, NAMES[number % len(NAMES)]), str(root))
            made += 1
    assert _seen(victim) == before, "what lies outside of the store has changed"
    return made


def manifest(data: bytes) -> object:
    """Whether undo takes it: then each name in it stays below the store, in a place that repairs change."""
    read = manifest_in(data)
    if read is None:
        return None
    repair = Repair("x", f"{ROOT}/salvage/x", read, None, undoing=False, undone=False, pruned=False)
    demand_plausible(Disk(), StoreConfig(store_path_root_dir=Path(ROOT)), repair)
    for piece in repair.pieces:
        for name in ("path", "target", "via", "source"):
            path = os.path.normpath(os.path.join(ROOT, piece.get(name, "")))
            assert path == ROOT or path.startswith(ROOT + "/"), f"{name} leads out of the store"
            assert ".." not in piece.get(name, "").split("/")
        assert not piece.get("mode", 0) & ~0o777
        assert piece["action"] not in KEPT or piece["offset"] + piece["length"] < 1 << 31
    return read


def store_seeds() -> tuple[bytes, ...]:
    """Each thing that somebody puts there, then each change of it; and all of them under one name, in turn."""
    names = range(PLACES)
    kinds = range(8)
    one_name = [bytes([k, 0x80 | n, c, n]) for n in (0, 2, 5, 10) for k in kinds for c in (0, 1, 2, 3, 9)]
    in_turn = [
        b"".join(bytes([k, 0x80 | n, c, n]) for k, c in zip(kinds, range(3, 11), strict=True)) for n in (2, 7, 10)
    ]
    return (
        *one_name,
        *in_turn,
        b"".join(bytes([0, 0x80 | n, 3, n]) for n in names),
        b"".join(bytes([n, n]) for n in names),
    )


def manifest_seeds() -> tuple[bytes, ...]:
    """A manifest of each action."""
    common = {"offset": 0, "length": 5, "why": "w", "source": "", "link": "", "mode": 0o644, "becomes": ""}
    sha256 = hashlib.sha256(b"bytes").hexdigest()
    pieces = [
        {"action": "remove", "path": "consumequeue/T/0/00000000000000000000", "file": "0001-x", "sha256": sha256},
        {"action": "overwrite", "path": "commitlog/00000000000000000000", "file": None, "sha256": sha256},
        {"action": "move", "path": "index/x", "file": None, "sha256": "", "target": "quarantine/index/x"},
        {"action": "rename", "path": "index/2", "file": "index/2", "sha256": sha256},
        {
            "action": "relocate", "path": "commitlog/1", "file": None, "sha256": "",
            "target": "commitlog/2", "via": "commitlog/2.moving",
        },
        {"action": "create", "path": "config/topics.json", "file": None, "sha256": ""},
    ]  # fmt: skip
    rest = {"version": 1, "number": 1, "command": "recover", "time": "", "accepted": [], "bridged": []}
    files = {"commitlog/00000000000000000000": [8192, 1]}
    made = [
        {**rest, "pieces": [{**common, **piece}], "files": files, "made": ["index", "consumequeue/T"]}
        for piece in pieces
    ]
    return tuple(json.dumps(one).encode() for one in made)
