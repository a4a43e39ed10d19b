"""stats against plain counting."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import InvalidArgument
from engine.pipeline.jobs.stats import StatsOptions, run
from engine.pipeline.plots import charts, draw
from engine.pipeline.result import JobResult
from engine.pipeline.stores import find_stores
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]
HOUR = 3_600_000


@pytest.fixture(scope="module")
def store(fixture_store: Store) -> Path:
    return fixture_store("clean-small")


@pytest.fixture(scope="module")
def result(spark: SparkSession, store: Path) -> JobResult:
    return run(spark, find_stores([f"a={store}"]), StatsOptions(top=5))


@pytest.fixture(scope="module")
def messages(store: Path) -> list[plain.Record]:
    return plain.records(store)


def counted(messages: Sequence[plain.Record], by: Callable[[plain.Record], Any]) -> dict[Any, tuple[int, int, int]]:
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in messages:
        one = found[by(record)]
        one[0] += 1
        one[1] += record.message.total_size
        one[2] += len(record.message.body)
    return {key: (a, b, c) for key, (a, b, c) in found.items()}


def ranked(values: list[int], rank: float) -> int:
    """The nearest rank."""
    return sorted(values)[max(0, math.ceil(rank * len(values)) - 1)]


def test_the_whole(result: JobResult, messages: list[plain.Record]) -> None:
    stamps = [record.message.store_timestamp for record in messages]
    unique = Counter((r.message.topic, key) for r in messages if (key := r.message.properties.get("UNIQ_KEY")))
    assert result.ok
    assert result.facts == {
        "stores": 1,
        "messages": len(messages),
        "bytes": sum(record.message.total_size for record in messages),
        "body_bytes": sum(len(record.message.body) for record in messages),
        "first_store_timestamp": min(stamps),
        "last_store_timestamp": max(stamps),
        "duplicate_keys": sum(n > 1 for n in unique.values()),
        "duplicate_messages": sum(n - 1 for n in unique.values()),
        "damaged_places": 0,
        "damaged_bytes": 0,
    }


def test_topics_queues_tags(result: JobResult, messages: list[plain.Record]) -> None:
    by_topic = counted(messages, lambda r: r.message.topic)
    assert {row[0]: row[1:] for row in result.table("topics").rows} == by_topic
    assert [row[1] for row in result.table("topics").rows] == sorted((n for n, _, _ in by_topic.values()), reverse=True)
    by_queue = counted(messages, lambda r: (r.message.topic, r.message.queue_id))
    assert {row[:2]: row[2:] for row in result.table("queues").rows} == by_queue
    by_tag = counted(messages, lambda r: (r.message.topic, r.message.properties.get("TAGS")))
    tags = result.table("tags").rows
    assert [row[2] for row in tags] == sorted((n for n, _, _ in by_tag.values()), reverse=True)[:5]
    assert all(by_tag[row[:2]] == row[2:] for row in tags)


def test_hours_and_sizes(result: JobResult, messages: list[plain.Record]) -> None:
    hours = counted(messages, lambda r: r.message.store_timestamp // HOUR * HOUR)
    assert {row[1]: row[2:] for row in result.table("hours").rows} == hours
    for name, stamp, *_ in result.table("hours").rows:
        assert name == time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(stamp / 1000))
    sizes = [record.message.total_size for record in messages]
    bodies = [len(record.message.body) for record in messages]
    for row, values in zip(result.table("sizes").rows, (sizes, bodies), strict=True):
        ranks = [ranked(values, rank) for rank in (0.5, 0.9, 0.99, 0.999)]
        assert row[1:] == (min(values), *ranks, max(values), pytest.approx(sum(values) / len(values), abs=0.06))
    histogram = Counter(size.bit_length() for size in sizes)
    assert {(low, high): n for low, high, n, _ in result.table("size_histogram").rows} == {
        (1 << bits - 1, 1 << bits): n for bits, n in histogram.items()
    }


def test_delays(result: JobResult, messages: list[plain.Record]) -> None:
    delays: dict[Any, list[int]] = defaultdict(list)
    for record in messages:
        for topic in (None, record.message.topic):
            delays[topic].append(record.message.store_timestamp - record.message.born_timestamp)
    rows = result.table("delays").rows
    assert rows[0][0] is None
    assert {row[0] for row in rows} == delays.keys()
    for topic, count, negative, low, *ranks, high, mean in rows:
        values = delays[topic]
        assert (count, negative, low, high) == (len(values), sum(v < 0 for v in values), min(values), max(values))
        assert ranks == [ranked(values, rank) for rank in (0.5, 0.9, 0.99, 0.999)]
        assert mean == pytest.approx(sum(values) / len(values), abs=0.06)


def test_keys(result: JobResult, messages: list[plain.Record]) -> None:
    counts = Counter(
        (record.message.topic, key)
        for record in messages
        for key in set(record.message.properties.get("KEYS", "").split(" ")) - {""}
    )
    rows = result.table("keys").rows
    assert [row[2] for row in rows] == sorted(counts.values(), reverse=True)[:5]
    assert all(counts[row[:2]] == row[2] for row in rows)


def test_its_pictures(result: JobResult, messages: list[plain.Record], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    hours, topics, sizes = charts(result)
    for chart in (hours, sizes):
        assert sum(chart.series[0].values) == len(messages)
    assert sum(topics.series[0].values) == pytest.approx(result.facts["bytes"] / (1 << 20))
    draw(result, tmp_path / "stats.html")
    assert (tmp_path / "stats.html").read_text().count("<svg") == 3


def test_duplicates_of_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    with MessageStore.open(config) as opened:
        for topic, key in [("A", "x"), ("A", "y"), ("B", "x"), ("A", "x"), ("A", "x"), ("A", "z"), ("A", "z")]:
            assert opened.put(message(topic=topic, UNIQ_KEY=key)).ok
    assert_sound(config)
    places = [record.offset for record in plain.records(config)]
    found = run(spark, find_stores([f"s={tmp_path / 's'}"]), StatsOptions())
    assert (found.facts["duplicate_keys"], found.facts["duplicate_messages"]) == (2, 3)
    assert found.table("duplicates").rows == (
        ("A", "x", 3, "s", places[0], "s", places[4]),
        ("A", "z", 2, "s", places[5], "s", places[6]),
    )


def test_times_that_no_calendar_has(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    stamps = iter([-5, 1 << 62, 0, 1_700_000_000_000])
    with MessageStore.open(config, clock=lambda: next(stamps)) as opened:
        for _ in range(4):
            assert opened.put(message()._replace(born_timestamp=-(1 << 62))).ok
    found = run(spark, find_stores([f"s={tmp_path / 's'}"]), StatsOptions())
    assert [row[0] for row in found.table("hours").rows] == [
        "1969-12-31T23:00Z",
        "1970-01-01T00:00Z",
        "2023-11-14T22:00Z",
        str((1 << 62) // HOUR * HOUR),
    ]
    assert found.table("delays").rows[0][1] == 4


def test_an_empty_store_and_a_topic(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    MessageStore.open(config).close()
    stores = find_stores([f"empty={tmp_path / 's'}", f"full={store}"])
    found = run(spark, stores, StatsOptions(topic="Hot"))
    expected = [record for record in plain.records(store) if record.message.topic == "Hot"]
    assert found.facts["messages"] == len(expected) > 100
    assert found.facts["stores"] == 2
    with pytest.raises(InvalidArgument, match="top must be ≥ 1, not 0"):
        run(spark, stores, StatsOptions(top=0))
