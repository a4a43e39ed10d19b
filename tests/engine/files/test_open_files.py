"""Of all queue files of a store a bounded number is mapped, none has a descriptor, and nobody notices."""

from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.errors import OutOfDescriptors, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.mapped_file import MappedFile
from engine.files.open_files import DEFAULT_MAPS, OpenFiles, most_maps
from engine.files.operations import Operation
from engine.files.queue import MappedFileQueue

SIZE = 8192


def descriptors() -> int:
    gc.collect()  # of tests before this one, what still holds some
    return len(os.listdir("/proc/self/fd"))


def maps_of(directory: Path) -> int:
    return sum(f"{directory}/" in line for line in Path("/proc/self/maps").read_text().splitlines())


def queues(directory: Path, count: int, most: int, disk: Disk | None = None) -> tuple[OpenFiles, list[MappedFileQueue]]:
    open_files, used = OpenFiles(most), disk or Disk()
    made = [
        MappedFileQueue(used, str(directory / str(number)), SIZE, allocate_step=4096, open_files=open_files)
        for number in range(count)
    ]
    return open_files, made


def append(queue: MappedFileQueue, data: bytes) -> None:
    file = queue.last(create=True)
    assert file is not None
    assert file.append(data) is not None


def content(queue: MappedFileQueue) -> bytes:
    file = queue.first()
    assert file is not None
    selected = file.select(0)
    assert selected is not None
    with selected:
        return bytes(selected.view)


def test_a_map_has_no_descriptor(tmp_path: Path) -> None:
    before = descriptors()
    files = [MappedFile.create(Disk(), str(tmp_path / f"{number:020}"), SIZE) for number in range(20)]
    assert descriptors() == before
    assert maps_of(tmp_path) == 20
    for file in files:
        file.append(b"written")
        file.flush()
        file.shutdown(0)
    assert maps_of(tmp_path) == 0


def test_a_view_outlives_the_file(tmp_path: Path) -> None:
    """Its memory goes with the last view, and not before."""
    file = MappedFile.create(Disk(), str(tmp_path / f"{0:020}"), SIZE)
    file.append(b"kept")
    view = file.view(0, 4)
    part = view[1:3]
    file.destroy(0)
    assert (bytes(view), bytes(part)) == (b"kept", b"ep")
    del view
    assert maps_of(tmp_path) == 1
    del part
    assert maps_of(tmp_path) == 0


def test_as_many_are_mapped_as_may_be(tmp_path: Path) -> None:
    open_files, made = queues(tmp_path, 40, most=8)
    before = descriptors()
    for turn in range(3):
        for number, queue in enumerate(made):
            append(queue, b"%d:%d " % (turn, number))
            assert maps_of(tmp_path) <= 9
    assert descriptors() == before
    assert len(open_files) <= 8
    for number, queue in enumerate(made):
        assert content(queue) == b"".join(b"%d:%d " % (turn, number) for turn in range(3))
        assert maps_of(tmp_path) <= 9


def test_what_is_used_all_the_time_stays(tmp_path: Path) -> None:
    _, made = queues(tmp_path, 30, most=6)
    append(made[0], b"x")
    file = made[0].first()
    for queue in made[1:]:
        append(made[0], b"x")
        assert file is not None
        assert file.mapped
        append(queue, b"y")
    assert f"{tmp_path}/0/" in Path("/proc/self/maps").read_text()


def test_what_gives_its_map_up_is_on_disk(tmp_path: Path) -> None:
    """A failed write-back of a file that nobody has open could be forgotten by the system."""
    disk = FaultyDisk(None)
    synced: list[str] = []
    disk.fail_when(lambda doing: doing.operation is Operation.SYNC and synced.append(doing.path) is not None, errno.EIO)
    _, made = queues(tmp_path, 4, most=2, disk=disk)
    for queue in made:
        append(queue, b"a unit")
    synced.clear()
    for queue in made:
        append(queue, b"another")
    assert len(set(synced)) >= 2


