"""grep finds what a plain walk over the log finds, in its order, and counts all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import InvalidArgument
from engine.format import sysflag
from engine.format.message import make_msg_id
from engine.pipeline.jobs.grep import GrepOptions, run
from engine.pipeline.stores import StoreRef, find_stores
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import plain
from tests.pipeline.plain import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]


@pytest.fixture
def store(fixture_store: Store) -> Path:
    return fixture_store("clean-small")


def offsets(result: Any) -> list[int]:
    return [row["physical_offset"] for row in result.table("messages").to_json()]


_PREDICATES: list[tuple[GrepOptions, Callable[[Record], bool]]] = [
    (GrepOptions(), lambda r: True),
    (
        GrepOptions(topic="Hot", queue_id=0),
        lambda r: (r.message.topic, r.message.queue_id) == ("Hot", 0),
    ),
    (GrepOptions(tag="a||b"), lambda r: r.message.properties.get("TAGS") == "a||b"),
    (
        GrepOptions(key="same"),
        lambda r: (
            "same" in r.message.properties.get("KEYS", "").split(" ") or r.message.properties.get("UNIQ_KEY") == "same"
        ),
    ),
    (GrepOptions(properties=(("WAIT", "false"),)), lambda r: r.message.properties.get("WAIT") == "false"),
    (GrepOptions(body="index flush"), lambda r: b"index flush" in r.message.body),
    (GrepOptions(body_regex=r"[0-9]{3}\xff?"), lambda r: re.search(rb"[0-9]{3}\xff?", r.message.body) is not None),
    (GrepOptions(min_size=300, max_size=600), lambda r: 300 <= r.message.total_size <= 600),
    (
        GrepOptions(where="size > 500 and queue_offset % 2 = 0 and get(keys, 0) is not null"),
        lambda r: (
            r.message.total_size > 500
            and r.message.queue_offset % 2 == 0
            and bool(r.message.properties.get("KEYS", "").split())
        ),
    ),
]


@pytest.mark.parametrize(("options", "wanted"), _PREDICATES, ids=[str(i) for i in range(len(_PREDICATES))])
def test_what_is_found(
    spark: SparkSession,
    store: Path,
    unchanged: Callable[[Path], None],
    options: GrepOptions,
    wanted: Callable[[Record], bool],
) -> None:
    unchanged(store)
    expected = [record for record in plain.records(store) if wanted(record)]
    assert expected
    result = run(spark, find_stores([str(store)]), options)
    assert result.facts["matches"] == len(expected)
    assert result.facts["bytes"] == sum(record.message.total_size for record in expected)
    assert offsets(result) == [record.offset for record in expected[: options.limit]]


def test_a_topic_is_all_of_its_records(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [0, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK]
    with MessageStore.open(small(tmp_path / "s")) as opened:
        for topic in ("plain", "a,b"):
            for kind in kinds:
                assert opened.put(message(str(kind), topic=topic)._replace(sys_flag=kind)).ok
    stores = find_stores([str(tmp_path / "s")])
    for topic in ("plain", "a,b"):
        rows = run(spark, stores, GrepOptions(topic=topic)).table("messages").to_json()
        assert [row["body"] for row in rows] == list(map(str, kinds))
    assert run(spark, stores, GrepOptions()).facts["matches"] == 8


def test_a_time_range_is_half_open(spark: SparkSession, store: Path) -> None:
    stamps = sorted(record.message.store_timestamp for record in plain.records(store))
    low, high = stamps[len(stamps) // 3], stamps[2 * len(stamps) // 3]
    result = run(spark, find_stores([str(store)]), GrepOptions(start_time=low, end_time=high, limit=0))
    assert result.facts["matches"] == sum(low <= stamp < high for stamp in stamps)
    assert result.table("messages").rows == ()


def test_what_is_shown_of_a_message(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    with MessageStore.open(config, clock=lambda: 1_700_000_000_000) as opened:
        put = opened.put(message("größe\n" + "x" * 50, 3, "Orders", KEYS="k1 k2", TAGS="new", colour="blue"))
        assert put.append is not None
    assert_sound(config)
    stores = find_stores([f"one={tmp_path / 's'}"])
    result = run(spark, stores, GrepOptions(excerpt=10, columns=("properties", "store_time", "born_host")))
    assert result.table("messages").to_json() == [
        {
            "store": "one",
            "physical_offset": 0,
            "topic": "Orders",
            "queue_id": 3,
            "queue_offset": 0,
            "msg_id": make_msg_id(put.append.store_host, 0),
            "store_timestamp": 1_700_000_000_000,
            "tags": "new",
            "keys": "k1 k2",
            "body": "größe·xxxx",
            "properties": '{"KEYS": "k1 k2", "TAGS": "new", "colour": "blue"}',
            "store_time": "2023-11-14T22:13:20+00:00",
            "born_host": "127.0.0.1:0",
        }
    ]
    without = run(spark, stores, GrepOptions(excerpt=0))
    assert "body" not in without.table("messages").columns


def test_names_that_need_care(spark: SparkSession, tmp_path: Path) -> None:
    for name, topic in (("zone=1", "a,b"), ("with blank", " c ")):
        with MessageStore.open(small(tmp_path / name)) as opened:
            assert opened.put(message(topic=topic)).ok
            assert opened.put(message(topic="other")).ok
    stores = find_stores([f"{tmp_path}/*"])
    for topic, name in (("a,b", "zone=1"), (" c ", "with blank")):
        result = run(spark, stores, GrepOptions(topic=topic))
        assert [row["store"] for row in result.table("messages").to_json()] == [name]
    with MessageStore.open(small(tmp_path / "x,y")) as opened:
        assert opened.put(message()).ok
    with pytest.raises(InvalidArgument, match="a store with a comma"):
        run(spark, find_stores([f"z={tmp_path}/x,y"]), GrepOptions())


def test_several_stores_and_damage(spark: SparkSession, fixture_copy: Store, store: Path) -> None:
    broken = fixture_copy("clean-small")
    log = sorted((broken / "commitlog").iterdir())[0]
    bad = plain.records(broken)[20]
    with log.open("r+b") as file:
        file.seek(bad.offset)
        file.write(b"\xff" * 4)
    stores = find_stores([f"whole={store}", f"broken={broken}"])
    result = run(spark, stores, GrepOptions(limit=0))
    count = len(plain.records(store))
    assert result.facts["matches"] == 2 * count - 1
    assert result.facts["damaged_places"] == 1
    assert result.facts["damaged_bytes"] == bad.message.total_size
    assert f"the first in broken at {bad.offset}" in result.notes[0]


@pytest.mark.parametrize("options", [GrepOptions(where="false"), GrepOptions(where="1 = 0", limit=0)])
def test_what_spark_need_not_read_to_know(spark: SparkSession, store: Path, options: GrepOptions) -> None:
    result = run(spark, find_stores([str(store)]), options)
    assert (result.facts["matches"], result.facts["bytes"], result.facts["damaged_places"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (GrepOptions(where="sise > 3"), "where sise > 3: .*sise"),
        (GrepOptions(where="size >"), "where size >: .*"),
        (GrepOptions(where="size"), "where size: .*(?i:boolean)"),
        (GrepOptions(where="keys[7] = ''"), r"where keys\[7\] = '': .*out of bounds"),
        (GrepOptions(where="1 / (size - size) > 1"), "where 1 / .*zero"),
        (GrepOptions(body_regex="(["), "invalid regular expression"),
        (GrepOptions(columns=("colour",)), "no such column: colour"),
        (GrepOptions(limit=-1), "--limit -1 is invalid"),
        (GrepOptions(excerpt=-1), "--excerpt -1 is invalid"),
        (GrepOptions(on_damage="maybe"), "onDamage = maybe is invalid"),
    ],
)
def test_what_makes_no_sense(spark: SparkSession, store: Path, options: GrepOptions, said: str) -> None:
    stores: Sequence[StoreRef] = find_stores([str(store)])
    with pytest.raises(InvalidArgument, match=said) as caught:
        run(spark, stores, options)
    assert "\n" not in str(caught.value)
