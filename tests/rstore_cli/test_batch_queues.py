"""Batch consume queues of RocketMQ 5, by the commands that read them: real stores, and the same with damage.

A real broker was sent 40 messages to B, in ten records of four; they went to its two queues in turn.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.format.batch_unit import BATCH_UNIT_SIZE, BatchUnit, decode
from engine.format.record import POSITION_QUEUE_OFFSET
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores
from tests.support.checking import check_clean

FIRST = "0" * 20
UNITS = 5


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each store once: nothing changes it."""
    into = tmp_path_factory.mktemp("batches")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


@pytest.fixture
def store(real: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return stores.copy(real("batch"), tmp_path / "store")


def keys_of(queue: int) -> list[str]:
    """The keys of a queue's messages, in the order of their queue offsets."""
    return [f"B-{8 * record + 4 * queue + i}" for record in range(UNITS) for i in range(4)]


def queue_file(root: Path, queue: int = 0) -> Path:
    return root / "batchconsumequeue" / "B" / str(queue) / FIRST


def units_of(root: Path, queue: int = 0) -> list[BatchUnit]:
    data = queue_file(root, queue).read_bytes()
    return [decode(data, at * BATCH_UNIT_SIZE) for at in range(UNITS)]


def split(root: Path, a_file: int = 2) -> list[Path]:
    """Queue 0 in files of few units each."""
    path = queue_file(root)
    data = path.read_bytes()
    path.unlink()
    size = a_file * BATCH_UNIT_SIZE
    paths = [path.with_name(f"{at:020}") for at in range(0, (UNITS + 1) * BATCH_UNIT_SIZE, size)]
    for number, one in enumerate(paths):
        one.write_bytes(data[number * size : (number + 1) * size].ljust(size, b"\0"))
    return paths


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("name", ["batch", "killed"])
def test_each_message_is_shown_with_its_queue_offset(name: str, real: Callable[[str], Path], cli: Cli) -> None:
    before = stores.snapshot(real(name))
    for queue in (0, 1):
        lines = cli("--store", real(name), "--json", "get", "B", str(queue), "-n", "100").lines
        assert [line["queueOffset"] for line in lines] == list(range(20))
        assert [line["properties"]["KEYS"] for line in lines] == keys_of(queue)
        assert all(line["body"].startswith(f"B-{int(line['properties']['KEYS'][2:]):04}-") for line in lines)
        units = cli("--store", real(name), "--json", "dump", "consumequeue", "B", str(queue)).lines
        assert [(one["queueOffset"], one["batchSize"]) for one in units] == [(4 * i, 4) for i in range(UNITS)]
        assert [one["physicalOffset"] for one in units] == list(dict.fromkeys(m["physicalOffset"] for m in lines))
    assert stores.snapshot(real(name)) == before


@pytest.mark.parametrize("offset", range(20))
@pytest.mark.parametrize("files", [1, 2, 3, 6])
def test_any_queue_offset_is_found(offset: int, files: int, store: Path, cli: Cli) -> None:
    split(store, files)
    ran = cli("--store", store, "--json", "get", "B", "0", str(offset), "-n", "3")
    assert [line["properties"]["KEYS"] for line in ran.lines] == keys_of(0)[offset : offset + 3]
    units = cli("--store", store, "--json", "dump", "consumequeue", "B", "0", "--from", str(offset)).lines
    assert units[0]["queueOffset"] == offset // 4 * 4
    shown = cli("--store", store, "--json", "dump", "consumequeue", "B", "0", "--to", str(offset)).lines
    assert len(shown) == (offset + 3) // 4


def test_a_page_names_the_next(real: Callable[[str], Path], cli: Cli) -> None:
    seen: list[str] = []
    words = ["get", "B", "0", "-n", "7"]
    while words:
        ran = cli("--store", real("batch"), *words, "--json")
        seen += [line["properties"]["KEYS"] for line in ran.lines]
        more = [line for line in ran.err.splitlines() if line.startswith("more: ")]
        words = more[0].split(str(real("batch")))[1].replace("--json", "").split() if more else []
    assert seen == keys_of(0)


@pytest.mark.parametrize("files", [1, 2, 6])
def test_a_time_finds_the_first_message_of_its_record(files: int, store: Path, cli: Cli) -> None:
    units = units_of(store)
    split(store, files)
    for unit in units:
        for time, first in ((unit.store_timestamp, unit.base_offset), (unit.store_timestamp + 1, unit.end_offset)):
            ran = cli("--store", store, "--json", "get", "B", "0", "--at", str(time), "-n", "1")
            assert [line["queueOffset"] for line in ran.lines] == ([first] if first < 20 else [])
            assert ran.code == int(first == 20)
    assert "its newest was at" in ran.err


def test_what_is_not_there_is_said(real: Callable[[str], Path], cli: Cli) -> None:
    assert "holds offsets 0 to 20" in cli("--store", real("batch"), "get", "B", "0", "20").err
    assert "holds offsets 0 to 20" in cli("--store", real("batch"), "get", "B", "0", str(1 << 70)).err
    for command in ("get", "dump consumequeue"):
        ran = cli("--store", real("batch"), *command.split(), "B", "2")
        assert (ran.code, "no queue B/2" in ran.error_line) == (2, True)


def test_tags_are_those_of_each_message(real: Callable[[str], Path], cli: Cli) -> None:
    assert cli("--store", real("batch"), "--json", "get", "B", "0", "--tags", "none").lines == []
    assert len(cli("--store", real("batch"), "--json", "get", "B", "0", "--tags", "*").lines) == 20


@pytest.mark.leaves
def test_units_that_are_damaged_are_named_by_file_and_offset(store: Path, cli: Cli) -> None:
    path = queue_file(store)
    data = bytearray(path.read_bytes())
    data[2 * BATCH_UNIT_SIZE : 3 * BATCH_UNIT_SIZE] = bytes(BATCH_UNIT_SIZE)
    path.write_bytes(data)
    told = f"{path} at {2 * BATCH_UNIT_SIZE}: 1 invalid unit ({BATCH_UNIT_SIZE} bytes)"
    shown = cli("--store", store, "dump", "consumequeue", "B", "0")
    assert (shown.code, f"! {told}" in shown.err) == (1, True)
    got = cli("--store", store, "--json", "get", "B", "0", "2", "-n", "100")
    assert got.code == 1
    assert [line["queueOffset"] for line in got.lines] == [*range(2, 8), *range(12, 20)]
    assert told in got.err
    assert "at 92" in cli("--store", store, "get", "B", "0", "9").err


@pytest.mark.leaves
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"physical_offset": 5793}, "names 457 bytes at 5793"),
        ({"physical_offset": 1 << 40}, "outside of the log"),
        ({"size": 7}, "it names 7 bytes"),
        ({"batch_size": 5}, "with 5 messages from 8 on"),
        ({"base_offset": 9}, "with 4 messages from 9 on"),
        ({"base_offset": (1 << 63) - 1}, "with 4 messages from 9223372036854775807 on"),
        ({"base_offset": 0}, "with 4 messages from 0 on"),
    ],
)
def test_a_unit_that_is_not_its_records_shows_no_message(
    wrong: dict[str, int], told: str, store: Path, cli: Cli
) -> None:
    unit = units_of(store)[2]
    values = {name: getattr(unit, name) for name in BatchUnit.__dataclass_fields__} | wrong
    with queue_file(store).open("r+b") as file:
        file.seek(2 * BATCH_UNIT_SIZE)
        file.write(BatchUnit(**values).encode())
    got = cli("--store", store, "--json", "get", "B", "0", "-n", "100")
    assert (got.code, told in got.err, f"the unit at 92 of {queue_file(store)}" in got.err) == (1, True, True), got.err
    assert [line["queueOffset"] for line in got.lines] == [*range(8), *range(12, 20)]


