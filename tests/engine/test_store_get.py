"""A get to the letter: every status with its corrected offset, and how much is given at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import BrokerRole
from engine.format.message import decode
from engine.format.queue_ext import ExtUnit
from engine.log.filters import TagFilter
from engine.log.reading import ReadLimits, get_message, total_physical_memory
from engine.log.results import GetMessageStatus as Status
from engine.log.results import GetResult
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small

MIB = 1 << 20
COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """100 messages of 1 KiB and a bit in T/0, every third with another tag; 90 units are in the first file."""
    config = small(tmp_path_factory.mktemp("get"), mapped_file_size_consume_queue=1800)
    with MessageStore.open(config) as opened:
        for i in range(COUNT):
            assert opened.put(message(b"x" * 1024, TAGS="odd" if i % 3 else "third")).ok
        assert opened.wait_dispatched()
        yield opened
    assert_sound(config)


def limits(**changes: int | bool) -> ReadLimits:
    given = {
        "memory": 1 << 40,
        "bytes_in_memory": 256 * 1024,
        "count_in_memory": 32,
        "bytes_in_disk": 64 * 1024,
        "count_in_disk": 8,
        "correct_offsets": True,
    }
    return ReadLimits(**{**given, **changes})  # type: ignore[arg-type]


def get(store: MessageStore, offset: int, max_msgs: int = 32, **changes: int | bool) -> GetResult:
    queue = store.find_queue("T", 0)
    return get_message(store.log, store.log.max_offset, queue, offset, max_msgs, limits(**changes))


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, Status.OFFSET_TOO_SMALL, 0),
        (0, Status.FOUND, 32),
        (COUNT - 1, Status.FOUND, COUNT),
        (COUNT, Status.OFFSET_OVERFLOW_ONE, COUNT),
        (COUNT + 1, Status.OFFSET_OVERFLOW_BADLY, COUNT),
        (COUNT + 1000, Status.OFFSET_OVERFLOW_BADLY, COUNT),
    ],
)
def test_statuses(store: MessageStore, offset: int, status: Status, following: int) -> None:
    result = store.get("T", 0, offset)
    assert (result.status, result.next_begin_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (0, COUNT)
    assert result.total_size == sum(map(len, result.messages))


def test_a_queue_that_is_not_there(store: MessageStore) -> None:
    result = store.get("T", 7, 5)
    assert (result.status, result.next_begin_offset, result.message_count) == (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0)
    assert store.min_offset("T", 7) == store.max_offset("T", 7) == 0
    assert store.offset_by_time("T", 7, 0) == store.lower_bound("T", 7, 0) == store.upper_bound("T", 7, 0) == 0
    assert store.message_store_timestamp("T", 7, 0) == store.earliest_message_time("T", 7) == -1


def test_a_slave_leaves_a_wrong_offset_as_it_is(store: MessageStore) -> None:
    assert get(store, COUNT + 5, correct_offsets=False).next_begin_offset == COUNT + 5
    assert get(store, -3, correct_offsets=False).next_begin_offset == -3
    slave = small(Path("/none"), broker_role=BrokerRole.SLAVE)
    assert not ReadLimits.of(slave).correct_offsets
    assert ReadLimits.of(slave.with_changes(offset_check_in_slave=True)).correct_offsets


def test_the_limits_of_what_is_in_memory(store: MessageStore) -> None:
    size = len(get(store, 1, 1).messages[0])
    assert get(store, 0, 100).message_count == 32
    assert get(store, 0, 5).message_count == 5
    assert get(store, 0, 5).next_begin_offset == 5
    assert get(store, 0, 0).message_count == 1  # the first is always given
    assert get(store, 1, 100, bytes_in_memory=3 * size + 5).message_count == 3
    assert get(store, 1, 100, bytes_in_memory=10).message_count == 1


def test_the_limits_of_what_is_on_disk(store: MessageStore) -> None:
    assert get(store, 0, 100, memory=0).message_count == 8
    assert get(store, 0, 100, memory=0, bytes_in_disk=2500).message_count == 2
    half = store.log.max_offset // 2
    mixed = get(store, 46, 32, memory=half)
    assert mixed.message_count == 32
    assert mixed.suggest_from_slave is False
    assert get(store, 0, 5, memory=half).suggest_from_slave is True


def test_what_is_in_one_file_of_the_queue_is_given_at_once(store: MessageStore) -> None:
    result = get(store, 80, 32)
    assert (result.message_count, result.next_begin_offset) == (10, 90)
    assert get(store, 90, 32).message_count == 10


def test_a_filter_looks_at_so_many_units(store: MessageStore) -> None:
    result = store.get("T", 0, 0, 32, TagFilter(["third"]))
    assert [decode(record).queue_offset for record in result.messages] == list(range(0, 90, 3))
    assert result.next_begin_offset == 90
    nothing = store.get("T", 0, 0, 32, TagFilter(["none"]))
    assert (nothing.status, nothing.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 90)
    assert store.get("T", 0, 0, 4, TagFilter.parse("*")).message_count == 4


def test_a_filter_by_the_record() -> None:
    class Third:
        def matches_queue(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
            return True

        def matches_log(self, record: memoryview) -> bool:
            return False

    assert Third().matches_queue(None, None)
    wanted = TagFilter(["Aa"])  # "BB" has the same hash
    assert wanted.matches_queue(2112, None)
    assert wanted.matches_queue(None, None)


def test_a_tag_with_the_same_hash_is_not_taken_for_it(tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path)) as store:
        for tag in ("Aa", "BB"):
            store.put(message(TAGS=tag))
        assert store.wait_dispatched()
        assert store.get("T", 0, 0, 32, TagFilter(["Aa"])).message_count == 1
        assert store.get("T", 0, 0, 32, TagFilter(["Aa"], exact=False)).message_count == 2


def test_messages_whose_log_file_is_gone(tmp_path: Path) -> None:
    config = small(tmp_path)
    with MessageStore.open(config) as store:
        for i in range(200):
            store.put(message(b"x" * 1000, queue_id=i % 2))
        assert store.wait_dispatched()
        first = store.log.files.first()
        assert first is not None
        held = store.get("T", 0, 0, 1).messages[0]
        assert store.log.files.delete_first(0)
        result = store.get("T", 0, 0)
        assert result.status is Status.FOUND
        assert decode(result.messages[0]).physical_offset >= 65536
        assert decode(held).queue_offset == 0
        assert store.look_message(0) is None
        queue = store.find_queue("T", 0)
        assert queue is not None
        queue.correct_min_offset(store.log.min_offset)
        assert store.get("T", 0, 0).status is Status.OFFSET_TOO_SMALL
        assert store.get("T", 0, 0).next_begin_offset == decode(result.messages[0]).queue_offset
    with MessageStore.open(config) as again:
        assert again.min_offset("T", 0) == decode(result.messages[0]).queue_offset


def test_the_memory_of_this_machine() -> None:
    assert total_physical_memory() > 64 * MIB
    config = small(Path("/none"))
    assert ReadLimits.of(config, 1000).memory == 400


def test_a_query_counts_only_what_has_the_key(tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path)) as store:
        for i in range(10):
            store.put(message(str(i), KEYS="Aa Aa" if i % 2 else "BB", UNIQ_KEY="Aa"))
        assert store.wait_dispatched()
        found = store.query("T", "BB", 3)
        assert [decode(record).body for record in found.messages] == [b"4", b"6", b"8"]
        assert [decode(r).queue_offset for r in store.query("T", "Aa", 64).messages] == list(range(10))
        assert store.query("U", "Aa").messages == ()
        time = store.message_store_timestamp("T", 0, 9)
        assert store.query("T", "Aa", 3, time + 5000, time + 9000).messages == ()
        assert found.index_last_update_timestamp == time


def test_times(tmp_path: Path) -> None:
    now = [1000]
    with MessageStore.open(small(tmp_path), clock=lambda: now[0]) as store:
        for time in (1000, 2000, 2000, 2000, 3000):
            now[0] = time
            store.put(message())
        assert store.wait_dispatched()
        assert store.earliest_message_time() == store.earliest_message_time("T", 0) == 1000
        asked = (500, 1000, 1500, 2000, 2001, 3000, 3001)
        assert [store.lower_bound("T", 0, t) for t in asked] == [0, 0, 1, 1, 4, 4, 5]
        assert [store.upper_bound("T", 0, t) for t in asked] == [0, 1, 1, 4, 4, 5, 5]
        assert store.offset_by_time("T", 0, 2900) == 4
        assert store.message_store_timestamp("T", 0, 5) == -1


@pytest.mark.leaves("index-missing")
def test_without_an_index(tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path, message_index_enable=False)) as store:
        store.put(message(KEYS="k"))
        assert store.wait_dispatched()
        assert store.query("T", "k").messages == ()
    assert not (tmp_path / "index").exists()
