"""`rstore dump timerlog`, `timerwheel`, `epoch`, and `checkpoint` of RocketMQ 5: every field, damage, no change."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.format import epoch_file, message, timer_log, timer_wheel
from engine.format.checkpoint import Checkpoint, ReplicaOffsets
from engine.format.epoch_file import EpochEntry
from engine.format.hashing import java_hash
from engine.format.record import BLANK_MAGIC
from engine.format.timer_check import TimerCheck
from engine.format.timer_log import UNIT_SIZE, TimerUnit
from engine.format.timer_wheel import SLOT_SIZE, TimerSlot
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

pytestmark = pytest.mark.leaves()  # what is damaged here is what check then reports: test_timer.py has that
Store = Callable[[str], Path]
DUE = 1795485480000
"""When the messages of Late are delivered."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
FIRST = f"{0:020}"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Each store once: nothing changes it."""
    into = tmp_path_factory.mktemp("rocketmq5")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


@pytest.fixture
def store(unpacked: Store, tmp_path: Path) -> Path:
    """A copy of the one with messages that wait."""
    return stores.copy(unpacked("timer"), tmp_path / "store")


def log_of(store: Path) -> Path:
    return store / "timerlog" / FIRST


def units_of(store: Path) -> list[TimerUnit]:
    data = log_of(store).read_bytes()
    return [timer_log.decode(data, at) for at in range(0, 520, UNIT_SIZE)]


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# --- every field ------------------------------------------------------------------------------------------------------


def test_the_units_are_those_of_the_messages_sent(unpacked: Store, cli: Cli) -> None:
    root = unpacked("timer")
    before = stores.snapshot(root)
    rows = cli("--store", root, "--json", "dump", "timerlog").lines
    log = cli("--store", root, "--json", "dump", "commitlog", "--topic", TIMER_TOPIC).lines
    sent = newer.manifest("timer")["messages"]
    assert len(rows) == len(log) == sent["Soon"] + sent["Late"]
    last: dict[int, int] = {}
    for number, (row, stored) in enumerate(zip(rows, log, strict=True)):
        due = int(stored["properties"]["TIMER_OUT_MS"])
        assert row == {
            "kind": "unit",
            "timerOffset": number * UNIT_SIZE,
            "dueTime": due,
            "writeTime": rows[0]["writeTime"],
            "magic": 1,
            "physicalOffset": stored["physicalOffset"],
            "size": stored["storeSize"],
            "topicHash": java_hash(stored["properties"]["REAL_TOPIC"]),
            "previous": last.get(due, -1),
        }
        last[due] = row["timerOffset"]
    slots = cli("--store", root, "--json", "dump", "timerwheel").lines
    assert slots == [
        {"kind": "slot", "slot": due // 1000 % timer_wheel.SLOTS, "dueTime": due, "first": at[0], "last": at[-1]}
        | {"count": 5, "waits": due == DUE}
        for due in last
        for at in ([row["timerOffset"] for row in rows if row["dueTime"] == due],)
    ]
    assert stores.snapshot(root) == before


def test_what_waits_is_what_was_sent_for_later(unpacked: Store, cli: Cli) -> None:
    root = unpacked("timer")
    before = stores.snapshot(root)
    rows = cli("--store", root, "--json", "dump", "timerlog", "--due").lines
    log = cli("--store", root, "--json", "dump", "commitlog", "--topic", TIMER_TOPIC).lines
    late = [line for line in log if line["properties"]["REAL_TOPIC"] == "Late"]
    assert len(late) == newer.manifest("timer")["messages"]["Late"] == 5
    assert rows == [
        {
            "kind": "message",
            "dueTime": DUE,
            "timerOffset": 260 + i * UNIT_SIZE,
            "physicalOffset": line["physicalOffset"],
            "size": line["storeSize"],
            "topic": "Late",
            "queueId": int(line["properties"]["REAL_QID"]),
            "deliverTime": DUE,
            "uniqKey": line["properties"]["UNIQ_KEY"],
        }
        for i, line in enumerate(late)
    ]
    text = cli("--store", root, "dump", "timerlog", "--due").out.splitlines()
    assert text[0].split() == ["dueTime", "kind", "timerOffset", "physicalOffset", "size", "topic/queue"]
    assert [line.split()[-1] for line in text[1:]] == [f"Late/{line['properties']['REAL_QID']}" for line in late]
    assert cli("--store", root, "dump", "timerlog", "--due", "--limit", "2").out.splitlines() == text[:3]
    assert stores.snapshot(root) == before


def test_a_part_of_it(unpacked: Store, cli: Cli) -> None:
    root = unpacked("timer")
    rows = cli("--store", root, "--json", "dump", "timerlog").lines
    for start in (52, 1):
        some = ("--from", str(start), "--to", "156")
        assert cli("--store", root, "--json", "dump", "timerlog", *some).lines == rows[1:3]
    assert cli("--store", root, "--json", "dump", "timerlog", "--from", "104", "--to", "105").lines == rows[2:3]
    assert cli("--store", root, "--json", "dump", "timerlog", "--limit", "3").lines == rows[:3]
    assert cli("--store", root, "--json", "dump", "timerlog", "--from", "520").lines == []
    assert cli("--store", root, "--json", "dump", "timerwheel", "--limit", "1").lines[0]["slot"] == 352682
    refused = cli("--store", root, "dump", "timerlog", "--due", "--from", "0")
    assert (refused.code, refused.out) == (2, "")
    text = cli("--store", root, "dump", "timerlog", "--limit", "1").out.splitlines()
    assert text[0].split() == ["timerOffset", "dueTime", "magic", "physicalOffset", "size", "previous"]
    assert text[1].split()[-4:] == ["1", "5340", "372", "-1"]


@pytest.mark.parametrize("words", ["timerlog", "timerlog --due", "timerwheel", "epoch"])
def test_where_there_is_none(words: str, fixture_store: Store, cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), "dump", *words.split())
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("no ")


# --- the checkpoint, and epochs ---------------------------------------------------------------------------------------


def test_the_checkpoint_has_more_fields_where_rocketmq_5_wrote(
    store: Path, fixture_copy: Store, unpacked: Store, cli: Cli
) -> None:
    older = fixture_copy("clean-small")
    plain = cli("--store", older, "--json", "dump", "checkpoint").json
    assert list(plain) == ["physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"]
    put(older / "checkpoint", 24, ReplicaOffsets(7, 9).encode())
    offsets = {"masterFlushedOffset": 7, "confirmPhyOffset": 9}
    assert cli("--store", older, "--json", "dump", "checkpoint").json == plain | offsets
    assert "confirmPhyOffset     9" in cli("--store", older, "dump", "checkpoint").out
    added = cli("--store", unpacked("controller"), "--json", "dump", "checkpoint").json
    assert (added["masterFlushedOffset"], added["confirmPhyOffset"], "timer" in added) == (0, 0, False)
    timer = cli("--store", store, "--json", "dump", "checkpoint").json["timer"]
    assert timer == {
        "lastReadTimeMs": 1795399090000,
        "lastTimerLogFlushPos": 520,
        "lastTimerQueueOffset": 10,
        "masterTimerQueueOffset": 10,
        "stateVersion": 0,
        "timestamp": 1795399090437,
        "counter": 9,
    }
    put(store / "checkpoint", 0, Checkpoint(1, 2, 3).encode() + ReplicaOffsets(1 << 40, -1).encode())
    put(store / "config" / "timercheck", 0, TimerCheck(last_timer_log_flush_pos=-1).encode())
    ran = cli("--store", store, "--json", "dump", "checkpoint")
    assert (ran.code, ran.json["masterFlushedOffset"], ran.json["confirmPhyOffset"]) == (1, 1 << 40, -1)
    assert "invalid timer checkpoint: -1 is negative" in ran.err
    assert "timercheck" in ran.err


def test_epochs(unpacked: Store, tmp_path: Path, cli: Cli) -> None:
    root = stores.copy(unpacked("controller"), tmp_path / "store")
    dump = ("--store", root, "--json", "dump", "epoch")
    assert cli(*dump).lines == [{"epoch": 1, "startOffset": 0, "endOffset": None}]
    path = root / "epochFileCheckpoint"
    path.write_bytes(epoch_file.encode((EpochEntry(1, 0), EpochEntry(2, 7000), EpochEntry(5, 8000))))
    ends = [(row["startOffset"], row["endOffset"]) for row in cli(*dump).lines]
    assert ends == [(0, 7000), (7000, 8000), (8000, None)]
    assert len(cli(*dump, "--limit", "2").lines) == 2
    text = cli("--store", root, "dump", "epoch").out.splitlines()
    assert [line.split() for line in (text[0], text[3])] == [["epoch", "startOffset", "endOffset"], ["5", "8000", "-"]]


def test_epochs_come_from_the_copy_where_the_file_is_broken(unpacked: Store, tmp_path: Path, cli: Cli) -> None:
    """As its broker reads them: CheckpointFile#read."""
    root = stores.copy(unpacked("controller"), tmp_path / "store")
    path, copy = root / "epochFileCheckpoint", root / "epochFileCheckpoint.bak"
    shutil.copy(path, copy)
    for broken in (b"1\n1725254279\n1-0\n", b"", b"1\n", os.urandom(64)):
        path.write_bytes(broken)
        ran = cli("--store", root, "--json", "dump", "epoch")
        assert (ran.code, ran.lines) == (1, [{"epoch": 1, "startOffset": 0, "endOffset": None}])
        assert str(path) in ran.err
    copy.write_bytes(b"9\n0\n1-0\n")
    ran = cli("--store", root, "dump", "epoch")
    assert (ran.code, ran.out) == (1, "")
    assert "has 1 epochs instead of 9" in ran.err


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_wrong_unit_is_named_with_file_and_offset(store: Path, cli: Cli) -> None:
    units = units_of(store)
    put(log_of(store), 52, b"\0" * 4)
    put(log_of(store), 104, TimerUnit(52, 104, 1, 5, 5, 0, 1, 0).encode())
    put(log_of(store), 312, bytes(52))
    rows = cli("--store", store, "--json", "dump", "timerlog")
    assert rows.code == 1
    assert [row["timerOffset"] for row in rows.lines] == [0, 52, 156, 208, 260, 312, 364, 416, 468]
    wrong = [row for row in rows.lines if row["kind"] == "damage"]
    assert wrong == [
        {"kind": "damage", "timerOffset": 52, "length": 104, "reason": "unit size 0 is not 52", "file": FIRST},
        {"kind": "damage", "timerOffset": 312, "length": 52, "reason": "nothing written here (zeros)", "file": FIRST},
    ]
    assert rows.lines[2]["previous"] == units[3].previous
    text = cli("--store", store, "dump", "timerlog").out
    assert f"! damage at 52, 104 bytes, in {FIRST}: unit size 0 is not 52" in text


