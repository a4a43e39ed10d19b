"""Damage to consume queues: units, files, directories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.proof import own
from tests.proof.scene import PAGE, NotHere, Scene

UNIT = own.UNIT


def unit_wild(scene: Scene) -> str:
    """A unit of random bytes, or that points somewhere else by a bit."""
    path, units = scene.queue_file()
    at = scene.rng.randrange(units)
    old = own.content(path)[at * UNIT : (at + 1) * UNIT]
    new = bytearray(old)
    if scene.rng.random() < 0.4:
        new[:] = scene.rng.randbytes(UNIT)
    else:
        bit = scene.rng.randrange(UNIT * 8)
        new[bit // 8] ^= 1 << bit % 8
    scene.write(path, at * UNIT, bytes(new))
    return f"unit {at} of {units} in {scene.said(path)}"


def units_zero(scene: Scene) -> str:
    """Units that are zeros: a page that was not written back."""
    path, units = scene.queue_file()
    if scene.rng.random() < 0.3:
        at, size = scene.rng.randrange(path.stat().st_size // PAGE + 1) * PAGE, PAGE
    else:
        at, size = scene.rng.randrange(units) * UNIT, scene.rng.choice([1, 2, 7, units]) * UNIT
    scene.write(path, at, bytes(size))
    return f"{size} zeros at {at} of {scene.said(path)}"


def units_swapped(scene: Scene) -> str:
    """Two units of one queue in each other's place."""
    path, units = scene.queue_file(2)
    one, other = scene.rng.sample(range(units), 2)
    data = own.content(path)
    scene.write(path, one * UNIT, data[other * UNIT : (other + 1) * UNIT])
    scene.write(path, other * UNIT, data[one * UNIT : (one + 1) * UNIT])
    return f"units {one} and {other} of {scene.said(path)}"


def unit_twice(scene: Scene) -> str:
    """A unit over another one of its queue."""
    path, units = scene.queue_file(2)
    one, other = scene.rng.sample(range(units), 2)
    scene.write(path, other * UNIT, own.content(path)[one * UNIT : (one + 1) * UNIT])
    return f"unit {one} also in place of {other} in {scene.said(path)}"


def units_foreign(scene: Scene) -> str:
    """Units of another queue."""
    path, units = scene.queue_file()
    other, theirs = scene.queue_file()
    if other.parent == path.parent:
        raise NotHere
    count = scene.rng.randrange(1, min(units, theirs, 9) + 1)
    at, of = scene.rng.randrange(units - count + 1), scene.rng.randrange(theirs - count + 1)
    scene.write(path, at * UNIT, own.content(other)[of * UNIT : (of + count) * UNIT])
    return f"{count} units of {scene.said(other)} at unit {at} of {scene.said(path)}"


def units_past_end(scene: Scene) -> str:
    """Units more than there are messages: copies, or that point after the log end."""
    path, units = scene.queue_file()
    if (units + 2) * UNIT > path.stat().st_size:
        raise NotHere
    data = own.content(path)
    past = (scene.facts.end + scene.rng.randrange(5000)).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
    scene.write(path, units * UNIT, scene.rng.choice([past, past * 2, data[:UNIT], data[UNIT * (units - 1) :][:UNIT]]))
    return f"behind unit {units} of {scene.said(path)}"


def queue_file_cut(scene: Scene) -> str:
    """A queue's file that was cut off."""
    path, units = scene.queue_file()
    to = scene.rng.choice([scene.rng.randrange(1, path.stat().st_size), scene.rng.randrange(units + 1) * UNIT, 0])
    os.truncate(path, to)
    return f"{scene.said(path)} cut to {to} bytes"


def queue_file_long(scene: Scene) -> str:
    """A queue's file with bytes after its end."""
    path, _ = scene.queue_file()
    with path.open("ab") as file:
        file.write(scene.rng.choice([bytes(UNIT), scene.rng.randbytes(13), own.content(path)[:200]]))
    return scene.said(path)


def queue_file_missing(scene: Scene) -> str:
    """A queue's file that is gone."""
    path = scene.pick(scene.queue_files())
    path.unlink()
    return f"{scene.said(path)} is gone"


def queue_files_swapped(scene: Scene) -> str:
    """Two queue files under each other's names."""
    return scene.swapped(scene.queue_files())


def queue_file_far(scene: Scene) -> str:
    """An empty queue file far after the others."""
    path = scene.pick(scene.queue_files())
    size = int(scene.base.settings["mappedFileSizeConsumeQueue"])
    far = path.with_name(f"{int(path.name) + size * scene.rng.randrange(5, 500):020d}")
    far.write_bytes(bytes(size))
    return scene.said(far)


def _two(scene: Scene) -> tuple[Path, Path]:
    found = scene.queue_dirs()
    if len(found) < 2:
        raise NotHere
    one, other = scene.rng.sample(found, 2)
    return one, other


def queues_swapped(scene: Scene) -> str:
    """Two queue directories under each other's names."""
    one, other = _two(scene)
    aside = scene.root / "consumequeue" / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return f"{scene.said(one)} and {scene.said(other)}"


def queue_copied(scene: Scene) -> str:
    """A queue's directory copied over another one, or to a new number."""
    one, other = _two(scene)
    if scene.rng.random() < 0.5:
        other = other.with_name(str(max(int(name) for name in own.listed(other.parent) if name.isdigit()) + 1))
    else:
        shutil.rmtree(other)
    shutil.copytree(one, other)
    return f"{scene.said(one)} as {scene.said(other)}"


def queue_lost(scene: Scene) -> str:
    """A queue's directory that is gone."""
    path = scene.pick(scene.queue_dirs())
    shutil.rmtree(path)
    return scene.said(path)


def queues_lost(scene: Scene) -> str:
    """All queues that are gone."""
    if not (scene.root / "consumequeue").is_dir():
        raise NotHere
    shutil.rmtree(scene.root / "consumequeue")
    return "consumequeue"


SHAPES = {
    "unit-wild": unit_wild,
    "units-zero": units_zero,
    "units-swapped": units_swapped,
    "unit-twice": unit_twice,
    "units-foreign": units_foreign,
    "units-past-end": units_past_end,
    "queue-file-cut": queue_file_cut,
    "queue-file-long": queue_file_long,
    "queue-file-missing": queue_file_missing,
    "queue-files-swapped": queue_files_swapped,
    "queue-file-far": queue_file_far,
    "queues-swapped": queues_swapped,
    "queue-copied": queue_copied,
    "queue-lost": queue_lost,
    "queues-lost": queues_lost,
}