@pytest.mark.leaves
def test_units_whose_file_is_missing_are_named(store: Path, cli: Cli) -> None:
    first, second, _ = split(store)
    second.unlink()
    shown = cli("--store", store, "dump", "consumequeue", "B", "0")
    assert (shown.code, f"{first} at 92: units are missing after it (92 bytes)" in shown.err) == (1, True)
    got = cli("--store", store, "--json", "get", "B", "0", "-n", "100")
    assert (got.code, "has the queue offsets 8 to 15" in got.err) == (1, True)
    assert [line["queueOffset"] for line in got.lines] == [*range(8), *range(16, 20)]


@pytest.mark.leaves
def test_of_many_bad_units_the_first_are_told(store: Path, cli: Cli) -> None:
    units = units_of(store)
    bad = [BatchUnit(1 << 40, 9, 0, 0, 20 + i, 1) for i in range(90)]
    queue_file(store).write_bytes(b"".join(unit.encode() for unit in (*units, *bad)))
    got = cli("--store", store, "--json", "get", "B", "0", "-n", "100")
    assert (got.code, len(got.lines)) == (1, 20)
    assert len(got.err.splitlines()) == 8 + 1
    assert "82 offsets point at no sound message" in got.err


def damage(chance: random.Random, data: bytearray) -> bytearray:
    """A file as crashes, disks and attackers leave it."""
    kind = chance.choice(("cut", "zeros", "random", "flipped"))
    at = chance.randrange(len(data))
    length = chance.randint(1, 2 * BATCH_UNIT_SIZE)
    if kind == "cut":
        return data[:at]
    if kind == "zeros":
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == "random":
        data[at : at + length] = chance.randbytes(len(data[at : at + length]))
    else:
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(min(len(data), UNITS * BATCH_UNIT_SIZE))] ^= 1 << chance.randrange(8)
    return data


