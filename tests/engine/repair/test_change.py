"""The transaction that every change of a closed store goes through, with real changes on real stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DamageInTheMiddle, NotAStore, RStoreError, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock, holder_of
from engine.format import names
from engine.repair.change import ChangeRun, Consent, Ending, carry_out, preview
from engine.repair.recover.change import RecoverChange
from engine.repair.reindex.change import ReindexChange
from engine.repair.reindex.reindex import Scope
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import stores

REINDEX = ReindexChange(Scope())


@dataclass
class Operator(Consent):
    """A caller that writes down what it is asked and told, in order."""

    agreed: bool = True
    told: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.told.append(f"note: {text}")

    def refused(self, run: ChangeRun, plan: Any, refusal: RStoreError) -> None:
        assert plan is not None
        self.told.append(f"refused: {refusal.code}, {'locked' if run.locked else 'not locked'}")

    def agrees(self, plan: Any) -> bool:
        assert plan is not None
        self.told.append("asked")
        return self.agreed

    def interruptible(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store whose last record is torn."""
    root = tmp_path / "store"
    damage(root, put(root, 100)[-1] + 95, b"\xff")
    (root / names.ABORT).touch()
    return root


@pytest.fixture
def without_queue(tmp_path: Path) -> Path:
    """A store of which a queue is missing."""
    root = tmp_path / "store"
    put(root, 100)
    shutil.rmtree(root / names.CONSUMEQUEUE / "T" / "1")
    return root


def bytes_of(root: Path) -> dict[str, str]:
    """Every file by its content; the lock file aside, which whoever plans a change makes."""
    return {path: seen.digest for path, seen in stores.snapshot(root).items() if path != names.LOCK}


def is_free(root: Path) -> bool:
    return holder_of(Disk(), str(root)) is None


def test_agreed_it_is_asked_then_made_and_finished(crashed: Path) -> None:
    operator = Operator()
    outcome = carry_out(RecoverChange(), Disk(), settings(crashed), operator)
    asked, while_applied, applied = operator.told
    assert asked == "asked"
    assert "run rstore recover again" in while_applied
    assert applied == "the store is recovered"
    assert outcome.ending is Ending.APPLIED
    assert outcome.changes
    assert outcome.salvage is not None
    assert os.path.exists(os.path.join(outcome.salvage, "manifest.json"))
    assert outcome.next is not None
    assert is_free(crashed)


def test_without_a_caller_it_is_agreed_to(crashed: Path) -> None:
    assert carry_out(RecoverChange(), Disk(), settings(crashed)).ending is Ending.APPLIED


@pytest.mark.leaves("index-orphaned", "log-tail", "not-closed", "unit-orphaned")
def test_not_agreed_nothing_is_changed(crashed: Path) -> None:
    before = bytes_of(crashed)
    operator = Operator(agreed=False)
    outcome = carry_out(RecoverChange(), Disk(), settings(crashed), operator)
    assert (outcome.ending, outcome.salvage, operator.told) == (Ending.DECLINED, None, ["asked"])
    assert bytes_of(crashed) == before
    assert is_free(crashed)


def test_where_nothing_is_to_do_nobody_is_asked(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 100)
    before = bytes_of(root)
    operator = Operator()
    for change in (RecoverChange(), REINDEX):
        outcome = carry_out(change, Disk(), settings(root), operator)
        assert (outcome.ending, outcome.changes, outcome.salvage) == (Ending.UNCHANGED, False, None)
    assert operator.told == []
    assert bytes_of(root) == before


@pytest.mark.leaves("log-damage", "not-closed")
def test_a_refusal_is_told_then_raised(tmp_path: Path) -> None:
    root = tmp_path / "store"
    damage(root, put(root, 100)[50] + 95, b"\xff")
    (root / names.ABORT).touch()
    (root / names.CHECKPOINT).write_bytes(bytes(4096))
    before = bytes_of(root)
    operator = Operator()
    with pytest.raises(DamageInTheMiddle):
        carry_out(RecoverChange(), Disk(), settings(root), operator)
    assert operator.told == ["refused: damage, locked"]
    with pytest.raises(DamageInTheMiddle):
        preview(RecoverChange(), Disk(), settings(root), operator)
    assert operator.told[1:] == ["refused: damage, not locked"]
    assert bytes_of(root) == before
    assert is_free(root)


@pytest.mark.parametrize("at", ["reindex.planned", "reindex.set-aside", "reindex.swap-in", "reindex.swapped"])
def test_interrupted_while_it_is_made_what_was_planned_is_given_back(at: str, without_queue: Path) -> None:
    class Interrupted(Disk):
        def step(self, name: str) -> None:
            if name == at:
                raise KeyboardInterrupt

    root = without_queue
    (root / names.CONSUMEQUEUE / "T" / "0" / names.segment_name(0)).write_bytes(bytes(400))  # both queues differ
    operator = Operator()
    with pytest.raises(KeyboardInterrupt):
        carry_out(REINDEX, Interrupted(), settings(root), operator)
    assert operator.told == ["asked", "the swap is not finished, nothing is lost; run rstore reindex again"]
    assert not (root / names.REINDEX_BUILD).exists()
    assert is_free(root)
    carry_out(REINDEX, Disk(), settings(root))