def test_a_log_of_several_files(store: Path, cli: Cli) -> None:
    """Files of 208 bytes take three units and a blank; of 9 units one is alone in the last file but one."""
    units = units_of(store)[:8]
    size = 208
    first = log_of(store)
    places = [i // 3 * size + i % 3 * UNIT_SIZE for i in range(len(units))]
    at = {i * UNIT_SIZE: place for i, place in enumerate(places)} | {-1: -1}
    first.unlink()
    for number in range(3):
        data = b"".join(
            TimerUnit(52, at[unit.previous], *[getattr(unit, name) for name, _ in timer_log.UNIT_FIELDS[2:]]).encode()
            for unit in units[number * 3 : number * 3 + 3]
        )
        if len(data) == 3 * UNIT_SIZE:
            data += timer_log._BLANK.pack(size - len(data), 0, BLANK_MAGIC)
        first.with_name(f"{number * size:020}").write_bytes(data.ljust(size, b"\0"))
    ran = cli("--store", store, "--json", "dump", "timerlog")
    assert ran.code == 0
    assert [row["timerOffset"] for row in ran.lines if row["kind"] == "unit"] == places
    blanks = [row for row in ran.lines if row["kind"] == "blank"]
    assert blanks == [{"kind": "blank", "timerOffset": offset, "length": 52} for offset in (156, 364)]
    late = cli("--store", store, "--json", "dump", "timerlog", "--due")
    assert (late.code, [row["timerOffset"] for row in late.lines]) == (0, places[5:])

    put(first, 156, bytes(16))  # zeros in place of a blank, and more after them
    (second, last) = (first.with_name(f"{number * size:020}") for number in (1, 2))
    put(second, 156, timer_log._BLANK.pack(51, 0, BLANK_MAGIC))
    os.truncate(last, 80)
    ran = cli("--store", store, "--json", "dump", "timerlog")
    told = {row["timerOffset"]: row["reason"] for row in ran.lines if row["kind"] == "damage"}
    assert told == {
        156: "nothing written here (zeros)",
        364: "a blank of 51 bytes instead of 52",
        468: "the file ends after 28 bytes of a unit",
        496: "the file has 80 bytes instead of 208",
    }
    second.unlink()
    ran = cli("--store", store, "--json", "dump", "timerlog")
    told = {row["timerOffset"]: row["reason"] for row in ran.lines if row["kind"] == "damage"}
    assert told[208] == "files of the timer log are missing"
    assert [row["timerOffset"] for row in ran.lines] == sorted(row["timerOffset"] for row in ran.lines)
    (lost, *_) = cli("--store", store, "--json", "dump", "timerlog", "--due").lines
    assert lost["kind"] == "damage"
    assert lost["reason"] == "no previous unit at 312: it lies in no file of the timer log"


def test_the_setting_tells_a_torn_file(store: Path, tmp_path: Path, cli: Cli) -> None:
    os.truncate(log_of(store), 500)
    assert cli("--store", store, "dump", "timerlog").code == 1  # the tenth unit is torn
    os.truncate(log_of(store), 520)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeTimerLog=5200\n")
    ran = cli("--store", store, "-c", conf, "--json", "dump", "timerlog")
    (row,) = (row for row in ran.lines if row["kind"] == "damage" and row["timerOffset"] == 520)
    assert (ran.code, row["length"], row["reason"]) == (1, 4680, "the file has 520 bytes instead of 5200")


def test_what_is_no_file_of_the_log_is_named(store: Path, cli: Cli) -> None:
    rows = cli("--store", store, "--json", "dump", "timerlog").lines
    (store / "timerlog" / "README").write_text("x")
    (store / "timerlog" / f"{5201:020}").write_bytes(bytes(5200))
    (store / "timerlog" / f"{10400:020}").touch()
    (store / "timerlog" / f"{15600:020}").mkdir()
    (store / "timerlog" / "lost+found").mkdir()
    ran = cli("--store", store, "--json", "dump", "timerlog")
    assert (ran.code, ran.lines) == (1, rows)
    for why in ("20 digits", "not a multiple of the file size", "an empty file", "a directory"):
        assert why in ran.err
    assert ran.err.count("was not read") == 4


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (7574, bytes(4), "no record of its size is where its message should be"),
        (7574 + 28, bytes(8), "its record belongs at physical offset 0"),
        (7574 + 90, b"\xff", "the body of its message has a CRC mismatch"),
        (7574 + 84, b"\x7f\xff", "no sound record is where its message should be: "),
    ],
)
def test_a_unit_that_points_at_no_sound_record_is_named(
    at: int, data: bytes, why: str, unpacked: Store, tmp_path: Path, cli: Cli
) -> None:
    root = tmp_path / "part"
    for part in ("commitlog", "timerlog", "config"):
        shutil.copytree(unpacked("timer") / part, root / part)
    put(root / "commitlog" / FIRST, at, data)
    ran = cli("--store", root, "--json", "dump", "timerlog", "--due")
    assert (ran.code, [row["kind"] for row in ran.lines]) == (1, ["message", "damage", *["message"] * 3])
    row = ran.lines[1]
    assert row["reason"].startswith(why)
    assert (row["timerOffset"], row["physicalOffset"], row["size"], row["dueTime"]) == (312, 7574, 376, DUE)
    text = cli("--store", root, "dump", "timerlog", "--due").out
    assert f"unit at 312, physical offset 7574: {why}" in text
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"physical_offset": 1 << 40}, "its message is after the log end, or in a missing segment"),
        ({"physical_offset": 0, "message_size": 241}, "no record of its size"),
        ({"message_size": (1 << 31) - 1}, "no record of its size"),
        ({"topic_hash": 5}, "the unit is of another topic than 'Late'"),
        ({"physical_offset": 6826, "message_size": 372, "topic_hash": 2582875}, "its message is due at 1795399082000"),
    ],
)
def test_a_unit_that_says_something_else_than_its_record(
    changes: dict[str, int], why: str, store: Path, cli: Cli
) -> None:
    unit = units_of(store)[6]
    values = {name: changes.get(name, getattr(unit, name)) for name, _ in timer_log.UNIT_FIELDS}
    put(log_of(store), 312, TimerUnit(**values).encode())
    ran = cli("--store", store, "--json", "dump", "timerlog", "--due")
    assert (ran.code, [row["kind"] for row in ran.lines]) == (1, ["message", "damage", *["message"] * 3])
    assert ran.lines[1]["reason"].startswith(why)


