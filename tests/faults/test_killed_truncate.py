"""Truncate is killed at each of its steps, and between them: run again, it ends as if nothing had happened."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk, Killed
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.truncate.test_truncate import boundaries
from tests.faults.test_killed_recovery import check_nothing_is_lost, end_of
from tests.support import stores
from tests.support.wide import sample

BETWEEN = 8
BASES = ("clean-small", "crashed-small", "transient-ext", "lmq")


def truncate(
    root: Path, case: corpus.Case, to: int, arm: Callable[[FaultyDisk], object] = lambda _: None
) -> FaultyDisk:
    disk = FaultyDisk(None)
    plan = plan_truncate(disk, corpus.config(root, case), to_offset=to)
    assert disk.changes_seen == 0
    arm(disk)
    apply(disk, plan, command="truncate")
    return disk


@pytest.mark.leaves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.wide
@pytest.mark.parametrize("base", BASES)
def test_killed_anywhere_and_run_again(base: str, fixture_copy: Store, tmp_path: Path) -> None:
    root, case = fixture_copy(base), {"base": base}
    places = boundaries(root, base)
    to = places[len(places) // 2]
    whole = stores.copy(root, tmp_path / "whole")
    disk = truncate(whole, case, to)
    expected = end_of(whole, case)
    check_nothing_is_lost(root, whole)
    kills: list[Callable[[FaultyDisk], object]] = []
    for step, count in Counter(disk.steps_seen).items():
        kills += [lambda disk, step=step, nth=nth: disk.kill_at(step, nth) for nth in sorted({1, count})]
    changes = random.Random(base).sample(range(1, disk.changes_seen + 1), BETWEEN)
    kills += [lambda disk, nth=nth: disk.kill_before(nth) for nth in (*changes, disk.changes_seen)]
    for number, arm in enumerate(sample(kills, 6, 2 * BASES.index(base))):
        copy = stores.copy(root, tmp_path / f"killed-{number}")
        with pytest.raises(Killed):
            truncate(copy, case, to, arm)
        truncate(copy, case, to)
        assert end_of(copy, case) == expected
        check_nothing_is_lost(root, copy)
        again = plan_recover(FaultyDisk(None), corpus.config(copy, case))
        assert again.refusal is None
        assert not again.changed
