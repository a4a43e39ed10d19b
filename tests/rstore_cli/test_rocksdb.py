"""Consume queues and configuration in RocksDB, as real 5.3.3 and 5.5.0 brokers left them: read, and never changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import FormatError
from engine.files.disk import Disk
from engine.files.rocksdb import RocksDatabase
from engine.format.queue_unit import PRE_BLANK_SIZE, UNIT_SIZE
from engine.format.rocksdb_queue import UNITS, OffsetKey, RocksDBUnit, UnitKey, decode_unit, encode_offset
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_console import ended
from tests.rstore_cli.test_without_extras import without
from tests.support import newer, stores

rocksdict = pytest.importorskip("rocksdict")

KINDS = {"rocksdb-5.3.3": 1, "rocksdb-killed": 1, "rocksdb-both": 2, "rocksdb-v2": 1}
"""How often each message was sent."""
COMMANDS = (
    *("status", "check", "doctor", "get T 0", "get Orders 1 --at 2020-01-01", "dump consumequeue Orders 0"),
    *("offsets list", "dump config", "query T T-4", "report --json"),
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    into = tmp_path_factory.mktemp("rocksdb")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


@pytest.fixture
def store(unpacked: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of what 5.3.3 left."""
    return stores.copy(unpacked("rocksdb-5.3.3"), tmp_path / "store")


def opened(directory: Path) -> rocksdict.Rdict:
    """The database, to be changed."""

    def options() -> rocksdict.Options:
        made = rocksdict.Options(raw_mode=True)
        made.create_if_missing(False)
        return made

    names = rocksdict.Rdict.list_cf(str(directory))
    return rocksdict.Rdict(
        str(directory), options=options(), column_families={n: options() for n in names if n != "default"}
    )


def codes(cli: Cli, store: Path) -> set[str]:
    found = cli("--store", store, "--json", "check").json["findings"]
    return {one["code"] for one in found if one["severity"] != "info"}


@pytest.mark.parametrize("name", KINDS)
def test_units_and_offsets_are_those_that_the_broker_wrote(
    name: str, unpacked: Callable[[str], Path], cli: Cli
) -> None:
    """Each record of the log has its unit (but for what a killed broker had in memory alone); nothing is written."""
    root, times = unpacked(name), KINDS[name]
    before = stores.snapshot(root)
    for words in COMMANDS:
        ran = cli("--store", root, *words.split())
        assert (ran.code == 0 or name == "rocksdb-killed", "Traceback" in ran.err) == (True, False), (words, ran)
    log = [one for one in cli("--store", root, "--json", "dump", "commitlog").lines if "topic" in one]
    units = {
        (topic, queue, row["queueOffset"]): (row["physicalOffset"], row["size"])
        for topic in ("T", "Orders")
        for queue in (0, 1)
        for row in cli("--store", root, "--json", "dump", "consumequeue", topic, str(queue)).lines
    }
    wanted = {
        (one["topic"], one["queueId"], one["queueOffset"]): (one["physicalOffset"], one["storeSize"]) for one in log
    }
    assert len(wanted) == 50 * times
    if name == "rocksdb-killed":
        assert units == {}
        assert "start the store's own RocketMQ 5 broker" in cli("--store", root, "--json", "check").json["next"]["why"]
    else:
        assert units == wanted
        assert codes(cli, root) == set()
        status = cli("--store", root, "--json", "status").json
        assert (status["messages"], status["consumequeue"]["queues"]) == (50 * times, 4)
        offsets = cli("--store", root, "--json", "offsets", "list").lines
        assert [(one["group"], one["topic"], one["queueId"], one["offset"], one["maxOffset"]) for one in offsets] == [
            ("others", "Orders", 0, 3, 15 * times),
            ("readers", "T", 0, 7, 10 * times),
            ("readers", "T", 1, 10, 10 * times),
        ]
    assert stores.snapshot(root) == before


def test_topics_and_groups_are_read_in_place_of_files(unpacked: Callable[[str], Path], cli: Cli) -> None:
    for name, place in (("rocksdb-5.3.3", "topics/"), ("rocksdb-v2", "rdb/")):
        files = {one["file"]: one for one in cli("--store", unpacked(name), "--json", "dump", "config").lines}
        topics = files["topics.json"]
        assert topics["source"] == place
        assert topics["value"]["topicConfigTable"]["Orders"]["readQueueNums"] == 2
        assert topics["value"]["dataVersion"]["counter"] > 0
        assert "readers" in files["subscriptionGroup.json"]["value"]["subscriptionGroupTable"]
        ran = cli("--store", unpacked(name), "get", "Ordres", "0")
        assert ("no topic Ordres" in ran.error_line, "Orders" in ran.error_line) == (True, True)


