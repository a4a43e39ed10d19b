"""Damage to config/: files that are cut, or hold values of wrong types."""

from __future__ import annotations

import os
from pathlib import Path

from tests.proof import own
from tests.proof.scene import NotHere, Scene


def _file(scene: Scene) -> Path:
    top = scene.root / "config"
    path: Path = scene.pick([top / name for name in own.listed(top) if own.regular(top / name)])
    return path


def config_cut(scene: Scene) -> str:
    """A file of config/ that was cut off, or emptied."""
    path = _file(scene)
    size = path.stat().st_size
    to = scene.rng.choice([0, size // 2, max(0, size - 1)])
    os.truncate(path, to)
    return f"{scene.said(path)} cut to {to} bytes"


def config_types(scene: Scene) -> str:
    """A file of config/ whose values are of other types."""
    path = _file(scene)
    text = own.content(path)
    given = [b"[]", b"null", b"7", b'{"topicConfigTable": [], "offsetTable": 3}', b"\x00" * 64, b"\xff\xfe{}"]
    changed = text.replace(b": 6", b': "six"').replace(b": 0", b": {}")
    path.write_bytes(scene.rng.choice([*given, changed]))
    return scene.said(path)


def config_lost(scene: Scene) -> str:
    """A file of config/ that is gone, or all of it."""
    if not (scene.root / "config").is_dir():
        raise NotHere
    path = _file(scene)
    path.unlink()
    return scene.said(path)


SHAPES = {"config-cut": config_cut, "config-types": config_types, "config-lost": config_lost}
