from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import DiskFull, InvalidArgument, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.mapped_file import MappedFile
from engine.files.operations import Operation
from engine.format.names import segment_name
from tests.engine.files.conftest import Place

PAGE = 4096
SIZE = 16 * PAGE


def make(place: Place, offset: int = 0, size: int = SIZE) -> MappedFile:
    return MappedFile.create(place.disk, place.path(segment_name(offset)), size)


def test_append_and_read(place: Place) -> None:
    file = make(place, SIZE * 3)
    assert file.file_from_offset == SIZE * 3
    assert file.file_size == SIZE
    assert file.mapped == place.mapped
    assert file.append(b"hello") == 0
    assert file.append(memoryview(b"world")) == 5
    assert (file.wrote_position, file.committed_position, file.read_position, file.flushed_position) == (10, 10, 10, 0)
    assert bytes(file.view(3, 4)) == b"lowo"
    with pytest.raises(InvalidArgument):
        file.view(3, 8)
    assert file.flush() == 10
    assert place.disk.read_file(file.path, 12) == b"helloworld\0\0"


def test_an_append_that_does_not_fit_changes_nothing(place: Place) -> None:
    file = make(place)
    assert file.append(b"x" * (SIZE - 5)) == 0
    assert file.append(b"y" * 6) is None
    assert file.wrote_position == SIZE - 5
    assert not file.is_full
    assert file.append(b"y" * 5) == SIZE - 5
    assert file.is_full
    assert file.append(b"z") is None
    assert file.append(b"") == SIZE


def test_select(place: Place) -> None:
    file = make(place, SIZE)
    file.append(b"0123456789")
    assert file.select(0, 11) is None
    assert file.select(-1, 2) is None
    assert file.select(10) is None
    assert file.select(-1) is None
    whole = file.select(4)
    assert whole is not None
    with whole as selected:
        assert bytes(selected.view) == b"456789"
        assert (selected.start_offset, selected.size) == (SIZE + 4, 6)
        assert selected.view.readonly
        assert file.reference_count == 2
    assert file.reference_count == 1
    whole.release()
    assert file.reference_count == 1
    empty = file.select(10, 0)
    assert empty is not None
    assert empty.size == 0
    empty.release()


def test_reserve_and_advance(real: Place) -> None:
    file = make(real)
    file.append(b"ab")
    room = file.reserve(3)
    assert room is not None
    room[:] = b"cde"
    assert file.wrote_position == 2
    file.advance(3)
    assert bytes(file.view(0, 5)) == b"abcde"
    assert file.reserve(SIZE) is None
    file.advance(SIZE - 5)
    assert file.is_full
    with pytest.raises(InvalidArgument):
        file.advance(1)


def test_write_at_is_flushed_though_no_position_moves(place: Place) -> None:
    file = make(place)
    file.append(b"x" * 100)
    file.flush()
    file.write_at(50, b"yy")
    file.write_at(SIZE - 1, b"z")
    assert file.wrote_position == 100
    assert bytes(file.view(49, 4)) == b"xyyx"
    with pytest.raises(InvalidArgument):
        file.write_at(SIZE - 1, b"zz")
    writable = file.writable(0, 2)
    assert (writable is not None) == place.mapped
    if writable is not None:
        writable[:] = b"ww"
        assert bytes(file.view(0, 3)) == b"wwx"
    assert file.flush() == 100
    assert place.disk.read_file(file.path)[-1:] == b"z"


@pytest.mark.parametrize(
    ("flushed", "wrote", "least", "able"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (5, 5, 0, False),
        (0, PAGE - 1, 1, False),
        (0, PAGE, 1, True),
        (PAGE - 1, PAGE, 1, True),  # pages are counted whole, not bytes
        (PAGE, 2 * PAGE - 1, 1, False),
        (PAGE, 5 * PAGE - 1, 4, False),
        (PAGE, 5 * PAGE, 4, True),
        (SIZE, SIZE, 4, True),  # full: yes, whatever is asked
        (SIZE, SIZE, 0, True),
    ],
)
def test_the_least_pages_rule(place: Place, flushed: int, wrote: int, least: int, able: bool) -> None:
    file = make(place)
    file.truncate_to(flushed)
    file.advance(wrote - flushed)
    assert file.is_able_to_flush(least) is able
    assert file.flush(least) == (wrote if able else flushed)
    assert file.flushed_position == (wrote if able else flushed)
    assert file.commit(least) == wrote


