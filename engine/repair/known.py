"""Places of the log that earlier repairs left as they are, or bridged: said by the manifests in salvage/.

A manifest's `accepted` are stretches that a repair was told to go on behind; `bridged` (the same shape, written by the
repair that bridges) are stretches that were overwritten by one inert record each. Whoever looks at the log asks here
whether a place is known.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format import names
from engine.repair.intervals import Intervals
from engine.repair.salvage import MANIFEST

if TYPE_CHECKING:
    from engine.files.disk import Disk


@dataclass(frozen=True, slots=True)
class Known:
    """Stretches (physical offsets) that earlier repairs know of."""

    accepted: Intervals
    bridged: Intervals


def known_places(disk: Disk, root: str) -> Known:
    """What the manifests in a store's salvage/ say.

    A manifest that can't be read says nothing: at worst the operator is asked, or told, once more.
    """
    found = Known(Intervals(), Intervals())
    base = os.path.join(root, names.SALVAGE)
    for entry in disk.scandir(base) if disk.is_dir(base) else ():
        path = os.path.join(entry.path, MANIFEST)
        if not entry.is_file and disk.exists(path):
            with contextlib.suppress(
                ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, StorageError
            ):
                manifest = json.loads(disk.read_file(path))
                for name, known in (("accepted", found.accepted), ("bridged", found.bridged)):
                    for stretch in manifest.get(name, []):
                        known.add(int(stretch["offset"]), int(stretch["offset"]) + int(stretch["length"]))
    return found
