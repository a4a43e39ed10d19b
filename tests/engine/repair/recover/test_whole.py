"""What was read is said, and no verdict of what was not: `--whole` reads all of the log and of the index."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.errors import DamageInTheMiddle
from engine.files.disk import Disk
from engine.inspect import next_step
from engine.inspect.check.check import check
from engine.inspect.finding_codes import Fix
from engine.inspect.store.survey import survey
from engine.repair.recover.apply import apply
from engine.repair.recover.problems import CHECKPOINT_AHEAD
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.test_rules import damage, messages, put, settings
from tests.rstore_cli.conftest import Cli, cli
from tests.support import stores
from tests.support.checking import check_clean

__all__ = ["cli"]


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store of many segments, closed; where its records are."""
    root = tmp_path / "store"
    return root, put(root, 400)


def broken(root: Path, offsets: list[int]) -> int:
    """A body byte flipped in the second segment; the record's offset."""
    at = next(offset for offset in offsets if offset >= 8192 + 1000)
    damage(root, at + 100, b"\xff")
    return at


@pytest.mark.leaves("log-damage")
def test_a_plan_names_what_it_read(closed: tuple[Path, list[int]], cli: Cli) -> None:
    root, offsets = closed
    segments = survey(Disk(), settings(root)).log
    at = broken(root, offsets)
    before = stores.contents(root)
    ran = cli("--store", root, "recover", "--dry-run")
    assert ran.code == 0
    assert "is sound" not in ran.out
    assert f"the last 3 of {len(segments)} segments, from offset {segments[-3].offset}" in ran.out
    assert f"offsets 0 to {segments[-3].offset}" in ran.out
    assert f"rstore --store {root} recover --whole" in ran.out
    said = cli("--store", root, "recover", "--dry-run", "--json").json["read"]
    assert said == {"from": segments[-3].offset, "segments": 3, "of": len(segments), "whole": False}
    cut = cli("--store", root, "recover", "--dry-run", "--cut")
    assert f"rstore --store {root} recover --whole" in cut.out
    whole = cli("--store", root, "recover", "--dry-run", "--whole")
    assert whole.code == 4
    assert "--cut --whole" in whole.error_line
    assert str(at) in whole.error_line
    assert stores.contents(root) == before


def test_all_of_a_sound_log_is_said_to_be_read(closed: tuple[Path, list[int]], cli: Cli) -> None:
    root, _ = closed
    count = len(survey(Disk(), settings(root)).log)
    before = stores.contents(root)
    ran = cli("--store", root, "recover", "--dry-run", "--whole")
    assert ran.code == 0
    assert f"{count} segments, the whole log" in ran.out
    assert "no damage found in the log, and nothing to repair in queues and index" in ran.out
    said = cli("--store", root, "recover", "--dry-run", "--whole", "--json").json
    assert said["read"] == {"from": 0, "segments": count, "of": count, "whole": True}
    assert said["records"] == 400
    assert stores.contents(root) == before


def test_a_bridge_and_a_cut_go_by_the_whole_log(closed: tuple[Path, list[int]], tmp_path: Path) -> None:
    root, offsets = closed
    at = broken(root, offsets)
    copy = stores.copy(root, tmp_path / "cut")
    assert not plan_recover(Disk(), settings(root), cut=True).changed
    plan = plan_recover(Disk(), settings(copy), cut=True, whole=True)
    assert plan.log.end.end == at
    apply(Disk(), plan)
    check_clean(copy, settings(copy))
    assert not plan_recover(Disk(), settings(copy), cut=True, whole=True).changed
    assert len(messages(copy)) == offsets.index(at)
    plan = plan_recover(Disk(), settings(root), bridge=True)
    assert not plan.unread
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), bridge=True).changed
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    assert len(messages(root)) == 400 - 1


@pytest.mark.leaves("checkpoint-ahead")
@pytest.mark.parametrize("values", [(1 << 50,) * 3, (0, 0, 1 << 50), (-1, 0, 0)])
def test_a_checkpoint_that_is_not_of_this_log_is_set_right(
    values: tuple[int, int, int], closed: tuple[Path, list[int]]
) -> None:
    """check named recover for it, which had nothing to do, and named check."""
    root, _ = closed
    with (root / "checkpoint").open("r+b") as file:
        file.write(struct.pack(">qqq", *values))
    before = stores.contents(root)
    found = check(Disk(), settings(root))
    assert found.next == next_step.step(settings(root), Fix.REBUILD)
    assert not plan_recover(Disk(), settings(root)).marks  # it reads a part of the log
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert (plan.changed, plan.marks) == (False, True)
    assert CHECKPOINT_AHEAD in plan.problems
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), whole=True).marks
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert stores.contents(root)["checkpoint"] == before["checkpoint"]


def test_an_index_file_that_a_glance_passes_is_verified(closed: tuple[Path, list[int]]) -> None:
    root, _ = closed
    first = survey(Disk(), settings(root)).index[0]
    layout = survey(Disk(), settings(root)).index_layout
    with Path(first.path).open("r+b") as file:
        file.seek(layout.entry_position(40))
        file.write(b"\x55" * 12)
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert first.name in plan.index.removed
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), whole=True).changed


def test_truncate_says_what_it_read_and_refuses_damage_that_it_finds(closed: tuple[Path, list[int]], cli: Cli) -> None:
    root, offsets = closed
    at = broken(root, offsets)
    to = offsets[-1]
    ran = cli("--store", root, "truncate", "--to-offset", to, "--dry-run")
    assert ran.code == 1
    assert f"truncate --to-offset {to} --whole" in ran.out
    before = stores.contents(root)
    whole = cli("--store", root, "truncate", "--to-offset", to, "--whole", "--yes")
    assert whole.code == 4
    assert str(at) in whole.error_line
    assert "recover --bridge" in whole.error_line
    assert stores.contents(root).keys() - before.keys() <= {"lock"}
    with pytest.raises(DamageInTheMiddle):
        apply(Disk(), plan_truncate(Disk(), settings(root), to_offset=to, whole=True))
    assert cli("--store", root, "recover", "--bridge", "--yes").code == 0
    assert cli("--store", root, "truncate", "--to-offset", to, "--whole", "--yes").code == 0