def test_a_newer_file_beside_the_database_is_taken_over(store: Path, cli: Cli) -> None:
    """As the broker does when it starts: by the counters of the versions."""
    for counter, expected in ((0, 7), (1 << 40, 9)):
        value = {"offsetTable": {"T@readers": {"0": 9}}, "dataVersion": {"counter": counter, "timestamp": 0}}
        (store / "config" / "consumerOffset.json").write_text(json.dumps(value))
        rows = cli("--store", store, "--json", "offsets", "list", "--group", "readers").lines
        assert rows[0]["offset"] == expected


def test_without_the_package_it_is_said_what_to_install(unpacked: Callable[[str], Path]) -> None:
    root = str(unpacked("rocksdb-5.3.3"))
    runs = [
        ("--store", root, *words.split()) for words in ("get T 0", "offsets list", "check", "status", "dump config")
    ]
    for (_, _, *words), (code, out, err) in zip(runs, without(*runs), strict=True):
        assert "Traceback" not in err, words
        assert code == (4 if words[0] in ("get", "offsets") else 0), (words, err)
        assert "pip install 'rstore[rocksdb]'" in out + err, words


@pytest.mark.leaves("unit-time", "queue-end", "rocksdb-entry", "unit-missing", "unit-invalid", "unit-orphaned")
def test_check_names_what_a_database_has_wrong(store: Path, cli: Cli) -> None:
    with RocksDatabase(Disk(), str(store / "consumequeue")) as database:
        rows = {bytes(one.key): bytes(one.value) for one in database.items(UNITS)}
    there = decode_unit(rows[UnitKey(b"T", 0, 3).encode()])
    later = replace(there, store_timestamp=there.store_timestamp + 1)
    damages: list[tuple[str, str, bytes, bytes | None]] = [
        ("unit-time", "default", UnitKey(b"T", 0, 3).encode(), later.encode()),
        ("unit-missing", "default", UnitKey(b"T", 1, 4).encode(), None),
        ("unit-orphaned", "default", UnitKey(b"Orders", 0, 2).encode(), RocksDBUnit(5341, 297, 0, 5).encode()),
        ("queue-end", "offset", OffsetKey(b"Orders", 1, True).encode(), encode_offset(99, 99)),
        ("rocksdb-entry", "default", b"no key", b""),
        ("rocksdb-entry", "default", UnitKey(b"Orders", 1, 5).encode(), b"short"),
    ]  # fmt: skip
    database = opened(store / "consumequeue")
    for _, family, key, value in damages:
        part = database if family == "default" else database.get_column_family(family)
        if value is None:
            del part[key]
        else:
            part[key] = value
    database.close()
    (store / "consumequeue" / "rocksdict-config.json").unlink(missing_ok=True)
    assert codes(cli, store) >= {code for code, *_ in damages}
    assert "makes the queues anew" in cli("--store", store, "--json", "check").json["next"]["why"]
    got = cli("--store", store, "--json", "get", "T", "1", "--count", "100")
    assert [one["queueOffset"] for one in got.lines] == [0, 1, 2, 3, *range(5, 10)]


@pytest.mark.leaves("rocksdb-table")
def test_a_table_that_its_database_does_not_know_is_named(store: Path, cli: Cli) -> None:
    """As a manifest leaves it that a broker has lost: RocksDB deletes such a table when it opens the database."""
    shutil.copy(next((store / "config" / "topics").glob("*.sst")), store / "consumequeue" / "000099.sst")
    assert codes(cli, store) == {"rocksdb-table"}


@pytest.mark.leaves("unit-twice")
def test_queues_of_both_kinds_are_compared(unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli) -> None:
    root = stores.copy(unpacked("rocksdb-both"), tmp_path / "both")
    database = opened(root / "consumequeue")
    database[UnitKey(b"T", 0, 12).encode()] = RocksDBUnit(1, 2, 3, 4).encode()
    database.close()
    (root / "consumequeue" / "rocksdict-config.json").unlink(missing_ok=True)
    assert codes(cli, root) == {"unit-twice"}
    assert len(cli("--store", root, "--json", "get", "T", "0", "--count", "100").lines) == 20  # its file is read


