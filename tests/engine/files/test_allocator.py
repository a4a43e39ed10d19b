from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DiskFull, StorageError
from engine.files.allocator import SegmentAllocator
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.files.placement import MultiPath
from engine.files.queue import MappedFileQueue
from engine.files.transient_pool import TransientStorePool
from engine.format.names import segment_name
from tests.engine.files.conftest import Place

SIZE = 8192


@pytest.fixture
def allocator(place: Place) -> Iterator[SegmentAllocator]:
    made = SegmentAllocator(place.disk)
    made.start()
    yield made
    made.stop()


def until_prepared(allocator: SegmentAllocator, *paths: str) -> None:
    """Wait until exactly these files are ready."""
    deadline = time.monotonic() + 60
    while allocator.prepared != paths:
        assert time.monotonic() < deadline, allocator.prepared
        time.sleep(0.001)


def test_the_next_file_is_made_in_advance(place: Place, allocator: SegmentAllocator) -> None:
    paths = [place.path("log", segment_name(SIZE * number)) for number in range(3)]
    first = allocator.take(paths[0], paths[1], SIZE)
    assert first.path == paths[0]
    until_prepared(allocator, paths[1])
    assert place.disk.stat(paths[1]).size == SIZE
    second = allocator.take(paths[1], paths[2], SIZE)
    assert second.path == paths[1]
    until_prepared(allocator, paths[2])
    assert second.append(b"x") == 0


def test_a_queue_uses_it(place: Place, allocator: SegmentAllocator) -> None:
    queue = MappedFileQueue(place.disk, place.path("log"), SIZE, allocator)
    for number in range(5):
        file = queue.last(SIZE * 7, create=True)
        assert file is not None
        assert file.file_from_offset == SIZE * (7 + number)
        assert file.first_create_in_queue == (number == 0)
        file.append(b"x" * SIZE)
    until_prepared(allocator, place.path("log", segment_name(SIZE * 12)))
    assert len(queue.files) == 5


@pytest.mark.parametrize("discard", [False, True])
def test_stopping_keeps_or_discards_what_nobody_took(place: Place, discard: bool) -> None:
    allocator = SegmentAllocator(place.disk)
    allocator.start()
    paths = [place.path("log", segment_name(SIZE * number)) for number in range(2)]
    allocator.take(paths[0], paths[1], SIZE)
    until_prepared(allocator, paths[1])
    allocator.stop(discard=discard)
    assert place.disk.exists(paths[0])
    assert place.disk.exists(paths[1]) is not discard
    assert allocator.prepared == ()
    allocator.stop(discard=discard)
    third = place.path("log", segment_name(SIZE * 2))
    assert allocator.take(third, place.path("log", segment_name(SIZE * 3)), SIZE).path == third
    assert allocator.prepared == ()


def test_a_full_disk_reaches_who_asks_and_heals(faulty: FaultyDisk, tmp_path: Path) -> None:
    allocator = SegmentAllocator(faulty)
    allocator.start()
    queue = MappedFileQueue(faulty, str(tmp_path / "store/log"), SIZE, allocator)
    first = queue.last(create=True)
    assert first is not None
    until_prepared(allocator, str(tmp_path / "store/log" / segment_name(SIZE)))
    faulty.fail_after(0)
    first.append(b"x" * SIZE)
    second = queue.last(create=True)
    assert second is not None
    second.append(b"x" * SIZE)
    for _ in range(2):
        with pytest.raises(DiskFull):
            queue.last(create=True)
    assert queue.max_offset == SIZE * 2
    faulty.heal()
    third = queue.last(create=True)
    assert third is not None
    assert third.append(b"x") == 0
    allocator.stop(discard=True)
    assert sorted(path.name for path in (tmp_path / "store/log").iterdir()) == [
        segment_name(SIZE * number) for number in range(3)
    ]


