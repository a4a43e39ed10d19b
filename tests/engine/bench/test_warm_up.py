"""What `make setup` prints while kernels are compiled, and that it goes on where they can't be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.bench import warm_up
from engine.bench.workload import MIB

ROOT = Path(__file__).parents[3]


def test_a_line_of_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step runs; the log is too short for kernels, which would take their time here."""
    monkeypatch.setattr(warm_up, "_SIZE", MIB)
    assert warm_up.main() == 0
    steps = "recovery, objects, JSON lines, verification, check, reindex, gets, puts, puts of a list"
    assert re.fullmatch(rf"Compiling kernels [^:]*: {steps}, done in \d+ s\n", capsys.readouterr().out)


def test_where_there_is_no_room_setup_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert warm_up.main() == 0
    assert "not now: " in capsys.readouterr().out


def test_setup_warms_up() -> None:
    setup = (ROOT / "Makefile").read_text(encoding="utf-8").partition("$(READY): ")[2].partition("\n\n")[0]
    assert "engine.bench.warm_up" in setup
