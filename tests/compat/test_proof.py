"""The shapes of damage of the proof (tests/proof) beside Apache 4.9.8: what it loses of a store of each, and we don't.

Each store is broken once. Apache opens one copy as it is. The other is repaired by the next command that each answer of
rstore names, run as it is printed, until nothing is named; then Apache opens it, too: it must not cut the log, and
must read by queue, place and key what the proof's own reader reads. The rows go to the table of test_loss_table.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.compat import loss_table
from tests.compat.loss import Loss
from tests.proof import bases, beside, command, judge, shapes, store, truth
from tests.proof.beside import Beside
from tests.proof.judge import Case
from tests.proof.test_walk import UNDECIDED
from tests.proof.walk import LOOKING, Walk, walk

pytestmark = pytest.mark.interop

SEED = 7
BASES = ("tiny", "keys", "live", "paths", "clean-small")


@dataclass(frozen=True)
class Broken:
    """A store with one damage: the copy that Apache opens as it is, and the one that is repaired."""

    shape: str
    how: str
    theirs: Case
    ours: Case

    @property
    def sound(self) -> int:
        """Records that are sound."""
        return len(self.theirs.whole)


@dataclass
class Seen:
    """What became of the stores, by shape."""

    broken: dict[str, Broken]
    walks: dict[str, Walk]
    lost: dict[str, truth.Loss]
    apache: dict[str, beside.Theirs]
    differs: dict[str, str | None]


def break_one(number: int, shape: str, undamaged: list[bases.Base], root: Path) -> Broken:
    root.mkdir()
    theirs, ((_, how),) = store.damaged(store.Wanted(SEED, (shape,), damages=1), number, undamaged, root / "theirs")
    return Broken(shape, how, theirs, replace(theirs, store=judge.copy(theirs.store, root / "ours")))


def repair(one: Broken, first: str, conf: Path) -> tuple[Broken, Walk]:
    """Walks; what that ends with and a person has to bring (as recover names it) is brought, and the walk goes on."""
    conf.write_text(one.ours.base.conf(one.ours.store), encoding="utf-8")
    done = walk(one.ours.store, conf, first)
    if done.brought is not None and judge.brought(one.ours, command.run(one.ours.store, conf, "recover", "--yes")):
        whole = truth.sound(one.ours.base, one.ours.facts, one.ours.store)
        return replace(one, ours=replace(one.ours, whole=whole)), walk(one.ours.store, conf, first)
    return one, done


@pytest.fixture(scope="module")
def seen(apache_store: None, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    root = tmp_path_factory.mktemp("shapes")
    undamaged = [bases.unpack(name, root / "bases") for name in BASES]
    asked, found = Beside(undamaged, root / "asked"), Seen({}, {}, {}, {}, {})
    for some in beside.chunks(list(enumerate(shapes.SHAPES))):
        broken = [break_one(number, shape, undamaged, root / shape) for number, shape in some]
        theirs = asked.losses([one.theirs for one in broken], again=False)
        found.apache |= {one.shape: each for one, each in zip(broken, theirs, strict=True)}
        for number, shape in some:
            one, done = repair(broken.pop(0), LOOKING[number % len(LOOKING)], root / f"{shape}.conf")
            broken.append(one)
            found.broken[shape], found.walks[shape], found.lost[shape] = one, done, loss(one.ours, done)
        differs = asked.differences([one.ours for one in broken])
        found.differs |= {one.shape: each for one, each in zip(broken, differs, strict=True)}
    return found


def loss(case: Case, done: Walk) -> truth.Loss:
    """What is lost. A log that needed no bridge may have a torn record behind its end: a start cuts that."""
    bridged = any("--bridge" in ran.words for ran in done.ran)
    return truth.loss(case.base, case.facts, case.whole, truth.held(case.base, case.store), to_the_end=bridged)


def told(wrong: dict[str, str], seen: Seen) -> str:
    return "\n".join(f"{shape}: {seen.broken[shape].how}: {how}" for shape, how in wrong.items())


@pytest.mark.timeout(900)
def test_we_lose_nothing_of_any_shape(seen: Seen, record_property) -> None:
    """And beside it in the table: what Apache loses of the same store."""
    for shape, one in seen.broken.items():
        lost, theirs = seen.lost[shape], seen.apache[shape]
        row = {"id": f"p-{shape}", "base": one.ours.base.name, "category": kind(shape), "note": one.how}
        row |= {"exit": theirs.exit, "sound": one.sound, "how": "next", "recorded": None}
        ours = Loss(len(lost.queue), len(lost.moved), len(lost.key), len(lost.place), len(lost.messages))
        record_property(loss_table.OURS, row | {"ours": ours.to_json()})
    counted = {
        f"p-{shape}": Loss(one.queue, 0, one.key, one.place, one.lost).to_json()
        for shape, one in seen.apache.items()
        if one.exit == 0
    }
    record_property(loss_table.APACHE, counted)
    wrong = {shape: f"{lost}\n{seen.walks[shape]}" for shape, lost in seen.lost.items() if lost.any()}
    assert not wrong, told(wrong, seen)
    assert sum(one.lost for one in seen.apache.values()) > 0


def kind(shape: str) -> str:
    """The module of a shape."""
    return "proof: " + shapes.SHAPES[shape].__module__.rpartition(".")[2]


def test_the_words_lead_to_a_sound_store(seen: Seen) -> None:
    wrong = {
        shape: str(done)
        for shape, done in seen.walks.items()
        if not done.clean and not (done.left and done.left <= UNDECIDED)
    }
    assert not wrong, told(wrong, seen)


def test_apache_opens_it_without_cutting_and_reads_what_is_there(seen: Seen, record_property) -> None:
    wrong = {shape: differs for shape, differs in seen.differs.items() if differs is not None}
    assert not wrong, told(wrong, seen)
    assert seen.differs.keys() == shapes.SHAPES.keys()
    record_property(loss_table.WALKED, len(seen.differs))
