"""No dead end: the next command that each answer names, run as it is printed, ends at a sound store, whatever broke it.

Each shape of damage of the proof once; each of the commands that only look is where some of the walks begin. Sound
messages are counted before and after by a reader that is not the engine's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import bases, judge, shapes, store, truth
from .bases import Base
from .walk import LOOKING, Walk, walk

pytestmark = pytest.mark.leaves()

SEED = 5
BASES = ("tiny", "keys")
NO_PLACE = frozenset({"torn-snapshot", "nested-record"})
"""Shapes that these bases have no place for: their own tests make them."""
TO_BRING = frozenset({"is-dangling-link"})
"""Shapes whose walk ends with what a person has to bring."""
UNDECIDED = frozenset(
    {"unit-foreign", "unit-tags", "index-key", "index-missing", "index-time"}
    | {"record-suspect", "unit-witness", "index-witness"}
)
"""What may be left: record and queue, or record and index, disagree in a field that no checksum covers. Nothing in the
store tells which is right, so all of it is kept, and check says so."""


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    into = tmp_path_factory.mktemp("bases")
    return [bases.unpack(name, into / name) for name in BASES]


def walked(shape: str, first: str, undamaged: list[Base], work: Path) -> tuple[Walk, truth.Loss]:
    """Break a store, walk, and count what is lost."""
    case, _ = store.damaged(store.Wanted(SEED, (shape,), damages=1), 0, undamaged, work / "damaged")
    root, conf = work / "store", work / "broker.conf"
    judge.copy(case.store, root)
    conf.write_text(case.base.conf(root))
    done = walk(root, conf, first)
    return done, truth.loss(
        case.base, case.facts, case.whole, truth.held(case.base, root), to_the_end=done.brought is None
    )


@pytest.mark.parametrize(("number", "shape"), [*enumerate(name for name in shapes.SHAPES if name not in NO_PLACE)])
def test_no_shape_is_a_dead_end(number: int, shape: str, undamaged: list[Base], tmp_path: Path) -> None:
    done, lost = walked(shape, LOOKING[number % len(LOOKING)], undamaged, tmp_path)
    if shape in TO_BRING:
        assert done.brought is not None, str(done)
        return
    assert done.clean or (done.left and done.left <= UNDECIDED), str(done)
    assert not lost.any(), f"{lost}\n{done}"
