"""`rstore dump compaction`, `check` and `status` of compacted topics: what a broker returns, and what is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.format.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

FIRST, SECOND = "00000000000000000000", "00000000000000030360"
"""Of each queue: the first file is compacted, the second one has what was sent since; five files before it are gone."""
Rows = list[dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return newer.unpack("compaction", tmp_path)


@pytest.fixture
def dump(cli: Cli, store: Path) -> Callable[..., Rows]:
    """The rows of queue 0 of topic C, and the exit code they come with; nothing is written."""

    def run(code: int = 0) -> Rows:
        before = stores.snapshot(store)
        ran = cli("--store", store, "--json", "dump", "compaction", "C", "0")
        assert (ran.code, ran.err) == (code, "")
        assert stores.snapshot(store) == before
        return ran.lines

    return run


def log(store: Path, name: str = FIRST) -> Path:
    return store / "compaction" / "compactionLog" / "C" / "0" / name


def units(store: Path, name: str = FIRST) -> Path:
    return store / "compaction" / "compactionCq" / "C" / "0" / name


def change(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def damage(rows: Rows) -> list[tuple[str, int, int, str]]:
    return [(Path(row["file"]).name, row["offset"], row["length"], row["reason"]) for row in rows if row["reason"]]


def codes(cli: Cli, store: Path) -> dict[str, str]:
    """What check finds of compacted topics: where, by code."""
    found = cli("--store", store, "--json", "check").json["findings"]
    return {one["code"]: one["where"] for one in found if one["code"].startswith("compaction-")}


@pytest.mark.parametrize("name", ["compaction", "compaction-5.3.3"])
def test_the_latest_message_of_each_key_and_what_came_since(name: str, tmp_path: Path, cli: Cli) -> None:
    """The 120 messages sent have 14 keys in turn; of each queue, 54 were compacted, 6 came since."""
    store = newer.unpack(name, tmp_path)
    for queue in (0, 1):
        rows = cli("--store", store, "--json", "dump", "compaction", "C", str(queue)).lines
        messages = [row for row in rows if row["kind"] == "message"]
        assert [row["queueOffset"] for row in messages] == list(range(47, 60))
        for row in messages:
            number = 2 * row["queueOffset"] + queue
            told = row["message"]
            assert told["body"] == f"C-{number:04}-" * 4
            assert (told["properties"]["KEYS"], told["queueOffset"]) == (f"C-{number % 14}", row["queueOffset"])
            assert (told["physicalOffset"], told["storeSize"]) == (row["offset"], row["length"])
        assert [row["kind"] for row in rows] == ["message"] * 7 + ["blank"] + ["message"] * 6 + ["blank"]
        assert [row["offset"] + row["length"] for row in rows if row["kind"] == "blank"] == [5060, 35420]


def test_a_part_of_it(store: Path, cli: Cli) -> None:
    assert len(cli("--store", store, "--json", "dump", "compaction", "C").lines) == 30
    text = cli("--store", store, "dump", "compaction", "C", "1", "--limit", "1").out
    assert text.startswith("C/1 at 47 ")
    assert "C-0095-C" in text
    assert "C-0095-C" not in cli("--store", store, "dump", "compaction", "C", "1", "--redact", "--limit", "1").out
    ran = cli("--store", store, "dump", "compaction", "T")
    assert (ran.code, "no such queue of a compacted topic: there are C 0, C 1" in ran.err) == (2, True)


def test_where_there_is_none(fixture_store: Callable[[str], Path], cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), "dump", "compaction")
    assert (ran.code, ran.out) == (0, "")
    assert "no compacted topics" in ran.err


def test_status_and_check_count_them(store: Path, cli: Cli) -> None:
    status = cli("--store", store, "--json", "status").json
    assert status["compaction"] == [
        {"topic": "C", "queueId": queue, "files": 2, "bytes": 10_120, "compactedTo": 53} for queue in (0, 1)
    ]
    assert "compacted   2 queues of 1 topic, 19.8 KiB of files" in cli("--store", store, "status").out.splitlines()
    assert codes(cli, store) == {}
    units = cli("--store", store, "--json", "check").json["counts"]["units"]
    assert units == 140 + 26


@pytest.mark.leaves("compaction-damage")
def test_a_record_that_is_damaged(store: Path, dump: Callable[..., Rows], cli: Cli) -> None:
    change(log(store), 267 + 100, b"\xff\xff")
    rows = dump(1)
    ((name, offset, length, reason),) = damage(rows)
    assert (name, offset, length) == (FIRST, 267, 268)
    assert reason.endswith(": 1 unit point here") or reason.endswith(": 1 unit points here")
    assert [row["queueOffset"] for row in rows if row["kind"] == "message"] == [47, *range(49, 60)]
    assert codes(cli, store) == {"compaction-damage": f"compaction/compactionLog/C/0/{FIRST} at 267"}


@pytest.mark.leaves("compaction-damage", "compaction-unit")
def test_a_unit_that_is_none_hides_what_follows_in_its_file(store: Path, dump: Callable[..., Rows], cli: Cli) -> None:
    change(units(store), 4 * BATCH_UNIT_SIZE, bytes(BATCH_UNIT_SIZE))
    rows = dump(1)
    hidden = "no unit points at this message: its broker does not return it"
    assert damage(rows) == [
        (FIRST, 1068, 266, hidden), (FIRST, 1334, 267, hidden), (FIRST, 1601, 266, hidden),
        (FIRST, 184, 46, "no unit here: a broker does not read the 2 units that follow in the file"),
    ]  # fmt: skip
    assert set(codes(cli, store)) == {"compaction-damage"}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (1, 267, "size: 267 in the queue, 268 in the message"),
        (2, 5, "tags code: 5 in the queue, 3125530 in the message"),
        (3, 1, "store time: 1 in the queue, 1795892016730 in the message"),
        (4, 44, "queue offset: 44 in the queue, 48 in the message"),
        (5, 2, "number of messages: 2 in the queue, 1 in the message"),
    ],
)
@pytest.mark.leaves("compaction-unit")
def test_a_unit_that_says_something_else(
    field: int, value: int, reason: str, store: Path, dump: Callable[..., Rows], cli: Cli
) -> None:
    unit = list(BATCH_UNIT.unpack_from(units(store).read_bytes(), BATCH_UNIT_SIZE))
    unit[field] = value
    change(units(store), BATCH_UNIT_SIZE, BATCH_UNIT.pack(*unit))
    assert damage(dump(1)) == [(FIRST, 267, 268, reason)]
    assert set(codes(cli, store)) == {"compaction-unit"}


@pytest.mark.leaves("compaction-unit", "compaction-damage")
def test_a_unit_that_points_nowhere(store: Path, dump: Callable[..., Rows]) -> None:
    unit = list(BATCH_UNIT.unpack_from(units(store).read_bytes(), BATCH_UNIT_SIZE))
    unit[0] = 300
    change(units(store), BATCH_UNIT_SIZE, BATCH_UNIT.pack(*unit))
    assert damage(dump(1)) == [
        (FIRST, 267, 268, "no unit points at this message: its broker does not return it"),
        (FIRST, 46, 46, "the unit of queue offset 48 points at 300: no message is there"),
    ]


@pytest.mark.leaves("compaction-unit")
def test_queue_offsets_that_do_not_ascend(store: Path, dump: Callable[..., Rows]) -> None:
    """A file whose messages were all compacted again: a broker looks for an offset by the last one of each file."""
    for file in (log, units):
        shutil.copy(file(store), file(store, SECOND))
    rows = dump(1)
    assert {row["queueOffset"] for row in rows[:8]} == {None, *range(47, 54)}
    assert any("physical" in reason or "points" in reason for _, _, _, reason in damage(rows))


@pytest.mark.leaves
def test_files_over_which_a_broker_does_not_start(store: Path, dump: Callable[..., Rows], cli: Cli) -> None:
    units(store, SECOND).unlink()
    log(store).rename(log(store, f"{FIRST}.delete"))
    told = damage(dump(1))
    assert told == [
        (f"{FIRST}.delete", 0, 0,
         "its name is not an offset, left by a compaction that was interrupted: a broker does not start"),
        (FIRST, 0, 0, "there is no file of the log for it: a broker does not start"),
        (SECOND, 0, 0, "there is no file of units for it: a broker that starts deletes it"),
    ]  # fmt: skip
    assert set(codes(cli, store)) == {"compaction-file", "compaction-damage"}


def test_the_setting_tells_a_file_of_another_length(store: Path, tmp_path: Path, cli: Cli) -> None:
    conf = tmp_path / "broker.conf"
    for size, code in ((4600, 0), (4830, 0), (4601, 1), (5060, 1)):  # CompactionLog makes 5,060 bytes of the first two
        conf.write_text(f"storePathRootDir={store}\ncompactionMappedFileSize={size}\ncompactionCqMappedFileSize=479\n")
        assert cli("--config", conf, "dump", "compaction").code == code


@pytest.mark.leaves("compaction-position")
@pytest.mark.parametrize("text", ["", "[]", "{", '{"queueOffsetMap":{"C_0":"x"}}', '{"queueOffsetMap":{"C_0":60}}'])
def test_positions_that_are_none(text: str, store: Path, cli: Cli) -> None:
    (store / "compaction" / "position-checkpoint").write_text(text)
    assert set(codes(cli, store)) == {"compaction-position"}
    assert cli("--store", store, "dump", "compaction").code == (0 if text.endswith("60}}") else 1)


def test_a_record_without_a_unit_yet_is_no_damage(store: Path, dump: Callable[..., Rows], cli: Cli) -> None:
    """A killed broker may have written the record alone; when it starts it cuts it off, and copies it again."""
    change(units(store, SECOND), 5 * BATCH_UNIT_SIZE, bytes(BATCH_UNIT_SIZE))
    rows = dump()
    assert [row["queueOffset"] for row in rows if row["kind"] == "message"][-2:] == [58, None]
    assert codes(cli, store) == {}
    assert json.dumps(rows)
