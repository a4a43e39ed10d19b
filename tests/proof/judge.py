"""Judges one damaged store: repaired in every way, read again, run again, taken back."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import command, newer, truth
from .bases import Base, Facts
from .command import Ran
from .tree import changes, tree
from .truth import Loss

MODES = {"plain": (), "bridge": ("--bridge",), "cut": ("--cut",)}
STEPS = 6
"""Hints that are followed at most: more of them lead in a circle."""

MOST_BROUGHT = 3
"""Things that a person has to bring or to move out, one after the other."""


@dataclass
class Verdict:
    """What one way of repairing made of a store. `findings`: (kind, what) each."""

    mode: str
    words: list[str] = field(default_factory=list)
    exit: int | None = None
    place: int = 0
    queue: int = 0
    key: int = 0
    lost: int = 0
    findings: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Case:
    """A damaged store, and what was sound in it. `wander`: whether what comes next is done in any case.

    `contested`: of what was sound, see `truth.contested`.
    """

    base: Base
    facts: Facts
    store: Path
    whole: frozenset[int]
    wander: bool = False
    contested: frozenset[int] = frozenset()


def copy(store: Path, to: Path) -> Path:
    """A copy, odd kinds of files, times and links kept."""
    subprocess.run(["cp", "-a", "--reflink=auto", store, to], check=True)
    return to


def judge(case: Case, mode: str, work: Path) -> Verdict:
    """Repairs a copy in a mode, and judges it."""
    verdict = Verdict(mode)
    store, conf = copy(case.store, work / "store"), work / "broker.conf"
    conf.write_text(case.base.conf(store), encoding="utf-8")
    try:
        _judge(case, mode, store, conf, verdict)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(exist_ok=True)
    return verdict


def _judge(case: Case, mode: str, store: Path, conf: Path, verdict: Verdict) -> None:
    before = tree(store)
    words = ["recover", *MODES[mode]]
    dry = _run(store, conf, verdict, *words, "--dry-run")
    if diff := changes(before, tree(store)):
        verdict.findings.append(("dry-run", f"a dry run changed {diff}"))
    done = _run(store, conf, verdict, *words, "--yes")
    _dry_is_done(dry, done, verdict)
    done = _followed(store, conf, verdict, done, before)
    for _ in range(MOST_BROUGHT):
        if done.exit < 4 or not brought(replace(case, store=store), done):
            break
        before = tree(store)
        case = replace(case, whole=truth.sound(case.base, case.facts, store))
        done = _followed(store, conf, verdict, _run(store, conf, verdict, *words, "--yes"), before)
    verdict.exit = done.exit
    if done.exit != 0:
        if case.whole or not _to_bring(done):
            verdict.findings.append(("dead-end", str(done)))
        return
    lost = _read(case, store, verdict)
    if lost.any() or case.wander:
        done = _to_the_end(store, conf, verdict, done)
        lost = _read(case, store, verdict)
    _tell(case, lost, done, verdict)
    after = tree(store)
    again = _run(store, conf, verdict, "recover", "--yes")
    if again.exit != 0:
        verdict.findings.append(("second", f"a second run: {again}"))
    elif diff := changes(after, tree(store)):
        verdict.findings.append(("second", f"a second run changed {diff}"))
    _undo(store, conf, before, verdict)


def _followed(store: Path, conf: Path, verdict: Verdict, done: Ran, before: dict[str, str]) -> Ran:
    """Does what refusals say, until one says nothing or something was done."""
    for _ in range(STEPS):
        if done.exit != 4:
            break
        if diff := _changed(before, store, undone=False, most=2):
            verdict.findings.append(("refused", f"{done}: and changed {diff}"))
        following = command.next_words(done)
        if following is None or tuple(following) == done.words:
            break
        done = _run(store, conf, verdict, *following)
    return done


def _to_the_end(store: Path, conf: Path, verdict: Verdict, done: Ran) -> Ran:
    """Does what comes next by the commands' own words, until nothing does."""
    for _ in range(2 * STEPS):
        following = command.next_words(done)
        if following is None:
            return done
        done = _run(store, conf, verdict, *following)
        if done.exit not in (0, 1, 4):
            break
    else:
        verdict.findings.append(("dead-end", f"in a circle: {'; '.join(verdict.words[-STEPS:])}"))
    if done.exit > 1:
        verdict.findings.append(("dead-end", str(done)))
    return done


def _to_bring(done: Ran) -> bool:
    """Whether a refusal says what somebody has to bring: all that is left to say of a store without a sound record."""
    told = done.error.get("next")
    return done.exit == 4 and isinstance(told, dict) and not told.get("command") and bool(told.get("why"))


def brought(case: Case, done: Ran) -> bool:
    """Does what a refusal leaves to a person: moves out what is no file, mounts a disk; whether there was any of it."""
    return _moved_out(done, case.store) or _mounted(case.base, case.store)


