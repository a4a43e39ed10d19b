"""A flush writes what is new, not the large folios around it: held against what the system says it has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.listing import segment_name
from engine.files.mapped_file import MappedFile
from engine.files.queue import MappedFileQueue
from engine.files.segment import PAGE

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
