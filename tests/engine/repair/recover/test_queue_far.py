"""A queue's file far behind its end that holds nothing: told as what it is, set aside, brought back by undo."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.repair.start.plan_start import plan_start
from tests.engine.repair.salvage.test_undo import files
from tests.engine.repair.test_rules import put, recover, settings
from tests.support.checking import check_clean

FILE = 400


@pytest.mark.parametrize("count", [100, 120], ids=["part-full", "full"])
def test_it_is_told_and_set_aside(count: int, tmp_path: Path) -> None:
    """120: the queue's last file is full to its end."""
    put(tmp_path, count)
    queue = tmp_path / "consumequeue" / "T" / "0"
    for offset in (600_000, 600_000 + FILE):
        (queue / f"{offset:020d}").write_bytes(bytes(FILE))
    before = files(tmp_path)
    found = check(Disk(), settings(tmp_path)).findings
    assert [(f.code, f.where) for f in found] == [
        ("queue-empty", f"consumequeue/T/0/{offset:020d}") for offset in (600_000 + FILE, 600_000)
    ]
    assert "rstore recover" in found[0].hint
    assert plan_start(Disk(), settings(tmp_path)).apache.outcome.value == "opens"
    plan = plan_recover(Disk(), settings(tmp_path))
    assert not any(queue.changed for queue in plan.queues)
    apply(Disk(), plan)
    check_clean(tmp_path, settings(tmp_path))
    assert not plan_recover(Disk(), settings(tmp_path)).changed
    undo(Disk(), plan_undo(Disk(), settings(tmp_path)))
    assert files(tmp_path) == before
    recover(tmp_path)


@pytest.mark.leaves("queue-gap", "unit-invalid")
def test_one_that_holds_a_unit_is_no_stray(tmp_path: Path) -> None:
    put(tmp_path, 100)
    far = tmp_path / "consumequeue" / "T" / "0" / f"{600_000:020d}"
    far.write_bytes(bytes(20) + b"\1" + bytes(FILE - 21))
    assert "queue-gap" in {f.code for f in check(Disk(), settings(tmp_path)).findings}
    assert not plan_recover(Disk(), settings(tmp_path)).set_aside


def test_an_empty_file_right_behind_the_last_one_is_the_queues(tmp_path: Path) -> None:
    put(tmp_path, 120)
    (tmp_path / "consumequeue" / "T" / "0" / f"{3 * FILE:020d}").write_bytes(bytes(FILE))
    assert not plan_recover(Disk(), settings(tmp_path)).changed
