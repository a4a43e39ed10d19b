"""What is derived from records: equal to the units and index entries that a real 4.9.8 made; never an overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.format import names
from engine.format.delay import DelayLevels
from engine.format.hashing import index_key_hash, tags_code
from engine.format.message import Message
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units, index_keys
from engine.log.scan import RecordBatch, Scanner
from tests.engine.log.test_scan_references import open_log
from tests.support import logs, references

Unit = tuple[str, int, int, int, int, int]


def derived(log: Any, rules: DeriveRules | None = None) -> tuple[list[Unit], list[tuple[int, int, int]]]:
    """Units as (topic, queueId, queueOffset, physicalOffset, size, tagsCode) and keys as (hash, offset, time)."""
    queues = QueueNumbers()
    deriver = Deriver(rules or DeriveRules(), queues)
    units: list[Unit] = []
    keys: list[tuple[int, int, int]] = []
    for event in Scanner(log).scan(0):
        if isinstance(event, RecordBatch):
            some, words = deriver.derive(event)
            units += list(_units(some, queues))
            keys += list(_keys(words))
    return units, keys


def _units(some: Units, queues: QueueNumbers) -> Iterable[Unit]:
    rows = zip(
        *(
            column.tolist()
            for column in (some.queue, some.queue_offset, some.physical_offset, some.size, some.tags_code)
        ),
        strict=True,
    )
    return ((*queues[number], *rest) for number, *rest in rows)  # type: ignore[misc]


def _keys(words: Keys) -> Iterable[tuple[int, int, int]]:
    return zip(words.key_hash.tolist(), words.physical_offset.tolist(), words.store_timestamp.tolist(), strict=True)


@pytest.mark.parametrize("name", references.ALL)
def test_units_and_keys_are_apaches(name: str, reference_store: Callable[[str], Path]) -> None:
    with open_log(reference_store(name)) as log:
        units, keys = derived(log, DeriveRules.of(references.settings(name)))
    written = [
        (
            m.get("cqTopic", m["topic"]),
            m.get("cqQueueId", m["queueId"]),
            m.get("cqOffset", m["queueOffset"]),
            m["cqPhyOffset"],
            m["cqSize"],
            m.get("cqExt", {}).get("tagsCode", m["cqTagsCode"]),
        )
        for m in references.dump(name, "msg")
    ]
    if "crashed" in name:  # Apache's own rebuilt delayed units carry the tags' hash (RECOVERY.md, rule 6)
        units, written = ([u for u in some if u[0] != names.SCHEDULE_TOPIC] for some in (units, written))
    assert sorted(units) == sorted(written)
    by_hash: dict[int, list[int]] = {}
    for key_hash, offset, _ in keys:
        by_hash.setdefault(key_hash, []).append(offset)
    queries = references.dump(name, "query")
    assert queries
    for query in queries:
        found = by_hash.get(index_key_hash(f"{query['topic']}#{query['key']}"), [])
        assert set(query["rawIndexOrder"]) <= set(found)
        if "crashed" not in name:  # there Apache loses keys for good (RECOVERY.md, rule 4)
            assert sorted(set(query["rawIndexOrder"])) == sorted(set(found))


def test_only_rollbacks_leave_no_key_and_prepared_ones_no_unit() -> None:
    puts = [Message("T", properties={"KEYS": "k"}, sys_flag=flags) for flags in (0, 4, 8, 12)]
    built = logs.build(puts, 4096)
    units, keys = derived(built.log)
    assert [unit[3] for unit in units] == [built.offsets[0], built.offsets[2]]
    assert [key[1] for key in keys] == built.offsets[:3]
    assert {key[0] for key in keys} == {index_key_hash("T#k")}


def test_without_an_index_there_are_no_keys() -> None:
    built = logs.build([Message("T", properties={"KEYS": "k"})], 4096)
    assert derived(built.log, DeriveRules(index=False))[1] == []


def test_order_of_keys() -> None:
    assert index_keys("T", {"KEYS": "a  b", "UNIQ_KEY": "u"}) == ["T#u", "T#a", "T#b"]
    assert index_keys("T", {}) == []


@pytest.mark.parametrize(("level", "waits"), [("1", 1000), ("18", 7_200_000), ("20", 7_200_000)])
def test_delayed_messages_carry_their_delivery_time(level: str, waits: int) -> None:
    built = logs.build([Message(names.SCHEDULE_TOPIC, properties={"DELAY": level, "TAGS": "t"})], 4096)
    assert derived(built.log)[0][0][-1] == logs.STORE_TIME + waits


@pytest.mark.parametrize("level", ["0", "x", "-3"])
def test_delayed_messages_without_a_level_carry_their_tags(level: str) -> None:
    built = logs.build([Message(names.SCHEDULE_TOPIC, properties={"DELAY": level, "TAGS": "t"})], 4096)
    assert derived(built.log)[0][0][-1] == tags_code("t")


def test_a_delivery_time_wraps_as_javas_does() -> None:
    put = Message(names.SCHEDULE_TOPIC, properties={"DELAY": "1"})
    built = logs.build([put], 4096, store_time=(1 << 63) - 1)
    assert derived(built.log)[0][0][-1] == -(1 << 63) + 999


def test_levels_of_the_setting() -> None:
    built = logs.build([Message(names.SCHEDULE_TOPIC, properties={"DELAY": "2"})], 4096)
    rules = DeriveRules(DelayLevels.parse("1s 7s"))
    assert derived(built.log, rules)[0][0][-1] == logs.STORE_TIME + 7000


def multi(queues: str, offsets: str) -> Message:
    return Message("T", queue_id=2, properties={"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets})


def test_multi_dispatch() -> None:
    built = logs.build([multi("%LMQ%a,b", "5,9")], 4096)
    assert [unit[:3] for unit in derived(built.log)[0]] == [("T", 2, 0)]
    both = derived(built.log, DeriveRules(multi_dispatch=True, lmq=True))[0]
    assert [unit[:3] for unit in both] == [("T", 2, 0), ("%LMQ%a", 0, 5), ("b", 2, 9)]
    plain = derived(built.log, DeriveRules(multi_dispatch=True))[0]
    assert [unit[:3] for unit in plain] == [("T", 2, 0), ("%LMQ%a", 2, 5), ("b", 2, 9)]


def test_multi_dispatch_with_an_empty_name_at_the_end() -> None:
    """Java's split drops it, so the lists have one length."""
    built = logs.build([multi("a,", "7")], 4096)
    assert len(derived(built.log, DeriveRules(multi_dispatch=True))[0]) == 2


@pytest.mark.parametrize("offsets", ["5", "5,6,7", "5,x", "5,-6", "5,9223372036854775808", "5,²"])
def test_multi_dispatch_that_makes_no_sense_gives_none(offsets: str) -> None:
    built = logs.build([multi("a,b", offsets)], 4096)
    assert len(derived(built.log, DeriveRules(multi_dispatch=True))[0]) == 1


def test_queue_numbers() -> None:
    queues = QueueNumbers()
    a, b = TopicQueue("a", 0), TopicQueue("b", 1)
    assert [queues.number(q) for q in (a, b, a)] == [0, 1, 0]
    assert len(queues) == 2
    assert queues[1] == b
    assert str(b) == "b/1"
