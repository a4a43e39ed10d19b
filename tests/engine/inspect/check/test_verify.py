"""verify: every record looked at, every kind of damage told apart, in one process and in several."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import NotAStore
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.files.raw_file import RawFile
from engine.inspect.check import verify as module
from engine.inspect.check.check import check as check_store
from engine.inspect.check.verify import AFTER_THE_END, MOVED, Bad, VerifyResult, verify
from engine.inspect.dump.dump import dump_log
from engine.inspect.dump.salvage_scan import scan_store
from engine.log.scan import MISSING_SEGMENT
from tests.support import fixtures

pytestmark = pytest.mark.leaves()

Store = Callable[[str], Path]
SEGMENT = 131072


def config(store: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=store)


def check(store: Path, **options: object) -> VerifyResult:
    return verify(Disk(), config(store), **options)  # type: ignore[arg-type]


def records(name: str) -> list[tuple[int, int]]:
    """(physical offset, size) of each record, as Apache reads them."""
    return [(m["physicalOffset"], m["size"]) for m in fixtures.dump(name) if m["type"] == "log"]


def write(store: Path, offset: int, data: bytes) -> None:
    with (store / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}").open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_a_sound_log(name: str, fixture_store: Store) -> None:
    found = check(fixture_store(name))
    expected = records(name)
    assert (found.records, found.size, found.bad) == (len(expected), sum(size for _, size in expected), [])
    assert (found.start, found.end, found.live) == (0, fixtures.manifest(name)["maxPhyOffset"], False)


def test_each_kind_of_damage(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    places = records("clean-small")
    large = [place for place in places if place[1] > 300]
    body, moved, size = large[3], large[40], large[-30]
    write(store, body[0] + 100, b"\xff\xfe\xfd")
    write(store, moved[0] + 28, (moved[0] + 1).to_bytes(8, "big"))
    write(store, size[0], bytes(8))
    found = check(store)
    assert found.records == len(places) - 2
    assert [(bad.offset, bad.length) for bad in found.bad] == [body, moved, size]
    assert "CRC" in found.bad[0].reason
    assert found.bad[1].reason.startswith(MOVED)
    assert found.bad[1].stored == moved[0] + 1
    assert "zeros" in found.bad[2].reason


def test_a_missing_segment(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    gone = store / "commitlog" / f"{SEGMENT:020d}"
    gone.unlink()
    found = check(store)
    before = str(store / "commitlog" / f"{0:020d}")
    assert found.bad == [Bad(SEGMENT, SEGMENT, before, MISSING_SEGMENT)]


def test_bytes_behind_the_end(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    end = fixtures.manifest("clean-small")["maxPhyOffset"]
    write(store, end + 5000, b"left")
    (bad,) = check(store).bad
    assert (bad.offset, bad.reason) == (end + 5000, AFTER_THE_END)
    with StoreLock(Disk(), str(store)):  # somebody is writing there
        found = check(store)
        assert (found.live, found.bad) == (True, [])


def test_a_torn_tail(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    last, size = records("clean-small")[-1]
    write(store, last + 60, bytes(size - 60))
    found = check(store)
    assert found.end == last
    assert [bad.offset for bad in found.bad] == [last]


def test_a_part_of_the_log(fixture_store: Store) -> None:
    store = fixture_store("clean-small")
    places = records("clean-small")
    random.seed(7)
    for _ in range(20):
        low, high = sorted(random.sample(range(places[-1][0] + places[-1][1]), 2))
        found = check(store, start=low, end=high)
        assert found.bad == []
        assert found.records == sum(low <= at < high for at, _ in places)


def test_parts_meet(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    places = records("clean-small")
    for at, _ in places[50:55]:
        write(store, at + 4, b"\0\0\0\0")
    whole = check(store)
    low, high = places[50][0], places[55][0]
    for border in (low - 1, low, low + 1, (low + high) // 2, high - 1, high):
        one, two = check(store, end=border), check(store, start=border)
        assert one.records + two.records == whole.records
        assert one.bad or two.bad


@pytest.mark.parametrize("name", ["clean-small", "crashed-small"])
def test_several_processes_find_the_same(name: str, fixture_copy: Store) -> None:
    store = fixture_copy(name)
    for at, _ in records(name)[::97]:
        write(store, at + 4, b"\0\0\0\0")
    one, many = check(store, jobs=1), check(store, jobs=3)
    assert one.bad
    assert (one.records, one.size, one.bad, one.end) == (many.records, many.size, many.bad, many.end)


def test_progress_reaches_its_end(fixture_store: Store) -> None:
    seen: list[tuple[int, int]] = []
    check(fixture_store("clean-small"), progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == 4 * SEGMENT


def test_what_is_being_written_is_read_again(fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was torn when it was read and is whole a moment later is no damage beside a live writer."""
    store = fixture_copy("clean-small")
    at, size = records("clean-small")[100]
    path = store / "commitlog" / f"{at // SEGMENT * SEGMENT:020d}"
    whole = path.read_bytes()
    write(store, at, bytes(size))

    class Slow(Disk):
        def sleep_ms(self, ms: float) -> None:
            path.write_bytes(whole)

    with StoreLock(Disk(), str(store)):
        found = verify(Slow(), config(store), jobs=1)
    assert (found.records, found.bad) == (600, [])
    write(store, at, bytes(size))
    monkeypatch.setattr(module, "_AGAIN_MS", 0)
    with StoreLock(Disk(), str(store)):
        assert [bad.offset for bad in check(store).bad] == [at]


@pytest.mark.parametrize("read", ["verify", "check", "dump", "salvage"])
def test_a_segment_that_is_completed_while_it_is_read(read: str, fixture_copy: Store) -> None:
    """Its end comes after it was read, and before the next one is: neither is damage beside a live writer."""
    store = fixture_copy("clean-small")
    places = records("clean-small")
    third, fourth = (store / "commitlog" / f"{n * SEGMENT:020d}" for n in (2, 3))
    complete = third.read_bytes(), fourth.read_bytes()
    torn = [offset for offset, _ in places if offset < 3 * SEGMENT][-20]
    write(store, torn, bytes(3 * SEGMENT - torn))
    fourth.write_bytes(bytes(SEGMENT))

    reads: list[str] = []

    class Completing(RawFile):
        """Of these files: both are completed when the fourth is read and the third was, but for a survey's reads."""

        __slots__ = ()

        def read(self, offset: int, length: int) -> memoryview:
            reads.append(self.path)
            if self.path == str(fourth) and reads.count(str(third)) > 1:
                third.write_bytes(complete[0])
                fourth.write_bytes(complete[1])
            return super().read(offset, length)

    class Completed(Disk):
        def open_reader(self, path: str) -> RawFile:
            file = super().open_reader(path)
            if path in (str(third), str(fourth)):
                file.__class__ = Completing
            return file

    disk = Completed()
    with StoreLock(Disk(), str(store)):
        match read:
            case "verify":
                verified = verify(disk, config(store), jobs=1)
                assert verified.bad == []
            case "check":
                assert "log-damage" not in {f.code for f in check_store(disk, config(store)).findings}
            case "dump":
                assert "damage" not in {row.kind for row in dump_log(disk, config(store))}
            case "salvage":
                assert scan_store(disk, config(store)).lost == []


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        check(tmp_path)
