"""Who else may read what a repair leaves: bodies lie in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_every_change import damaged, without_queue

OURS = ("salvage", "quarantine", "recover.progress", "reindex.tmp")


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_what_a_repair_saves_is_its_owners(umask: int, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    damaged(root, cli)
    (root / "commitlog" / "stray").write_bytes(b"not a segment")
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = os.umask(umask)
    try:
        assert cli("--store", root, "recover", "--cut", "--dry-run").code == 1
        assert cli("--store", root, "recover", "--cut", "--yes").code == 0
    finally:
        os.umask(before)
    saved = [path for name in OURS for path in (root / name, *(root / name).rglob("*")) if os.path.lexists(path)]
    assert any(path.name == "manifest.json" for path in saved)
    assert any(path.name == "stray" for path in saved)
    for path in saved:
        mode = path.stat().st_mode & 0o777
        if path.is_dir():
            assert mode == 0o700, path
        elif path.name != "stray":  # moved, as it was
            assert mode == 0o600, path
    for path in (*(root / "commitlog").iterdir(), *(root / "consumequeue").rglob("0*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


@pytest.mark.leaves("log-damage", "not-closed")
def test_what_reindex_swaps_in_is_as_the_store_is(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    without_queue(root, cli)
    for path in (root, *root.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    assert cli("--store", root, "reindex", "--yes").code == 0
    for path in (root / "consumequeue").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_a_folder_that_is_a_link_is_named_in_the_plan(tmp_path: Path, cli: Cli) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    without_queue(root, cli)
    (root / "consumequeue").rename(elsewhere)
    (root / "consumequeue").symlink_to(elsewhere)
    for option in ("--dry-run", "--yes"):
        ran = cli("--store", root, "reindex", option)
        assert ran.code == (1 if option == "--dry-run" else 0), ran
        assert f"{root / 'consumequeue'} is a link: what changes below it changes in {elsewhere}" in ran.err
    assert (root / "consumequeue").is_symlink()
    assert (elsewhere / "T" / "1").is_dir()
