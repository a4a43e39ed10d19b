"""`backup forget --archived-before` is killed before any of its changes: the archive begins later, and has no hole."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backup.archive.archived import archived_names, get_archived
from engine.backup.archive.removal import forget_archived
from engine.backup.check import check_repository
from engine.backup.prune import prune
from engine.files.faults import FaultyDisk, Killed
from tests.conftest import Store
from tests.engine.backup import archives, repositories
from tests.faults.test_killed_archive import everything
from tests.faults.test_killed_backup import as_if_ended, reopened
from tests.support import stores
from tests.support.in_memory import tmp_path

__all__ = ["tmp_path"]


def test_killed_anywhere(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    archives.expire(repository, store)
    before = everything(repository, store)
    offsets = [one.offset for one in archived_names(repository)]
    until = get_archived(repository, archived_names(repository)[-1]).newest_time
    assert len(offsets) == 3

    def removes(name: str, disk: FaultyDisk) -> Path:
        place = stores.copy(tmp_path / "repository", tmp_path / name)
        forget_archived(reopened(place, disk), until, None, lambda _: True)
        return place

    counting = FaultyDisk(None)
    removes("whole", counting)
    assert counting.changes_seen >= 4
    seen = set()
    for number in range(1, counting.changes_seen + 1):
        disk = FaultyDisk(None)
        disk.kill_before(number)
        with pytest.raises(Killed):
            removes(f"killed-{number}", disk)
        place = tmp_path / f"killed-{number}"
        as_if_ended(place)
        sound = reopened(place, FaultyDisk(None))
        left = [one.offset for one in archived_names(sound)]
        assert left == offsets[len(offsets) - len(left) :]
        seen.add(len(left))
        prune(sound, lambda _: True)
        assert check_repository(sound, 1.0).bad == []
        after = everything(sound, store)
        assert {queue: some[-len(after[queue]) :] for queue, some in before.items() if queue in after} == after
        forget_archived(sound, until, None, lambda _: True)
        assert [one.offset for one in archived_names(sound)] == offsets[-1:]
    assert len(seen) > 1
