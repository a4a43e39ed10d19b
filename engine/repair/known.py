"""Places of the log that earlier repairs left as they are, or bridged: said by the manifests in salvage/.

A manifest's `accepted` are stretches that a repair was told to go on behind; `bridged` (the same shape, written by the
repair that bridges) are stretches that were overwritten by one inert record each. Whoever looks at the log asks here
whether a place is known.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import StorageError
from engine.format import names
from engine.repair.salvage import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk

Place = tuple[int, int]
"""Physical offset and length in bytes."""


@dataclass(frozen=True, slots=True)
class Known:
    """Stretches that earlier repairs know of."""

    accepted: frozenset[Place] = frozenset()
    bridged: frozenset[Place] = frozenset()


def known_places(disk: Disk, root: str) -> Known:
    """What the manifests in a store's salvage/ say; one that can't be read says nothing."""
    accepted: set[Place] = set()
    bridged: set[Place] = set()
    for manifest in _manifests(disk, root):
        accepted |= _places(manifest.get("accepted"))
        bridged |= _places(manifest.get("bridged"))
    return Known(frozenset(accepted), frozenset(bridged))


def _manifests(disk: Disk, root: str) -> Iterator[dict[str, Any]]:
    base = os.path.join(root, names.SALVAGE)
    for entry in disk.scandir(base) if disk.exists(base) else ():
        path = os.path.join(entry.path, MANIFEST)
        if entry.is_file or not disk.exists(path):
            continue
        try:
            found = json.loads(disk.read_file(path))
        except (ValueError, StorageError):
            continue
        if isinstance(found, dict):
            yield found


def _places(value: object) -> set[Place]:
    if not isinstance(value, list):
        return set()
    return {
        (one["offset"], one["length"])
        for one in value
        if isinstance(one, dict) and isinstance(one.get("offset"), int) and isinstance(one.get("length"), int)
    }
