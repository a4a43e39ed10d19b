"""The read-only view: what Apache reads from its own stores, without writing a byte."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import FormatError, InvalidArgument, NotAStore, StorageError
from engine.files.disk import Disk
from engine.format.message import Message, StoredMessage, decode
from engine.log.filters import TagFilter
from engine.log.reading import has_key
from engine.log.results import GetMessageStatus
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.support import golden, stores
from tests.support.counting import CountingDisk

Store = Callable[[str], Path]
NAMES = ["clean-small", "crashed-small", "default-sizes-tiny"]


def view(root: Path) -> ReadStore:
    return ReadStore(StoreConfig(store_path_root_dir=root))


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_got_as_apache_gets_it(name: str, golden_store: Store) -> None:
    lines = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in golden.dump(name, "msg")}
    seen = 0
    with view(golden_store(name)) as store:
        for queue in golden.dump(name, "queue"):
            topic, queue_id = queue["topic"], queue["queueId"]
            if store.find_queue(topic, queue_id) is None:
                assert queue["max"] == 0
                continue
            assert store.min_offset(topic, queue_id) == queue["min"]
            assert store.max_offset(topic, queue_id) == queue["max"]
            at = queue["min"]
            while at < queue["max"]:
                result = store.get(topic, queue_id, at, 32)
                assert result.status is GetMessageStatus.FOUND
                for record in result.messages:
                    found, expected = decode(record), lines[topic, queue_id, at]
                    assert found.physical_offset == expected["physicalOffset"]
                    assert found.msg_id == expected["msgId"]
                    assert hashlib.md5(found.body).hexdigest() == expected["bodyMd5"]
                    assert found.properties_raw.decode() == expected["propertiesString"]
                    assert found.store_timestamp == expected["storeTimestamp"]
                    at += 1
                    seen += 1
                assert result.next_begin_offset == at
    assert seen == len(lines)


@pytest.mark.parametrize("name", NAMES)
def test_every_query_finds_what_apache_finds_less_what_has_another_key(name: str, golden_store: Store) -> None:
    with view(golden_store(name)) as store:
        for line in golden.dump(name, "query"):
            result = store.query(line["topic"], line["key"], max_num=64)
            right = [
                offset
                for offset in line["offsets"]
                if has_key(decode(store.log.read_at(offset, record_size(store, offset))), line["topic"], line["key"])
            ]
            if name == "crashed-small":  # read after Apache's recovery, which has lost keys (RECOVERY.md, rule 4)
                assert set(right) <= set(result.offsets)
                continue
            assert list(result.offsets) == sorted(set(right))
            if line["offsets"]:  # Apache says 0 where it found nothing
                assert result.index_last_update_timestamp == line["indexLastUpdateTimestamp"]
                assert result.index_last_update_offset == line["indexLastUpdatePhyoffset"]


def record_size(store: ReadStore, offset: int) -> int:
    found = store.look_message(offset)
    assert found is not None
    return found.total_size


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_found_by_its_place_and_by_its_id(name: str, golden_store: Store) -> None:
    with view(golden_store(name)) as store:
        for line in golden.dump(name, "log"):
            found = store.look_message(line["physicalOffset"])
            assert found is not None
            assert (found.msg_id, found.total_size) == (line["msgId"], line["size"])
            assert store.look_by_msg_id(line["msgId"]) == found
        with pytest.raises(FormatError):
            store.look_message(5)
        with pytest.raises(InvalidArgument):
            store.look_by_msg_id("no id")
        assert store.look_message(1 << 40) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_the_log(name: str, golden_store: Store) -> None:
    (state,) = golden.dump(name, "store")
    with view(golden_store(name)) as store:
        assert store.log.max_offset == state["maxPhyOffset"]
        assert store.log.min_offset == state["minPhyOffset"]


@pytest.mark.parametrize("name", NAMES)
def test_the_open_store_answers_the_same(name: str, golden_copy: Store) -> None:
    root = golden_copy(name)
    queues = [q for q in golden.dump(name, "queue") if q["max"]]
    times = sorted({m["storeTimestamp"] for m in golden.dump(name, "log")})[:: 1 + len(NAMES) * 40]
    asked = [*times, times[0] - 5, times[-1] + 5, times[1] + 1]
    keys = [(q["topic"], q["key"]) for q in golden.dump(name, "query")][::50]
    with view(root) as store:
        expected = answers(store, queues, asked, keys)
    with MessageStore.open(StoreConfig(store_path_root_dir=root)) as opened:
        assert answers(opened, queues, asked, keys) == expected


def answers(store: ReadStore | MessageStore, queues: list, times: list[int], keys: list) -> list[object]:
    out: list[object] = []
    for queue in queues:
        at = (queue["topic"], queue["queueId"])
        out += [store.min_offset(*at), store.max_offset(*at), store.earliest_message_time(*at)]
        for time in times:
            low, high = store.lower_bound(*at, time), store.upper_bound(*at, time)
            assert low <= high
            assert low == store.max_offset(*at) or store.message_store_timestamp(*at, low) >= time
            assert low == store.min_offset(*at) or store.message_store_timestamp(*at, low - 1) < time
            out += [low, high, store.offset_by_time(*at, time)]
        for offset in (-1, 0, queue["max"] // 2, queue["max"] - 1, queue["max"], queue["max"] + 1):
            result = store.get(*at, offset, 7)
            out.append((result, tuple(map(bytes, result.messages))))
    for topic, key in keys:
        out.append(store.query(topic, key).offsets)
    out.append(store.earliest_message_time())
    return out


@pytest.mark.leaves("not-closed")
def test_reading_writes_nothing(golden_copy: Store, unchanged: Callable[[Path], None]) -> None:
    root = golden_copy("crashed-small")
    unchanged(root)
    with view(root) as store:
        for queue in store.queues():
            store.get(queue.topic, queue.queue_id, 0)
            store.offset_by_time(queue.topic, queue.queue_id, 1_700_000_100_000)
        store.query("OracleTopicA", "k133")
        assert store.log.max_offset > 0


def test_reading_beside_the_store_that_writes(tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:
        for i in range(50):
            writer.put(Message("T", b"%d" % i, properties={"KEYS": f"k{i}"}))
        assert writer.wait_dispatched()
        with view(tmp_path) as reader:
            assert [bytes(decode(m).body) for m in reader.get("T", 0, 48).messages] == [b"48", b"49"]
            assert reader.query("T", "k7").offsets == writer.query("T", "k7").offsets
            assert reader.log.max_offset == writer.log.max_offset


def test_segments_made_since_the_view_was_opened(tmp_path: Path) -> None:
    """A queue is looked at when it is asked for: it may name messages in segments that were not there before."""
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:
        first = writer.put(Message("T", b"first")).append
        assert writer.wait_dispatched()
        with ReadStore(config) as store:
            while writer.log.max_offset < 3 * config.mapped_file_size_commit_log:
                last = writer.put(Message("T", b"later" * 200)).append
            assert writer.wait_dispatched()
            assert store.lower_bound("T", 0, first.store_timestamp) == 0
            assert store.message_store_timestamp("T", 0, last.queue_offset) == last.store_timestamp
            assert store.get("T", 0, last.queue_offset).message_count == 1
            assert store.log.max_offset == writer.log.max_offset


def test_a_message_that_is_written_while_it_is_looked_for(tmp_path: Path) -> None:
    """Nothing lay there at the first look, and then a record began at that very place: "inside a record" was told."""
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:

        class Beside(ReadStore):
            def look_message(self, physical_offset: int) -> StoredMessage | None:
                try:
                    return super().look_message(physical_offset)
                finally:
                    assert writer.put(Message("T", b"later")).ok

        assert writer.put(Message("T", b"first")).ok
        with Beside(config) as reader:
            assert reader.message_at(writer.log.max_offset).body == b"later"
        assert writer.wait_dispatched()


@pytest.mark.leaves("index-orphaned", "unit-orphaned")
def test_a_unit_behind_the_log_is_a_message_that_is_gone(golden_copy: Store) -> None:
    root = golden_copy("clean-small")
    last = golden.dump("clean-small", "log")[-1]
    path = root / "commitlog" / f"{last['physicalOffset'] // 1048576 * 1048576:020d}"
    with path.open("r+b") as file:
        file.seek(last["physicalOffset"] % 1048576)
        file.write(bytes(last["size"]))
    with view(root) as store:
        result = store.get(last["topic"], last["queueId"], last["queueOffset"])
        assert (result.status, result.message_count) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 0)
        assert store.log.max_offset == last["physicalOffset"]


@pytest.mark.leaves("unit-invalid", "unit-missing")
def test_damage_in_a_queue_does_not_delete_what_lies_behind(
    golden_copy: Store, unchanged: Callable[[Path], None]
) -> None:
    root = golden_copy("clean-small")
    with (root / "consumequeue/OracleTopicA/0/00000000000000000000").open("r+b") as file:
        file.seek(100 * 20)
        file.write(bytes(20))
    unchanged(root)
    with view(root) as store:
        assert store.max_offset("OracleTopicA", 0) == 100


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda found: bytes(len(found)),
    "noise": lambda found: random.Random(1).randbytes(len(found)),
    "bodies": lambda found: found[:200] + bytes([found[200] ^ 1]) + found[201:],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_units_that_point_into_one_damaged_part_are_passed_over_at_once(kind: str, tmp_path: Path) -> None:
    """Sound messages within it are got all the same, and the log is not looked through for each unit."""
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:
        puts = [writer.put(Message("T", b"%04d" % i * 200)).append for i in range(900)]
        assert writer.wait_dispatched()
    (log,) = (tmp_path / "commitlog").iterdir()
    sound = {*range(100), 400, 401, *range(800, 900)}
    true = log.read_bytes()
    data = bytearray(true)
    for i in set(range(900)) - sound:
        put = puts[i]
        assert put is not None
        part = slice(put.physical_offset, put.physical_offset + put.size)
        data[part] = DAMAGE[kind](bytes(data[part]))
    log.write_bytes(data)
    disk = CountingDisk()
    with ReadStore(config, disk) as store:
        disk.read.clear()
        found, at = [], 0
        while at < 900:
            result = store.get("T", 0, at, 32)
            found += [decode(record).body for record in result.messages]
            assert result.next_begin_offset > at
            at = result.next_begin_offset
    assert found == [b"%04d" % i * 200 for i in sorted(sound)]
    assert disk.read[log.name] < 8 * len(data)
    log.write_bytes(true)


def test_a_damaged_part_at_the_end_hides_nothing_that_a_broker_stores_later(tmp_path: Path) -> None:
    """Nothing sound followed when one queue was read. In a queue that is asked for later, it does."""
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:
        puts = [writer.put(Message("T", b"%04d" % i, queue_id=i % 2)).append for i in range(10)]
        assert writer.wait_dispatched()
        writer.flush()
        log = min((tmp_path / "commitlog").iterdir())
        start = puts[8].physical_offset
        true = log.read_bytes()[start : puts[9].next_offset]
        with ReadStore(config) as store:
            overwrite(log, start, b"\xff" * len(true))
            assert store.get("T", 0, 0, 32).message_count == 4
            assert all(writer.put(Message("T", b"later", queue_id=1)).ok for _ in range(5))
            assert writer.wait_dispatched()
            assert store.get("T", 1, 0, 32).message_count == 4 + 5
        overwrite(log, start, true)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_tags(golden_store: Store) -> None:
    wanted = [m for m in golden.dump("clean-small", "msg") if m["topic"] == "T" and m["tags"] in ("TagA", "TagB")]
    with view(golden_store("clean-small")) as store:
        found = [
            decode(record)
            for queue_id in (0, 1, 2, 3, 9)
            for record in store.get("T", queue_id, 0, 32, TagFilter.parse("TagA || TagB")).messages
        ]
    assert sorted(m.physical_offset for m in found) == sorted(m["physicalOffset"] for m in wanted)


def test_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        view(tmp_path)


def test_a_closed_view_says_so(golden_store: Store) -> None:
    store = view(golden_store("clean-small"))
    store.close()
    store.close()
    with pytest.raises(StorageError):
        store.get("T", 0, 0)


def test_only_what_is_asked_for_is_opened(golden_store: Store) -> None:
    opened: list[str] = []

    class Watched(Disk):
        def open_raw(self, path: str, **kwargs: bool):  # type: ignore[no-untyped-def]
            opened.append(path)
            return super().open_raw(path, **kwargs)

    with ReadStore(StoreConfig(store_path_root_dir=golden_store("clean-small")), Watched(mapped=False)) as store:
        store.get("T", 0, 0, 1)
    queues = {path for path in opened if "consumequeue" in path}
    assert {Path(path).parent.parent.name for path in queues} == {"T"}


def test_copies_are_the_same(golden_store: Store, tmp_path: Path) -> None:
    root = stores.copy(golden_store("clean-small"), tmp_path / "copy")
    with view(root) as one, view(golden_store("clean-small")) as two:
        assert one.queues() == two.queues()


def test_threads_read_the_right_file_of_many(tmp_path: Path) -> None:
    """More segments than are kept open: none is closed, and its descriptor given to another, under a read."""
    sizes = {"mapped_file_size_commit_log": 8192, "max_hash_slot_num": 40, "max_index_num": 160}
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**sizes)
    with MessageStore.open(config) as store:
        for i in range(900):
            assert store.put(Message("T", b"%06d" % i * 16)).ok
    wrong: list[object] = []

    def read(store: ReadStore, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(800):
            at = chance.randrange(900)
            try:
                (record,) = store.get("T", 0, at, 1).messages
                if decode(record).body != b"%06d" % at * 16:
                    wrong.append(at)
            except Exception as error:  # noqa: BLE001 - any is wrong
                wrong.append(error)

    with ReadStore(config) as store:
        assert len(store.files.log) > 20
        threads = [threading.Thread(target=read, args=(store, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
