"""Tables of the broker by themselves: locks of queues, filters of groups, JSON that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.requests.bodies import raw_object
from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.consumer_filters import ConsumerFilters, bloom_bits
from engine.broker.tables.locks import LOCKED_MS, QueueLocks
from engine.broker.tables.members import Subscription
from engine.errors import CannotRepair, FormatError
from engine.files.disk import Disk

QUEUE = ("broker-a", "T", 0)


class Clock:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def test_locks_expire_and_are_forgotten() -> None:
    clock = Clock()
    locks = QueueLocks(clock)
    assert locks.lock("G", QUEUE, "one")
    assert not locks.lock("G", QUEUE, "two")
    clock.ms += LOCKED_MS
    assert locks.lock("G", QUEUE, "one")  # renewed
    clock.ms += LOCKED_MS + 1
    assert locks.lock("G", QUEUE, "two")
    locks.unlock("G", QUEUE, "one")  # not its own
    locks.unlock("other", QUEUE, "")  # nobody's
    assert len(locks) == 1
    locks.expire()
    assert len(locks) == 1
    clock.ms += LOCKED_MS + 1
    locks.expire()
    assert len(locks) == 0


@pytest.mark.parametrize(
    ("text", "bits"), [("G#T", [24, 26, 83]), ("sql#Sql", [88, 67, 46]), ("h\u00e9#\u4e2d", [98, 107, 4])]
)
def test_filter_bits_are_those_of_apaches_bloom_filter(text: str, bits: list[int]) -> None:
    """Made with BloomFilter.createByFn(20, 32) of rocketmq-filter 4.9.8."""
    assert bloom_bits(text) == bits


def wants(expression: str, version: int, kind: str = "SQL92") -> Subscription:
    return Subscription("T", expression, kind, version)


def test_a_filter_lives_as_long_as_its_group_and_a_while_longer(tmp_path: Path) -> None:
    clock = Clock()
    file = ConfigFile(Disk(), str(tmp_path), "consumerFilter.json")
    filters = ConsumerFilters(file, clock, kept_ms=1000)
    filters.register("G", [wants("a > 1", 1)])
    filters.register("H", [wants("*", 1, "TAG")])
    assert filters.get("T", "H") is None
    filters.register("G", [wants("a > 2", 1)])  # no newer subscription: as it was
    found = filters.get("T", "G")
    assert found is not None
    assert (found.expression, found.is_dead) == ("a > 1", False)
    filters.register("G", [wants("a > 2", 2)])
    table = filters.changes()
    assert table is not None
    filters.write(table)
    again = ConsumerFilters(file, clock, kept_ms=1000)
    again.load()
    found = again.get("T", "G")
    assert found is not None
    assert (found.expression, found.version, found.is_dead) == ("a > 2", 2, True)
    again.register("G", [wants("a > 2", 2)])
    found = again.get("T", "G")
    assert found is not None
    assert not found.is_dead
    again.register("G", [])
    found = again.get("T", "G")
    assert found is not None
    assert found.is_dead
    clock.ms += 1000
    again.expire()
    assert again.get("T", "G") is None
    changes = again.changes()
    assert changes is not None
    assert changes.table() == {"filterDataByTopic": {}}


def test_a_filter_file_that_says_nothing(tmp_path: Path) -> None:
    file = ConfigFile(Disk(), str(tmp_path), "consumerFilter.json")
    file.save({"filterDataByTopic": {"T": {"groupFilterData": {"G": {"expression": "a"}}}}})
    with pytest.raises(CannotRepair, match="malformed filter data"):
        ConsumerFilters(file, Clock(), 1000).load()


def test_an_object_within_json_that_is_none() -> None:
    text = b'{"a":{"}\\"":1},"table" : {{"x":"}"}:{"y":2}},"b":3}'
    assert raw_object(text, "table") == b'{{"x":"}"}:{"y":2}}'
    assert raw_object(text, "other") == b"{}"
    with pytest.raises(FormatError):
        raw_object(b'{"table":{"a":1', "table")
