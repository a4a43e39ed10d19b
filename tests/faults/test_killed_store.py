"""The process is killed at every step of an open store's life, and for real with SIGKILL: what was acknowledged stays.

A kill keeps what was written (the page cache): this tests the order of things, never durability (test_power_cut does).
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from engine.errors import NotAStore
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing
from engine.store import MessageStore
from tests.faults.ledger import Clock, DrillLedger, Stored, check_recovered, recover, settings
from tests.faults.writer import run_and_kill, run_until_dead

PUTS = 25
LIVES = 2
STEPS = {
    "abort:created": LIVES,
    "abort:removing": LIVES,
    "create-segment:allocated": 12,
    "create-segment:named": 12,
    "recover.index-done": LIVES,
    "recover.log-done": LIVES,
    "recover.queues-done": LIVES,
    "write-atomically:replaced": 1,
    "write-atomically:synced": 1,
    "write-atomically:written": 1,
}
"""Every named step in the life of a store, and a later time at which it is reached (below: that these are all)."""

KILLS = [(step, nth) for step, last in STEPS.items() for nth in sorted({1, last})]


class Copying(FaultyDisk):
    """Copies the store as it is at each `every`-th change: what a kill there leaves."""

    def __init__(self, root: Path, into: Path, ledger: DrillLedger, every: int) -> None:
        super().__init__(str(root))
        self._into = into
        self._ledger = ledger
        self._every = every
        self._numbers = itertools.count()
        self.copies: list[tuple[Path, list[Stored]]] = []

    def begin(self, doing: Doing):
        with self._model_lock:
            before = self.changes_seen
            note = super().begin(doing)
            if before != self.changes_seen and self.changes_seen % self._every == 0:
                copy = self._into / f"copy{next(self._numbers)}"
                acknowledged = list(self._ledger.acknowledged)
                self.crash_copy(str(copy), lose="none")
                self.copies.append((copy, acknowledged))
            return note


def live(root: Path, disk: FaultyDisk, ledger: DrillLedger) -> None:
    """Open, put with files that roll, close; and again."""
    clock = Clock()
    for _ in range(LIVES):
        with MessageStore.open(settings(root), disk, clock) as store:
            for _ in range(PUTS):
                assert ledger.put(store).ok


def test_the_steps_are_known(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    live(tmp_path, disk, DrillLedger(1))
    seen = Counter(disk.steps_seen)
    assert seen.keys() == STEPS.keys()
    for step, nth in STEPS.items():
        assert seen[step] >= nth, step


@pytest.mark.parametrize(("step", "nth"), KILLS)
def test_killed_at_a_step(step: str, nth: int, tmp_path: Path) -> None:
    acknowledged = run_until_dead(tmp_path, 1, PUTS, step, nth)
    with MessageStore.open(settings(tmp_path)) as store:
        for one in acknowledged:
            got = store.get(one.topic, one.queue_id, one.queue_offset, 1)
            assert [bytes(record) for record in got.messages] == [one.record]
            assert store.query(one.topic, one.unique).offsets == (one.physical_offset,)
        new = DrillLedger(9)
        assert new.put(store).ok
        assert store.wait_dispatched()
        assert not store.errors
        assert not store.findings
        (first, *_) = new.acknowledged
        ends = [one.queue_offset for one in acknowledged if (one.topic, one.queue_id) == (first.topic, first.queue_id)]
        assert first.queue_offset > max(ends, default=-1)


def test_killed_at_any_change(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    ledger = DrillLedger(2)
    disk = Copying(root, tmp_path, ledger, every=9)
    live(root, disk, ledger)
    assert len(disk.copies) > 20
    for copy, acknowledged in disk.copies:
        try:
            recover(copy)
        except NotAStore:
            assert not acknowledged
            MessageStore.open(settings(copy)).close()
        check_recovered(copy, acknowledged, ledger)


@pytest.mark.parametrize("seed", range(4))
def test_killed_for_real(seed: int, tmp_path: Path) -> None:
    """Several times in a row: each run goes on in what the one before has left."""
    acknowledged: list[Stored] = []
    for round_number in range(3):
        acknowledged += run_and_kill(tmp_path, seed * 10 + round_number, 30 + 40 * seed)
        if round_number == 1:
            recover(tmp_path)
    ledger = DrillLedger(seed)
    with MessageStore.open(settings(tmp_path)) as store:
        for one in acknowledged:
            got = store.get(one.topic, one.queue_id, one.queue_offset, 1)
            assert [bytes(record) for record in got.messages] == [one.record]
            assert store.query(one.topic, one.unique).offsets == (one.physical_offset,)
        assert len({(one.topic, one.queue_id, one.queue_offset) for one in acknowledged}) == len(acknowledged)
        assert ledger.put(store).ok
        assert not store.errors
