"""`--store` as a path below the working directory: every change works there as it does by an absolute path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.elsewhere import Elsewhere, places
from tests.rstore_cli.test_every_change import CHANGES

__all__ = ["places"]


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change(name: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    change = CHANGES[name]
    change.prepare(tmp_path / "store", cli)
    monkeypatch.chdir(tmp_path)
    done = cli("--store", "store", *change.words, "--yes", "--json")
    assert done.code == 0, done.err
    again = cli("--store", "store", *change.words, "--dry-run")
    assert again.code == change.again, again.err


@pytest.mark.parametrize("where", ["new", "./new", "below/new", "../working/new"])
def test_a_store_that_is_made(
    where: str, places: Elsewhere, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nothing and of a backup: no directory of the path need be there."""
    (tmp_path / "working").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    restored = cli("--store", where, "restore", "--repo", str(places.repo))
    assert restored.code == 0, restored.err
    assert cli("--store", where, "check").code == 0
    assert cli("--store", f"{where}-2", "init").code == 0
