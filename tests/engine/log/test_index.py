"""Index files and their service: Apache's bytes and answers again, batches and single keys, damage, cuts."""

from __future__ import annotations

import errno
import mmap
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskFull, InvalidArgument, StorageError, WrongFileSize
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.mapped_file import MappedFile
from engine.files.operations import Operation
from engine.format.index_file import ENTRY_SIZE, HEADER_SIZE, IndexHeader, IndexLayout
from engine.log import index_file
from engine.log.index_file import IndexFile
from engine.log.index_reader import ClosedIndexFile, IndexCheck, IndexFault
from engine.log.kernels import index as index_kernels
from engine.log.kernels.index import Linker
from tests.engine.log.indexes import FOREVER, LAYOUT, START, Place, keys_of, put_rows, some_rows


@pytest.fixture(params=["map", "channel", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        request.getfixturevalue("fs").create_dir("/store")
        return Place(Disk(), "/store")
    return Place(Disk(mapped=request.param == "map"), str(request.getfixturevalue("tmp_path")))


@pytest.fixture
def real(tmp_path: Path) -> Place:
    return Place(Disk(), str(tmp_path))


# --- one file ---------------------------------------------------------------------------------------------------------


def rows_strategy(most: int = 60) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    hashes = st.one_of(st.integers(0, 12), st.integers(0, 2**31 - 1))
    row = st.tuples(hashes, st.integers(0, 3), st.integers(-1500, 60_000_000))

    def chained(parts: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        offset, rows = 50, []
        for key_hash, step, time in parts:
            offset += step * 91
            rows.append((key_hash, offset, START + time))
        return rows

    return st.lists(row, max_size=most).map(chained)


@given(
    rows=rows_strategy(), cuts=st.lists(st.integers(0, 60), max_size=4), previous=st.sampled_from([(0, 0), (40, START)])
)
def test_batches_leave_what_one_by_one_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int]],
    cuts: list[int],
    previous: tuple[int, int],
    beside: ThreadPoolExecutor,
) -> None:
    root = tmp_path_factory.mktemp("index")
    seen = []
    bounds = [0, *sorted(cuts), len(rows)]
    ways = (
        ("batch", Disk()),
        ("kernel", Disk()),
        ("gathered", Disk()),
        ("beside", Disk()),
        ("single", Disk()),
        ("channel", Disk(mapped=False)),
    )
    for way, disk in ways:
        file = IndexFile.create(disk, str(root / f"{len(seen)}"), LAYOUT, *previous)
        if way in {"gathered", "beside"}:
            gather(file, beside if way == "beside" else None)
        taken = 0
        if way == "single":
            taken = sum(file.put_few([a], [b], [c]) for a, b, c in rows)
        else:
            for start, stop in pairwise(bounds):
                keys = keys_of(rows[start:stop])
                if len(keys) and file.header.index_count < LAYOUT.entries:
                    if way in {"batch", "kernel", "gathered", "beside"}:  # however few
                        room = LAYOUT.entries - file.header.index_count
                        with pytest.MonkeyPatch.context() as patch:
                            patch.setattr(index_file, "_MANY", 1 if way == "kernel" else 1 << 30)
                            file._linker = Linker()
                            file._put_many(
                                keys.key_hash[:room], keys.physical_offset[:room], keys.store_timestamp[:room]
                            )
                        taken += min(room, len(keys))
                    else:
                        taken += put_rows(file, rows[start:stop])
        assert taken == min(len(rows), LAYOUT.entries - 1)
        assert file.is_full == (taken == LAYOUT.entries - 1)
        file.flush()
        assert file.verify() == IndexCheck(taken)
        header = file.header
        file.shutdown()
        again = IndexFile.open(disk, file.path, LAYOUT)
        assert again.header == header
        again.shutdown()
        seen.append(Path(file.path).read_bytes())
    assert len(set(seen)) == 1


