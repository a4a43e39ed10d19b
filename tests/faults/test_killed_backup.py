"""Backup, prune and restore are killed before any of their changes: repository and store are sound, and they go on."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path

import pytest

from engine.backup.check import check_repository
from engine.backup.create.copier import StoreCopier
from engine.backup.create.create import CreateOptions
from engine.backup.create.follow import BackupFollower
from engine.backup.create.origin import LocalOrigin
from engine.backup.log import RepositoryLog
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.retention import Keep
from engine.config import of_store
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.backup import repositories
from tests.engine.opening import assert_sound, message, small
from tests.support import stores


def reopened(place: Path, disk: FaultyDisk) -> repositories.Repository:
    from engine.backup.objects.place import objects_at
    from engine.backup.repository import open_repository

    return open_repository(objects_at(disk, str(place)), lambda: None)


def as_if_ended(place: Path) -> None:
    """The leases of this process are those of one that has ended: no process has this id."""
    for lease in (place / "leases").glob("*"):
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "pid": 1 << 30}))


def test_killed_anywhere_while_backing_up(fixture_store: Store, tmp_path: Path) -> None:
    store = fixture_store("lmq")
    repositories.new(tmp_path / "empty", None)
    counting = FaultyDisk(None)
    whole = stores.copy(tmp_path / "empty", tmp_path / "whole")
    repositories.back_up(reopened(whole, counting), store, counting, jobs=1)
    assert counting.changes_seen >= 15
    for number in range(1, counting.changes_seen + 1):
        place = stores.copy(tmp_path / "empty", tmp_path / f"killed-{number}")
        disk = FaultyDisk(None)
        repository = reopened(place, disk)
        disk.kill_before(number)
        with pytest.raises(Killed):
            repositories.back_up(repository, store, disk, jobs=1)
        repository = reopened(place, FaultyDisk(None))
        assert not check_repository(repository, 1.0).bad
        repositories.back_up(repository, store)
        assert not check_repository(repository, 1.0).bad
        restored = tmp_path / f"restored-{number}"
        if number % 5 == 0:
            repositories.bring_back(repository, restored)
            assert repositories.log_of(restored) == repositories.log_of(store)


def test_killed_anywhere_while_following(tmp_path: Path) -> None:
    """Two rounds, the store grows between them. What the repository has then is a prefix; the next run goes on."""
    config = small(tmp_path / "store", mapped_file_size_commit_log=1 << 14)
    repositories.new(tmp_path / "empty", None)

    def follow(place: Path, disk: FaultyDisk, store: MessageStore) -> None:
        origin = LocalOrigin(Disk(), config, "a")
        copier = StoreCopier(disk, origin, reopened(place, disk), CreateOptions("a", jobs=1))
        follower = BackupFollower(origin, copier, reopened(place, disk), "a", 1, lambda _: None)
        stop = threading.Event()
        stop.set()
        try:
            follower.begin()
            for i in range(20):
                assert store.put(message(bytes([i]) * 600), wait=False).append
            follower.run(stop)
        finally:
            origin.close()

    with closing(MessageStore.open(config)) as store:
        assert store.put(message(b"first")).append
        counting = FaultyDisk(None)
        follow(stores.copy(tmp_path / "empty", tmp_path / "whole"), counting, store)
        assert counting.changes_seen >= 40
        for number in range(1, counting.changes_seen, 4):
            place = stores.copy(tmp_path / "empty", tmp_path / f"killed-{number}")
            disk = FaultyDisk(None)
            disk.kill_before(number)
            with pytest.raises(Killed):
                follow(place, disk, store)
            as_if_ended(place)
            repository = reopened(place, FaultyDisk(None))
            assert not check_repository(repository, 1.0).bad
            log = b"".join(path.read_bytes() for path in sorted((tmp_path / "store/commitlog").iterdir()))
            for name in repository.snapshots():
                snapshot = repository.snapshot(name)
                with_log = RepositoryLog(repository, snapshot)
                held = b"".join(bytes(with_log.read(one.offset, one.held)) for one in snapshot.segments)
                assert held == log[: snapshot.end]
            follow(place, FaultyDisk(None), store)
            assert not check_repository(repository, 1.0).bad
            assert repository.find("latest", "a")[1].end == store.log.max_offset
    assert_sound(config)


def test_killed_anywhere_while_pruning(fixture_store: Store, tmp_path: Path) -> None:
    full = repositories.new(tmp_path / "full", None)
    repositories.back_up(full, fixture_store("clean-small"))
    repositories.back_up(full, fixture_store("lmq"))
    forget(full, plan_forget(full, (), Keep(last=1), None))
    counting = FaultyDisk(None)
    prune(reopened(stores.copy(tmp_path / "full", tmp_path / "whole"), counting), lambda _: True)
    assert counting.changes_seen >= 8
    for number in range(1, counting.changes_seen + 1):
        place = stores.copy(tmp_path / "full", tmp_path / f"killed-{number}")
        disk = FaultyDisk(None)
        repository = reopened(place, disk)
        disk.kill_before(number)
        with pytest.raises(Killed):
            prune(repository, lambda _: True)
        as_if_ended(place)
        repository = reopened(place, FaultyDisk(None))
        assert not check_repository(repository, 1.0).bad
        prune(repository, lambda _: True)
        result = check_repository(repository, 1.0)
        assert (result.bad, result.unused) == ([], 0)


def test_killed_again_and_again_while_restoring(fixture_store: Store, tmp_path: Path) -> None:
    """Each run is killed after some changes more than the one before, and the next continues where it was."""
    store = fixture_store("crashed-small")
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    new = tmp_path / "new"
    kills = 0
    for more in range(1, 400):
        disk = FaultyDisk(None)
        disk.kill_before(more)
        try:
            restored = repositories.bring_back(repository, new, disk=disk)
        except Killed:
            kills += 1
            continue
        break
    else:
        pytest.fail("it never ended")
    assert kills > 20
    assert restored.refusal is None
    assert repositories.log_of(new) == repositories.log_of(store)
    assert_sound(of_store(new))
    assert not (new / "restoring.json").exists()
    assert not list(new.glob("*.restoring"))
