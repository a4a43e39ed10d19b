"""What a power cut tears by sector, and neighbours don't betray: tags codes of units, times of index entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from engine.format.message import Message
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.check.queue_compare import SECTOR
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.support import stores

SLOTS = 5000


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=20_000,
        max_hash_slot_num=SLOTS,
        max_index_num=20_000,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """700 messages with tags and a key each, half a second apart."""
    disk, clock = Disk(), [1_700_000_000_000]
    disk.now_ms = lambda: clock[0]  # type: ignore[method-assign]
    with MessageStore.open(settings(tmp_path), disk) as opened:
        for i in range(700):
            clock[0] += 500
            properties = {"KEYS": f"key{i}", "TAGS": f"tag{i}"}
            assert opened.put(Message("T", b"x" * 50, queue_id=i % 2, properties=properties)).ok
    return tmp_path


def derived(root: Path) -> dict[str, str]:
    return {p: digest for p, digest in stores.contents(root).items() if p.startswith(("consumequeue", "index"))}


@pytest.mark.parametrize("closed", [True, False])
def test_a_torn_tags_code_is_written_again(store: Path, closed: bool) -> None:
    before = derived(store)
    if not closed:  # and nothing was ever synced
        (store / "abort").touch()
        (store / "checkpoint").write_bytes(bytes(4096))
    torn = 0
    for path in sorted((store / "consumequeue" / "T").glob("*/*")):
        data = bytearray(path.read_bytes())
        for at in range(SECTOR, len(data), SECTOR):
            inside = at % UNIT_SIZE
            if inside >= UNIT_SIZE - 8 and any(data[at : at - inside + UNIT_SIZE]):
                data[at : at - inside + UNIT_SIZE] = bytes(UNIT_SIZE - inside)
                torn += 1
        path.write_bytes(data)
    assert torn > 5
    assert derived(store) != before
    apply(Disk(), plan_recover(Disk(), settings(store)))
    assert derived(store) == before


@pytest.mark.leaves("unit-tags")
def test_a_tags_code_that_differs_otherwise_stays(store: Path) -> None:
    """Nobody can tell the unit from the record there: properties have no checksum."""
    path = next(iter(sorted((store / "consumequeue" / "T" / "0").iterdir())))
    data = bytearray(path.read_bytes())
    data[UNIT_SIZE * 3 + 19] ^= 1
    path.write_bytes(data)
    plan = plan_recover(Disk(), settings(store))
    assert any("tags code does not match its record" in problem for problem in plan.problems)
    assert not plan.changed


@pytest.mark.parametrize("border", [8, 12])
def test_a_torn_time_in_the_index_is_put_again(store: Path, border: int) -> None:
    """The part of an entry behind a sector's border is zeros, where its link is 0 anyway."""
    before = derived(store)
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    (path,) = (store / "index").iterdir()
    start = HEADER_SIZE + SLOT_SIZE * SLOTS
    data = bytearray(path.read_bytes())
    torn = 0
    for at in range(-(-start // SECTOR) * SECTOR, len(data), SECTOR):
        entry = data[at - border : at - border + ENTRY_SIZE]
        if (at - start) % ENTRY_SIZE == border and any(entry[12:16]) and not any(entry[16:]):
            data[at : at + ENTRY_SIZE - border] = bytes(ENTRY_SIZE - border)
            torn += 1
    assert torn
    path.write_bytes(data)
    apply(Disk(), plan_recover(Disk(), settings(store)))
    assert derived(store) == before
