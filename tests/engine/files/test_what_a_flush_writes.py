"""A flush writes what is new, not the large folios around it: held against what the system says it has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.mapped_file import MappedFile
from engine.files.queue import MappedFileQueue
from engine.files.segment import PAGE
from engine.format.names import segment_name

SIZE = 48 << 20
HALF = SIZE // 2
SAID = Path("/proc/self/io")


def written() -> int:
    """Bytes that this process has had written."""
    if not SAID.exists():
        pytest.skip("this system doesn't say what a process writes")
    said = dict(line.split(": ") for line in SAID.read_text().splitlines())
    return int(said["write_bytes"])


def append_and_flush(file: MappedFile, end: int) -> None:
    page = bytes([1]) * PAGE
    while file.wrote_position < end:
        file.append(page)
        file.flush()


def test_a_new_file(tmp_path: Path) -> None:
    file = MappedFile.create(Disk(), str(tmp_path / segment_name(0)), SIZE, single_pages=True)
    before = written()
    append_and_flush(file, SIZE)
    assert written() - before < 3 * SIZE
    file.destroy(0)


def test_the_last_file_of_a_store_that_is_opened_again(tmp_path: Path) -> None:
    file = MappedFile.create(Disk(), str(tmp_path / segment_name(0)), SIZE, single_pages=True)
    append_and_flush(file, HALF)
    file.shutdown(0)
    queue = MappedFileQueue(Disk(), str(tmp_path), SIZE, single_pages=True)
    queue.load()
    queue.truncate_dirty(HALF)
    last = queue.last()
    assert last is not None
    before = written()
    append_and_flush(last, SIZE)
    assert written() - before < 3 * HALF
    queue.shutdown(0)


def advised(path: Path) -> list[bool]:
    """Of each map of the file, in order: whether the system gets its pages one by one ("rr")."""
    maps = Path("/proc/self/smaps")
    if not maps.exists():
        pytest.skip("this system doesn't say what it does with maps")
    found, ours = [], False
    for line in maps.read_text().splitlines():
        head = line.split()[0]
        if not head.endswith(":"):
            ours = line.endswith(str(path))
        elif ours and head == "VmFlags:":
            found.append("rr" in line.split())
    return found


def test_until_it_is_full_and_flushed(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    file = MappedFile.create(Disk(), str(path), 4 * PAGE, single_pages=True)
    for part in range(3):
        assert advised(path) == [True]
        file.append(bytes([part]) * PAGE)
        file.flush()
    file.append(bytes([3]) * PAGE)
    assert advised(path) == [True]
    file.flush()
    assert advised(path) == [False]
    file.destroy(0)


def test_files_that_are_not_flushed_bit_by_bit_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    file = MappedFile.create(Disk(), str(path), 4 * PAGE)
    assert advised(path) == [False]
    file.destroy(0)


@pytest.mark.parametrize(("step", "maps"), [(None, [False, True]), (PAGE, [True])])
def test_only_a_log_is_split_where_it_goes_on(tmp_path: Path, step: int | None, maps: list[bool]) -> None:
    """Who catches up reads a log from its beginning; of queue files there are too many for two maps each."""
    path = tmp_path / segment_name(0)
    file = MappedFile.create(Disk(), str(path), 4 * PAGE)
    file.shutdown(0)
    queue = MappedFileQueue(Disk(), str(tmp_path), 4 * PAGE, single_pages=True, allocate_step=step)
    queue.load()
    queue.truncate_dirty(2 * PAGE)
    assert advised(path) == maps
    queue.shutdown(0)
