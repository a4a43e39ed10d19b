"""Rows of queues that name other records than theirs: every message is in its own queue at its own place afterwards.

Directories, files and single units are swapped, copied, moved, overwritten and lost at random; header fields that no
CRC covers are flipped. Recovery must bring back every byte of every queue, in either mode, whatever it was asked for,
and find nothing more to do afterwards.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import CannotRepair
from engine.files.disk import Disk
from engine.format.message import Message
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import V4_HEAD_SIZE
from engine.inspect.check.check import check
from engine.repair.recover.apply import apply
from engine.repair.recover.ledger import ledger_of
from engine.repair.recover.queue_misplaced import out_of_order
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.support import logs, stores
from tests.support.checking import check_clean
from tests.support.in_time import in_time
from tests.support.wide import sample

FILE = 20 * UNIT_SIZE
QUEUE_ID, QUEUE_OFFSET, TOPIC = 12, 20, 0
READ_ALL: list[dict[str, Any]] = [{"whole": True}, {"bridge": True}, {"whole": True, "cut": True}]


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=8192,
        mapped_file_size_consume_queue=FILE,
        max_hash_slot_num=50,
        max_index_num=200,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    rng = random.Random(11)
    with MessageStore.open(settings(root)) as store:
        for i in range(500):
            topic = rng.choice(["A", "A", "A", "B", "B", "Rare"])
            queue = rng.randrange(1 if topic == "Rare" else 3)
            assert store.put(Message(topic, rng.randbytes(rng.randrange(200)), queue, {"KEYS": f"k{i}"})).ok
    return root


def queues(root: Path) -> dict[str, bytes]:
    """The queues' files; those of zeros only don't count."""
    found = {str(p.relative_to(root)): p.read_bytes() for p in (root / "consumequeue").rglob("*") if p.is_file()}
    return {path: data for path, data in found.items() if data.strip(b"\0")}


class Damager:
    """Damages a store; the same for the same random numbers."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.rng = rng
        self.root = root
        self.directories = sorted((root / "consumequeue").glob("*/*"))
        self.done: list[str] = []

    def files(self, directory: Path | None = None) -> list[Path]:
        where = directory or self.root / "consumequeue"
        return sorted(p for p in where.rglob("*") if p.is_file())

    def pair(self, some: list[Path]) -> tuple[Path, Path]:
        one, two = self.rng.sample(some, 2)
        return one, two

    def row(self) -> tuple[Path, int]:
        path = self.rng.choice(self.files())
        units = len(path.read_bytes().rstrip(b"\0")) // UNIT_SIZE
        return path, self.rng.randrange(max(1, units)) * UNIT_SIZE

    def write(self, path: Path, at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def unit(self, place: tuple[Path, int]) -> bytes:
        return place[0].read_bytes()[place[1] : place[1] + UNIT_SIZE]

    # --- directories and files

    def swap_directories(self) -> None:
        one, two = self.pair(self.directories)
        self.done.append(f"swap {one} {two}")
        aside = self.root / "aside"
        one.rename(aside)
        two.rename(one)
        aside.rename(two)

    def copy_directory(self) -> None:
        one, two = self.pair(self.directories)
        self.done.append(f"copy {one} {two}")
        shutil.rmtree(two)
        shutil.copytree(one, two)

    def move_directory(self) -> None:
        one = self.rng.choice(self.directories)
        self.done.append(f"move {one}")
        one.rename(one.parent / "7")
        self.directories.remove(one)

    def swap_files(self) -> None:
        one, two = self.pair(self.files())
        self.done.append(f"swap files {one} {two}")
        a, b = one.read_bytes(), two.read_bytes()
        one.write_bytes(b)
        two.write_bytes(a)

    def copy_file(self) -> None:
        one, two = self.pair(self.files())
        self.done.append(f"copy file {one} {two}")
        two.write_bytes(one.read_bytes())

    def lose_file(self) -> None:
        path = self.rng.choice(self.files())
        self.done.append(f"lose {path}")
        path.unlink()

    def cut_file(self) -> None:
        path = self.rng.choice(self.files())
        size = self.rng.choice([0, 7, 3 * UNIT_SIZE, FILE - 1, FILE + 20])
        self.done.append(f"cut {path} {size}")
        path.write_bytes(path.read_bytes()[:size].ljust(size if size > FILE else 0, b"\1"))

    # --- units

    def swap_units(self) -> None:
        one, two = self.row(), self.row()
        self.done.append(f"swap units {one} {two}")
        a, b = self.unit(one), self.unit(two)
        self.write(*one, b)
        self.write(*two, a)

    def swap_in_queue(self) -> None:
        path, at = self.row()
        other = (path, self.rng.randrange(max(1, at // UNIT_SIZE)) * UNIT_SIZE)
        self.done.append(f"swap in {path} {at} {other[1]}")
        a, b = self.unit((path, at)), self.unit(other)
        self.write(path, at, b)
        self.write(*other, a)

    def copy_unit(self) -> None:
        one, two = self.row(), self.row()
        self.done.append(f"copy unit {one} {two}")
        self.write(*two, self.unit(one))

    def copy_in_queue(self) -> None:
        path, at = self.row()
        to = max(0, at + self.rng.choice([-2, -1, 1, 2]) * UNIT_SIZE)
        if to < FILE:
            self.done.append(f"copy in {path} {at} {to}")
            self.write(path, to, self.unit((path, at)))

    def append_unit(self) -> None:
        path = self.files(self.rng.choice(self.directories))[-1]
        end = len(path.read_bytes().rstrip(b"\0")) // UNIT_SIZE * UNIT_SIZE + UNIT_SIZE
        if end < FILE:
            one = self.rng.choice([self.row(), (path, end - UNIT_SIZE)])
            self.done.append(f"append {one} {path} {end}")
            self.write(path, end, self.unit(one))

    def zero_units(self) -> None:
        path, at = self.row()
        many = self.rng.randrange(1, 6)
        self.done.append(f"zero {path} {at} {many}")
        self.write(path, at, bytes(min(many * UNIT_SIZE, FILE - at)))

    def wild_unit(self) -> None:
        path, at = self.row()
        self.done.append(f"wild {path} {at}")
        offset = self.rng.choice([self.rng.randrange(60000), -1, 1 << 62])
        self.write(path, at, offset.to_bytes(8, "big", signed=True) + self.rng.randrange(1, 500).to_bytes(4, "big"))

    # --- what no CRC covers

    def flip_header(self) -> None:
        data = self.unit(self.row())
        place = int.from_bytes(data[:8], "big")
        if place >= 8192 * len(list((self.root / "commitlog").iterdir())) or not any(data):
            return
        segment = self.root / "commitlog" / f"{place - place % 8192:020d}"
        record = segment.read_bytes()[place % 8192 :]
        body = int.from_bytes(record[84:88], "big")
        low, many = self.rng.choice([(QUEUE_ID, 4), (QUEUE_OFFSET, 8), (88 + body + 1, record[88 + body])])
        at, bit = low + self.rng.randrange(many), 1 << self.rng.randrange(7)
        self.done.append(f"flip {place} +{at} {bit}")
        self.write(segment, place % 8192 + at, bytes([record[at] ^ bit]))


Kind = Callable[[Damager], None]
SEEN_UNREAD: list[Kind] = [
    Damager.swap_directories,
    Damager.copy_directory,
    Damager.move_directory,
    Damager.lose_file,
    Damager.cut_file,
    Damager.swap_in_queue,
    Damager.copy_unit,
    Damager.copy_in_queue,
    Damager.zero_units,
    Damager.wild_unit,
]
KINDS: list[Kind] = [
    *SEEN_UNREAD,
    Damager.swap_files,
    Damager.copy_file,
    Damager.swap_units,
    Damager.append_unit,
]


def recover(root: Path, **how: Any) -> None:
    before = stores.contents(root)
    plan = plan_recover(Disk(), settings(root), **how)
    assert plan.refusal is None, plan.refusal
    apply(Disk(), plan)
    again = plan_recover(Disk(), settings(root), **how)
    assert not again.changed, again.to_json()
    if stores.contents(root) != before:
        undo(Disk(), plan_undo(Disk(), settings(root)))
        assert files(root) == {path: seen for path, seen in before.items() if seen != "directory"}
        apply(Disk(), plan_recover(Disk(), settings(root), **how))


def files(root: Path) -> dict[str, str]:
    """What the store's files hold, but for what repairs keep."""
    found = stores.contents(root).items()
    return {path: seen for path, seen in found if seen != "directory" and not path.startswith("salvage")}


def crashed(root: Path, rng: random.Random) -> None:
    """Left as a broker that was killed leaves it, or closed."""
    if rng.random() < 0.5:
        (root / "abort").touch()
        if rng.random() < 0.5:
            (root / "checkpoint").write_bytes(bytes(4096))


@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(60), 4))
def test_every_row_is_right_where_the_log_is_read(made: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = stores.copy(made, tmp_path / "store")
    before = queues(root)
    damager = Damager(root, rng)
    for _ in range(rng.randrange(1, 4)):
        rng.choice(KINDS)(damager)
    crashed(root, rng)
    recover(root, **rng.choice(READ_ALL))
    assert queues(root) == before, damager.done


@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(60), 4))
def test_every_row_is_right_where_the_log_is_not_read(made: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = stores.copy(made, tmp_path / "store")
    before = queues(root)
    damager = Damager(root, rng)
    rng.choice(SEEN_UNREAD)(damager)
    crashed(root, rng)
    recover(root)
    assert queues(root) == before, damager.done


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(60), 4))
def test_a_damaged_header_moves_no_row(made: Path, tmp_path: Path, seed: int) -> None:
    """What queue and place a record names is outside of its CRC: the rows that hold it know better."""
    rng = random.Random(seed)
    root = stores.copy(made, tmp_path / "store")
    before = queues(root)
    damager = Damager(root, rng)
    for _ in range(rng.randrange(1, 3)):
        damager.flip_header()
    crashed(root, rng)
    recover(root, **rng.choice([{}, *READ_ALL]))
    assert queues(root) == before, damager.done


