"""Files of a fake file system under threads: what the system's own files promise, theirs keep."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from engine.files.disk import Disk

SIZE = 1 << 14
MANY = 500


@pytest.fixture
def switching() -> Any:
    """Threads that take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_who_reads_a_file_that_another_handle_writes_gets_all_of_it(fs: Any) -> None:
    """pyfakefs gives what is written to each other handle anew: it is empty in between."""
    fs.create_dir("/store")
    disk = Disk(mapped=False)
    disk.write_file("/store/00", b"x" * SIZE)
    reader = disk.open_reader("/store/00")
    ended = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        writer = Disk(mapped=False).open_raw("/store/00", writable=True)
        try:
            for at in range(2000):
                writer.write(at, b"y")
                if at % 10 == 0:
                    writer.set_size(SIZE)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)
        finally:
            writer.close()
            ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    lengths: set[int] = set()
    while not ended.is_set():
        lengths.add(len(reader.read(0, SIZE)))
    thread.join()
    reader.close()
    assert not failures
    assert lengths == {SIZE}


@pytest.mark.usefixtures("switching")
def test_a_handle_that_is_opened_and_closed_beside_a_writer_takes_nothing_back(fs: Any) -> None:
    """As a flush does: pyfakefs writes what a handle found when it was opened once more as it is closed."""
    fs.create_dir("/store")
    disk = Disk(mapped=False)
    disk.write_file("/store/00", bytes(MANY * 20))
    writer = disk.open_raw("/store/00", writable=True)
    ended = threading.Event()

    def sync() -> None:
        while not ended.is_set():
            file = disk.open_raw("/store/00", writable=True)
            file.sync(0, MANY * 20)
            file.close()

    thread = threading.Thread(target=sync)
    thread.start()
    lost = []
    for at in range(MANY):
        writer.write(at * 20, b"y" * 20)
        if bytes(writer.read(at * 20, 20)) != b"y" * 20:
            lost.append(at)
            break
    ended.set()
    thread.join()
    writer.close()
    assert not lost
    assert disk.read_file("/store/00")[: MANY * 20] == b"y" * MANY * 20
