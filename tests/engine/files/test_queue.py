from __future__ import annotations

import os
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DiskFull, FormatError, WrongFileSize
from engine.files.allocator import SegmentAllocator
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.listing import MissingOffsets, Oddness
from engine.files.mapped_file import MappedFile
from engine.files.queue import MappedFileQueue
from engine.files.transient_pool import TransientStorePool
from engine.format.names import segment_name
from tests.engine.files.conftest import Place

SIZE = 8192


def queue_at(place: Place, **settings: Any) -> MappedFileQueue:
    return MappedFileQueue(place.disk, place.path("log"), SIZE, **settings)


def fill(queue: MappedFileQueue, count: int, start: int = 0) -> None:
    """`count` full files, each holding its number in every byte."""
    for number in range(count):
        file = queue.last(start, create=True)
        assert file is not None
        file.append(bytes([number % 256]) * SIZE)


def names(queue: MappedFileQueue) -> list[int]:
    return [file.file_from_offset for file in queue.files]


def on_disk(place: Place) -> list[str]:
    return list(place.disk.listdir(place.path("log")))


def test_an_empty_queue(place: Place) -> None:
    queue = queue_at(place)
    assert queue.load().missing == (place.path("log"),)
    assert (queue.min_offset, queue.max_offset, queue.max_wrote_position) == (-1, 0, 0)
    assert queue.first() is queue.last() is queue.find_by_offset(0, True) is queue.find_by_time(0) is None
    assert queue.flush() is True
    assert queue.commit() is True
    assert queue.check_self() == ()
    assert queue.delete_first(0) is False
    assert queue.retry_delete_first(0) is False
    queue.delete_last()
    queue.truncate_dirty(0)


def test_last_creates_where_apache_would(place: Place) -> None:
    queue = queue_at(place)
    first = queue.last(SIZE * 5 + 17, create=True)
    assert first is not None
    assert first.file_from_offset == SIZE * 5
    assert first.first_create_in_queue
    assert queue.last(0, create=True) is first
    assert queue.last() is first
    first.append(bytes(SIZE - 1))
    assert queue.last(0, create=True) is first
    first.append(b"x")
    assert queue.last() is first
    second = queue.last(0, create=True)
    assert second is not None
    assert second.file_from_offset == SIZE * 6
    assert not second.first_create_in_queue
    assert queue.min_offset == SIZE * 5
    assert queue.max_offset == queue.max_wrote_position == SIZE * 6


def test_find_by_offset(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 4, SIZE * 2)
    for number in range(4):
        for offset in (SIZE * (number + 2), SIZE * (number + 3) - 1):
            found = queue.find_by_offset(offset)
            assert found is not None
            assert found.file_from_offset == SIZE * (number + 2)
    for outside in (-1, 0, SIZE * 2 - 1, SIZE * 6, SIZE * 100):
        assert queue.find_by_offset(outside) is None
        assert queue.find_by_offset(outside, True) is queue.first()


def test_gaps_are_named_and_stepped_over(place: Place) -> None:
    fill(queue_at(place), 6)
    for number in (1, 2, 4):
        place.disk.unlink(place.path("log", segment_name(SIZE * number)))
    queue = queue_at(place)
    assert (
        queue.load().gaps == queue.check_self() == (MissingOffsets(SIZE, SIZE * 3), MissingOffsets(SIZE * 4, SIZE * 5))
    )
    for number in range(6):
        found = queue.find_by_offset(SIZE * number + 5)
        assert (found is not None) == (number in (0, 3, 5))
    for file in queue.files:
        file.truncate_to(0)
        file.advance(SIZE)
    while not queue.flush():
        pass
    assert queue.flushed_where == SIZE * 6


def test_load_opens_every_file_full(place: Place) -> None:
    fill(queue_at(place), 3)
    queue = queue_at(place)
    listing = queue.load()
    assert [file.offset for file in listing.files] == names(queue) == [0, SIZE, SIZE * 2]
    assert all(file.is_full and file.flushed_position == SIZE for file in queue.files)
    assert queue.max_offset == SIZE * 3
    found = queue.find_by_offset(SIZE)
    assert found is not None
    assert bytes(found.view(0, 2)) == b"\1\1"


