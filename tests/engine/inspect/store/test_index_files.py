"""Index files that are lost or damaged: whatever happened to them, a query finds every message afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message, decode
from engine.format.record import store_timestamp_position
from engine.inspect.store.survey import survey
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.wide import sample

MESSAGES = 600
HEADER, SLOT, ENTRY, SLOTS, ENTRIES = 40, 4, 20, 54, 216


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=16 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of many index files; long stretches of its log have no key."""
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(settings(root)) as store:
        for i in range(MESSAGES):
            properties = {"KEYS": f"key{i}", "UNIQ_KEY": f"unique{i}"} if i % 150 < 120 else {}
            assert store.put(Message("T", b"%06d" % i * 20, i % 3, properties)).ok
    assert len(list((root / "index").iterdir())) > 4
    return root


def lost_keys(root: Path) -> list[str]:
    """Keys that a query doesn't find just once."""
    with ReadStore(settings(root)) as store:
        return [
            key
            for i in range(MESSAGES)
            if i % 150 < 120
            for key in (f"key{i}", f"unique{i}")
            if [decode(m).body for m in store.query("T", key).messages] != [b"%06d" % i * 20]
        ]


@pytest.mark.parametrize("lost", range(5))
def test_a_lost_file_is_made_again(made: Path, tmp_path: Path, lost: int) -> None:
    root = stores.copy(made, tmp_path / "store")
    sorted((root / "index").iterdir())[lost].unlink()
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert lost_keys(root) == []
    assert not plan_recover(Disk(), settings(root)).changed


