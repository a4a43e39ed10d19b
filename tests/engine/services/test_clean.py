"""The clean service on an open store: what goes, what follows, and that everything else goes on meanwhile."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DiskFull, InvalidArgument, RStoreError, StorageError
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Doing, Operation
from engine.format import names
from engine.format.message import decode
from engine.log.derive import TopicQueue
from engine.log.results import GetMessageStatus, PutMessageStatus
from engine.services import clean, dispatch
from engine.services.clean import CleanService
from engine.services.running_flags import Flag
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.support.wide import WIDE

HOUR = 3_600_000
FILE = 65536
NOW = int(time.time())
BODY = b"x" * 1000
PER_FILE = 20
"""Units in a queue's file."""


class Room(FaultyDisk):
    """A disk that is used to a given part (by directory), at a given hour of today."""

    def __init__(self, root: Path, *, mapped: bool = True) -> None:
        root.mkdir(exist_ok=True)
        super().__init__(str(root), mapped=mapped)
        self.percent = 30
        self.percents: dict[str, int] = {}
        self.hour = 4
        self.later_ms = 0

    def usage(self, path: str) -> Usage:
        used = next((used for part, used in self.percents.items() if part in path), self.percent)
        return Usage(100 << 30, used << 30, (100 - used) << 30)

    def now_ms(self) -> int:
        local = time.localtime(NOW)
        return int(time.mktime((*local[:3], self.hour, 30, 0, 0, 0, -1))) * 1000 + self.later_ms


class Paced(CleanService):
    """Counts its pauses instead of making them."""

    pauses: list[float]

    def _pause(self, ms: float) -> bool:
        self.pauses.append(ms)
        return True


def paced(store: MessageStore, disk: Room, config: StoreConfig) -> Paced:
    parts = (store.log, store.queues, store.index, store.dispatch, store.flags)
    service = Paced(disk, *parts, config, pytest.fail)
    service.pauses = []
    return service


@pytest.fixture
def disk(tmp_path: Path) -> Room:
    return Room(tmp_path / "store")


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    at_once = {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}
    return small(tmp_path / "store", mapped_file_size_consume_queue=PER_FILE * 20, **at_once)


@pytest.fixture
def store(disk: Room, config: StoreConfig) -> Iterator[MessageStore]:
    """About 14 log files; two queues of 20 files each."""
    with MessageStore.open(config, disk) as opened:
        fill(opened, 800)
        yield opened
    disk.heal()
    assert_sound(config, disk)


def fill(store: MessageStore, count: int, start: int = 0) -> None:
    for i in range(start, start + count):
        assert store.put(message(BODY, queue_id=i % 2, KEYS=f"k{i}")).ok
    assert store.wait_dispatched()


def log_files(store: MessageStore) -> list[int]:
    directories = store.config.commit_log_paths
    on_disk = sorted(int(path.name) for directory in directories for path in directory.iterdir())
    known = [file.file_from_offset for file in store.log.files.files]
    assert set(known) <= set(on_disk)  # the allocator's next one may be there, too
    return known


def age(store: MessageStore, disk: Room, hours: list[float]) -> None:
    """Let the oldest log files be so many hours old; the others are new. A flush after that would make them new."""
    store.flush()
    for file, old in zip(store.log.files.files, itertools.chain(hours, itertools.repeat(0))):  # noqa: B905
        then = disk.now_ms() / 1000 - old * 3600
        os.utime(file.path, (then, then))


def queue_names(store: MessageStore, queue_id: int = 0, topic: str = "T") -> list[str]:
    directory = store.config.store_path_root_dir / names.CONSUMEQUEUE / topic / str(queue_id)
    return sorted(path.name for path in directory.iterdir())


