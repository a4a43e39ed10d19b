"""What a plan says that it touches: each place once, and no index file is read to say it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.inspect.store.survey import survey
from engine.repair.change import Change, ChangeRun, Consent
from engine.repair.recover.change import RecoverChange
from engine.repair.truncate.change import TruncateChange
from tests.engine.repair.test_rules import settings
from tests.rstore_cli.conftest import Cli, cli
from tests.rstore_cli.test_every_change import damaged, sound_unread

__all__ = ["cli"]


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("kind", ["recover", "truncate"])
def test_each_place_once_and_no_index_file_read(kind: str, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    change: Change
    if kind == "recover":
        damaged(root, cli)
        change = RecoverChange(cut=True)
    else:
        sound_unread(root, cli)
        change = TruncateChange(to_offset=8192)
    disk, config = FaultyDisk(None), settings(root)
    plan = change.plan(ChangeRun(disk, config, Consent(), locked=False), survey(disk, config))
    reads = (Operation.READ, Operation.OPEN)
    disk.fail_when(lambda doing: "index/" in str(doing.path) and doing.operation in reads, errno.EIO)
    places = list(change.touched(disk, plan))
    assert any("/index/" in path for path, _ in places)
    assert len(places) == len(set(places)) > 3
