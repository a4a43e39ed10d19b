"""A disk is mounted at a directory of the store, or at the store: lost+found, and strays that lie on another disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.test_full_disk import on_a_small_disk


@pytest.mark.leaves
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "config", "."])
def test_a_disk_is_mounted_there(part: str, tmp_path: Path) -> None:
    place = tmp_path / "store" / part
    place.mkdir(parents=True)
    if on_a_small_disk(place, "64k", "true").returncode != 0:
        pytest.skip("this system lets ordinary users mount no tmpfs in a user namespace: no disk of our own to mount")
    ran = on_a_small_disk(place, "8m", sys.executable, "-m", "tests.faults.mounted", str(tmp_path / "store"), part)
    assert ran.returncode == 0, f"{ran.returncode}\n{ran.stderr[-4000:]}"
