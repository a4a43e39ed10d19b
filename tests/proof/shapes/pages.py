"""Damage to ranges of the log, wherever records lie in it."""

from __future__ import annotations

from pathlib import Path

from tests.proof import own
from tests.proof.scene import PAGE, SECTOR, NotHere, Scene


def _filled(scene: Scene) -> tuple[Path, int]:
    """A segment, and how much of it is filled."""
    start, path = scene.segment()
    inside = scene.records_in(start)
    last = inside[-1]
    filled = min(path.stat().st_size, last - start + len(scene.facts.records[last][0]))
    if not filled:
        raise NotHere
    return path, filled


def _lose(scene: Scene, unit: int, most: int) -> str:
    path, filled = _filled(scene)
    at = scene.rng.randrange(max(1, filled // unit)) * unit
    size = scene.rng.randrange(1, most + 1) * unit
    scene.write(path, at, bytes(size))
    return f"{size} zeros at {at} of {scene.said(path)}"


def pages_zero(scene: Scene) -> str:
    """Pages of the log that were never written back."""
    return _lose(scene, PAGE, 3)


def sectors_zero(scene: Scene) -> str:
    """Sectors of the log that were lost."""
    return _lose(scene, SECTOR, 3)


def range_zero(scene: Scene) -> str:
    """A range of zeros anywhere in the log, of any length."""
    path, filled = _filled(scene)
    at = scene.rng.randrange(filled)
    size = scene.rng.choice([1, 3, 8, 20, 90, 400, 3000, filled])
    scene.write(path, at, bytes(size))
    return f"{size} zeros at {at} of {scene.said(path)}"


def range_random(scene: Scene) -> str:
    """Random bytes over a range of the log."""
    path, filled = _filled(scene)
    at = scene.rng.randrange(filled)
    size = scene.rng.choice([1, 8, 64, 512, 5000])
    scene.write(path, at, scene.rng.randbytes(size))
    return f"{size} random bytes at {at} of {scene.said(path)}"


def range_repeated(scene: Scene) -> str:
    """A page of the log that was written to a second place, too."""
    path, filled = _filled(scene)
    pages = filled // PAGE
    if pages < 2:
        raise NotHere
    one, other = scene.rng.sample(range(pages), 2)
    scene.write(path, other * PAGE, own.content(path)[one * PAGE : (one + 1) * PAGE])
    return f"page {one} of {scene.said(path)} also in place of page {other}"


def bytes_inserted(scene: Scene) -> str:
    """Bytes that came in between: all bytes after them in the file are shifted."""
    path, filled = _filled(scene)
    at, size = scene.rng.randrange(filled), scene.rng.choice([1, 4, 20, 91, 1000])
    data = own.content(path)
    given = scene.rng.choice([bytes(size), scene.rng.randbytes(size)])
    path.write_bytes((data[:at] + given + data[at:])[: len(data)])
    return f"{size} bytes inserted at {at} of {scene.said(path)}"


def bytes_deleted(scene: Scene) -> str:
    """Bytes that fell out: all bytes after them in the file are shifted."""
    path, filled = _filled(scene)
    at, size = scene.rng.randrange(filled), scene.rng.choice([1, 4, 20, 91, 1000])
    data = own.content(path)
    path.write_bytes((data[:at] + data[at + size :]).ljust(len(data), b"\0"))
    return f"{size} bytes deleted at {at} of {scene.said(path)}"


def blank_broken(scene: Scene) -> str:
    """The blank record at a segment's end says something else."""
    size = scene.base.segment
    found = []
    for start, path in scene.segments():
        inside = scene.records_in(start)
        last = inside[-1] - start + len(scene.facts.records[inside[-1]][0]) if inside else size
        if last <= size - 8 and own.content(path)[last + 4 : last + 8] == b"\xcb\xd4\x31\x94":
            found.append((path, last))
    path, at = scene.pick(found)
    field = scene.rng.choice([0, 4])
    scene.write(path, at + field, scene.rng.choice([bytes(4), scene.rng.randbytes(4), b"\0\0\0\x08"]))
    return f"the {'length' if field == 0 else 'magic'} of the blank at {at} of {scene.said(path)}"


SHAPES = {
    "pages-zero": pages_zero,
    "sectors-zero": sectors_zero,
    "range-zero": range_zero,
    "range-random": range_random,
    "range-repeated": range_repeated,
    "bytes-inserted": bytes_inserted,
    "bytes-deleted": bytes_deleted,
    "blank-broken": blank_broken,
}
