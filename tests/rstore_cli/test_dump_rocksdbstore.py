"""`rstore dump rocksdbstore`: what a real 5.5.0 broker left in its own database, compared with the log, and damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.files.disk import Disk
from engine.files.rocksdb import RocksDatabase
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_without_extras import without
from tests.support import newer, stores

rocksdict = pytest.importorskip("rocksdict")

HOUR_MS = 3_600_000
DUMP = ("--json", "dump", "rocksdbstore")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return newer.unpack("rocksdb-store", tmp_path)


def change(store: Path, family: str, key: bytes, value: bytes) -> None:
    """Writes one key; a family that is not there is made."""
    directory = store / "rocksdbstore"
    names = rocksdict.Rdict.list_cf(str(directory))
    options = rocksdict.Options(raw_mode=True)
    families = {name: rocksdict.Options(raw_mode=True) for name in names if name != "default"}
    database = rocksdict.Rdict(str(directory), options=options, column_families=families)
    if family not in names:
        database.create_column_family(family, options=rocksdict.Options(raw_mode=True))
    part = database if family == "default" else database.get_column_family(family)
    part[key] = value
    database.close()
    (directory / "rocksdict-config.json").unlink(missing_ok=True)


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def test_each_entry_is_of_a_record_of_the_log(store: Path, cli: Cli) -> None:
    """And each record that has a key, a time, or a transaction has its entries; nothing is written."""
    before = stores.snapshot(store)
    ran = cli("--store", store, *DUMP)
    assert (ran.code, ran.err) == (0, "")
    assert stores.snapshot(store) == before
    log = [one for one in cli("--store", store, "--json", "dump", "commitlog").lines if one["kind"] == "message"]
    words = {
        (one["topic"], kind, word, properties["UNIQ_KEY"], one["physicalOffset"], one["storeTimestamp"])
        for one in log
        for properties in (one["properties"],)
        for kind, word in (("K", properties["KEYS"]), ("T", properties["TAGS"]), ("U", properties["UNIQ_KEY"]))
    }
    index = of_kind(ran.lines, "index")
    seen = {
        (row["topic"], row["type"], row["word"], row["uniqKey"], row["physicalOffset"], row["storeTimestamp"])
        for row in index
    }
    assert seen == words
    assert len(index) == len(words) == 3 * (6 + 4 + 3)
    assert all(row["hour"] == row["storeTimestamp"] // HOUR_MS * HOUR_MS for row in index)
    waiting = [one for one in log if one["topic"] == "rmq_sys_wheel_timer"]
    assert [
        (row["dueTime"], row["uniqKey"], row["physicalOffset"], row["size"]) for row in of_kind(ran.lines, "timer")
    ] == [
        (int(one["properties"]["TIMER_OUT_MS"]), one["properties"]["UNIQ_KEY"], one["physicalOffset"], one["storeSize"])
        for one in waiting
    ]
    halves = [one for one in log if one["topic"] == "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"]
    assert [
        (row["physicalOffset"], row["topic"], row["uniqKey"], row["checkTimes"], row["size"])
        for row in of_kind(ran.lines, "half")
    ] == [(one["physicalOffset"], "Orders", one["properties"]["UNIQ_KEY"], 0, one["storeSize"]) for one in halves]
    assert (len(waiting), len(halves)) == (4, 3)
    last = log[-1]
    assert [(row["family"], row["name"], row["value"]) for row in of_kind(ran.lines, "progress")] == [
        ("default", "lastOffsetPy", last["physicalOffset"]),
        ("default", "lastStoreTimeStamp", last["storeTimestamp"]),
        ("timer", "sys_topic_scan_offset_checkpoint", len(waiting)),
        ("trans", "lastOffsetPy", last["physicalOffset"]),
    ]


def test_rows_are_the_bytes_of_the_database(store: Path, cli: Cli) -> None:
    with RocksDatabase(Disk(), str(store / "rocksdbstore")) as database:
        items = [
            (family, bytes(item.key).hex(), bytes(item.value).hex())
            for family in ("default", "timer", "trans")
            for item in database.items(family)
        ]
    lines = cli("--store", store, *DUMP).lines
    assert [(row["family"], row["rawKey"], row["rawValue"]) for row in lines] == items
    assert cli("--store", store, *DUMP, "--limit", "2").lines == lines[:2]
    timer = cli("--store", store, *DUMP, "--family", "timer").lines
    assert timer == [row for row in lines if row["family"] == "timer"]
    ran = cli("--store", store, "dump", "rocksdbstore", "--family", "times")
    assert (ran.code, ran.out) == (2, "")
    assert "no column family times: there are default, timer, trans" in ran.err
    text = cli("--store", store, "dump", "rocksdbstore").out
    assert text.count("-unique") == 39 + 13 + 4 + 3  # of kind U it is the word, too
    assert "Late-0003-unique" in text


@pytest.mark.leaves("not-closed")  # by the broker that was killed
@pytest.mark.parametrize("name", ["default", "killed", "property-crc"])
def test_the_database_of_a_default_broker_is_empty(name: str, tmp_path: Path, cli: Cli) -> None:
    store = newer.unpack(name, tmp_path)
    before = stores.snapshot(store)
    ran = cli("--store", store, "dump", "rocksdbstore")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing is in it" in ran.err
    assert stores.snapshot(store) == before


def test_a_store_without_the_database(fixture_store: Callable[[str], Path], cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), "dump", "rocksdbstore")
    assert (ran.code, ran.out, "no database" in ran.err) == (0, "", True)


def test_without_the_package_it_is_said_what_to_install(store: Path) -> None:
    ((code, out, err),) = without(("--store", str(store), "dump", "rocksdbstore"))
    assert (code, out) == (5, "")
    assert "pip install 'rstore[rocksdb]'" in err


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("CURRENT", "drop"), ("CURRENT", "flip"), ("MANIFEST", "cut"), ("MANIFEST", "flip"), ("sst", "cut"),
        ("sst", "drop"), ("sst", "flip"),
    ],
)  # fmt: skip
def test_a_damaged_database_is_an_error_with_its_file(name: str, how: str, store: Path, cli: Cli) -> None:
    path = next(one for one in sorted((store / "rocksdbstore").iterdir()) if name in one.name)
    data = path.read_bytes()
    at = 100 if len(data) > 150 else 3
    if how == "drop":
        path.unlink()
    else:
        path.write_bytes(data[:-5] if how == "cut" else data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    before = stores.snapshot(store)
    ran = cli("--store", store, "dump", "rocksdbstore")
    assert ("Traceback" in ran.err, ran.code, path.name in ran.err) == (False, 4, True), ran
    assert stores.snapshot(store) == before


def test_something_else_in_its_place(store: Path, cli: Cli) -> None:
    place = store / "rocksdbstore"
    place.rename(store.parent / "kept")
    for make in (lambda: place.write_bytes(b"x"), lambda: place.symlink_to(place)):
        make()
        ran = cli("--store", store, "dump", "rocksdbstore")
        assert (ran.code, "Traceback" in ran.err, "rocksdbstore" in ran.err) == (5, False, True), ran
        place.unlink()
    place.mkdir()
    assert cli("--store", store, "dump", "rocksdbstore").code == 0


def test_what_no_broker_reads_and_what_is_not_known(store: Path, cli: Cli) -> None:
    change(store, "later", b"key", b"value")
    change(store, "timer", struct.pack(">q", 5) + b"short", b"value")
    change(store, "trans", struct.pack(">q", 5) + b"@T@u@x", struct.pack(">ii", 0, 9))
    ran = cli("--store", store, *DUMP)
    assert ran.code == 1
    assert [(row["family"], row["reason"]) for row in of_kind(ran.lines, "damage")] == [
        ("timer", "a timer message has a value of 12 bytes, this one has 5"),
        ("trans", "invalid key of a half message: 0000000000000005405440754078"),
    ]
    (unknown,) = of_kind(ran.lines, "unknown")
    assert (unknown["family"], unknown["rawKey"], unknown["rawValue"]) == ("later", b"key".hex(), b"value".hex())
    assert len(ran.lines) == 39 + 4 + 3 + 4 + 3
    assert cli("--store", store, "dump", "rocksdbstore", "--family", "later").code == 0