def _moved_out(done: Ran, store: Path) -> bool:
    """Does what a refusal says of something that is no file, and in nobody's way elsewhere; whether it says that."""
    path = Path(done.error.get("path") or "")
    if "move it out of the store" not in (done.error.get("hint") or "") or store not in path.parents:
        return False
    path.rename(store.parent / f"moved-{store.name}-{path.name}")
    return True


def _mounted(base: Base, store: Path) -> bool:
    """Brings back what the store's dangling links lead to; whether there were any."""
    found = False
    for path in sorted(store.rglob("*")):
        if path.is_symlink() and not path.exists():
            content = base.store / path.relative_to(store)
            target = path.parent / os.readlink(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if content.exists():
                copy(content, target)
            else:
                target.touch()
            found = True
    return found


def _own(before: dict[str, str], *, undone: bool) -> set[str]:
    """What a command may leave in a store's root: its lock (where a mounted link leads to, too), what repairs saved."""
    kept = {name for name in ("lock", "salvage") if name not in before and (undone or name == "lock")}
    return {*kept, "not-mounted/lock"}


def _changed(before: dict[str, str], store: Path, *, undone: bool, most: int = 4) -> str:
    """How a store differs from what it was, but for what is a command's own."""
    own = _own(before, undone=undone)
    return changes({name: what for name, what in before.items() if name not in own}, tree(store, own), most)


def _run(store: Path, conf: Path, verdict: Verdict, *words: str) -> Ran:
    ran = command.run(store, conf, *words)
    verdict.words.append(" ".join(words))
    if ran.is_fault:
        told = command.traceback_of(store, conf, *words)
        verdict.findings.append(("fault", f"{ran}\n{told}"))
    return ran


def _dry_is_done(dry: Ran, done: Ran, verdict: Verdict) -> None:
    if done.exit == 5 and Path(done.error.get("path") or "").name == "lock":
        return  # a dry run takes no lock
    planned, made = ({k: v for k, v in ran.said.items() if k not in ("salvage", "next")} for ran in (dry, done))
    for said in (planned, made):
        if said.get("timer"):  # without a timercheck it is now
            said["timer"] = {name: value for name, value in said["timer"].items() if name != "lastReadTime"}
    if planned != made:
        keys = sorted(key for key in planned.keys() | made.keys() if planned.get(key) != made.get(key))
        verdict.findings.append(("dry-run", f"planned and done differ in {', '.join(keys)}"))


def _read(case: Case, store: Path, verdict: Verdict) -> Loss:
    """What of the sound messages the repaired store doesn't give."""
    found = truth.held(case.base, store)
    lost = truth.loss(case.base, case.facts, case.whole, found, to_the_end=verdict.mode == "bridge")
    lost.parts = newer.wrong(case.base, case.facts, case.store, store, found)
    other = truth.saved(store, case.facts, lost.place & case.contested) if lost.place & case.contested else set()
    lost.place -= other
    if lost.messages and any("--cut" in one for one in verdict.words):
        kept = truth.saved(store, case.facts, lost.place) | other
        lost = replace(
            lost, place=lost.place - kept, queue=lost.queue - kept, moved=lost.moved - kept, key=lost.key - kept
        )
    return lost


def _tell(case: Case, lost: Loss, last: Ran, verdict: Verdict) -> None:
    verdict.place, verdict.queue, verdict.key = len(lost.place), len(lost.queue | lost.moved), len(lost.key)
    verdict.lost = len(lost.messages)
    for kind, offsets in (("place", lost.place), ("queue", lost.queue), ("moved", lost.moved), ("key", lost.key)):
        if offsets:
            verdict.findings.append((f"lost-{kind}", truth.names(case.facts, offsets)))
    if lost.invented:
        verdict.findings.append(("invented", f"{len(lost.invented)}: {'; '.join(lost.invented[:3])}"))
    if lost.parts:
        verdict.findings.append(("parts", "; ".join(lost.parts)))
    if lost.broken:
        verdict.findings.append(("broken", "; ".join(lost.broken[:3])))
    if lost.any():
        verdict.findings.append(("verdict", f"the last word was {last}; before it {'; '.join(verdict.words[-5:])}"))


def _undo(store: Path, conf: Path, before: dict[str, str], verdict: Verdict) -> None:
    """Takes back all that was repaired: the store is, name by name and byte by byte, what it was."""
    for _ in range(STEPS):
        ran = command.run(store, conf, "undo", "--yes")
        if ran.exit != 0:
            break
    if ran.is_fault:
        verdict.findings.append(("fault", f"{ran}\n{command.traceback_of(store, conf, 'undo', '--yes')}"))
    elif ran.exit != 4 or "no repair to undo" not in ran.err:
        verdict.findings.append(("undo", str(ran)))
    if diff := _changed(before, store, undone=True):
        verdict.findings.append(("undo", f"not taken back: {diff}"))
