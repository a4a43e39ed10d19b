"""What a broker leaves is read where it holds something: the next segment, made ahead of time, costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.bench.workload import GIB
from engine.inspect.check.doctor import doctor
from engine.inspect.status.status import status
from engine.repair.expire.expire import ExpireRules, plan_expire
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.support import stores
from tests.support.as_left import as_left
from tests.support.checking import check_clean
from tests.support.counting import CountingDisk

MIB = 1 << 20
NEXT = f"{GIB:020d}"


@pytest.mark.leaves("log-tail", "not-closed")
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_recovery_does_not_read_the_next_segment(tmp_path: Path, torn: bool) -> None:
    config = as_left(tmp_path)
    if torn:
        with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(20_000)
            file.write(b"torn")
    before = stores.snapshot(tmp_path)
    disk = CountingDisk()
    plan = plan_recover(disk, config, cut=torn)
    assert plan.log.removed == (str(tmp_path / "commitlog" / NEXT),)
    assert (plan.log.tail is not None) == torn
    applied = apply(disk, plan)
    assert applied.salvage is not None
    assert disk.read[NEXT] < 4 * MIB
    assert disk.read.total() < 8 * MIB
    check_clean(tmp_path, config)
    disk.read.clear()
    undo(disk, plan_undo(disk, config))
    assert disk.read.total() < 8 * MIB
    after = stores.snapshot(tmp_path)
    assert {path: seen.digest for path, seen in after.items() if not path.startswith(("salvage", "lock", "."))} == {
        path: seen.digest for path, seen in before.items() if not path.startswith(("salvage", "lock", "."))
    }


@pytest.mark.leaves("not-closed")
def test_a_look_at_100_gib_of_sparse_segments_reads_little(tmp_path: Path) -> None:
    config = as_left(tmp_path, 100)
    before = stores.snapshot(tmp_path)
    rules = ExpireRules(forced=True, reserved_hours=0)
    reads: dict[str, int] = {}
    for name, look in {
        "status": lambda disk: status(disk, config),
        "doctor": lambda disk: doctor(disk, config),
        "expire --dry-run": lambda disk: plan_expire(disk, config, rules),
    }.items():
        disk = CountingDisk()
        look(disk)
        reads[name] = disk.read.total()
    assert stores.snapshot(tmp_path) == before
    assert max(reads.values()) < 32 * MIB, reads
    assert status(CountingDisk(), config).log.max_offset > 99 * GIB
