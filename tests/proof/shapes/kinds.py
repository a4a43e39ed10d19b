"""Files of odd kinds in place of the store's own."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from tests.proof import own
from tests.proof.scene import NotHere, Scene


def _places(scene: Scene) -> list[Path]:
    """One of each sort of file and directory that a store has."""
    found = [scene.root / name for name in ("checkpoint", "abort", "lock", "consumequeue", "index")]
    found += scene.log_dirs[-1:]
    for some in (
        [path for _, path in scene.segments()],
        scene.queue_files(),
        scene.queue_dirs(),
        [path.parent for path in scene.queue_dirs()],
        scene.index_files(),
        [scene.root / "config" / name for name in own.listed(scene.root / "config")],
    ):
        if some:
            found.append(scene.rng.choice(some))
    return found


def _replace(scene: Scene) -> Path:
    path: Path = scene.pick(_places(scene))
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
    return path


def _shape(kind: str, make: Callable[[Scene, Path], None]) -> Callable[[Scene], str]:
    def damage(scene: Scene) -> str:
        path = _replace(scene)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(scene, path)
        return f"{scene.said(path)} is {kind}"

    damage.__doc__ = f"A file or directory of the store is {kind}."
    return damage


def _directory(scene: Scene, path: Path) -> None:
    path.mkdir()
    if scene.rng.random() < 0.5:
        (path / "something").write_bytes(b"somebody's")


def _fifo(_: Scene, path: Path) -> None:
    os.mkfifo(path)


def _socket(scene: Scene, path: Path) -> None:
    # the path of a socket may have 108 bytes only, which a queue's long topic fills: it is made under a short one
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            one.bind(f"/proc/self/fd/{here}/s")
            os.rename("s", path.name, src_dir_fd=here, dst_dir_fd=here)
        finally:
            os.close(here)


def _flat(scene: Scene, path: Path) -> str:
    return str(path.relative_to(scene.root)).replace("/", "-")


def _dangling(scene: Scene, path: Path) -> None:
    path.symlink_to(os.path.relpath(scene.root / "not-mounted" / _flat(scene, path), path.parent))


def linked(scene: Scene) -> str:
    """A file of the store is a link to where its content is: no damage."""
    files = [path for _, path in scene.segments()] + scene.queue_files() + scene.index_files()
    path = scene.pick(files)
    if path.is_symlink():
        raise NotHere
    aside = scene.root / "elsewhere" / _flat(scene, path)
    aside.parent.mkdir(exist_ok=True)
    if aside.exists():
        raise NotHere
    path.rename(aside)
    path.symlink_to(os.path.relpath(aside, path.parent))
    return scene.said(path)


def lost_found(scene: Scene) -> str:
    """lost+found in a directory of the store: a disk is mounted there."""
    tops = [*scene.log_dirs, scene.root / "index", scene.root / "consumequeue", scene.root, scene.root / "config"]
    place = scene.pick([top for top in tops if top.is_dir() and not (top / "lost+found").exists()])
    (place / "lost+found").mkdir()
    return scene.said(place / "lost+found")


SHAPES = {
    "is-directory": _shape("a directory", _directory),
    "is-fifo": _shape("a FIFO", _fifo),
    "is-socket": _shape("a socket", _socket),
    "is-dangling-link": _shape("a dangling link", _dangling),
    "is-link": linked,
    "lost+found": lost_found,
}
