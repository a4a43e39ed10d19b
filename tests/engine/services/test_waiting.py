from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.config import FlushDiskType, StoreConfig
from engine.errors import RStoreError
from engine.format.hosts import Host
from engine.format.message import Message
from engine.log.results import AppendResult, PutMessageStatus, PutResult
from engine.services.waiting import FlushFuture, Pending
from engine.store import MessageStore
from tests.engine.opening import assert_sound

OK, UNKNOWN = PutMessageStatus.PUT_OK, PutMessageStatus.UNKNOWN_ERROR
MANY = 200
PATIENCE = 200


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


def test_one_that_fails_keeps_nobody_from_being_told() -> None:
    future = FlushFuture()
    told: list[object] = []

    def fail() -> None:
        raise ValueError("mine")

    future.then(fail)
    future.then(lambda: told.append(future.outcome))
    with pytest.raises(ValueError, match="mine"):
        future.settle(OK)
    assert told == [OK]


def test_a_put_waits_for_all_and_the_worst_counts() -> None:
    late, error = PutMessageStatus.FLUSH_SLAVE_TIMEOUT, RStoreError("broken")
    append = AppendResult(0, 100, 0, 0, Host(bytes(4), 0), (0,))
    for outcomes, status in (((OK, OK), OK), ((OK, late), late), ((late, OK), late), ((late, error), UNKNOWN)):
        flush, slave = FlushFuture(), FlushFuture()
        put = Pending(append, (flush, slave))
        told: list[PutResult] = []
        put.then(lambda told=told, put=put: told.append(put.result()))  # type: ignore[misc]
        slave.settle(outcomes[1])
        assert not told
        assert put.result().status is UNKNOWN, "nothing is said to be done before it is"
        assert put.wait(0).status is UNKNOWN
        flush.settle(outcomes[0])
        assert [result.status for result in told] == [status]
        assert put.wait(0) == told[0]


def test_a_put_can_not_be_cancelled(tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=tmp_path / "store", flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = MessageStore.open(config)
    futures = [store.put_async(Message("T", b"body", 0)) for _ in range(20)]
    assert not any(future.cancel() for future in futures)
    assert {future.result(PATIENCE).status for future in futures} == {OK}
    assert not store.errors
    store.close()
    assert_sound(config)


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
