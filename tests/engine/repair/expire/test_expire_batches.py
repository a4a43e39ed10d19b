"""Retention deletes the files of batch queues whose records have all expired, and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.repair.expire.expire import ExpireRules, apply_expire, plan_expire
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.engine.repair.recover.batch_damage import config
from tests.support import batch_stores
from tests.support.batch_stores import FILE_SIZE, FILE_UNITS, SEGMENT, UNIT


@pytest.mark.parametrize("young", [1, 2, 3])
def test_files_of_expired_units_are_deleted(young: int, tmp_path: Path) -> None:
    written = batch_stores.write(tmp_path / "store", 5, 160)
    root = written.root
    apply(Disk(), plan_recover(Disk(), config(root)))
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > young
    for path in segments[:-young]:
        os.utime(path, (1, 1))
    plan = plan_expire(Disk(), config(root), ExpireRules(forced=True))
    apply_expire(Disk(), plan)
    begin = (len(segments) - young) * SEGMENT
    assert plan.log_min == begin
    lines = {(one["topic"], one["queueId"]): one for one in plan.to_json()["queues"]}
    for queue in written.queues:
        units = written.units(*queue)
        gone = len(units) - len(written.units(*queue, begin))
        kept = min(gone, len(units) - 1) // FILE_UNITS * FILE_UNITS
        assert batch_stores.held(root, queue) == (kept, units[kept:])
        files = [f"batchconsumequeue/{queue[0]}/{queue[1]}/{at * FILE_SIZE:020}" for at in range(kept // FILE_UNITS)]
        assert set(files) <= set(plan.to_json()["filesRemoved"])
        low = UNIT.unpack(units[gone])[4] if gone < len(units) else lines[queue]["maxOffset"]
        assert lines[queue]["minOffset"] == low
    assert not plan_recover(Disk(), config(root), whole=True).changed