@pytest.fixture(scope="module")
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def gather(file: IndexFile, beside: ThreadPoolExecutor | None = None) -> None:
    """However few keys are to come, and whatever kernels are loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_WORTH_GATHERING", 0)
        file._linker = Linker()
        file.gather_slots(0, beside)
    assert file._gathered is not None


def test_many_keys_by_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: ThreadPoolExecutor) -> None:
    random = np.random.default_rng(7)
    layout, many = IndexLayout(5_000, 90_000), 100_000
    hashes = random.integers(0, 2**31, many).astype(np.int32)
    hashes[::3] %= 40  # long chains beside short ones
    offsets = np.cumsum(random.integers(0, 300, many))
    stored = START + random.integers(-5_000, 10_000_000, many)
    seen = []
    for least, gathers, thread in ((1, False, None), (1 << 30, False, None), (1, True, None), (1, True, beside)):
        monkeypatch.setattr(index_file, "_MANY", least)
        file = IndexFile.create(Disk(), str(tmp_path / f"{len(seen)}"), layout, 7, START - 1)
        file._linker = Linker()
        if gathers:
            gather(file, thread)
        taken = 0
        for start, end in pairwise([0, 3, 20, 17_000, 60_000, many]):
            while start < end and (put := file.put_keys(hashes[start:end], offsets[start:end], stored[start:end])):
                taken, start = taken + put, start + put  # noqa: PLW2901 - a put takes so many at a time
        assert taken == layout.entries - 1
        file.flush()
        assert file.verify() == IndexCheck(taken)
        file.shutdown()
        seen.append(Path(file.path).read_bytes())
    assert len(set(seen)) == 1


def test_keys_one_by_one_end_the_gathering(real: Place) -> None:
    rows = some_rows(30)
    file = real.file()
    gather(file)
    keys = keys_of(rows[:20])
    file._put_many(keys.key_hash, keys.physical_offset, keys.store_timestamp)
    fault = file.verify().fault
    assert fault is not None  # as a writer that is killed now leaves it
    assert file.put_few(*(list(column) for column in zip(*rows[20:], strict=True))) == 10
    assert file.verify() == IndexCheck(30)
    again = Place(real.disk, f"{real.root}/again")
    Path(again.root).mkdir()
    at_once = again.file()
    assert put_rows(at_once, rows) == 30
    for one in (file, at_once):
        one.flush()
        one.shutdown()
    assert Path(real.path).read_bytes() == Path(again.path).read_bytes()


def test_a_file_whose_slots_are_gathered_is_rewound(real: Place) -> None:
    file = real.file()
    gather(file)
    keys = keys_of(some_rows(20))
    file._put_many(keys.key_hash, keys.physical_offset, keys.store_timestamp)
    file.rewind(10)
    file.flush()
    assert file.verify() == IndexCheck(10)
    file.shutdown()


def no_memory(*_: object, **__: object) -> mmap.mmap:
    raise OSError(errno.ENOMEM, "no memory")


class WithoutLargePages(mmap.mmap):
    def madvise(self, *_: object) -> None:
        raise OSError(errno.EINVAL, "invalid argument")


def test_a_rebuild_of_gathered_slots_that_fails_is_made_by_the_flush(
    real: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put fails, and so does what makes the slots of the entries before it again; the flush says so, or does it."""
    file = real.file()
    gather(file)
    keys = keys_of(some_rows(30))
    file._put_many(keys.key_hash[:20], keys.physical_offset[:20], keys.store_timestamp[:20])
    with monkeypatch.context() as patch:
        patch.setattr(index_kernels.mmap, "mmap", no_memory)
        patch.setattr(IndexFile, "_write_entries", no_memory)
        with pytest.raises(OSError, match="no memory"):
            file._put_many(keys.key_hash[20:], keys.physical_offset[20:], keys.store_timestamp[20:])
        with pytest.raises(OSError, match="no memory"):
            file.flush()
    file._put_many(keys.key_hash[20:], keys.physical_offset[20:], keys.store_timestamp[20:])
    assert file.flush()
    assert file.verify() == IndexCheck(30)
    file.shutdown()


@pytest.mark.parametrize("last", [False, True])
def test_a_write_beside_that_fails_is_told_by_the_next_put_or_the_flush(
    last: bool, real: Place, monkeypatch: pytest.MonkeyPatch, beside: ThreadPoolExecutor
) -> None:
    """And the keys that it was to write are put again."""
    rows = some_rows(36)
    file = real.file()
    gather(file, beside)

    def put(start: int) -> None:
        keys = keys_of(rows[start : start + 12])
        file._put_many(keys.key_hash, keys.physical_offset, keys.store_timestamp)

    put(0)
    file._gathered.settle()  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "write_many_at", no_memory)
        put(12)
        with pytest.raises(OSError, match="no memory"):
            file.flush() if last else put(24)
    assert file.header.index_count == 13
    put(12)
    put(24)
    assert file.flush()
    assert file.verify() == IndexCheck(36)
    file.shutdown()
    other = Place(real.disk, f"{real.root}/other")
    Path(other.root).mkdir()
    at_once = other.file()
    assert put_rows(at_once, rows) == 36
    at_once.shutdown()
    assert Path(real.path).read_bytes() == Path(other.path).read_bytes()


