"""The pages ahead: what is appended is what it was without them, and nothing is done where nothing should be."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.mapped_file import MappedFile
from engine.files.pages_ahead import BEGIN, LEAD, PagesAhead
from engine.files.segment import PAGE
from engine.format.message import Message
from engine.format.numbers import LONG_MAX
from engine.store import MessageStore
from tests.engine.opening import assert_sound

SIZE = 8 << 20


def running() -> bool:
    return any(thread.name == "PagesAhead" for thread in threading.enumerate())


def wait_until(said: threading.Event) -> None:
    assert said.wait(60)


def test_touched_pages_hold_what_they_held(tmp_path: Path) -> None:
    file = MappedFile.create(Disk(), str(tmp_path / "00000000000000000000"), SIZE)
    file.append(b"x" * 100)
    if not file.touch(PAGE, SIZE):
        pytest.skip("this kernel has no MADV_POPULATE_WRITE (Linux 5.14)")
    assert file.wrote_position == 100
    assert Path(file.path).read_bytes() == b"x" * 100 + bytes(SIZE - 100)
    file.destroy(0)
    assert not file.touch(PAGE, SIZE)


def test_a_file_without_a_map_is_left_alone(tmp_path: Path) -> None:
    file = MappedFile.create(Disk(mapped=False), str(tmp_path / "00000000000000000000"), SIZE)
    assert not file.touch(0, SIZE)
    file.destroy(0)


def test_it_follows_the_file_that_is_appended_to(tmp_path: Path) -> None:
    touched: list[tuple[int, int]] = []
    said = threading.Event()

    class Watched(MappedFile):
        def touch(self, start: int, end: int) -> bool:
            touched.append((start, end))
            said.set()
            return super().touch(start, end)

    file = Watched.create(Disk(), str(tmp_path / "00000000000000000000"), SIZE)
    pages = PagesAhead(Disk())
    pages.begin(0)
    assert pages.wanted_from == BEGIN
    file.append(bytes(BEGIN + 1))
    pages.go_on(file)
    assert pages.wanted_from == BEGIN + 1 + LEAD // 2
    wait_until(said)
    said.clear()
    file.append(bytes(LEAD))
    pages.go_on(file)
    wait_until(said)
    assert touched == [(BEGIN + PAGE, BEGIN + 1 + LEAD), (BEGIN + LEAD + PAGE, SIZE)]
    pages.stop()
    assert not running()
    pages.go_on(file)
    assert pages.wanted_from == LONG_MAX
    file.destroy(0)


def test_where_the_system_can_not_it_ends_by_itself(tmp_path: Path) -> None:
    file = MappedFile.create(Disk(mapped=False), str(tmp_path / "00000000000000000000"), SIZE)
    pages = PagesAhead(Disk())
    pages.begin(0)
    pages.go_on(file)
    deadline = time.monotonic() + 60
    while running():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert pages.wanted_from == LONG_MAX
    pages.stop()
    file.destroy(0)


def test_a_disk_whose_calls_are_counted_is_not_touched() -> None:
    pages = PagesAhead(FaultyDisk(None))
    pages.begin(0)
    assert pages.wanted_from == LONG_MAX


def test_a_store_under_load_is_what_it_is_without(tmp_path: Path) -> None:
    config = StoreConfig().with_changes(store_path_root_dir=tmp_path / "s", mapped_file_size_commit_log=SIZE)
    body = bytes(range(256)) * 64
    with MessageStore.open(config) as store:
        for i in range(1500):  # three files
            assert store.put(Message("T", body, properties={"KEYS": f"k{i}"})).ok
        assert running()
        assert store.wait_dispatched()
        assert len(store.query("T", "k1499").messages) == 1
    assert not running()
    assert_sound(config)
