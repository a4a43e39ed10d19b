"""Apache beside us: what it loses of the same damaged stores, and what it reads of those that we repaired.

It is the release that wrote the base: 4.9.8 (tests.compat.batch), or the message store and timer of RocketMQ 5
(tests.compat.holds5). Many stores in one JVM at a time; it is asked for every queue, place and key (Holds.java).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.compat import batch, holds5
from tests.compat.apache import Exit, Opened, Sizes

from . import bases, command, judge, newer, own, store, truth
from .bases import Base, Facts
from .command import Ran
from .judge import STEPS, Case
from .store import Wanted

T = TypeVar("T")

CHUNK = 48
"""Stores that lie side by side."""
HANG = 45.0
"""Seconds that Apache gets to open a store: many are opened at once."""
MOST = 64
"""Messages that a query gives at most (maxMsgsNumBatch)."""


@dataclass(frozen=True)
class Theirs:
    """What Apache made of a damaged store. `exit`: see tests.compat.apache.Exit, None for a hang. `timer`: messages
    that wait and that its timer does not deliver.
    """

    exit: int | None
    place: int = 0
    queue: int = 0
    key: int = 0
    lost: int = 0
    timer: int = 0

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Repaired:
    """What Apache made of a repaired store. `differs`: what it reads otherwise than we do; `refused`: the last word of
    a repair that did not get there, and Apache was not asked.
    """

    number: int
    differs: str | None = None
    refused: str | None = None


def keys_of(facts: Facts) -> dict[tuple[str, str], set[int]]:
    """The physical offsets of the messages with each (topic, key)."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for offset, (_, record) in facts.records.items():
        if record.kind != own.ROLLBACK:
            given = own.properties_of(record)
            for word in {given.get("UNIQ_KEY", ""), *given.get("KEYS", "").split(" ")} - {""}:
                found[record.topic.decode("utf-8", "replace"), word].add(offset)
    return found


