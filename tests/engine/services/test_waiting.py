from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.config import FlushDiskType, StoreConfig
from engine.errors import RStoreError
from engine.format.message import Message
from engine.log.results import PutMessageStatus, PutResult
from engine.services.waiting import FlushFuture, Pending
from engine.store import MessageStore
from tests.engine.opening import assert_sound

OK = PutMessageStatus.PUT_OK
MANY = 200
PATIENCE = 20


@pytest.fixture
def counted() -> Iterator[Callable[[], int]]:
    """Says how many objects are garbage that only the collector finds; nothing is collected meanwhile."""
    gc.collect()
    gc.disable()
    yield gc.collect
    gc.enable()


def test_the_first_outcome_counts() -> None:
    future = FlushFuture()
    told: list[object] = []
    future.then(lambda: told.append(future.outcome))
    assert (future.done, future.wait(0)) == (False, False)
    future.settle(OK)
    future.settle(RStoreError("too late"))
    future.then(lambda: told.append(future.outcome))
    assert told == [OK, OK]
    assert (future.done, future.wait(0)) == (True, True)


def test_what_is_told_leaves_no_garbage(counted: Callable[[], int]) -> None:
    """25 ms of every 300 went into finding it: a put holds what it waits for, which held whom to tell of it."""
    for _ in range(MANY):
        future = FlushFuture()
        waiting = [future]
        future.then(lambda held=waiting: held[0].outcome)  # type: ignore[misc]
        future.settle(OK)
        del future, waiting
    assert counted() == 0


def test_puts_that_wait_for_a_flush_leave_no_garbage(tmp_path: Path, counted: Callable[[], int]) -> None:
    config = StoreConfig(store_path_root_dir=tmp_path / "store", flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = MessageStore.open(config)
    results: list[PutResult] = []
    all_done = threading.Event()

    def done(result: PutResult) -> None:
        results.append(result)
        if len(results) == MANY:
            all_done.set()

    message = Message("T", b"body", 0)
    store.put(message)
    counted()
    for _ in range(MANY):
        put = store.begin_put(message)
        assert isinstance(put, Pending)
        put.then(lambda put=put: done(put.result()))  # type: ignore[misc]
    assert all_done.wait(PATIENCE)
    store.put(message)  # only then does the watcher forget those that are over
    assert {result.status for result in results} == {OK}
    assert counted() < MANY
    store.close()
    assert_sound(config)
