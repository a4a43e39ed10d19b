"""The stream reader alone: offsets, limits, new and expired files, damage between micro-batches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from engine.config import STORE_SIZES, StoreConfig, apache_key
from engine.errors import InvalidArgument, LogMissing
from engine.files.disk import Disk
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.options import parse
from engine.pipeline.partition import SplitPartition
from engine.pipeline.splits import log_end
from engine.pipeline.stores import find_stores
from engine.pipeline.stream import StoreStreamReader
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.support import newer

Store = Callable[[str], Path]
ALL = ReadAllAvailable()


def reader(*places: Path, **options: str) -> StoreStreamReader:
    return StoreStreamReader(parse({"path": ",".join(map(str, places)), **options}))


def rows(found: StoreStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    """What a micro-batch gives, in order."""
    made: list[dict[str, Any]] = []
    for partition in found.partitions(start, end):
        assert isinstance(partition, SplitPartition)
        for batch in found.read(partition):
            made += batch.to_pylist()
    return made


def fill(root: Path, count: int, start: int = 0, size: int = 100) -> StoreConfig:
    config = small(root)
    with MessageStore.open(config) as store:
        for i in range(start, start + count):
            assert store.put(message(b"%07d" % i + b"." * size, i % 4))
    return config


def test_micro_batches_are_the_log_in_order(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    found = reader(path, splitbytes="5000")
    start = found.initialOffset()
    end = found.latestOffset(start, ALL)
    assert start == {path.name: 0}
    whole = rows(found, start, end)
    for limited, limit in (("maxBytesPerTrigger", ReadMaxBytes(7000)), ("maxRecordsPerTrigger", ReadMaxRows(37))):
        value = str(getattr(limit, "max_bytes", None) or limit.max_rows)
        some = reader(path, **{limited: value})
        assert some.getDefaultReadLimit() == limit
        made, at, steps = [], start, 0
        while (to := some.latestOffset(at, limit)) != at:
            part = rows(some, at, to)
            if limited == "maxRecordsPerTrigger":
                assert len(part) == 37 or to == end
            assert rows(some, at, to) == part
            made, at, steps = made + part, to, steps + 1
        assert made == whole
        assert at == end
        assert steps > 10


@pytest.mark.leaves
def test_micro_batches_of_a_dledger_store_are_its_log_in_order(tmp_path: Path) -> None:
    path = newer.unpack("dledger", tmp_path)
    start = {path.name: 0}
    whole = rows(reader(path), start, reader(path).latestOffset(start, ALL))
    assert [row["queue_offset"] for row in whole if row["queue_id"] == 0] == list(range(10))
    for limited, limit in (
        ({"maxRecordsPerTrigger": "3"}, ReadMaxRows(3)),
        ({"maxBytesPerTrigger": "700"}, ReadMaxBytes(700)),
    ):
        some = reader(path, **limited)
        made, at = [], start
        while (to := some.latestOffset(at, limit)) != at:
            made, at = made + rows(some, at, to), to
        assert made == whole


def test_both_limits_hold(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    found = reader(path, maxBytesPerTrigger="1G", maxRecordsPerTrigger="5")
    start = found.initialOffset()
    assert len(rows(found, start, found.latestOffset(start, found.getDefaultReadLimit()))) == 5
    assert found.latestOffset(start, ALL) == found.reportLatestOffset()


def test_what_one_store_does_not_use_goes_to_the_others(tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 400)):
        fill(tmp_path / name, count)
    found = reader(tmp_path / "a", tmp_path / "b", maxRecordsPerTrigger="100")
    start = found.initialOffset()
    made = rows(found, start, found.latestOffset(start, ReadMaxRows(100)))
    counts = {name: sum(row["store"] == name for row in made) for name in ("a", "b")}
    assert counts == {"a": 5, "b": 95}


@pytest.mark.leaves("log-damage")
def test_damage_between_two_micro_batches_is_told_once(fixture_copy: Store) -> None:
    path = fixture_copy("clean-small")
    file = sorted((path / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[20_000:26_000] = bytes(6000)
    file.write_bytes(data)
    found = reader(path, ondamage="mark", maxBytesPerTrigger="1500")
    at, made = found.initialOffset(), []
    while (to := found.latestOffset(at, found.getDefaultReadLimit())) != at:
        made, at = made + rows(found, at, to), to
    assert [row for row in made if row["damage"]] == [
        row for row in rows(found, found.initialOffset(), at) if row["damage"]
    ]
    assert sum(row["damage"] is not None for row in made) == 1
    assert made == rows(found, found.initialOffset(), at)


def test_where_a_query_begins(fixture_store: Store) -> None:
    path = fixture_store("clean-small")
    (ref,) = find_stores([str(path)])
    end = log_end(ref, Disk())
    assert reader(path, startingoffsets="latest").initialOffset() == {path.name: end}
    assert reader(path, startingoffsets="earliest").initialOffset() == {path.name: 0}
    some = reader(path, startingoffsets=f'{{"{path.name}": 5000}}')
    first = rows(some, some.initialOffset(), some.latestOffset(some.initialOffset(), ALL))[0]
    whole = rows(some, {path.name: 0}, {path.name: end})
    assert first == next(row for row in whole if row["physical_offset"] >= 5000)
    with pytest.raises(InvalidArgument, match="no such store: x"):
        reader(path, startingoffsets='{"x": 1}').initialOffset()


def test_new_files_come_in_and_only_whole_records(tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    found = reader(tmp_path / "store")
    with MessageStore.open(config) as store:
        store.put(message(b"first"))
        at = found.initialOffset()
        seen = []
        for round_ in range(5):
            for i in range(150):
                store.put(message(b"%d-%d" % (round_, i) + b"." * 300))
            to = found.latestOffset(at, ALL)
            seen += [row["body"] for row in rows(found, at, to)]
            at = to
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
    assert len(seen) == len(set(seen)) == 751
    assert found.latestOffset(at, ALL) == at
    assert_sound(config)


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    config = fill(tmp_path / "store", 50)
    found = reader(tmp_path / "store", maxRecordsPerTrigger="20")
    found.prepareForTriggerAvailableNow()
    fill(tmp_path / "store", 30, start=50)
    at, count = found.initialOffset(), 0
    while (to := found.latestOffset(at, ReadMaxRows(20))) != at:
        count, at = count + len(rows(found, at, to)), to
    assert count == 50
    assert_sound(config)


def test_what_expired_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "store", 1200, size=400)
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    found = reader(tmp_path / "store")
    at = found.initialOffset()
    for file in files[:2]:
        file.unlink()
    with pytest.raises(LogMissing, match=r"131072 bytes of the log of store were deleted.*offsets 0 to 131072"):
        found.latestOffset(at, ALL)
    with pytest.raises(LogMissing):
        found.partitions(at, {"store": 200_000})
    going_on = reader(tmp_path / "store", failondataloss="false")
    made = rows(going_on, at, going_on.latestOffset(at, ALL))
    assert made[0]["physical_offset"] == 131072


@pytest.mark.leaves("unit-orphaned")
def test_a_log_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path / "store", 1200, size=400)
    found = reader(tmp_path / "store")
    end = found.latestOffset(found.initialOffset(), ALL)
    for file in sorted((tmp_path / "store" / "commitlog").iterdir())[1:]:
        file.unlink()
    with pytest.raises(LogMissing, match="the log was cut"):
        found.latestOffset(end, ALL)
    assert reader(tmp_path / "store", failondataloss="false").latestOffset(end, ALL) == end
    fill(tmp_path / "other", 3)
    with pytest.raises(LogMissing, match="no longer one of the stores"):
        reader(tmp_path / "other").latestOffset(end, ALL)


def test_a_log_that_was_cut_within_its_file_and_written_on_is_an_error(tmp_path: Path) -> None:
    config = fill(tmp_path / "s", 200)
    found = reader(tmp_path / "s")
    read = found.latestOffset({"s": 0}, ALL)
    assert found.latestOffset(read, ALL) == read
    truncate(config, record=100)
    with pytest.raises(LogMissing, match="the log was cut"):
        reader(tmp_path / "s").latestOffset(read, ALL)
    fill(tmp_path / "s", 200, start=1000, size=333)
    with pytest.raises(LogMissing, match="the log was cut"):
        reader(tmp_path / "s").latestOffset(read, ALL)
    assert reader(tmp_path / "s", failondataloss="false").latestOffset(read, ALL) == read
    assert_sound(config)


def truncate(config: StoreConfig, record: int) -> None:
    """`rstore truncate` where a record begins."""
    (found,) = find_stores([str(config.store_path_root_dir)])
    with ClosedLog(Disk(), found.segments) as log:
        batches = [one for one in Scanner(log).scan(0, resume=True) if isinstance(one, RecordBatch)]
        places = [place for one in batches for place in one.offsets().tolist()]
    words = ["--to-offset", str(places[record]), "--yes", "--quiet"]
    settings = config.store_path_root_dir.parent / "broker.conf"
    settings.write_text("".join(f"{apache_key(name)}={getattr(config, name)}\n" for name in STORE_SIZES))
    command = [sys.executable, "-m", "rstore_cli.app", "--store", str(config.store_path_root_dir), "-c", str(settings)]
    done = subprocess.run([*command, "truncate", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
