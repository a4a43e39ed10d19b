"""A topic read through its queues: the rows that a scan of the log gives, or a scan."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from engine.config import StoreConfig
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format import sysflag
from engine.format.message import Message
from engine.pipeline import narrow, planning
from engine.pipeline.options import parse
from engine.pipeline.read import ReadOptions, read_share
from engine.pipeline.stores import find_stores
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.support import references

Store = Callable[[str], Path]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the queues even where that is more to read: these stores are small."""
    monkeypatch.setattr(narrow, "_GAIN", 0.0001)


def read(path: Path, *, queues: bool = True, config: Path | None = None, **options: str) -> tuple[list[Any], int]:
    """Rows by physical offset, and how many tasks read units."""
    given = parse(
        {
            "columns": "physical_offset,topic,queue_id,queue_offset,body",
            "splitbytes": "9000",
            "consumable": "true",
            **options,
        }
    )
    (store,) = find_stores([str(path)], config=config)
    with pytest.MonkeyPatch.context() as patch:
        if not queues:
            patch.setattr(planning, "find_units", lambda *_: None)
        shares = planning.plan(store, given, given.wanted, Disk())
    how = ReadOptions(given.columns, given.on_damage, given.wanted)
    rows = [row for share in shares for batch in read_share(share, how) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["physical_offset"]), sum(share.units is not None for share in shares)


def assert_same(path: Path, *, narrow_tasks: bool = True, **options: str) -> list[Any]:
    found, tasks = read(path, **options)
    expected, none = read(path, queues=False, **options)
    assert found == expected
    assert none == 0
    assert bool(tasks) == narrow_tasks
    return found


def write(root: Path, count: int = 800, seed: int = 1) -> StoreConfig:
    """Three topics of different width; some messages of each are prepared, or rolled back."""
    config = small(root)
    dice = random.Random(seed)
    with MessageStore.open(config) as store:
        for i in range(count):
            topic = dice.choices(["Wide", "Narrow", "Other"], [20, 1, 3])[0]
            flags = dice.choices([0, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_ROLLBACK], [20, 1, 1])[0]
            put = Message(topic, b"%05d" % i + b"." * dice.randrange(600), i % 3, {"TAGS": "t"}, sys_flag=flags)
            assert store.put(put)
    assert_sound(config)
    return config


@pytest.mark.parametrize("topic", ["Narrow", "Wide", "Narrow,Other"])
def test_the_same_rows_as_a_scan(tmp_path: Path, topic: str) -> None:
    write(tmp_path / "store")
    found = assert_same(tmp_path / "store", topic=topic)
    assert {row["topic"] for row in found} == set(topic.split(","))
    (store,) = find_stores([str(tmp_path / "store")])
    for start, end in ((0, 50_000), (70_001, 120_000), (100_000, store.segments[-1].end)):
        assert_same(tmp_path / "store", topic=topic, startoffset=str(start), endoffset=str(end))