def test_light_queues_stay_where_no_setting_names_them(fixture_copy: Callable[[str], Path]) -> None:
    root = fixture_copy("lmq")
    for whole in (False, True):
        plan = plan_recover(Disk(), StoreConfig(store_path_root_dir=root), whole=whole)
        assert not plan.changed
        assert plan.problems == ()


@pytest.mark.leaves("record-suspect", "unit-foreign")
@pytest.mark.parametrize("how", [{"whole": True}, {"bridge": True}])
def test_a_record_of_several_queues_with_another_queue_id_keeps_all_its_rows(
    how: dict[str, Any], fixture_copy: Callable[[str], Path]
) -> None:
    """The header names as many other queues, none of which it gets a row in."""
    root = fixture_copy("lmq")
    before = queues(root)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        for at in (5168, 22573):  # each is in LmqParent, Side and a light queue
            file.seek(at + QUEUE_ID)
            file.write(b"\x02")
    config = StoreConfig(store_path_root_dir=root).with_changes(enable_lmq=True, enable_multi_dispatch=True)
    apply(Disk(), plan_recover(Disk(), config, **how))
    assert queues(root) == before
    assert not plan_recover(Disk(), config, **how).changed


def units(root: Path, queue: str) -> list[tuple[int, int, int]]:
    """Physical offset, size and tags code of each unit of a queue."""
    data = b"".join(path.read_bytes() for path in sorted((root / "consumequeue" / queue).glob("0*")))
    found = [struct.unpack_from(">qiq", data, at) for at in range(0, len(data), UNIT_SIZE)]
    return [one for one in found if one[1]]


