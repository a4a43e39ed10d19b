"""What is never copied: rotten sources, foreign logs, copies that differ, lies. The log stays as it is, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import CannotRepair, InvalidArgument, StorageError, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.heal.sources import HealCopy, StoreSource
from engine.repair.change import Ending
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.backup.repositories import back_up
from tests.engine.heal.healing import (
    SIZE,
    bridge,
    heal,
    log_of,
    records_of,
    recovered,
    repository,
    write,
)
from tests.engine.opening import message, small
from tests.support import stores

pytestmark = pytest.mark.leaves  # damage in the store that is not healed, and in sources that are rotten

Record = tuple[int, int, int]


@pytest.fixture
def good(fixture_copy: Store) -> Path:
    return recovered(fixture_copy("crashed-small"))


@pytest.fixture
def hurt(good: Path, tmp_path: Path) -> tuple[Path, Record]:
    """A store with a damaged body, and the record that has it."""
    record = next(one for one in records_of(good) if one[0] > SIZE and one[2] > 50)
    store = stores.copy(good, tmp_path / "store")
    write(store, record[0] + 90, b"\xff\x00\xff")
    return store, record


class Told:
    """A source that says what a function makes of the truth: (offset, bytes) → bytes."""

    name = "10.0.0.9:10911"
    segment_size = None

    def __init__(self, log: Path, lie: Callable[[int, bytes], bytes]) -> None:
        self._log, self._lie = log, lie

    def copies(self, offset: int) -> Iterator[HealCopy]:
        yield self

    def read(self, offset: int, length: int) -> bytes:
        path = self._log / "commitlog" / f"{offset // SIZE * SIZE:020d}"
        at = offset % SIZE
        return self._lie(offset, path.read_bytes()[at : at + length] if path.exists() else b"")

    def close(self) -> None:
        pass


def refused(store: Path, *sources: object, why: str) -> None:
    """Nothing is taken, and the message says why."""
    before = stores.contents(store)
    with pytest.raises(CannotRepair, match=why) as error:
        heal(store, *sources)  # type: ignore[arg-type]
    assert error.value.offset is not None
    after = stores.contents(store)
    assert {path: after[path] for path in after if path != "lock"} == {p: before[p] for p in before if p != "lock"}


def test_a_rotten_source(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    store, (offset, _, _) = hurt
    rotten = stores.copy(good, tmp_path / "rotten")
    write(rotten, offset + 95, b"\x00\x17\x00")
    refused(store, rotten, why="is damaged there, too")
    refused(store, repository(tmp_path / "repository", rotten), why="is damaged there, too")
    write(rotten, offset + 95, (good / "commitlog" / f"{SIZE:020d}").read_bytes()[offset - SIZE + 95 :][:3])
    for at in (0, 5, 30, 86, 88, 140):  # head and body: length, magic, offset, body length, body
        was = (rotten / "commitlog" / f"{SIZE:020d}").read_bytes()[offset - SIZE + at : offset - SIZE + at + 1]
        write(rotten, offset + at, bytes([was[0] ^ 0x10]))
        refused(store, rotten, why="is damaged there, too|names another physical offset")
        write(rotten, offset + at, was)


def test_a_backup_of_the_damaged_log(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    """The newest snapshot has the damage, the one before has not: that one is taken."""
    store, _ = hurt
    made = repository(tmp_path / "repository", store)
    refused(store, made, why="is damaged there, too")
    other = repository(tmp_path / "other", good)
    back_up(other, store, full=True)
    outcome = heal(store, other)
    assert outcome.ending is Ending.APPLIED
    assert log_of(store) == log_of(good)


def test_a_foreign_store(hurt: tuple[Path, Record], fixture_store: Store) -> None:
    refused(hurt[0], fixture_store("clean-small"), why="has other bytes at")


def test_a_source_that_ends_early_or_lacks_the_segment(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    store, _ = hurt
    short = stores.copy(good, tmp_path / "short")
    for path in sorted((short / "commitlog").iterdir())[1:]:
        path.unlink()
    refused(store, short, why="does not have it")
    refused(store, Told(good, lambda offset, data: b""), why="has neither of the records around it")
    end = hurt[1][0] + 20
    refused(store, Told(good, lambda at, data: data[: max(0, end - at)]), why="only up to")


def test_copies_that_differ(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    """Both could be proved: one of them has another byte in the properties, which no CRC covers."""
    store, (offset, size, _) = hurt
    other = stores.copy(good, tmp_path / "other")
    write(other, offset + size - 3, b"#")
    refused(store, good, other, why="the copies differ there, none is taken")
    refused(store, other, repository(tmp_path / "repository", good), why="the copies differ there")


def test_a_source_that_is_bridged_there(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    store, _ = hurt
    bridged = stores.copy(store, tmp_path / "bridged")
    bridge(bridged)
    refused(store, bridged, why="has a bridge there, too")


def test_lies(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    """A peer that shows the neighbours as they are, and in between what it likes."""
    store, (offset, size, _) = hurt
    records = records_of(good)
    place = next(i for i, one in enumerate(records) if one[0] == offset)

    def data_of(record: Record) -> bytes:
        data = (good / "commitlog" / f"{record[0] // SIZE * SIZE:020d}").read_bytes()
        return data[record[0] % SIZE : record[0] % SIZE + record[1]]

    def instead(fake: bytes) -> Callable[[int, bytes], bytes]:
        assert len(fake) == size
        return lambda at, data: fake if at == offset else data

    mine = data_of(records[place])
    later = bytearray(mine)
    later[20:28] = (int.from_bytes(mine[20:28], "big") + 1).to_bytes(8, "big")  # another queue offset
    refused(store, Told(good, instead(bytes(later))), why="has other queue offsets")
    old = bytearray(mine)
    old[56:64] = (1).to_bytes(8, "big")  # stored in 1970
    refused(store, Told(good, instead(bytes(old))), why="stored before or after")
    moved = bytearray(mine)
    moved[28:36] = (offset + SIZE).to_bytes(8, "big")
    refused(store, Told(good, instead(bytes(moved))), why="names another physical offset")
    refused(store, Told(good, instead(bytes(size))), why="is damaged there, too")
    refused(store, Told(good, instead(mine[:4] + b"\xcb\xd4\x31\x94" + mine[8:])), why="is damaged there, too")
    grown = (size + 8).to_bytes(4, "big") + mine[4:]
    refused(store, Told(good, instead(grown)), why="is damaged there, too")

    def breaks(at: int, data: bytes) -> bytes:
        raise StorageError("the connection was closed")

    refused(store, Told(good, breaks), why="the connection was closed")
    endless = Told(good, lambda at, data: data * 50)
    refused(store, endless, why="only up to|other bytes|neither")
    outcome = heal(store, endless, good)  # one that lies does not keep another from being taken
    assert log_of(store) == log_of(good)
    assert len(outcome.plan.healed[0].copies) == 1


def test_what_is_left_leaves_queues_and_index_alone(good: Path, hurt: tuple[Path, Record], tmp_path: Path) -> None:
    """Two ranges, and a source for one of them: that one is written, and nothing else; the next heals the rest."""
    store, (offset, _, _) = hurt
    other = next(one for one in records_of(good) if one[0] > 3 * SIZE and one[2] > 50)
    write(store, other[0] + 90, b"\xff\x00\xff")
    half = stores.copy(good, tmp_path / "half")
    write(half, offset + 95, b"\xff\x00\xff")
    before = stores.contents(store)
    outcome = heal(store, half)
    assert (len(outcome.plan.healed), len(outcome.plan.left), outcome.plan.log_only) == (1, 1, True)
    after = stores.contents(store)
    changed = {path for path in after if after[path] != before.get(path) and not path.startswith(("salvage", "lock"))}
    assert changed == {f"commitlog/{3 * SIZE:020d}"}
    assert "recover --bridge" in str(outcome.next)
    assert heal(store, half, good).ending is Ending.APPLIED
    assert log_of(store) == log_of(good)


def test_the_store_itself_and_one_that_is_open(good: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="the store that is to be healed"):
        StoreSource(Disk(), str(good), str(good))
    with StoreLock(Disk(), str(good)), pytest.raises(StoreLocked):
        heal(good, stores.copy(good, tmp_path / "other"))


def test_a_log_that_ends_early_is_not_continued(tmp_path: Path) -> None:
    """A source that goes on is a master's, to be followed: heal says so, and adds nothing."""
    with MessageStore.open(small(tmp_path / "short")) as store:
        for _ in range(50):
            assert store.put(message(b"x" * 200, 0)).append
        stores.copy_running(tmp_path / "short", tmp_path / "long")
    with MessageStore.open(small(tmp_path / "long")) as store:
        for i in range(50):
            assert store.put(message(b"y" * 200, i % 2)).append
    before = log_of(tmp_path / "short")
    outcome = heal(tmp_path / "short", tmp_path / "long")
    assert outcome.ending is Ending.UNCHANGED
    end = outcome.plan.damage.end
    with (tmp_path / "short" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    outcome = heal(tmp_path / "short", tmp_path / "long")
    assert outcome.ending is Ending.UNCHANGED
    (problem,) = outcome.plan.problems
    assert "rstore replicate" in problem
    assert outcome.plan.damage.torn == 4
    with (tmp_path / "short" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end)
        file.write(bytes(4))
    assert log_of(tmp_path / "short") == before
