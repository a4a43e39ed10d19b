"""lag against what a reader of the queues counts by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import InvalidArgument
from engine.format import properties
from engine.inspect.store.consumers import DELIVERY
from engine.log.derive import TopicQueue
from engine.pipeline.jobs.lag import LagOptions, run
from engine.pipeline.plots import charts
from engine.pipeline.stores import find_stores
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NOW = 1_700_000_100_000


def made(root: Path, offsets: dict[str, dict[str, int]], count: int = 90) -> Path:
    config = small(root)
    stamps = iter(range(NOW - 1000 * count, NOW, 1000))
    with MessageStore.open(config, clock=stamps.__next__) as store:
        for i in range(count):
            delay = {properties.DELAY: "3"} if i % 10 == 9 else {}
            assert store.put(message(bytes(i * 10), i % 2, f"T{i % 3}", **delay)).ok
    assert_sound(config)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


def unread(root: Path, topic: str, queue_id: int, offset: int) -> tuple[int, int, int | None]:
    """Messages, their bytes, store time of the oldest."""
    with ReadStore(small(root)) as store:
        found, at = [], max(offset, store.min_offset(topic, queue_id))
        while at < store.max_offset(topic, queue_id):
            result = store.get(topic, queue_id, at)
            found += result.decoded()
            at = result.next_begin_offset
    return len(found), sum(m.total_size for m in found), found[0].store_timestamp if found else None


def line(result: Any, **wanted: Any) -> dict[str, Any]:
    (found,) = [row for row in result.table("queues").to_json() if all(row[k] == v for k, v in wanted.items())]
    return dict(found)


def test_groups_and_queues(spark: SparkSession, tmp_path: Path, unchanged: Callable[[Path], None]) -> None:
    offsets = {"T0@g": {"0": 3, "1": 0}, "T1@g": {"0": 10, "1": 9}, "T0@h": {"0": 14}}
    root = made(tmp_path / "s", offsets)
    unchanged(root)
    result = run(spark, find_stores([f"s={root}"]), LagOptions(now=NOW))
    assert result.ok
    total = [0, 0]
    for key, queues in offsets.items():
        topic, group = key.split("@")
        for queue_id, offset in queues.items():
            found = line(result, group=group, topic=topic, queue_id=int(queue_id))
            messages, size, oldest = unread(root, topic, int(queue_id), offset)
            with ReadStore(small(root)) as store:
                end = store.max_offset(topic, int(queue_id))
            assert found == {
                **{"store": "s", "group": group, "topic": topic, "queue_id": int(queue_id), "offset": offset},
                **{"min_offset": 0, "max_offset": end, "messages": messages, "bytes": size},
                "oldest_timestamp": oldest,
                "age_ms": None if oldest is None else NOW - oldest,
            }
            total = [total[0] + messages, total[1] + size]
    assert line(result, group="h", queue_id=1)["offset"] is None
    assert (result.facts["messages"], result.facts["bytes"]) == tuple(total)
    groups = {row[:2]: row[2:] for row in result.table("groups").rows}
    (chart,) = charts(result)
    assert sum(chart.series[0].values) == total[0]
    first, second = (unread(root, "T0", q, o) for q, o in ((0, 3), (1, 0)))
    oldest = min(first[2] or 0, second[2] or 0)
    assert groups["g", "T0"] == (first[0] + second[0], first[1] + second[1], oldest, NOW - oldest)


def test_above_the_end_and_below_the_minimum(spark: SparkSession, tmp_path: Path) -> None:
    root = made(tmp_path / "s", {"T0@far": {"0": 999}, "T1@late": {"0": 1}, "Gone@g": {"0": 5}}, count=600)
    (root / "commitlog" / ("0" * 20)).unlink()
    result = run(spark, find_stores([f"s={root}"]), LagOptions(now=NOW))
    assert not result.ok
    assert (result.facts["above_the_end"], result.facts["below_the_minimum"]) == (1, 1)
    codes = {row[1]: row[2] + row[3] for row in result.table("findings").rows}
    assert codes.keys() == {"consumer-above", "consumer-below", "consumer-queue"}
    assert "T0@far" in codes["consumer-above"]
    assert line(result, group="far", queue_id=0)["messages"] == 0
    late = line(result, group="late", queue_id=0)
    assert late["min_offset"] > 1
    assert (late["messages"], late["bytes"], late["oldest_timestamp"]) == unread(root, "T1", 0, 1)


def test_several_stores_and_a_choice(spark: SparkSession, tmp_path: Path) -> None:
    a = made(tmp_path / "a", {"T0@g": {"0": 1}, "T1@g": {"0": 2}})
    b = made(tmp_path / "b", {"T0@g": {"0": 4}, "T0@h": {"0": 0}})
    stores = find_stores([str(a), str(b)])
    whole = run(spark, stores, LagOptions(now=NOW))
    assert (whole.facts["stores"], whole.facts["groups"]) == (2, 2)
    (row,) = [row for row in whole.table("groups").rows if row[:2] == ("g", "T0")]
    counts = [unread(root, "T0", 0, offset) for root, offset in ((a, 1), (b, 4))]
    assert row[2:4] == (sum(c[0] for c in counts), sum(c[1] for c in counts))
    some = run(spark, stores, LagOptions(group="g", topic="T0", now=NOW))
    assert {row[1:3] for row in some.table("queues").rows} == {("g", "T0")}
    assert some.facts["messages"] == row[2]


def test_delayed_messages_are_the_brokers(spark: SparkSession, tmp_path: Path) -> None:
    root = made(tmp_path / "s", {})
    (root / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"3": 4}}))
    result = run(spark, find_stores([f"s={root}"]), LagOptions(now=NOW))
    found = line(result, topic="SCHEDULE_TOPIC_XXXX")
    assert (found["group"], found["queue_id"], found["offset"]) == (DELIVERY, 2, 4)
    assert found["messages"] == unread(root, "SCHEDULE_TOPIC_XXXX", 2, 4)[0] == 5
    with ReadStore(small(root)) as store:
        assert store.max_offset(*TopicQueue("SCHEDULE_TOPIC_XXXX", 2)) == 9


def test_without_offsets(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path / "s")) as store:
        assert store.put(message("x")).ok
    result = run(spark, find_stores([str(tmp_path / "s")]), LagOptions())
    assert result.table("queues").rows == ()
    assert "lag unknown: config/consumerOffset.json" in result.notes[0]
    with pytest.raises(InvalidArgument, match="STORE is required"):
        run(spark, (), LagOptions())