def test_a_lost_messages_row_in_a_copied_directory_makes_no_queue(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(made, root)
    before = units(root, "A/0")
    number = next(i for i, (_, size, _) in enumerate(before) if i > 25 and size > 200)
    place, size, _ = before[number]
    with (root / "commitlog" / f"{place // 8192 * 8192:020d}").open("r+b") as file:
        file.seek(place % 8192 + size // 2)
        file.write(b"\xff")
    shutil.copytree(root / "consumequeue" / "A" / "0", root / "consumequeue" / "B" / "7")
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    assert not units(root, "B/7")
    assert units(root, "A/0") == [*before[:number], before[number - 1], *before[number + 1 :]]


def test_rows_of_lost_messages_in_swapped_files_show_no_other_queues(made: Path, tmp_path: Path) -> None:
    """Damage at the log's front that the recovery goes on behind: neither queue shows the other's lost messages."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    one, other = (root / "consumequeue" / name / f"{0:020d}" for name in ("A/0", "A/1"))
    own = {unit[0] for unit in units(root, "A/0")}
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(bytes(4096))
    apply(Disk(), plan_recover(Disk(), settings(root), cut=True))
    assert {unit[0] for unit in units(root, "A/0") if unit[1] < 1 << 30} <= own


@pytest.mark.leaves("index-witness", "record-suspect")
def test_a_record_that_names_no_queue_keeps_no_row_in_another_ones_directory(made: Path, tmp_path: Path) -> None:
    """Two directories are swapped; in one of them a row's record names no topic, so that nothing else claims it."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    rare = units(root, "Rare/0")
    large = units(root, "A/0")
    gone = min(len(rare) + 3, len(large) - 3)
    place, size, _ = large[gone]
    with (root / "commitlog" / f"{place // 8192 * 8192:020d}").open("r+b") as file:
        record = file.read()[place % 8192 :][:size]
        assert record.count(b"\x01A") == 1
        file.seek(place % 8192 + record.index(b"\x01A") + 1)
        file.write(b"\0")
    one, other = (root / "consumequeue" / name for name in ("A/0", "Rare/0"))
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True))
    assert units(root, "Rare/0") == rare
    assert units(root, "A/0") == [*large[:gone], large[gone - 1], *large[gone + 1 :]]