def check_all_readable(store: MessageStore, total: int) -> None:
    """By queue, key and offset: every message behind the log's first byte, and none before."""
    low = store.log.min_offset
    for queue_id in (0, 1):
        at, end = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
        assert end == total // 2
        if at:
            assert store.get("T", queue_id, at - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
            assert store.get("T", queue_id, 0).next_begin_offset == at
            assert store.message_store_timestamp("T", queue_id, at - 1) == -1
        first = decode(store.get("T", queue_id, at, 1).messages[0])
        assert first.physical_offset >= low
        assert first.physical_offset < low + 4000, "the min offset is too high"
        while at < end:
            got = store.get("T", queue_id, at)
            assert got.messages
            for record in got.messages:
                found = decode(record)
                assert found.crc_ok
                assert found.queue_offset == at
                number = 2 * at + queue_id
                assert store.query("T", f"k{number}").offsets == (found.physical_offset,)
                at += 1
    assert store.look_message(low) is not None
    assert low == 0 or store.look_message(low - 1000) is None


# --- which files -----------------------------------------------------------------------------------------------------


def test_at_its_hour_what_is_old_goes_and_everything_follows(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100, 73, 72, 71, 100])
    disk.hour = 5
    assert store.clean.clean() == 0
    disk.hour = 4
    age(store, disk, [100, 73, 72, 71, 100])
    before, queue_before = log_files(store), queue_names(store)
    assert store.clean.clean() == 3
    assert log_files(store) == before[3:]
    assert store.log.min_offset == before[3] == 3 * FILE
    gone = store.min_offset("T", 0) // PER_FILE
    assert gone > 2
    assert queue_names(store) == queue_before[gone:]
    check_all_readable(store, 800)
    assert store.clean.clean() == 0
    status = store.clean.status
    assert (status.log_files, status.queue_files) == (3, 2 * gone)
    assert (status.errors, status.hanging, status.manual_rounds) == ((), None, 0)
    fill(store, 100, 800)
    check_all_readable(store, 900)


def test_ten_a_round_with_pauses_and_never_the_last(store: MessageStore, disk: Room, config: StoreConfig) -> None:
    before = log_files(store)
    assert len(before) > 12
    age(store, disk, [100] * 99)
    paces = config.with_changes(delete_commit_log_files_interval=100, delete_consume_queue_files_interval=70)
    service = paced(store, disk, paces)
    assert service.clean() == 10
    assert service.pauses == [100] * 9 + [70] * 2
    assert log_files(store) == before[10:]
    assert service.clean() == len(before) - 11
    assert log_files(store) == before[-1:]
    assert service.clean() == 0
    check_all_readable(store, 800)


def test_a_round_by_hand(store: MessageStore, disk: Room) -> None:
    disk.hour = 12
    age(store, disk, [100, 100])
    assert store.clean.clean() == 0
    assert store.clean.clean(by_hand=True) == 2
    assert store.clean.status.manual_rounds == 0
    check_all_readable(store, 800)


def test_index_files_follow(disk: Room, config: StoreConfig) -> None:
    with MessageStore.open(config.with_changes(max_index_num=100), disk) as store:
        fill(store, 800)
        age(store, disk, [100] * 5)
        assert store.clean.clean() == 5
        assert store.index is not None
        assert store.clean.status.index_files == 2
        assert all(file.header.end_phy_offset >= store.log.min_offset for file in store.index.files)
        on_disk = sorted(path.name for path in (config.store_path_root_dir / names.INDEX).iterdir())
        assert on_disk == [Path(file.path).name for file in store.index.files]
        check_all_readable(store, 800)


def test_a_full_disk_lets_files_go_whatever_their_age(store: MessageStore, disk: Room) -> None:
    disk.hour = 12
    age(store, disk, [80, 80])
    disk.percent = 75
    assert store.clean.clean() == 0
    disk.percent = 76
    assert store.clean.clean() == 2
    disk.percent = 86
    assert store.clean.clean() == 10
    disk.percents["consumequeue"], disk.percent = 86, 30
    left = len(log_files(store))
    assert store.clean.clean() == left - 1
    check_all_readable(store, 800)


class Wants:
    """An archive that holds nothing yet."""

    hint = "rstore backup create"

    def __init__(self) -> None:
        self.before: list[int] = []

    def want(self, before: int) -> None:
        self.before.append(before)


def test_with_an_archive_nothing_goes_but_what_it_asks_for(store: MessageStore, disk: Room) -> None:
    """Not by its hour, by hand, or on a full disk, which takes no puts then and says what to run."""
    archive, before = Wants(), log_files(store)
    store.clean.archive_with(archive)
    age(store, disk, [100, 80])
    assert store.clean.clean() == store.clean.clean(by_hand=True) == 0
    disk.percent = 91
    assert store.clean.clean() == 0
    assert archive.before == [before[2], before[2], before[10]]
    assert log_files(store) == before
    assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    (refusal,) = store.flags.errors
    assert refusal.hint == "rstore backup create"
    assert store.clean.expire_before(before[2]) == 2
    disk.percent = 30
    store.clean.look()
    assert log_files(store) == before[2:]
    check_all_readable(store, 800)


