"""What a start of RocketMQ 5 would do, against what its own message store did with the same damaged stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import sysflag
from engine.inspect.store.survey import survey
from engine.log.derive import TopicQueue
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.start.apache_start import StartOutcome
from engine.repair.start.plan_start import StartPlan, plan_start
from tests.support import mutate, starts, stores
from tests.support.wide import sample

RELEASES = ("5.3.1", "5.3.3", "5.4.0", "5.5.0")
CASES = [(release, case) for release in RELEASES for case in starts.cases(release)]
OUTCOMES = {0: StartOutcome.OPENS, 2: StartOutcome.REFUSES, 4: StartOutcome.CRASHES, None: StartOutcome.HANGS}


def settings(store: Path) -> StoreConfig:
    return StoreConfig().with_changes(
        store_path_root_dir=store,
        mapped_file_size_commit_log=16_384,
        mapped_file_size_consume_queue=1_000,
        max_hash_slot_num=100,
        max_index_num=300,
    )


def messages(store: Path) -> set[int]:
    """Where the sound messages of a log lie (physical)."""
    files = survey(Disk(), settings(store))
    places: set[int] = set()
    with ClosedLog(Disk(), files.log) as log:
        for event in Scanner(log, kernels=False).scan(files.log[0].offset, resume=True) if files.log else ():
            if isinstance(event, RecordBatch):
                places |= {event.offset(i) for i, row in enumerate(event.rows) if sysflag.is_consumable(row.sys_flag)}
    return places


def really_lost(store: Path, outcome: dict[str, Any]) -> int:
    """Messages of the log that no queue of the started store shows."""
    shown = {place for queue in outcome["queues"] for place in queue[5] if place < outcome["max"]}
    return len(messages(store) - shown)


def check(release: str, case: dict[str, Any], work: Path) -> StartPlan:
    store = starts.unpack(case["base"], work)
    mutate.apply(store, case["ops"])
    before = stores.snapshot(store)
    plan = plan_start(Disk(), settings(store), version=release)
    assert stores.snapshot(store) == before
    outcome, apache = case["outcome"], plan.apache
    assert apache.outcome is OUTCOMES[outcome["exit"]], apache.why
    present = {path.name for path in (store / "index").iterdir()} if (store / "index").is_dir() else set()
    if outcome["exit"] == 0:
        assert set(plan.index_removed) == present - set(outcome["index"])
        left = {Path(one.path).name for one in plan.files.log} - {Path(one.path).name for one in apache.removed}
        assert left == {name for name in outcome["log"] if name.isdecimal()}
        assert (apache.min_offset, apache.max_offset) == (outcome["min"], outcome["max"])
        if plan.files.log:
            assert apache.queues is not None
            ours = {key: (queue.end, queue.known) for key, queue in apache.queues.plain.items() if queue.end}
            theirs = {TopicQueue(q[0], q[1]): (q[3], q[4]) for q in outcome["queues"] if q[3]}
            assert ours == theirs
        assert plan.records_after + sum(plan.short.values()) == really_lost(store, outcome)
    return plan


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize(
    ("release", "case"), sample(CASES, 7), ids=lambda one: one["id"] if isinstance(one, dict) else None
)
def test_as_the_real_start(release: str, case: dict[str, Any], tmp_path: Path) -> None:
    check(release, case, tmp_path)
