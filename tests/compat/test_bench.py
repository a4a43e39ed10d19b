"""`rstore bench` with Apache's store as the peer: every job that has a counterpart gives a ratio."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from engine.bench import apache, kafka
from engine.bench import run as bench
from engine.bench.clients import CLIENT_LOADS, QUICK_CONSUMED
from engine.bench.jobs import JOBS
from engine.bench.options import BenchOptions
from engine.bench.replicated import COPIES, SENDS
from engine.bench.results import JobPlace, Side
from engine.bench.served import LOADS
from engine.bench.workload import MIB, workloads
from tests.support.checking import check_clean

Peer = TypeVar("Peer")
pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("peer")]


def or_skip(find: Callable[[], Peer]) -> Peer:
    """What a test runs beside ours; skips where it can't be had."""
    try:
        return find()
    except apache.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def peer() -> None:
    """Apache's side of the bench is there to be run: `make interop-parts` builds it, that no test waits for Maven."""
    or_skip(apache.find)


@pytest.fixture(scope="module")
def dumper() -> kafka.Kafka:
    """Kafka's, as `peer`."""
    return or_skip(kafka.find)


def test_each_job_against_apache(tmp_path: Path) -> None:
    names = tuple(job.name for job in JOBS if job.apache is not None)
    program = (sys.executable, "-m", "rstore_cli.app")
    wanted = BenchOptions(program, tmp_path / "out", MIB, ("b128",), names, 1, work=tmp_path / "work")
    results = bench.run(wanted)
    assert results.failures == []
    assert "4.9.8" in results.apache
    left = tmp_path / "work" / "b128-left" / "left"
    assert {path.name for path in left.iterdir()} > {"abort", "checkpoint", "commitlog", "consumequeue", "index"}
    full, following = sorted((left / "commitlog").iterdir())
    assert full.stat().st_size == following.stat().st_size == MIB
    assert any(full.read_bytes())
    assert not any(following.read_bytes())
    check_clean(left.parent, workloads(MIB)["b128"].config(left.parent))
    for job in JOBS:
        if job.apache is not None:
            place = JobPlace(job.name, "b128")
            assert results.inside_ratio(place), job.name
            (theirs,) = results.samples[place, Side.APACHE]
            (ours,) = results.samples[place, Side.OURS]
            assert theirs.messages == ours.messages, job.name
            assert theirs.peak_rss > theirs.peak_anon > 0


def test_dump_beside_kafkas(dumper: kafka.Kafka, tmp_path: Path) -> None:
    """Kafka's own tool prints each message of the log that Kafka's own classes wrote."""
    program = (sys.executable, "-m", "rstore_cli.app")
    wanted = BenchOptions(program, tmp_path / "out", MIB, ("b128",), ("dump",), 1, work=tmp_path / "work")
    results = bench.run(wanted)
    assert results.failures == []
    assert kafka.VERSION in results.settings[kafka.NAME]
    (ours,), (theirs,) = (results.samples[JobPlace("dump", "b128"), side] for side in (Side.COMMAND, Side.KAFKA))
    assert ours.messages == theirs.messages > 1000
    assert results.whole_ratio(JobPlace("dump", "b128"), Side.KAFKA)
    (log,) = (tmp_path / "work").glob("kafka-*")
    printed = subprocess.run(dumper.dump_command(log), capture_output=True, timeout=120, check=True).stdout
    assert printed.count(b"valueSize: 128 ") == theirs.messages
    assert (
        f"messages/s of the whole process: rstore {ours.messages / ours.wall:,.0f}, "
        in (tmp_path / "out" / "report.md").read_text()
    )


def test_the_daemon_under_load(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "rstore_cli.app")
    wanted = BenchOptions(program, tmp_path / "out", MIB, jobs=("serve",), rounds=1, work=tmp_path / "work", quick=True)
    results = bench.run(wanted)
    assert results.failures == []
    for load in LOADS:
        for side in ("ours", "apache"):
            (one,) = results.served.ones[load.name, side]
            assert one.rate > 0
            assert one.failed == 0
            assert one.p50 <= one.p99 <= one.p999
    assert "rstore serve beside" in (tmp_path / "out" / "report.md").read_text()


def test_the_client_beside_javas(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "rstore_cli.app")
    options = BenchOptions(
        program, tmp_path / "out", MIB, jobs=("client",), rounds=1, work=tmp_path / "work", quick=True
    )
    results = bench.run(options)
    assert results.failures == []
    for load in CLIENT_LOADS:
        assert results.clients.ratio(load.name)
        for side in ("ours", "apache"):
            (one,) = results.clients.ones[load.name, side]
            assert one.messages >= (0 if load.at_once else QUICK_CONSUMED)
            assert one.more.get("failed", 0) == 0
            assert one.peak_anon > 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert "The client beside Apache's" in report
    assert all(f"| {load.name} |" in report for load in CLIENT_LOADS)


def test_replication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy by each kind of slave, and sends to one pair: the whole takes minutes."""
    monkeypatch.setattr("engine.bench.replicated.COPIES", COPIES[:3])
    monkeypatch.setattr("engine.bench.replicated.SENDS", SENDS[-1:])
    program = (sys.executable, "-m", "rstore_cli.app")
    wanted = BenchOptions(program, tmp_path / "out", 4 * MIB, jobs=("replication",), rounds=1, quick=True)
    results = bench.run(wanted)
    assert results.failures == []
    for master, slave in COPIES[:3]:
        assert results.replicated.copy_ratio(master, slave)
    (one,) = results.replicated.sends[SENDS[-1]]
    assert one.rate > 0
    assert one.failed == 0
    assert "## Replication beside" in (tmp_path / "out" / "report.md").read_text()