@pytest.mark.parametrize(
    ("name", "size", "error", "why"),
    [
        (segment_name(SIZE), 0, WrongFileSize, Oddness.EMPTY),
        (segment_name(SIZE), SIZE - 1, WrongFileSize, Oddness.WRONG_SIZE),
        ("readme", SIZE, FormatError, Oddness.STRANGE_NAME),
    ],
)
def test_odd_files_stop_a_strict_load_only(
    place: Place, name: str, size: int, error: type[Exception], why: Oddness
) -> None:
    fill(queue_at(place), 1)
    place.disk.write_file(place.path("log", name), bytes(size))
    with pytest.raises(error, match=name):
        queue_at(place).load()
    queue = queue_at(place)
    assert [odd.why for odd in queue.load(strict=False).odd] == [why]
    assert names(queue) == [0]
    assert on_disk(place) == sorted([segment_name(0), name])


def test_flush_goes_file_by_file(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    newest = queue.last(create=True)
    assert newest is not None
    newest.append(b"x" * 100)
    for number, file in enumerate(queue.files):
        file.store_timestamp = 1000 + number
    assert queue.remain_to_flush() == SIZE * 2 + 100
    assert queue.flush() is False
    assert (queue.flushed_where, queue.store_timestamp) == (SIZE, 1000)
    assert queue.flush(4) is False
    assert (queue.flushed_where, queue.store_timestamp) == (SIZE * 2, 1000)
    assert queue.flush(1) is True
    assert queue.flushed_where == SIZE * 2
    assert queue.flush() is False
    assert (queue.flushed_where, queue.store_timestamp) == (SIZE * 2 + 100, 1002)
    assert queue.flush() is True
    assert queue.remain_to_flush() == 0


def test_flushing_goes_on_after_the_unflushed_files_were_deleted(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 3, SIZE)
    queue.flush()
    assert queue.delete_first(0)
    assert queue.delete_first(0)
    assert queue.flush() is False
    assert queue.flushed_where == SIZE * 4


def test_commit_without_write_buffer_follows_the_writes(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 1)
    assert queue.remain_to_commit() == SIZE
    assert queue.commit() is False
    assert queue.committed_where == SIZE
    assert queue.commit() is True


def test_the_end_is_not_behind_what_waits_in_a_write_buffer(place: Place) -> None:
    """Two buffers for four files, all of them full: the third and fourth are written without one."""
    pool = TransientStorePool(place.disk, 2, SIZE)
    queue = MappedFileQueue(place.disk, place.path("log"), SIZE, SegmentAllocator(place.disk, pool=pool))
    fill(queue, 4)
    assert [file.has_write_buffer for file in queue.files] == [True, True, False, False]
    assert (queue.max_offset, queue.max_wrote_position) == (0, SIZE * 4)
    ends = []
    while not queue.commit():
        ends.append(queue.max_offset)
    assert ends[0] == SIZE
    assert queue.max_offset == SIZE * 4
    assert [file.has_write_buffer for file in queue.files] == [False] * 4
    queue.shutdown()
    pool.destroy()


def test_truncate_in_the_middle_of_a_file(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 4)
    while not queue.flush():
        pass
    queue.truncate_dirty(SIZE + 100)
    assert names(queue) == [0, SIZE]
    assert on_disk(place) == [segment_name(0), segment_name(SIZE)]
    assert queue.max_offset == SIZE + 100
    assert queue.flushed_where == SIZE + 100
    assert queue.files[0].is_full
    content = place.disk.read_file(place.path("log", segment_name(SIZE)))
    assert content == b"\1" * SIZE


def test_truncate_can_zero_the_tail(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 3)
    queue.truncate_dirty(SIZE + 100, zero_tail=True)
    assert place.disk.read_file(place.path("log", segment_name(SIZE))) == b"\1" * 100 + bytes(SIZE - 100)


@pytest.mark.parametrize(("offset", "left", "end"), [(SIZE, [0, 1], SIZE), (SIZE * 2, [0, 1, 2], SIZE * 2)])
def test_truncate_at_a_file_s_edge_keeps_the_empty_one(place: Place, offset: int, left: list[int], end: int) -> None:
    queue = queue_at(place)
    fill(queue, 4)
    queue.truncate_dirty(offset)
    assert names(queue) == [SIZE * number for number in left]
    assert queue.max_offset == end


def test_truncate_before_the_first_file_deletes_all(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2, SIZE * 3)
    queue.truncate_dirty(SIZE)
    assert names(queue) == []
    assert on_disk(place) == []


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_truncation_that_is_killed_leaves_no_gap(faulty: FaultyDisk, tmp_path: Path, nth: int) -> None:
    directory = str(tmp_path / "store" / "log")
    queue = MappedFileQueue(faulty, directory, SIZE)
    fill(queue, 4)
    faulty.kill_at("truncate:delete", nth)
    with pytest.raises(Killed):
        queue.truncate_dirty(10)
    again = MappedFileQueue(Disk(), directory, SIZE)
    assert again.load().gaps == ()
    assert names(again) == [SIZE * number for number in range(5 - nth)]


def test_truncation_overrules_a_holder(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    held = queue.files[1].select(0, 4)
    assert held is not None
    queue.truncate_dirty(10)
    assert on_disk(place) == [segment_name(0)]
    assert bytes(held.view) == b"\1\1\1\1"
    held.release()


def test_delete_last(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    queue.delete_last()
    assert names(queue) == [0]
    assert on_disk(place) == [segment_name(0)]


def age(place: Place, queue: MappedFileQueue, hours: list[int]) -> None:
    now = place.disk.now_ms() * 1_000_000
    for file, old in zip(queue.files, hours, strict=True):
        os.utime(file.path, ns=(now, now - old * 3_600_000_000_000))


HOUR = 3_600_000


def test_deleting_goes_by_age_and_never_takes_the_last_file(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 3)
    assert queue.delete_first(0)
    assert queue.min_offset == SIZE
    assert on_disk(place) == [segment_name(offset) for offset in (SIZE, SIZE * 2)]
    assert queue.delete_first(0)
    assert not queue.delete_first(0)
    assert names(queue) == [SIZE * 2]


def test_a_held_file_stops_expiry_until_it_is_retried(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = place.disk.now_ms()
    monkeypatch.setattr(Disk, "now_ms", lambda _: now)
    queue = queue_at(place)
    fill(queue, 3)
    held = queue.files[0].select(0, 4)
    assert held is not None
    assert queue.delete_first(120_000) is False
    assert names(queue)[0] == 0
    assert queue.retry_delete_first(120_000) is False
    now += 120_000
    assert queue.retry_delete_first(120_000) is True
    assert names(queue) == [SIZE, SIZE * 2]
    held.release()
    assert queue.retry_delete_first(120_000) is False


UNIT = struct.Struct(">qiq")


def test_expiry_by_offset(place: Place) -> None:
    size = UNIT.size * 10
    queue = MappedFileQueue(place.disk, place.path("cq"), size)
    for number in range(40):
        file = queue.last(create=True)
        assert file is not None
        file.append(UNIT.pack(number * 100, 100, 0))
    queue.last(create=True)

    def last_offset(unit: memoryview) -> int:
        return int(UNIT.unpack(unit)[0])

    assert queue.delete_expired_by_offset(900, UNIT.size, last_offset) == 0
    assert queue.delete_expired_by_offset(901, UNIT.size, last_offset) == 1
    assert queue.delete_expired_by_offset(1 << 60, UNIT.size, last_offset) == 3
    assert names(queue) == [size * 4]


def test_a_queue_file_that_is_not_full_is_not_judged(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    queue.files[0].truncate_to(100)
    assert queue.delete_expired_by_offset(1 << 60, 20, lambda _: 0) == 0
    queue.files[0].shutdown(0)
    assert queue.delete_expired_by_offset(1 << 60, 20, lambda _: 0) == 1


def test_find_by_time(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 3)
    age(place, queue, [30, 20, 10])
    now = place.disk.now_ms()
    for hours, number in ((100, 0), (25, 1), (15, 2), (1, 2)):
        found = queue.find_by_time(now - hours * HOUR)
        assert found is not None
        assert found.file_from_offset == SIZE * number


def test_destroy_removes_files_and_the_directory(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    queue.flush()
    queue.destroy()
    assert not place.disk.exists(place.path("log"))
    assert (names(queue), queue.flushed_where) == ([], 0)


def test_destroy_leaves_what_is_not_its_own(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 1)
    place.disk.write_file(place.path("log", "mine"), b"")
    queue.destroy()
    assert on_disk(place) == ["mine"]


def test_shutdown_leaves_the_files(place: Place) -> None:
    queue = queue_at(place)
    fill(queue, 2)
    queue.shutdown()
    assert len(on_disk(place)) == 2
    assert all(file.cleanup_over for file in queue.files)


def test_a_full_disk_refuses_the_next_file_and_heals(fs: Any) -> None:
    fs.create_dir("/store")
    fs.set_disk_usage(SIZE * 2 + 100)
    queue = MappedFileQueue(Disk(), "/store/log", SIZE)
    fill(queue, 2)
    with pytest.raises(DiskFull):
        queue.last(create=True)
    with pytest.raises(DiskFull):
        queue.last(create=True)
    assert queue.max_offset == SIZE * 2
    fs.set_disk_usage(SIZE * 4)
    newest = queue.last(create=True)
    assert newest is not None
    assert newest.append(b"again") == 0
    assert sorted(os.listdir("/store/log")) == [segment_name(SIZE * number) for number in range(3)]


def test_readers_beside_appender_flusher_and_deleter(real: Place) -> None:
    queue = queue_at(real)
    fill(queue, 1)
    over = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        while not over.is_set():
            for file in queue.files:
                selected = file.select(0)
                if selected is not None:
                    with selected:
                        expected = file.file_from_offset // SIZE % 251
                        if any(byte != expected for byte in selected.view[::512]):
                            problems.append(AssertionError(f"torn read in {file.path}"))
                queue.find_by_offset(queue.min_offset)

    def guarded(work: Any) -> Any:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001
                problems.append(error)

        return run

    def flush() -> None:
        while not over.is_set():
            queue.flush()

    def delete() -> None:
        while not over.is_set():
            if len(queue.files) > 5:
                queue.delete_first(0)

    threads = [threading.Thread(target=guarded(work)) for work in (read, read, flush, delete)]
    for thread in threads:
        thread.start()
    for number in range(1, 40):
        for _ in range(8):
            file = queue.last(create=True)
            assert file is not None
            file.append(bytes([number % 251]) * (SIZE // 8))
    over.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert queue.max_offset == SIZE * 40


def test_allocate_step_reaches_the_files(real: Place) -> None:
    fill(queue_at(real), 1)
    queue = queue_at(real, allocate_step=4096)
    queue.load()
    assert isinstance(queue.files[0], MappedFile)
    assert queue.files[0].allocate_step == 4096


def test_a_new_file_takes_blocks_as_it_grows(tmp_path: Path) -> None:
    """A store has thousands of queues: a file of 6 MB that holds three units must not take 6 MB of the disk."""
    queue = MappedFileQueue(Disk(), str(tmp_path / "queue"), 6_000_000, allocate_step=65536)
    file = queue.last(create=True)
    assert file is not None
    path = tmp_path / "queue" / f"{0:020d}"
    assert path.stat().st_blocks * 512 <= 2 * 65536
    for _ in range(1000):
        assert file.append(b"x" * 500) is not None
    assert 500_000 <= path.stat().st_blocks * 512 <= 500_000 + 3 * 65536
    queue.shutdown(0)
