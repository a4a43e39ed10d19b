"""DLedger stores, as brokers of 4.9 and 5.3.3 left them: read, checked, never changed, and made plain ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.backup.restore.dledger import migrate
from engine.config import of_store
from engine.files.disk import Disk
from engine.format import dledger_entry, message
from engine.format.dledger_entry import HEAD_SIZE
from engine.format.message import Message
from tests.rstore_cli.conftest import Cli
from tests.support import dledger, newer, stores

Store = Callable[[str], Path]
READ = (
    *(
        "status",
        "check",
        "verify-crc",
        "dump commitlog",
        "dump dledger",
        "dump index",
        "dump checkpoint",
        "dump config",
    ),
    *("query T T-4", "trace T T-4", "offsets list", "salvage list", "salvage scan", "doctor", "get T 0"),
)
SENT = {"killed5": {"T": 120, "Other": 30}, "mixed4": {"T": 140, "Other": 35}}
pytestmark = pytest.mark.leaves("not-closed", "log-damage", "log-tail", "entry-chain", "entry-index")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Each store once: nothing changes it."""
    into = tmp_path_factory.mktemp("dledger")
    return lambda name: into / name if (into / name).exists() else dledger.unpack(name, into)


@pytest.fixture
def store(unpacked: Store, tmp_path: Path) -> Store:
    """Copies."""
    return lambda name: stores.copy(unpacked(name), tmp_path / name)


