"""One damaged store by its number: the same base and the same damage for the same seed."""

from __future__ import annotations

import random
import resource
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.in_time import Hung, in_time

from . import judge, shapes, truth
from .bases import Base
from .judge import Case, Verdict
from .scene import NotHere, Scene

WEIGHTS = (4, 3, 2, 1)
"""How often a store has 1, 2, 3, 4 damages."""
TRIES = 40
BASES_TRIED = 200
"""Bases that are tried for a shape, which may fit none of them, before the next shape comes first."""
MOST_MIB = 300
LIMIT = 60
"""Seconds for one store: more is a hang."""


@dataclass(frozen=True)
class Wanted:
    """Which stores are made, and how they are repaired. `damages`: their maximum in each."""

    seed: int = 0
    shapes: tuple[str, ...] = tuple(shapes.SHAPES)
    modes: tuple[str, ...] = tuple(judge.MODES)
    damages: int = len(WEIGHTS)


@dataclass
class Judged:
    """One store, judged. `apache`: what Apache loses of it; `opened`: whether Apache was asked to open it once it was
    repaired; `differs`: what it reads otherwise than we do then; `refused`: the last word where no repair was found.
    """

    number: int
    base: str
    damage: list[tuple[str, str]]
    sound: int
    records: int
    seconds: float = 0.0
    peak_mib: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    apache: dict[str, Any] | None = None
    opened: bool = False
    differs: str | None = None
    refused: str | None = None

    @property
    def findings(self) -> list[tuple[str, str, str]]:
        """(mode, kind, what) of all that is wrong."""
        return [(verdict.mode, kind, said) for verdict in self.verdicts for kind, said in verdict.findings]

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return {**vars(self), "verdicts": [one.to_json() for one in self.verdicts]}

    @classmethod
    def of(cls, said: dict[str, Any]) -> Judged:
        """From what `to_json` gave, read again."""
        verdicts = [
            Verdict(**{**one, "findings": [(kind, what) for kind, what in one["findings"]]}) for one in said["verdicts"]
        ]
        return cls(**{**said, "damage": [(name, how) for name, how in said["damage"]], "verdicts": verdicts})


def damaged(wanted: Wanted, number: int, bases: Sequence[Base], to: Path) -> tuple[Case, list[tuple[str, str]]]:
    """Makes the store of a number at `to`: a copy of a base with 1 to 4 damages; shapes come first by turns."""
    rng = random.Random(f"{wanted.seed}/{number}")
    tried = -1
    lies: Base | None = None
    while True:
        tried += 1
        first = wanted.shapes[(number + tried // BASES_TRIED) % len(wanted.shapes)]  # no base may be one for it
        base = rng.choice(list(bases))
        if base is not lies:
            shutil.rmtree(to, ignore_errors=True)
            judge.copy(base.store, to)
            lies = base
        scene = Scene(rng, to, base, base.facts, tuple(one for one in bases if one is not base))
        done: list[tuple[str, str]] = []
        try:
            done.append((first, shapes.EVERY[first](scene)))
        except NotHere:
            continue
        many = rng.choices(range(1, wanted.damages + 1), WEIGHTS[: wanted.damages])[0]
        for _ in range(TRIES):
            if len(done) >= many:
                break
            name = rng.choice(wanted.shapes)
            if name == "torn-snapshot":  # it makes the store anew
                continue
            try:
                done.append((name, shapes.EVERY[name](scene)))
            except NotHere:
                continue
        wander = number // len(wanted.shapes) % 3 == 0
        whole = truth.sound(base, scene.facts, to)
        return Case(base, scene.facts, to, whole, wander, truth.contested(base, scene.facts, to, whole)), done


def judged(wanted: Wanted, number: int, bases: Sequence[Base], work: Path) -> Judged:
    """Makes a store and judges it in each mode: in none of them, it is only described."""
    begin = time.perf_counter()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    case, done = damaged(wanted, number, bases, work / "damaged")
    out = Judged(number, case.base.name, done, len(case.whole), len(case.facts.records))
    for mode in wanted.modes:
        (work / mode).mkdir()
        try:
            with in_time(LIMIT):
                out.verdicts.append(judge.judge(case, mode, work / mode))
        except Hung as hang:
            out.verdicts.append(Verdict(mode, findings=[("hang", f"more than {LIMIT} s: {hang}")]))
    out.seconds = round(time.perf_counter() - begin, 3)
    out.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if out.peak_mib >= MOST_MIB and out.verdicts:
        out.verdicts[-1].findings.append(("memory", f"{out.peak_mib} MiB, with the judge's own"))
    shutil.rmtree(work, ignore_errors=True)
    return out
