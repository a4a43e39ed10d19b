"""A replay, and a prune, are killed at each of their changes: run again, every message is there exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import engine.replay
from engine.config import StoreConfig
from engine.errors import Refused
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.operations import Doing
from engine.inspect.check.check import check
from engine.inspect.dump.saved_log import saved_repairs
from engine.repair.recover.recover import plan_recover
from engine.repair.replay.plan import ReplayRequest
from engine.repair.replay.planner import plan_replay
from engine.repair.salvage.prune import plan_prune, prune
from engine.repair.salvage.undo import plan_undo
from engine.replay import replay
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.salvaged import by_queue, cut, put_back, replayed
from tests.support.wide import sample

MESSAGES = 60
LOST = 20


class Copying(FaultyDisk):
    """Copies a directory as it is before each change, and at each step of a replay: what a kill there leaves."""

    def __init__(self, root: Path, into: Path) -> None:
        super().__init__(None)
        self._root = root
        self._into = into
        self.copies: list[Path] = []

    def begin(self, doing: Doing):
        with self._model_lock:
            before = self.changes_seen
            note = super().begin(doing)
            if before != self.changes_seen:
                self._copy()
            return note

    def step(self, name: str) -> None:
        with self._model_lock:
            super().step(name)
            if name.startswith("replay."):
                self._copy()

    def _copy(self) -> None:
        self.copies.append(stores.copy_running(self._root, self._into / f"copy{len(self.copies)}"))


class Until(FaultyDisk):
    """Copies the store as it is before the `nth` change: what a kill there leaves."""

    def __init__(self, root: Path, nth: int, into: Path) -> None:
        super().__init__(None)
        self._copy_at, self._from, self._into = nth, root, into

    def begin(self, doing: Doing):
        with self._model_lock:
            note = super().begin(doing)
            if self.changes_seen >= self._copy_at and not self._into.exists():
                stores.copy_running(self._from, self._into)
            return note


def damaged(root: Path) -> StoreConfig:
    """A store of small files that was cut at one of its messages."""
    root.mkdir()
    offsets = put(root, MESSAGES, body=300)
    damage(root, offsets[LOST] + 100, b"\xff")
    cut(settings(root))
    return settings(root)


def run_again(config: StoreConfig) -> None:
    """As an operator would: the same command once more."""
    plan = plan_replay(Disk(), config, ReplayRequest())
    if isinstance(plan.refusal, Refused):  # it was killed behind its last note
        assert "already" in plan.refusal.message
        return
    replay(Disk(), plan)


@pytest.mark.wide
def test_killed_anywhere_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.replay, "NOTE_EVERY", 4000)
    root = tmp_path / "store"
    damaged(root)
    before = stores.copy(root, tmp_path / "before")
    disk = Copying(root, tmp_path / "copies")
    plan = plan_replay(Disk(), settings(root), ReplayRequest())
    assert replay(disk, plan) == MESSAGES - LOST - 1
    expected = [(t, q, o, m.body, m.properties_raw) for t, q, o, m in by_queue(settings(root))]
    marks = replayed(settings(root))
    assert set(marks.values()) == {1}
    assert len(marks) == MESSAGES - LOST - 1
    assert len(disk.copies) > 50
    resumed = 0
    chosen = sample(disk.copies, 5)
    for copy in disk.copies:
        if copy not in chosen:
            shutil.rmtree(copy)
    for copy in chosen:
        config = settings(copy)
        resumed += plan_replay(Disk(), config, ReplayRequest()).run.messages > 0
        run_again(config)
        assert [(t, q, o, m.body, m.properties_raw) for t, q, o, m in by_queue(config)] == expected
        check_clean(copy, config)
        with pytest.raises(Refused):
            plan_undo(Disk(), config)
        again = plan_replay(Disk(), config, ReplayRequest())
        assert isinstance(again.refusal, Refused)
    assert resumed > 3
    assert stores.contents(before) != stores.contents(root)


def test_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.replay, "NOTE_EVERY", 4000)
    root = tmp_path / "life0"
    damaged(root)
    seen = []
    for life in range(1, 5):
        plan = plan_replay(Disk(), settings(root), ReplayRequest())
        seen.append(plan.share.messages)
        left = tmp_path / f"life{life}"
        replay(Until(root, 30, left), plan)
        if not left.exists():  # how many changes it takes depends on how the threads meet: this one was not killed
            break
        root = left
    assert seen == sorted(seen, reverse=True)
    assert len(seen) > 2, "killed twice at least"
    assert seen[-1] < seen[0], "and on its way"
    run_again(settings(root))
    marks = replayed(settings(root))
    assert (len(marks), set(marks.values())) == (MESSAGES - LOST - 1, {1})


@pytest.mark.wide
def test_killed_while_it_makes_another_store(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    damaged(base / "store")
    disk = Copying(base, tmp_path / "copies")
    replay(disk, plan_replay(Disk(), settings(base / "store"), ReplayRequest(into=base / "new")))
    expected = [(t, q, o, m.body) for t, q, o, m in by_queue(StoreConfig(store_path_root_dir=base / "new"))]
    assert len(expected) == MESSAGES - LOST - 1
    assert len(disk.copies) > 50
    chosen = sample(disk.copies, 4, 1)
    for copy in disk.copies:
        if copy not in chosen:
            shutil.rmtree(copy)
    for copy in chosen:
        # The copy lies elsewhere: the note of a target names its own place.
        noted = copy / "store" / "salvage"
        for path in noted.rglob("replayed.json"):
            path.write_text(path.read_text().replace(str(base), str(copy)))
        config, new = settings(copy / "store"), StoreConfig(store_path_root_dir=copy / "new")
        plan = plan_replay(Disk(), config, ReplayRequest(into=copy / "new"))
        if plan.refusal is None:
            replay(Disk(), plan)
        assert [(t, q, o, m.body) for t, q, o, m in by_queue(new)] == expected
        check_clean(copy / "new")
        check_clean(copy / "store", config)


@pytest.mark.parametrize("keep", [True, False])
def test_prune_is_killed_anywhere_and_run_again(keep: bool, tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = damaged(root)
    put_back(config)
    if not keep:  # a later repair: the manifest of the first tells nothing any more
        with (root / "commitlog" / sorted(p.name for p in (root / "commitlog").iterdir())[-1]).open("r+b") as file:
            file.seek(-50, 2)
            file.write(b"stray bytes")
        cut(config)
    first = saved_repairs(Disk(), str(root))[0].id
    whole = stores.copy(root, tmp_path / "whole")
    disk = FaultyDisk(None)
    prune(disk, plan_prune(Disk(), settings(whole), ids=[first]))
    expected = stores.contents(whole)
    assert (whole / "salvage" / first).exists() is keep
    for number in range(1, disk.changes_seen + 1):
        copy = stores.copy(root, tmp_path / f"killed-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            prune(faulty, plan_prune(Disk(), settings(copy), ids=[first]))
        assert not check(Disk(), settings(copy)).findings
        assert not plan_recover(Disk(), settings(copy)).changed
        again = plan_prune(Disk(), settings(copy), keep=0 if keep else 1)
        prune(Disk(), again)
        assert stores.contents(copy) == expected