def test_all_of_a_queue_has_expired(store: MessageStore, disk: Room) -> None:
    for i in range(5):
        assert store.put(message(queue_id=7, KEYS=f"late{i}")).ok
    fill(store, 200, 800)
    age(store, disk, [100] * 99)
    assert store.clean.clean() == 10
    assert store.clean.clean() > 0
    got = store.get("T", 7, 0)
    assert got.messages == ()
    assert got.next_begin_offset == 5
    assert store.put(message(queue_id=7)).ok
    assert store.wait_dispatched()
    assert store.get("T", 7, 5).message_count == 1


def test_what_was_not_dispatched_stays(store: MessageStore, disk: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "RETRY_MS", 10)
    tried = threading.Semaphore(0)

    def full(doing: Doing) -> bool:
        hit = "consumequeue" in doing.path and doing.operation is Operation.CREATE
        if hit:
            tried.release()
        return hit

    disk.fail_when(full)
    while store.put(message(BODY, queue_id=0)).ok:
        pass
    while tried.acquire(blocking=False):
        pass
    for _ in range(2):  # the second one begins where dispatch is stuck
        assert tried.acquire(timeout=60)
    stuck = store.dispatch.position
    for number in range(3):  # another queue, straight into the log: as what was acknowledged just before
        for _ in range(70):
            store.log.append(message(BODY, queue_id=1, KEYS=f"behind{number}"))
    disk.percent = 86
    for _ in range(3):
        store.clean.clean()
    assert store.log.min_offset <= stuck < store.log.min_offset + FILE
    assert len(log_files(store)) > 3
    disk.percent = 30
    disk.heal()
    assert store.wait_dispatched()
    assert not store.findings
    assert store.query("T", "behind0").offsets


def test_the_first_units_of_an_empty_queue_keep_their_place(store: MessageStore) -> None:
    queue = store.queues.obtain(TopicQueue("New", 0))
    queue.put_one(1000, store.log.max_offset + (1 << 20), 200, 0)
    assert queue.min_offset == 1000
    assert queue.delete_expired(store.log.min_offset) == 0
    assert queue.min_offset == 1000
    queue.destroy()
    assert queue.correct_min_offset(1 << 40) == 0


# --- by hand, and by the clock ---------------------------------------------------------------------------------------


