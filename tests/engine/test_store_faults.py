"""The open store on a disk that is full, broken or slow: what was acknowledged stays, and nothing fails in silence."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401 - before the file system is a fake one
import pytest

import engine.repair.recover.apply
import engine.repair.recover.recover  # noqa: F401
from engine.config import BrokerRole, FlushDiskType, StoreConfig
from engine.errors import DiskFull, OutOfDescriptors, RStoreError, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.log.results import PutMessageStatus, PutResult
from engine.services.running_flags import Flag
from engine.store import MessageStore
from tests.engine.opening import assert_sound, bodies, message, small

if TYPE_CHECKING:
    from pyfakefs.fake_filesystem import FakeFilesystem

SYNC = FlushDiskType.SYNC_FLUSH


def eventually(condition: object, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def log_sync(doing: Doing) -> bool:
    return doing.operation is Operation.SYNC and "commitlog" in doing.path


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyDisk:
    (tmp_path / "store").mkdir()
    return FaultyDisk(str(tmp_path / "store"))


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return small(tmp_path / "store")


# --- a flush that fails ---------------------------------------------------------------------------------------------


@pytest.mark.leaves("not-closed")
def test_a_failed_flush_fails_the_puts_that_wait_for_it(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config.with_changes(flush_disk_type=SYNC), faulty)
    assert store.put(message("durable")).ok
    faulty.fail_when(log_sync, errno.EIO)
    results = []
    threads = [threading.Thread(target=lambda: results.append(store.put(message("lost?")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    refused = (PutMessageStatus.UNKNOWN_ERROR, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    assert len(results) == 4
    assert all(result.status in refused for result in results)
    assert any(result.status is PutMessageStatus.UNKNOWN_ERROR for result in results)
    assert all(isinstance(result.error, StorageError) for result in results)
    faulty.heal()
    after = store.put(message("no"))
    assert after.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert isinstance(after.error, StorageError)
    assert store.flags.is_set(Flag.NOT_WRITEABLE)
    assert store.errors
    with pytest.raises(StorageError):
        store.flush()
    with pytest.raises(StorageError):
        store.close()
    assert faulty.exists(store.abort.path)


@pytest.mark.leaves("not-closed")
def test_a_failed_flush_in_the_background_stops_the_store(faulty: FaultyDisk, config: StoreConfig) -> None:
    often = config.with_changes(flush_interval_commit_log=5, flush_commit_log_thorough_interval=0)
    store = MessageStore.open(often, faulty)
    assert store.put(message("first")).ok
    eventually(lambda: store.log.allocator.prepared)
    faulty.fail_when(log_sync, errno.EIO)
    assert store.put(message("acknowledged, as asked")).ok
    eventually(lambda: not store.flags.writeable)
    assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StorageError):
        store.close()


def test_a_failed_flush_of_the_queues_is_told_at_close(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config, faulty)
    store.put(message())
    assert store.wait_dispatched()
    faulty.fail_when(lambda d: d.operation is Operation.SYNC and "consumequeue" in d.path, errno.EIO)
    with pytest.raises(StorageError):
        store.close()
    assert faulty.exists(store.abort.path)
    faulty.heal()
    with MessageStore.open(config, faulty) as again:
        assert bodies(again) == [b"body"]


def test_a_flush_that_takes_too_long(config: StoreConfig) -> None:
    quick = threading.Event()
    quick.set()

    class Slow(Disk):
        def doing(self, operation: Operation, path: str, *args: object, **named: object) -> Doing:
            if operation is Operation.SYNC and "commitlog" in path:
                assert quick.wait(120)
            return super().doing(operation, path, *args, **named)  # type: ignore[arg-type]

    disk = Slow()
    Path(config.store_path_root_dir).mkdir()
    store = MessageStore.open(config.with_changes(flush_disk_type=SYNC, sync_flush_timeout=50), disk)
    assert store.put(message("first"), wait=False).ok
    while store.log.flushed_where < store.log.max_offset:
        time.sleep(0.001)
    quick.clear()
    result = store.put(message("slow"))  # ends while its flush is still under way
    assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert result.append is not None
    assert store.put(message("no hurry"), wait=False).ok
    quick.set()
    store.close()
    assert_sound(config)


def test_one_flush_serves_many_puts(config: StoreConfig) -> None:
    class Counting(Disk):
        syncs = 0

        def doing(self, operation: Operation, path: str, *args: object, **named: object) -> Doing:
            if operation is Operation.SYNC and "commitlog" in path:
                self.syncs += 1
                time.sleep(0.01)
            return super().doing(operation, path, *args, **named)  # type: ignore[arg-type]

    disk = Counting()
    with MessageStore.open(config.with_changes(flush_disk_type=SYNC), disk) as store:
        futures = [store.put_async(message(str(i))) for i in range(100)]
        assert all(future.result(10).ok for future in futures)
    assert disk.syncs < 40


# --- a full disk ----------------------------------------------------------------------------------------------------


def test_no_space_for_the_next_file(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config, faulty)
    assert store.put(message("0")).ok
    eventually(lambda: store.log.allocator.prepared)
    faulty.fail_when(lambda d: d.operation in (Operation.CREATE, Operation.ALLOCATE) and "commitlog" in d.path)
    sent = [b"0"]
    for i in range(1, 1000):
        body = b"%d" % i * 500
        result = store.put(message(body))
        if not result.ok:
            break
        sent.append(body)
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert isinstance(result.error, DiskFull)
    assert store.put(message("again")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.wait_dispatched()
    assert bodies(store) == sent
    assert store.flags.writeable
    faulty.heal()
    assert store.put(message("space")).ok
    assert store.wait_dispatched()
    assert bodies(store) == [*sent, b"space"]
    store.close()
    assert_sound(config)


def test_no_space_for_a_queue(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config, faulty)
    assert store.put(message("0")).ok
    assert store.wait_dispatched()
    faulty.fail_when(lambda d: d.operation in (Operation.CREATE, Operation.MAKE_DIRECTORY) and "/New/" in d.path + "/")
    assert store.put(message("stuck", topic="New")).ok
    eventually(lambda: store.flags.is_set(Flag.DISK_FULL))
    refused = store.put(message("1"))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert isinstance(refused.error, DiskFull)
    assert bodies(store, waits=False) == [b"0"]
    faulty.heal()
    eventually(lambda: store.flags.writeable)
    assert store.put(message("2")).ok
    assert store.wait_dispatched()
    assert bodies(store, "New") == [b"stuck"]
    assert bodies(store) == [b"0", b"2"]
    store.close()
    assert_sound(config)


def test_no_space_for_the_index(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config, faulty)
    faulty.fail_when(lambda d: d.operation in (Operation.CREATE, Operation.ALLOCATE) and "/index/" in d.path)
    assert store.put(message("a", KEYS="k1 k2")).ok
    eventually(lambda: store.flags.is_set(Flag.DISK_FULL))
    faulty.heal()
    eventually(lambda: store.flags.writeable)
    assert store.wait_dispatched()
    assert bodies(store) == [b"a"]
    assert store.query("T", "k2").offsets == (0,)
    store.close()
    assert_sound(config)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("place", ["consumequeue", "index", "commitlog", ""])
def test_no_descriptors_left_passes(faulty: FaultyDisk, config: StoreConfig, place: str, number: int) -> None:
    """Whatever could not be opened, and by whom: all is well again when there are descriptors, without a restart."""
    opening = (Operation.OPEN, Operation.CREATE, Operation.SYNC_DIRECTORY, Operation.MAP)
    store = MessageStore.open(config, faulty)
    assert store.put(message("0")).ok
    assert store.wait_dispatched()
    faulty.fail_when(lambda doing: doing.operation in opening and place in doing.path, number)
    sent = [b"0"]
    refused: PutResult | None = None
    for turn in range(5000):
        topic = "T" if turn % 2 else f"New{turn % 20}"
        body = b"%d" % turn * 300
        result = store.put(message(body, topic=topic, KEYS="key"))
        if not result.ok:
            refused = result
            break
        sent += [body] if topic == "T" else []
        store.wait_dispatched(5 if turn % 10 == 9 else 0)
    assert refused is not None
    assert isinstance(refused.error, OutOfDescriptors)
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    with contextlib.suppress(OutOfDescriptors):
        store.flush_all(1000)
    faulty.heal()
    eventually(lambda: store.flags.writeable)
    assert store.put(message("after")).ok
    assert store.wait_dispatched()
    assert bodies(store) == [*sent, b"after"]
    store.close()
    assert_sound(config)


def test_a_broken_disk_under_a_queue_is_final(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config, faulty)
    faulty.fail_when(lambda d: d.operation is Operation.CREATE and "consumequeue" in d.path, errno.EIO)
    assert store.put(message("a")).ok
    assert not store.wait_dispatched(5000)
    eventually(lambda: store.flags.is_set(Flag.WRITE_LOGICS_QUEUE_ERROR))
    assert store.put(message("b")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(RStoreError):
        store.close()
    faulty.heal()
    with MessageStore.open(config, faulty) as again:
        assert bodies(again) == [b"a"]
    assert_sound(config)


def test_a_real_limit_without_root(fs: FakeFilesystem) -> None:
    """A file system of limited size: writes go by call there, so a full disk is ENOSPC in the middle of a record."""
    fs.create_dir("/store")
    fs.set_disk_usage(1_000_000)
    config = small(Path("/store"), message_index_enable=False)
    store = MessageStore.open(config, Disk())
    sent: list[bytes] = []
    refused = 0
    for i in range(1500):
        body = b"%04d" % i * 250
        result = store.put(message(body))
        if result.ok:
            sent.append(body)
        else:
            refused += 1
            assert isinstance(result.error, DiskFull)
        if refused > 20:
            break
    assert refused
    assert len(sent) > 300
    fs.set_disk_usage(8_000_000)
    eventually(lambda: store.flags.writeable)
    assert store.wait_dispatched()
    assert bodies(store) == sent
    for i in range(200):
        body = b"more %d" % i * 100
        assert store.put(message(body)).ok
        sent.append(body)
    assert store.wait_dispatched()
    assert bodies(store) == sent
    store.close()
    assert_sound(config, Disk())
    with MessageStore.open(config, Disk()) as again:
        assert bodies(again) == sent


def test_a_full_disk_while_the_write_buffers_are_committed(faulty: FaultyDisk, tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path / "store"), mapped=False)
    config = small(
        tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_size=2, commit_interval_commit_log=5
    )
    store = MessageStore.open(config, disk)
    assert store.put(message("a")).ok
    eventually(lambda: store.dispatch.position > 0)
    disk.fail_when(lambda d: d.operation is Operation.WRITE and "commitlog" in d.path)
    assert store.put(message("b")).ok
    eventually(lambda: store.flags.is_set(Flag.DISK_FULL))
    assert store.put(message("c")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    disk.heal()
    eventually(lambda: store.flags.writeable)
    assert store.put(message("d")).ok
    store.flush()
    assert store.wait_dispatched()
    assert bodies(store) == [b"a", b"b", b"d"]
    store.close()
    assert_sound(config)


def test_what_a_power_cut_leaves_holds_all_that_was_flushed(faulty: FaultyDisk, config: StoreConfig) -> None:
    store = MessageStore.open(config.with_changes(flush_disk_type=SYNC), faulty)
    for i in range(60):
        assert store.put(message(f"{i}" * 100, KEYS=f"k{i}")).ok
    after = Path(config.store_path_root_dir).parent / "after"
    faulty.crash_copy(str(after), lose="all")
    store.close()
    with MessageStore.open(small(after)) as again:
        assert bodies(again) == [b"%d" % i * 100 for i in range(60)]
        assert all(again.query("T", f"k{i}").offsets for i in range(60))
    assert_sound(small(after))


@pytest.mark.parametrize("later", [False, True])
def test_a_put_that_asks_for_its_flush_behind_the_last_one_is_answered(config: StoreConfig, later: bool) -> None:
    """Appended before the store closed, and made durable by closing: it must not wait for who has gone."""
    store = MessageStore.open(config.with_changes(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    appended, closed = threading.Event(), threading.Event()
    told = store._puts._appended

    def stop_here() -> None:
        told()
        appended.set()
        closed.wait()

    store._puts._appended = stop_here
    answers: list[PutMessageStatus] = []

    def put() -> None:
        result = store.put_async(message("one")).result(5) if later else store.put(message("one"))
        answers.append(result.status)

    thread = threading.Thread(target=put)
    thread.start()
    appended.wait()
    store.close()
    closed.set()
    thread.join(5)
    assert answers == [PutMessageStatus.PUT_OK]


def test_a_slave_gets_its_log_in_pieces(tmp_path: Path) -> None:
    """The end of what came may lie within a record: dispatch waits for the rest."""
    master, slave = small(tmp_path / "master"), small(tmp_path / "slave")
    with MessageStore.open(master) as store:
        for i in range(20):
            assert store.put(message(f"m{i}")).ok
        data = bytes(store.log.read(0, store.log.max_offset))
    with MessageStore.open(slave.with_changes(broker_role=BrokerRole.SLAVE)) as store:
        for start in range(0, len(data), 77):
            store.append_raw(start, data[start : start + 77])
            time.sleep(0.001)
        assert store.wait_dispatched()
        assert not store.errors
    assert_sound(slave)
