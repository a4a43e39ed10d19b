"""A command looks once at what files its store has, and hands that on: a second look could see another store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.files.disk import Disk
from engine.inspect.store import survey
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_every_change import CHANGES, damaged

READ = (
    ("check",), ("verify-crc",), ("doctor",), ("status",), ("plan-start",), ("flush",), ("offsets", "list"),
    ("get", "T", "0"), ("query", "T", "k1"), ("put", "T", "--body", "x"), ("put", "New", "--body", "x"),
    ("dump", "commitlog"), ("dump", "commitlog", "--topic", "Other"), ("dump", "consumequeue", "T", "0"),
    ("dump", "index"), ("dump", "checkpoint"), ("dump", "timerlog"),
    ("dump", "timerlog", "--due"), ("dump", "timerwheel"), ("dump", "epoch"), ("dump", "dledger"), ("dump", "config"),
    ("config", "history"), ("salvage", "list"),
    ("salvage", "scan"), ("undo", "--list"),
)  # fmt: skip
"""Commands that change no closed store, with what they are given."""


@pytest.fixture
def surveys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that are surveyed: their directories, one for each time."""
    seen: list[str] = []
    settle = survey._settle

    def counting(disk: Disk, config: Any, *others: Any) -> Any:
        seen.append(str(config.store_path_root_dir))
        return settle(disk, config, *others)

    monkeypatch.setattr(survey, "_settle", counting)
    return seen


@pytest.mark.leaves
@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_a_command_that_reads_surveys_once(
    words: tuple[str, ...], tmp_path: Path, cli: Cli, surveys: list[str]
) -> None:
    root = tmp_path / "store"
    CHANGES["config restore"].prepare(root, cli)
    surveys.clear()
    ran = cli("--store", root, *words)
    assert ran.code in (0, 1, 2), ran.err
    assert surveys == [str(root)]


@pytest.mark.leaves
@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_surveys_once(name: str, how: str, tmp_path: Path, cli: Cli, surveys: list[str]) -> None:
    root = tmp_path / "store"
    CHANGES[name].prepare(root, cli)
    surveys.clear()
    ran = cli("--store", root, *CHANGES[name].words, how)
    assert ran.code in (0, 1), ran.err
    assert surveys == [str(root)]


@pytest.mark.leaves
def test_so_does_a_refused_one_that_shows_the_plan_with_bridge(tmp_path: Path, cli: Cli, surveys: list[str]) -> None:
    root = tmp_path / "store"
    damaged(root, cli)
    surveys.clear()
    assert cli("--store", root, "recover", "--dry-run").code == 4
    assert surveys == [str(root)]
