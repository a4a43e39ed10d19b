"""Reindex is killed at each of its steps, and between them: run again, it ends as planned; nothing old is lost."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk, Killed
from engine.format import names
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex import swap as reindex_swap
from tests.conftest import Store
from tests.engine.repair.reindex.test_reindex import config_of, derived_files, reindex
from tests.support import stores
from tests.support.wide import sample

BETWEEN = 8
BASES = ("clean-small", "lmq", "transient-ext")


@pytest.mark.leaves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.wide
@pytest.mark.parametrize("name", BASES)
def test_killed_anywhere_and_run_again(name: str, fixture_copy: Store, tmp_path: Path) -> None:
    root = fixture_copy(name)
    queues = sorted((root / names.CONSUMEQUEUE).glob("*/*"))
    shutil.rmtree(queues[0])
    garbled = next(iter(sorted(queues[-1].iterdir())))
    garbled.write_bytes(bytes(60) + garbled.read_bytes()[60:])
    index = sorted((root / names.INDEX).iterdir())[-1]
    index.write_bytes(index.read_bytes()[:40] + bytes(400) + index.read_bytes()[440:])

    def run(where: Path, arm: Callable[[FaultyDisk], object] = lambda _: None) -> FaultyDisk:
        disk = FaultyDisk(None, mapped=False)
        arm(disk)
        reindex(config_of(where, name, ours=True), disk=disk)
        return disk

    whole = stores.copy(root, tmp_path / "whole")
    disk = run(whole)
    expected = derived_files(whole)
    assert {"reindex.planned", "reindex.set-aside", "reindex.swap-in", "reindex.swapped"} <= set(disk.steps_seen)
    kills: list[Callable[[FaultyDisk], object]] = []
    for step, count in Counter(disk.steps_seen).items():
        kills += [lambda disk, step=step, nth=nth: disk.kill_at(step, nth) for nth in sorted({1, count})]
    changes = random.Random(name).sample(range(1, disk.changes_seen + 1), BETWEEN)
    kills += [lambda disk, nth=nth: disk.kill_before(nth) for nth in (*changes, disk.changes_seen)]
    for number, arm in enumerate(sample(kills, 6, 2 * BASES.index(name))):
        copy = stores.copy(root, tmp_path / f"killed-{number}")
        with pytest.raises(Killed):
            run(copy, arm)
        # Recovery makes do with what it finds, changes no byte of the log, and names what is left.
        plan = plan_recover(FaultyDisk(None), config_of(copy, name, ours=True))
        assert plan.refusal is None
        built = copy / reindex_swap.BUILD
        assert built.exists() == any(odd.path == str(built) for odd in plan.files.odd)
        run(copy)
        if name != "transient-ext":
            assert derived_files(copy) == expected
        assert not (copy / reindex_swap.BUILD).exists()
        again = plan_recover(FaultyDisk(None), config_of(copy, name, ours=True))
        assert not again.changed
        old = [path.read_bytes() for path in (copy / names.SALVAGE).rglob("*") if path.is_file()]
        assert garbled.read_bytes() in old
        assert index.read_bytes() in old
