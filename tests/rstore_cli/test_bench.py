"""`rstore bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli

TINY = ("--size", "1M", "--rounds", "1", "--workload", "b128", "--job", "verify-crc", "--no-apache")


@pytest.mark.leaves("file-size", "index-missing")
def test_a_run_leaves_a_report(tmp_path: Path, cli: Cli) -> None:
    ran = cli("bench", *TINY, "--output", tmp_path / "out", "--work", tmp_path / "work")
    assert ran.code == 0
    assert "not measured: not asked for" in ran.out
    assert f"The report is {tmp_path / 'out' / 'report.md'}" in ran.out
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {m["job"] for m in told["measures"]} == {"limits", "verify-crc"}
    assert (tmp_path / "work" / "b128").is_dir()


def test_json_is_what_the_report_has(tmp_path: Path, cli: Cli) -> None:
    ran = cli("bench", *TINY, "--output", tmp_path / "out", "--json")
    assert ran.code == 0
    assert ran.json == json.loads((tmp_path / "out" / "report.json").read_text())


def test_without_java_ours_is_measured_alone(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    places = tmp_path / "bin"
    places.mkdir()
    for program in ("cp", "python3"):
        (places / program).symlink_to(Path("/usr/bin") / program)
    monkeypatch.setenv("PATH", str(places))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ran = cli("bench", *TINY[:-1], "--output", tmp_path / "out")
    assert ran.code == 0
    assert "not measured: Java is not installed" in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "b2k"), "unknown workload"),
        (("--job", "sleep"), "unknown job"),
        (("--size", "12"), "1M to 1G"),
        (("--size", "much"), "not a size"),
        (("--rounds", "0"), "--rounds"),
        (("--quick", "--size", "2M"), "--quick"),
        (("--workload", "b64k", "--job", "help"), "none of these jobs"),
    ],
)
def test_bad_options_are_2(words: tuple[str, ...], said: str, tmp_path: Path, cli: Cli) -> None:
    ran = cli("bench", *words, "--output", tmp_path / "out")
    assert ran.code == 2
    assert said in ran.error_line
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_is_5(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").touch()
    ran = cli("bench", *TINY, "--output", tmp_path / "file" / "out")
    assert ran.code == 5
    assert str(tmp_path / "file") in ran.error_line
