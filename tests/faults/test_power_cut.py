"""The power is cut at any moment of a store with SYNC_FLUSH: what was acknowledged is there after recovery.

The cut is `FaultyDisk.crash_copy`: of what was not synced each page (or 512-byte sector), name and length is there or
not, by chance. That is more than a real disk does; what holds here holds there.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.errors import DamageInTheMiddle, NotAStore
from engine.files.disk import Disk
from engine.files.durable import Lose
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.faults.ledger import LOST_PROPERTIES, Clock, DrillLedger, Stored, check_recovered, settings
from tests.support import stores
from tests.support.wide import sample

CUTS = 5
PUTS = 70


@dataclass(frozen=True)
class Cut:
    """A copy as a power cut left it, and what was acknowledged by then."""

    root: Path
    acknowledged: tuple[Stored, ...]


class CuttingDisk(FaultyDisk):
    """Makes a crash copy just before certain changes, whichever thread makes them."""

    def __init__(
        self, root: Path, into: Path, ledger: DrillLedger, at: set[int], rng: random.Random, torn: bool
    ) -> None:
        super().__init__(str(root))
        self._into = into
        self._ledger = ledger
        self._cuts = at
        self._rng = rng
        self._torn = torn
        self._numbers = itertools.count()  # a copy may wait for other threads, which may cut, too
        self.cuts: list[Cut] = []

    def begin(self, doing: Doing):
        with self._model_lock:
            if self.changes_seen in self._cuts:
                self._cuts.discard(self.changes_seen)
                self.cut()
            return super().begin(doing)

    def cut(self, lose: Lose = "random") -> None:
        """A copy of now."""
        with self._model_lock:
            acknowledged = tuple(self._ledger.acknowledged)  # before the copy: what comes in between may be lost
            root = self._into / f"cut{next(self._numbers)}"
            self.crash_copy(str(root), self._rng, lose, torn=self._torn)
            self.cuts.append(Cut(root, acknowledged))


def repair(root: Path, cut: Cut, disk: Disk | None = None) -> bool:
    """Recover a copy, with `cut` where recovery refuses (and then only what nobody was told of is lost); whether so."""
    disk = disk or Disk()
    try:
        plan = plan_recover(disk, settings(root))
    except NotAStore:  # before the first name was there for sure
        assert not cut.acknowledged
        MessageStore.open(settings(root)).close()
        return False
    refused = plan.refusal is not None
    if refused:
        before = stores.snapshot(root)
        with pytest.raises(DamageInTheMiddle) as damage:
            apply(disk, plan)
        assert stores.snapshot(root) == before
        assert damage.value.offset is not None
        behind = [one for one in cut.acknowledged if one.end > damage.value.offset]
        assert not behind, "something acknowledged lies behind a damaged stretch"
        plan = plan_recover(disk, settings(root), cut=True)
    apply(disk, plan)
    assert all(one.end <= plan.state.max_offset for one in cut.acknowledged)
    return refused


def run(
    tmp_path: Path, seed: int, rng: random.Random, *, torn: bool, cuts: int = CUTS
) -> tuple[DrillLedger, list[Cut]]:
    """A store with puts, cut from power now and then."""
    root = tmp_path / "store"
    root.mkdir()
    ledger = DrillLedger(seed)
    moments = {rng.randrange(0, 600) for _ in range(cuts)}
    disk = CuttingDisk(root, tmp_path, ledger, moments, rng, torn)
    with MessageStore.open(settings(root), disk, Clock()) as store:
        for _ in range(PUTS):
            result = ledger.put(store, wait=rng.random() < 0.7)
            assert result.ok, result.error
        disk.cut()
    disk.cut()
    assert len(ledger.acknowledged) > PUTS // 2
    return ledger, disk.cuts


@pytest.mark.leaves(*LOST_PROPERTIES)
@pytest.mark.parametrize("torn", [False, True], ids=["pages", "sectors"])
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_what_was_acknowledged_is_there_after_a_power_cut(seed: int, torn: bool, tmp_path: Path) -> None:
    ledger, cuts = run(tmp_path, seed, random.Random(f"{seed} {torn}"), torn=torn)
    for cut in cuts:
        repair(cut.root, cut)
        check_recovered(cut.root, cut.acknowledged, ledger, known=LOST_PROPERTIES)


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(100, 106), 2, 1))
def test_a_power_cut_in_the_recovery_costs_nothing(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    ledger, cuts = run(tmp_path, seed, rng, torn=True, cuts=2)
    for cut in cuts:
        again = tmp_path / f"{cut.root.name}-again"
        again.mkdir()
        disk = CuttingDisk(cut.root, again, ledger, {rng.randrange(0, 100) for _ in range(3)}, rng, torn=True)
        repair(cut.root, cut, disk)
        disk.cut("all")  # what recovery has promised is durable when it returns
        for second in disk.cuts:
            repair(second.root, cut)
            check_recovered(second.root, cut.acknowledged, ledger, known=LOST_PROPERTIES)


@pytest.mark.leaves
def test_all_that_is_acknowledged_is_sure(tmp_path: Path) -> None:
    """Nothing but what was synced: the end of the log is the last acknowledged message."""
    root = tmp_path / "store"
    root.mkdir()
    ledger = DrillLedger(7)
    disk = CuttingDisk(root, tmp_path, ledger, set(), random.Random(7), torn=True)
    with MessageStore.open(settings(root), disk, Clock()) as store:
        for _ in range(PUTS):
            assert ledger.put(store).ok
            disk.cut("all")
    for cut in disk.cuts[::6]:
        assert not repair(cut.root, cut), "only the unsynced tail may be missing: no damage in the middle"
        assert max(one.end for one in cut.acknowledged) == plan_recover(Disk(), settings(cut.root)).state.max_offset
        check_recovered(cut.root, cut.acknowledged, ledger, known=LOST_PROPERTIES)


@pytest.mark.leaves
def test_a_lost_sync_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """The proof that these tests can fail: a disk that lies about its syncs loses messages."""
    root = tmp_path / "store"
    root.mkdir()
    ledger = DrillLedger(8)
    disk = CuttingDisk(root, tmp_path, ledger, set(), random.Random(8), torn=False)
    with MessageStore.open(settings(root), disk, Clock()) as store:
        disk.lost_syncs = True
        for _ in range(10):
            assert ledger.put(store).ok
        disk.cut("all")
    (cut,) = disk.cuts
    with pytest.raises(AssertionError):
        repair(cut.root, cut)


@pytest.mark.parametrize("lost", ["both", "header", "older"])
def test_an_index_file_without_entries_is_not_gone_by(lost: str, tmp_path: Path) -> None:
    """Its header says where the file before it ended: a lie, when that one was lost; zeros, when its own page was."""
    ledger = DrillLedger(11)
    with MessageStore.open(settings(tmp_path)) as store:
        while len(list((tmp_path / "index").glob("*"))) < 3:
            assert ledger.put(store).ok
            assert store.wait_dispatched()
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    *_, older, newest = sorted((tmp_path / "index").iterdir())
    size = newest.stat().st_size
    begun = older.read_bytes()[8:16] * 2 + older.read_bytes()[24:32] * 2 + bytes(8)  # as it was just made
    newest.write_bytes((bytes(40) if lost == "header" else begun).ljust(size, b"\0"))
    if lost != "header":
        older.write_bytes(bytes(size))
    if lost == "both":
        newest.write_bytes(bytes(size))
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    check_recovered(tmp_path, ledger.acknowledged, ledger)
