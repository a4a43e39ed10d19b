"""Extension files of consume queues: Apache's bytes again, addresses, cuts at both ends."""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.files.written import blocks_taken
from engine.format.numbers import LONG_MIN
from engine.format.queue_ext import ExtUnit, to_offset
from engine.log.consume_queue import ConsumeQueue, UnitsAppended
from engine.log.consume_queue_ext import ConsumeQueueExt, blocks_of_units
from engine.log.derive import TopicQueue
from engine.log.queue_files import ALLOCATE_STEP
from engine.log.state import QueueState
from tests.engine.log import rebuild
from tests.support import fixtures

Q = TopicQueue("T", 0)
SIZE = 100


@dataclass(frozen=True)
class Place:
    disk: Disk
    root: str

    def ext(self, max_address: int | None = None) -> ConsumeQueueExt:
        made = ConsumeQueueExt(self.disk, self.root, Q, SIZE)
        made.open(max_address)
        return made


@pytest.fixture(params=["map", "channel", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        request.getfixturevalue("fs").create_dir("/store")
        return Place(Disk(), "/store")
    return Place(Disk(mapped=request.param == "map"), str(request.getfixturevalue("tmp_path")))


def unit(n: int, bits: int = 8) -> ExtUnit:
    return ExtUnit(n, 1_700_000_000_000 + n, bytes([n]) * bits)


@pytest.mark.leaves("checkpoint-missing", "log-missing")
@pytest.mark.parametrize("at_once", [True, False])
def test_apaches_bytes_again(fixture_store, tmp_path: Path, at_once: bool) -> None:
    name = "transient-ext"
    store, config = fixture_store(name), rebuild.config_of(name, ours=True)
    with lzma.open(fixtures.FIXTURES / f"{name}.dump.jsonl.xz", "rt", encoding="utf-8") as lines:
        messages = [one for one in map(json.loads, lines) if one["type"] == "msg"]
    bits = {one["cqPhyOffset"]: bytes.fromhex(one["cqExt"]["bitMap"] or "") for one in messages}
    numbers, parts = rebuild.derived(store, config)
    queues: dict[TopicQueue, ConsumeQueue] = {}
    for units, _ in parts:
        for queue, some in rebuild.by_queue(numbers, units):
            if queue not in queues:
                ext = ConsumeQueueExt(
                    Disk(), str(tmp_path / "consumequeue_ext"), queue, config.mapped_file_size_consume_queue_ext
                )
                base = str(tmp_path / "consumequeue")
                queues[queue] = ConsumeQueue(Disk(), base, queue, config.mapped_file_size_consume_queue, ext)
            maps = [bits[physical] for physical in some.physical_offset.tolist()]
            columns = (some.queue_offset, some.physical_offset, some.size, some.tags_code)
            if at_once:
                result = queues[queue].append(*columns, store_timestamp=some.store_timestamp, bit_maps=maps)
                assert result == UnitsAppended(appended=len(some))
                continue
            for i, (offset, physical, size, tags) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True)
            ):
                time = int(some.store_timestamp[i])
                queues[queue].put_one(offset, physical, size, tags, store_timestamp=time, bit_map=maps[i])
    for one in messages:
        found = queues[TopicQueue(one["cqTopic"], one["cqQueueId"])]
        stored = found.get(one["cqOffset"])
        assert stored is not None
        assert stored.tags_code == one["cqTagsCode"]
        ext_unit, seen = found.ext_unit(stored.tags_code), one["cqExt"]
        assert ext_unit == ExtUnit(seen["tagsCode"], seen["msgStoreTime"], bytes.fromhex(seen["bitMap"] or ""))
        assert ext_unit.size == seen["size"]
    for queue_ in queues.values():
        queue_.flush()
        queue_.shutdown()
    for part in ("consumequeue", "consumequeue_ext"):
        theirs, mine = rebuild.files_below(store / part), rebuild.files_below(tmp_path / part)
        assert list(mine) == list(theirs)
        assert [path for path in mine if mine[path].read_bytes() != theirs[path].read_bytes()] == []