@pytest.mark.leaves
@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_queue_shows_no_wrong_message(seed: int, store: Path, cli: Cli) -> None:
    chance = random.Random(seed)
    paths = split(store, chance.choice((1, 2, 3))) if chance.random() < 0.5 else [queue_file(store)]
    for path in chance.sample(paths, chance.randint(1, len(paths))):
        path.write_bytes(damage(chance, bytearray(path.read_bytes())))
    before = stores.snapshot(store)
    known = dict(enumerate(keys_of(0)))
    got = cli("--store", store, "--json", "get", "B", "0", str(chance.choice((0, 5, 13))), "-n", "100")
    shown = {line["queueOffset"]: line["properties"]["KEYS"] for line in got.lines}
    assert shown.items() <= known.items()
    if shown and set(range(min(shown), max(shown) + 1)) - shown.keys():
        assert got.code == 1
    ran = [got, cli("--store", store, "dump", "consumequeue", "B", "0")]
    ran += [cli("--store", store, "get", "B", "0", "--at", "2026-01-01"), cli("--store", store, "status")]
    ran += [cli("--store", store, "check")]
    for one in ran:
        assert one.code in (0, 1), one
        assert "Traceback" not in one.err
    assert stores.snapshot(store) == before


@pytest.mark.leaves
@pytest.mark.parametrize("seed", range(40))
def test_damaged_records_are_no_other_messages(seed: int, store: Path, cli: Cli) -> None:
    chance = random.Random(seed)
    segment = store / "commitlog" / FIRST
    unit = chance.choice(units_of(store))
    data = bytearray(segment.read_bytes())
    for _ in range(chance.randint(1, 3)):
        at = unit.physical_offset + chance.randrange(unit.size)
        data[at] = chance.choice((0, 0xFF, 0x7F, data[at] ^ 1 << chance.randrange(8)))
    segment.write_bytes(data)
    before = stores.snapshot(store)
    for words in (("get", "B", "0", "-n", "100"), ("dump", "consumequeue", "B", "0"), ("check",)):
        ran = cli("--store", store, "--json", *words)
        assert ran.code in (0, 1), (words, ran)
        assert "Traceback" not in ran.err
        if words[0] == "get":
            sound = [line for line in ran.lines if line["physicalOffset"] != unit.physical_offset]
            assert [one["properties"]["KEYS"] for one in sound] == [
                key for i, key in enumerate(keys_of(0)) if i // 4 * 4 != unit.base_offset
            ]
    assert stores.snapshot(store) == before


