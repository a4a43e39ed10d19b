"""A change that would go through a link is refused in its plan: the dry run says so, too, and nothing has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.repair.test_rules import settings
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_every_change import CHANGES
from tests.support import stores
from tests.support.checking import check_clean

OFFSETS = "config/consumerOffset.json"
DAMAGED = f"commitlog/{16384:020d}"
LINKED: dict[tuple[str, str], str] = {
    ("recover", "its last segment"): "commitlog/last",
    ("recover", "a queue"): "consumequeue/T/1",
    ("recover", "a queue file"): "consumequeue/T/1/last",
    ("recover", "the index's last file"): "index/last",
    ("recover", "the checkpoint"): "checkpoint",
    ("recover --cut", "the segment with the damage"): DAMAGED,
    ("recover --cut", "a topic"): "consumequeue/T",
    ("recover --bridge", "the segment with the damage"): DAMAGED,
    ("undo", "the segment that was cut"): "commitlog/last",
    ("truncate", "its first segment"): "commitlog/first",
    ("reindex", "a topic"): "consumequeue/T",
    ("expire", "a queue"): "consumequeue/T/0",
    ("rebuild-config", "the offsets"): OFFSETS,
    ("config restore", "the offsets"): OFFSETS,
    ("offsets set", "the offsets"): OFFSETS,
}
OF_ITS_OWN = ("lock", "recover.progress", "reindex.tmp")
"""What planning leaves."""


def linked(root: Path, name: str, elsewhere: Path) -> Path:
    """Move what has this name (`first`, `last`: of its directory's) to `elsewhere`, and make a link of the name."""
    path = root / name
    if path.name in ("first", "last"):
        path = sorted(path.parent.iterdir())[0 if path.name == "first" else -1]
    elsewhere.mkdir()
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)
    return path


def seen(root: Path) -> dict[str, object]:
    return {name: one for name, one in stores.snapshot(root).items() if name != "." and not name.startswith(OF_ITS_OWN)}


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize(("command", "what"), LINKED)
def test_it_is_refused_before_the_first_change(command: str, what: str, tmp_path: Path, cli: Cli) -> None:
    change, root, elsewhere = CHANGES[command], tmp_path / "store", tmp_path / "elsewhere"
    change.prepare(root, cli)
    path = linked(root, LINKED[command, what], elsewhere)
    before, theirs = seen(root), stores.snapshot(elsewhere)
    for option in ("--dry-run", "--yes"):
        ran = cli("--store", root, *change.words, option)
        assert ran.code == 4, ran
        assert str(path.relative_to(root)) in ran.error_line
        assert os.path.realpath(path) in ran.error_line
        assert "--follow-links" in ran.error_line
        assert seen(root) == before
        assert stores.snapshot(elsewhere) == theirs
    ran = cli("--store", root, "--follow-links", *change.words, "--yes")
    assert ran.code == 0, ran
    assert (seen(root), stores.snapshot(elsewhere)) != (before, theirs)
    if command != "undo":  # which brings the damage back
        check_clean(root, settings(root))


def test_a_segment_with_another_name_is_refused_in_the_plan(tmp_path: Path, cli: Cli) -> None:
    change, root = CHANGES["truncate"], tmp_path / "store"
    change.prepare(root, cli)
    first = min((root / "commitlog").iterdir())
    os.link(first, tmp_path / "theirs")
    before = seen(root)
    for option in ("--dry-run", "--yes"):
        ran = cli("--store", root, *change.words, option)
        assert ran.code == 4, ran
        assert "hard link" in ran.error_line
        assert seen(root) == before


@pytest.mark.leaves("log-damage", "not-closed")
def test_a_link_that_the_plan_does_not_go_through_is_read(tmp_path: Path, cli: Cli) -> None:
    change, root = CHANGES["recover"], tmp_path / "store"
    change.prepare(root, cli)
    path = linked(root, "commitlog/first", tmp_path / "elsewhere")
    theirs = stores.snapshot(tmp_path / "elsewhere")
    assert cli("--store", root, *change.words, "--yes").code == 0
    assert path.is_symlink()
    assert stores.snapshot(tmp_path / "elsewhere") == theirs
    check_clean(root, settings(root))
