"""A repair is taken back: every file as before, also after a kill anywhere; refused when the store has changed."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from engine.errors import CannotRepair, RStoreError, StoreChanged
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.store.repairs import repairs
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.conftest import Store
from tests.engine.repair import corpus, differences
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import golden, mutate, stores
from tests.support.wide import sample

CASES = [case for case in corpus.fixture_cases() if case["id"] not in differences.REFUSED]
GOLDEN = [case for case in golden.cases() if case["id"] not in differences.REFUSED][::12]


def files(root: Path) -> dict[str, str]:
    """Every file (with a digest), directory and link, but for what repairs saved and the lock."""
    return {path: what for path, what in stores.contents(root).items() if path.split("/")[0] not in ("salvage", "lock")}


def take_back(root: Path, case: corpus.Case) -> None:
    undo(Disk(), plan_undo(Disk(), corpus.config(root, case)))


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize(
    ("how", "case"),
    [*product(["bridge"], sample([*CASES, *GOLDEN], 8)), *product(["cut"], sample([*CASES, *GOLDEN], 8, 1))],
    ids=lambda it: it if isinstance(it, str) else str(it["id"]),
)
def test_every_repair_can_be_taken_back(how: str, case: corpus.Case, fixture_copy: Store, golden_copy: Store) -> None:
    root = (golden_copy if case["id"].startswith("v") else fixture_copy)(case["base"])
    mutate.apply(root, case["ops"])
    before = files(root)
    plan = plan_recover(Disk(), corpus.config(root, case), **{how: True})
    applied = apply(Disk(), plan)
    if applied.salvage is None:
        assert files(root) == before
        return
    after = files(root)
    take_back(root, case)
    assert files(root) == before
    apply(Disk(), plan_recover(Disk(), corpus.config(root, case), **{how: True}))
    unstable = {path for path in after if path.startswith("index/")}  # new files are named by the clock
    assert {p: d for p, d in files(root).items() if not p.startswith("index/")} == {
        p: d for p, d in after.items() if p not in unstable
    }


KILLED = {"f018": "bridge", "f024": "cut", "f031": "cut", "f006": "bridge", "f057": "cut", "f098": "cut", "f029": "cut"}


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("name", KILLED)
def test_killed_anywhere_in_the_repair_or_in_the_undo(name: str, fixture_copy: Store, tmp_path: Path) -> None:
    case = next(case for case in CASES if case["id"] == name)
    how = {KILLED[name]: True}
    root = fixture_copy(case["base"])
    mutate.apply(root, case["ops"])
    before = files(root)

    def repair(store: Path, disk: FaultyDisk) -> None:
        apply(disk, plan_recover(Disk(), corpus.config(store, case), **how))

    whole = stores.copy(root, tmp_path / "whole")
    disk = FaultyDisk(None)
    repair(whole, disk)
    chosen = random.Random(name).sample(range(1, disk.changes_seen + 1), min(8, disk.changes_seen))
    turn = list(KILLED).index(name)
    for number in sample(chosen, 2, turn):
        store = stores.copy(root, tmp_path / f"repair-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            repair(store, faulty)
        if not repairs(Disk(), str(store)):
            assert files(store) == before
            continue
        if number % 2:  # run again, then take both back
            repair(store, FaultyDisk(None))
        take_back(store, case)
        assert files(store) == before

    counting = stores.copy(whole, tmp_path / "counting")
    disk = FaultyDisk(None)
    undo(disk, plan_undo(Disk(), corpus.config(counting, case)))
    steps = Counter(disk.steps_seen)
    chosen = random.Random(name).sample(range(1, disk.changes_seen + 1), min(8, disk.changes_seen))
    for number in sample(chosen, 2, turn + 1):
        store = stores.copy(whole, tmp_path / f"undo-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            undo(faulty, plan_undo(Disk(), corpus.config(store, case)))
        if any(not one.undone for one in repairs(Disk(), str(store))):
            take_back(store, case)
        assert files(store) == before
    assert steps["undo.begun"] == 1


@pytest.mark.leaves("not-closed", "unit-missing")
@pytest.mark.parametrize("name", ["f024", "f098"])
def test_a_killed_undo_of_a_repair_that_went_on_makes_nothing_again(
    name: str, fixture_copy: Store, tmp_path: Path
) -> None:
    """Files that the killed repair made, and the next one wrote to, are in no listing of the store as it was."""
    case = next(case for case in CASES if case["id"] == name)
    root = fixture_copy(case["base"])
    mutate.apply(root, case["ops"])
    before = files(root)

    def repair(store: Path, disk: FaultyDisk) -> None:
        apply(disk, plan_recover(Disk(), corpus.config(store, case), cut=True))

    whole = stores.copy(root, tmp_path / "whole")
    disk = FaultyDisk(None)
    repair(whole, disk)
    repair_changes = disk.changes_seen
    middle = repair_changes * 2 // 5
    for number in range(middle, middle + 6):  # a file is made, gets its size, and is written to
        store = stores.copy(root, tmp_path / f"repair-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            repair(store, faulty)
        repair(store, FaultyDisk(None))
        assert len(plan_undo(Disk(), corpus.config(store, case)).repairs) == 2
        undone = stores.copy(store, tmp_path / f"undone-{number}")
        disk = FaultyDisk(None)
        undo(disk, plan_undo(Disk(), corpus.config(undone, case)))
        assert files(undone) == before
        for late in (1, 6, 11):
            again = stores.copy(store, tmp_path / f"undo-{number}-{late}")
            faulty = FaultyDisk(None)
            faulty.kill_before(disk.changes_seen - late)
            with pytest.raises(Killed):
                undo(faulty, plan_undo(Disk(), corpus.config(again, case)))
            take_back(again, case)
            assert files(again) == before


def test_refused_once_the_store_has_changed(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    plan_undo(Disk(), settings(tmp_path))
    put(tmp_path, 1, first=300)
    before = stores.snapshot(tmp_path)
    with pytest.raises(StoreChanged) as refused:
        plan_undo(Disk(), settings(tmp_path))
    assert refused.value.exit_code == 4
    assert stores.snapshot(tmp_path) == before


@pytest.mark.leaves("log-damage")
def test_one_after_the_other(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    first = files(tmp_path)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    damage(tmp_path, offsets[270] + 90, b"\xff")
    second = files(tmp_path)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), cut=True))
    undo(Disk(), plan_undo(Disk(), settings(tmp_path)))
    assert files(tmp_path) == second
    with pytest.raises(StoreChanged):
        plan_undo(Disk(), settings(tmp_path))
    assert first != second


def test_nothing_to_take_back_and_what_was_saved_is_damaged(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    with pytest.raises(CannotRepair):
        plan_undo(Disk(), settings(tmp_path))
    damage(tmp_path, offsets[260] + 90, b"\xff")
    applied = apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    assert applied.salvage is not None
    saved = next(path for path in Path(applied.salvage).iterdir() if path.name.startswith("0001-"))
    saved.write_bytes(b"?" + saved.read_bytes()[1:])
    with pytest.raises(RStoreError) as refused:
        plan_undo(Disk(), settings(tmp_path))
    assert refused.value.exit_code == 4


def test_a_saved_file_that_lost_the_zeros_at_its_end_is_not_what_was_saved(tmp_path: Path) -> None:
    """The digest leaves zeros at the end out: the length tells."""
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    applied = apply(Disk(), plan_recover(Disk(), settings(tmp_path), cut=True))
    assert applied.salvage is not None
    saved = next(path for path in Path(applied.salvage).glob("0*-*") if path.read_bytes().endswith(bytes(100)))
    plan_undo(Disk(), settings(tmp_path))
    saved.write_bytes(saved.read_bytes().rstrip(b"\0"))
    before = stores.snapshot(tmp_path)
    with pytest.raises(RStoreError) as refused:
        plan_undo(Disk(), settings(tmp_path))
    assert refused.value.exit_code == 4
    assert stores.snapshot(tmp_path) == before


def test_a_repair_that_saved_nothing_bars_the_way(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    damage(tmp_path, offsets[299] + 90, b"\xff")
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)), keep=False)
    with pytest.raises(StoreChanged):
        plan_undo(Disk(), settings(tmp_path))
