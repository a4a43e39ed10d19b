"""One function says what becomes of a store that is about to be opened, whoever opens it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.errors import Refused
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.repair.recover.opening import Policy, recover_for_open
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.engine.repair.test_rules import put, settings
from tests.engine.test_layers import module_name, modules


def left_open(root: Path) -> None:
    """A store with messages whose abort file is there, and whose queues lack what dispatch had done."""
    put(root, 3)
    (root / "abort").touch()


def test_only_one_module_plans_the_recovery_of_a_store_that_opens() -> None:
    """`command="start"` is what apply is told there."""
    found = [
        module_name(path)
        for path in modules()
        if "command=" in (text := path.read_text(encoding="utf-8"))  # else there is nothing to parse
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword)
        and node.arg == "command"
        and isinstance(node.value, ast.Constant)
        and node.value.value == "start"
    ]
    assert found == ["engine.repair.recover.opening"]


def test_as_needed_it_is_recovered(tmp_path: Path) -> None:
    left_open(tmp_path)
    told: list[tuple[RecoverPlan, str | None]] = []
    with StoreLock(Disk(), str(tmp_path)):
        state, config = recover_for_open(Disk(), settings(tmp_path), tell=lambda *said: told.append(said))
    ((plan, saved),) = told
    assert plan.files.abort
    assert saved is None
    assert config.store_path_root_dir == tmp_path
    assert sum(queue.max_offset for queue in state.queues) == 3
    MessageStore.open(settings(tmp_path)).close()


def test_as_it_is_a_store_that_needs_more_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 3)
    queue = min((tmp_path / "consumequeue" / "T").glob("*/*"))
    queue.write_bytes(bytes(queue.stat().st_size))
    before = queue.read_bytes()
    with StoreLock(Disk(), str(tmp_path)), pytest.raises(Refused, match="must be recovered"):
        recover_for_open(Disk(), settings(tmp_path), Policy.AS_IT_IS)
    assert queue.read_bytes() == before
    MessageStore.open(settings(tmp_path)).close()


@pytest.mark.leaves("not-closed")
def test_a_plan_that_was_made_is_carried_out_as_it_is(tmp_path: Path) -> None:
    left_open(tmp_path)
    with StoreLock(Disk(), str(tmp_path)):
        plan = plan_recover(Disk(), settings(tmp_path), locked=True)
        told: list[RecoverPlan] = []
        recover_for_open(Disk(), settings(tmp_path), plan=plan, tell=lambda made, saved: told.append(made))
    assert told == [plan]