def test_a_slow_disk_is_waited_for_and_the_file_is_there_later(tmp_path: Path) -> None:
    go = threading.Event()

    class Slow(Disk):
        def step(self, name: str) -> None:
            if name == "create-segment:named":
                assert go.wait(60)

    allocator = SegmentAllocator(Slow(), wait_ms=20)
    allocator.start()
    paths = [str(tmp_path / segment_name(SIZE * number)) for number in range(2)]
    with pytest.raises(StorageError, match="longer than 20 ms"):
        allocator.take(paths[0], paths[1], SIZE)
    go.set()
    until_prepared(allocator, *paths)
    assert allocator.take(paths[0], paths[1], SIZE).path == paths[0]
    allocator.stop()


def test_warm_up_and_write_buffers(real: Place) -> None:
    pool = TransientStorePool(real.disk, 2, SIZE)
    allocator = SegmentAllocator(real.disk, pool=pool, warm_pages=1, warm_sync=True, fast_fail=True)
    allocator.start()
    paths = [real.path(segment_name(SIZE * number)) for number in range(4)]
    one = allocator.take(paths[0], paths[1], SIZE)
    assert one.has_write_buffer
    until_prepared(allocator, paths[1])
    two = allocator.take(paths[1], paths[2], SIZE)
    assert two.has_write_buffer
    assert pool.available == 0
    with pytest.raises(StorageError, match="no write buffer"):
        allocator.take(paths[2], paths[3], SIZE)
    one.append(b"x" * SIZE)
    one.commit()
    assert allocator.take(paths[2], paths[3], SIZE).has_write_buffer
    assert allocator.prepared == ()
    allocator.stop(discard=True)


def test_a_failed_warm_up_leaves_no_file(faulty: FaultyDisk, tmp_path: Path) -> None:
    allocator = SegmentAllocator(faulty, warm_pages=1, warm_sync=True)
    syncs = 0

    def second_sync(doing: Any) -> bool:
        nonlocal syncs
        syncs += doing.operation is Operation.SYNC
        return syncs > 1 and doing.operation is Operation.SYNC

    faulty.fail_when(second_sync, 5)
    path = tmp_path / "store" / segment_name(0)
    with pytest.raises(StorageError):
        allocator.take(str(path), str(path), SIZE)
    assert not path.exists()


def test_a_directory_that_fills_up_leaves_no_second_file_for_an_offset(real: Place) -> None:
    full: set[str] = set()
    policy = MultiPath([real.path("a"), real.path("b")], (), lambda: full)
    allocator = SegmentAllocator(real.disk)
    allocator.start()
    queue = MappedFileQueue(real.disk, policy, SIZE, allocator)
    for number in range(4):
        file = queue.last(create=True)
        assert file is not None
        if number == 0:
            until_prepared(allocator, real.path("b", segment_name(SIZE)))
            full.add(real.path("b"))
        file.append(b"x" * SIZE)
    assert [Path(file.path).parent.name for file in queue.files] == ["a", "b", "a", "a"]
    allocator.stop(discard=True)
    again = MappedFileQueue(real.disk, policy, SIZE)
    assert again.load().odd == ()
    assert len(again.files) == 4


def test_a_file_that_was_announced_for_a_full_directory_is_made_in_another(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    disk = FaultyDisk(None)
    a, b = str(root / "a"), str(root / "b")
    full: set[str] = set()
    disk.fail_when(lambda doing: doing.operation is Operation.ALLOCATE and doing.path.startswith(b))
    allocator = SegmentAllocator(disk)
    allocator.start()
    queue = MappedFileQueue(disk, MultiPath([a, b], (), lambda: full), SIZE, allocator)
    for _ in range(3):
        file = queue.last(create=True)
        assert file is not None
        file.append(b"x" * SIZE)
        full.add(b)
    assert [Path(file.path).parent.name for file in queue.files] == ["a", "a", "a"]
    allocator.stop(discard=True)