def test_a_hole_whose_first_record_ends_its_segment_is_filled(tmp_path: Path) -> None:
    """The reading of the hole begins with a batch of one record, whose key the file before it has."""
    a_segment = 43  # a file holds the keys of five segments
    with MessageStore.open(settings(tmp_path)) as store:
        body = bytes((16 << 10) // a_segment - 106)
        places = [store.put(Message("T", body, 0, {"KEYS": f"key{i}"})) for i in range(1000)]
    names = sorted((tmp_path / "index").iterdir())
    behind = places[2 * 215].append
    assert behind is not None
    assert behind.physical_offset % (16 << 10) == 0
    names[2].unlink()
    plan = plan_recover(Disk(), settings(tmp_path))
    assert plan.index.keys_put == 215
    apply(Disk(), plan)
    with ReadStore(settings(tmp_path)) as store:
        assert all(len(store.query("T", f"key{i}").messages) == 1 for i in range(1000))
    assert not plan_recover(Disk(), settings(tmp_path)).changed


class Damager:
    """Damages index files; the same for the same random numbers."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.rng = rng
        self.index = root / "index"
        self.done: list[str] = []

    def files(self) -> list[Path]:
        return sorted(p for p in self.index.iterdir() if p.is_file())

    def one(self) -> Path:
        """A file, one of the full length if there is any."""
        size = HEADER + SLOT * SLOTS + ENTRY * ENTRIES
        path = self.rng.choice([p for p in self.files() if p.stat().st_size == size] or self.files())
        self.done.append(path.name)
        return path

    def write(self, path: Path, at: int, data: bytes) -> None:
        self.done.append(f"{at}: {data[:24].hex()}")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def entry(self) -> int:
        return HEADER + SLOT * SLOTS + ENTRY * self.rng.randrange(1, ENTRIES)

    def lose(self) -> None:
        self.one().unlink()

    def lose_many(self) -> None:
        for path in self.files():
            if self.rng.random() < 0.5:
                self.done.append(path.name)
                path.unlink()

    def zero_page(self) -> None:
        path = self.one()
        size = path.stat().st_size
        low = self.rng.randrange(size + 1)
        self.write(path, low, bytes(min(self.rng.choice([20, 512, 4096]), size - low)))

    def wild_slot(self) -> None:
        value = self.rng.choice([0, -1, self.rng.randrange(ENTRIES), 1 << 30])
        self.write(self.one(), HEADER + SLOT * self.rng.randrange(SLOTS), value.to_bytes(4, "big", signed=True))

    def wild_entry(self) -> None:
        self.write(self.one(), self.entry() + self.rng.choice([0, 4, 12, 16]), self.rng.randbytes(4))

    def flip_entry(self) -> None:
        path, at = self.one(), self.entry() + self.rng.randrange(ENTRY)
        self.write(path, at, bytes(byte ^ 1 << self.rng.randrange(8) for byte in path.read_bytes()[at : at + 1]))

    def wild_header(self) -> None:
        at, length = self.rng.choice([(0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)])
        value = self.rng.choice([bytes(8), b"\xff" * 8, self.rng.randbytes(8), b"\0" * 6 + self.rng.randbytes(2)])
        self.write(self.one(), at, value[8 - length :])

    def flip_header(self) -> None:
        path, at = self.one(), self.rng.randrange(HEADER)
        self.write(path, at, bytes(byte ^ 1 << self.rng.randrange(8) for byte in path.read_bytes()[at : at + 1]))

    def resize(self) -> None:
        path = self.one()
        data = path.read_bytes()
        size = self.rng.choice([0, 1, 39, 40, len(data) // 2, len(data) - 1, len(data) + 1, 2 * len(data)])
        self.done.append(f"{size} bytes")
        path.write_bytes(data[:size].ljust(size, b"\1"))

    def swap(self) -> None:
        one, two = self.one(), self.one()
        a, b = one.read_bytes(), two.read_bytes()
        one.write_bytes(b)
        two.write_bytes(a)

    def copy_over(self) -> None:
        one, two = self.one(), self.one()
        two.write_bytes(one.read_bytes())

    def copy_beside(self) -> None:
        path = self.one()
        self.named().write_bytes(path.read_bytes())

    def rename(self) -> None:
        self.one().rename(self.named())

    def junk(self) -> None:
        size = self.rng.choice([0, 100, HEADER + SLOT * SLOTS + ENTRY * ENTRIES])
        self.named().write_bytes(self.rng.choice([bytes(size), self.rng.randbytes(size)]))

    def named(self) -> Path:
        """A name that no file has, of an index file or of none."""
        there = [int(path.name) for path in self.files() if path.name.isdecimal()] or [10**16]
        number = self.rng.choice([0, 5, 10**15, there[0] + 1, there[-1] + 7, -1])
        path = self.index / (f"{number:017d}" if number >= 0 else "core.1")
        self.done.append(f"to {path.name}")
        return path


ENTRY_KINDS: list[Callable[[Damager], None]] = [Damager.wild_entry, Damager.flip_entry]
KINDS: list[Callable[[Damager], None]] = [
    Damager.lose,
    Damager.lose_many,
    Damager.zero_page,
    Damager.wild_slot,
    Damager.wild_header,
    Damager.flip_header,
    Damager.resize,
    Damager.swap,
    Damager.copy_over,
    Damager.copy_beside,
    Damager.rename,
    Damager.junk,
]


def files(root: Path) -> dict[str, str]:
    """What the store's files hold, but for what repairs keep."""
    found = stores.contents(root).items()
    return {path: seen for path, seen in found if seen != "directory" and not path.startswith("salvage")}


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(80), 7))
def test_every_key_is_found_whatever_was_done_to_the_index(made: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = stores.copy(made, tmp_path / "store")
    damager = Damager(root, rng)
    # One entry among sound ones is held against the log where that is read.
    how: dict[str, Any] = rng.choice([{}, {"cut": True}, {"whole": True}, {"bridge": True}])
    kinds = [*KINDS, *ENTRY_KINDS] if how.keys() & {"whole", "bridge"} else KINDS
    for _ in range(rng.randrange(1, 4)):
        if damager.files():
            rng.choice(kinds)(damager)
    if rng.random() < 0.5:
        (root / "abort").touch()
        if rng.random() < 0.5:
            (root / "checkpoint").write_bytes(bytes(4096))
    before = files(root)
    apply(Disk(), plan_recover(Disk(), settings(root), **how))
    again = plan_recover(Disk(), settings(root), **how)
    assert not again.changed, (damager.done, again.to_json())
    assert lost_keys(root) == [], damager.done
    check_clean(root, settings(root))
    if files(root) != before:
        undo(Disk(), plan_undo(Disk(), settings(root)))
        assert files(root) == before, damager.done


def inferred(root: Path) -> StoreConfig:
    """The settings without those of the index: its files tell."""
    return StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=16 << 10, mapped_file_size_consume_queue=2000
    )


@pytest.mark.parametrize("cut", [[3000], [84 + 40, 84 + 40], [4576, 4576, 100], [300, 300, 300, 300], [2000] * 5])
def test_files_that_were_cut_do_not_tell_the_layout_to_the_others(made: Path, tmp_path: Path, cut: list[int]) -> None:
    root = stores.copy(made, tmp_path / "store")
    for path, size in zip(sorted((root / "index").iterdir()), cut, strict=False):
        path.write_bytes(path.read_bytes()[:size])
    apply(Disk(), plan_recover(Disk(), inferred(root)))
    assert {path.stat().st_size for path in (root / "index").iterdir()} == {HEADER + SLOT * SLOTS + ENTRY * ENTRIES}
    assert lost_keys(root) == []
    assert not plan_recover(Disk(), inferred(root)).changed


@pytest.mark.leaves("file-size", "index-missing")
def test_files_that_tell_nothing_are_made_anew_at_the_default_sizes(made: Path, tmp_path: Path) -> None:
    root = stores.copy(made, tmp_path / "store")
    for path in (root / "index").iterdir():
        path.write_bytes(b"no index file")
    plan = plan_recover(Disk(), inferred(root))
    assert plan.refusal is None
    assert len(plan.index.removed) == len(list((root / "index").iterdir()))
    assert plan.index.keys_put == 2 * sum(1 for i in range(MESSAGES) if i % 150 < 120)
    assert any("index file size unknown" in problem for problem in plan.problems)


