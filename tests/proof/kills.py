"""Commands that are killed, for real, anywhere: what status names afterwards ends in a sound store, and loses nothing.

A command runs in a process of its own (forked, so that it need not load all again) and gets a SIGKILL: half of the
times after a time drawn from 0 to what it took undisturbed, else before a change of the disk, drawn from all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.files.disk import Disk
from engine.files.faults import CHANGES
from engine.files.operations import Doing, Operation
from rstore_cli.app import COMMANDS

from . import command, judge, own, shapes, truth
from .bases import Base
from .command import Ran
from .judge import Case
from .scene import NotHere, Scene
from .tree import changes, tree

STEPS = 10
TRIES = 12
EACH = 4
"""Kills of one prepared store."""
CLOSED = ("keys", "tiny", "clean-small", "paths", "lmq")
IN_THE_MIDDLE = ("pages-zero", "sectors-zero", "range-zero", "field-magicCode", "field-totalSize", "bytes-inserted")
DERIVED = ("queue-lost", "index-lost", "units-swapped", "index-page", "queues-lost", "unit-twice")


@dataclass(frozen=True)
class Plan:
    """A command to be killed. `damage`: shapes to draw from; `before`: commands run first; `words`: the command itself.

    `words` None: what the refusal of `recover` leads to. `bases`: names, all when empty. `undone`: whether undo takes
    all of it back.
    """

    damage: tuple[str, ...]
    words: tuple[str, ...] | None
    before: tuple[tuple[str, ...], ...] = ()
    bases: tuple[str, ...] = ()
    undone: bool = True


PLANS = {
    "bridge": Plan(IN_THE_MIDDLE, ("recover", "--bridge", "--yes")),
    "rename": Plan(("segments-swapped", "segment-renamed"), None),
    "resize": Plan(("segment-short", "segment-long"), None),
    "undo": Plan((*IN_THE_MIDDLE, *DERIVED), ("undo", "--yes"), (("recover", "--bridge", "--yes"),)),
    "replay": Plan(
        IN_THE_MIDDLE, ("salvage", "replay", "--yes"), (("recover", "--cut", "--yes"),), ("keys", "tiny", "live"), False
    ),
    "truncate": Plan((), ("truncate", "--to-offset", "MIDDLE", "--yes")),
    "reindex": Plan(DERIVED, ("reindex", "--yes"), bases=CLOSED),
    "expire": Plan((), ("expire", "--force", "--yes"), bases=CLOSED, undone=False),
    "rebuild-config": Plan(("config-lost", "config-cut"), ("rebuild-config", "--yes"), bases=("keys", "tiny", "paths")),
}


@dataclass
class Killed:
    """A prepared store, its command, and what became of it after each kill. `findings`: (number of the kill, what)."""

    number: int
    plan: str
    base: str
    damage: list[tuple[str, str]]
    words: list[str] = field(default_factory=list)
    kills: int = 0
    early: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return dict(vars(self))


class _Child:
    """A command in a process of its own."""

    def __init__(self, words: Sequence[str], store: Path, conf: Path, kill_before: int | None = None) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            code = 70
            try:
                counted = _count_changes(kill_before)
                code = command.run(store, conf, *words).exit
                os.write(write, struct.pack(">q", counted()))
            finally:
                os._exit(code)
        os.close(write)
        self._read = read

    def ended(self) -> tuple[int, int]:
        """Waits: exit code (negative: the signal), and how many changes it made."""
        _, status = os.waitpid(self.pid, 0)
        told = os.read(self._read, 8)
        os.close(self._read)
        return os.waitstatus_to_exitcode(status), struct.unpack(">q", told)[0] if len(told) == 8 else 0


def _count_changes(kill_before: int | None) -> Callable[[], int]:
    """Counts this process's changes of the disk from now on, and kills it before one of them."""
    count, doing = 0, Disk.doing

    def counting(self: Disk, operation: Operation, path: str, *more: Any, **named: Any) -> Doing:
        nonlocal count
        if operation in CHANGES:
            count += 1
            if count == kill_before:
                os.kill(os.getpid(), signal.SIGKILL)
        return doing(self, operation, path, *more, **named)

    Disk.doing = counting  # type: ignore[method-assign]
    return lambda: count


