"""What a broker would do, against what Apache 4.9.8 did: every damaged store of both corpora."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import FrameType

import pytest

from engine.bench.workload import Workload, write_log
from engine.config import StoreConfig
from engine.errors import DamageInTheMiddle, DataIsAbsent
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.format import names, sysflag
from engine.format.record import MESSAGE_MAGIC, MESSAGE_MAGIC_V2
from engine.inspect.store.survey import survey
from engine.log.batch import RecordBatch
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import Scanner
from engine.log.source import ClosedLog
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.start.apache_start import StartOutcome, _take, apache_start
from engine.repair.start.plan_start import StartPlan, plan_start
from tests.conftest import Store
from tests.engine.repair import corpus, differences
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import golden, layouts, mutate, stores
from tests.support.checking import check_clean
from tests.support.wide import sample, sample_of_each

GOLDEN = golden.cases()
OURS = corpus.fixture_cases()
OUTCOMES = {0: StartOutcome.OPENS, 2: StartOutcome.REFUSES, 4: StartOutcome.CRASHES, None: StartOutcome.HANGS}
"""By the exit code of the Java side; None after 20 s of waiting."""

OTHER_QUEUES = {"v051": "a flipped size sends dispatch a whole file ahead: other messages than those said are lost"}
"""The loss is predicted, but not in which queues."""


def ids(case: corpus.Case) -> str:
    return str(case["id"])


def check(case: corpus.Case, store: Path) -> None:
    mutate.apply(store, case["ops"])
    before = stores.snapshot(store)
    plan = plan_start(Disk(), corpus.config(store, case))
    assert stores.snapshot(store) == before
    assert plan.apache.outcome is OUTCOMES[case["exit"]]
    if case["exit"] != 0:
        return
    assert (plan.apache.min_offset, plan.apache.max_offset) == (
        case["final"]["minPhyOffset"],
        case["final"]["maxPhyOffset"],
    )
    assert (plan.apache.mode.value == "abnormal") == case["abnormal"]
    left = {Path(s.path).name for s in plan.files.log} - {Path(s.path).name for s in plan.apache.removed}
    assert left == set(case["commitlogFiles"])
    if case["id"] in differences.REFUSED or case["id"] in differences.LOG_END:
        return
    if case["id"] in OTHER_QUEUES:
        assert plan.short
        return
    # A queue that ends earlier with Apache than with us, over the same log, was said to be short.
    ours = plan_recover(Disk(), corpus.config(store, case), cut=True).state
    theirs = corpus.apache_queues(case)
    for state in ours.queues:
        found = theirs.get((state.queue.topic, state.queue.queue_id), corpus.Outcome())
        if found.max_offset < state.max_offset:
            assert state.queue in plan.short, state


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(GOLDEN, 16, 5), ids=ids)
def test_golden_case(case: corpus.Case, golden_copy: Store) -> None:
    check(case, golden_copy(case["base"]))


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample_of_each(OURS, corpus.category, 3), ids=ids)
def test_fixture_case(case: corpus.Case, fixture_copy: Store) -> None:
    check(case, fixture_copy(case["base"]))


def entries(root: Path) -> set[tuple[int, int]]:
    """(key hash, physical offset) of every entry of the index."""
    files = survey(Disk(), corpus.config(root, {"base": "crashed-small"}))
    found: set[tuple[int, int]] = set()
    for index in files.index:
        with ClosedIndexFile(Disk(), index.path, files.index_layout) as file:
            rows = file.entries(1, file.entry_count)
            found |= set(zip(rows["key_hash"].tolist(), rows["physical_offset"].tolist(), strict=True))
    return found


def test_the_keys_that_apache_really_lost(golden_store: Store) -> None:
    before, after = golden_store("crashed-small"), golden_store("crashed-small.after")
    plan = plan_start(Disk(), corpus.config(before, {"base": "crashed-small"}))
    files = {path.name for path in (before / names.INDEX).iterdir()}
    kept = {path.name for path in (after / names.INDEX).iterdir()}
    assert set(plan.index_removed) == files - kept
    start = plan.apache.dispatch_from
    assert len({e for e in entries(before) - entries(after) if e[1] < start}) > 0
    assert plan.keys_lost >= len(entries(before) - entries(after))
    assert all(offset < start for _, offset in entries(before) - entries(after))


def test_nothing_is_lost_of_a_sound_store(tmp_path: Path) -> None:
    put(tmp_path, 200)
    plan = plan_start(Disk(), settings(tmp_path))
    assert (plan.loses, plan.refusal, plan.bytes_cut, plan.settings) == ([], None, 0, [])
    assert plan.bytes_to_scan > 0


def test_segments_under_swapped_names_lose_their_messages(tmp_path: Path) -> None:
    """Apache starts over them without a word, and reads other bytes where the units point."""
    offsets = put(tmp_path, 300)
    one, two = sorted((tmp_path / names.COMMITLOG).iterdir())[1:3]
    two.rename(tmp_path / "aside")
    one.rename(two)
    (tmp_path / "aside").rename(one)
    plan = plan_start(Disk(), settings(tmp_path))
    assert plan.apache.outcome is StartOutcome.OPENS
    size = settings(tmp_path).mapped_file_size_commit_log
    assert sum(plan.short.values()) == sum(size <= offset < 3 * size for offset in offsets)
    assert plan.refusal is not None
    assert plan.next is not None
    assert (plan.next.command or "").endswith("recover")
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    assert not plan_start(Disk(), settings(tmp_path)).loses


def test_no_verdict_where_queues_were_not_compared(tmp_path: Path) -> None:
    put(tmp_path, 100)
    path = next((tmp_path / names.INDEX).iterdir())
    disk = FaultyDisk(None, mapped=False)
    disk.fail_when(lambda doing: doing.operation is Operation.READ and doing.path == str(path), errno.EIO)
    plan = plan_start(disk, settings(tmp_path))
    assert not plan.compared
    assert not plan.to_json()["queuesCompared"]
    assert any("not compared" in problem for problem in plan.problems)
    assert plan_start(Disk(), settings(tmp_path)).compared


@pytest.mark.leaves("log-damage")
def test_damage_in_the_middle(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    plan = plan_start(Disk(), settings(tmp_path))
    assert plan.apache.end == offsets[260]
    assert plan.records_after == 39
    assert plan.refusal is not None
    assert plan.refusal.exit_code == 4
    found = plan.to_json()
    assert found["losesData"]
    assert sum(queue["messagesLost"] for queue in found["queues"]) == 39


@pytest.mark.leaves("index-orphaned", "log-missing")
def test_a_log_that_is_gone(tmp_path: Path) -> None:
    put(tmp_path, 20)
    for path in (tmp_path / names.COMMITLOG).iterdir():
        path.unlink()
    plan: StartPlan = plan_start(Disk(), settings(tmp_path))
    assert sum(plan.short.values()) == 20
    assert plan.refusal is not None


def test_settings_that_do_not_match(tmp_path: Path) -> None:
    put(tmp_path, 200)
    plan = plan_start(Disk(), settings(tmp_path).with_changes(mapped_file_size_commit_log=16384))
    assert plan.apache.outcome is StartOutcome.REFUSES
    assert plan.settings == ["mappedFileSizeCommitLog = 16384, the files have 8192"]


@pytest.mark.leaves("index-orphaned", "log-gap", "path-unnamed", "unit-orphaned")
@pytest.mark.parametrize("last", [False, True])
def test_no_verdict_where_a_directory_of_the_log_is_not_there(tmp_path: Path, last: bool) -> None:
    """It held segments in the middle, or the last one: nobody knows what is lost. Once it is there, nothing is."""
    made = layouts.make(tmp_path / "store", several=True, segments=6 if last else 7)
    away = tmp_path / "away"
    made.directories[1].rename(away)
    plan = plan_start(Disk(), made.config)
    assert isinstance(plan.refusal, DataIsAbsent)
    assert plan.refusal.path == str(made.directories[1])
    assert "mount its disk" in str(plan.next)
    away.rename(made.directories[1])
    assert plan_start(Disk(), made.config).refusal is None
    check_clean(made.root, made.config)


def test_a_directory_of_the_log_that_never_held_a_segment_is_no_absent_data(tmp_path: Path) -> None:
    made = layouts.make(tmp_path / "store")
    config = layouts.settings(made.root, several=True)
    plan = plan_start(Disk(), config)
    assert plan.refusal is None
    assert plan.next is not None


def test_damage_beside_a_directory_that_never_held_a_segment_is_no_absent_data(tmp_path: Path) -> None:
    made = layouts.make(tmp_path / "store")
    with made.files[1].open("r+b") as file:
        file.seek(1000)
        file.write(bytes(3000))
    (path,) = [one for one in (made.root / "consumequeue" / "T" / "0").iterdir() if int(one.name) == 0]
    path.unlink()
    config = layouts.settings(made.root, several=True)
    plan = plan_start(Disk(), config)
    assert plan.absent is None
    assert not isinstance(plan.refusal, DataIsAbsent)
    refusal = plan_recover(Disk(), config).refusal
    assert isinstance(refusal, DamageInTheMiddle)
    apply(Disk(), plan_recover(Disk(), made.config, bridge=True))


@pytest.mark.parametrize("kernels", [True, False])
def test_what_recovery_takes_of_a_batch(fixture_store: Store, kernels: bool) -> None:
    files = survey(Disk(), StoreConfig(store_path_root_dir=fixture_store("crashed-small")))
    seen = 0
    with ClosedLog(Disk(), files.log) as log:
        for batch in Scanner(log, kernels=kernels).scan(0, resume=True):
            if not isinstance(batch, RecordBatch):
                continue
            for newer in sorted({0, len(batch) // 2, len(batch) - 1, len(batch)}):
                buffer = bytearray(batch.buffer)
                if newer < len(batch):
                    at = batch.rows[newer].position + 4
                    assert int.from_bytes(buffer[at : at + 4], "big") == MESSAGE_MAGIC
                    buffer[at : at + 4] = MESSAGE_MAGIC_V2.to_bytes(4, "big")
                part = RecordBatch(batch.base, memoryview(buffer), batch.rows if batch.table is None else batch.table)
                ends = [batch.offset(i) + batch.rows[i].size for i in range(newer)]
                units = [end for end, row in zip(ends, batch.rows, strict=False) if sysflag.is_consumable(row.sys_flag)]
                taken = _take(part)
                assert (taken.records, taken.why is None) == (newer, newer == len(batch))
                assert (taken.end, taken.dispatched) == (max(ends, default=-1), max(units, default=-1))
                seen += 1
    assert seen > 3


@pytest.mark.leaves("checkpoint-missing", "index-missing", "unit-missing")
def test_a_long_log_is_read_by_kernels(tmp_path: Path) -> None:
    """Not record by record, which took four times as long as check: fewer calls of Python than records."""
    pytest.importorskip("numba")
    if (os.cpu_count() or 1) == 1:
        pytest.skip("a single core reads nothing ahead")
    size = 20 << 20
    write_log(Workload("long", 512, size=size, segment=size), tmp_path / "commitlog")
    config = StoreConfig().with_changes(store_path_root_dir=tmp_path)
    calls: list[int] = []

    def count(frame: FrameType, event: str, arg: object) -> None:
        calls[-1] += event == "call"

    for _ in range(2):  # the first brings numba, and may compile
        files = survey(Disk(), config)
        calls.append(0)
        sys.setprofile(count)
        try:
            with ClosedLog(Disk(), files.log) as log:
                found = apache_start(Disk(), files, log)
        finally:
            sys.setprofile(None)
    assert found.records > 30_000
    assert calls[1] < found.records / 10