def test_entry_0_proves_no_layout(tmp_path: Path) -> None:
    """20 slots and 60 entries are as long as 15 and 61, whose first entry is the unused one of the file: all zeros."""
    root = tmp_path / "store"
    config = settings(root).with_changes(max_hash_slot_num=20, max_index_num=60)
    with MessageStore.open(config) as store:
        for i in range(100):
            assert store.put(Message("T", b"body", 0, {"KEYS": f"key{i}", "UNIQ_KEY": f"unique{i}"})).ok
    layout = survey(Disk(), inferred(root)).index_layout
    assert (layout.slots, layout.entries) == (20, 60)
    assert not plan_recover(Disk(), inferred(root), whole=True).changed


def test_a_begin_timestamp_that_was_lost_beside_damage_is_not_kept(made: Path, tmp_path: Path) -> None:
    """The file keeps the entries of one record, which alone would be measured against it: the second run did."""
    root = stores.copy(made, tmp_path / "store")
    last = max((root / "index").iterdir())
    data = bytearray(last.read_bytes())
    data[:8] = bytes(8)
    behind = HEADER + SLOT * SLOTS + ENTRY * 3
    data[behind : behind + 600] = bytes(600)
    last.write_bytes(data)
    apply(Disk(), plan_recover(Disk(), settings(root), whole=True))
    assert lost_keys(root) == []
    assert not plan_recover(Disk(), settings(root), whole=True).changed


@pytest.mark.leaves("index-time")
def test_as_few_other_times_as_a_whole_run_leaves_are_left_by_the_next(made: Path, tmp_path: Path) -> None:
    """Two records of other store times than their entries are few of a file, and many of the part that is compared."""
    root = stores.copy(made, tmp_path / "store")
    with ReadStore(settings(root)) as store:
        places = [store.get("T", i % 3, i // 3).messages[0] for i in (370, 371)]
    for message in places:
        one = decode(message)
        assert one.physical_offset is not None
        offset = one.physical_offset
        segment = root / "commitlog" / f"{offset - offset % (16 << 10):020d}"
        with segment.open("r+b") as file:
            file.seek(offset % (16 << 10) + store_timestamp_position(0))
            file.write((one.store_timestamp + 3_600_000).to_bytes(8, "big"))
    for options in ({"whole": True}, {}, {"whole": True}):
        assert not plan_recover(Disk(), settings(root), **options).index.changed


@pytest.mark.parametrize("whole", [False, True])
def test_the_index_of_another_log_goes_whatever_part_is_compared(tmp_path: Path, whole: bool) -> None:
    """Of its one file a plain run compares the entries of the last segments: none of them has a key that is there."""
    config = settings(tmp_path / "mine").with_changes(max_index_num=2000)
    for name in ("mine", "other"):
        with MessageStore.open(config.with_changes(store_path_root_dir=tmp_path / name)) as store:
            for i in range(700):
                assert store.put(Message("T", b"%06d" % i * 20, 0, {"KEYS": f"{name[0]}{i:05d}"})).ok
    (mine,), (other,) = ((tmp_path / name / "index").iterdir() for name in ("mine", "other"))
    mine.write_bytes(other.read_bytes())
    apply(Disk(), plan_recover(Disk(), config, whole=whole))
    with ReadStore(config) as store:
        assert all(len(store.query("T", f"m{i:05d}").messages) == 1 for i in range(0, 700, 7))
    assert not plan_recover(Disk(), config, whole=True).changed


@pytest.mark.leaves("index-time")
def test_one_rotten_store_time_moves_no_index_file_that_is_torn(made: Path, tmp_path: Path) -> None:
    root = stores.copy(made, tmp_path / "store")
    last = max((root / "index").iterdir())
    data = bytearray(last.read_bytes())
    begin, first = int.from_bytes(data[:8], "big"), int.from_bytes(data[16:24], "big")
    count = int.from_bytes(data[36:40], "big")
    torn = HEADER + SLOT * SLOTS + ENTRY * (count - 2)
    data[torn : torn + 2 * ENTRY] = bytes(2 * ENTRY)
    last.write_bytes(data)
    with (root / "commitlog" / f"{first - first % (16 << 10):020d}").open("r+b") as file:
        file.seek(first % (16 << 10) + store_timestamp_position(0))
        file.write((begin ^ 1 << 30).to_bytes(8, "big"))
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert last.name not in plan.index.removed
    apply(Disk(), plan)
    assert last.read_bytes()[:8] == begin.to_bytes(8, "big")
    assert lost_keys(root) == []
    assert not plan_recover(Disk(), settings(root), whole=True).changed