def campaign(seed: int, number: int, bases: Sequence[Base], work: Path) -> Killed | None:
    """Prepares one store, and kills its command EACH times, each time on a copy. None: there is no such command."""
    rng = random.Random(f"kills {seed}/{number}")
    name = list(PLANS)[number % len(PLANS)]
    plan = PLANS[name]
    if plan.words is not None and plan.words[0] not in COMMANDS:
        return None
    begin = time.perf_counter()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        ready = _prepared(name, plan, rng, bases, work)
        if ready is None:
            return Killed(number, name, "", [], findings=[(0, f"no repair was found to be killed in {TRIES} tries")])
        out = Killed(number, name, ready.case.base.name, ready.damage, list(ready.words))
        for kill in range(EACH):
            _kill(ready, rng, kill, out)
        out.seconds = round(time.perf_counter() - begin, 3)
        return out
    finally:
        shutil.rmtree(work, ignore_errors=True)


@dataclass
class _Ready:
    """A prepared store: as it is before the command, and as the command leaves it undisturbed."""

    name: str
    plan: Plan
    case: Case
    damage: list[tuple[str, str]]
    words: list[str]
    work: Path
    before: dict[str, str]
    original: dict[str, str]
    done: truth.Held
    done_tree: dict[str, str]
    seconds: float
    changes: int


def _prepared(name: str, plan: Plan, rng: random.Random, bases: Sequence[Base], work: Path) -> _Ready | None:
    for _ in range(TRIES):
        base = rng.choice([one for one in bases if not plan.bases or one.name in plan.bases])
        store = work / "store"
        shutil.rmtree(store, ignore_errors=True)
        judge.copy(base.store, store)
        conf = _conf(base, store, work)
        if name in ("reindex", "expire", "truncate"):
            _closed(store, conf)
        scene = Scene(rng, store, base, base.facts)
        try:
            damage = [(one, shapes.SHAPES[one](scene)) for one in rng.sample(plan.damage, min(1, len(plan.damage)))]
        except NotHere:
            continue
        whole = truth.sound(base, scene.facts, store)
        original = tree(store)
        if name == "expire":
            _age(base, store)
        ran = [command.run(store, conf, *words) for words in plan.before]
        words = _words(plan, base, rng) if plan.words is not None else _leads_to(store, work, base)
        if any(one.exit for one in ran) or words is None:
            continue
        case = Case(base, scene.facts, store, whole)
        found = _undisturbed(case, words, work)
        if found is None:
            continue
        held, after, seconds, count = found
        return _Ready(name, plan, case, damage, words, work, tree(store), original, held, after, seconds, count)
    return None


def _closed(store: Path, conf: Path) -> None:
    """Recovers a store that needs it; what that saved is no part of what is tried here."""
    ran = command.run(store, conf, "recover", "--yes")
    if ran.exit:
        raise RuntimeError(str(ran))
    shutil.rmtree(store / "salvage", ignore_errors=True)


def _conf(base: Base, store: Path, work: Path) -> Path:
    conf = work / f"{store.name}.conf"
    conf.write_text(base.conf(store), encoding="utf-8")
    return conf


def _age(base: Base, store: Path) -> None:
    """All segments but the last two are old."""
    found = [path for one in base.log_dirs(store) for path in one.iterdir() if own.named(path.name) is not None]
    for path in sorted(found, key=lambda one: one.name)[:-2]:
        os.utime(path, (1_600_000_000, 1_600_000_000))