def test_a_queue_offset_that_a_row_of_a_swapped_file_vouches_for_is_not_changed(made: Path, tmp_path: Path) -> None:
    """The record before the queue's last one says another queue: the last one's number is no damaged field for that."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    rare = units(root, "Rare/0")
    name = next(one for one in ("A/0", "A/1", "A/2", "B/0", "B/1", "B/2") if len(units(root, one)) % 2 == 0)
    large = units(root, name)
    (place, _, _), (last, size, _) = large[-2:]
    log = {path: path.read_bytes() for path in (root / "commitlog").iterdir()}
    with (root / "commitlog" / f"{place // 8192 * 8192:020d}").open("r+b") as file:
        file.seek(place % 8192 + QUEUE_ID)
        file.write(struct.pack(">i", 9))
    one, other = (root / "consumequeue" / queue for queue in (name, "Rare/0"))
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True))
    segment = root / "commitlog" / f"{last // 8192 * 8192:020d}"
    at = last % 8192
    assert segment.read_bytes()[at : at + size] == log[segment][at : at + size]
    assert units(root, name)[-1] == large[-1]
    assert units(root, "Rare/0") == rare


def test_a_swapped_file_of_expired_messages_moves_no_message(made: Path, tmp_path: Path) -> None:
    """Its rows, of places before the log's first byte, stand where a queue of one message has its own."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    first = sorted((root / "commitlog").iterdir())[0]
    names = [f"{topic.name}/{queue.name}" for topic in (root / "consumequeue").iterdir() for queue in topic.iterdir()]
    one = next(name for name in sorted(names) if name.startswith("A"))
    gone = [unit for unit in units(root, one) if unit[0] < 8192]
    assert len(gone) > 1
    with MessageStore.open(settings(root)) as store:
        assert store.put(Message("Single", b"x" * 100, 0)).ok
    wanted = units(root, "Single/0")
    segment = sorted((root / "commitlog").iterdir())[wanted[0][0] // 8192]
    at = wanted[0][0] % 8192
    record = segment.read_bytes()[at : at + wanted[0][1]]
    first.unlink()
    queue = root / "consumequeue" / "Single" / "0" / f"{0:020d}"
    other = root / "consumequeue" / one / f"{0:020d}"
    own = queue.read_bytes()
    rows = other.read_bytes()[: len(gone) * UNIT_SIZE]
    queue.write_bytes(rows.ljust(FILE, b"\0"))
    other.write_bytes(own[:UNIT_SIZE] + other.read_bytes()[UNIT_SIZE:])
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True))
    assert segment.read_bytes()[at : at + len(record)] == record
    assert units(root, "Single/0")[0] == wanted[0]


