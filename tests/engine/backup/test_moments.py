"""Restored to random moments, whole or of some topics: exactly the messages stored until then, queue by queue."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from engine.backup.leases import Lease
from engine.backup.objects.directory import DirectoryObjects
from engine.backup.repository import open_repository
from engine.config import StoreConfig, of_store
from engine.errors import InvalidArgument, StorageError, StoreLocked
from engine.files.disk import Disk
from engine.files.raw_file import Bytes
from engine.format import fastjson, names, sysflag
from engine.format.message import StoredMessage, decode
from engine.inspect.check.check import check
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.engine.backup import repositories
from tests.engine.opening import assert_sound, message, small
from tests.support.wide import sample

Store = Callable[[str], Path]
Queue = tuple[str, int]
STORES = ("clean-small", "crashed-small", "lmq", "transient-ext")


def records(config: StoreConfig) -> list[StoredMessage]:
    """The sound records of a store's log."""
    disk = Disk()
    files = survey(disk, config)
    if not files.log:
        return []
    with ClosedLog(disk, files.log) as log:
        events = list(Scanner(log).scan(files.log[0].offset, resume=True))
        batches = [event for event in events if isinstance(event, RecordBatch)]
        return [decode(batch.record(i)) for batch in batches for i in range(len(batch))]


def by_queue(messages: list[StoredMessage]) -> dict[Queue, list[tuple[int, int, bytes, bytes]]]:
    """What consumers get of these records: queue offset, storeTimestamp, body, properties."""
    queues: dict[Queue, list[tuple[int, int, bytes, bytes]]] = defaultdict(list)
    for one in messages:
        if sysflag.is_consumable(one.sys_flag):
            queues[one.topic, one.queue_id].append(
                (one.queue_offset, one.store_timestamp, one.body, one.properties_raw)
            )
    return queues


def read(config: StoreConfig) -> dict[Queue, list[tuple[int, int, bytes, bytes]]]:
    """The same by the store's queues."""
    queues: dict[Queue, list[tuple[int, int, bytes, bytes]]] = {}
    with ReadStore(config) as store:
        for queue in store.queues():
            if names.is_lmq(queue.topic):
                continue
            rows = []
            at, end = store.min_offset(*queue), store.max_offset(*queue)
            while at < end:
                result = store.get(queue.topic, queue.queue_id, at)
                for record in result.messages:
                    one = decode(record)
                    rows.append((one.queue_offset, one.store_timestamp, one.body, one.properties_raw))
                at = max(result.next_begin_offset, at + 1)
            if rows:
                queues[queue.topic, queue.queue_id] = rows
    return queues


@pytest.mark.wide
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("number", sample(range(75), 25))
def test_a_random_moment(fixture_store: Store, tmp_path: Path, name: str, number: int) -> None:
    store = fixture_store(name)
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    every = records(of_store(store))
    random = Random(f"{name} {number}")
    low, high = min(one.store_timestamp for one in every), max(one.store_timestamp for one in every)
    moment = random.randint(low - 2, high)
    topics = sorted({one.topic for one in every})
    some = tuple(random.sample(topics, random.randint(1, len(topics)))) if number % 3 == 2 else ()
    new = tmp_path / "new"
    restored = repositories.bring_back(repository, new, topics=some, time_ms=moment)
    first = next((i for i, one in enumerate(every) if one.store_timestamp > moment), len(every))
    expected = [one for one in every[:first] if not some or one.topic in some]
    assert restored.refusal is None
    got = records(of_store(new))
    assert [one._replace(physical_offset=0) for one in got] == [one._replace(physical_offset=0) for one in expected]
    assert read(of_store(new)) == by_queue(expected)
    assert_sound(of_store(new))


def two_topics(root: Path) -> StoreConfig:
    """A store of two topics over several segments, a group that has read some of each."""
    config = small(root)
    with MessageStore.open(config) as store:
        for number in range(400):
            store.put(message(f"{number}-" + "x" * 300, number % 2, "Wanted" if number % 3 else "Other"))
    (root / "config").mkdir(exist_ok=True)
    tables: dict[str, dict[str, object]] = {
        "topics.json": {"topicConfigTable": {one: {"topicName": one} for one in ("Wanted", "Other")}},
        "consumerOffset.json": {"offsetTable": {"Wanted@g": {"0": 5, "1": 500}, "Other@g": {"0": 7}}},
        "delayOffset.json": {"offsetTable": {"1": 3}},
        "subscriptionGroup.json": {"subscriptionGroupTable": {"g": {"groupName": "g"}}},
    }
    for name, table in tables.items():
        (root / "config" / name).write_text(json.dumps(table))
    return config