def test_flush_syncs_only_what_is_dirty(faulty: FaultyDisk, tmp_path: Path) -> None:
    ranges: list[tuple[int | None, int]] = []

    def watch(doing: Any) -> bool:
        if doing.operation is Operation.SYNC:
            ranges.append((doing.offset, doing.length))
        return False

    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), SIZE)
    faulty.fail_when(watch)
    file.append(b"x" * 5000)
    file.flush()
    file.append(b"x" * 5000)
    file.flush()
    file.flush()
    file.write_at(100, b"y" * 10)
    file.write_at(300, b"y" * 10)
    file.flush(4)
    assert ranges == [(0, 5000), (5000, 5000), (100, 210)]


def test_a_failed_flush_moves_nothing(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), SIZE)
    file.append(b"x" * 10)
    faulty.fail_when(lambda doing: doing.operation is Operation.SYNC, errno.EIO)
    with pytest.raises(StorageError):
        file.flush()
    faulty.heal()
    with pytest.raises(StorageError):
        file.flush()
    assert file.flushed_position == 0
    assert file.reference_count == 1


def test_opening_puts_all_positions_at_the_end(place: Place) -> None:
    make(place).shutdown(0)
    file = MappedFile.open(place.disk, place.path(segment_name(0)), SIZE)
    assert (file.wrote_position, file.flushed_position, file.committed_position) == (SIZE, SIZE, SIZE)
    file.truncate_to(100)
    assert (file.wrote_position, file.flushed_position, file.committed_position) == (100, 100, 100)
    assert file.append(b"abc") == 100


def test_an_opened_sparse_file_gets_blocks_from_the_write_position(real: Place) -> None:
    size = 4 << 20
    path = Path(real.path(segment_name(0)))
    with path.open("wb") as sparse:
        sparse.truncate(size)
    file = MappedFile.open(real.disk, str(path), size)
    assert path.stat().st_blocks == 0
    file.truncate_to(1 << 20)
    file.ensure_allocated(1 << 20)
    assert 3 << 20 <= path.stat().st_blocks * 512 < 4 << 20


def test_blocks_may_be_taken_step_by_step(real: Place) -> None:
    size = 4 << 20
    path = Path(real.path(segment_name(0)))
    with path.open("wb") as sparse:
        sparse.truncate(size)
    file = MappedFile.open(real.disk, str(path), size)
    file.allocate_step = 1 << 16
    file.truncate_to(0)
    for _ in range(3000):
        file.append(b"x" * 100)
    assert 300_000 <= path.stat().st_blocks * 512 < 500_000
    file.flush()
    assert path.read_bytes() == b"x" * 300_000 + bytes(size - 300_000)


