"""Places of the log that earlier repairs left as they are, or bridged: said by the manifests in salvage/.

A manifest's `accepted` are ranges after which a repair could continue; `bridged` (the same shape, written by the
repair that bridges) are ranges that were overwritten by one inert record each. Whoever looks at the log asks here
whether a place is known. What was undone is known no longer; nor what a later repair `healed` (the same shape): its
records are there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.repairs import Repair, manifest_ranges, repairs, unfinished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk


@dataclass(frozen=True, slots=True)
class KnownDamage:
    """Ranges (physical offsets) that earlier repairs know of."""

    accepted: Intervals
    bridged: Intervals


def known_places(disk: Disk, root: str) -> KnownDamage:
    """What the manifests in a store's salvage/ say."""
    return known_of(repairs(disk, root))


def known_of(done: Sequence[Repair]) -> KnownDamage:
    """What these repairs say.

    A manifest that can't be read says nothing: at worst the operator is asked, or told, once more.
    """
    damage = KnownDamage(Intervals(), Intervals())
    killed = unfinished(done)
    healed = Intervals()
    for repair in reversed(done):
        for name, known in (("accepted", damage.accepted), ("bridged", damage.bridged)):
            for low, high in manifest_ranges([repair], name):
                for start, end in healed.missing(low, high):
                    known.add(start, end)
        for low, high in manifest_ranges([repair], "healed") if repair not in killed else ():
            healed.add(low, high)
    return damage
