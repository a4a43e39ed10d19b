"""One table of several runs of one seed: chunks of its stores, and what Apache was asked for apart from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import report
from .store import Judged


def merge(places: Sequence[Path], into: Path) -> list[Judged]:
    """Writes proof.md and proof.json of what the proof.json of each place holds; gives the stores.

    A store that is in several of them gets its verdicts from the last place that judged it, and what Apache made of it
    from the last that asked.

    Raises:
        ValueError: runs of different seeds, or a store that differs: its shapes are not what they were.
    """
    found: dict[int, Judged] = {}
    seeds = set()
    for place in places:
        said = json.loads((place / "proof.json").read_text(encoding="utf-8"))
        seeds.add(said["seed"])
        for one in map(Judged.of, said["stores"]):
            found[one.number] = _both(found[one.number], one, place) if one.number in found else one
    if len(seeds) != 1:
        raise ValueError(f"runs of several seeds: {sorted(seeds)}")
    stores = [found[number] for number in sorted(found)]
    report.write(stores, into, seeds.pop())
    print(report.apache_line(stores))
    return stores


def _both(before: Judged, after: Judged, place: Path) -> Judged:
    if (before.base, before.damage, before.sound) != (after.base, after.damage, after.sound):
        raise ValueError(f"store {after.number} of {place} is another one than before: made with other shapes")
    judged = after if after.verdicts else before
    asked = after if after.opened or after.refused else before
    return replace(
        judged,
        apache=after.apache or before.apache,
        opened=asked.opened,
        differs=asked.differs,
        refused=asked.refused,
    )
