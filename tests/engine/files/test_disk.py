from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DiskFull, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Operation
from tests.engine.files.conftest import Place

MIB = 1 << 20


def test_a_new_segment_is_zeros_of_its_size(place: Place) -> None:
    segment = place.disk.open_segment(place.path("00"), 10000, create=True)
    assert place.disk.stat(place.path("00")).size == 10000
    assert bytes(segment.read(0, 10000)) == bytes(10000)
    assert segment.mapped == place.mapped
    segment.close()


def test_a_new_segment_has_blocks_for_every_byte(real: Place) -> None:
    real.disk.open_segment(real.path("00"), 4 * MIB, create=True).close()
    assert Path(real.path("00")).stat().st_blocks * 512 >= 4 * MIB


def test_a_segment_is_not_created_over_a_file(place: Place) -> None:
    place.disk.write_file(place.path("00"), b"precious")
    with pytest.raises(StorageError) as raised:
        place.disk.open_segment(place.path("00"), 4096, create=True)
    assert raised.value.path == place.path("00")
    assert place.disk.read_file(place.path("00")) == b"precious"


def test_segment_write_zero_sync_and_read_again(place: Place) -> None:
    segment = place.disk.open_segment(place.path("00"), 20000, create=True)
    segment.write(5000, b"x" * 10000)
    segment.zero(6000, 14000)
    segment.sync(5000, 15000)
    segment.close()
    segment.close()
    expected = bytes(5000) + b"x" * 1000 + bytes(8000) + b"x" * 1000 + bytes(5000)
    assert place.disk.read_file(place.path("00")) == expected
    again = place.disk.open_segment(place.path("00"), 20000, writable=False)
    assert bytes(again.read(5999, 2)) == b"x\0"
    assert again.is_zero(6000, 14000)
    assert not again.is_zero(6000, 14001)
    again.close()


def test_zeroing_keeps_the_blocks(real: Place) -> None:
    segment = real.disk.open_segment(real.path("00"), MIB, create=True)
    segment.write(0, b"x" * MIB)
    segment.zero(0, MIB)
    segment.sync(0, MIB)
    assert Path(real.path("00")).stat().st_blocks * 512 >= MIB
    segment.close()