@pytest.mark.leaves("unit-missing")
def test_of_queues_of_both_kinds_the_one_with_more_units_is_read(
    unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """What 5.3.3 writes in RocksDB begins where it was told to write both: T/0 has #10 to #19 there."""
    root = stores.copy(unpacked("rocksdb-both"), tmp_path / "both")
    for left, expected in ((15, list(range(15))), (5, list(range(10, 20)))):
        with (root / "consumequeue" / "T" / "0" / "00000000000000000000").open("r+b") as file:
            file.seek(left * UNIT_SIZE)
            file.write(bytes((20 - left) * UNIT_SIZE))
        rows = cli("--store", root, "--json", "dump", "consumequeue", "T", "0").lines
        assert [one["queueOffset"] for one in rows if one["size"] < PRE_BLANK_SIZE] == expected


TEAR, DROP, FLIP = "cut short", "removed", "changed"


@pytest.mark.leaves("rocksdb-damage", "config-bad")
@pytest.mark.parametrize(
    ("place", "name", "how"),
    [
        *(("consumequeue", "CURRENT", DROP), ("consumequeue", "MANIFEST", TEAR), ("consumequeue", "MANIFEST", FLIP)),
        *(("consumequeue", "sst", TEAR), ("consumequeue", "sst", DROP), ("consumequeue", "sst", FLIP)),
        ("config/topics", "sst", DROP),
    ],
)
def test_a_damaged_database_is_an_error_with_its_file(place: str, name: str, how: str, store: Path, cli: Cli) -> None:
    path = next(one for one in sorted((store / place).iterdir()) if name in one.name)
    data = path.read_bytes()
    at = 100 if len(data) > 150 else 3
    if how == DROP:
        path.unlink()
    else:
        path.write_bytes(data[:-5] if how == TEAR else data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    before = stores.snapshot(store)
    check = cli("--store", store, "--json", "check").json
    wrong = {one["code"] for one in check["findings"] if one["severity"] == "error"}
    assert wrong == ({"rocksdb-damage"} if place == "consumequeue" else {"config-bad"})
    assert path.name in str(check["findings"])
    assert check["next"]["command"] is None
    commands = (("get", "T", "0"), ("offsets", "list"), ("status",))
    for words in commands:
        ran = cli("--store", store, *words)
        assert "Traceback" not in ran.err, words
        if words[0] == "get" and place == "consumequeue":
            assert (ran.code, path.name in ran.err) == (4, True), ran
    assert stores.snapshot(store) == before


@pytest.mark.leaves("rocksdb-torn")
def test_a_log_that_was_cut_is_read_as_its_broker_reads_it(store: Path, cli: Cli) -> None:
    """Configuration is in a write-ahead log until it is flushed: what is before the cut counts."""
    place = store / "config" / "consumerOffsets"
    database = opened(place)
    database[b"T@readers"] = b'{"offsetTable":{0:8,1:10}}'
    database[b"T@readers"] = b'{"offsetTable":{0:9,1:10}}'
    database.flush_wal()
    copy = store.parent / "copy"
    shutil.copytree(place, copy)
    database.close()
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    (place / "rocksdict-config.json").unlink(missing_ok=True)
    (log,) = (one for one in place.glob("*.log") if one.stat().st_size)
    rows = cli("--store", store, "--json", "offsets", "list", "--group", "readers").lines
    assert rows[0]["offset"] == 9
    os.truncate(log, log.stat().st_size - 3)
    before = stores.snapshot(store)
    rows = cli("--store", store, "--json", "offsets", "list", "--group", "readers").lines
    assert rows[0]["offset"] == 8
    with RocksDatabase(Disk(), str(place)) as read:
        assert read.torn is not None
        assert read.torn.path == str(log)
    assert stores.snapshot(store) == before


def test_a_process_that_native_code_brings_down_is_an_error(store: Path) -> None:
    with RocksDatabase(Disk(), str(store / "consumequeue")) as database:
        process = database._process
        assert process is not None
        process.send_signal(signal.SIGSEGV)
        process.wait()
        with pytest.raises(FormatError, match="RocksDB ended: by SIGSEGV"):
            list(database.items(UNITS))
        copy = Path(database._copy)
    assert not copy.exists()


def test_what_reads_a_database_ends_with_who_asked(store: Path) -> None:
    """Also where that process is killed: the copy goes, and no process stays."""
    code = (
        "import os, sys; from engine.files.disk import Disk; from engine.files.rocksdb import RocksDatabase\n"
        f"one = RocksDatabase(Disk(), {str(store / 'consumequeue')!r})\n"
        "print(one._copy, one._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL, ran
    copy, pid = ran.stdout.split()
    while not ended(int(pid)):
        pass
    assert not Path(copy).exists()


def test_a_database_that_a_broker_writes_is_read(store: Path, cli: Cli) -> None:
    """As of that moment: what it has not written yet is not there, and nothing of it is changed."""
    live = opened(store / "config" / "consumerOffsets")
    try:
        live[b"T@readers"] = b'{"offsetTable":{0:9,1:10}}'
        live.flush_wal()
        rows = cli("--store", store, "--json", "offsets", "list", "--group", "readers").lines
        assert rows[0]["offset"] == 9
        live[b"T@readers"] = b'{"offsetTable":{0:10,1:10}}'
    finally:
        live.close()
    rows = cli("--store", store, "--json", "offsets", "list", "--group", "readers").lines
    assert rows[0]["offset"] == 10
    (store / "config" / "consumerOffsets" / "rocksdict-config.json").unlink(missing_ok=True)
