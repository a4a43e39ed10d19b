from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import DiskFull, InvalidArgument
from engine.files.faults import FaultyDisk
from engine.files.mapped_file import MappedFile
from engine.files.operations import Operation
from engine.files.transient_pool import TransientStorePool
from engine.format.names import segment_name
from tests.engine.files.conftest import Place

PAGE = 4096
SIZE = 8 * PAGE


def make(place: Place, pool: TransientStorePool, offset: int = 0) -> MappedFile:
    return MappedFile.create(place.disk, place.path(segment_name(offset)), SIZE, pool)


def test_borrowing_and_giving_back(place: Place) -> None:
    pool = TransientStorePool(place.disk, 2, 5000)
    one, two = pool.borrow(), pool.borrow()
    assert one is not None
    assert two is not None
    assert pool.available == 0
    assert pool.borrow() is None
    one.memory[:] = b"x" * 5000
    pool.give_back(one)
    pool.give_back(one)
    assert pool.available == 1
    again = pool.borrow()
    assert again is one
    assert one.memory == bytes(5000)
    pool.destroy()
    with pytest.raises(InvalidArgument):
        TransientStorePool(place.disk, 0, 10)


def test_readers_see_what_is_committed(place: Place) -> None:
    file = make(place, TransientStorePool(place.disk, 1, SIZE))
    assert file.has_write_buffer
    file.append(b"x" * 100)
    assert (file.wrote_position, file.committed_position, file.read_position) == (100, 0, 0)
    assert file.select(0) is None
    assert not file.is_able_to_flush(0)
    assert file.flush() == 0
    assert place.disk.read_file(file.path, 1) == b"\0"
    assert file.commit() == 100
    assert (file.read_position, file.flushed_position) == (100, 0)
    assert bytes(file.view(0, 100)) == b"x" * 100
    assert file.flush() == 100
    assert place.disk.read_file(file.path, 101) == b"x" * 100 + b"\0"


def test_the_least_pages_rule_of_commit(place: Place) -> None:
    file = make(place, TransientStorePool(place.disk, 1, SIZE))
    file.append(b"x" * (2 * PAGE - 1))
    assert not file.is_able_to_commit(2)
    assert file.commit(2) == 0
    file.append(b"x")
    assert file.commit(2) == 2 * PAGE
    assert not file.is_able_to_commit(0)
    file.append(b"y" * (SIZE - 2 * PAGE))
    assert file.is_able_to_commit(100)


def test_the_buffer_goes_back_when_the_file_is_full_and_committed(place: Place) -> None:
    pool = TransientStorePool(place.disk, 1, SIZE)
    file = make(place, pool)
    file.append(b"x" * SIZE)
    assert pool.available == 0
    file.commit()
    assert pool.available == 1
    assert not file.has_write_buffer
    assert (file.committed_position, file.read_position) == (SIZE, SIZE)
    assert file.flush() == SIZE
    assert place.disk.read_file(file.path) == b"x" * SIZE
    file.write_at(10, b"y")
    assert bytes(file.view(9, 3)) == b"xyx"


def test_the_rest_of_a_file_is_zeros_and_not_the_file_before(place: Place) -> None:
    pool = TransientStorePool(place.disk, 1, SIZE)
    for offset in (0, SIZE):
        file = make(place, pool, offset)
        file.append(b"x" * (SIZE if offset == 0 else 100))
        file.advance(SIZE - file.wrote_position)
        file.commit()
    assert place.disk.read_file(place.path(segment_name(SIZE))) == b"x" * 100 + bytes(SIZE - 100)


def test_the_buffer_goes_back_at_shutdown(place: Place) -> None:
    pool = TransientStorePool(place.disk, 1, SIZE)
    file = make(place, pool)
    file.append(b"lost, as Apache loses it")
    file.shutdown(0)
    assert pool.available == 1


def test_without_a_free_buffer_a_file_does_without(place: Place) -> None:
    pool = TransientStorePool(place.disk, 1, SIZE)
    make(place, pool)
    file = make(place, pool, SIZE)
    assert not file.has_write_buffer
    file.append(b"abc")
    assert file.read_position == 3


def test_write_at_goes_where_the_bytes_are(place: Place) -> None:
    file = make(place, TransientStorePool(place.disk, 1, SIZE))
    file.append(b"a" * 100)
    file.commit()
    file.append(b"b" * 100)
    file.write_at(90, b"c" * 20)
    assert place.disk.read_file(file.path, 101) == b"a" * 90 + b"c" * 10 + b"\0"
    file.commit()
    assert bytes(file.view(85, 30)) == b"aaaaa" + b"c" * 20 + b"bbbbb"


def test_invalidating_reaches_into_the_buffer(place: Place) -> None:
    file = make(place, TransientStorePool(place.disk, 1, SIZE))
    file.append(b"a" * 100)
    file.commit()
    file.append(b"b" * 100)
    file.invalidate_tail(50)
    file.advance(SIZE - 50)
    file.commit()
    assert place.disk.read_file(file.path) == b"a" * 50 + bytes(SIZE - 50)


def test_a_failed_commit_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    disk = FaultyDisk(None, mapped=False)
    pool = TransientStorePool(disk, 1, SIZE)
    file = MappedFile.create(disk, str(tmp_path / "store" / segment_name(0)), SIZE, pool)
    file.append(b"x" * SIZE)
    disk.fail_when(lambda doing: doing.operation is Operation.WRITE)
    with pytest.raises(DiskFull):
        file.commit()
    assert (file.committed_position, pool.available) == (0, 0)
    disk.heal()
    assert file.commit() == SIZE
    assert pool.available == 1


def test_a_pool_of_another_size_is_refused(place: Place) -> None:
    with pytest.raises(InvalidArgument):
        make(place, TransientStorePool(place.disk, 1, SIZE + 1))
    assert place.disk.listdir(place.root) == ()
