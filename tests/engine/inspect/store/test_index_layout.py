"""The split of an index file into slots and entries, told by what is in it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.index_file import IndexLayout
from engine.format.message import Message
from engine.inspect.store.index_layout import infer_index_layout
from engine.log.index_service import IndexService
from engine.store import MessageStore

SLOTS, ENTRIES, MESSAGES = 1000, 5000, 104


@pytest.mark.parametrize("seed", [0, 1, 2, 58, 115, 117, 119])  # the last four were
def test_an_unusual_split_is_not_taken_for_another(seed: int, tmp_path: Path) -> None:
    """In most other splits the first entry lies in zeros, and its slot, too: that alone proves nothing."""
    rng = Random(f"layout {seed}")
    config = StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(
        mapped_file_size_commit_log=1 << 20, max_hash_slot_num=SLOTS, max_index_num=ENTRIES
    )
    with MessageStore.open(config) as store:
        for _ in range(MESSAGES):
            store.put(Message("T", b"x", properties={"UNIQ_KEY": f"{rng.getrandbits(128):032X}"}))
    disk = Disk()
    assert infer_index_layout(disk, disk.scandir(str(tmp_path / "s" / "index"))) == IndexLayout(SLOTS, ENTRIES)


def _inferred(directory: Path, layout: IndexLayout, hashes: list[int], offsets: list[int]) -> IndexLayout | None:
    """What is told of an index file with these keys alone."""
    disk = Disk()
    index = IndexService(disk, str(directory), layout)
    for number, (key_hash, offset) in enumerate(zip(hashes, offsets, strict=True)):
        index.put_message([key_hash], offset, 1_700_000_000_000 + number)
    index.shutdown()
    return infer_index_layout(disk, disk.scandir(str(directory)))


@pytest.mark.parametrize("others", [0, 1, 4])
def test_the_key_of_the_first_slot(others: int, tmp_path: Path) -> None:
    """Its slot is where another layout has that of a first entry that is all zeros, of a message at 0."""
    layout = IndexLayout(SLOTS, ENTRIES)
    hashes = [SLOTS * 4711, *range(SLOTS - 1, SLOTS - 1 - others, -1)]
    assert _inferred(tmp_path / "index", layout, hashes, [0] * len(hashes)) == layout


def test_the_key_of_the_first_slot_of_a_file_that_was_cut(tmp_path: Path) -> None:
    layout = IndexLayout(SLOTS, 4 * SLOTS)
    assert _inferred(tmp_path / "index", layout, [SLOTS * 4711], [0]) == layout
    (file,) = (tmp_path / "index").iterdir()
    file.write_bytes(file.read_bytes()[: layout.entry_position(3) + 1])
    disk = Disk()
    assert infer_index_layout(disk, disk.scandir(str(tmp_path / "index"))) == layout


@pytest.mark.parametrize("seed", range(4))
def test_few_keys(seed: int, tmp_path: Path) -> None:
    rng = Random(f"few {seed}")
    for number in range(150):
        layout = IndexLayout(*rng.choice([(1000, 5000), (100, 500), (64, 1000), (500, 20_000)]))
        offsets = sorted(rng.choice((0, rng.randrange(1000))) for _ in range(rng.choice((1, 2, 3, 5, 12, 40))))
        hashes = [rng.randrange(1 << 31) for _ in offsets]
        hashes[0] -= hashes[0] % layout.slots if number % 3 == 0 else 0
        assert _inferred(tmp_path / str(number), layout, hashes, offsets) == layout, number
