"""`expire --archive` is killed before any of its changes: no message is in neither, whatever is forgotten then."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.backup.archive.archive import archive_of
from engine.backup.archive.reading import ArchivedStore
from engine.backup.check import check_repository
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.repository import Repository
from engine.backup.retention import Keep
from engine.config import of_store
from engine.errors import NotFound, RStoreError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.operations import Operation
from engine.read_store import ReadStore
from tests.conftest import Store
from tests.engine.backup import archives, repositories
from tests.engine.opening import assert_sound
from tests.faults.test_killed_backup import as_if_ended, reopened
from tests.support import stores
from tests.support.in_memory import tmp_path
from tests.support.wide import sample

__all__ = ["tmp_path"]


def everything(repository: Repository, store: Path) -> dict[str, list[object]]:
    """All that store and archive have."""
    try:
        archive = archive_of(Disk(), of_store(store), repository)
    except NotFound:
        with ReadStore(of_store(store)) as reader:
            return archives.messages(reader)
    with ArchivedStore(of_store(store), archive) as reader:
        return archives.messages(reader)


def forget_all(repository: Repository) -> None:
    ids = [one.snapshot_id for one in repository.snapshots()]
    if ids:
        forget(repository, plan_forget(repository, ids, Keep(), None))
    prune(repository, lambda _: True)


@pytest.mark.wide
def test_killed_anywhere(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    before = everything(repository, store)

    def copies(name: str, disk: FaultyDisk) -> tuple[Repository, Path]:
        place = stores.copy(tmp_path / "repository", tmp_path / f"{name}-repository")
        return reopened(place, disk), stores.copy(store, tmp_path / f"{name}-store")

    counting = FaultyDisk(None)
    whole, whole_store = copies("whole", counting)
    archives.expire(whole, whole_store, counting)
    expected = repositories.log_of(whole_store)
    assert counting.changes_seen >= 30
    seen = set()
    for number in sample(range(1, counting.changes_seen + 1), 12, 6):
        disk = FaultyDisk(None)
        faulty, its_store = copies(f"killed-{number}", disk)
        disk.kill_before(number)
        with pytest.raises(Killed):
            archives.expire(faulty, its_store, disk)
        as_if_ended(tmp_path / f"killed-{number}-repository")
        sound = reopened(tmp_path / f"killed-{number}-repository", FaultyDisk(None))
        assert not check_repository(sound, 1.0).bad
        assert everything(sound, its_store) == before
        seen.add(len(repositories.log_of(its_store)))
        if number % 2:
            forget_all(sound)
        archives.expire(sound, its_store)  # where it was forgotten, only what is archived goes
        assert everything(sound, its_store) == before
        if not number % 2:
            assert repositories.log_of(its_store) == expected
        forget_all(sound)
        assert check_repository(sound, 1.0).bad == []
        assert everything(sound, its_store) == before
        assert_sound(of_store(its_store))
    assert len(seen) > 1


@pytest.mark.parametrize("step", ["put", "sync"])
def test_a_full_or_broken_repository_deletes_nothing(step: str, fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    log = repositories.log_of(store)
    disk = FaultyDisk(None)
    wanted = Operation.SYNC if step == "sync" else Operation.WRITE
    place = str(tmp_path / "repository" / "aside")
    passed = 0

    def fails(doing: object) -> bool:
        nonlocal passed
        if doing.operation is wanted and str(doing.path).startswith(place):  # type: ignore[attr-defined]
            passed += 1
        return passed > 2

    disk.fail_when(fails, errno.ENOSPC)
    with pytest.raises(RStoreError):
        archives.expire(reopened(tmp_path / "repository", disk), store)
    assert passed > 2
    assert repositories.log_of(store) == log