def test_a_message_of_another_topic_is_none_that_waits(store: Path, cli: Cli) -> None:
    (first, *_) = cli("--store", store, "--json", "dump", "commitlog", "--topic", "T", "--limit", "1").lines
    unit = units_of(store)[6]
    put(log_of(store), 312, TimerUnit(
        52, unit.previous, 1, unit.write_time, unit.delay, first["physicalOffset"], first["storeSize"], unit.topic_hash
    ).encode())  # fmt: skip
    assert cli("--store", store, "--json", "dump", "timerlog", "--due").lines[1]["reason"] == (
        "its record is a message of topic 'T'"
    )


@pytest.mark.parametrize(
    ("previous", "why"),
    [
        (0, "the previous unit, at 0, has another due time"),
        (1, "no previous unit at 1: no unit begins there"),
        (-1, "the chain of previous units begins here"),
    ],
)
def test_a_chain_that_breaks_says_how_many_are_lost(previous: int, why: str, store: Path, cli: Cli) -> None:
    put(log_of(store), 364 + 4, previous.to_bytes(8, "big", signed=True))
    ran = cli("--store", store, "--json", "dump", "timerlog", "--due")
    assert (ran.code, [row["timerOffset"] for row in ran.lines]) == (1, [364, 364, 416, 468])
    assert ran.lines[0]["kind"] == "damage"
    assert ran.lines[0]["reason"] == f"{why}: 2 units of the same slot will not be delivered"