def test_slots_are_gathered_where_it_is_worth_it(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = real.file()
    file._linker = Linker()
    file.gather_slots(index_file._WORTH_GATHERING - 1)
    assert file._gathered is None
    monkeypatch.setattr(index_file, "_MOST_GATHERED", LAYOUT.slots * 4 - 1)
    file.gather_slots(index_file._WORTH_GATHERING)
    assert file._gathered is None
    monkeypatch.setattr(index_file, "_MOST_GATHERED", LAYOUT.slots * 4)
    monkeypatch.setattr(index_kernels.mmap, "mmap", no_memory)
    file.gather_slots(index_file._WORTH_GATHERING)
    assert file._gathered is None
    monkeypatch.setattr(index_kernels.mmap, "mmap", WithoutLargePages)
    file.gather_slots(index_file._WORTH_GATHERING)
    assert file._gathered is not None
    file.flush()
    assert put_rows(file, some_rows(1)) == 1
    file.gather_slots(index_file._WORTH_GATHERING)
    assert file._gathered is None
    file.shutdown()


def test_the_header_of_a_file_behind_another(place: Place) -> None:
    file = place.file(5000, START)
    assert file.header == IndexHeader(START, START, 5000, 5000)
    assert place.disk.read_file(place.path, HEADER_SIZE)[32:] == bytes(8)  # Apache counts with the first key only
    put_rows(file, [(3, 6000, START + 5000), (4, 7000, START + 9999)])
    assert file.header == IndexHeader(START + 5000, START + 9999, 6000, 7000, 2, 3)
    assert file.entries()["time_diff"].tolist() == [5, 4]


def test_a_first_file_begins_with_nothing(place: Place) -> None:
    file = place.file()
    assert file.header == IndexHeader()
    assert file.verify() == IndexCheck(0)
    put_rows(file, [(3, 0, START), (10, 91, START + 2_999)])
    assert file.entries().tolist() == [(3, 0, 0, 0), (10, 91, 2, 1)]
    assert file.slots().tolist() == [0, 0, 0, 2, 0, 0, 0]
    assert file.header == IndexHeader(START, START + 2_999, 0, 91, 1, 3)


def test_a_slot_that_cannot_be_counts_as_empty(real: Place) -> None:
    for single in (True, False):
        file = IndexFile.create(real.disk, f"{real.root}/{single:d}", LAYOUT)
        put_rows(file, some_rows(5))
        for slot, number in enumerate((-5, 6, 7, 99, 2, 0, 1)):  # 6 is the number of the next entry: Apache takes it
            file._write(LAYOUT.slot_position(slot), number.to_bytes(4, "big", signed=True))
        used = file.header.hash_slot_count
        rows = [(slot, 900, START) for slot in (0, 1, 2, 3, 4, 5, 6, 0, 1)]
        if single:
            for row in rows:
                file.put_few(*([one] for one in row))
        else:
            keys = keys_of(rows)
            file._put_many(keys.key_hash, keys.physical_offset, keys.store_timestamp)
        assert file.entries(6)["previous"].tolist() == [0, 6, 7, 0, 2, 0, 1, 6, 7]
        assert file.header.hash_slot_count == used + 3


def test_queries(place: Place) -> None:
    file = place.file()
    rows = some_rows(30)
    put_rows(file, rows)
    for key_hash in range(12):
        expected = tuple(offset for found, offset, _ in reversed(rows) if found == key_hash)
        assert file.query(key_hash, *FOREVER, 64).offsets == expected
        assert file.query(key_hash, *FOREVER, 2).offsets == expected[:2]
        assert file.query(key_hash, *FOREVER, 0).offsets == ()
        odd = [offset for offset in expected if offset // 100 % 2]
        assert file.query(key_hash, *FOREVER, 1, accept=lambda offset: offset // 100 % 2 == 1).offsets == tuple(odd[:1])


@given(rows=rows_strategy(39), begin=st.integers(-2000, 60_000_000), length=st.integers(0, 30_000_000))
def test_a_query_by_time_misses_no_message(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], begin: int, length: int
) -> None:
    rows = [(a, b, c) for (a, b, _), c in zip(rows, sorted(c for _, _, c in rows), strict=True)]
    file = IndexFile.create(Disk(), str(tmp_path_factory.mktemp("i") / "1"), LAYOUT, 10, START - 7_654)
    put_rows(file, rows)
    low, high = START + begin, START + begin + length
    for key_hash in {row[0] for row in rows}:
        found = file.query(key_hash, low, high, 64).offsets
        mine = [(offset, time) for one, offset, time in reversed(rows) if one == key_hash]
        assert {offset for offset, time in mine if low <= time <= high} <= set(found)
        assert set(found) <= {offset for offset, time in mine if low - 999 <= time <= high + 999}
    file.shutdown()


def test_a_chain_that_runs_in_a_circle_ends(place: Place) -> None:
    file = place.file()
    put_rows(file, [(3, n * 100, START) for n in range(10)])
    for number, previous in ((4, 8), (4, 4), (4, -1), (4, 39), (4, 2**31 - 1)):
        position = LAYOUT.entry_position(number) + ENTRY_SIZE - 4
        file._write(position, previous.to_bytes(4, "big", signed=True))
        found = file.query(3, *FOREVER, 64)
        assert found.offsets == tuple(n * 100 for n in range(9, 2, -1))
        assert found.finding is not None
        assert (found.finding.path, found.finding.offset) == (file.path, LAYOUT.entry_position(number))
        assert file.verify() == IndexCheck(3, 4, IndexFault.PREVIOUS)
    for slot in (-1, 11, 500):
        file._write(LAYOUT.slot_position(3), slot.to_bytes(4, "big", signed=True))
        found = file.query(3, *FOREVER, 64)
        assert found.offsets == ()
        assert found.finding is not None
        assert found.finding.offset == LAYOUT.slot_position(3)


@given(rows=rows_strategy(39), data=st.data())
def test_damage_in_what_chains_are_made_of_is_found(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    file = IndexFile.create(Disk(), str(tmp_path_factory.mktemp("i") / "1"), LAYOUT)
    rows = rows or [(1, 1, START)]
    put_rows(file, rows)
    number = data.draw(st.integers(1, len(rows)))
    slot = data.draw(st.integers(0, LAYOUT.slots - 1))
    places = {
        "previous": LAYOUT.entry_position(number) + 16,
        "slot": LAYOUT.slot_position(slot),
        "count": 36,
        "used": 32,
        "end": 24,
        "begin": 16,
    }
    where = data.draw(st.sampled_from(sorted(places)))
    at = places[where] + data.draw(st.integers(0, 3))
    was = file._read(at, 1)[0]
    file._write(at, bytes([was ^ data.draw(st.integers(1, 255))]))
    path = Path(file.path)
    with ClosedIndexFile(Disk(), str(path), LAYOUT) as damaged:
        check = damaged.verify()
        assert check.fault is not None
        assert check.sound <= LAYOUT.entries - 1
        if where == "previous":
            assert (check.sound, check.entry, check.fault) == (number - 1, number, IndexFault.PREVIOUS)
        for key_hash, _, _ in rows:  # and nothing hangs or fails
            damaged.query(key_hash, *FOREVER, 64)
    file.shutdown()


@given(data=st.binary(min_size=LAYOUT.file_size, max_size=LAYOUT.file_size))
def test_any_bytes_can_be_checked_and_asked(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("i") / "1"
    path.write_bytes(data)
    with ClosedIndexFile(Disk(), str(path), LAYOUT) as file:
        file.verify()
        file.entries_at_end()
        for key_hash in range(7):
            file.query(key_hash, *FOREVER, 64)


def test_other_damage_is_named(real: Place) -> None:
    def damaged(position: int, value: int, size: int = 4) -> IndexCheck:
        file = IndexFile.create(real.disk, real.path, LAYOUT)
        put_rows(file, some_rows(20))
        file._write(position, value.to_bytes(size, "big", signed=True))
        file.shutdown()
        with ClosedIndexFile(real.disk, real.path, LAYOUT) as closed:
            check = closed.verify()
        Path(real.path).unlink()
        return check

    entry = LAYOUT.entry_position(9)
    assert damaged(entry, -1) == IndexCheck(8, 9, IndexFault.HASH)
    assert damaged(entry + 4, 5, 8) == IndexCheck(8, 9, IndexFault.OFFSET)
    assert damaged(entry + 4, 1 << 40, 8) == IndexCheck(9, 10, IndexFault.OFFSET)
    assert damaged(entry + 12, -3) == IndexCheck(8, 9, IndexFault.TIME)
    assert damaged(36, 1 << 30) == IndexCheck(20, 21, IndexFault.OFFSET)
    assert damaged(36, 15).fault is IndexFault.SLOT
    assert damaged(0, START - 100_000, 8) == IndexCheck(20, None, IndexFault.HEADER)
    assert damaged(8, START, 8) == IndexCheck(20, None, IndexFault.HEADER)


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 2, 15, 30])
def test_rewound_is_as_if_never_put(place: Place, keep: int) -> None:
    file = place.file(40, START - 5)
    rows = some_rows(30, start=3)
    put_rows(file, rows)
    file.rewind(keep, previous=(40, START - 5), end_timestamp=rows[keep - 1][2] if keep else None)
    assert file.verify() == IndexCheck(keep)
    other = IndexFile.create(place.disk, f"{place.root}/2", LAYOUT, 40, START - 5)
    put_rows(other, rows[:keep])
    assert file.header == other.header
    if keep:
        assert place.disk.read_file(place.path) == place.disk.read_file(other.path)
    for one in (file, other):
        put_rows(one, rows[keep:])
        one.flush()
    assert place.disk.read_file(place.path) == place.disk.read_file(other.path)


def test_rewound_without_a_time(real: Place) -> None:
    file = real.file()
    put_rows(file, some_rows(30))
    file.rewind(11)
    assert START + 7000 <= file.header.end_timestamp < START + 8000
    assert file.verify() == IndexCheck(11)
    file.rewind(1)
    assert file.header.end_timestamp == START
    with pytest.raises(InvalidArgument):
        file.rewind(2)


@given(
    rows=rows_strategy(39),
    junk=st.binary(min_size=4 * 7, max_size=4 * 7),
    links=st.lists(st.integers(1, 39), max_size=5),
)
def test_rewind_mends_slots_and_links(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], junk: bytes, links: list[int]
) -> None:
    file = IndexFile.create(Disk(), str(tmp_path_factory.mktemp("i") / "1"), LAYOUT)
    put_rows(file, rows)
    before = bytes(file._read(0, LAYOUT.file_size)) if rows else None
    file._write(HEADER_SIZE, junk)
    for number in links:
        if number <= len(rows):
            file._write(LAYOUT.entry_position(number) + 16, b"\x7f\0\0\1")
    file.rewind(len(rows))
    assert file.verify() == IndexCheck(len(rows))
    if before is not None:
        assert bytes(file._read(0, LAYOUT.file_size)) == before
    file.shutdown()


def test_a_closed_file_of_another_size_is_refused(real: Place) -> None:
    real.file().shutdown()
    with pytest.raises(WrongFileSize):
        ClosedIndexFile(real.disk, real.path, IndexLayout(8, 40))
    with pytest.raises(StorageError):
        IndexFile.open(real.disk, real.path, IndexLayout(8, 400))


def test_a_held_file_is_deleted_when_it_is_let_go(real: Place) -> None:
    file = real.file()
    assert file.hold()
    assert not file.destroy(60_000)
    assert not file.hold()
    assert not file.flush()
    file.release()
    assert file.destroy(60_000)
    assert not Path(real.path).exists()


@pytest.mark.parametrize("gathers", [False, True])
def test_a_put_by_the_kernel_that_failed_is_as_if_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gathers: bool
) -> None:
    layout = IndexLayout(500, 3_000)
    hashes = (np.arange(2_000) * 7919 % 900).astype(np.int32)
    offsets, stored = np.arange(2_000) * 100, START + np.arange(2_000) * 1000
    seen = []
    for fails in (False, True):
        disk = FaultyDisk(None)
        file = IndexFile.create(disk, str(tmp_path / f"{len(seen)}"), layout)
        file._linker = Linker()
        if gathers:
            gather(file)
        assert file.put_keys(hashes[:600], offsets[:600], stored[:600]) == 600
        if fails:
            disk.fail_when(lambda doing: doing.operation is Operation.WRITE)
            monkeypatch.setitem(sys.modules, "engine.log.kernels.walk", sys)
            with pytest.raises(DiskFull):
                file.put_keys(hashes[600:1400], offsets[600:1400], stored[600:1400])
            disk.heal()
        assert file.put_keys(hashes[600:], offsets[600:], stored[600:]) == 1400
        file.flush()
        assert file.verify() == IndexCheck(2_000)
        file.shutdown()
        seen.append(Path(file.path).read_bytes())
    assert seen[0] == seen[1]
