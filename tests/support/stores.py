"""Store directories on disk: unpack one, copy one, prove that one has not changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.archives import extract

_BLOCK = 65536
_TRIES = 5
_ZEROS = bytes(_BLOCK)


class Seen(NamedTuple):
    """What a path held: a digest of its content (its kind, when it is no file; where a link leads, too), and its
    modification time (ns)."""

    digest: str
    mtime_ns: int


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a .tar.xz that holds one directory, holes kept, into `into`; that directory."""
    (name,) = extract(archive, into)
    return into / name


def copy(store: Path, to: Path) -> Path:
    """A copy of a store at `to` (which must not be there yet): holes and times kept, blocks shared where possible."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(_copying(store, to), check=True)
    return to


def copy_running(store: Path, to: Path) -> Path:
    """The same of a store that is open; all over again when a file was renamed meanwhile, as its checkpoint is."""
    for _ in range(_TRIES):
        to.parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run(_copying(store, to), check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return to
        shutil.rmtree(to, ignore_errors=True)
    return copy(store, to)


def _copying(store: Path, to: Path) -> list[str | Path]:
    return ["cp", "-a", "--reflink=auto", "--sparse=auto", store, to]


def digest(path: Path) -> str:
    """SHA-256 over the file's length and each block that is not all zeros, with its place: quick on sparse files.

    Two files have the same digest exactly when they hold the same bytes, holes or not.
    """
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        found.update(b"%d" % size)
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // _BLOCK * _BLOCK
            except OSError:  # only a hole is left
                break
            block = os.pread(file.fileno(), _BLOCK, at)
            if block != _ZEROS[: len(block)]:
                found.update(b"@%d:" % at + block)
            at += _BLOCK
    return found.hexdigest()


def snapshot(root: Path) -> dict[str, Seen]:
    """Every path below `root` (and itself, ".") with content and time: equal before and after = nothing written."""
    found: dict[str, Seen] = {}
    for path in (root, *sorted(root.rglob("*"))):
        there = path.exists()
        found[str(path.relative_to(root))] = Seen(_content(path), (path if there else path.parent).stat().st_mtime_ns)
    return found


def _content(path: Path) -> str:
    link = f"link to {path.readlink()} " if path.is_symlink() else ""
    if path.is_dir():
        return f"{link}directory"
    return link + (digest(path) if path.is_file() else stat.filemode(path.lstat().st_mode)[0])


def contents(root: Path) -> dict[str, str]:
    """As `snapshot` without the times: what a store holds, to compare two copies."""
    return {path: seen.digest for path, seen in snapshot(root).items()}