def test_by_hand_is_good_for_twenty_rounds(disk: Room, config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = threading.Semaphore(0)
    inner = CleanService.clean

    def counted(self: CleanService) -> int:
        try:
            return inner(self)
        finally:
            rounds.release()

    monkeypatch.setattr(CleanService, "clean", counted)
    disk.hour = 12
    with MessageStore.open(config.with_changes(clean_resource_interval=1), disk, cleaning=True) as store:
        fill(store, 400)
        age(store, disk, [100] * 3)
        assert not rounds.acquire(timeout=0.05), "a round in the first minute that nobody asked for"
        store.execute_delete_files_manually()
        for _ in range(25):
            assert rounds.acquire(timeout=60)
        assert (store.clean.status.log_files, store.clean.status.manual_rounds) == (3, 0)
        check_all_readable(store, 400)
    assert_sound(config, disk)


def test_by_the_clock(disk: Room, config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "FIRST_ROUND_MS", 1)
    with MessageStore.open(config.with_changes(clean_resource_interval=1), disk, cleaning=True) as store:
        fill(store, 400)
        assert len(log_files(store)) > 5
        age(store, disk, [100] * 3)
        until = time.monotonic() + 60
        while store.clean.status.log_files < 3:
            assert time.monotonic() < until
            time.sleep(0.005)
    assert not store.clean.running
    assert_sound(config, disk)


def test_nobody_cleans_a_store_that_was_not_opened_for_it(store: MessageStore) -> None:
    assert not store.clean.running
    with pytest.raises(InvalidArgument):
        store.execute_delete_files_manually()


def test_closing_ends_a_pause(disk: Room, config: StoreConfig) -> None:
    slow = config.with_changes(delete_commit_log_files_interval=600_000)
    with MessageStore.open(slow, disk, cleaning=True) as store:
        fill(store, 400)
        age(store, disk, [100] * 99)
        store.execute_delete_files_manually()
        until = time.monotonic() + 60
        while store.clean.status.log_files < 1:
            assert time.monotonic() < until
            time.sleep(0.005)
    assert store.clean.status.log_files == 1
    assert_sound(config, disk)


def test_what_of_delete_when_is_no_hour_is_told(disk: Room, config: StoreConfig) -> None:
    with MessageStore.open(config.with_changes(delete_when="noon"), disk) as store:
        assert "deleteWhen = 'noon' is not a number" in store.clean.status.problems[0]
        store.clean.clean()


def test_a_delete_when_that_is_no_number_keeps_everything_on_a_full_disk_but_by_hand(
    disk: Room, config: StoreConfig
) -> None:
    """As in Apache, whose retention throws before it looks at the disk; by hand is the way out."""
    with MessageStore.open(config.with_changes(delete_when="04 # at night"), disk) as store:
        fill(store, 300)
        age(store, disk, [100] * 99)
        before = len(log_files(store))
        assert before > 2
        disk.percents["commitlog"] = 89
        disk.percents["consumequeue"] = 89
        store.clean.clean()
        assert len(log_files(store)) == before
        disk.percents["commitlog"] = 91
        store.clean.clean()
        assert len(log_files(store)) == before
        assert store.clean.status.disk_full
        disk.percents["commitlog"] = disk.percents["consumequeue"] = 50
        store.clean.clean(by_hand=True)
        assert len(log_files(store)) < before


# --- nearly full -----------------------------------------------------------------------------------------------------


def test_puts_are_refused_above_ninety_per_cent_and_not_any_more_at_it(store: MessageStore, disk: Room) -> None:
    for where in ("commitlog", "consumequeue"):
        disk.percents[where] = 91
        store.clean.look()
        refused = store.put(message())
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert isinstance(refused.error, DiskFull)
        assert "91%" in refused.error.message
        assert where in str(refused.error.path)
        assert store.clean.status.disk_full
        assert store.get("T", 0, 0).status is GetMessageStatus.FOUND
        disk.percents[where] = 90
        store.clean.look()
        assert store.put(message(KEYS="again")).ok
        assert not store.clean.status.disk_full
    assert store.wait_dispatched()


def test_a_running_store_looks_by_itself_and_closes_cleanly(disk: Room, config: StoreConfig) -> None:
    disk.percent = 95
    with MessageStore.open(config, disk, cleaning=True) as store:
        until = time.monotonic() + 60
        while store.put(message()).ok:
            assert time.monotonic() < until
            time.sleep(0.005)
    assert_sound(config, disk)


def test_one_reason_does_not_undo_another(store: MessageStore, disk: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "RETRY_MS", 10)
    disk.fail_when(lambda doing: "consumequeue" in doing.path and doing.operation is Operation.CREATE)
    while store.put(message(BODY, queue_id=0)).ok:
        pass
    disk.percent = 50
    store.clean.look()
    refused = store.put(message())
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert refused.error is not None
    assert "no space" in refused.error.message
    disk.percent = 91
    store.clean.look()
    disk.heal()
    assert store.wait_dispatched()
    assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    disk.percent = 90
    store.clean.look()
    assert store.put(message()).ok


def test_new_log_files_go_where_there_is_room(tmp_path: Path, disk: Room, config: StoreConfig) -> None:
    paths = [tmp_path / "store" / name for name in ("a", "b", "c")]
    several = config.with_changes(store_path_commit_log=",".join(map(str, paths)))
    with MessageStore.open(several, disk) as store:
        fill(store, 300)
        disk.percents = {"/a": 95, "/c": 86}
        disk.hour = 12
        store.clean.look()
        assert store.clean.full_paths == (str(paths[0]), str(paths[2]))
        assert store.put(message()).ok
        before = {path: len(list(path.iterdir())) for path in paths}
        fill(store, 400, 300)
        assert [len(list(path.iterdir())) - before[path] > 1 for path in paths] == [False, True, False]
        before_all = len(log_files(store))
        disk.percents["/b"] = 86
        assert store.clean.clean() == min(10, before_all - 1)
        disk.percents = {"/a": 91, "/b": 92, "/c": 93}
        store.clean.look()
        assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        disk.percents.clear()
        store.clean.look()
        assert store.put(message()).ok
    assert_sound(several, disk)


# --- hanging files ---------------------------------------------------------------------------------------------------


def test_a_log_file_that_is_held_is_waited_for_and_then_overruled(
    store: MessageStore, disk: Room, config: StoreConfig
) -> None:
    age(store, disk, [100, 100])
    first = store.log.files.files[0]
    held = first.select(0, 1000)
    assert held is not None
    whole = bytes(held.view)
    assert store.clean.clean() == 0
    assert store.clean.status.hanging == first.path
    assert store.log.min_offset == FILE
    assert store.get("T", 0, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
    assert not first.hold()
    service = paced(store, disk, config.with_changes(delete_when="23"))  # no round is due: once every two minutes
    disk.later_ms += 119_999
    assert service.clean() == 0
    disk.later_ms += 1
    assert service.clean() == 0, "tried a moment ago"
    disk.later_ms += 120_000
    assert service.clean() == 1
    assert service.status.hanging is None
    assert not os.path.exists(first.path)
    assert bytes(held.view) == whole
    held.release()
    service.clean()
    check_all_readable(store, 800)


def test_a_held_file_goes_when_it_is_released(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100, 100])
    held = store.log.files.files[0].select(0, 1000)
    assert held is not None
    assert store.clean.clean() == 0
    held.release()
    assert store.clean.clean() == 2
    check_all_readable(store, 800)


def test_a_file_that_hung_goes_at_the_end(disk: Room, config: StoreConfig) -> None:
    with MessageStore.open(config, disk) as store:
        fill(store, 400)
        age(store, disk, [100, 100])
        held = store.log.files.files[0].select(0, 1000)
        assert held is not None
        assert store.clean.clean() == 0
        held.release()
    assert log_files(store)[0] == FILE
    assert_sound(config, disk)


def test_queues_and_index_are_tried_again_in_every_round(disk: Room, config: StoreConfig) -> None:
    config = config.with_changes(max_index_num=100)
    with MessageStore.open(config, disk) as store:
        fill(store, 800)
        age(store, disk, [100] * 5)
        queue = store.find_queue("T", 0)
        assert queue is not None
        assert store.index is not None
        units = queue.select(0)
        assert units is not None
        index_file = store.index.files[0]
        assert index_file.hold()
        assert store.clean.clean() == 5
        assert store.min_offset("T", 0) > PER_FILE
        assert queue.hanging
        assert "00000000000000000000" in queue_names(store)
        units.release()
        index_file.release()
        assert store.clean.clean() == 0
        assert not queue.hanging
        assert "00000000000000000000" not in queue_names(store)
        assert not os.path.exists(index_file.path)
        check_all_readable(store, 800)
    assert_sound(config, disk)


def test_extension_files_follow(disk: Room, config: StoreConfig) -> None:
    ext = config.with_changes(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1000)
    with MessageStore.open(ext, disk) as store:
        fill(store, 800)
        directory = config.store_path_root_dir / names.CONSUMEQUEUE_EXT / "T" / "0"
        before = len(list(directory.iterdir()))
        age(store, disk, [100] * 6)
        assert store.clean.clean() == 6
        assert len(list(directory.iterdir())) < before - 2
        check_all_readable(store, 800)
    assert_sound(ext, disk)


# --- failures --------------------------------------------------------------------------------------------------------


def test_what_can_not_be_deleted_is_told_and_tried_again(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100] * 5)
    before = log_files(store)
    disk.fail_when(lambda doing: doing.operation is Operation.UNLINK and doing.path.endswith(f"{FILE:020d}"), errno.EIO)
    assert store.clean.clean() == 1
    assert isinstance(store.errors[0], StorageError)
    assert store.flags.writeable
    assert store.put(message(BODY, queue_id=5)).ok
    disk.heal()
    assert store.clean.clean() == 4
    assert store.errors == ()
    assert log_files(store)[0] == before[5]
    check_all_readable(store, 800)