def test_opening_changes_no_byte(fixture_store, unchanged) -> None:
    store, config = fixture_store("transient-ext"), rebuild.config_of("transient-ext", ours=True)
    unchanged(store)
    for directory in sorted((store / "consumequeue").glob("*/*")):
        queue = TopicQueue(directory.parent.name, int(directory.name))
        ext = ConsumeQueueExt(Disk(), str(store / "consumequeue_ext"), queue, config.mapped_file_size_consume_queue_ext)
        found = ConsumeQueue(Disk(), str(store / "consumequeue"), queue, config.mapped_file_size_consume_queue, ext)
        found.open(None)
        last = found.get(found.max_offset - 1)
        assert last is not None
        newest = found.ext_unit(last.tags_code)
        assert newest is not None
        assert ext.max_address == last.tags_code + newest.size
        assert ext.min_address == LONG_MIN
        found.shutdown()


def test_units_and_addresses(place: Place) -> None:
    ext = place.ext()
    assert (ext.min_address, ext.max_address) == (LONG_MIN, LONG_MIN)
    assert ext.get(LONG_MIN) is None
    addresses = [ext.put(unit(n)) for n in range(7)]  # 28 bytes each: three a file of 100
    assert addresses == [LONG_MIN + n // 3 * 100 + n % 3 * 28 for n in range(7)]
    assert [ext.get(address) for address in addresses if address is not None] == [unit(n) for n in range(7)]
    assert ext.max_address == LONG_MIN + 228
    assert ext.get(LONG_MIN + 84) is None  # the end marker
    assert ext.get(LONG_MIN + 228) is None
    assert ext.get(5) is None
    while not ext.flush():
        pass
    files = place.disk.listdir(f"{place.root}/T/0")
    assert place.disk.read_file(f"{place.root}/T/0/{files[0]}")[84:] == b"\xff\xff" + bytes(14)
    ext.shutdown()
    again = place.ext()
    assert again.max_address == LONG_MIN + 228
    assert again.put(unit(8)) == LONG_MIN + 228


def test_what_cannot_be_stored(place: Place) -> None:
    ext = place.ext()
    assert ext.put(unit(1, bits=76)) == LONG_MIN  # with its 4 free bytes it fills a file
    assert ext.put(unit(2, bits=77)) is None
    assert ext.put(unit(3, bits=1)) == LONG_MIN + 100
    with pytest.raises(InvalidArgument):
        ConsumeQueueExt(place.disk, place.root, Q, 23)


def test_a_queue_keeps_the_hash_of_what_cannot_be_stored(place: Place) -> None:
    queue = ConsumeQueue(place.disk, f"{place.root}/q", Q, 200, ConsumeQueueExt(place.disk, place.root, Q, SIZE))
    queue.open(None)
    queue.put_one(0, 0, 100, 42, store_timestamp=5, bit_map=bytes(90))
    queue.put_one(1, 100, 100, 43, store_timestamp=6)
    queue.put_one(2, 200, 100, 44)
    assert queue.read(0, 3)["tags_code"].tolist() == [42, LONG_MIN, 44]
    assert queue.ext_unit(LONG_MIN) == ExtUnit(43, 6)
    assert queue.ext_unit(42) is None


def test_a_cut_queue_cuts_its_extension(place: Place) -> None:
    def opened(state: QueueState | None) -> ConsumeQueue:
        queue = ConsumeQueue(place.disk, f"{place.root}/q", Q, 200, ConsumeQueueExt(place.disk, place.root, Q, SIZE))
        queue.open(state)
        return queue

    queue = opened(None)
    n = np.arange(25, dtype=np.int64)
    maps = [bytes([i]) * 8 for i in range(25)]
    queue.append(n, n * 100, np.full(25, 100, np.int32), n, store_timestamp=n + 5, bit_maps=maps)
    queue.shutdown()
    queue = opened(QueueState(Q, 0, 12, 1200))
    assert queue.ext is not None
    assert queue.ext.max_address == LONG_MIN + 3 * 100 + 84
    queue.put_one(12, 1200, 100, 12, store_timestamp=17, bit_map=maps[12])
    unit_12 = queue.get(12)
    assert unit_12 is not None
    assert queue.ext_unit(unit_12.tags_code) == ExtUnit(12, 17, maps[12])
    # and what the log has lost at its beginning goes from the extension, too
    assert queue.delete_expired(1150) == 1
    assert queue.min_offset == 12
    assert queue.ext.min_address == LONG_MIN + 300
    assert queue.ext_unit(LONG_MIN) is None
    queue.destroy()
    assert not place.disk.exists(f"{place.root}/T/0")


def test_cuts_at_addresses(place: Place) -> None:
    ext = place.ext()
    for n in range(12):
        ext.put(unit(n))
    assert not ext.truncate_by_max_address(7)
    assert not ext.truncate_by_max_address(LONG_MIN + 5000)
    assert ext.truncate_by_max_address(LONG_MIN + 228)
    assert ext.max_address == LONG_MIN + 256
    assert ext.truncate_by_min_address(7) == 0
    assert ext.truncate_by_min_address(LONG_MIN + 100) == 0  # Apache keeps a file that ends just there
    assert ext.truncate_by_min_address(LONG_MIN + 128) == 1
    assert ext.min_address == LONG_MIN + 100
    assert ext.get(LONG_MIN) is None
    assert ext.get(LONG_MIN + 128) == unit(4)


@given(bits=st.lists(st.integers(0, 76), max_size=30), junk=st.binary(max_size=60))
def test_the_end_is_found_again(tmp_path_factory: pytest.TempPathFactory, bits: list[int], junk: bytes) -> None:
    place = Place(Disk(), str(tmp_path_factory.mktemp("ext")))
    ext = place.ext()
    addresses = [ext.put(unit(n, bits=size)) for n, size in enumerate(bits)]
    end = ext.max_address
    ext.shutdown()
    if bits and junk and 2 <= len(junk) <= SIZE - (end - LONG_MIN) % SIZE and (end - LONG_MIN) % SIZE:
        # bytes of a unit that was not finished: whatever they are, opening survives
        path = Path(place.root, "T", "0", f"{(end - LONG_MIN) // SIZE * SIZE:020d}")
        data = bytearray(path.read_bytes())
        at = (end - LONG_MIN) % SIZE
        data[at : at + len(junk)] = junk
        path.write_bytes(data)
    again = place.ext(addresses[-1] if addresses else None)
    assert again.max_address == end
    assert [again.get(one) for one in addresses if one is not None] == [unit(n, bits=b) for n, b in enumerate(bits)]
    again.shutdown()


@pytest.mark.parametrize(
    ("size", "before", "put_then"),
    [
        (64, [2], ([1], [3, 1, 20])),
        (20_000, [700], ([1], [3, 1, 2000, 1])),
        (1 << 20, [], ([1], [3, 1, 2000, 1], [9000])),
        (1 << 20, [40_000], ([1], [3, 1, 2000, 1], [9000], [20_000])),
        (1 << 20, [100, 7], ([9000],)),
    ],
    ids=str,
)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_blocks_of_units_are_those_that_the_files_get(
    size: int, before: list[int], put_then: tuple[list[int], ...], sparse: bool, tmp_path: Path
) -> None:
    """With `sparse` after a copy that left out what no unit is in."""
    root, disk = tmp_path / "ext", Disk()
    note = 4096  # of a file that is in pieces, ext4 keeps in one more block where they lie

    def put(runs: list[int]) -> int | None:
        end = None
        for count in runs:
            ext = ConsumeQueueExt(disk, str(root), Q, size)
            ext.open()
            for n in range(count):
                assert ext.put(ExtUnit(n + 1, n + 1)) is not None
            end = to_offset(ext.max_address)
            ext.shutdown()
        return end

    def blocks() -> dict[int, int]:
        return {int(path.name): path.stat().st_blocks * 512 for path in root.glob("*/*/*")}

    end = put(before)
    if sparse and before:
        subprocess.run(["cp", "-a", "--sparse=always", root, tmp_path / "copy"], check=True)
        shutil.rmtree(root)
        (tmp_path / "copy").rename(root)
    for runs in put_then:
        old = blocks()
        assert end is None or end // size * size == max(old)
        told = {offset: blocks_taken([span]) for offset, span in blocks_of_units(size, end, runs).items()}
        end = put(runs)
        more = {offset: found - old.get(offset, 0) for offset, found in blocks().items()}
        for offset, found in more.items():
            wanted = told.get(offset, 0)
            assert found <= wanted + note, "no more than was told"
            assert wanted <= found + (ALLOCATE_STEP + 2 * note if offset in old else 0), "but for what was there"
