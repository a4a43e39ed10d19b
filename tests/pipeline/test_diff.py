"""diff: a master and its slave are one log; each way in which they are not is told, with its place."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.errors import InvalidArgument
from engine.format.message import encode, patch
from engine.pipeline.jobs.diff import DiffOptions, run
from engine.pipeline.plots import charts
from engine.pipeline.result import JobResult
from engine.pipeline.stores import find_stores
from engine.store import MessageStore
from tests.engine.opening import message, small
from tests.pipeline import plain
from tests.support import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SEGMENT = 65536


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("diff") / "master"
    with MessageStore.open(small(root)) as store:
        for i in range(400):
            assert store.put(message(b"%d" % i * 100, i % 2, f"T{i % 3}", KEYS=f"k{i}", colour="red")).ok
    return root


@pytest.fixture
def slave(master: Path, tmp_path: Path) -> Path:
    return stores.copy(master, tmp_path / "slave")


def compare(spark: SparkSession, a: Path, b: Path, **how: int) -> JobResult:
    return run(spark, find_stores([f"a={a}", f"b={b}"]), DiffOptions(**how))


def write(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / f"{offset - offset % SEGMENT:020d}").open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def test_equal_logs(spark: SparkSession, master: Path, slave: Path, unchanged: Callable[[Path], None]) -> None:
    unchanged(master)
    unchanged(slave)
    result = compare(spark, master, slave)
    assert result.ok
    assert (result.facts["messages_a"], result.facts["messages_b"]) == (400, 400)
    assert result.facts["first_divergence"] is None
    assert result.table("queues").rows == result.table("places").rows == ()
    assert result.notes == ()


def test_what_differs_is_named(spark: SparkSession, master: Path, slave: Path) -> None:
    records = plain.records(master)
    changed = {
        50: records[50].message.to_message()._replace(properties={"KEYS": "k50", "colour": "bed"}),
        60: records[60].message.to_message()._replace(body=b"x" * len(records[60].message.body)),
        70: records[70].message.to_message()._replace(flag=7),
    }
    for i, new in changed.items():
        record = encode(new)
        old = records[i].message
        patch(
            record,
            0,
            queue_offset=old.queue_offset + (i == 70),
            physical_offset=records[i].offset,
            store_timestamp=old.store_timestamp,
        )
        assert len(record) == old.total_size
        write(slave, records[i].offset, bytes(record))
    result = compare(spark, master, slave)
    assert not result.ok
    assert result.facts["first_divergence"] == records[50].offset
    assert (result.facts["differing"], result.facts["missing_in_a"], result.facts["missing_in_b"]) == (3, 0, 0)
    rows = [(row[0], row[1], row[4], row[5]) for row in result.table("places").rows]
    numbers = [records[i].message.queue_offset for i in (50, 60, 70)]
    assert rows == [
        (records[50].offset, "differs: properties", numbers[0], numbers[0]),
        (records[60].offset, "differs: body", numbers[1], numbers[1]),
        (records[70].offset, "differs: queue, header", numbers[2], numbers[2] + 1),
    ]
    queues = Counter((records[i].message.topic, records[i].message.queue_id) for i in changed)
    assert {row[:2]: row[6] for row in result.table("queues").rows} == queues
    (chart,) = charts(result)
    assert dict(zip(chart.labels, chart.series[2].values, strict=True)) == {
        f"{t}/{q}": n for (t, q), n in queues.items()
    }


def test_a_record_that_one_side_lost(spark: SparkSession, master: Path, slave: Path) -> None:
    records = plain.records(master)
    write(slave, records[100].offset, bytes(8))
    for a, b, side in ((master, slave, "b"), (slave, master, "a")):
        result = compare(spark, a, b)
        assert not result.ok
        assert result.facts[f"missing_in_{side}"] == 1
        assert result.facts[f"damaged_places_{side}"] == 1
        assert result.facts["first_divergence"] == records[100].offset
        assert result.table("places").rows[0][:2] == (records[100].offset, f"missing in {side}")
        assert any(note.startswith(f"{side}: 1 damaged places") for note in result.notes)


def test_a_body_with_a_wrong_crc(spark: SparkSession, master: Path, slave: Path) -> None:
    record = plain.records(master)[7]
    write(slave, record.offset + 90, b"!")
    result = compare(spark, master, slave)
    assert not result.ok
    assert result.facts["first_divergence"] == record.offset
    assert result.facts["differing"] + result.facts["missing_in_b"] == 1


def test_a_slave_that_is_behind(spark: SparkSession, master: Path, slave: Path) -> None:
    records = plain.records(master)
    cut = next(r.offset for r in records if r.offset % SEGMENT == 0 and r.offset)
    for segment in (slave / "commitlog").iterdir():
        if int(segment.name) >= cut:
            segment.unlink()
    result = compare(spark, master, slave)
    behind = sum(r.offset >= cut for r in records)
    assert not result.ok
    assert result.facts["first_divergence"] is None
    assert (result.facts["only_a_at_the_end"], result.facts["only_b_at_the_end"]) == (behind, 0)
    assert f"{behind} messages after it are only in a" in result.notes[0]
    assert sum(row[7] for row in result.table("queues").rows) == behind


def test_a_log_that_begins_later(spark: SparkSession, master: Path, slave: Path) -> None:
    (slave / "commitlog" / ("0" * 20)).unlink()
    result = compare(spark, master, slave)
    assert result.ok
    assert result.facts["common_from"] == SEGMENT
    assert result.facts["messages_a"] == sum(r.offset >= SEGMENT for r in plain.records(master))
    assert "the 65536 bytes before are not compared" in result.notes[0]


def test_a_store_without_a_log(spark: SparkSession, master: Path, tmp_path: Path) -> None:
    MessageStore.open(small(tmp_path / "empty")).close()
    result = compare(spark, master, tmp_path / "empty", limit=0)
    assert not result.ok
    assert result.facts["only_a_at_the_end"] == 400


def test_two_stores_and_no_more(spark: SparkSession, master: Path) -> None:
    with pytest.raises(InvalidArgument, match="two stores, not 1"):
        run(spark, find_stores([str(master)]), DiffOptions())
    with pytest.raises(InvalidArgument, match="--limit -1 is invalid"):
        compare(spark, master, master, limit=-1)


def test_places_are_limited(spark: SparkSession, master: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(master, other)
    write(other, 0, bytes(2000))
    result = compare(spark, master, other, limit=2)
    lost = [r.offset for r in plain.records(master) if r.offset not in {o.offset for o in plain.records(other)}]
    assert result.facts["missing_in_b"] == len(lost) > 2
    assert [row[0] for row in result.table("places").rows] == lost[:2]


def test_bodies_that_are_damaged_on_both_sides_are_not_equal(
    spark: SparkSession, master: Path, slave: Path, tmp_path: Path
) -> None:
    """Their stored CRC and length are the same, and say nothing."""
    mine = stores.copy(master, tmp_path / "mine")
    place = plain.records(mine)[7].offset
    write(mine, place + 100, b"A")
    write(slave, place + 100, b"B")
    result = compare(spark, mine, slave)
    assert not result.ok
    assert result.facts["first_divergence"] == place