@pytest.mark.leaves
@pytest.mark.parametrize("what", ["directory", "name", "fifo"])
def test_what_is_no_file_of_units_is_named(what: str, store: Path, cli: Cli) -> None:
    odd = queue_file(store).with_name({"directory": "x", "name": f"{47:020}", "fifo": f"{4600:020}"}[what])
    if what == "directory":
        odd.mkdir()
    elif what == "name":
        shutil.copy(queue_file(store), odd)
    else:
        import os

        os.mkfifo(odd)
    shown = cli("--store", store, "dump", "consumequeue", "B", "0")
    assert (shown.code, f"{odd} at 0: not a file of units" in shown.err) == (1, True)
    assert len(cli("--store", store, "--json", "get", "B", "0", "-n", "100").lines) == 20


def test_status_counts_each_message_of_a_record(real: Callable[[str], Path], cli: Cli) -> None:
    shown = cli("--store", real("batch"), "status").out
    assert "4 queues of 2 topics, 60 messages; queues are up to date with the log" in shown
    assert "read and recovered here" in shown
    told = cli("--store", real("batch"), "--json", "status").json
    assert (told["messages"], told["consumequeue"]) == (60, {"topics": 2, "queues": 4, "files": 4})
    assert {one["topic"]: one["messages"] for one in told["topics"]} == {"B": 40, "T": 20}
    assert sum(one["messages"] for one in told["hours"]) == 60


def test_status_counts_what_a_group_has_not_read(store: Path, cli: Cli) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"B@G": {"0": 6, "1": 20}}}))
    groups = cli("--store", store, "--json", "status").json["unread"]["groups"]
    (one,) = [group for group in groups if group["group"] == "G"]
    units = units_of(store)[1:]
    assert (one["messages"], one["bytes"]) == (14, sum(unit.size for unit in units))
    assert one["oldestPhysicalOffset"] == units[0].physical_offset


