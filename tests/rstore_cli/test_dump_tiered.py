"""`rstore dump tiered`: each message with its queue offset, as the broker's own log has it, and what is damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.format.queue_unit import UNIT
from engine.format.tiered import file_name, file_offset
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

MANY = 20
"""Messages, half of them in each queue; a log's first two files have three, a queue's first one eight."""
Rows = list[dict[str, Any]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """tieredStoreFilePath."""
    return newer.unpack_files("tiered", tmp_path)


@pytest.fixture
def dump(cli: Cli, files: Path) -> Callable[..., Rows]:
    """The rows of queue 0, and the exit code they come with."""

    def run(code: int = 0) -> Rows:
        before = stores.contents(files)
        ran = cli("--json", "dump", "tiered", files, "--queue", "0")
        assert (ran.code, ran.err) == (code, "")
        assert stores.contents(files) == before
        return ran.lines

    return run


def chain(files: Path, kind: str) -> list[Path]:
    """The files of queue 0."""
    return sorted(files.glob(f"*/*/T/0/{kind}/*"), key=lambda path: file_offset(path.name) or 0)


def damage(rows: Rows) -> list[tuple[str, int, int, str]]:
    return [(Path(row["file"]).name, row["offset"], row["length"], row["reason"]) for row in rows if row["reason"]]


def test_names() -> None:
    assert file_name(0) == "cfcd208400000000000000000000"
    assert file_name(800) == "7a53928f00000000000000000800"
    assert [file_offset(name) for name in (file_name(1600), f"{7:020}")] == [1600, 7]
    for wrong in (
        "",
        "0",
        "cfcd208500000000000000000000",
        f"{1 << 63:020}",
        f"{file_name(0)}.tmp",
        "CFCD2084" + "0" * 20,
    ):
        assert file_offset(wrong) is None


def test_the_messages_are_those_of_the_log(cli: Cli, files: Path, tmp_path: Path) -> None:
    store = newer.unpack("tiered", tmp_path)
    log = {}
    for line in cli("--store", store, "--json", "dump", "commitlog", "--topic", "T").lines:
        log[line["queueId"], line["queueOffset"]] = line
    rows = cli("--store", store, "--json", "dump", "tiered", files).lines
    assert len(rows) == len(log) == MANY
    elsewhere = ("physicalOffset", "msgId", "kind")
    for row in rows:
        own = log[row["queueId"], row["queueOffset"]]
        assert {k: v for k, v in row["message"].items() if k not in elsewhere} == {
            k: v for k, v in own.items() if k not in elsewhere
        }
        assert (row["kind"], row["reason"], row["message"]["physicalOffset"]) == ("message", None, row["offset"])
    assert [row["queueOffset"] for row in rows] == [*range(10), *range(10)]
    text = cli("dump", "tiered", files, "--topic", "T", "--limit", "1").out
    assert "T/0 at 0" in text
    assert "body: T-0000" in text
    assert "T-0000-T" not in cli("dump", "tiered", files, "--redact", "--limit", "1").out


@pytest.mark.parametrize("depth", range(4))
def test_any_directory_of_it(depth: int, cli: Cli, files: Path) -> None:
    place = files
    for _ in range(depth + 1):
        place = next(path for path in sorted(place.iterdir()) if path.name != "rmq_sys_INDEX")
    assert {row["queueId"] for row in cli("--json", "dump", "tiered", place).lines} == ({0} if depth == 3 else {0, 1})


def test_where_there_is_none(cli: Cli, files: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = cli("dump", "tiered", tmp_path / "empty")
    assert (ran.code, ran.out) == (4, "")
    assert "no tiered files here" in ran.err
    ran = cli("dump", "tiered", files, "--topic", "Other")
    assert (ran.code, ran.out) == (2, "")
    assert "no such queue in the tiered files: there are T 0, T 1" in ran.err
    store = newer.unpack("default", tmp_path)
    ran = cli("--store", store, "dump", "tiered")
    assert (ran.code, ran.out) == (2, "")
    assert "no tieredStoreFilePath" in ran.err
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\ntieredStoreFilePath={files}\n")
    assert len(cli("--config", conf, "--json", "dump", "tiered").lines) == MANY


def test_each_byte_of_a_log(cli: Cli, files: Path, dump: Callable[..., Rows]) -> None:
    """A changed byte of lengths, body or what the unit says is noticed; the other messages are shown."""
    (first, *_) = chain(files, "COMMIT_LOG")
    sound, data = dump(), first.read_bytes()
    rng = random.Random(5)
    for at in (*range(20), *range(20, 28), *rng.sample(range(90, 110), 4)):
        first.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        rows = cli("--json", "dump", "tiered", files, "--queue", "0").lines
        if at not in range(16, 20):  # the client's flag, which nothing covers
            assert any(row["reason"] for row in rows), at
        assert [row for row in rows if row["queueOffset"] and row["queueOffset"] > 2] == sound[3:]
    first.write_bytes(data)


def test_a_file_of_a_log_is_missing(files: Path, dump: Callable[..., Rows]) -> None:
    one, two, *_ = chain(files, "COMMIT_LOG")
    sound = dump()
    two.unlink()
    rows = dump(1)
    assert damage(rows) == [(one.name, 800, 800, "files of the log are missing")]
    assert [row for row in rows if row["kind"] == "message"] == sound[:3] + sound[6:]
    one.unlink()
    rows = dump(1)
    assert [row["reason"] for row in rows if row["reason"]] == [
        f"the unit of queue offset {i} points at {at}, where no message begins"
        for i, at in enumerate(row["offset"] for row in sound[:6])
    ]
    assert [row for row in rows if row["kind"] == "message"] == sound[6:]


def test_units_are_held_against_their_messages(files: Path, dump: Callable[..., Rows]) -> None:
    first, last = chain(files, "CONSUME_QUEUE")
    sound, data = dump(), first.read_bytes()
    for at, reason in ((11, "size"), (19, "tags code")):
        first.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        (wrong,) = damage(dump(1))
        assert wrong[:3] == (chain(files, "COMMIT_LOG")[0].name, 0, 267)
        assert wrong[3].startswith(f"{reason}: ")
    first.write_bytes(UNIT.pack(5, 267, 0) + data[20:])  # points into the first message
    assert [one[1:] for one in damage(dump(1))] == [
        (0, 267, "no unit of the queue points at this message"),
        (0, 20, "the unit of queue offset 0 points at 5, where no message begins"),
    ]
    first.write_bytes(data)
    units = last.read_bytes()
    last.write_bytes(units + UNIT.pack(1 << 40, 267, 0) + b"\0\0\0")
    assert damage(dump(1)) == [
        (last.name, 220, 3, "the file ends after 3 bytes of a unit"),
        (last.name, 200, 20, f"the unit of queue offset 10 points at {1 << 40}, after the log end"),
    ]
    last.write_bytes(units[:20])  # the broker was killed between log and queue
    assert [row["queueOffset"] for row in dump()] == [*range(9), None]
    last.write_bytes(units)
    assert dump() == sound


def test_what_is_no_tiered_file(files: Path, dump: Callable[..., Rows]) -> None:
    log = chain(files, "COMMIT_LOG")
    sound = dump()
    other = log[0].with_name(log[0].name.replace("cfcd", "dfcd"))
    other.write_bytes(b"x")
    log[0].with_name("dir").mkdir()
    log[0].write_bytes(log[0].read_bytes() + b"more")
    log[-1].write_bytes(log[-1].read_bytes() + bytes(40))
    rows = dump(1)
    assert sorted(damage(rows)) == [
        (log[-1].name, 2670, 40, "nothing written here (zeros)"),
        (log[0].name, 800, 4, "the file has 4 bytes more than there is space for before the next file"),
        ("dfcd208400000000000000000000", 0, 0, "a name that no tiered file has"),
        ("dir", 0, 0, "a directory"),
    ]  # fmt: skip
    assert [row for row in rows if row["kind"] == "message"] == sound
