"""SYNC_FLUSH on a disk that is slow, or fails: who waits how long, and that everybody is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config import FlushDiskType, StoreConfig
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.log.results import PutMessageStatus, PutResult
from engine.services.waiting import Pending
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small

OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT
PATIENCE_S = 200


class SlowSync(FaultyDisk):
    """What puts wait for takes as long as is said, and until `gate` is open; with `broken`, it fails then."""

    def __init__(self) -> None:
        super().__init__(None, mapped=False)
        self.takes_s = 0.0
        self.broken = False
        self.syncs = 0
        self.gate = threading.Event()
        self.gate.set()

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        if doing.operation is Operation.SYNC and threading.current_thread().name == "GroupCommitService":
            self.syncs += 1
            time.sleep(self.takes_s)
            assert self.gate.wait(PATIENCE_S)
            if self.broken:
                raise OSError(5, "Input/output error")
        return super().begin(doing)


@contextmanager
def opened(root: Path, disk: Disk, timeout_ms: int) -> Iterator[MessageStore]:
    config = settings(root, timeout_ms)
    store = MessageStore.open(config, disk)
    yield store
    store.close()
    assert_sound(config)


def settings(root: Path, timeout_ms: int) -> StoreConfig:
    return small(root, flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout=timeout_ms)


def begin(store: MessageStore) -> Pending:
    put = store.begin_put(message())
    assert isinstance(put, Pending)
    return put


def answers(puts: list[Pending]) -> list[PutResult]:
    return [put.wait(PATIENCE_S) for put in puts]


def test_each_put_has_its_own_time(tmp_path: Path) -> None:
    """A flush of 600 ms, a second to wait, a put each 100 ms: who came late in a group is not late because it is."""
    disk = SlowSync()
    with opened(tmp_path / "s", disk, 1000) as store:
        store.put(message())
        disk.takes_s = 0.6
        puts = []
        for _ in range(24):
            puts.append(begin(store))
            time.sleep(0.1)
        found = [result.status for result in answers(puts)]
        disk.takes_s = 0
        assert found.count(OK) > 2, found  # by the time of their groups: the first one alone
        assert set(found) <= {OK, LATE}


def test_puts_that_come_together_wait_as_one(tmp_path: Path) -> None:
    disk = SlowSync()
    with opened(tmp_path / "s", disk, 60_000) as store:
        store.put(message())
        before = disk.syncs
        disk.gate.clear()
        first = begin(store)
        while disk.syncs == before:
            time.sleep(0.001)
        together = [begin(store) for _ in range(100)]
        assert len({put.waiting for put in together}) == 1
        assert first.waiting != together[0].waiting
        disk.gate.set()
        assert {result.status for result in answers([first, *together])} == {OK}
        assert disk.syncs - before <= 3


def test_who_comes_when_the_time_of_all_others_is_over(tmp_path: Path) -> None:
    disk = SlowSync()
    with opened(tmp_path / "s", disk, 500) as store:
        store.put(message())
        disk.gate.clear()
        puts = [begin(store) for _ in range(3)]
        assert {result.status for result in answers(puts)} == {LATE}
        assert store._puts._group_commit is not None
        store._puts._group_commit._watcher._timeout_ms = 60_000  # who comes now is late on no machine
        after = begin(store)
        assert not after.waiting[0].done
        disk.gate.set()
        assert after.wait(PATIENCE_S).status is OK


def test_a_flush_that_fails_answers_all_groups(tmp_path: Path) -> None:
    disk = SlowSync()
    store = MessageStore.open(settings(tmp_path / "s", 60_000), disk)
    store.put(message())
    before = disk.syncs
    disk.gate.clear()
    under_way = begin(store)
    while disk.syncs == before:
        time.sleep(0.001)
    queued = begin(store)
    disk.broken = True
    disk.gate.set()
    for result in answers([under_way, queued]):
        assert (result.status, isinstance(result.error, StorageError)) == (PutMessageStatus.UNKNOWN_ERROR, True)
    assert store.put(message()).status is not OK
    disk.broken = False
    with pytest.raises(StorageError):
        store.close()
    MessageStore.open(settings(tmp_path / "s", 60_000)).close()
    assert_sound(settings(tmp_path / "s", 60_000))