@pytest.mark.parametrize("name", ["batch", "killed"])
@pytest.mark.parametrize("lost", ["batchconsumequeue", "batchconsumequeue/B/1", "consumequeue"])
def test_queues_of_both_kinds_are_recovered_and_taken_back(
    name: str, lost: str, real: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    root = stores.copy(real(name), tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nmapperFileSizeBatchConsumeQueue=4600\nmappedFileSizeConsumeQueue=2000\n")
    before = {kind: stores.contents(root / kind) for kind in ("batchconsumequeue", "consumequeue")}
    shutil.rmtree(root / lost)
    damaged = stores.contents(root)
    plan = cli("-c", conf, "--json", "recover", "--dry-run").json
    assert [(one["topic"], one["queueId"], one["maxOffset"]) for one in plan["queues"]] == [
        ("B", 0, 20), ("B", 1, 20), ("T", 0, 10), ("T", 1, 10),
    ]  # fmt: skip
    assert stores.contents(root) == damaged
    done = cli("-c", conf, "recover", "--yes")
    assert done.code == 0, done
    assert {kind: stores.contents(root / kind) for kind in before} == before
    again = cli("-c", conf, "--json", "recover", "--yes").json
    assert (again["changed"], again["salvage"]) == (False, None)
    assert len(cli("-c", conf, "--json", "get", "B", "1", "-n", "100").lines) == 20
    check_clean(root)
    assert cli("-c", conf, "undo", "--yes").code == 0
    left = {path: what for path, what in stores.contents(root).items() if not path.startswith("salvage")}
    assert left == damaged
    cli("-c", conf, "recover", "--yes")


@pytest.mark.parametrize("lost", ["batchconsumequeue", f"batchconsumequeue/B/0/{FIRST}", "consumequeue"])
@pytest.mark.parametrize("topic", [None, "B"])
def test_reindex_rebuilds_queues_of_both_kinds(
    lost: str, topic: str | None, real: Callable[[str], Path], store: Path, tmp_path: Path, cli: Cli
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathRootDir={store}\nmapperFileSizeBatchConsumeQueue=4600\nmappedFileSizeConsumeQueue=2000\n"
    )
    words = [] if topic is None else ["--topic", topic]
    same = cli("-c", conf, "--json", "reindex", "--yes", *words).json
    assert not any(one["changed"] for one in same["queues"]), same
    path = store / lost
    shutil.rmtree(path) if path.is_dir() else path.write_bytes(path.read_bytes()[:50].ljust(4600, b"\0"))
    damaged = stores.contents(store)
    done = cli("-c", conf, "--json", "reindex", "--yes", *words).json
    kinds = {"batchconsumequeue": "B", "consumequeue": "T"}
    for kind, of in kinds.items():
        is_there = (store / kind).exists()
        whole = is_there and stores.contents(store / kind) == stores.contents(real("batch") / kind)
        assert whole == (topic in (None, of) or lost.split("/", maxsplit=1)[0] != kind), (kind, done)
    if done["changed"]:
        assert cli("-c", conf, "undo", "--yes").code == 0
        left = {path: what for path, what in stores.contents(store).items() if path.split("/")[0] != "salvage"}
        assert left == {path: what for path, what in damaged.items() if path.split("/")[0] != "salvage"}
    cli("-c", conf, "recover", "--yes")


def test_truncate_cuts_batch_queues_too(store: Path, cli: Cli) -> None:
    unit = units_of(store)[3]
    plan = cli("--store", store, "--json", "truncate", "--to-offset", str(unit.physical_offset), "--yes").json
    lines = {(one["topic"], one["queueId"]): one for one in plan["queues"]}
    assert (lines["B", 0]["maxOffset"], lines["B", 0]["unitsCut"]) == (12, 2)
    assert len(cli("--store", store, "--json", "get", "B", "0", "-n", "100").lines) == 12
    check_clean(store)
    assert cli("--store", store, "undo", "--yes").code == 0
    assert len(cli("--store", store, "--json", "get", "B", "0", "-n", "100").lines) == 20


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("name", ["batch", "killed"])
def test_check_compares_units_and_records(name: str, real: Callable[[str], Path], cli: Cli) -> None:
    before = stores.snapshot(real(name))
    checked = cli("--store", real(name), "--json", "check").json
    assert {one["code"] for one in checked["findings"]} <= {"newer-part", "not-closed", "disk-space", "topic-unused"}
    assert (checked["counts"]["queues"], checked["counts"]["units"]) == (4, 20 + 2 * UNITS)
    assert "in the part that was checked" not in cli("--store", real(name), "check").out
    assert stores.snapshot(real(name)) == before


WRONG = [
    ({"physical_offset": 5793}, {"unit-foreign", "unit-missing"}),
    ({"physical_offset": 5341}, {"unit-orphaned", "unit-missing"}),
    ({"physical_offset": 1 << 40}, {"unit-orphaned", "unit-missing"}),
    ({"physical_offset": -1}, {"unit-invalid", "unit-missing"}),
    ({"size": 7}, {"unit-orphaned"}),
    ({"tags_code": 7}, {"unit-tags"}),
    ({"store_timestamp": 7}, {"unit-time"}),
    ({"base_offset": 9}, {"unit-foreign"}),
    ({"batch_size": 5}, {"unit-foreign"}),
    ({"batch_size": 0}, {"unit-invalid", "unit-missing"}),
]


@pytest.mark.leaves
@pytest.mark.parametrize(("wrong", "codes"), WRONG)
@pytest.mark.parametrize("number", [0, 2])
def test_check_finds_a_unit_that_is_not_its_records(
    number: int, wrong: dict[str, int], codes: set[str], store: Path, cli: Cli
) -> None:
    unit = units_of(store)[number]
    values = {name: getattr(unit, name) for name in BatchUnit.__dataclass_fields__} | wrong
    with queue_file(store).open("r+b") as file:
        file.seek(number * BATCH_UNIT_SIZE)
        file.write(BatchUnit(**values).encode())
    if values == {name: getattr(unit, name) for name in values}:
        return
    before = stores.snapshot(store)
    checked = cli("--store", store, "--json", "check").json
    by_code = {one["code"]: one for one in checked["findings"] if one["severity"] != "info"}
    assert by_code.keys() == codes
    assert {checked["counts"]["byCode"][code] for code in codes} == {1}
    for code in codes - {"unit-missing"}:
        assert by_code[code]["where"] == f"batchconsumequeue/B/0/{FIRST} at {number * BATCH_UNIT_SIZE}"
    assert checked["next"]["command"].endswith(" recover --whole")
    assert stores.snapshot(store) == before


@pytest.mark.leaves
def test_check_finds_records_without_a_unit(store: Path, cli: Cli) -> None:
    data = queue_file(store).read_bytes()
    queue_file(store).write_bytes(data[: 3 * BATCH_UNIT_SIZE].ljust(len(data), b"\0"))
    checked = cli("--store", store, "--json", "check").json
    assert checked["counts"]["byCode"]["unit-missing"] == 2
    shutil.rmtree(queue_file(store, 1).parent)
    checked = cli("--store", store, "--json", "check").json
    assert checked["counts"]["byCode"]["unit-missing"] == 2 + UNITS


@pytest.mark.leaves
def test_records_before_the_first_right_unit(store: Path, cli: Cli) -> None:
    """Units that say other offsets begin no new life of the queue: nothing is called deleted."""
    units = units_of(store)
    again = [replace(unit, base_offset=unit.base_offset - units[3].base_offset) for unit in units[3:]]
    queue_file(store).write_bytes(b"".join(unit.encode() for unit in again))
    codes = cli("--store", store, "--json", "check").json["counts"]["byCode"]
    assert codes["unit-foreign"] == 2  # their records still say the old offsets
    queue_file(store).write_bytes(b"".join(unit.encode() for unit in units[3:]))
    codes = cli("--store", store, "--json", "check").json["counts"]["byCode"]
    assert (codes["unit-missing"], "unit-deleted" in codes) == (3, False)


@pytest.mark.leaves
def test_records_of_a_topic_that_was_deleted_and_made_again(store: Path, cli: Cli) -> None:
    """The last two records of queue 0 are made its first two, and the queue has their units alone."""
    segment = store / "commitlog" / FIRST
    data = bytearray(segment.read_bytes())
    again = []
    for unit in units_of(store)[3:]:
        base = unit.base_offset - 12
        at = data.index(f"INNER_BASE\x01{unit.base_offset}".encode(), unit.physical_offset)
        data[at : at + 13] = f"INNER_BASE\x01{base:02}".encode()
        own = unit.physical_offset + POSITION_QUEUE_OFFSET
        data[own : own + 8] = base.to_bytes(8, "big")
        again.append(replace(unit, base_offset=base))
    segment.write_bytes(data)
    queue_file(store).write_bytes(b"".join(unit.encode() for unit in again).ljust(4600, b"\0"))
    checked = cli("--store", store, "--json", "check").json
    assert (checked["counts"]["byCode"]["unit-deleted"], checked["ok"]) == (3, True)


@pytest.mark.leaves
def test_check_names_missing_and_cut_files(store: Path, cli: Cli) -> None:
    _, second, third = split(store)
    third.write_bytes(third.read_bytes()[:BATCH_UNIT_SIZE] + b"x")
    second.unlink()
    checked = cli("--store", store, "--json", "check").json
    assert {"queue-gap": 1, "file-size": 1, "unit-missing": 2}.items() <= checked["counts"]["byCode"].items()


def test_json_is_the_same_with_every_number(real: Callable[[str], Path], cli: Cli) -> None:
    (one, *_) = cli("--store", real("batch"), "--json", "get", "B", "1", "19").lines
    log = cli("--store", real("batch"), "--json", "get", "--physical-offset", str(one["physicalOffset"])).lines
    assert (one["queueOffset"], one["storeSize"]) == (19, log[0]["storeSize"])
    assert json.dumps(one["bodyCRC"]) != json.dumps(log[0]["bodyCRC"])
