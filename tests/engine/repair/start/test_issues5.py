"""Stores that issues of RocketMQ describe: what starts of 5.3.3 and 5.5.0 make of them.

Each outcome here is what the release's own message store did with the same store (`tests/compat/starts5.py`), but for
#8007: there it did so with stores of that shape.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.log.derive import TopicQueue
from engine.repair.start.apache_start import StartOutcome
from engine.repair.start.plan_start import StartPlan, plan_start
from tests.engine.repair.start.test_starts5 import settings
from tests.support import newer, starts

RELEASES = ("5.3.3", "5.5.0")
HOT = TopicQueue("Hot", 0)


def plan(store: Path, release: str, **other: str) -> StartPlan:
    config = settings(store)
    return plan_start(Disk(), config.with_changes(other={**config.other, **other}), version=release)


def last_file(store: Path) -> Path:
    return sorted((store / "consumequeue" / "Hot" / "0").iterdir())[-1]


@pytest.mark.leaves
@pytest.mark.parametrize("release", RELEASES)
def test_9728_an_empty_last_queue_file_is_deleted(release: str, tmp_path: Path) -> None:
    """4.9.8 does not start over it. Of 0 bytes: one of zeros is another matter."""
    store = starts.unpack(f"clean-{release}", tmp_path)
    last = last_file(store)
    (last.parent / f"{int(last.name) + 1000:020d}").touch()
    made = plan(store, release)
    assert (made.apache.outcome, made.apache.end, made.loses) == (StartOutcome.OPENS, 100335, [])
    assert plan(store, "4.9.8").apache.outcome is StartOutcome.REFUSES


@pytest.mark.leaves
@pytest.mark.parametrize(("release", "outcome"), [("5.3.3", StartOutcome.REFUSES), ("5.5.0", StartOutcome.OPENS)])
def test_9728_a_last_queue_file_of_zeros_stops_5_3(release: str, outcome: StartOutcome, tmp_path: Path) -> None:
    """5.5.0 starts, and leaves the 15 messages of that file out of their queue for good."""
    store = starts.unpack(f"clean-{release}", tmp_path)
    last_file(store).write_bytes(bytes(1000))
    made = plan(store, release)
    assert made.apache.outcome is outcome
    assert made.apache.queues is not None
    assert made.apache.queues.plain[HOT].end == 50
    assert made.short == {HOT: 15}
    assert ("holds no unit" in str(made.apache.why)) == (outcome is StartOutcome.REFUSES)


@pytest.mark.leaves
@pytest.mark.parametrize(("release", "end"), [("5.3.3", 98304), ("5.5.0", 0)])
def test_7480_force_verify_cuts_a_log_without_property_crcs(release: str, end: int, tmp_path: Path) -> None:
    """5.3.3 loses what lies in the file that it reads, 5.5.0 every message of the store."""
    store = starts.unpack(f"clean-{release}", tmp_path)
    made = plan(store, release, forceVerifyPropCRC="true")
    assert (made.apache.outcome, made.apache.end) == (StartOutcome.OPENS, end)
    assert made.records_after == (420 if end == 0 else 8)
    assert made.refusal is not None
    sealed = newer.unpack("property-crc", tmp_path)
    config = StoreConfig().with_changes(store_path_root_dir=sealed, other={"forceVerifyPropCRC": "true"})
    kept = plan_start(Disk(), config, version=release)
    assert (kept.apache.end, kept.loses) == (5740, [])
    assert plan(store, "4.9.8", forceVerifyPropCRC="true").loses == []


@pytest.mark.leaves
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["batch", "killed"])
def test_5077_and_9826_batch_queues_without_their_topics_json_stop_the_start(
    name: str, release: str, tmp_path: Path
) -> None:
    """A topic has one kind of queue; topics.json says which, and a lost one says: the plain kind."""
    store = newer.unpack(name, tmp_path)
    config = StoreConfig().with_changes(store_path_root_dir=store)
    made = plan_start(Disk(), config, version=release)
    assert (made.apache.outcome, made.apache.end, made.loses) == (StartOutcome.OPENS, 9904, [])
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    made = plan_start(Disk(), config, version=release)
    assert (made.apache.outcome, made.apache.start) == (StartOutcome.REFUSES, None)
    assert "batchconsumequeue/B" in str(made.apache.why)


@pytest.mark.leaves
@pytest.mark.parametrize("release", RELEASES)
def test_8007_index_files_newer_than_the_checkpoint_are_deleted(release: str, tmp_path: Path) -> None:
    store = starts.unpack(f"killed-{release}", tmp_path)
    with (store / "checkpoint").open("r+b") as file:
        file.seek(16)
        file.write(bytes(8))
    made = plan(store, release)
    assert made.index_removed == sorted(path.name for path in (store / "index").iterdir())
    assert made.keys_lost > 0
