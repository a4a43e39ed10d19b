"""Where a file goes that a repair moves: into quarantine, or to the name that its records tell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names

if TYPE_CHECKING:
    from engine.files.disk import Disk


@dataclass(frozen=True, slots=True)
class Way:
    """Three names of one file (paths): the old one, the one in between, the new one."""

    old: str
    via: str
    new: str


def quarantine_target(disk: Disk, root: str, path: str) -> str:
    """Where a stray is moved: under its own path in `quarantine/`, with a number when that is taken."""
    base = os.path.join(root, names.QUARANTINE, os.path.relpath(path, root).lstrip("./"))
    target, n = base, 1
    while disk.look(target) is not None:
        n += 1
        target = f"{base}-{n}"
    return target