@pytest.mark.parametrize("damage", ["missing", "short", "negative"])
def test_where_nothing_tells_how_far_the_timer_is(damage: str, store: Path, cli: Cli) -> None:
    check = store / "config" / "timercheck"
    if damage == "missing":
        check.unlink()
    elif damage == "short":
        os.truncate(check, 40)
    else:
        put(check, 0, b"\xff" * 8)
    ran = cli("--store", store, "--json", "dump", "timerlog", "--due")
    assert (ran.code, [row["topic"] for row in ran.lines]) == (1, ["Soon"] * 5 + ["Late"] * 5)
    assert "messages that were delivered are among these" in ran.err
    waits = {row["waits"] for row in cli("--store", store, "--json", "dump", "timerwheel").lines}
    assert waits == {None}


def test_messages_that_the_timer_had_not_taken_yet(store: Path, cli: Cli) -> None:
    """As a broker leaves them that was killed at once: in the queue of rmq_sys_wheel_timer, and no timer log."""
    put(store / "config" / "timercheck", 0, TimerCheck(last_timer_queue_offset=5).encode())
    shutil.rmtree(store / "timerlog")
    rows = cli("--store", store, "--json", "dump", "timerlog", "--due").lines
    assert [(row["kind"], row["topic"], row["timerOffset"], row["dueTime"]) for row in rows] == [
        ("message", "Late", None, DUE)
    ] * 5
    text = cli("--store", store, "dump", "timerlog", "--due").out.splitlines()
    assert [line.split()[3] for line in text[1:]] == ["-"] * 5


