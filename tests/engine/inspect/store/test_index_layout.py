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
