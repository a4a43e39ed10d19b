"""Damage to the index: headers, slots, entries, files."""

from __future__ import annotations

import os
import shutil

from tests.proof import own
from tests.proof.scene import PAGE, NotHere, Scene


def _flip(scene: Scene, old: bytes) -> bytes:
    new, how = bytearray(old), scene.rng.random()
    if how < 0.5:
        bit = scene.rng.randrange(len(new) * 8)
        new[bit // 8] ^= 1 << bit % 8
    elif how < 0.8:
        new[:] = scene.rng.randbytes(len(new))
    else:
        new[:] = bytes(len(new))
    return bytes(new)


def _damage(scene: Scene, first: int, size: int, count: int, what: str) -> str:
    path = scene.pick(scene.index_files())
    number = scene.rng.randrange(count)
    data = own.content(path)[first + number * size : first + (number + 1) * size]
    if not data:
        raise NotHere
    scene.write(path, first + number * size, _flip(scene, data))
    return f"{what} {number} of {scene.said(path)}"


def header(scene: Scene) -> str:
    """A field of an index file's header."""
    return _damage(scene, 0, 8, 5, "header field")


def header_zero(scene: Scene) -> str:
    """An index file's header is zeros."""
    path = scene.pick(scene.index_files())
    scene.write(path, 0, bytes(40))
    return scene.said(path)


def slot(scene: Scene) -> str:
    """A slot of an index file."""
    return _damage(scene, 40, 4, scene.base.layout[0], "slot")


def entry(scene: Scene) -> str:
    """An entry of an index file."""
    slots, entries = scene.base.layout
    return _damage(scene, 40 + 4 * slots, 20, entries, "entry")


def page_lost(scene: Scene) -> str:
    """A page of an index file that was not written back."""
    path = scene.pick(scene.index_files())
    at = scene.rng.randrange(path.stat().st_size // PAGE + 1) * PAGE
    scene.write(path, at, bytes(PAGE))
    return f"page {at // PAGE} of {scene.said(path)}"


def file_lost(scene: Scene) -> str:
    """An index file that is gone."""
    path = scene.pick(scene.index_files())
    path.unlink()
    return scene.said(path)


def all_lost(scene: Scene) -> str:
    """The whole index is gone."""
    if not (scene.root / "index").is_dir():
        raise NotHere
    shutil.rmtree(scene.root / "index")
    return "index"


def file_cut(scene: Scene) -> str:
    """An index file that was cut off, or made longer."""
    path = scene.pick(scene.index_files())
    size = path.stat().st_size
    to = scene.rng.choice([0, scene.rng.randrange(1, max(2, size)), size + 20])
    os.truncate(path, to)
    return f"{scene.said(path)} has {to} bytes"


def files_swapped(scene: Scene) -> str:
    """Two index files under each other's names."""
    return scene.swapped(scene.index_files())


def file_renamed(scene: Scene) -> str:
    """An index file under another time, or an invalid name."""
    path = scene.pick(scene.index_files())
    name = scene.rng.choice([str(int(path.name) + 10**9), str(int(path.name) - 10**9), path.name[:-1], path.name + "0"])
    if path.with_name(name).exists():
        raise NotHere
    path.rename(path.with_name(name))
    return f"{scene.said(path)} renamed to {name}"


def file_twice(scene: Scene) -> str:
    """An index file that was copied to a second name."""
    path = scene.pick(scene.index_files())
    to = path.with_name(str(int(path.name) + scene.rng.choice([-1, 1, 1000])))
    if to.exists():
        raise NotHere
    shutil.copyfile(path, to)
    return f"{scene.said(path)} copied to {to.name}"


SHAPES = {
    "index-header": header,
    "index-header-zero": header_zero,
    "index-slot": slot,
    "index-entry": entry,
    "index-page": page_lost,
    "index-file-lost": file_lost,
    "index-lost": all_lost,
    "index-file-cut": file_cut,
    "index-files-swapped": files_swapped,
    "index-file-renamed": file_renamed,
    "index-file-twice": file_twice,
}
