"""A repair of the store that was killed: commands that find nothing to do don't end it, and `recover` does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import names
from engine.inspect.store.repairs import repairs, unfinished
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex.reindex import Scope, build
from engine.repair.reindex.swap import build_directory, swap
from tests.engine.repair.test_rules import damage, put, settings
from tests.rstore_cli.conftest import Cli
from tests.support.checking import check_clean

STEPS = ("salvage.written", "recover.bridge", "recover.log-done")
BRIDGED = {"known": {"log-bridged"}, "why": "500 bytes were overwritten"}


def open_ones(root: Path) -> list[str]:
    return [one.manifest["command"] for one in unfinished(repairs(Disk(), os.fspath(root)))]


def killed_bridge(root: Path, at: str) -> None:
    """A recovery of a closed store that was to bridge damage, killed at a step."""
    damage(root, put(root, 40)[9] + 20, b"\xff" * 500)
    disk = FaultyDisk(None)
    disk.kill_at(at)
    with pytest.raises(Killed):
        apply(disk, plan_recover(disk, settings(root), bridge=True))
    assert open_ones(root) == ["recover"]


def killed_reindex(root: Path, arm: Callable[[FaultyDisk], object]) -> None:
    """A reindex that was to make two queues again, killed."""
    put(root, 40)
    for queue in "01":
        shutil.rmtree(root / names.CONSUMEQUEUE / "T" / queue)
    into = build_directory(str(root))
    os.makedirs(into)
    plan = build(Disk(), settings(root), into, Scope(True, False))
    disk = FaultyDisk(None)
    arm(disk)
    with pytest.raises(Killed):
        swap(disk, plan)
    assert open_ones(root) == ["reindex"]


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("words", [("expire",), ("expire", "--force", "--reserved-hours", "9")], ids=str)
def test_an_expire_without_anything_to_do_ends_no_killed_recovery(
    words: tuple[str, ...], at: str, tmp_path: Path, cli: Cli
) -> None:
    root = tmp_path / "store"
    killed_bridge(root, at)
    ran = cli("--store", root, *words, "--yes")
    assert ran.code == 0
    assert "Nothing to do" in ran.out
    assert open_ones(root) == ["recover"]
    assert cli("--store", root, "recover", "--bridge", "--yes").code == 0
    assert open_ones(root) == []


@pytest.mark.parametrize("at", STEPS)
def test_a_reindex_is_refused_until_a_recovery_has_ended_the_killed_one(at: str, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    killed_bridge(root, at)
    ran = cli("--store", root, "reindex", "--yes")
    assert ran.code == 4
    # Where the recovery is refused, too, its reason is told: the command that mends that ends the killed one as well.
    assert ("was interrupted" if at == "recover.log-done" else "28 messages (6356 bytes) after it") in ran.err
    assert ran.next_command[2:] == (["recover"] if at == "recover.log-done" else ["recover", "--bridge"])
    assert f"rstore --store {root} recover" in ran.err
    assert open_ones(root) == ["recover"]
    assert not (root / names.REINDEX_BUILD).exists()
    assert cli("--store", root, "recover", "--bridge", "--yes").code == 0
    assert cli("--store", root, "reindex", "--yes").code == 0


def test_a_truncate_ends_a_killed_recovery_by_making_the_whole_of_it(tmp_path: Path, cli: Cli) -> None:
    """Where the log is whole already, the cut at its end is a recovery; where it is not, it is refused."""
    for number, at in enumerate(STEPS):
        root = tmp_path / f"store-{number}"
        killed_bridge(root, at)
        ran = cli("--store", root, "truncate", "--to-time", "2100-01-01T00:00:00", "--yes")
        if ran.code == 4:
            assert open_ones(root) == ["recover"]
            assert cli("--store", root, "recover", "--bridge", "--yes").code == 0
        assert open_ones(root) == []
        check_clean(root, settings(root), **BRIDGED)


def test_a_reindex_that_was_killed_as_its_last_step_is_ended_by_the_next(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    killed_reindex(root, lambda disk: disk.kill_at("reindex.swapped"))
    ran = cli("--store", root, "reindex", "--consumequeue", "--yes")
    assert ran.code == 0
    assert "Nothing to do" in ran.out
    assert open_ones(root) == []


def test_a_reindex_of_less_ends_no_killed_one_that_has_swapped_in_a_part(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    killed_reindex(root, lambda disk: disk.kill_at("reindex.swap-in", 2))
    shutil.rmtree(root / names.REINDEX_BUILD)  # else the next run puts what was built there first
    ran = cli("--store", root, "reindex", "--index", "--yes")
    assert ran.code == 0
    assert "Nothing to do" in ran.out
    assert open_ones(root) == ["reindex"]
    assert cli("--store", root, "recover", "--yes").code == 0
    assert open_ones(root) == []
