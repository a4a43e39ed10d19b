"""Killed in the middle of puts, ours and Apache's: what one recovers, the other opens without cutting a byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format import properties, sysflag
from engine.log.derive import TopicQueue
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.compat import apache, checks, fixtures
from tests.compat.apache import SMALL, Line, Opened, Sizes
from tests.compat.checks import bytes_of
from tests.faults import ledger
from tests.faults.ledger import Stored
from tests.faults.writer import run_and_kill

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

SIZES = Sizes(
    ledger.SIZES["mapped_file_size_commit_log"],
    ledger.SIZES["mapped_file_size_consume_queue"],
    ledger.SIZES["max_hash_slot_num"],
    ledger.SIZES["max_index_num"],
)


def recover(root: Path) -> RecoverPlan:
    plan = plan_recover(Disk(), ledger.settings(root))
    apply(Disk(), plan)
    return plan


def check_acknowledged(opened: Opened, acknowledged: Sequence[Stored]) -> None:
    """Apache reads each of them, at its queue offset, with its bytes' CRC, tags and keys."""
    found = {(line["cqTopic"], line["cqQueueId"], line["cqOffset"]): line for line in opened.messages}
    for one in acknowledged:
        line = found[one.topic, one.queue_id, one.queue_offset]
        assert (line["physicalOffset"], line["size"]) == (one.physical_offset, len(one.record))
        assert line["propertiesString"].encode() == one.properties
        assert line["bodyCRC"] == int.from_bytes(one.record[8:12], "big")


def check_same_ends(opened: Opened, plan: RecoverPlan) -> None:
    """Log and queues end for Apache where they end for us."""
    assert opened.exit == apache.Exit.OPENED, opened.stderr
    assert opened.after_load == opened.final == apache.Offsets(plan.state.min_offset, plan.state.max_offset)
    ours = {state.queue: (state.min_offset, state.max_offset) for state in plan.state.queues if state.max_offset}
    assert {TopicQueue(q.topic, q.queue_id): (q.min, q.max) for q in opened.queues if q.max} == ours


@pytest.mark.parametrize("seed", range(3))
def test_apache_reads_all_of_a_killed_store_that_we_recovered(seed: int, tmp_path: Path) -> None:
    acknowledged = run_and_kill(tmp_path, seed, 200 + 50 * seed)
    assert (tmp_path / "abort").exists()
    plan = recover(tmp_path)
    before = bytes_of(tmp_path)
    opened = apache.read(tmp_path, SIZES, query_all=True)
    assert opened.abnormal is False
    check_same_ends(opened, plan)
    check_acknowledged(opened, acknowledged)
    for one in acknowledged:
        assert one.physical_offset in opened.queries[one.topic, one.unique]
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("seed", range(3, 6))
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_apache_recovers_our_killed_store_itself(seed: int, flush: str, tmp_path: Path) -> None:
    acknowledged = run_and_kill(tmp_path, seed, 200, [f'flush_disk_type="{flush}"'])
    assert (tmp_path / "abort").exists()
    for path in tmp_path.glob("[ci]*/**/" + "[0-9]" * 17 + "*"):
        if (
            not path.stat().st_size
        ):  # killed between its name and its size: no broker starts on that, Apache's own neither
            path.unlink()
    plan = plan_recover(Disk(), ledger.settings(tmp_path))
    log = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    opened = apache.read(tmp_path, SIZES)
    assert opened.abnormal
    check_same_ends(opened, plan)
    check_acknowledged(opened, acknowledged)
    assert opened.final is not None
    assert opened.final.max >= max(one.end for one in acknowledged)
    for path in (tmp_path / "commitlog").iterdir():
        kept = opened.final.max - int(path.name)
        assert path.read_bytes()[: max(0, kept)] == log[path.name][: max(0, kept)]


def keys_of(log: Sequence[Line]) -> dict[tuple[str, str], set[int]]:
    """The offsets of the messages with each (topic, key) that the index has to have."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for line in log:
        if sysflag.is_indexed(line["sysFlag"]):
            for key in {line["uniqKey"], *properties.key_words(line["keys"])} - {None}:
                found[line["topic"], key].add(line["physicalOffset"])
    return found


def lost_keys(opened: Opened, log: Sequence[Line]) -> set[tuple[str, str]]:
    """The keys of which not every message is found (the newest 64)."""
    return {
        key
        for key, offsets in keys_of(log).items()
        if not set(sorted(offsets)[-checks.MOST :]) <= set(opened.queries[key])
    }


def test_apache_alone_loses_keys_and_after_our_recovery_has_all(tmp_path: Path) -> None:
    """RECOVERY.md, rule 4."""
    name = "crashed-small"
    log = [line for line in fixtures.dump(name) if line["type"] == "log"]
    alone = fixtures.unpack(name, tmp_path / "alone")
    opened = apache.read(alone, SMALL, keys_of(log), log=True)
    assert opened.abnormal
    assert len(opened.log) == len(log)
    assert len(keys_of(log)) == 866
    assert len([key for key in keys_of(log) if not opened.queries[key]]) == 52
    assert len(lost_keys(opened, log)) == 90  # these, and keys of which some messages are still found

    ours = fixtures.unpack(name, tmp_path / "ours")
    plan = recover_fixture(ours, name)
    before = bytes_of(ours)
    opened = apache.read(ours, SMALL, keys_of(log), log=True)
    assert opened.abnormal is False
    check_same_ends(opened, plan)
    checks.check_log(opened, log)
    checks.check_queues(opened, log)
    assert not lost_keys(opened, log)
    assert bytes_of(ours) == before


def recover_fixture(root: Path, name: str) -> RecoverPlan:
    settings = checks.settings(root, fixtures.sizes(name), fixtures.manifest(name)["settings"])
    plan = plan_recover(Disk(), settings)
    apply(Disk(), plan)
    return plan


@pytest.mark.parametrize("name", fixtures.names())
def test_our_recovery_of_an_undamaged_store_changes_nothing_for_apache(name: str, tmp_path: Path) -> None:
    """Also killed, by Apache's own program, after more messages."""
    lines = list(fixtures.dump(name))
    log = [line for line in lines if line["type"] == "log"]
    root = fixtures.unpack(name, tmp_path)
    settings = fixtures.manifest(name)["settings"]
    written = apache.append(root, "Hot", 0, 40, fixtures.sizes(name), crash=True, settings=settings)
    assert written.exit == apache.Exit.OPENED, written.opened.stderr
    plan = recover_fixture(root, name)
    keys = [*keys_of(log), *(("Hot", f"append-{i}") for i in range(40))]
    opened = apache.read(root, fixtures.sizes(name), keys, log=True, settings=settings)
    assert opened.abnormal is False
    check_same_ends(opened, plan)
    assert len(opened.log) == len(log) + 40
    assert not lost_keys(opened, log)
    for i, line in enumerate(written.results):
        assert line["wroteOffset"] in opened.queries["Hot", f"append-{i}"]