def messages(cli: Cli, root: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """By topic, queue and queue offset, what a consumer gets of each message of a store."""
    lines = cli("--store", root, "--json", "dump", "commitlog").lines
    keys = ("bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "flag", "sysFlag", "body")
    return {
        (one["topic"], one["queueId"], one["queueOffset"]): (
            *(one[key] for key in keys),
            json.dumps(one["properties"], sort_keys=True),
        )
        for one in lines
        if "topic" in one
    }


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# --- read -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", dledger.NAMES)
def test_what_is_sound_is_read_and_nothing_changes(name: str, unpacked: Store, cli: Cli) -> None:
    root = unpacked(name)
    before = stores.snapshot(root)
    for words in READ:
        ran = cli("--store", root, *words.split())
        assert ran.code == (1 if name == "killed5" and words == "check" else 0), (words, ran)
        assert "Traceback" not in ran.err
    sent = dledger.manifest(name)["messages"]
    assert sent == SENT[name]
    for topic, count in sent.items():
        got = [m for q in "01" for m in cli("--store", root, "--json", "get", topic, q, "--count", "200").lines]
        assert sorted(m["body"][: len(topic) + 5] for m in got) == [f"{topic}-{i:04}" for i in range(count)]
    status = cli("--store", root, "--json", "status").json
    assert [part["what"] for part in status["newer"]] == ["a log in DLedger's entries"]
    check = cli("--store", root, "--json", "check").json
    codes = {f["code"] for f in check["findings"]} - {"topic-unused", "disk-space"}
    assert codes == {"dledger-store", "entry-index-missing"} | ({"not-closed"} if name == "killed5" else set())
    entries = cli("--store", root, "--json", "dump", "dledger").lines
    indexes = [one["index"] for one in entries if one["kind"] == "entry"]
    assert indexes == list(range(len(indexes)))
    assert all(one["physicalOffset"] == one["offset"] + 48 for one in entries if one["kind"] == "entry")
    plain = sum(1 for one in cli("--store", root, "--json", "dump", "commitlog").lines if "topic" in one)
    assert plain == len(indexes) + (76 if name == "mixed4" else 0)
    assert stores.snapshot(root) == before


@pytest.mark.parametrize("words", ["recover --yes", "reindex --yes", "truncate --to-offset 0 --yes", "put T --body x"])
def test_a_change_is_refused_and_names_what_works(words: str, unpacked: Store, cli: Cli, tmp_path: Path) -> None:
    root = unpacked("mixed4")
    before = stores.snapshot(root)
    ran = cli("--store", root, *words.split())
    assert (ran.code, ran.out) == (4, "")
    assert "a DLedger store (dledger-n0/data/), which " in ran.error_line
    assert f"restore --from-dledger {root}" in ran.error_line
    assert stores.snapshot(root) == before
    assert cli("--store", tmp_path / "new", "restore", "--from-dledger", root).code == 0


def test_a_record_is_found_behind_its_header(unpacked: Store, cli: Cli) -> None:
    root = unpacked("mixed4")
    ran = cli("--store", root, "get", "--physical-offset", "16594")
    assert ran.code == 2
    assert "inside the header of a DLedger entry, 16594 to 16642" in ran.error_line
    assert f"rstore --store {root} get --physical-offset 16642" in ran.error_line
    assert cli("--store", root, "--json", "get", "--physical-offset", "16642").lines[0]["queueOffset"] == 30


# --- damage -----------------------------------------------------------------------------------------------------------


def test_damage_is_named_by_file_and_offset(store: Store, cli: Cli) -> None:
    """A header's alone costs no message; one in a record costs that."""
    root = store("killed5")
    first = dledger.entry_files(root)[0]
    whole = messages(cli, root)
    entries = [one for one in cli("--store", root, "--json", "dump", "dledger").lines if one["kind"] == "entry"]
    put(first, entries[3]["offset"] + 24, b"\xff")
    ran = cli("--store", root, "--json", "verify-crc")
    assert ran.code == 1
    reason = "invalid header of a DLedger entry"
    assert ran.json["damage"] == [{"physicalOffset": entries[3]["offset"], "file": first.name, "reason": reason}]
    assert messages(cli, root) == whole
    lines = cli("--store", root, "--json", "dump", "dledger").lines
    assert [one["kind"] for one in lines[3:5]] == ["damage", "record"]
    put(first, entries[5]["offset"] + 48 + 95, b"\xff\xff")
    ran = cli("--store", root, "check")
    assert f"dledger-n0/data/{first.name} at {entries[3]['offset']}  [log-damage]" in ran.out
    assert f"save every sound message: rstore --store NEW-DIR restore --from-dledger {root}" in ran.out
    ran = cli("--store", root, "scrub", "--once")
    assert (ran.code, f"Next: rstore --store {root} check" in ran.out) == (1, True)
    assert "rstore --store" not in ran.err, "to make seals is refused"
    scan = cli("--store", root, "--json", "salvage", "scan").json
    assert scan["records"] == len(whole) - 1
    assert [(one["physicalOffset"], one["length"]) for one in scan["lost"]] == [
        (entries[3]["offset"], 48),
        (entries[5]["offset"], entries[5]["length"]),
    ]


def test_a_file_of_entries_alone_is_read_as_such(store: Store, cli: Cli, tmp_path: Path) -> None:
    """`salvage scan --file`, of one that was saved from a lost store: headers are not lost bytes."""
    root = store("killed5")
    _, second, *_ = dledger.entry_files(root)
    entries = [
        one
        for one in cli("--store", root, "--json", "dump", "dledger", "--from", "16384", "--to", "32768").lines
        if one["kind"] == "entry"
    ]
    moved = Path(shutil.move(second, tmp_path / second.name))
    ran = cli("--store", root, "--json", "salvage", "scan", "--file", moved)
    assert (ran.code, ran.json["records"], ran.json["lost"]) == (0, len(entries), [])
    put(moved, 0, bytes(HEAD_SIZE + 60))
    ran = cli("--store", root, "--json", "salvage", "scan", "--file", moved)
    assert (ran.code, ran.json["records"]) == (1, len(entries) - 1)
    assert [(one["physicalOffset"], one["length"]) for one in ran.json["lost"]] == [(16384, entries[0]["length"])]


def test_entries_that_do_not_follow_each_other(store: Store, cli: Cli) -> None:
    root = store("killed5")
    second = dledger.entry_files(root)[1]
    base = int(second.name)
    head = dledger_entry.decode(second.read_bytes())
    assert head.pos == base
    put(second, 8, (head.index + 7).to_bytes(8, "big"))
    findings = cli("--store", root, "--json", "check").json["findings"]
    (chain,) = (one for one in findings if one["code"] == "entry-chain")
    assert chain["where"] == f"{second}:{base + 48}" or str(base + 48) in chain["where"]
    assert f"index {head.index + 7} of term {head.term} after index {head.index - 1}" in str(chain)
    lines = cli("--store", root, "--json", "dump", "dledger")
    assert lines.code == 1
    assert [one["index"] for one in lines.lines if "breaks" in one] == [head.index + 7, head.index + 1]


def test_the_index_is_held_against_the_entries(store: Store, cli: Cli) -> None:
    root = store("killed5")
    index = dledger.write_index(root)
    codes = {one["code"] for one in cli("--store", root, "--json", "check").json["findings"]}
    assert not codes & {"entry-index", "entry-index-missing"}
    put(index, 32 * 40 + 4, b"\x01")
    (found,) = (f for f in cli("--store", root, "--json", "check").json["findings"] if f["code"] == "entry-index")
    assert "of entry 40" in str(found)


def test_entries_after_the_committed_one(store: Store, cli: Cli) -> None:
    root = store("killed5")
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=149\nendIndex=151\n")
    (found,) = (f for f in cli("--store", root, "--json", "check").json["findings"] if f["code"] == "entry-uncommitted")
    assert found["severity"] == "info"
    assert "2 times" in found["message"]


def test_several_members_in_one_store(store: Store, cli: Cli, tmp_path: Path) -> None:
    root = store("killed5")
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")
    ran = cli("--store", root, "status")
    assert (ran.code, "dLegerSelfId" in ran.error_line) == (4, True)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nenableDLegerCommitLog=true\ndLegerSelfId=n1\n")
    assert cli("-c", conf, "check").code == 1  # not closed
    moved = tmp_path / "entries"
    shutil.move(root / "dledger-n1" / "data", moved)
    conf.write_text(conf.read_text() + f"storePathDLedgerCommitLog={moved}\n")
    assert cli("-c", conf, "--json", "verify-crc").json["records"] == 152


# --- a plain store of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", dledger.NAMES)
def test_a_plain_store_has_every_message_at_its_queue_offset(
    name: str, unpacked: Store, cli: Cli, tmp_path: Path
) -> None:
    root, new = unpacked(name), tmp_path / "new"
    before = stores.snapshot(root)
    plan = cli("--store", new, "--json", "restore", "--from-dledger", root, "--dry-run")
    assert (plan.code, plan.json["done"], new.exists()) == (1, False, False)
    ran = cli("--store", new, "--json", "restore", "--from-dledger", root)
    assert (ran.code, ran.json["check"]["ok"], ran.json["done"]) == (0, True, True)
    assert messages(cli, new) == messages(cli, root)
    assert stores.snapshot(root) == before
    assert (
        cli("--store", new, "--json", "offsets", "list").lines
        == cli("--store", root, "--json", "offsets", "list").lines
    )
    for path in (root / "config").iterdir():
        assert (new / "config" / path.name).read_bytes() == path.read_bytes()
    assert not list(new.glob("dledger-*"))
    got = cli("--store", new, "--json", "get", "T", "0", "--count", "200").lines
    assert [one["queueOffset"] for one in got] == list(range(SENT[name]["T"] // 2))
    assert cli("--store", new, "query", "T", "T-70").code == 0
    again = cli("--store", new, "restore", "--from-dledger", root)
    assert (again.code, "not empty" in again.error_line) == (4, True)
    if name == "mixed4":  # plain segments keep their offsets
        plain = (root / "commitlog" / f"{0:020}").read_bytes()
        made = (new / "commitlog" / f"{0:020}").read_bytes()
        last = [
            one for one in cli("--store", root, "--json", "dump", "commitlog", "--to", "16384").lines if "topic" in one
        ]
        end = last[-1]["physicalOffset"] + last[-1]["storeSize"]
        assert made[:end] == plain[:end]


def test_index_entries_by_tag_come_along(cli: Cli, tmp_path: Path) -> None:
    """A broker of 5.5 puts them, and goes on to."""
    root, new = newer.unpack("dledger", tmp_path), tmp_path / "new"
    assert cli("--store", new, "restore", "--from-dledger", root).code == 0
    entries = [cli("--store", one, "--json", "dump", "index").lines for one in (root, new)]
    assert [len(one) for one in entries] == [60, 60]
    assert [one["keyHash"] for one in entries[0]] == [one["keyHash"] for one in entries[1]]


def test_damage_is_passed_over_and_named(store: Store, cli: Cli, tmp_path: Path) -> None:
    """What is sound after it is there, at its queue offset; the exit code says that something is lost."""
    root, new = store("killed5"), tmp_path / "new"
    whole = messages(cli, root)
    entries = [one for one in cli("--store", root, "--json", "dump", "dledger").lines if one["kind"] == "entry"]
    put(dledger.entry_files(root)[0], entries[5]["offset"] + 48 + 95, b"\xff\xff")
    ran = cli("--store", new, "--json", "restore", "--from-dledger", root)
    assert ran.code == 1
    assert [(one["physicalOffset"], one["length"]) for one in ran.json["lost"]] == [
        (entries[5]["offset"], entries[5]["length"])
    ]
    lost = (entries[5]["topic"], entries[5]["queueId"], entries[5]["queueOffset"])
    assert messages(cli, new) == {key: value for key, value in whole.items() if key != lost}
    got = cli("--store", new, "--json", "get", lost[0], str(lost[1]), "--count", "200").lines
    assert [one["queueOffset"] for one in got] == [i - (i == lost[2]) for i in range(60)]  # its neighbour instead


def test_what_can_not_be_moved_is_refused(store: Store, cli: Cli, tmp_path: Path) -> None:
    root, new = store("killed5"), tmp_path / "new"
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020}").write_bytes(b"\1" * 104)
    ran = cli("--store", new, "restore", "--from-dledger", root)
    assert (ran.code, "timer messages (timerlog/)" in ran.error_line, new.exists()) == (4, True, False)
    shutil.rmtree(root / "timerlog")
    assert cli("--store", root, "restore", "--from-dledger", root).code == 2
    (new / "commitlog").mkdir(parents=True)
    (new / "note").touch()
    assert cli("--store", new, "restore", "--from-dledger", root).code == 4
    plain = cli("--store", tmp_path / "other", "restore", "--from-dledger", new)
    assert plain.code == 4
    assert "not a DLedger store" in plain.error_line
    for words in (("--dry-run",), ("--from-dledger", root, "--topic", "T"), ("--from-conf", root)):
        assert cli("--store", tmp_path / "other", "restore", *words).code == 2


def test_a_settled_transaction_follows_its_half_message(tmp_path: Path, cli: Cli) -> None:
    half = bytearray(message.encode(Message("RMQ_SYS_TRANS_HALF_TOPIC", b"half", properties={"REAL_TOPIC": "T"})))
    before = [bytearray(message.encode(Message("T", b"x" * 50))) for _ in range(3)]
    place = 3 * (48 + len(before[0])) + 48
    settled = bytearray(message.encode(Message("T", b"half", sys_flag=8, prepared_transaction_offset=place)))
    other = bytearray(message.encode(Message("T", b"half", sys_flag=8, prepared_transaction_offset=7)))
    log, places = dledger.put_in_entries([*before, half, settled, other], 8192)
    assert places[3] + 48 == place
    data = tmp_path / "old" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (tmp_path / "old" / "config").mkdir()
    (data / f"{0:020}").write_bytes(bytes(log.files[0]))
    (tmp_path / "old" / "checkpoint").write_bytes(bytes(4096))
    ran = cli("--store", tmp_path / "new", "--json", "restore", "--from-dledger", tmp_path / "old", "--no-check")
    assert ran.code in (0, 1)
    lines = [one for one in cli("--store", tmp_path / "new", "--json", "dump", "commitlog").lines if "topic" in one]
    assert [one["preparedTransactionOffset"] for one in lines[-2:]] == [lines[3]["physicalOffset"], 7]
    shutil.rmtree(tmp_path / "new")
    shutil.rmtree(tmp_path / "old")


KILLER = """
import os, sys
from pathlib import Path
from engine.backup.restore.dledger import migrate
from engine.config import of_store
from engine.files.disk import Disk
class Killed(Disk):
    def step(self, name):
        if name == sys.argv[3]:
            os._exit(9)
migrate(Killed(), of_store(Path(sys.argv[2])), of_store(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("step", ["restore:piece", "restore:written", "restore:named"])
def test_after_a_kill_the_same_command_makes_it(step: str, unpacked: Store, cli: Cli, tmp_path: Path) -> None:
    root, new = unpacked("mixed4"), tmp_path / "new"
    ran = subprocess.run([sys.executable, "-c", KILLER, str(root), str(new), step], check=False)
    assert ran.returncode == 9
    assert (new / "restoring.json").exists()
    assert cli("--store", new, "--json", "restore", "--from-dledger", root).code == 0
    assert messages(cli, new) == messages(cli, root)
    assert sorted(path.name for path in new.iterdir()) == [
        "checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "rstore.conf",
    ]  # fmt: skip


def test_the_engine_says_the_same(unpacked: Store, tmp_path: Path) -> None:
    made = migrate(Disk(), of_store(tmp_path / "new"), of_store(unpacked("mixed4")))
    assert (made.records, made.messages, made.lost_ranges, made.refusal) == (178, 178, 0, None)
