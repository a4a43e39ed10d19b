"""The rows of short queues that are held in memory are those that their files give."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.files.disk import Disk
from engine.files.listing import SegmentFile
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE, QueueUnit
from engine.inspect.store.queue_rows import HeldRows, QueueRows, is_real
from engine.inspect.store.survey import QueueFiles
from engine.log.derive import TopicQueue

UNITS = st.sampled_from([PRE_BLANK, QueueUnit(0, 90, 1), QueueUnit(1 << 40, 1, -7), QueueUnit(5, 0, 0)])
CONTENTS = st.binary(max_size=70) | st.lists(UNITS, max_size=4).map(lambda units: b"".join(u.encode() for u in units))
FILES = st.lists(st.tuples(CONTENTS, st.integers(0, 90).map(bytes)).map(b"".join), min_size=1, max_size=2)
QUEUE_OFFSETS = st.integers(0, 12)


def rows_of(place: Path, contents: list[bytes], first: int, held: HeldRows | None) -> QueueRows:
    files: list[SegmentFile] = []
    for number, content in enumerate(contents, 1):
        # Files have whole rows, but the last one.
        size = len(content) if number == len(contents) else -(-len(content) // UNIT_SIZE) * UNIT_SIZE
        path = place / f"{first:020d}"
        path.write_bytes(content.ljust(size, b"\0"))
        files.append(SegmentFile(str(path), first, size, 0))
        first += size
    return QueueRows(Disk(), QueueFiles(TopicQueue("T", 0), str(place), tuple(files)), held)


@given(
    FILES,
    st.integers(0, 3).map(UNIT_SIZE.__mul__),
    st.lists(st.tuples(QUEUE_OFFSETS, QUEUE_OFFSETS), max_size=8),
    st.booleans(),
)
def test_held_rows_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[bytes],
    first: int,
    ranges: list[tuple[int, int]],
    extent_first: bool,
) -> None:
    place = tmp_path_factory.mktemp("queue")
    plain, holding = (rows_of(place, contents, first, held) for held in (None, HeldRows()))
    if extent_first:
        assert holding.extent == plain.extent
    for start, length in ranges:
        low, high = plain.first + start, plain.first + start + length
        there = plain.read(low, high)
        assert holding.read(low, high).tobytes() == there.tobytes()
        for units in (there.tobytes(), there.tobytes()[:-1] + b"\1"):
            assert holding.holds(low, memoryview(units)) == plain.holds(low, memoryview(units))
        for offset, row in enumerate(there, low):
            (real,) = is_real(there[offset - low : offset - low + 1])
            for rows in (plain, holding):
                assert rows.place_of(offset) == (row["physical_offset"], row["size"])
                assert rows.message_at(offset) == (rows.place_of(offset) if real else None)
    assert holding.extent == plain.extent


def test_what_is_held_is_bounded(tmp_path: Path) -> None:
    held = HeldRows(left=3 * UNIT_SIZE)
    for number, units in enumerate((2, 2, 1)):
        place = tmp_path / str(number)
        place.mkdir()
        rows = rows_of(place, [b"\1" * units * UNIT_SIZE + bytes(40)], 0, held)
        assert rows.extent == units
        assert rows.read(0, units).tobytes() == b"\1" * units * UNIT_SIZE
    assert held.left == 0


def test_the_file_of_a_held_queue_is_opened_once(tmp_path: Path) -> None:
    class Counted(Disk):
        opened = 0

        def open_reader(self, path: str):
            self.opened += 1
            return super().open_reader(path)

    disk = Counted()
    file = tmp_path / ("0" * 20)
    file.write_bytes(b"\1" * 100)
    files = QueueFiles(TopicQueue("T", 0), str(tmp_path), (SegmentFile(str(file), 0, 100, 0),))
    rows = QueueRows(disk, files, HeldRows())
    assert rows.holds(1, memoryview(b"\1" * 40))
    assert len(rows.read(0, 5)) == rows.extent == 5
    assert disk.opened == 1
