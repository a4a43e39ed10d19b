"""The power is cut at any moment of a store with SYNC_FLUSH: what was acknowledged is there after recovery.

The cut is `FaultyDisk.crash_copy`: of what was not synced each page (or 512-byte sector), name and length is there or
not, by chance. That is more than a real disk does; what holds here holds there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.config import FlushDiskType
from engine.errors import DamageInTheMiddle
from engine.files.disk import Disk
from engine.files.durable import Lose
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing
from engine.repair.apply import apply
from engine.repair.recover import plan_recover
from engine.store import MessageStore
from tests.faults.ledger import Clock, Ledger, Stored, check_recovered, settings
from tests.support import stores

CUTS = 5
PUTS = 70


@dataclass(frozen=True)
class Cut:
    """A copy as a power cut left it, and what was acknowledged by then."""

    root: Path
    acknowledged: tuple[Stored, ...]


class CuttingDisk(FaultyDisk):
    """Makes a crash copy just before certain changes, whichever thread makes them."""

    def __init__(self, root: Path, into: Path, ledger: Ledger, at: set[int], rng: random.Random, torn: bool) -> None:
        super().__init__(str(root))
        self._into = into
        self._ledger = ledger
        self._at = at
        self._rng = rng
        self._torn = torn
        self.cuts: list[Cut] = []

    def begin(self, doing: Doing):
        with self._model_lock:
            if self.changes_seen in self._at:
                self._at.discard(self.changes_seen)
                self.cut()
            return super().begin(doing)

    def cut(self, lose: Lose = "random") -> None:
        """A copy of now."""
        acknowledged = tuple(self._ledger.acknowledged)  # before the copy: what comes in between may be lost
        root = self._into / f"cut{len(self.cuts)}"
        self.crash_copy(str(root), self._rng, lose, torn=self._torn)
        self.cuts.append(Cut(root, acknowledged))


def check(cut: Cut, ledger: Ledger) -> bool:
    """Recover a copy and hold it against the ledger; whether recovery refused at first."""
    plan = plan_recover(Disk(), settings(cut.root))
    refused = plan.refusal is not None
    if refused:
        before = stores.snapshot(cut.root)
        with pytest.raises(DamageInTheMiddle) as damage:
            apply(Disk(), plan)
        assert stores.snapshot(cut.root) == before
        assert damage.value.offset is not None
        behind = [one for one in cut.acknowledged if one.end > damage.value.offset]
        assert not behind, "something acknowledged lies behind a damaged stretch"
        plan = plan_recover(Disk(), settings(cut.root), cut=True)
    apply(Disk(), plan)
    assert all(one.end <= plan.state.max_offset for one in cut.acknowledged)
    check_recovered(cut.root, cut.acknowledged, ledger)
    return refused


@pytest.mark.parametrize("torn", [False, True], ids=["pages", "sectors"])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_is_there_after_a_power_cut(seed: int, torn: bool, tmp_path: Path) -> None:
    rng = random.Random(f"{seed} {torn}")
    root = tmp_path / "store"
    root.mkdir()
    ledger = Ledger(seed)
    moments = {rng.randrange(0, 700) for _ in range(CUTS)}
    disk = CuttingDisk(root, tmp_path, ledger, moments, rng, torn)
    with MessageStore.open(settings(root), disk, Clock()) as store:
        for _ in range(PUTS):
            wait = rng.random() < 0.7
            result = ledger.put(store, wait=wait)
            assert result.ok, result.error
        disk.cut()
    disk.cut()
    assert len(ledger.acknowledged) > PUTS // 2
    for cut in disk.cuts:
        check(cut, ledger)
