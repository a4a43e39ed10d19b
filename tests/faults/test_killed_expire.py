"""Expire is killed between any two deletions: run again, it ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk, Killed
from engine.repair.expire.expire import ExpireRules, apply_expire, plan_expire
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.log import rebuild
from tests.engine.repair.expire.test_expire import age
from tests.support import stores


@pytest.mark.parametrize("name", ["clean-small", "transient-ext"])
def test_killed_anywhere_and_run_again(name: str, fixture_copy: Store, tmp_path: Path) -> None:
    root = fixture_copy(name)
    age(root, [24 * 300] * 2 + [0] * 50)

    def run(where: Path, kill_before: int | None = None) -> FaultyDisk:
        disk = FaultyDisk(None)
        config = rebuild.config_of(name, ours=True).with_changes(store_path_root_dir=where)
        plan = plan_expire(disk, config, ExpireRules(forced=True))
        assert disk.changes_seen == 0
        if kill_before is not None:
            disk.kill_before(kill_before)
        apply_expire(disk, plan)
        return disk

    whole = stores.copy(root, tmp_path / "whole")
    disk = run(whole)
    expected = stores.contents(whole)
    assert disk.changes_seen >= 4
    for number in range(1, disk.changes_seen + 1):
        copy = stores.copy(root, tmp_path / f"killed-{number}")
        with pytest.raises(Killed):
            run(copy, number)
        config = rebuild.config_of(name, ours=True).with_changes(store_path_root_dir=copy)
        assert not plan_recover(FaultyDisk(None), config).changed
        run(copy)
        assert stores.contents(copy) == expected