def test_a_file_that_cannot_be_flushed_keeps_its_map(tmp_path: Path) -> None:
    """So that its own flush tells of it."""
    disk = FaultyDisk(None)
    _, made = queues(tmp_path, 6, most=2, disk=disk)
    append(made[0], b"a unit")
    bad = made[0].first()
    assert bad is not None
    disk.fail_when(lambda doing: doing.operation is Operation.SYNC and doing.path == bad.path, errno.EIO)
    for queue in made[1:]:
        append(queue, b"a unit")
    assert f"{tmp_path}/0/" in Path("/proc/self/maps").read_text()
    with pytest.raises(StorageError):
        made[0].flush(0)


def test_readers_and_the_appender_while_maps_come_and_go(tmp_path: Path) -> None:
    _, made = queues(tmp_path, 12, most=3)
    for queue in made:
        append(queue, b"0000")
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            for queue in made:
                text = content(queue)
                units = [text[at : at + 4] for at in range(0, len(text), 4)]
                if units != [b"%04d" % number for number in range(len(units))]:
                    wrong.append(text)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 300):
        for queue in made:
            append(queue, b"%04d" % number)
            if number % 50 == 0:
                queue.flush(0)
    ended.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert {content(queue) for queue in made} == {b"".join(b"%04d" % number for number in range(300))}


def test_a_file_that_was_replaced_meanwhile_is_not_mapped_again(tmp_path: Path) -> None:
    _, made = queues(tmp_path, 3, most=1)
    append(made[0], b"ours")
    for queue in made[1:]:
        append(queue, b"others")
    file = made[0].first()
    assert file is not None
    another = tmp_path / "another"
    another.write_bytes(bytes(SIZE))
    another.replace(file.path)
    with pytest.raises(StorageError, match="replaced"):
        file.select(0)


@pytest.mark.parametrize("mapped", [True, False])
def test_no_descriptors_left_is_an_error_of_its_own_that_passes(tmp_path: Path, mapped: bool) -> None:
    disk = FaultyDisk(None)
    disk.mapped = mapped
    _, made = queues(tmp_path, 3, most=1, disk=disk)
    for queue in made:
        append(queue, b"unit")
    short = True
    disk.fail_when(lambda doing: short and doing.operation is Operation.OPEN, errno.EMFILE)
    with pytest.raises(OutOfDescriptors) as raised:
        append(made[0], b"more")
    assert "ulimit -n" in str(raised.value)
    short = False
    append(made[0], b"more")
    assert content(made[0]) == b"unitmore"
    while not made[0].flush(0):
        pass


def test_without_maps_no_descriptor_is_kept_either(tmp_path: Path) -> None:
    before = descriptors()
    _, made = queues(tmp_path, 30, most=4, disk=Disk(mapped=False))
    for queue in made:
        append(queue, b"unit")
    assert descriptors() == before
    assert {content(queue) for queue in made} == {b"unit"}


def test_how_many_the_system_allows() -> None:
    assert most_maps() > DEFAULT_MAPS // 4
    assert OpenFiles().most == most_maps()


_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from pathlib import Path
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message
from engine.store import MessageStore
root = Path(sys.argv[1])
config = StoreConfig(
    store_path_root_dir=root, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=4000,
    max_hash_slot_num=1000, max_index_num=4000,
)
with MessageStore.open(config) as store:
    for turn in range(2):
        for number in range(500):
            assert store.put(Message(f"T{number}", b"body")).status.value == "PUT_OK"
    assert store.wait_dispatched(60_000)
    assert all(store.max_offset(f"T{number}", 0) == 2 for number in range(500))
with MessageStore.open(config) as store:
    for number in range(500):
        assert store.get("T%d" % number, 0, 0).messages
    assert store.put(Message("T7", b"body")).status.value == "PUT_OK"
"""


def test_500_queues_on_200_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 200