def _words(plan: Plan, base: Base, rng: random.Random) -> list[str]:
    offsets = sorted(base.facts.records)
    middle = rng.choice(offsets[len(offsets) // 3 :])
    return [str(middle) if word == "MIDDLE" else word for word in plan.words or ()]


def _leads_to(store: Path, work: Path, base: Base) -> list[str] | None:
    """The command that mends a store, found by following what `recover` says, on a copy."""
    copy = judge.copy(store, work / "tried")
    try:
        ran = command.run(copy, _conf(base, copy, work), "recover", "--yes")
        for _ in range(STEPS):
            if ran.exit == 0:
                return list(ran.words)
            following = command.next_words(ran)
            if following is None:
                return None
            ran = command.run(copy, _conf(base, copy, work), *following)
        return None
    finally:
        shutil.rmtree(copy)


def _undisturbed(case: Case, words: list[str], work: Path) -> tuple[truth.Held, dict[str, str], float, int] | None:
    copy = judge.copy(case.store, work / "whole")
    try:
        begin = time.perf_counter()
        code, count = _Child(words, copy, _conf(case.base, copy, work)).ended()
        seconds = time.perf_counter() - begin
        return (truth.held(case.base, copy), tree(copy), seconds, count) if code == 0 and count else None
    finally:
        shutil.rmtree(copy)


def _kill(ready: _Ready, rng: random.Random, kill: int, out: Killed) -> None:
    store = judge.copy(ready.case.store, ready.work / "killed")
    conf = _conf(ready.case.base, store, ready.work)
    by_time = kill % 2 == 0
    place = rng.randrange(1, ready.changes + 1)
    delay = rng.random() * ready.seconds
    try:
        child = _Child(ready.words, store, conf, None if by_time else place)
        if by_time:
            time.sleep(delay)
            os.kill(child.pid, signal.SIGKILL)
        code, _ = child.ended()
        out.kills += code == -signal.SIGKILL
        where = f"after {delay * 1000:.0f} ms" if by_time else f"before change {place} of {ready.changes}"
        out.early += changes(ready.before, tree(store, _kept(ready.before))) == ""
        for said in _judged(ready, store, conf):
            out.findings.append((kill, f"killed {where}: {said}"))
    finally:
        shutil.rmtree(store)


def _judged(ready: _Ready, store: Path, conf: Path) -> list[str]:
    """What is wrong with a store whose command was killed, after what it says to do next was done."""
    found: list[str] = []
    ran = command.run(store, conf, "status")
    walked = []
    for _ in range(STEPS):
        following = command.next_words(ran)
        if (ran.exit > 1 and ran.exit != 4) or ran.is_fault:
            return [str(ran)]
        if following is None or following in walked[-1:]:
            break
        walked.append(following)
        ran = command.run(store, conf, *following)
    if ran.exit > 1:
        found.append(f"dead end after {walked}: {ran}")
    elif lost := _lost(ready, store):
        found.append(f"after {walked}: {lost}")
    again = command.run(store, conf, *ready.words)
    if again.exit != 0 and not _nothing_left(ready, again):
        found.append(f"run again: {again}")
    elif lost := _lost(ready, store):
        found.append(f"run again: {lost}")
    found += _ends(ready, store, conf)
    return found


def _nothing_left(ready: _Ready, again: Ran) -> bool:
    """Whether a command that was run to its end already says so."""
    return ready.name in ("undo", "replay", "truncate") and again.exit in (1, 2, 4) and not again.is_fault


def _lost(ready: _Ready, store: Path) -> str:
    case, name = ready.case, ready.name
    held = truth.held(case.base, store)
    whole = case.whole
    if name == "expire":
        whole = frozenset(one for one in whole if one >= min(ready.done.log))
    if name in ("undo", "rebuild-config"):
        return ""  # what these leave is compared by name and byte
    lost = truth.loss(case.base, case.facts, whole, held, to_the_end=False)
    missing = lost.messages
    if name in ("truncate", "replay"):
        missing = lost.place - truth.saved(store, case.facts, lost.place)
    if missing:
        return f"{len(missing)} sound messages lost: {truth.names(case.facts, missing)}"
    if name == "replay":
        return _twice(case, held)
    return "; ".join(lost.invented[:3]) if name != "truncate" else ""


def _twice(case: Case, held: truth.Held) -> str:
    """Messages that are in the log more than once, by their unique keys."""
    seen = Counter(
        own.properties_of(record).get("UNIQ_KEY", "") for _, record in own.walk(held.log) if not record.inert
    )
    twice = [key for key, count in seen.items() if key and count > 1]
    return f"{len(twice)} messages were put back twice" if twice else ""


def _ends(ready: _Ready, store: Path, conf: Path) -> list[str]:
    """As the command leaves it undisturbed; and undo takes all of it back, to the byte."""
    name, found = ready.name, []
    if name == "undo":
        if diff := changes(ready.original, tree(store, _kept(ready.original))):
            found.append(f"not as before the repair: {diff}")
        return found
    held = truth.held(ready.case.base, store)
    if name == "replay":
        wanted = {own.properties_of(record).get("UNIQ_KEY") for _, record in own.walk(ready.done.log)}
        there = {own.properties_of(record).get("UNIQ_KEY") for _, record in own.walk(held.log)}
        if wanted - there:
            found.append(f"{len(wanted - there)} messages were not put back")
    elif name != "rebuild-config":
        for what in ("log", "units", "keys"):
            if getattr(held, what) != getattr(ready.done, what):
                found.append(f"its {what} are not as the command leaves them undisturbed")
    if ready.plan.undone:
        for _ in range(STEPS):
            ran = command.run(store, conf, "undo", "--yes")
            if ran.exit:
                break
        if ran.exit != 4 or "no repair to undo" not in ran.err:
            found.append(str(ran))
        if diff := changes(ready.original, tree(store, _kept(ready.original))):
            found.append(f"undo: not as before: {diff}")
    return found


def _kept(before: dict[str, str]) -> set[str]:
    return {name for name in ("lock", "salvage") if name not in before}