@pytest.mark.parametrize("bit", [3, 23, 40, 63])
def test_the_only_message_of_a_queue_with_another_queue_offset_keeps_its_row(bit: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(settings(root)) as store:
        for queue in (0, 1, 0, 0):
            assert store.put(Message("T", b"body", queue)).ok
    wanted = units(root, "T/1")
    (place, size, _), log = wanted[0], root / "commitlog" / f"{0:020d}"
    before = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(place + QUEUE_OFFSET)
        file.write(struct.pack(">Q", 1 << bit))
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True))
    assert units(root, "T/1") == wanted
    assert log.read_bytes()[place : place + size] == before[place : place + size]


@pytest.mark.parametrize("beside", [False, True])
def test_rows_of_lost_messages_that_were_copied_into_another_queue_go(made: Path, tmp_path: Path, beside: bool) -> None:
    """Four rows of A/0 lie in B/0, at their own queue offsets or at others; the messages of the last ones are lost."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    theirs = units(root, "A/0")
    at = 20 if beside else 23
    with (root / "consumequeue" / "A" / "0" / f"{FILE:020d}").open("rb") as file:
        rows = file.read(4 * UNIT_SIZE)
    with (root / "consumequeue" / "B" / "0" / f"{FILE:020d}").open("r+b") as file:
        file.seek((at - 20) * UNIT_SIZE)
        file.write(rows)
    for place, size, _ in theirs[22:24]:
        with (root / "commitlog" / f"{place // 8192 * 8192:020d}").open("r+b") as file:
            file.seek(place % 8192)
            file.write(bytes(size))
    lost = {place for place, _, _ in theirs[22:24]}
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True, cut=False, bridge=True))
    assert not lost & {unit[0] for unit in units(root, "B/0")}


@given(st.lists(st.integers(0, 9), max_size=9))
def test_as_few_rows_as_possible_are_out_of_order(places: list[int]) -> None:
    out = out_of_order(np.array(places, dtype=np.int64))
    left = [place for place, gone in zip(places, out.tolist(), strict=True) if not gone]
    assert left == sorted(left)
    some = (list(one) for size in range(len(places) + 1) for one in combinations(places, size))
    assert len(left) == max(len(one) for one in some if one == sorted(one))


def built(root: Path, messages: list[Message]) -> list[int]:
    """A closed store of one log; where its messages lie."""
    made = logs.build(messages, 8192, 0)
    (root / "commitlog").mkdir(parents=True)
    for start, data in made.log.files.items():
        (root / "commitlog" / f"{start:020d}").write_bytes(data)
    apply(Disk(), plan_recover(Disk(), settings(root)))
    return list(made.offsets)


def test_the_last_file_of_a_queue_under_another_name_moves_no_message(tmp_path: Path) -> None:
    """It holds one row, and what was before it has expired: its name is wrong, not the record's queue offset."""
    root = tmp_path / "store"
    mine = [Message("T", bytes([i]) * 100) for i in range(40)]
    offsets = built(root, [*mine, *[Message("F", bytes(200))] * 60, Message("T", b"c" * 100), Message("F", b"x")])
    for path in sorted((root / "commitlog").iterdir()):
        if int(path.name) + 8192 <= offsets[100]:
            path.unlink()
    queue = root / "consumequeue" / "T" / "0"
    for path in sorted(queue.iterdir())[:-1]:
        path.unlink()
    sorted(queue.iterdir())[-1].rename(queue / f"{0:020d}")
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert not plan.log.requeued
    assert [(one.min_offset, one.max_offset) for one in plan.queues if one.queue.topic == "T"] == [(40, 41)]
    apply(Disk(), plan)
    assert not (queue / f"{0:020d}").exists()
    assert not plan_recover(Disk(), settings(root), whole=True).changed


