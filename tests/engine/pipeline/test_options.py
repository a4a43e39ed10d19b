"""Options of the data source: every one, in any case; what makes no sense is told with what there is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.backup.secret import KeySource
from engine.errors import InvalidArgument
from engine.pipeline import options
from engine.pipeline.filters import Range, Wanted, pushed
from engine.pipeline.options import NAMES, SourceOptions, parse
from engine.pipeline.repositories import RepositoryChoice
from engine.pipeline.schema import COLUMNS


def test_nothing_given() -> None:
    assert parse({}) == SourceOptions()


def test_every_option_in_any_case() -> None:
    given = {
        "PATH": "/a, /b/*",
        "Columns": " topic,body , keys",
        "INCLUDEBODY": "False",
        "topic": "A, B",
        "consumable": "true",
        "startOFFSET": "1k",
        "endOffset": "1M",
        "startTime": "1700000000000",
        "endtime": "2024-05-01T00:00:00+00:00",
        "splitBytes": "64M",
        "onDamage": "Mark",
        "decompress": "TRUE",
        "config": "/etc/broker.conf",
        "clockSlack": "5m",
        "pushFilters": "true",
        "startingOffsets": '{"a": 7}',
        "endingOffsets": '{"a": 9}',
        "maxBytesPerTrigger": "1G",
        "maxRecordsPerTrigger": "1000",
        "failOnDataLoss": "false",
        "snapshot": "3f9c",
        "storeNAME": "a, b",
        "keyFile": "/etc/key",
        "keyCommand": "pass backup",
        "archived": "true",
    }
    assert {name.lower() for name in given} == {name.lower() for name in NAMES}
    end = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)
    assert parse(given) == SourceOptions(
        places=("/a", "/b/*"),
        columns=("topic", "keys"),
        wanted=Wanted(
            frozenset({"A", "B"}),
            consumable=True,
            physical_offset=Range(1024, (1 << 20) - 1),
            store_timestamp=Range(1_700_000_000_000, end - 1),
        ),
        split_bytes=64 << 20,
        on_damage=options.MARK,
        decompress=True,
        config=Path("/etc/broker.conf"),
        clock_slack=300_000,
        push_filters=True,
        starting_offsets={"a": 7},
        ending_offsets={"a": 9},
        max_bytes=1 << 30,
        max_records=1000,
        fail_on_data_loss=False,
        repositories=RepositoryChoice("3f9c", ("a", "b"), KeySource("/etc/key", "pass backup"), archived=True),
    )


def test_several_paths_as_spark_gives_them() -> None:
    assert parse({"paths": json.dumps(["/a", "b=/c,/d"])}).places == ("/a", "b=/c", "/d")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("nothing", "1", "unknown option: nothing .there are path, columns, includeBody"),
        ("columns", "topic,nope", "no such column: nope .there are store, file"),
        ("columns", "topic,topic", "topic is given twice"),
        ("includeBody", "no", "includeBody = no: must be true or false"),
        ("decompress", "1", "decompress = 1: must be true or false"),
        ("onDamage", "ignore", "onDamage = ignore: there are fail, mark, skip"),
        ("splitBytes", "0", "splitBytes = 0: must be ≥ 1"),
        ("splitBytes", "-1", "splitBytes: not a size"),
        ("startOffset", "x", "startOffset: not a size"),
        ("startTime", "when it broke", "startTime: not a time"),
        ("clockSlack", "long", "clockSlack: not a duration"),
        ("startingOffsets", "newest", "startingOffsets = newest: must be earliest, latest, or"),
        ("startingOffsets", '{"a": -1}', "startingOffsets"),
        ("startingOffsets", '{"a": true}', "startingOffsets"),
        ("startingOffsets", "[1]", "startingOffsets"),
        ("maxBytesPerTrigger", "0", "maxBytesPerTrigger = 0: must be ≥ 1"),
    ],
)
def test_what_makes_no_sense(name: str, value: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse({name: value})


def test_every_option_is_told_of() -> None:
    assert options.__doc__
    for name in NAMES:
        assert f"`{name}`" in options.__doc__, name


def test_columns_without_the_body() -> None:
    with pytest.raises(InvalidArgument, match="no column is left"):
        parse({"columns": "body", "includeBody": "false"})
    assert parse({"includeBody": "false"}).columns == tuple(name for name in COLUMNS if name != "body")


class TestSparksFilters:
    """What a filter of Spark says about records: never less than it lets through."""

    def test_what_is_understood(self) -> None:
        d = pytest.importorskip("pyspark.sql.datasource")
        moment = datetime(2024, 5, 1, 0, 0, 0, 1500, tzinfo=UTC)
        ms = int(moment.timestamp() * 1000)
        for one, expected in (
            (d.EqualTo(("topic",), "T"), Wanted(frozenset({"T"}))),
            (d.In(("TOPIC",), ("T", None, "U")), Wanted(frozenset({"T", "U"}))),
            (d.EqualNullSafe(("queue_id",), 3), Wanted(queue_id=Range(3, 3))),
            (d.In(("queue_offset",), (3, 9)), Wanted(queue_offset=Range(3, 9))),
            (d.GreaterThan(("physical_offset",), 5), Wanted(physical_offset=Range(low=5))),
            (d.LessThanOrEqual(("store_timestamp",), 5), Wanted(store_timestamp=Range(high=5))),
            (d.GreaterThanOrEqual(("store_time",), moment), Wanted(store_timestamp=Range(low=ms))),
            (d.LessThan(("store_time",), moment), Wanted(store_timestamp=Range(high=ms + 1))),
            (d.EqualTo(("store_time",), moment), Wanted(store_timestamp=Range(ms, ms + 1))),
        ):
            assert pushed(Wanted(), [one]) == expected, one

    def test_what_is_not_understood_narrows_nothing(self) -> None:
        d = pytest.importorskip("pyspark.sql.datasource")
        for one in (
            d.EqualTo(("topic",), None),
            d.EqualNullSafe(("topic",), None),
            d.Not(d.EqualTo(("topic",), "T")),
            d.StringStartsWith(("topic",), "T"),
            d.EqualTo(("body",), b"x"),
            d.EqualTo(("queue_id",), "x"),
            d.EqualTo(("store_time",), "2024"),
            d.IsNotNull(("topic",)),
            d.EqualTo(("properties", "a"), "x"),
        ):
            assert pushed(Wanted(), [one]) == Wanted(), one

    def test_all_of_them_hold(self) -> None:
        d = pytest.importorskip("pyspark.sql.datasource")
        both = [d.GreaterThan(("queue_id",), 3), d.LessThan(("queue_id",), 2)]
        assert pushed(Wanted(), both).nothing
        topics = [d.EqualTo(("topic",), "A"), d.In(("topic",), ("B", "C"))]
        assert pushed(Wanted(), topics).nothing
