"""What is made while no descriptor is left is made whole, with a durable name, or leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import OutOfDescriptors, StorageError
from engine.files.disk import Disk
from engine.files.operations import Doing, Operation
from engine.services.shortage import lasts

SIZE = 8192
_AT_ONCE = 40


class Greedy(Disk):
    """Another thread takes each descriptor that is free before these operations begin, as soon as `hungry`."""

    def __init__(self, *operations: Operation) -> None:
        super().__init__()
        self.operations = operations
        self.hungry = False
        self.taken: list[int] = []

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        if self.hungry and operation in self.operations:
            self._take_all()
        return super().doing(operation, path, offset, length, source)

    def _take_all(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.taken.append(os.open(os.devnull, os.O_RDONLY))

    def give_back(self) -> None:
        self.hungry = False
        while self.taken:
            os.close(self.taken.pop())


@contextmanager
def few_descriptors(*disks: Greedy) -> Iterator[None]:
    """This process may open some more, and no thousands."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + _AT_ONCE, usual[1]))
    try:
        yield
    finally:
        for disk in disks:
            disk.give_back()
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def below(disk: Greedy, root: Path) -> Greedy:
    """That disk, with changes below `root` alone, as a store's."""
    roots = disk.roots()
    roots.add(str(root))
    return disk.beneath(roots)


@pytest.mark.parametrize("beneath", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_segment_that_could_not_be_made_is_not_in_the_way(tmp_path: Path, beneath: bool, mapped: bool) -> None:
    """Seen in a daemon: the file stayed, "file exists" was the answer from then on, and the store took no more puts."""
    disk = Greedy(Operation.SYNC_DIRECTORY, Operation.UNLINK)
    used = below(disk, tmp_path) if beneath else disk
    directory = tmp_path / "queue" / "0"
    used.mkdirs(str(directory))
    path = str(directory / "0")
    with few_descriptors(disk):
        disk.hungry = True
        with pytest.raises(OutOfDescriptors):
            used.open_segment(path, SIZE, create=True, mapped=mapped)
        disk.give_back()
        assert not list(directory.iterdir())
    segment = used.open_segment(path, SIZE, create=True, mapped=mapped)
    assert bytes(segment.read(0, SIZE)) == bytes(SIZE)
    segment.close()


@pytest.mark.parametrize("beneath", [True, False])
def test_somebody_elses_file_stays(tmp_path: Path, beneath: bool) -> None:
    disk = Greedy()
    used = below(disk, tmp_path) if beneath else disk
    (tmp_path / "queue").mkdir()
    file = tmp_path / "queue" / "0"
    file.write_bytes(b"theirs")
    with pytest.raises(StorageError):
        used.open_segment(str(file), SIZE, create=True)
    assert file.read_bytes() == b"theirs"


@pytest.mark.parametrize("beneath", [True, False])
def test_a_directory_whose_name_could_not_be_made_durable_is_made_again(tmp_path: Path, beneath: bool) -> None:
    """Who finds it there takes it for durable."""
    disk = Greedy(Operation.SYNC_DIRECTORY)
    used = below(disk, tmp_path) if beneath else disk
    directory = tmp_path / "queue" / "0"
    used.mkdirs(str(directory.parent))
    with few_descriptors(disk):
        disk.hungry = True
        with pytest.raises(OutOfDescriptors):
            used.mkdirs(str(directory))
        disk.give_back()
    assert not directory.exists()
    used.mkdirs(str(directory))
    assert directory.is_dir()


@pytest.mark.parametrize("left", range(7))
def test_a_lack_lasts_until_a_segment_can_be_made(tmp_path: Path, left: int) -> None:
    """One that is free is not enough: its directory, the file, and the directory again to make the name durable."""
    disk = Greedy(Operation.LOCK)
    used = below(disk, tmp_path)
    directory = str(tmp_path / "queue")
    used.mkdirs(directory)
    with few_descriptors(disk):
        disk.hungry = True
        with disk.doing(Operation.LOCK, directory):
            pass
        for _ in range(left):
            os.close(disk.taken.pop())
        made = True
        try:
            used.open_segment(str(Path(directory) / "0"), SIZE, create=True).close()
        except OutOfDescriptors:
            made = False
        lacking = lasts(OutOfDescriptors("none"), used, directory, SIZE)
    assert lacking != made


_CHILD = """
import os, resource, sys, threading, time
from pathlib import Path
from random import Random
from engine.config import StoreConfig
from engine.errors import Shortage
from engine.format.message import Message
from engine.store import MessageStore
random, root, ROUNDS = Random(7), Path(sys.argv[1]), 15
config = StoreConfig(
    store_path_root_dir=root, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=400,
    max_hash_slot_num=100, max_index_num=200, flush_interval_commit_log=20, flush_interval_consume_queue=20,
    flush_consume_queue_thorough_interval=100,
)
store = MessageStore.open(config, cleaning=True)
usual = resource.getrlimit(resource.RLIMIT_NOFILE)
least = max(map(int, os.listdir("/proc/self/fd")))
over, stored, refused = threading.Event(), [0] * 3, [0] * 3
def puts(queue_id):
    while not over.is_set():
        error = store.put(Message("T", b"body", queue_id, {"KEYS": "k"})).error
        stored[queue_id] += error is None
        refused[queue_id] += error is not None
        if error is not None:
            assert isinstance(error, Shortage), error
            time.sleep(0.001)
def until(met):
    end = time.monotonic() + 120
    while not met() and all(thread.is_alive() for thread in threads):
        assert time.monotonic() < end, (stored, refused, store.errors)
        time.sleep(0.0005)
threads = [threading.Thread(target=puts, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for _ in range(ROUNDS):
    resource.setrlimit(resource.RLIMIT_NOFILE, (least + random.randrange(8), usual[1]))
    before, tries = sum(refused), sum(stored)
    until(lambda: sum(refused) >= before + 5 or sum(stored) >= tries + 300)
    resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    before = list(stored)
    until(lambda: all(now >= then + 10 for now, then in zip(stored, before)))
alive = all(thread.is_alive() for thread in threads)
over.set()
for thread in threads:
    thread.join()
wrong = [error for error in store.flags.errors if not isinstance(error, Shortage)]
assert alive and not wrong, wrong
assert sum(refused) >= ROUNDS, (stored, refused)
assert store.wait_dispatched(120_000), store.errors
assert [store.max_offset("T", number) for number in range(3)] == stored
store.close()
"""


def test_a_store_goes_on_after_any_lack_of_descriptors(tmp_path: Path) -> None:
    """All threads of a store open and make files, and the next descriptor is refused to any of them, at any place."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
