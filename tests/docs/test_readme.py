"""README.md and its neighbours say what is true: targets, exit codes, places."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine import errors
from engine.bench import readme_table
from rstore_cli.app import COMMANDS, command_of
from tests.docs.markdown import section, tables

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_make_targets_that_are_named_are_there() -> None:
    named = {name for text in (README, ROOT / ".ci" / "run") for name in re.findall(r"make ([a-z]+)", text.read_text())}
    assert named
    assert named <= targets()
    assert {"demo", "setup", "test", "lint", "types", "bench", "interop", "fuzz"} <= targets()


def test_the_tables_of_the_bench_are_made_from_what_was_measured() -> None:
    text = README.read_text(encoding="utf-8")
    measured = json.loads(readme_table.MEASURED.read_text(encoding="utf-8"))
    assert readme_table.filled(text, measured) == text
    assert "4.9.8" in measured["apache"]


def test_a_report_of_some_jobs_replaces_theirs() -> None:
    before = json.loads(readme_table.MEASURED.read_text(encoding="utf-8"))
    first, *others = before["measures"]
    some = {**before, "settings": {}, "measures": [{**first, "wallSeconds": 7.0}]}
    both = readme_table.combined(before, some)
    assert both == {**before, "measures": [{**first, "wallSeconds": 7.0}, *others]}
    elsewhere = {**some, "machine": {}}
    with pytest.raises(ValueError, match="a report of all jobs is needed"):
        readme_table.combined(before, elsewhere)
    assert readme_table.combined(before, {**before, "machine": {}}) == {**before, "machine": {}}


@pytest.mark.parametrize(("name", "title"), [("README.md", "A session"), ("README.zh.md", "一次完整的操作")])
def test_every_command_stands_in_the_table(name: str, title: str) -> None:
    cells = re.findall(r"^\| (`.*?) \| ", section(ROOT / name, title), flags=re.MULTILINE)
    named = {words.split()[0] for cell in cells for words in re.findall(r"`([^`]+)`", cell)}
    groups = {word for one in COMMANDS for word in getattr(command_of(one), "commands", ())}
    assert set(COMMANDS) <= named <= {*COMMANDS, *groups}


def test_exit_codes_are_those_of_the_errors() -> None:
    stated = {int(row["exit"]) for row in tables(section(README, "Exit codes"))[0]}
    raised = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RStoreError)
    }
    assert raised | {0, 1, 130} == stated


def test_places_that_are_named_are_there() -> None:
    for row in tables(section(README, "Where things are"))[0]:
        assert (ROOT / row["place"]).exists(), row
    for name in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_python_is_the_version_of_pyproject() -> None:
    (required,) = re.findall(r'requires-python = ">=([0-9.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"Python {required} or newer" in README.read_text(encoding="utf-8")
    assert f"Python {required} or newer" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["LICENSE", "CHANGELOG.md", "README.md", ".ci/run", "fixtures/demo.sh"])
def test_files_of_the_project(name: str) -> None:
    assert (ROOT / name).stat().st_size > 100


@pytest.mark.parametrize("name", [".ci/run", "fixtures/demo.sh"])
def test_scripts_can_be_run(name: str) -> None:
    assert (ROOT / name).stat().st_mode & 0o111