def test_a_full_disk_is_an_error_and_heals(faulty: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "store" / segment_name(0)
    with path.open("wb") as sparse:
        sparse.truncate(SIZE)
    file = MappedFile.open(faulty, str(path), SIZE)
    file.truncate_to(10)
    faulty.fail_after(0)
    with pytest.raises(DiskFull) as raised:
        file.append(b"abc")
    assert raised.value.path == str(path)
    with pytest.raises(DiskFull):
        file.write_at(0, b"abc")
    with pytest.raises(DiskFull):
        file.ensure_allocated(10)
    assert file.wrote_position == 10
    faulty.heal()
    assert file.append(b"abc") == 10


def test_a_sparse_file_that_can_t_be_allocated_is_written_by_channel(
    real: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    make(real).shutdown(0)
    file = MappedFile.open(real.disk, real.path(segment_name(0)), SIZE)
    file.truncate_to(0)
    assert file.mapped
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert file.append(b"abc") == 0
    assert not file.mapped
    assert file.append(b"def") == 3
    assert file.flush() == 6
    assert Path(file.path).read_bytes()[:7] == b"abcdef\0"


def test_a_channel_write_meets_the_full_disk(fs: Any) -> None:
    fs.create_dir("/store")
    fs.set_disk_usage(SIZE + 100)
    disk = Disk()
    file = MappedFile.create(disk, "/store/" + segment_name(0), SIZE)
    file.append(b"acknowledged")
    file.flush()
    with pytest.raises(DiskFull):
        MappedFile.create(disk, "/store/" + segment_name(SIZE), SIZE)
    assert disk.listdir("/store") == (segment_name(0),)
    assert bytes(file.view(0, 12)) == b"acknowledged"
    fs.set_disk_usage(SIZE * 3)
    assert MappedFile.create(disk, "/store/" + segment_name(SIZE), SIZE).append(b"x") == 0


def test_invalidate_tail(place: Place) -> None:
    file = make(place)
    file.append(b"x" * SIZE)
    file.flush()
    assert file.invalidate_tail(5000) is True
    assert (file.wrote_position, file.flushed_position) == (5000, 5000)
    assert place.disk.read_file(file.path) == b"x" * 5000 + bytes(SIZE - 5000)
    assert file.append(b"new") == 5000
    assert bytes(file.view(4999, 4)) == b"xnew"
    assert file.invalidate_tail(6000) is False
    assert file.wrote_position == 5003
    if place.kind != "fake":
        assert Path(file.path).stat().st_blocks * 512 >= SIZE


def test_invalidating_a_clean_tail_changes_no_byte_but_syncs(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), SIZE)
    file.append(b"x" * 100)
    file.flush()
    seen: list[Operation] = []

    def watch(doing: Any) -> bool:
        seen.append(doing.operation)
        return False

    faulty.fail_when(watch)
    assert file.invalidate_tail(100) is False
    assert Operation.ZERO not in seen
    assert Operation.WRITE not in seen
    assert Operation.SYNC in seen


def test_references_keep_the_file_until_the_last_release(place: Place) -> None:
    file = make(place)
    file.append(b"0123456789")
    held = file.select(2, 3)
    assert held is not None
    assert file.destroy(10_000) is False
    assert not file.available
    assert place.disk.exists(file.path)
    assert file.select(0, 1) is None
    assert not file.hold()
    assert bytes(held.view) == b"234"
    held.release()
    assert file.cleanup_over
    assert file.destroy(10_000) is True
    assert not place.disk.exists(file.path)
    assert file.destroy(10_000) is True


def test_a_holder_that_never_lets_go_is_overruled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000
    monkeypatch.setattr(Disk, "now_ms", lambda _: now)
    file = make(place)
    file.append(b"0123456789")
    held = file.select(2, 3)
    assert held is not None
    assert file.destroy(120_000) is False
    now += 119_999
    assert file.destroy(120_000) is False
    now += 1
    assert file.destroy(120_000) is True
    assert not place.disk.exists(file.path)
    assert bytes(held.view) == b"234"
    held.release()
    assert file.reference_count < 0


def test_views_that_are_out_never_break_destroy(real: Place) -> None:
    file = make(real)
    file.append(b"0123456789" * 10)
    view = file.view(0, 100)
    column = np.frombuffer(file.view(10, 80), dtype=np.uint8)
    nested = memoryview(view)[5:10]
    assert file.destroy(0) is True
    assert bytes(view[:3]) == b"012"
    assert column[3] == ord("3")
    assert bytes(nested) == b"56789"
    assert not Path(file.path).exists()


def test_a_closed_file_refuses(place: Place) -> None:
    file = make(place)
    file.append(b"abc")
    file.shutdown(0)
    with pytest.raises(StorageError, match="closed"):
        file.append(b"x")
    assert file.select(0) is None
    assert place.disk.exists(file.path)


def test_a_name_that_is_no_number_is_refused(place: Place) -> None:
    with pytest.raises(InvalidArgument):
        MappedFile.create(place.disk, place.path("not-a-number"), SIZE)


def test_times(place: Place) -> None:
    file = make(place)
    assert abs(file.last_modified_ms - place.disk.now_ms()) < 60_000
    file.destroy(0)
    assert file.last_modified_ms == 0


def test_warming_keeps_what_was_written(place: Place) -> None:
    file = make(place)
    file.append(b"x" * 5000)
    locked = file.warm(2, sync=True)
    assert locked is False or place.mapped
    assert place.disk.read_file(file.path) == b"x" * 5000 + bytes(SIZE - 5000)
    assert file.munlock() is place.mapped


def test_a_full_set_of_errors_from_permission(real: Place) -> None:
    with pytest.raises(StorageError) as raised:
        MappedFile.open(real.disk, real.path(segment_name(0)), SIZE)
    assert raised.value.path == real.path(segment_name(0))


def test_a_mapped_file_keeps_no_descriptor(real: Place) -> None:
    gc.collect()  # of tests before this one, what still holds a descriptor
    before = len(os.listdir("/proc/self/fd"))
    files = [make(real, SIZE * number) for number in range(20)]
    for file in files:
        file.append(b"x")
        file.flush()
        file.invalidate_tail(0)
    assert len(os.listdir("/proc/self/fd")) == before
    for file in files:
        file.shutdown(0)


def test_calls_never_reach_a_file_that_took_the_name(real: Place) -> None:
    file = make(real)
    file.append(b"x" * 100)
    Path(file.path).rename(file.path + ".moved")
    Path(file.path).write_bytes(b"y" * SIZE)
    with pytest.raises(StorageError, match="replaced by another"):
        file.invalidate_tail(50)
    assert Path(file.path).read_bytes() == b"y" * SIZE