@pytest.mark.parametrize("other", [1, 2, -1])
@pytest.mark.parametrize("how", ["swapped", "copied", "zeros"])
def test_a_file_in_front_of_a_queues_first_unit_goes(made: Path, tmp_path: Path, how: str, other: int) -> None:
    """A broker would serve its rows, or end the queue at its zeros: what was there has expired."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    for path in sorted((root / "commitlog").iterdir())[:4]:
        path.unlink()
    recover(root)
    queue = root / "consumequeue" / "A" / "0"
    first, *rest = sorted(queue.iterdir())
    wanted = units(root, "A/0")
    assert wanted[FILE // UNIT_SIZE - 1][0] < int(min(path.name for path in (root / "commitlog").iterdir()))
    data, mine = first.read_bytes(), rest[other].read_bytes()
    first.write_bytes(bytes(FILE) if how == "zeros" else mine)
    if how == "swapped":
        rest[other].write_bytes(data)
    assert any("consumequeue/A/0" in one.where for one in check(Disk(), settings(root)).findings)
    recover(root)
    assert (root / "quarantine" / "consumequeue" / "A" / "0" / first.name).exists()
    assert units(root, "A/0") == wanted[FILE // UNIT_SIZE :]


def test_a_queue_file_under_a_later_name_loses_no_message(made: Path, tmp_path: Path) -> None:
    """Nor does a plan say so: its rows show messages of the log, whose own rows are made again."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    queue = root / "consumequeue" / "A" / "0"
    wanted = units(root, "A/0")
    last = max(queue.iterdir())
    last.rename(queue / f"{100 * FILE:020d}")
    plan = plan_recover(Disk(), settings(root))
    assert not any(one.units_cut for one in plan.queues)
    assert not any("are segments missing" in problem for problem in plan.problems)
    assert not any(line.gone for line in ledger_of(Disk(), plan).queues)
    recover(root)
    assert units(root, "A/0") == wanted


def test_lost_messages_behind_a_damaged_queue_id_keep_their_queues_end(tmp_path: Path) -> None:
    """One row that shows another queue's message is a damaged header, and no sign of another queue's file."""
    root = tmp_path / "store"
    offsets = built(root, [*[Message("T", bytes([i]) * 100) for i in range(20)], *[Message("F", bytes(200))] * 30])
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offsets[15] + QUEUE_ID)
        file.write(struct.pack(">i", 1))
        file.seek(offsets[16])
        file.write(random.Random(1).randbytes(offsets[20] - offsets[16]))
    plan = plan_recover(Disk(), settings(root), bridge=True)
    apply(Disk(), plan)
    assert [one.max_offset for one in plan.queues if one.queue == ("T", 0)] == [20]


@pytest.mark.parametrize(("topic", "rows"), [("L" * 120, 0), ("L", 7)])
def test_a_bridge_held_no_more_messages_than_fit_with_their_topic(tmp_path: Path, topic: str, rows: int) -> None:
    """All queues are lost, and a record's queueId is another one: that queue's first rows lay in the damage if they can
    have, or else nowhere.
    """
    root = tmp_path / "store"
    before = [Message(topic, b"x" * 100, 2)] * 7
    offsets = built(root, [Message("F", bytes(710)), Message("F", b"y"), *before, Message(topic, b"z", 2)])
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offsets[0] + V4_HEAD_SIZE)
        file.write(b"rot")
        file.seek(offsets[-1] + QUEUE_ID)
        file.write(b"\0\0\0\x12")
    shutil.rmtree(root / "consumequeue")
    plan = plan_recover(Disk(), settings(root), bridge=True)
    (queue,) = (one for one in plan.queues if one.queue == (topic, 0x12))
    assert queue.front[1] - queue.front[0] == rows
    apply(Disk(), plan)


def expired(root: Path, segments: int) -> None:
    """As a broker's retention leaves it: its first segments go, and the queue files that show nothing else."""
    log = sorted((root / "commitlog").iterdir())
    for path in log[:segments]:
        path.unlink()
    first = int(log[segments].name)
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            rows = [one for one in struct.iter_unpack(">qiq", path.read_bytes()) if one[1]]
            if max(place for place, _, _ in rows) >= first:
                break
            path.unlink()
    check_clean(root, settings(root))