@pytest.mark.leaves("unit-missing")
def test_interrupted_before_it_is_made_nothing_is_changed(without_queue: Path) -> None:
    class Interrupting(Operator):
        def agrees(self, plan: Any) -> bool:
            raise KeyboardInterrupt

    before = bytes_of(without_queue)
    with pytest.raises(KeyboardInterrupt):
        carry_out(REINDEX, Disk(), settings(without_queue), Interrupting())
    assert bytes_of(without_queue) == before
    assert is_free(without_queue)


@pytest.mark.leaves("index-orphaned", "log-tail", "not-closed", "unit-orphaned")
def test_a_store_that_is_held_is_not_planned_for(crashed: Path) -> None:
    with StoreLock(Disk(), str(crashed)):
        before = bytes_of(crashed)
        with pytest.raises(StoreLocked):
            carry_out(RecoverChange(), Disk(), settings(crashed), Operator())
        assert bytes_of(crashed) == before


@pytest.mark.leaves("unit-missing")
@pytest.mark.parametrize("change", [RecoverChange(), REINDEX], ids=lambda change: change.name)
def test_a_dry_run_beside_a_holder_says_so_and_writes_nothing(change: RecoverChange, without_queue: Path) -> None:
    with StoreLock(Disk(), str(without_queue)):
        before = stores.snapshot(without_queue)
        operator = Operator()
        outcome = preview(change, Disk(), settings(without_queue), operator)
        assert stores.snapshot(without_queue) == before
    (noted,) = operator.told
    assert noted.startswith(f"note: process {os.getpid()} has the store open")
    assert (outcome.ending, outcome.changes, outcome.next) == (Ending.PREVIEWED, True, None)


def test_no_lock_file_is_made_where_no_store_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for run in (carry_out, preview):
        with pytest.raises(NotAStore):
            run(RecoverChange(), Disk(), settings(tmp_path))
    assert os.listdir(tmp_path) == ["notes.txt"]


LONG_LOG = RecoverChange(time_box_ms=10**9)
"""A recovery that takes any log for a long one, and has time enough."""
WRITTEN_BY_PLANNING = {"recover": names.RECOVER_PROGRESS, "reindex": names.REINDEX_BUILD}
"""RECOVERY.md "What planning writes": for its own use alone, below one directory."""


@pytest.mark.parametrize("change", [LONG_LOG, REINDEX], ids=lambda change: change.name)
def test_planning_writes_into_one_directory_of_its_own(change: RecoverChange, tmp_path: Path) -> None:
    """All else is as it was when the caller is asked; a run that is declined leaves only what the next one goes on
    from, and one that is agreed to nothing at all."""
    root = tmp_path / "store"
    put(root, 700)
    shutil.rmtree(root / names.CONSUMEQUEUE)
    before = bytes_of(root)
    own = WRITTEN_BY_PLANNING[change.name]

    class Looking(Operator):
        written: dict[str, str]

        def agrees(self, plan: Any) -> bool:
            self.written = {path: digest for path, digest in bytes_of(root).items() if before.get(path) != digest}
            return super().agrees(plan)

    operator = Looking(agreed=False)
    carry_out(change, Disk(), settings(root), operator)
    assert operator.written
    assert {path.split("/")[0] for path in operator.written} == {own}
    left = {path for path, digest in bytes_of(root).items() if before.get(path) != digest}
    assert {path.split("/")[0] for path in left} == ({own} if change is LONG_LOG else set())

    held = stores.snapshot(root)
    preview(change, Disk(), settings(root))
    assert stores.snapshot(root) == held
    carry_out(change, Disk(), settings(root))
    assert not (root / own).exists()


def test_what_happened_before_the_lock_was_had_is_in_the_plan(tmp_path: Path) -> None:
    """Whoever held the store until now has put messages, and was killed."""
    root = tmp_path / "store"
    put(root, 10)

    class Late(RecoverChange):
        @contextmanager
        def hold(self, run: ChangeRun) -> Iterator[None]:
            damage(root, put(root, 20)[-1] + 95, b"\xff")
            (root / names.ABORT).touch()
            with super().hold(run):
                yield

    outcome = carry_out(Late(), Disk(), settings(root))
    assert outcome.plan.repair.log.end.records == 29


@pytest.mark.parametrize("change", [RecoverChange(), REINDEX], ids=lambda change: change.name)
@pytest.mark.parametrize("run", [preview, carry_out])
def test_a_store_is_surveyed_once(run: Any, change: RecoverChange, without_queue: Path) -> None:
    class Counting(Disk):
        surveys = 0

        def read_file(self, path: str, size: int | None = None) -> bytes:
            # Nothing else of a change reads the whole of it before the plan is there.
            self.surveys += path.endswith(names.CHECKPOINT)
            return super().read_file(path, size)

    disk = Counting()
    run(change, disk, settings(without_queue), Operator(agreed=False))
    assert disk.surveys == 1
    carry_out(change, Disk(), settings(without_queue))