@pytest.mark.parametrize("with_topic", [True, False])
def test_messages_that_roll_and_that_delete(with_topic: bool, unpacked: Store, tmp_path: Path, cli: Cli) -> None:
    """A fourth and fifth unit of a due time: one deletes the first message, one comes again later."""
    root = tmp_path / "part"
    for part in ("commitlog", "timerlog", "config"):
        shutil.copytree(unpacked("timer") / part, root / part)
    log = root / "commitlog" / FIRST
    dumped = cli("--store", root, "--json", "dump", "commitlog").lines
    end = dumped[-1]["physicalOffset"] + dumped[-1]["storeSize"]
    (first, *_) = cli("--store", root, "--json", "dump", "timerlog", "--due").lines
    previous, at = 468, 520
    for magic, named in (
        (5, {"TIMER_DEL_UNIQKEY": "Late+" * with_topic + first["uniqKey"], "TIMER_OUT_MS": str(DUE), "UNIQ_KEY": "d"}),
        (3, {"TIMER_OUT_MS": str(DUE + 500_000_000), "UNIQ_KEY": "r"}),
    ):
        old = message.decode(log.read_bytes(), 8700)
        properties = "\x02".join(
            f"{name}\x01{value}" for name, value in {"REAL_TOPIC": "Late", "REAL_QID": "1", **named}.items()
        )
        record = message.encode(old.to_message(), properties.encode())
        message.patch(record, 0, queue_offset=10, physical_offset=end, store_timestamp=old.store_timestamp)
        put(log, end, bytes(record))
        unit = TimerUnit(52, previous, magic, DUE - 1000, 1000, end, len(record), java_hash("Late"))
        put(root / "timerlog" / FIRST, at, unit.encode())
        previous, at, end = at, at + UNIT_SIZE, end + len(record)
    ran = cli("--store", root, "--json", "dump", "timerlog", "--due")
    assert (ran.code, [row["kind"] for row in ran.lines]) == (0, ["deleted", *["message"] * 4, "deletes", "rolled"])
    assert ran.lines[-1]["deliverTime"] == DUE + 500_000_000
    conf = tmp_path / "broker.conf"
    for said in (True, False):  # 5.5.0 goes by its setting
        conf.write_text(f"appendTopicForTimerDeleteKey={str(said).lower()}\n")
        rows = cli("--store", root, "-c", conf, "--json", "dump", "timerlog", "--due").lines
        assert rows[0]["kind"] == ("deleted" if said is with_topic else "message")
    shutil.rmtree(root)