def test_one_queue_that_fails_does_not_keep_the_others(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100] * 5)
    disk.fail_when(lambda doing: doing.operation is Operation.UNLINK and "T/0" in doing.path, errno.EIO)
    assert store.clean.clean() == 5
    assert len(store.clean.errors) == 1
    assert queue_names(store, 0)[0] == "00000000000000000000"
    assert queue_names(store, 1)[0] != "00000000000000000000"
    disk.heal()
    assert store.clean.clean() == 0
    assert queue_names(store, 0)[0] != "00000000000000000000"
    assert not store.errors
    check_all_readable(store, 800)


def test_a_disk_that_can_not_be_looked_at_is_told(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100] * 5)
    disk.fail_when(lambda doing: doing.operation is Operation.STAT, errno.EIO)
    assert store.clean.clean() == 0
    assert store.clean.errors
    disk.heal()
    assert store.clean.clean() == 5
    check_all_readable(store, 800)


# --- after a restart -------------------------------------------------------------------------------------------------


def test_queues_that_nobody_has_opened(disk: Room, config: StoreConfig) -> None:
    with MessageStore.open(config, disk) as store:
        for topic in ("A", "B"):
            assert store.put(message(topic=topic)).ok
        fill(store, 800)
    with MessageStore.open(config, disk) as store:
        assert store.queues.opened() == ()
        age(store, disk, [100] * 5)
        assert store.clean.clean() == 5
        assert {queue.queue.topic for queue in store.queues.opened()} == {"T"}
        check_all_readable(store, 800)
        assert store.get("A", 0, 0).messages == ()
        assert store.max_offset("A", 0) == 1
    assert_sound(config, disk)