def shown(root: Path) -> dict[tuple[str, int], int]:
    """Live messages, by queue and queue offset: where they lie."""
    first = int(min(path.name for path in (root / "commitlog").iterdir()))
    found = {}
    for directory in (root / "consumequeue").glob("*/*"):
        for path in directory.iterdir():
            queue = str(path.parent.relative_to(root / "consumequeue"))
            for i, (place, size, _) in enumerate(struct.iter_unpack(">qiq", path.read_bytes())):
                if place >= first and size:
                    found[queue, int(path.name) // UNIT_SIZE + i] = place
    return found


@pytest.mark.parametrize("how", ["renamed", "topic", "copied", "shifted"])
@pytest.mark.parametrize("segments", [3, 5])
def test_rows_of_expired_messages_prove_no_file(made: Path, tmp_path: Path, how: str, segments: int) -> None:
    """A queue whose front has expired, and whose file got another name: the first live row was believed, beside rows of
    messages that nothing can be held against, and the others had no place behind it.
    """
    root = tmp_path / "store"
    shutil.copytree(made, root)
    expired(root, segments)
    wanted = shown(root)
    queue = root / "consumequeue" / "A" / "0"
    files = sorted(queue.iterdir())
    assert len(files) > 1
    if how == "renamed":
        for path in reversed(files):
            path.rename(queue / f"{int(path.name) + 10 * FILE:020d}")
    elif how == "topic":
        (root / "consumequeue" / "A").rename(root / "consumequeue" / "A.bak")
    elif how == "copied":
        shutil.copyfile(files[0], queue / f"{int(files[0].name) + 20 * FILE:020d}")
    else:  # an older copy of the queue, under the names of files in front
        last = files.pop()
        last.unlink()
        for path in files:
            path.rename(queue / f"{max(0, int(path.name) - FILE):020d}")
    recover(root, whole=True)
    assert shown(root) == wanted


def test_a_queue_file_of_a_wild_name_takes_no_time(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(made, root)
    wanted = shown(root)
    last = max((root / "consumequeue" / "A" / "0").iterdir())
    last.rename(last.with_name(f"{FILE * 10**15:020d}"))
    with in_time(60):
        recover(root)
        assert shown(root) == wanted


def test_a_queue_directory_that_is_no_utf_8_is_bridged_over(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(made, root)
    odd = root / "consumequeue" / os.fsdecode(b"B\xff\xfe") / "0"
    odd.mkdir(parents=True)
    shutil.copyfile(root / "consumequeue" / "B" / "0" / f"{0:020d}", odd / f"{0:020d}")
    second = sorted((root / "commitlog").iterdir())[1]
    with second.open("r+b") as file:
        file.seek(4000)
        file.write(bytes(900))
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    assert not plan_recover(Disk(), settings(root)).changed


@pytest.mark.leaves("file-absent", "unit-missing")
def test_a_file_in_front_of_a_queue_that_no_repair_can_move_is_refused_by_name(made: Path, tmp_path: Path) -> None:
    """A link of zeros in a queue's directory on another disk: quarantine/ is not there, so the operator is told."""
    with TemporaryDirectory() as elsewhere:
        if os.stat(elsewhere).st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one disk only")
        root = tmp_path / "store"
        shutil.copytree(made, root)
        expired(root, 5)
        queue = root / "consumequeue" / "A" / "0"
        wanted = shown(root)
        shutil.move(queue, Path(elsewhere) / "0")
        queue.symlink_to(Path(elsewhere) / "0")
        (Path(elsewhere) / "zeros").write_bytes(bytes(FILE))
        front = queue / f"{int(min(path.name for path in queue.iterdir())) - FILE:020d}"
        front.symlink_to(Path(elsewhere) / "zeros")
        refusal = plan_recover(Disk(), settings(root)).refusal
        assert isinstance(refusal, CannotRepair)
        assert refusal.path == str(front)
        assert "move it out of the store" in str(refusal)
        front.unlink()
        recover(root)
        assert shown(root) == wanted
        check_clean(root, settings(root))


def test_the_only_live_row_of_an_expired_queue_proves_no_directory(tmp_path: Path) -> None:
    """Two queues' directories were swapped: one of them has one message that has not expired, beside one that has."""
    root = tmp_path / "store"
    before = [Message("S", b"s"), *[Message("T", b"t" * 100)] * 30, *[Message("F", bytes(300))] * 60]
    offsets = built(root, [*before, Message("S", b"S"), *[Message("T", b"T" * 100)] * 5, Message("F", b"x")])
    shutil.rmtree(root / "salvage")
    expired(root, offsets[len(before)] // 8192)
    wanted = shown(root)
    assert [queue for queue, _ in wanted].count("S/0") == 1
    log = stores.contents(root / "commitlog")
    one, other, aside = (root / "consumequeue" / name for name in ("S", "T", "aside"))
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    recover(root, whole=True)
    assert shown(root) == wanted
    assert stores.contents(root / "commitlog") == log


@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(60), 6))
def test_queues_of_another_life_of_the_log(tmp_path: Path, seed: int) -> None:
    """A backup that was restored and written on from, beside the queues of what had been written meanwhile."""
    rng = random.Random(seed)
    for name in ("mine", "other"):
        same = random.Random(seed)
        some = same.randrange(120)
        with MessageStore.open(settings(tmp_path / name)) as store:
            for i in range(some + rng.randrange(1, 120)):
                body = (same if i < some else rng).randbytes((same if i < some else rng).randrange(20, 300))
                queue = (same if i < some else rng).randrange(3)
                assert store.put(Message("T", body, queue, {"KEYS": f"k{i}" if i < some else f"{name}{i}"})).ok
    root = tmp_path / "mine"
    wanted, log = shown(root), stores.contents(root / "commitlog")
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(tmp_path / "other" / "consumequeue", root / "consumequeue")
    recover(root, **({"whole": True} if seed % 2 else {}))
    recover(root, whole=True)
    assert shown(root) == wanted
    assert stores.contents(root / "commitlog") == log


def test_a_copied_unit_in_front_of_an_expired_one_is_no_filled_gap(made: Path, tmp_path: Path) -> None:
    """The queue's first live unit, again in an expired one's place, with another expired one between them."""
    root = tmp_path / "store"
    shutil.copytree(made, root)
    expired(root, 4)
    queue = root / "consumequeue" / "A" / "0"
    begin = int(min(path.name for path in (root / "commitlog").iterdir()))
    path, at = next(
        (path, i)
        for path in sorted(queue.iterdir())
        for i, (place, _, _) in enumerate(struct.iter_unpack(">qiq", path.read_bytes()))
        if place >= begin
    )
    assert at >= 2
    wanted = shown(root)
    data = bytearray(path.read_bytes())
    data[(at - 2) * UNIT_SIZE : (at - 1) * UNIT_SIZE] = data[at * UNIT_SIZE : (at + 1) * UNIT_SIZE]
    path.write_bytes(data)
    recover(root, whole=True)
    assert shown(root) == wanted


def test_light_queues_of_an_expired_log_stay_where_no_setting_names_them(tmp_path: Path) -> None:
    root = tmp_path / "store"
    told = settings(root).with_changes(enable_multi_dispatch=True, enable_lmq=True)
    with MessageStore.open(told) as store:
        for i in range(200):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%red,%LMQ%blue"} if i % 3 == 0 else {}
            assert store.put(Message("T", bytes(100), 0, {"KEYS": f"k{i}", **light})).ok
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    before = queues(root)
    assert any("red" in name for name in before)
    for options in ({}, {"whole": True}):
        plan = plan_recover(Disk(), settings(root), **options)
        assert not plan.set_aside
        assert not [queue for queue in plan.queues if queue.changed and queue.queue.topic.startswith("%LMQ%")]
    recover(root, whole=True)
    assert {name: data for name, data in queues(root).items() if "%LMQ%" in name} == {
        name: data for name, data in before.items() if "%LMQ%" in name
    }
