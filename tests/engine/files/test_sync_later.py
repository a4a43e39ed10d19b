"""Files that are made durable together: all of them are, few or many, or an error says which could not be."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.libc import Libc
from engine.files.operations import Operation
from engine.files.sync_later import MANY, SyncLater

ASKED = {"each": 3, "at once": MANY}


def written(disk: Disk, root: Path, many: int) -> SyncLater:
    """So many new files, each in a directory of its own, nothing of them synced."""
    later = SyncLater(disk)
    for number in range(many):
        directory = root / "queues" / str(number)
        disk.mkdirs(str(directory), later=later)
        path = directory / "00"
        file = disk.open_raw(str(path), new=True)
        file.write(0, bytes([number % 251]) * 9000)
        file.close()
        later.file(str(path), 9000)
        later.directory(str(directory))
    return later


@pytest.mark.parametrize("many", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("offered", [True, False], ids=["syncfs", "no-syncfs"])
def test_what_was_flushed_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, offered: bool
) -> None:
    monkeypatch.setattr(Libc, "vouches_by_syncfs", lambda self, descriptor: offered)
    root = tmp_path / "root"
    root.mkdir()
    disk = FaultyDisk(str(root))
    later = written(disk, root, many)
    disk.crash_copy(str(tmp_path / "before"), lose="all")
    assert list((tmp_path / "before").rglob("00")) == []
    later.flush()
    disk.crash_copy(str(tmp_path / "after"), lose="all")
    found = {int(path.parent.name): path.read_bytes() for path in (tmp_path / "after").rglob("00")}
    assert found == {number: bytes([number % 251]) * 9000 for number in range(many)}


@pytest.mark.parametrize("many", ASKED.values(), ids=ASKED)
def test_one_that_cannot_be_synced_is_named(tmp_path: Path, many: int) -> None:
    disk = FaultyDisk(None)
    later = written(disk, tmp_path, many)
    place = str(tmp_path / "queues" / "2" / "00")
    disk.fail_when(lambda doing: doing.operation is Operation.SYNC and doing.path == place, errno.EIO)
    with pytest.raises(StorageError) as caught:
        later.flush()
    assert caught.value.path == place
    disk.heal()
    later.flush()


def test_the_system_is_asked_once_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "any").open("w") as file:
        if not Libc().vouches_by_syncfs(file.fileno()):
            pytest.skip("no syncfs(2) here that vouches for a file")
    asked: list[str] = []
    real = Disk.sync_file_system
    monkeypatch.setattr(Disk, "sync_file_system", lambda self, path: (asked.append(path), real(self, path))[1])
    monkeypatch.setattr(Disk, "fsync", lambda self, descriptor: pytest.fail("one by one"))
    later = written(Disk(), tmp_path, MANY)
    later.flush()
    assert len(asked) == 1
    later.flush()
    assert len(asked) == 1


def test_a_file_that_is_gone_is_left_out(tmp_path: Path) -> None:
    later = written(Disk(), tmp_path, MANY)
    gone = tmp_path / "queues" / "7" / "00"
    gone.unlink()
    later.forget(str(gone))
    later.flush()
