"""Damage to segments as files: length, name, place; and copies of a live store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.proof import own
from tests.proof.scene import PAGE, NotHere, Scene


def torn_snapshot(scene: Scene) -> str:
    """A copy of a live store: its files of different moments, the pages of a file, too."""
    moments = [*scene.base.moments, scene.base.store]
    if len(moments) < 3:
        raise NotHere
    first = scene.rng.randrange(len(moments) - 1)
    window = moments[first : first + scene.rng.randrange(2, 5)]
    order = sorted({str(path.relative_to(one)) for one in window for path in one.rglob("*") if path.is_file()})
    if scene.rng.random() < 0.5:
        order.reverse()
    shutil.rmtree(scene.root)
    scene.root.mkdir()
    for number, name in enumerate(order):
        at = number * len(window) // len(order) if scene.rng.random() < 0.7 else scene.rng.randrange(len(window))
        _mixed(scene, name, window[at:])
    (scene.root / "abort").touch()
    return f"of the moments {first} to {first + len(window) - 1} of {len(moments)}"


def _mixed(scene: Scene, name: str, moments: list[Path]) -> None:
    versions = [own.content(one / name) for one in moments if own.regular(one / name)]
    if not versions:
        return
    longest = max(map(len, versions))
    out = bytearray(versions[0].ljust(longest, b"\0"))
    at = 0
    for start in range(0, longest, PAGE):
        at = min(at + (scene.rng.random() < 0.2), len(versions) - 1)
        out[start : start + PAGE] = versions[at].ljust(longest, b"\0")[start : start + PAGE]
    path = scene.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)


def segment_short(scene: Scene) -> str:
    """A segment that was cut off: an rsync that was interrupted, a disk that was full."""
    _, path = scene.segment()
    size = path.stat().st_size
    if size < 2:  # another damage has cut it
        raise NotHere
    to = scene.rng.choice([scene.rng.randrange(1, size), size // PAGE // 2 * PAGE, size - 1, size - PAGE])
    to = max(1, min(to, size - 1))
    os.truncate(path, to)
    return f"{scene.said(path)} cut to {to} bytes"


def segment_long(scene: Scene) -> str:
    """A segment with bytes after its end."""
    _, path = scene.segment()
    data = own.content(path)
    more = scene.rng.choice([bytes(PAGE), scene.rng.randbytes(777), data[: len(data) // 2], b"\n"])
    path.write_bytes(data + more)
    return f"{scene.said(path)} has {len(more)} bytes more"


def segment_empty(scene: Scene) -> str:
    """A segment of no bytes."""
    _, path = scene.segment()
    os.truncate(path, 0)
    return f"{scene.said(path)} is empty"


def segment_missing(scene: Scene) -> str:
    """A segment that is gone."""
    _, path = scene.segment()
    path.unlink()
    return f"{scene.said(path)} is gone"


def segments_swapped(scene: Scene) -> str:
    """Two segments under each other's names."""
    filled = [one for one in scene.segments() if scene.records_in(one[0])]
    if len(filled) < 2:
        raise NotHere
    (_, one), (_, other) = scene.rng.sample(filled, 2)
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return f"{scene.said(one)} and {scene.said(other)} swapped"


def _free_name(scene: Scene, start: int) -> str:
    size = scene.base.segment
    there = {offset for offset, _ in scene.segments()}
    last = max(there, default=0)
    names = [last + size, last + 5 * size, start + size // 2, start + 1, max(start - 3 * size, 0)]
    offsets = [offset for offset in names if offset not in there]
    texts = [f"{offset:020d}" for offset in offsets]
    stray = [f"{start:020d}.bak", f"{start:019d}", f"{start:020d}.1"]
    return str(scene.rng.choice([*texts, *texts, *stray]))


def segment_renamed(scene: Scene) -> str:
    """A segment under a name that is not its own: free, no multiple, of 19 digits, with a suffix."""
    start, path = scene.segment()
    name = _free_name(scene, start)
    if path.with_name(name).exists():
        raise NotHere
    path.rename(path.with_name(name))
    return f"{scene.said(path)} renamed to {name}"


def segment_twice(scene: Scene) -> str:
    """A segment that was copied to a second name."""
    start, path = scene.segment()
    name = _free_name(scene, start)
    if path.with_name(name).exists():
        raise NotHere
    shutil.copyfile(path, path.with_name(name))
    return f"{scene.said(path)} copied to {name}"


def segment_foreign(scene: Scene) -> str:
    """A segment of another store, in place of one or besides.

    Never in place of the only one: the log is that store's then, whole, and nothing is left to repair it by.
    """
    start, path = scene.segment()
    other = scene.pick(list(scene.others))
    theirs = [one for one in other.log_dirs(other.store)[0].iterdir() if own.named(one.name) not in (None, start)]
    data = own.content(scene.pick(sorted(theirs)))[: scene.base.segment].ljust(scene.base.segment, b"\0")
    if not any(data):
        raise NotHere
    if scene.rng.random() < 0.5:
        if len([one for one in scene.segments() if scene.records_in(one[0])]) < 2:
            raise NotHere
        path.write_bytes(data)
        return f"{scene.said(path)} is one of {other.name}"
    name = f"{max(offset for offset, _ in scene.segments()) + scene.base.segment:020d}"
    path.with_name(name).write_bytes(data)
    return f"{name}: one of {other.name}"


SHAPES = {
    "torn-snapshot": torn_snapshot,
    "segment-short": segment_short,
    "segment-long": segment_long,
    "segment-empty": segment_empty,
    "segment-missing": segment_missing,
    "segments-swapped": segments_swapped,
    "segment-renamed": segment_renamed,
    "segment-twice": segment_twice,
    "segment-foreign": segment_foreign,
}