class Beside:
    """Asks Apache; `root`: a place for stores, and for the lists of what is asked for.

    Only places of sound messages are asked for: at another one Apache takes any number for a length, and allocates
    as much.
    """

    def __init__(self, undamaged: Sequence[Base], root: Path) -> None:
        self._bases, self._root = undamaged, root
        self._keys = {base.name: keys_of(base.facts) for base in undamaged}
        root.mkdir(parents=True)

    def damaged(self, wanted: Wanted, numbers: Sequence[int]) -> Iterator[tuple[int, Theirs]]:
        """What Apache loses of the stores of these numbers."""
        for some in chunks(numbers):
            cases = [store.damaged(wanted, number, self._bases, self._root / str(number))[0] for number in some]
            yield from zip(some, self.losses(cases), strict=True)
            _removed(cases)

    def repaired(self, wanted: Wanted, numbers: Sequence[int]) -> Iterator[Repaired]:
        """Repairs each store as `recover` says, and lets Apache open it."""
        for some in chunks(numbers):
            cases: dict[int, Case] = {}
            for number in some:
                case, _ = store.damaged(wanted, number, self._bases, self._root / str(number))
                case, last = repair(case, self._root / f"{number}.conf")
                if last.exit <= 1:  # 1: what check still tells of, and nothing decides
                    cases[number] = case
                else:
                    yield Repaired(number, refused=str(last))
                    _removed([case])
            for number, differs in zip(cases, self.differences(list(cases.values())), strict=True):
                yield Repaired(number, differs=differs)
            _removed(list(cases.values()))

    def losses(self, cases: Sequence[Case], *, again: bool = True) -> list[Theirs]:
        """What Apache loses of each of these damaged stores, which it opens and changes; `again`: see `_opened`."""
        return [self._loss(case, opened) for case, opened in zip(cases, self._opened(cases, again=again), strict=True)]

    def differences(self, cases: Sequence[Case]) -> list[str | None]:
        """What Apache, which opens each of these stores, reads otherwise than our reader did before; None: nothing."""
        before = [truth.held(case.base, case.store) for case in cases]
        gone = {case.store for case in cases if newer.all_gone(case.store)}
        opened = self._opened(cases)
        return [
            self._differs(case, held, each, all_gone=case.store in gone)
            for case, held, each in zip(cases, before, opened, strict=True)
        ]

    def _opened(self, cases: Sequence[Case], *, again: bool = True) -> list[Opened]:
        """What Apache reads. `again`: a store that it hangs on, finds no memory for, or whose start ends in
        RocketMQ 5's own tables (TreeMap#rotateLeft), is opened a second time, alone, as others may have been the cause;
        from a copy that lies beside each store meanwhile, since a hang leaves it in any state.
        """
        if not cases:
            return []
        copies = [judge.copy(case.store, case.store.with_suffix(".copy")) if again else None for case in cases]
        found = self._asked(cases)
        for number, (case, copy, opened) in enumerate(zip(cases, copies, found, strict=True)):
            error = opened.error or ""
            if copy is not None and (opened.exit is None or "OutOfMemory" in error or "NullPointer" in error):
                shutil.rmtree(case.store)
                copy.rename(case.store)
                (found[number],) = self._asked([case])
            elif copy is not None:
                shutil.rmtree(copy)
        return found

    def _asked(self, cases: Sequence[Case]) -> list[Opened]:
        """Each by its own release."""
        found: dict[int, Opened] = {}
        for release in sorted({case.base.release for case in cases}):
            numbers = [i for i, case in enumerate(cases) if case.base.release == release]
            some = [cases[i] for i in numbers]
            if release == bases.OLD:
                opened = batch.run([self._run(case) for case in some], hang=HANG)
            else:
                opened = holds5.run(release, [self._asked5(case) for case in some])
            found.update(zip(numbers, opened, strict=True))
        return [found[i] for i in range(len(cases))]

    def _asked5(self, case: Case) -> holds5.Asked:
        return holds5.Asked(case.store, case.base.settings, sorted(case.whole), sorted(self._keys[case.base.name]))

    def _run(self, case: Case) -> batch.Run:
        given = case.base.settings
        names = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
        sizes = Sizes(*(int(given[name]) for name in names))
        more = {k: v.replace("ROOT", str(case.store)) if isinstance(v, str) else v for k, v in given.items()}
        asked = {"places": sorted(case.whole), "keys": sorted(self._keys[case.base.name])}
        file = case.store.with_suffix(".json")
        file.write_text(json.dumps(asked, ensure_ascii=False), encoding="utf-8")
        return batch.holds(case.store, file, sizes, more)

    def _loss(self, case: Case, opened: Opened) -> Theirs:
        if opened.exit != Exit.OPENED:
            return Theirs(opened.exit, lost=len(case.whole))
        queued = _queued(opened)
        place = case.whole - {offset for line in opened.of_type("places") for offset in line["offsets"]}
        queue = {o for unit, o in case.facts.queues.items() if o in case.whole and queued.get(unit) != o}
        found = self._found(case.base, opened)
        key = {o for one, offsets in self._keys[case.base.name].items() for o in offsets & case.whole - found[one]}
        return Theirs(
            opened.exit, len(place), len(queue), len(key), len(place | queue | key), self._untimed(case, opened)
        )

    def _untimed(self, case: Case, opened: Opened) -> int:
        """How many sound timer messages that wait are not delivered."""
        if not newer.has_timers(case.base) or not newer.is_fresh(case.base):
            return 0
        held = truth.held(case.base, case.store)
        must, _ = newer.waiting(case.base, case.facts, held)
        return (must - self._delivered(case.facts, held, opened)).total()

    def _delivered(self, facts: Facts, held: truth.Held, opened: Opened) -> Counter[str]:
        lines = opened.of_type(holds5.TIMER)
        places, queue_offset = (lines[0]["places"], lines[0]["queueOffset"]) if lines else ([], 0)
        return newer.by_timer(facts, held, places, queue_offset)

    def _found(self, base: Base, opened: Opened) -> dict[tuple[str, str], set[int]]:
        asked = sorted(self._keys[base.name])
        (line,) = opened.of_type("keys")
        return {key: set(offsets) for key, offsets in zip(asked, line["offsets"], strict=True)}

    def _differs(self, case: Case, held: truth.Held, opened: Opened, *, all_gone: bool) -> str | None:
        """What Apache reads otherwise than our reader did before it opened the store.

        A unit of offset 0 in a log that begins later says nothing: there Apache gives the log's first record, whichever
        that is (CommitLog#getData, MappedFileQueue#findMappedFileByOffset with returnFirstOnNotFound).
        """
        if opened.exit != Exit.OPENED or opened.final is None:
            return f"it does not open: exit {opened.exit}, {opened.error}"
        if opened.final.max != (end := held.end):
            return f"its log ends at {opened.final.max}, not at {end}"
        queued = _queued(opened)
        for (topic, queue_id), units in held.units.items():
            for at, unit in units.items():
                got = queued.get((topic, queue_id, at))
                there = held.record(unit.offset, case.base.segment) is not None  # not so in a segment that is gone
                if got != (unit.offset if there else None) and (there or unit.offset):
                    return f"{topic}/{queue_id} {at}: the message at {unit.offset}; Apache gets {got}"
        places = {offset for line in opened.of_type("places") for offset in line["offsets"]}
        if gone := {o for o in case.whole if held.record(o, case.base.segment) is not None} - places:
            return f"{len(gone)} messages are not at their place: {truth.names(case.facts, gone)}"
        by_hash: dict[int, set[int]] = defaultdict(set)
        for one, offset in held.keys:
            by_hash[one].add(offset)
        for (topic, key), offsets in self._found(case.base, opened).items():
            ours = by_hash[own.key_hash(topic, key)]
            either = (ours ^ offsets) & case.whole  # what is no message can be found by entries of lost ones
            if len(ours) < MOST and either:
                return f"key {topic} {key}: {sorted(either)[:4]} are found by one only"
        if newer.has_timers(case.base) and newer.is_fresh(case.base):
            got = self._delivered(case.facts, held, opened)
            return "; ".join(newer.other_than(case.base, case.facts, held, got, all_gone=all_gone)) or None
        return None


def _queued(opened: Opened) -> dict[tuple[str, int, int], int]:
    return {
        (line["topic"], line["queueId"], at): offset
        for line in opened.of_type("holds")
        for at, offset in zip(line["offsets"], line["places"], strict=True)
    }


def repair(case: Case, conf: Path) -> tuple[Case, Ran]:
    """Does what `recover` says, and what comes next by the commands' own words, until nothing does; the last run.

    What a refusal says that a person has to bring (a disk to mount, something to move out) is brought once.
    """
    conf.write_text(case.base.conf(case.store), encoding="utf-8")
    words, brought = ["recover", "--yes"], False
    for _ in range(2 * STEPS):
        ran = command.run(case.store, conf, *words)
        following = command.next_words(ran)
        if following is not None and tuple(following) != ran.words:
            words = following
        elif ran.exit >= 4 and not brought and judge.brought(case, ran):
            brought, words = True, ["recover", "--yes"]
            case = replace(case, whole=truth.sound(case.base, case.facts, case.store))
        else:
            break
    return case, ran


def chunks(numbers: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as may lie side by side."""
    for at in range(0, len(numbers), CHUNK):
        yield numbers[at : at + CHUNK]


def _removed(cases: Sequence[Case]) -> None:
    for case in cases:
        shutil.rmtree(case.store, ignore_errors=True)