def test_what_a_killed_round_has_left_follows_in_the_next_life(disk: Room, config: StoreConfig) -> None:
    with MessageStore.open(config, disk) as store:
        fill(store, 800)
        before = queue_names(store)
        age(store, disk, [100] * 5)
        for _ in range(5):
            assert store.log.files.delete_first(0)
    with MessageStore.open(config, disk) as store:
        disk.hour = 12
        assert queue_names(store) == before
        assert store.clean.clean() == 0
        assert len(queue_names(store)) < len(before)
        check_all_readable(store, 800)
    assert_sound(config, disk)


# --- beside readers and a writer -------------------------------------------------------------------------------------


@pytest.mark.wide
@pytest.mark.parametrize("mapped", [True, False], ids=["map", "channel"])
def test_readers_and_writer_beside_many_rounds(tmp_path: Path, config: StoreConfig, mapped: bool) -> None:
    """Readers keep slices of files that are deleted, and read them again at the end: every byte is as it was."""
    last = 1400 if WIDE else 800
    disk = Room(tmp_path / "store", mapped=mapped)
    disk.percent = 86
    over = threading.Event()
    problems: list[BaseException] = []
    kept: list[tuple[memoryview, int]] = []

    def read(queue_id: int) -> None:
        try:
            at, turn = 0, 0
            while not over.is_set():
                got = store.get("T", queue_id, at)
                for record in got.messages:
                    found = decode(record)
                    assert found.crc_ok
                    turn += 1
                    if turn % 50 == 0:
                        kept.append((record, found.body_crc))
                at = got.next_begin_offset if got.messages else store.min_offset("T", queue_id)
                store.query("T", f"k{turn}")
                store.offset_by_time("T", queue_id, disk.now_ms())
                store.look_message(store.log.min_offset)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    with MessageStore.open(config, disk) as store:
        fill(store, 200)
        threads = [threading.Thread(target=read, args=(queue_id,)) for queue_id in (0, 1, 0)]
        for thread in threads:
            thread.start()
        try:
            for number in range(200, last, 100):
                fill(store, 100, number)
                store.clean.clean()
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert problems == []
        store.clean.clean()  # a reader had the oldest file in its hands: it goes now that nobody holds it
        assert store.clean.status.log_files > 10
        assert store.errors == ()
        assert store.findings == ()
        check_all_readable(store, last)
        assert len(kept) > 10
        for record, crc in kept:
            found = decode(record)
            assert found.crc_ok
            assert found.body_crc == crc
    assert_sound(config, disk)


@pytest.mark.leaves("not-closed")
def test_a_failure_of_the_service_itself_stops_the_store(
    disk: Room, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CleanService, "look", bug)
    store = MessageStore.open(config, disk, cleaning=True)
    until = time.monotonic() + 60
    while store.flags.writeable:
        assert time.monotonic() < until
        time.sleep(0.005)
    assert store.flags.is_set(Flag.NOT_WRITEABLE)
    with pytest.raises(RStoreError, match="CleanService"):
        store.close()


def test_nothing_is_deleted_twice_by_two_that_clean(store: MessageStore, disk: Room) -> None:
    age(store, disk, [100] * 10)
    gone: list[int] = []
    threads = [threading.Thread(target=lambda: gone.append(store.clean.clean())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(gone) == 10
    assert not store.errors
    check_all_readable(store, 800)