@pytest.mark.parametrize("missing", [1, 2])
def test_zeroing_falls_back_to_holes_and_to_writing(real: Place, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    calls: list[int] = []
    genuine = type(real.disk.libc).fallocate

    def fallocate(self: Any, descriptor: int, mode: int, offset: int, length: int) -> None:
        calls.append(mode)
        if len(calls) <= missing:
            raise OSError(errno.EOPNOTSUPP, "no")
        genuine(self, descriptor, mode, offset, length)

    monkeypatch.setattr(type(real.disk.libc), "fallocate", fallocate)
    segment = real.disk.open_segment(real.path("00"), 3 * MIB, create=True)
    segment.write(0, b"x" * 3 * MIB)
    segment.zero(100, 3 * MIB - 100)
    assert len(calls) == 2
    assert bytes(segment.read(0, 3 * MIB)) == b"x" * 100 + bytes(3 * MIB - 200) + b"x" * 100
    assert Path(real.path("00")).stat().st_blocks * 512 >= 3 * MIB
    segment.close()


def test_a_short_file_is_no_segment(place: Place) -> None:
    place.disk.write_file(place.path("00"), b"x" * 100)
    with pytest.raises(StorageError, match="100 bytes instead of 4096"):
        place.disk.open_segment(place.path("00"), 4096)


def test_a_segment_that_does_not_fit_leaves_no_file(fs: Any) -> None:
    fs.create_dir("/store")
    fs.set_disk_usage(10_000)
    disk = Disk()
    with pytest.raises(DiskFull) as raised:
        disk.open_segment("/store/00", 20_000, create=True)
    assert raised.value.path == "/store/00"
    assert disk.listdir("/store") == ()


def test_a_failed_allocation_leaves_no_file(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.fail_when(lambda doing: doing.operation is Operation.ALLOCATE)
    with pytest.raises(DiskFull):
        faulty.open_segment(str(tmp_path / "store/00"), 4096, create=True)
    assert list((tmp_path / "store").iterdir()) == []


def test_where_nothing_can_be_allocated_segments_go_by_channel(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert not real.disk.open_segment(real.path("00"), 4096, create=True).mapped


def test_where_nothing_can_be_mapped_segments_go_by_channel(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "no")

    monkeypatch.setattr(real.disk.libc, "map_file", refuse)
    segment = real.disk.open_segment(real.path("00"), 4096, create=True)
    assert not segment.mapped
    segment.write(0, b"abc")
    assert bytes(segment.read(0, 3)) == b"abc"


def test_after_a_failed_sync_every_later_one_fails(faulty: FaultyDisk, tmp_path: Path) -> None:
    segment = faulty.open_segment(str(tmp_path / "store/00"), 4096, create=True)
    faulty.fail_when(lambda doing: doing.operation is Operation.SYNC, errno.EIO)
    with pytest.raises(StorageError, match="input/output error"):
        segment.sync(0, 4096)
    faulty.heal()
    with pytest.raises(StorageError, match="an earlier sync failed"):
        segment.sync(0, 4096)


def test_reader(place: Place) -> None:
    data = bytes(range(256)) * 100
    place.disk.write_file(place.path("f"), data)
    reader = place.disk.open_reader(place.path("f"))
    assert reader.size() == len(data)
    assert bytes(reader.read(300, 1000)) == data[300:1300]
    assert bytes(reader.read(len(data) - 10, 100)) == data[-10:]
    assert bytes(reader.read(len(data) + 10, 100)) == b""
    buffer = bytearray(500)
    assert reader.read_into(buffer, 7) == 500
    assert buffer == data[7:507]
    reader.close()


def test_a_bad_sector_is_an_error_with_its_place(faulty: FaultyDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "store/f")
    faulty.write_file(path, bytes(8192))
    faulty.fail_when(
        lambda doing: doing.operation is Operation.READ and (doing.offset or 0) + doing.length > 5000, errno.EIO
    )
    reader = faulty.open_reader(path)
    assert len(reader.read(0, 5000)) == 5000
    with pytest.raises(StorageError) as raised:
        reader.read(4096, 1000)
    assert (raised.value.path, raised.value.offset) == (path, 4096)
    assert not isinstance(raised.value, DiskFull)


def test_atomic_write_replaces_whole(place: Place) -> None:
    path = place.path("config.json")
    place.disk.write_file_atomically(path, b"old and longer")
    place.disk.write_file_atomically(path, b"new")
    assert place.disk.read_file(path) == b"new"
    assert place.disk.listdir(place.root) == ("config.json",)


def test_atomic_write_keeps_the_mode(real: Place) -> None:
    path = Path(real.path("config.json"))
    path.write_bytes(b"old")
    path.chmod(0o640)
    real.disk.write_file_atomically(str(path), b"new")
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.leaves("file-stray")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_creates_belongs_to_the_directory_s_owner(real: Place) -> None:
    store = Path(real.path("store"))
    store.mkdir()
    os.chown(store, 1234, 5678)
    real.disk.mkdirs(str(store / "commitlog"))
    real.disk.open_segment(str(store / "commitlog" / "00"), 4096, create=True).close()
    real.disk.write_file_atomically(str(store / "f"), b"x")
    for path in (store / "commitlog", store / "commitlog" / "00", store / "f"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


def test_atomic_write_on_a_full_disk_keeps_the_old(fs: Any) -> None:
    fs.create_dir("/store")
    disk = Disk()
    disk.write_file_atomically("/store/f", b"old")
    fs.set_disk_usage(1000)
    with pytest.raises(DiskFull):
        disk.write_file_atomically("/store/f", b"x" * 2000)
    assert disk.read_file("/store/f") == b"old"
    assert disk.listdir("/store") == ("f",)


def test_copy_keeps_bytes_and_holes(real: Place) -> None:
    source = Path(real.path("from"))
    with source.open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(10 * MIB + 123)
        file.write(b"y" * 100_000)
    assert real.disk.copy_file(str(source), real.path("to")) == 64 * MIB
    target = Path(real.path("to"))
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < MIB
    assert real.disk.copy_file(str(source), real.path("part"), offset=10 * MIB, length=1000) == 1000
    assert Path(real.path("part")).read_bytes() == bytes(123) + b"y" * 877


def test_copy_everywhere(place: Place) -> None:
    data = bytes(100_000) + b"z" * 100_000 + bytes(50_000)
    place.disk.write_file(place.path("from"), data)
    place.disk.copy_file(place.path("from"), place.path("to"))
    assert place.disk.read_file(place.path("to")) == data
    place.disk.copy_range(place.path("from"), 0, 150_000, place.path("to"), 100_000)
    assert place.disk.read_file(place.path("to")) == data[:100_000] + data[:150_000]
    with pytest.raises(StorageError, match="file exists"):
        place.disk.copy_file(place.path("from"), place.path("to"))
    with pytest.raises(StorageError, match="unexpected end of the file"):
        place.disk.copy_range(place.path("from"), 249_000, 2000, place.path("to"), 0)


def test_a_copy_that_does_not_fit_leaves_nothing(fs: Any) -> None:
    fs.create_dir("/store")
    disk = Disk()
    disk.write_file("/store/from", b"x" * 5000)
    fs.set_disk_usage(8000)
    with pytest.raises(DiskFull):
        disk.copy_file("/store/from", "/store/to")
    assert disk.listdir("/store") == ("from",)


def test_names(place: Place) -> None:
    disk = place.disk
    disk.mkdirs(place.path("a/b/c"))
    disk.mkdirs(place.path("a/b/c"))
    disk.write_file(place.path("a/b/f"), b"1")
    disk.replace(place.path("a/b/f"), place.path("a/b/g"))
    assert disk.listdir(place.path("a/b")) == ("c", "g")
    entries = disk.scandir(place.path("a/b"))
    assert [(entry.name, entry.is_file) for entry in entries] == [("c", False), ("g", True)]
    assert entries[1].size == 1
    assert disk.remove_dir(place.path("a")) is False
    assert disk.remove_dir(place.path("a/b/c")) is True
    assert disk.remove_dir(place.path("a/b/c")) is False
    disk.unlink(place.path("a/b/g"))
    disk.unlink(place.path("a/b/g"), missing_ok=True)
    disk.sync_dir(place.path("a/b"))
    assert disk.listdir(place.path("a/b")) == ()
    for failing in (disk.stat, disk.listdir, disk.scandir, disk.unlink, disk.read_file, disk.sync_dir):
        with pytest.raises(StorageError) as raised:
            failing(place.path("nothing"))
        assert raised.value.path == place.path("nothing")


def test_a_file_is_no_directory(place: Place) -> None:
    place.disk.write_file(place.path("f"), b"")
    with pytest.raises(StorageError, match="not a directory"):
        place.disk.mkdirs(place.path("f"))


@pytest.mark.parametrize(
    ("usage", "ratio"),
    [
        (Usage(1000, 750, 250), 0.75),
        (Usage(1000, 751, 249), 0.76),
        (Usage(1000, 500, 400), 0.56),
        (Usage(1000, 0, 1000), 0.0),
        (Usage(0, 0, 0), -1.0),
    ],
)
def test_used_ratio_is_rounded_up_as_apache_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usage: Usage, ratio: float
) -> None:
    disk = Disk()
    monkeypatch.setattr(Disk, "usage", lambda *_: usage)
    assert disk.disk_used_ratio(str(tmp_path)) == ratio


def test_usage(place: Place) -> None:
    usage = place.disk.usage(place.root)
    assert 0 <= usage.used <= usage.total
    assert 0 < usage.usable <= usage.total
    assert 0 <= place.disk.disk_used_ratio(place.root) <= 1
    assert place.disk.disk_used_ratio(place.path("nothing")) == -1.0
