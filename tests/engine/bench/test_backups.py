"""The bench of backups: each step is measured, and the report has a row for each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.bench.backups import OURS, PEERS, STEPS, BackupResults
from engine.bench.measure import Measurement
from engine.bench.options import BenchOptions
from engine.bench.report_backups import backup_lines
from engine.bench.run import run
from engine.bench.workload import MIB

PROGRAM = (sys.executable, "-m", "rstore_cli.app")


def test_each_step_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.bench.backups.PEERS", ())
    options = BenchOptions(PROGRAM, tmp_path / "report", MIB, jobs=("backup",), rounds=1, apache=False, work=tmp_path)
    results = run(options)
    assert not results.failures
    assert {step for step, _ in results.backups.steps} == set(STEPS)
    assert all(results.backups.sizes[OURS])
    report = (tmp_path / "report" / "report.md").read_text()
    assert all(f"| {step} | {OURS} |" in report for step in STEPS)
    assert list((tmp_path).glob("backups")) == []


def test_ratios_and_what_is_missing() -> None:
    def one(wall: float) -> Measurement:
        return Measurement(wall, wall, None, None, 0, 0, MIB, MIB)

    results = BackupResults({("create", OURS): [one(2.0)], ("create", "borg"): [one(5.0)]}, {OURS: [MIB]}, ["restic"])
    lines = list(backup_lines(results))
    assert results.ratio("create", "borg") == 2.5
    assert results.ratio("create", "restic") is None
    assert any("2.5" in line and "borg" in line for line in lines)
    assert any("restic is not installed" in line for line in lines)
    assert set(PEERS) == {"restic", "borg"}
