"""What of a repair is no bytes is taken back, too: links, kinds, modes, directories."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.store.repairs import repairs
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.salvage.test_undo import files
from tests.engine.repair.test_rules import SIZES, messages, put, settings
from tests.support import stores
from tests.support.checking import check_clean

SEGMENT = SIZES["mapped_file_size_commit_log"]


def count(root: Path) -> int:
    """How many messages a copy of the store serves: opening it is a change."""
    copy = stores.copy(root, root.with_name(f"{root.name}-copy"))
    for path in (*copy.glob("*"), *copy.glob("c*/**/*"), *copy.glob("index/*")):
        if path.is_symlink() and path.is_file():  # else the copy writes to what the store's link leads to
            held = path.read_bytes()
            path.unlink()
            path.write_bytes(held)
    found = len(messages(copy))
    shutil.rmtree(copy)
    return found


def take_back(root: Path) -> None:
    undo(Disk(), plan_undo(Disk(), settings(root)))


def lead_elsewhere(path: Path, disk: Path, *, relative: bool) -> None:
    """Move a file away and put a link in its place."""
    disk.mkdir(exist_ok=True)
    path.rename(disk / path.name)
    path.symlink_to(os.path.relpath(disk / path.name, path.parent) if relative else disk / path.name)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    "place",
    [
        lambda root: root / "commitlog" / f"{3 * SEGMENT:020d}",
        lambda root: root / "consumequeue" / "T" / "0" / f"{1200:020d}",
        lambda root: max((root / "index").iterdir()),
        lambda root: root / "checkpoint",
    ],
    ids=["segment", "queue-file", "index-file", "checkpoint"],
)
def test_a_link_to_a_file_comes_back_as_a_link(place: Callable[[Path], Path], relative: bool, tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, 300)
    lead_elsewhere(place(root), tmp_path / "disk", relative=relative)
    before = files(root)
    apply(Disk(), plan_truncate(Disk(), settings(root), to_offset=offsets[50]), command="truncate")
    assert count(root) == 50
    assert files(root) != before
    take_back(root)
    assert files(root) == before
    assert count(root) == 300


def test_a_link_whose_target_has_changed_comes_back_as_the_file_it_was(tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, 300)
    path = root / "commitlog" / f"{3 * SEGMENT:020d}"
    lead_elsewhere(path, tmp_path / "disk", relative=False)
    was = path.read_bytes()
    apply(Disk(), plan_truncate(Disk(), settings(root), to_offset=offsets[50]), command="truncate")
    (tmp_path / "disk" / path.name).write_bytes(b"something else")
    take_back(root)
    assert not path.is_symlink()
    assert path.read_bytes() == was
    assert (tmp_path / "disk" / path.name).read_bytes() == b"something else"


def test_modes_come_back(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    path = tmp_path / "commitlog" / f"{3 * SEGMENT:020d}"
    path.chmod(0o640)
    apply(Disk(), plan_truncate(Disk(), settings(tmp_path), to_offset=offsets[50]), command="truncate")
    assert not path.exists()
    take_back(tmp_path)
    assert path.stat().st_mode & 0o7777 == 0o640


def strays(root: Path) -> None:
    os.mkfifo(root / "commitlog" / f"{1 << 40:020d}")
    (root / "commitlog" / "link").symlink_to("nowhere")
    (root / "commitlog" / "theirs" / "below").mkdir(parents=True)
    (root / "commitlog" / "theirs" / "below" / "file").write_text("theirs")
    path = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.unlink()
    os.mkfifo(path)
    os.truncate(root / "consumequeue" / "T" / "1" / f"{0:020d}", 0)
    lead_elsewhere(root / "consumequeue" / "T" / "1" / f"{0:020d}", root.parent / "disk", relative=True)
    for one in (root / "index").iterdir():
        one.unlink()
    (root / "index").rmdir()
    os.mkfifo(root / "index")
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()
    os.mkfifo(root / "abort")


@pytest.mark.leaves
def test_what_was_set_aside_comes_back_as_it_was_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 300)
    strays(root)
    before = files(root)
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert count(root) == 300
    check_clean(root, settings(root))
    assert (root / "quarantine").is_dir()
    take_back(root)
    assert files(root) == before


@pytest.mark.leaves
def test_also_after_a_kill_anywhere(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 300)
    strays(root)
    before = files(root)
    whole = stores.copy(root, tmp_path / "whole")
    disk = FaultyDisk(None)
    apply(disk, plan_recover(Disk(), settings(whole)))
    for number in random.Random(1).sample(range(1, disk.changes_seen + 1), 12):
        store = stores.copy(root, tmp_path / f"repair-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            apply(faulty, plan_recover(Disk(), settings(store)))
        if number % 2:
            apply(Disk(), plan_recover(Disk(), settings(store)))
        if repairs(Disk(), str(store)):
            take_back(store)
        assert files(store) == before, number
    counting = stores.copy(whole, tmp_path / "counting")
    disk = FaultyDisk(None)
    undo(disk, plan_undo(Disk(), settings(counting)))
    assert files(counting) == before
    for number in random.Random(1).sample(range(1, disk.changes_seen + 1), 12):
        store = stores.copy(whole, tmp_path / f"undo-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            undo(faulty, plan_undo(Disk(), settings(store)))
        if any(not one.undone for one in repairs(Disk(), str(store))):
            take_back(store)
        assert files(store) == before, number


@pytest.mark.leaves("log-misplaced")
@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("step", ["log-done", "index-done"])
def test_a_renamed_segment_that_a_cut_then_removed_comes_back(segments: int, step: str, tmp_path: Path) -> None:
    """The recovery that renamed it was killed, so that both are taken back together."""
    root = tmp_path / "store"
    put(root, 300)
    log = sorted((root / "commitlog").iterdir())
    for path in log[-2 - segments : -2]:
        path.rename(path.with_name(f"{int(path.name) + 40 * SEGMENT:020d}"))
    before = files(root)
    disk = FaultyDisk(None)
    disk.kill_at(f"recover.{step}")
    with pytest.raises(Killed):
        apply(disk, plan_recover(Disk(), settings(root)))
    apply(Disk(), plan_truncate(Disk(), settings(root), to_offset=SEGMENT))
    check_clean(root, settings(root))
    counting = stores.copy(root, tmp_path / "counting")
    disk = FaultyDisk(None)
    undo(disk, plan_undo(Disk(), settings(counting)))
    assert files(counting) == before
    for number in random.Random(1).sample(range(disk.changes_seen * 2 // 3, disk.changes_seen), 5):
        store = stores.copy(root, tmp_path / f"undo-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            undo(faulty, plan_undo(Disk(), settings(store)))
        take_back(store)
        assert all(one.undone for one in repairs(Disk(), str(store)))
        assert files(store) == before, number


@pytest.mark.leaves("index-missing", "unit-missing")
@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_directories_that_were_not_there_go_again(part: str, tmp_path: Path) -> None:
    put(tmp_path, 300)
    (tmp_path / part).rename(tmp_path.parent / f"{tmp_path.name}-{part}")
    before = files(tmp_path)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    assert count(tmp_path) == 300
    take_back(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.leaves("unit-missing")
def test_a_directory_that_was_there_without_a_file_stays(tmp_path: Path) -> None:
    put(tmp_path, 10)
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    before = files(tmp_path)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    take_back(tmp_path)
    assert files(tmp_path) == before