def test_a_slot_that_is_none(store: Path, cli: Cli) -> None:
    wheel = store / "timerwheel"
    put(wheel, 0, TimerSlot(1795485480, 260, 468, 5).encode())
    put(wheel, 5 * SLOT_SIZE, b"\xff" * SLOT_SIZE)
    ran = cli("--store", store, "--json", "dump", "timerwheel")
    assert ran.code == 1
    assert ran.lines[:2] == [
        {"kind": "damage", "slot": 0, "offset": 0, "file": "timerwheel"}
        | {"reason": "due time 1795485480 belongs into slot 439080"},
        {"kind": "damage", "slot": 5, "offset": 160, "reason": "invalid due time -1", "file": "timerwheel"},
    ]
    assert [row["slot"] for row in ran.lines[2:]] == [352682, 439080]
    assert "! damage in slot 5, at 160 of timerwheel: invalid due time -1" in (
        cli("--store", store, "dump", "timerwheel").out
    )
    os.truncate(wheel, 352683 * SLOT_SIZE - 1)
    ran = cli("--store", store, "--json", "dump", "timerwheel")
    assert (ran.code, [row["slot"] for row in ran.lines]) == (1, [0, 5])
    assert "the timer wheel has 11285855 bytes instead of 38707200" in ran.err
    wheel.write_bytes(b"")
    assert cli("--store", store, "dump", "timerwheel").code == 0


