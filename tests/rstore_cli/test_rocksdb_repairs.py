"""`recover`, `truncate` and `undo` of stores with consume queues in RocksDB: the database stays where it is the log's,
else it is set aside for its broker to build again. Brokers that do are in tests/compat/test_rocksdb_queues5.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.format.record import total_size_at
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

pytest.importorskip("rocksdict")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    into = tmp_path_factory.mktemp("rocksdb")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


@pytest.fixture
def copied(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: stores.copy(unpacked(name), tmp_path / name)


def log_of(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def places(root: Path) -> list[int]:
    """Of its records."""
    data, at, found = log_of(root).read_bytes(), 0, []
    while (size := total_size_at(data, at)) > 0:
        found.append(at)
        at += size
    return [*found, at]


def database(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "consumequeue").iterdir() if path.is_file()}


def test_a_sound_store_is_not_changed(copied: Callable[[str], Path], cli: Cli) -> None:
    for name in ("rocksdb", "rocksdb-5.3.3", "rocksdb-both"):
        root = copied(name)
        before = stores.contents(root)
        for words in ("recover --yes", "recover --whole --yes"):
            assert cli("--store", root, *words.split()).code == 0, words
        assert stores.contents(root) == before


@pytest.mark.leaves("not-closed", "unit-missing")
def test_what_a_killed_broker_has_not_dispatched_is_left_to_it(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("rocksdb-killed")
    before = database(root)
    ran = cli("--store", root, "recover", "--yes")
    assert ran.code == 0
    assert "start it next" in ran.out
    assert (root / "abort").exists()
    assert database(root) == before
    again = cli("--store", root, "recover", "--dry-run")
    assert "Nothing to do" in again.out


@pytest.mark.leaves("not-closed", "index-missing")
@pytest.mark.parametrize("name", ["rocksdb", "rocksdb-5.3.3"])
def test_cut_it_is_set_aside_and_an_undo_brings_it_back(name: str, copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied(name)
    before = stores.contents(root)
    at = places(root)[-4]
    ran = cli("--store", root, "truncate", "--to-offset", str(at), "--yes")
    assert ran.code == 0, ran
    assert "builds its queues in RocksDB" in ran.out
    assert database(root) == {}
    assert (root / "abort").exists()
    status = cli("--store", root, "--json", "status").json
    assert {"what": "consume queues in RocksDB", "where": "quarantine/consumequeue/CURRENT"} in status["newer"]
    assert "builds the queues again" in cli("--store", root, "get", "T", "0").err
    assert "Nothing to do" in cli("--store", root, "recover", "--dry-run").out
    assert sum(line.get("kind") == "message" for line in cli("--store", root, "--json", "dump", "commitlog").lines) == (
        len(places(root)) - 1
    )
    assert cli("--store", root, "undo", "--yes").code == 0
    after = stores.contents(root)
    assert {path: data for path, data in after.items() if path.split("/")[0] != "salvage"} == before


@pytest.mark.leaves("not-closed")
def test_a_damaged_database_is_set_aside(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("rocksdb-5.3.3")
    (table, *_) = sorted((root / "consumequeue").glob("*.sst"))
    table.write_bytes(table.read_bytes()[:-7])
    assert cli("--store", root, "recover", "--yes").code == 0
    assert database(root) == {}
    assert (root / "quarantine" / "consumequeue" / table.name).exists()


@pytest.mark.leaves("log-damage", "unit-lost", "index-lost", "rocksdb-damage")
@pytest.mark.parametrize("damaged", [False, True])
def test_with_messages_lost_in_the_middle_it_is_refused(damaged: bool, copied: Callable[[str], Path], cli: Cli) -> None:
    """No broker gets past a queue offset that has no unit there; a database that can't be read does not hide it."""
    root = copied("rocksdb-5.3.3")
    if damaged:
        (table, *_) = sorted((root / "consumequeue").glob("*.sst"))
        table.write_bytes(table.read_bytes()[:-7])
    middle = places(root)[30]
    with log_of(root).open("r+b") as file:
        file.seek(middle + 4)
        file.write(b"\xff" * 100)
    before = stores.contents(root)
    ran = cli("--store", root, "recover", "--bridge", "--yes")
    assert ran.code == 4
    assert "no broker gets past one in RocksDB" in ran.error_line
    assert stores.contents(root) == before


@pytest.mark.leaves("not-closed")
def test_and_cut_before_them_it_is_not(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("rocksdb-5.3.3")
    middle = places(root)[20]
    with log_of(root).open("r+b") as file:
        file.seek(middle + 4)
        file.write(b"\xff" * 100)
    assert cli("--store", root, "recover", "--cut", "--whole", "--yes").code == 0
    assert len(places(root)) == 21
    assert database(root) == {}


@pytest.mark.leaves("not-closed")
def test_of_queues_of_both_kinds_the_files_are_repaired(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("rocksdb-both")
    at = places(root)[-4]
    ran = cli("--store", root, "truncate", "--to-offset", str(at), "--yes")
    assert ran.code == 0
    assert database(root) == {}
    units = [line for q in "01" for line in cli("--store", root, "--json", "get", "T", q, "--count", "99").lines]
    orders = [line for q in "01" for line in cli("--store", root, "--json", "get", "Orders", q, "--count", "99").lines]
    assert len(units) + len(orders) == len(places(root)) - 1
