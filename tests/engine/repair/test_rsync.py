"""What an interrupted rsync leaves: named as such, and a segment that lies whole in it is taken from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.test_rules import SIZES, messages, put, settings
from tests.support import stores
from tests.support.checking import check_clean

SIZE = SIZES["mapped_file_size_commit_log"]
COUNT = 150


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    put(root, COUNT)
    return root


def delayed(root: Path, file: str, directory: str = ".~tmp~") -> Path:
    """As rsync leaves a file whose turn had not come; its directory."""
    path = root / file
    into = path.parent / directory
    into.mkdir(exist_ok=True)
    path.rename(into / path.name)
    return into


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and "salvage" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.name != "lock"}


@pytest.mark.parametrize("directory", [".~tmp~", ".rsync-partial"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_missing_segment_is_taken_from_there(directory: str, number: int, made: Path, tmp_path: Path) -> None:
    root = stores.copy(made, tmp_path / "store")
    delayed(root, f"commitlog/{number * SIZE:020d}", directory)
    before = files(root)
    for found in (doctor(Disk(), settings(root)).findings, check(Disk(), settings(root)).findings):
        assert any("left by an interrupted rsync" in one.message for one in found)
        assert any(one.code == "log-misplaced" for one in found)
    plan = plan_recover(Disk(), settings(root))
    assert plan.refusal is None
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    assert not (root / "commitlog" / directory).exists()
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert files(root) == before
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert len(messages(root)) == COUNT


def test_a_copy_of_what_is_there_is_set_aside(made: Path, tmp_path: Path) -> None:
    root = stores.copy(made, tmp_path / "store")
    data = (root / "commitlog" / f"{SIZE:020d}").read_bytes()
    into = delayed(root, f"commitlog/{SIZE:020d}")
    (root / "commitlog" / f"{SIZE:020d}").write_bytes(data)
    plan = plan_recover(Disk(), settings(root))
    assert [odd.path for odd in plan.set_aside] == [str(into)]
    assert not plan.layout.relocations
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert len(messages(root)) == COUNT


def test_queues_and_index(made: Path, tmp_path: Path) -> None:
    """They are made again from the log, and their files lie in quarantine/."""
    root = stores.copy(made, tmp_path / "store")
    delayed(root, "consumequeue/T/0/00000000000000000400")
    index = sorted((root / "index").iterdir())[0]
    delayed(root, f"index/{index.name}")
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert {one["why"] for one in plan.to_json()["quarantined"]} == {
        "a directory, not a file, left by an interrupted rsync",
        "not the name of an index file, left by an interrupted rsync",
    }
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert len(messages(root)) == COUNT


STEPS = ("salvage.written", "recover.lift-segment", "recover.lifted", "recover.rename-segment", "recover.set-aside")


@pytest.mark.leaves("file-stray", "log-misplaced")
@pytest.mark.parametrize("step", STEPS)
def test_killed_and_run_again_or_taken_back(step: str, made: Path, tmp_path: Path) -> None:
    root = stores.copy(made, tmp_path / "store")
    delayed(root, f"commitlog/{SIZE:020d}")
    before = files(root)
    disk = FaultyDisk(None)
    disk.kill_at(step)
    with pytest.raises(Killed):
        apply(disk, plan_recover(disk, settings(root)))
    apply(Disk(), plan_recover(Disk(), settings(root)))
    check_clean(root, settings(root))
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert files(root) == before