def test_a_sparse_file_as_large_as_can_be_costs_nothing(store: Path, cli: Cli) -> None:
    """A broker makes a file at its full length; a hostile store has many of them."""
    (store / "timerlog" / FIRST).unlink()
    size = (1 << 31) - 1
    for number in range(40):
        path = store / "timerlog" / f"{number * size:020}"
        path.touch()
        os.truncate(path, size)
    began = time.monotonic()
    ran = cli("--store", store, "--json", "dump", "timerlog")
    assert (ran.code, ran.lines) == (0, [])
    assert cli("--store", store, "dump", "timerlog", "--due").code == 0
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("seed", range(24))
def test_nothing_that_lies_there_is_a_traceback(seed: int, unpacked: Store, tmp_path: Path, cli: Cli) -> None:
    """Random bytes, zeros and cuts in each file: rows and reasons in bounded time, and no byte changes."""
    rng = random.Random(seed)
    root = tmp_path / "store"
    for part in ("commitlog", "timerlog", "config", "consumequeue"):
        shutil.copytree(unpacked("timer") / part, root / part)
    with (root / "timerwheel").open("wb") as file:
        file.truncate(timer_wheel.FILE_SIZE)
        for _ in range(rng.randrange(5)):
            file.seek(rng.randrange(timer_wheel.FILE_SIZE - 4096))
            file.write(rng.randbytes(4096))
    shutil.copy(unpacked("controller") / "epochFileCheckpoint", root)
    shutil.copy(unpacked("timer") / "checkpoint", root)
    for name in (f"timerlog/{FIRST}", "config/timercheck", "epochFileCheckpoint", "checkpoint"):
        path = root / name
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(4)):
            at, length = rng.randrange(len(data)), rng.choice((1, 4, 52, 300))
            data[at : at + length] = rng.choice((rng.randbytes(length), bytes(length), b"\xff" * length))
        path.write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.3 else len(data)])
    before = stores.snapshot(root)
    began = time.monotonic()
    for words in ("timerlog", "timerlog --due", "timerwheel", "epoch", "checkpoint"):
        for form in ((), ("--json",)):
            ran = cli("--store", root, *form, "dump", *words.split())
            assert ran.code in (0, 1), (words, ran)
            assert "Traceback" not in ran.err
    assert time.monotonic() - began < 60
    assert stores.snapshot(root) == before
    shutil.rmtree(root)


# --- check ------------------------------------------------------------------------------------------------------------


def _unit(number: int, **changes: int) -> Callable[[Path], None]:
    """The unit of that number in the timer log with other fields."""

    def change(store: Path) -> None:
        put(log_of(store), number * UNIT_SIZE, replace(units_of(store)[number], **changes).encode())

    return change


@pytest.mark.leaves
@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("timer-orphaned", _unit(9, physical_offset=1 << 40)),
        ("timer-chain", _unit(9, previous=52)),
        ("timer-check", lambda store: put(store / "config" / "timercheck", 0, b"\xff" * 40)),
    ],
)
def test_check_names_what_is_wrong_with_timers_and_recover_mends_it(
    code: str, change: Callable[[Path], None], store: Path, cli: Cli
) -> None:
    change(store)
    checked = cli("--store", store, "--json", "check").json
    assert code in {one["code"] for one in checked["findings"]}
    assert cli("--store", store, "recover", "--yes").code == 0
    assert cli("--store", store, "--json", "check").json["ok"]
