"""Checkpoint and abort file, in every combination."""

from __future__ import annotations

import os
import struct

from tests.proof import own
from tests.proof.scene import NotHere, Scene

FUTURE = 4_102_444_800_000


def checkpoint(scene: Scene) -> str:
    """The checkpoint: lost, empty, cut, zero, in the future, in the past, or wild in one field."""
    path = scene.root / "checkpoint"
    if not own.regular(path):
        raise NotHere
    how = scene.rng.choice(["lost", "empty", "cut", "zero", "future", "past", "wild"])
    if how == "lost":
        path.unlink()
    elif how in ("empty", "cut"):
        os.truncate(path, 0 if how == "empty" else 20)
    elif how == "zero":
        path.write_bytes(bytes(4096))
    elif how in ("future", "past"):
        scene.write(path, 0, struct.pack(">q", FUTURE if how == "future" else 1) * 3)
    else:
        scene.write(path, scene.rng.choice([0, 8, 16]), scene.rng.randbytes(8))
    return how


def abort(scene: Scene) -> str:
    """The abort file: there though the store was closed, or gone though it was not."""
    path = scene.root / "abort"
    if own.regular(path):
        path.unlink()
        return "removed"
    if os.path.lexists(path):
        raise NotHere
    path.write_bytes(scene.rng.choice([b"", b"4711"]))
    return "made"


SHAPES = {"checkpoint": checkpoint, "abort": abort}