@pytest.mark.leaves("consumer-above", "delay-range")
def test_one_topic_of_two(tmp_path: Path) -> None:
    """Its records and tables alone; what groups had read of it they have read; the other leaves nothing."""
    config = two_topics(tmp_path / "store")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, config)
    restored = repositories.bring_back(repository, tmp_path / "new", topics=("Wanted",))
    expected = by_queue([one for one in records(config) if one.topic == "Wanted"])
    assert read(of_store(tmp_path / "new")) == expected
    assert restored.end < survey(Disk(), config).log[-1].end
    tables = {path.name: fastjson.loads(path.read_text()) for path in (tmp_path / "new" / "config").glob("*.json")}
    assert set(tables["topics.json"]["topicConfigTable"]) == {"Wanted"}
    ends = {queue_id: rows[-1][0] + 1 for (_, queue_id), rows in expected.items()}
    assert tables["consumerOffset.json"]["offsetTable"] == {"Wanted@g": {"0": 5, "1": ends[1]}}
    assert "g" in tables["subscriptionGroup.json"]["subscriptionGroupTable"]
    assert "delayOffset.json" not in tables
    assert sorted(path.name for path in (tmp_path / "new" / "consumequeue").iterdir()) == ["Wanted"]
    with MessageStore.open(of_store(tmp_path / "new")) as store:
        assert store.put(message("next", 0, "Wanted")).append.queue_offset == ends[0]  # type: ignore[union-attr]


@pytest.mark.leaves("consumer-above", "delay-range")
def test_a_topic_that_is_not_there(tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, two_topics(tmp_path / "store"))
    with pytest.raises(InvalidArgument, match="Wnated"):
        repositories.bring_back(repository, tmp_path / "new", topics=("Wanted", "Wnated"))
    with pytest.raises(InvalidArgument, match="no topic"):
        repositories.bring_back(repository, tmp_path / "new", topics=("\udcff",))
    assert not (tmp_path / "new").exists()


@pytest.mark.leaves("config-missing")
def test_a_topic_of_which_some_has_expired(tmp_path: Path) -> None:
    """Queue offsets are as they were; a queue whose messages have all expired goes on where it was."""
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for number in range(9):
            store.put(message(f"{number}", 1, "Wanted"))
        for number in range(300):
            store.put(message("x" * 400, 0, "Wanted" if number % 2 else "Other"))
    (tmp_path / "store" / "commitlog" / "00000000000000000000").unlink()
    with MessageStore.open(config) as store:
        ranges = [(store.min_offset("Wanted", one), store.max_offset("Wanted", one)) for one in (0, 1)]
    assert ranges[0][0] > 0
    assert ranges[1][1] == 9
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, config)
    repositories.bring_back(repository, tmp_path / "new", topics=("Wanted",))
    assert check(Disk(), of_store(tmp_path / "new")).ok
    with MessageStore.open(of_store(tmp_path / "new")) as store:
        assert ranges == [(store.min_offset("Wanted", one), store.max_offset("Wanted", one)) for one in (0, 1)]


@pytest.mark.leaves("config-bad", "config-missing")
@pytest.mark.parametrize("topics", [(), ("Wanted",)])
@pytest.mark.parametrize("table", [b"{broken", b"\xff\xfe"])
def test_a_table_that_cannot_be_read(tmp_path: Path, table: bytes, topics: tuple[str, ...]) -> None:
    """It is restored as it was, and told."""
    config = two_topics(tmp_path / "store")
    for name in ("consumerOffset.json", "delayOffset.json", "topics.json"):
        (tmp_path / "store" / "config" / name).write_bytes(table)
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, config)
    restored = repositories.bring_back(repository, tmp_path / "new", topics=topics)
    assert any("consumerOffset.json is not readable" in problem for problem in restored.problems)
    assert (tmp_path / "new" / "config" / "consumerOffset.json").read_bytes() == table
    assert sum(map(len, read(of_store(tmp_path / "new")).values())) == (266 if topics else 400)


class OnlyRead(DirectoryObjects):
    """May be read alone, as with credentials that may not write."""

    def put(self, name: str, data: Bytes) -> None:
        raise StorageError("read-only file system", path=name)


def test_a_repository_that_can_only_be_read(fixture_store: Store, tmp_path: Path) -> None:
    """It is restored from, and told that nothing held prunes off."""
    store = fixture_store("lmq")
    repositories.back_up(repositories.new(tmp_path / "repository"), store)
    repository = open_repository(OnlyRead(Disk(), str(tmp_path / "repository")), lambda: repositories.SECRET)
    restored = repositories.bring_back(repository, tmp_path / "new")
    assert any("not locked" in problem for problem in restored.problems)
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)


def test_not_while_somebody_prunes(fixture_store: Store, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, fixture_store("lmq"))
    with Lease(repository.objects, "backup prune", removes=True), pytest.raises(StoreLocked):
        repositories.bring_back(repository, tmp_path / "new")
    assert not (tmp_path / "new").exists()
