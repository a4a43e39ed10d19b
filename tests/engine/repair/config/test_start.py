"""What a broker makes of a broken config/ when it starts, and that recover and plan-start say so before."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.config_start import config_start
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, GROUPS, TOPICS
from engine.repair.config.apply import apply
from engine.repair.config.plan import plan_rebuild
from engine.repair.recover.change import with_config
from engine.repair.recover.following import after
from engine.repair.recover.recover import plan_recover
from engine.repair.start.apache_start import StartOutcome
from engine.repair.start.plan_start import plan_start
from tests.conftest import Store
from tests.support.config import write_config


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    copy = fixture_copy("clean-small")
    write_config(copy)
    return copy


@pytest.mark.parametrize("name", [TOPICS, GROUPS, CONSUMERS, DELAYS])
@pytest.mark.parametrize("backup", [None, "", "{", '{"offsetTable":{}}'])
def test_a_broken_file(name: str, backup: str | None, store: Path) -> None:
    config = StoreConfig(store_path_root_dir=store)
    assert config_start(Disk(), config, str(store)).problems == ()
    assert plan_start(Disk(), config).apache.outcome is StartOutcome.OPENS
    (store / "config" / name).write_text("{")
    if backup is not None:
        (store / "config" / f"{name}.bak").write_text(backup)
    found = config_start(Disk(), config, str(store))
    (problem,) = found.problems
    assert problem.startswith(f"config/{name}")
    started = plan_start(Disk(), config)
    assert problem in started.problems
    fails = backup == "{"
    assert started.apache.outcome is (StartOutcome.REFUSES if fails else StartOutcome.OPENS)
    assert bool(found.stops) == (fails and name != DELAYS)
    assert bool(found.stops_late) == (fails and name == DELAYS)
    assert started.next is not None
    assert started.next.command is not None
    assert "rebuild-config" in started.next.command

    plan = with_config(Disk(), plan_recover(Disk(), config))
    assert any(one.startswith(problem) for one in plan.problems)
    following = after(plan)
    assert following is not None
    assert following.command == started.next.command

    apply(Disk(), plan_rebuild(Disk(), config))
    assert config_start(Disk(), config, str(store)).problems == ()
    assert plan_start(Disk(), config).apache.outcome is StartOutcome.OPENS
