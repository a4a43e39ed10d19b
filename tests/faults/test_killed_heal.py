"""Heal is killed at each of its steps, and before changes: run again, it heals all; undo takes both runs back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import of_store
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.repair.change import Ending
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.heal.healing import assert_healed, bridge, damaged, heal, log_of, recovered, take_back
from tests.support import stores
from tests.support.wide import sample

BETWEEN = 30


def of_brokers(store: Path) -> dict[str, str]:
    """All but what rstore alone knows."""
    ours = ("salvage", "lock")
    return {path: digest for path, digest in stores.contents(store).items() if path.split("/")[0] not in ours}


@pytest.mark.leaves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.wide
@pytest.mark.parametrize("bridged", [False, True], ids=["damaged", "bridged"])
def test_killed_anywhere_and_run_again(bridged: bool, fixture_copy: Store, tmp_path: Path) -> None:
    good = recovered(fixture_copy("crashed-small"))
    truth = log_of(good)
    store = damaged(good, tmp_path / "store", random.Random(11), ("body", "missing", "short", "page"))
    if bridged:
        bridge(store)
    before = of_brokers(store)
    counting = FaultyDisk(None)
    whole = stores.copy(store, tmp_path / "whole")
    assert_healed(heal(whole, good, disk=counting), whole, truth)
    kills: list[Callable[[FaultyDisk], object]] = []
    for step, count in Counter(counting.steps_seen).items():
        kills += [lambda disk, step=step, nth=nth: disk.kill_at(step, nth) for nth in sorted({1, count})]
    changes = random.Random(5).sample(range(1, counting.changes_seen + 1), BETWEEN)
    kills += [lambda disk, nth=nth: disk.kill_before(nth) for nth in (*changes, counting.changes_seen)]
    assert len(kills) > 40
    for number, arm in enumerate(sample(kills, 24, 3 * bridged)):
        copy = stores.copy(store, tmp_path / f"killed-{number}")
        disk = FaultyDisk(None)
        arm(disk)
        with pytest.raises(Killed):
            heal(copy, good, disk=disk)
        outcome = heal(copy, good)
        assert not outcome.plan.left
        assert log_of(copy) == truth
        again = plan_recover(Disk(), of_store(copy), whole=True)
        assert again.refusal is None
        assert not again.changed
        assert heal(copy, good).ending is Ending.UNCHANGED
        take_back(copy)
        assert of_brokers(copy) == before