def test_prepared_and_rolled_back_messages_are_no_ones(tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for flags in (0, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
            store.put(Message("T", b"%d" % flags, sys_flag=flags))
    found = assert_same(tmp_path / "store", topic="T")
    assert [row["body"] for row in found] == [b"0", b"8"]
    every = assert_same(tmp_path / "store", topic="T", consumable="false", narrow_tasks=False)
    assert [row["body"] for row in every] == [b"0", b"4", b"8", b"12"]


def test_it_is_used_where_it_reads_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for i in range(600):
            store.put(message(b"x" * 3000, i % 4))
            if i % 200 == 0:
                store.put(message(b"few", 0, "Few"))
    monkeypatch.setattr(narrow, "_GAIN", 4)
    assert len(assert_same(tmp_path / "store", topic="Few")) == 3
    assert len(assert_same(tmp_path / "store", topic="T", narrow_tasks=False)) == 600


@pytest.mark.leaves("unit-missing")
def test_a_topic_without_queues_is_looked_for_in_the_log(tmp_path: Path) -> None:
    write(tmp_path / "store")
    assert assert_same(tmp_path / "store", topic="None", narrow_tasks=False) == []
    assert_same(tmp_path / "store", topic="None,Narrow", narrow_tasks=False)
    missing = tmp_path / "store" / "consumequeue" / "Narrow" / "1"
    for file in missing.iterdir():
        file.unlink()
    missing.rmdir()
    assert assert_same(tmp_path / "store", topic="Narrow", narrow_tasks=False)


@pytest.mark.leaves("unit-foreign", "unit-missing", "unit-orphaned")
@pytest.mark.parametrize("field", range(3))
def test_a_unit_that_names_something_else(tmp_path: Path, field: int) -> None:
    """Its task scans; the others do not. Where units are out of order, all do."""
    write(tmp_path / "store")
    (file, *_) = sorted((tmp_path / "store" / "consumequeue" / "Narrow" / "0").iterdir())
    data = bytearray(file.read_bytes())
    if field == 0:
        data[7] ^= 1
    elif field == 1:
        data[11] ^= 1
    else:
        data[:20], data[20:40] = data[20:40], data[:20]
    file.write_bytes(data)
    assert_same(tmp_path / "store", topic="Narrow", narrow_tasks=field < 2)
    assert_same(tmp_path / "store", topic="Narrow,Other", narrow_tasks=field < 2)


@pytest.mark.leaves("log-damage")
@pytest.mark.parametrize("seed", range(6))
def test_damage(tmp_path: Path, seed: int) -> None:
    """A record of the topic is gone: its task scans, and says so."""
    write(tmp_path / "store", seed=seed)
    (places, _) = read(tmp_path / "store", topic="Narrow")
    place = random.Random(seed).choice(places)["physical_offset"]
    file = tmp_path / "store" / "commitlog" / f"{place // 65536 * 65536:020d}"
    data = bytearray(file.read_bytes())
    data[place % 65536 : place % 65536 + 40] = bytes(40)
    file.write_bytes(data)
    with pytest.raises(FormatError):
        read(tmp_path / "store", topic="Narrow")
    left = assert_same(tmp_path / "store", topic="Narrow", ondamage="skip")
    assert len(left) == len(places) - 1
    marked, tasks = read(tmp_path / "store", topic="Narrow", ondamage="mark")
    assert tasks == 0
    assert len(marked) == len(places)


@pytest.mark.leaves("not-closed")
def test_a_store_that_crashed_is_scanned(tmp_path: Path) -> None:
    write(tmp_path / "store")
    (tmp_path / "store" / "abort").touch()
    assert assert_same(tmp_path / "store", topic="Narrow", narrow_tasks=False)


def test_a_live_store(tmp_path: Path) -> None:
    """What is not dispatched yet is found in the log."""
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for i in range(500):
            store.put(message(b"%05d" % i, 0, "Narrow" if i % 10 == 0 else "Wide"))
            if i % 100 == 99:
                found, _ = read(tmp_path / "store", topic="Narrow")
                assert [int(row["body"]) for row in found] == list(range(0, i + 1, 10))
    assert_sound(config)


@pytest.mark.leaves("unit-invalid", "unit-missing")
@pytest.mark.parametrize("which", ["first", "middle"])
def test_units_that_were_lost(tmp_path: Path, which: str) -> None:
    """Zeros in a queue: what lies behind them is no end, and nothing is missed."""
    write(tmp_path / "store", 3000)
    (file, *_) = sorted((tmp_path / "store" / "consumequeue" / "Wide" / "0").iterdir())
    data = bytearray(file.read_bytes())
    at = 0 if which == "first" else len(data) // 40 * 20
    data[at : at + 20] = bytes(20)
    file.write_bytes(data)
    assert assert_same(tmp_path / "store", topic="Wide", narrow_tasks=False)
    (file, *_) = sorted((tmp_path / "store" / "consumequeue" / "Narrow" / "0").iterdir())
    data = bytearray(file.read_bytes())
    data[40:60] = bytes(20)
    file.write_bytes(data)
    assert assert_same(tmp_path / "store", topic="Narrow", narrow_tasks=False)


@pytest.mark.leaves("unit-missing")
def test_queues_behind_the_log(tmp_path: Path) -> None:
    """No queue has the last messages: they are scanned."""
    write(tmp_path / "store")
    (store,) = find_stores([str(tmp_path / "store")])
    last = store.segments[-2].offset
    for file in (tmp_path / "store" / "consumequeue").rglob("0*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            for at in range(0, len(data), 20):
                if int.from_bytes(data[at : at + 8], "big") >= last:
                    data[at : at + 20] = bytes(20)
            file.write_bytes(data)
    assert assert_same(tmp_path / "store", topic="Narrow")


def test_a_log_that_has_forgotten_its_beginning(tmp_path: Path) -> None:
    write(tmp_path / "store")
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    for file in files[:2]:
        file.unlink()
    assert assert_same(tmp_path / "store", topic="Wide")


@pytest.mark.parametrize("reference", [one for one in references.ALL if "default-sizes" not in one])
def test_reference_stores(reference: str, reference_store: Store) -> None:
    path = reference_store(reference)
    lines = references.dump(reference, "log")
    topics = sorted({line["topic"] for line in lines})
    for topic in topics[:4]:
        expected, _ = read(path, queues=False, topic=topic, splitbytes="100000")
        found, _ = read(path, topic=topic, splitbytes="100000")
        assert found == expected, topic
        consumable = [x for x in lines if x["topic"] == topic and sysflag.is_consumable(x["sysFlag"])]
        assert len(found) == len(consumable)
