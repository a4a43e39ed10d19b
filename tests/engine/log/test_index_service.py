"""The row of index files of an open store: order, names, keys put again, time, expiry, full disks, readers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("numba")

from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskFull, StorageError
from engine.files.disk import Disk
from engine.files.operations import Doing, Operation
from engine.format.hashing import index_key_hash
from engine.format.index_file import IndexLayout
from engine.log import index_file
from engine.log.index_file import IndexFile
from engine.log.index_service import IndexService
from engine.log.kernels.index import Linker
from tests.engine.log.indexes import FOREVER, LAYOUT, START, Place, keys_of, some_rows


@pytest.fixture(params=["map", "channel", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        request.getfixturevalue("fs").create_dir("/store")
        return Place(Disk(), "/store")
    return Place(Disk(mapped=request.param == "map"), str(request.getfixturevalue("tmp_path")))


@pytest.fixture
def real(tmp_path: Path) -> Place:
    return Place(Disk(), str(tmp_path))


def names_in(place: Place) -> list[str]:
    return list(place.disk.listdir(f"{place.root}/index"))


def answer(service: IndexService, key_hash: int) -> list[int]:
    """All offsets with a hash, newest first."""
    found = [file.query(key_hash, *FOREVER, 1000) for file in reversed(service.files)]
    return [offset for one in found for offset in one.offsets]


def test_no_keys_no_file(place: Place) -> None:
    service = place.service()
    service.open([])
    assert service.put(keys_of([])) == 0
    assert service.query("T", "k", *FOREVER, 10).offsets == ()
    assert (service.end_phy_offset, service.flush_all(), service.delete_expired(1 << 40)) == (0, 0, 0)
    assert not place.disk.exists(f"{place.root}/index")


@pytest.mark.parametrize("size", [1, 5, 30, 200])
def test_full_files_get_successors(place: Place, size: int) -> None:
    durable: list[int] = []
    service = place.service(clock=lambda: START, on_durable=durable.append)
    rows = some_rows(100)
    for start in range(0, 100, size):
        part = rows[start : start + size]
        assert service.put(keys_of(part)) == len(part)
    assert service.flush_all() == rows[99][2]
    names = names_in(place)
    assert len(names) == 3
    assert [int(name) - int(names[0]) for name in names] == [0, 1, 2]  # the clock stands still, the names don't
    assert sorted(durable) == [rows[38][2], rows[77][2]]
    assert [file.header.begin_phy_offset for file in service.files] == [0, 3900, 7800]
    for key_hash in range(12):
        assert answer(service, key_hash) == [offset for one, offset, _ in reversed(rows) if one == key_hash]
    assert service.end_phy_offset == 9900
    service.shutdown()
    again = place.service()
    again.open(names)
    assert again.put(keys_of(rows)) == 0
    assert again.put(keys_of(some_rows(3, start=100))) == 3
    again.shutdown()


def test_room_for_keys_is_in_a_file_that_is_there(place: Place) -> None:
    service = place.service(clock=lambda: START)
    service.open([])
    rows = some_rows(39)
    assert not service.has_room(1)
    service.put(keys_of(rows[:1]))
    at_once = service.files[-1]._file.mapped  # by call: no
    assert [service.has_room(keys) for keys in (1, 12, 13)] == [at_once, at_once, False]
    service.put(keys_of(rows[1:28]))
    assert [service.has_room(keys) for keys in (11, 12)] == [at_once, False]
    service.shutdown()
    again = place.service()
    again.open(names_in(place))
    assert not again.has_room(1)  # its blocks are not known
    again.put(keys_of(rows[28:29]))
    assert again.has_room(10) == at_once
    again.put(keys_of(rows[29:]))
    assert not again.has_room(1)
    again.shutdown()


def test_new_files_gather_their_slots_where_many_keys_are_expected(
    real: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_WORTH_GATHERING", 100)
    monkeypatch.setattr(IndexFile, "_linker_if_worth", lambda _: Linker())
    rows = some_rows(100)
    seen = []
    beside = ThreadPoolExecutor(1)
    for expected, thread in ((99, None), (100, None), (100, beside)):
        service = Place(real.disk, f"{real.root}/{len(seen)}").service(clock=lambda: START)
        service.expect_keys(expected, thread)
        for start in range(0, 100, 20):
            assert service.put(keys_of(rows[start : start + 20])) == 20
        assert (service.files[-1]._gathered is not None) == (expected == 100)
        service.flush_all()
        assert [file.verify().fault for file in service.files] == [None] * 3
        service.put(keys_of(some_rows(40, start=100)))
        assert service.files[-1]._gathered is None  # what comes after the flush was not expected
        service.shutdown()
        seen.append([Path(file.path).read_bytes() for file in service.files])
    beside.shutdown()
    assert seen[0] == seen[1] == seen[2]


def test_names_ascend_when_the_clock_goes_back(place: Place) -> None:
    times = iter([START, START - 3_600_000, START + 10_000_000])
    service = place.service(clock=lambda: next(times))
    service.put(keys_of(some_rows(100)))
    assert [Path(file.path).name for file in service.files] == sorted(names_in(place))
    service.shutdown()


def test_a_new_file_without_keys_knows_the_message_before_it(place: Place) -> None:
    service = place.service()
    service.put(keys_of(some_rows(38)))
    service.put_message([1, 2, 3], 3800, START + 99_000)
    service.shutdown()
    names = names_in(place)
    file = IndexFile.open(place.disk, f"{place.root}/index/{names[1]}", LAYOUT)
    file.rewind(0, previous=(3800, START + 99_000))
    file.shutdown()
    service = place.service()
    service.open(names)
    assert service.put_message([1, 2, 3], 3800, START + 99_000) == 2
    assert service.files[1].entries()["key_hash"].tolist() == [2, 3]
    service.shutdown()


messages = st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=40)


@given(log=messages, again=st.integers(0, 40), cut=st.integers(0, 100), small=st.booleans())
def test_no_key_twice_and_none_lost(
    tmp_path_factory: pytest.TempPathFactory, log: list[list[int]], again: int, cut: int, small: bool
) -> None:
    """A store dies while it puts a message's keys; the log is put again from any message before it."""
    place = Place(Disk(), str(tmp_path_factory.mktemp("i")))
    rows = [(key, 50 + n * 100, START + n * 700) for n, found in enumerate(log) for key in found]
    torn = rows[:cut]
    service = place.service()
    service.put(keys_of(torn))
    service.shutdown()
    service = place.service()
    service.open(names_in(place) if torn else [])
    until = torn[-1][1] if torn else 0
    start = min(50 + again * 100, until)
    left = [row for row in rows if row[1] >= start]
    if small:
        for offset in sorted({row[1] for row in left}):
            hashes = [row[0] for row in left if row[1] == offset]
            service.put_message(hashes, offset, START + (offset - 50) // 100 * 700)
    else:
        service.put(keys_of(left))
    assert service.put(keys_of(rows)) == 0
    for key in range(13):
        assert answer(service, key) == [row[1] for row in reversed(rows) if row[0] == key]
    assert [file.verify().fault for file in service.files] == [None] * len(service.files)
    service.shutdown()
    # and it is the same as an index that was made without a crash
    straight = Place(Disk(), str(tmp_path_factory.mktemp("i")))
    other = straight.service()
    other.put(keys_of(rows))
    other.shutdown()
    bytes_of = lambda one: [Path(file.path).read_bytes() for file in one.files]  # noqa: E731
    assert bytes_of(service) == bytes_of(other)


def test_the_keys_of_a_message_may_come_in_parts(real: Place) -> None:
    service = real.service()
    assert service.put_message([1, 2], 100, START) == 2
    assert service.put_message([3], 100, START) == 1
    assert service.put_message([4, 1], 100, START) == 2
    for again in ([1], [1, 2, 3], [1, 2, 3, 4, 1]):
        assert service.put_message(again, 100, START) == 0
    assert service.put_message([1, 2, 3, 4, 1, 6], 100, START) == 1
    assert service.files[0].entries()["key_hash"].tolist() == [1, 2, 3, 4, 1, 6]
    service.shutdown()


@given(log=messages, cuts=st.lists(st.integers(0, 150), max_size=8))
def test_wherever_a_batch_is_cut(
    tmp_path_factory: pytest.TempPathFactory, log: list[list[int]], cuts: list[int]
) -> None:
    rows = [(key, n * 100, START + n * 700) for n, found in enumerate(log) for key in dict.fromkeys(found)]
    service = Place(Disk(), str(tmp_path_factory.mktemp("i"))).service()
    bounds = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, stop in pairwise(bounds):
        assert service.put(keys_of(rows[start:stop])) == stop - start
    for key in range(13):
        assert answer(service, key) == [row[1] for row in reversed(rows) if row[0] == key]
    service.shutdown()


def test_a_query_looks_only_where_the_time_may_be(real: Place) -> None:
    service = real.service()
    row_hash = index_key_hash("T#k")
    service.put(keys_of([(row_hash, n * 100, START + n * 1000) for n in range(100)]))

    def offsets(begin: int, end: int, most: int = 1000) -> list[int]:
        return [offset // 100 for offset in service.query("T", "k", START + begin, START + end, most).offsets]

    assert offsets(0, 1 << 40) == list(range(99, -1, -1))
    assert offsets(0, 1 << 40, 50) == list(range(99, 49, -1))
    assert offsets(40_000, 60_000) == list(range(60, 39, -1))
    assert offsets(50_500, 51_100) == [51, 50]  # 50 may be: whole seconds are stored
    assert offsets(38_500, 39_100) == [39]  # a file's header has the whole time
    assert offsets(200_000, 300_000) == []
    assert offsets(-5000, -1) == []
    result = service.query("T", "k", *FOREVER, 5, accept=lambda offset: offset % 1000 == 0)
    assert result.offsets == (9000, 8000, 7000, 6000, 5000)
    assert (result.last_update_timestamp, result.last_update_phy_offset) == (START + 99_000, 9900)
    service.shutdown()


def test_expired_files_go_but_never_the_last(place: Place) -> None:
    service = place.service()
    service.put(keys_of(some_rows(100)))
    service.flush_all()
    assert service.delete_expired(3800) == 0
    held = service.files[0]
    assert held.hold()
    assert service.delete_expired(3801) == 0
    held.release()
    assert service.delete_expired(3801) == 1
    assert service.delete_expired(1 << 40) == 1
    assert len(names_in(place)) == 1
    assert service.put(keys_of(some_rows(100))) == 0
    service.destroy()
    assert (names_in(place), service.end_phy_offset) == ([], 0)
    assert service.put(keys_of(some_rows(3))) == 3
    service.shutdown()


class FullDisk(Disk):
    """Room for a number of new files, and for syncs while they may be."""

    room = 1
    syncs = True

    def doing(self, operation: Operation, path: str, offset: int | None = None, length: int = 0, source=None) -> Doing:
        if operation is Operation.CREATE:
            self.room -= 1
            if self.room < 0:
                raise DiskFull("creating", path=path)
        if operation is Operation.SYNC and not self.syncs:
            raise StorageError("syncing", path=path)
        return super().doing(operation, path, offset, length, source)


@pytest.mark.parametrize("batch", [True, False])
def test_a_full_disk_loses_no_key(tmp_path: Path, batch: bool) -> None:
    disk = FullDisk()
    service = Place(disk, str(tmp_path)).service()
    rows = [(key, n * 100, START + n) for n in range(20) for key in (n, n + 1, n + 2)]
    steps = [rows] if batch else [rows[at : at + 3] for at in range(0, 60, 3)]
    for step in steps:
        try:
            service.put(keys_of(step))
        except DiskFull:
            break
    else:
        pytest.fail("there was room")
    assert len(service.files) == 1
    disk.room = 5
    assert service.put(keys_of(rows)) == 60 - 39
    assert [file.verify().fault for file in service.files] == [None, None]
    assert answer(service, 5) == [500, 400, 300]
    service.shutdown()


def test_a_flush_that_failed_in_the_background_is_told(tmp_path: Path) -> None:
    disk, durable = FullDisk(), []
    disk.room = 5
    service = Place(disk, str(tmp_path)).service(on_durable=durable.append)
    service.put(keys_of(some_rows(39)))
    full = service.files[0]
    service._flush_in_background(full)
    service.flush_all()
    durable.clear()
    full._write(0, full.header.encode())
    disk.syncs = False
    service._flush_in_background(full)
    with pytest.raises(StorageError):
        service.flush_all()
    with pytest.raises(StorageError):
        service.shutdown()
    assert durable == []
    assert not full.hold()


def test_readers_beside_a_writer(real: Place) -> None:
    layout = IndexLayout(slots=3, entries=400)
    service = real.service(layout)
    wrong: list[object] = []
    done = threading.Event()
    row_hash = index_key_hash("T#k")

    def ask() -> None:
        while not done.is_set():
            found = service.query("T", "k", *FOREVER, 10_000)
            offsets = list(found.offsets)
            if found.findings or offsets != sorted(offsets, reverse=True) or len(set(offsets)) != len(offsets):
                wrong.append(found)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(0, 3000, 30):
        rows = [(row_hash if n % 3 else n, n * 100, START + n) for n in range(start, start + 30)]
        if start % 60:
            service.put(keys_of(rows))
        else:
            for key_hash, offset, time in rows:
                service.put_message([key_hash], offset, time)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len(service.query("T", "k", *FOREVER, 10_000).offsets) == 2000
    service.shutdown()
