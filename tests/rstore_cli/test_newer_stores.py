"""Stores as RocketMQ 5 brokers left them: each command reads what is sound, names what is not read, and changes nothing
where a part is not kept right; what is changed in the others is in test_newer_repairs.py.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rstore_cli.app import COMMANDS
from tests.rstore_cli.conftest import Cli, Ran
from tests.rstore_cli.test_without_extras import without
from tests.support import newer, stores

KINDS = {
    "default": {"other files of RocketMQ 5"},
    "rocksdb": {"consume queues in RocksDB", "topics, groups and offsets in RocksDB"},
    "batch": {"batch consume queues"},
    "timer": {"timer messages"},
    "property-crc": {"a CRC of the properties in each record"},
    "compaction": {"compacted topics"},
    "compaction-5.3.3": {"compacted topics"},
    "controller": {"epochs of a controller"},
    "tiered": {"older messages in tiered files"},
}
ROCKSDB = ("rocksdb-5.3.3", "rocksdb-killed", "rocksdb-both", "rocksdb-v2")
"""Walked by test_rocksdb.py."""
REPAIRED = ("default", "property-crc", "batch", "timer", "controller")
"""Stores whose parts repairs keep right."""
RELEASES = {
    "default": ("5.5", "config/consumerOffset.json: pullOffsetTable"),
    "rocksdb": ("5.4", "rocksdbstore/"),
    "killed": ("5.4", "rocksdbstore/"),
    "controller": ("5.5", "config/consumerOffset.json: pullOffsetTable"),
}
"""What brokers of 5.5.0 have left tells no more: a killed one had not saved its consumers' offsets."""
READ = (
    *(
        "report --json",
        "status",
        "check",
        "doctor",
        "verify-crc",
        "dump commitlog",
        "dump index",
        "dump checkpoint",
        "dump timerlog",
        "dump timerlog --due",
        "dump timerwheel",
        "dump epoch",
        "dump dledger",
        "dump config",
    ),
    *(
        "query T T-4",
        "trace T T-4",
        "get --physical-offset 0",
        "offsets list",
        "salvage list",
        "salvage scan",
        "config history",
    ),
    "undo --list",
    "plan-start",
)
REPAIRS = (
    *("recover", "recover --bridge --yes", "recover --cut --yes", "recover --whole --dry-run", "reindex --yes"),
    *("truncate --to-offset 0 --yes", "expire --force --yes", "rebuild-config --yes", "offsets set g T 0 min --yes"),
    *("config restore topics.json --at 20260101T000000.000Z --yes", "undo --yes", "salvage prune --keep 1 --yes"),
    "seal",
)
_OF_THE_LOG = ("recover", "truncate", "undo", "salvage prune", "seal")
TAKEN = {
    **dict.fromkeys(("batch", "killed"), (*_OF_THE_LOG, "reindex", "expire", "rebuild-config")),
    "controller": (*_OF_THE_LOG, "rebuild-config", "offsets set", "config restore"),
    "timer": (*_OF_THE_LOG, "rebuild-config", "offsets set", "config restore", "put", "salvage replay"),
    "rocksdb": ("recover", "truncate", "undo", "salvage prune", "seal"),
    **dict.fromkeys(("default", "property-crc"), (*REPAIRS, "put", "serve", "salvage replay")),
}
"""Changes that a store takes (engine.inspect.store.change_gate), by their first words."""
CHANGE = (*REPAIRS, "put T --body x", "serve --port 0 --no-names", "salvage replay --yes")
OF_THEIR_OWN = {
    "drill": "scratch stores",
    "pipeline": "on Spark",
    "bench": "its own stores",
    "top": "a daemon",
    "send": "a cluster",
    "consume": "a cluster",
    "tail": "waits for messages",
    "admin": "a cluster",
    "copy": "two clusters",
    "console": "runs until it is ended",
    "backup": "a repository",
    "seal": "writes seals alone",
    "scrub": "writes its state alone",
    "completion": "no store",
}
ELSEWHERE = {
    "init": "a new store",
    "restore": "a new store",
    "heal": "asks its sources first",
    "flush": "no byte changes",
    "replicate": "asks its broker first",
    "rewind": "asks its broker first",
    "promote": "changes a store",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each store once: nothing changes it."""
    into = tmp_path_factory.mktemp("rocketmq5")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


def test_every_command_is_walked() -> None:
    walked = {words.split()[0] for words in (*READ, *CHANGE)} | {"get"}
    assert walked | OF_THEIR_OWN.keys() | ELSEWHERE.keys() == set(COMMANDS)


def test_every_store_is_walked() -> None:
    assert {*KINDS, "dledger", "killed", "long-topic", *ROCKSDB, "rocksdb-store"} == set(newer.NAMES)


@pytest.mark.leaves("newer-part")
def test_a_retry_topic_of_more_than_127_bytes_is_read(unpacked: Callable[[str], Path], cli: Cli) -> None:
    root = unpacked("long-topic")
    log = cli("--store", root, "--json", "dump", "commitlog").lines
    (topic,) = {line["topic"] for line in log if len(line.get("topic", "")) > 127}
    got = cli("--store", root, "--json", "get", topic, "0", "--count", "100").lines
    assert [one["body"][:6] for one in got] == ["T-0000", "T-0001", "T-0002"]
    assert cli("--store", root, "--json", "check").json["ok"]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_sound_is_read(name: str, unpacked: Callable[[str], Path], cli: Cli) -> None:
    root = unpacked(name)
    before = stores.snapshot(root)
    for words in READ:
        ran = cli("--store", root, *words.split())
        assert ran.code == (4 if (name, words) == ("rocksdb", "plan-start") else 0), (words, ran)
        assert "Traceback" not in ran.err
    status = cli("--store", root, "--json", "status").json
    assert {part["what"] for part in status["newer"]} == KINDS[name]
    assert status["state"] == "clean"
    part = "newer-part" if name in REPAIRED else "newer-store"
    assert {f["code"] for f in status["findings"]} <= {part, "disk-space"}
    assert part in {f["code"] for f in status["findings"]}
    check = cli("--store", root, "--json", "check").json
    assert (check["ok"], check["next"]) == (True, None)
    verdict = " in the part that was checked" if name == "tiered" else ""
    assert f"Nothing is wrong{verdict}." in cli("--store", root, "check").out.splitlines()
    sent = newer.manifest(name)["messages"]
    log = cli("--store", root, "--json", "dump", "commitlog").lines
    assert sum(line.get("topic") == "T" for line in log) == sent["T"] == 20
    got = [m for q in "01" for m in cli("--store", root, "--json", "get", "T", q, "--count", "100").lines]
    assert sorted(m["body"][:6] for m in got) == [f"T-{i:04}" for i in range(20)]
    assert stores.snapshot(root) == before


@pytest.mark.parametrize("name", RELEASES)
def test_the_release_is_told_by_its_latest_sign(name: str, unpacked: Callable[[str], Path], cli: Cli) -> None:
    least, sign = RELEASES[name]
    for words in ("status", "doctor"):
        assert cli("--store", unpacked(name), "--json", words).json["release"] == {"least": least, "sign": sign}
    assert f"RocketMQ {least} or later ({sign})" in cli("--store", unpacked(name), "status").out
    assert f"RocketMQ 5 broker ({least} or later)" in cli("--store", unpacked(name), "doctor").out


@pytest.mark.leaves("config-bak")
def test_the_checkpoint_tells_that_a_killed_store_is_of_5_5(
    unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    root = stores.copy(unpacked("default"), tmp_path / "store")
    (root / "config" / "consumerOffset.json").unlink()
    with (root / "checkpoint").open("r+b") as file:
        file.seek(40)
        file.write((5).to_bytes(8, "big"))
    release = cli("--store", root, "--json", "status").json["release"]
    assert release == {"least": "5.5", "sign": "checkpoint: logicsPhysicalOffset"}


@pytest.mark.leaves("config-bak")
def test_without_its_latest_sign_a_store_may_be_of_an_earlier_release(
    unpacked: Callable[[str], Path], tmp_path: Path, fixture_store: Callable[[str], Path], cli: Cli
) -> None:
    """As 5.3.3, 5.1 and 5.0 leave it: each lacks one thing more."""
    root = stores.copy(unpacked("default"), tmp_path / "store")
    taken_away = (
        ("5.4", "config/consumerOffset.json"),
        ("5.2", "rocksdbstore"),
        ("5.1", "config/transactionMetrics"),
        ("5.0", "compaction"),
    )
    for least, part in taken_away:
        path = root / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert cli("--store", root, "--json", "status").json["release"]["least"] == least
    assert cli("--store", fixture_store("clean-small"), "--json", "status").json["release"] is None


@pytest.mark.parametrize("name", [*KINDS, "dledger", "killed"])
def test_a_change_is_refused_in_one_sentence(name: str, unpacked: Callable[[str], Path], cli: Cli) -> None:
    root = unpacked(name)
    before = stores.snapshot(root)
    for words in (one for one in CHANGE if not one.startswith(TAKEN.get(name, ()))):
        ran = cli("--store", root, *words.split())
        assert (ran.code, ran.out) == (4, ""), (words, ran)
        assert ("RocketMQ 5" in ran.error_line) or name == "dledger", words
        kind = {"dledger": {"DLedger"}, "killed": KINDS["batch"]}.get(name) or KINDS[name]
        assert all(part in ran.error_line for part in kind)
    assert stores.snapshot(root) == before


@pytest.mark.leaves("not-closed")
def test_a_store_that_was_not_closed_names_its_own_broker(
    unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    for name in ("compaction", "rocksdb"):
        root = stores.copy(unpacked(name), tmp_path / name)
        (root / "abort").touch()
        for words in ("status", "doctor"):
            following = cli("--store", root, "--json", words).json["next"]
            assert following["command"] is None
            assert "RocketMQ 5 broker" in following["why"]
        found = cli("--store", root, "--json", "check").json
        assert {f["code"] for f in found["findings"] if f["severity"] != "info"} == {"not-closed"}
        assert found["next"]["command"] is None


@pytest.mark.leaves("rocksdb-damage")
def test_queues_that_are_not_read_are_named(unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli) -> None:
    root = stores.copy(unpacked("rocksdb"), tmp_path / "store")
    (root / "consumequeue" / "CURRENT").unlink()
    for words in (("get", "T", "0"), ("dump", "consumequeue", "T", "0")):
        ran = cli("--store", root, *words)
        assert ran.code == 4
        assert "consume queues in RocksDB" in ran.error_line
        assert "which can't be read" in ran.error_line
        (log,) = suggested(ran)
        assert all("T/" in line for line in cli(*log).out.splitlines() if line.startswith("T"))
        assert len(cli(*log, "--json").lines) == 20
    shown = cli("--store", root, "status")
    assert "not in them yet" not in shown.out
    assert "a database with consume queues is damaged" in shown.out


LOOKED_FOR = (
    *("query T nokey", "query T T-4 --end 2020-01-01", "get T 0 -n 1", "get T 0 --at 2099-01-01", "get Late 0"),
    *("get --msg-id nosuch", "get T --msg-id 7F000001000078BF0000000000000005", "get --physical-offset 5"),
    *("dump commitlog --topic nosuch", "dump consumequeue T 0", "offsets list --group nosuch", "plan-start", "top"),
)


def suggested(ran: Ran) -> list[list[str]]:
    """The arguments of the commands that are to be run next: of one that is piped, the first."""
    found = re.findall(r"(?:next +|[Nn]ext: |more: )rstore (.+?)(?: \(| \| |$)", ran.out + ran.err, re.MULTILINE)
    return [shlex.split(words) for words in found]


@pytest.mark.parametrize("name", [*KINDS, "killed"])
def test_every_command_that_is_suggested_works(name: str, unpacked: Callable[[str], Path], cli: Cli) -> None:
    root = unpacked(name)
    commands: set[tuple[str, ...]] = set()
    for words in (*READ, *LOOKED_FOR):
        ran = cli("--store", root, *words.split())
        assert ran.code != 0 or words not in LOOKED_FOR[1:2] + LOOKED_FOR[5:8], (words, ran)
        commands |= {tuple(command) for command in suggested(ran)}
    assert len(commands) >= 5
    for command in commands:
        assert command[:2] == ("--store", str(root))
        ran = cli(*command, *(("--dry-run",) if command[2] == "recover" else ()))
        assert ran.code in (0, 1), (command, ran)
        assert ran.out or "no message of topic" in ran.err, (command, ran)


def test_what_rocksdb_hides_is_never_called_missing(unpacked: Callable[[str], Path]) -> None:
    """No topic, no group, no message and no index: all of it is there, and only not read without its package."""
    root = str(unpacked("rocksdb"))
    hidden = "in RocksDB (config/topics/)"

    def ran(*several: str) -> list[tuple[int, str, str]]:
        return without(*(("--store", root, *words.split()) for words in several))

    for code, _, err in ran("offsets list", "offsets list --group g", "offsets list --topic T"):
        assert (code, hidden in err) == (4, True), err
    for code, out, err in ran("query T nokey", "query nosuch T-4", "dump commitlog --topic nosuch"):
        assert (code, out, hidden in err) == (1, "", True), err
        assert "no topic" not in err
    config, status, told = ran("dump config", "status", "status --json")
    assert hidden in config[2]
    assert "0 messages" not in status[1]
    assert f"offsets {hidden} are not read: lag unknown" in status[1]
    (heads,) = (line for line in status[1].splitlines() if "stored in the hour" in line)
    assert "messages" not in heads
    read = json.loads(told[1])
    assert {read["messages"], read["olderHours"]["messages"], *(hour["messages"] for hour in read["hours"])} == {None}


def test_a_clients_id_where_topics_are_in_rocksdb(unpacked: Callable[[str], Path], cli: Cli) -> None:
    root = unpacked("rocksdb")
    (one, *_) = cli("--store", root, "--json", "query", "T", "T-4").lines
    of_client = one["properties"]["UNIQ_KEY"]
    for words in (("get", "T", "--msg-id", of_client), ("get", "--msg-id", of_client)):
        assert cli("--store", root, "--json", *words).lines == [one]
    ((code, _, err),) = without(("--store", str(root), "get", "--msg-id", of_client))
    assert (code, "there are no index files" in err, "name a topic before --msg-id" in err) == (1, False, True)


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize(("name", "topic", "end"), [("rocksdb", "T", 10), ("batch", "B", 20)])
def test_offsets_are_shown_where_queues_are_not_as_in_4_9(
    name: str, topic: str, end: int | None, unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """Of groups that a file of config/ names; nobody says that their queue is not there. Batch queues tell the lag."""
    root = stores.copy(unpacked(name), tmp_path / name)
    for part in ("topics", "subscriptionGroups", "consumerOffsets"):
        shutil.rmtree(root / "config" / part, ignore_errors=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{topic}@g": {"0": 3}}}))
    ran = cli("--store", root, "offsets", "list")
    assert (ran.code, ran.err) == (0, "")
    assert ("not read" in ran.out) == (end is None)
    (line,) = cli("--store", root, "--json", "offsets", "list").lines
    assert (line["group"], line["offset"], line["maxOffset"]) == ("g", 3, end)
    assert line["unread"] == (None if end is None else end - 3)
    assert "consumer-queue" not in {f["code"] for f in cli("--store", root, "--json", "status").json["findings"]}


def test_old_offsets_beside_rocksdb_are_said_to_be_old(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    root = stores.copy(unpacked("rocksdb"), tmp_path / "store")
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": 3}}}))
    ((code, out, err),) = without(("--store", str(root), "offsets", "list"))
    assert (code, "may be old" in err, "T" in out) == (1, True, True)


def test_records_of_batches_are_said_to_count_as_one(unpacked: Callable[[str], Path], cli: Cli) -> None:
    """40 messages were sent to B, in ten records."""
    for name, told in (("batch", True), ("default", False)):
        for command in ("check", "verify-crc"):
            out = cli("--store", unpacked(name), command).out
            assert ("holds several messages, and is counted as one" in out) == told, (name, command)


def test_an_index_entry_by_tag_that_is_not_its_records_is_found_and_made_again(
    unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    root = stores.copy(unpacked("default"), tmp_path / "store")
    (index,) = (root / "index").iterdir()
    with index.open("r+b") as file:  # the third entry's key hash
        file.seek(40 + 4 * 200 + 20 * 3)
        file.write(bytes(4))
    found = cli("--store", root, "--json", "check").json
    assert "index-key" in {f["code"] for f in found["findings"]}
    (repair,) = suggested(cli("--store", root, "check"))
    assert cli(*repair, "--yes").code == 0
    found = cli("--store", root, "--json", "check").json  # its record may be wrong as well
    assert {f["code"] for f in found["findings"] if f["severity"] != "info"} == {"index-key"}
    assert cli("--store", root, "reindex", "--yes").code == 0
    (made,) = (root / "index").iterdir()
    assert made.read_bytes() == (unpacked("default") / "index" / index.name).read_bytes()


def test_the_settings_alone_tell(tmp_path: Path, cli: Cli, fixture_copy: Callable[[str], Path]) -> None:
    """Of a store whose own files don't: RocksDB queues that are still empty, tiers, a CRC that is new."""
    root = fixture_copy("clean-small")
    for line, words in (
        ("storeType=defaultRocksDB", "reindex --dry-run"),
        ("messageStorePlugIn=a.TieredMessageStore", "reindex --dry-run"),
        ("forceVerifyPropCRC=true", "put T --body b"),
    ):
        conf = tmp_path / "broker.conf"
        conf.write_text(line + "\n")
        ran = cli("--store", root, "-c", conf, "--quiet", *words.split())
        assert ran.code == 4
        assert line in ran.error_line


@pytest.mark.leaves("index-key")
def test_moved_away_it_is_a_store_of_4_9_again(unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli) -> None:
    """No more is said than is true: without the parts of RocketMQ 5, the default store is one as 4.9 writes it."""
    root = stores.copy(unpacked("default"), tmp_path / "store")
    for part in ("rocksdbstore", "compaction"):
        shutil.rmtree(root / part)
    (root / "timerwheel").unlink()
    for own in ("timercheck", "timermetrics", "transactionMetrics"):
        for path in (root / "config").glob(f"{own}*"):
            path.unlink()
    assert cli("--store", root, "--json", "status").json["newer"] == []
    assert cli("--store", root, "recover", "--dry-run").code == 0


@pytest.mark.parametrize("topic", ["MANIFEST-a", "CURRENT", "rocksdbstore", "dledger-a", "timerlog"])
def test_a_topic_of_such_a_name_makes_no_other_store(topic: str, new_store: Path, cli: Cli) -> None:
    """A client that may make topics must not lock the store's own daemon and commands out of it."""
    for body in ("one", "two"):
        assert cli("--store", new_store, "put", topic, "--body", body).code == 0
    assert cli("--store", new_store, "reindex", "--yes").code == 0
    assert len(cli("--store", new_store, "get", topic, "0", "--json").lines) == 2


@pytest.mark.parametrize("words", [("--body-file", "BODY"), ("--body", "x", "--property", "__CRC32#=1234567890")])
def test_a_message_that_looks_like_one_of_5_locks_nobody_out(
    words: tuple[str, ...], new_store: Path, tmp_path: Path, cli: Cli
) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"__CRC32#\x011234567890\x02")
    for _ in range(3):
        assert cli("--store", new_store, "put", "T", *(str(body) if w == "BODY" else w for w in words)).code == 0
    assert cli("--store", new_store, "reindex", "--yes").code == 0
    verified = cli("--store", new_store, "verify-crc", "--json")
    assert (verified.code, verified.json["propertyCrcRecords"], verified.json["unusualRecords"]) == (0, 0, 0)


def test_records_with_a_crc_are_told_behind_a_damaged_one(
    unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    store = tmp_path / "copy"
    for part in ("commitlog", "consumequeue", "index"):
        shutil.copytree(unpacked("property-crc") / part, store / part)
    (first, *_) = sorted((store / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.write(b"\xff" * 8)
    assert cli("--store", store, "recover", "--bridge", "--yes").code == 0
    assert cli("--store", store, "--json", "verify-crc").json["propertyCrcRecords"] == 20  # the bridge has one, too


@pytest.mark.parametrize("command", ["recover", "rebuild-config", "reindex"])
def test_a_stray_file_of_a_newer_store_is_no_part_of_it(
    command: str, unpacked: Callable[[str], Path], fixture_copy: Callable[[str], Path], cli: Cli
) -> None:
    """The plan and the change go by the same segments: the dry run had a plan, and the run refused the store."""
    store = fixture_copy("clean-small")
    (first, *_) = sorted((unpacked("property-crc") / "commitlog").iterdir())
    (store / "commitlog" / f"{9_999_999:020d}").write_bytes(first.read_bytes()[:100_000])
    planned = cli("--store", store, command, "--dry-run")
    done = cli("--store", store, command, "--yes")
    assert (planned.code, done.code) == (int(command != "reindex"), 0), (planned, done)
    assert cli("--store", store, "recover", "--yes").code == 0


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("sign", ["CURRENT", "MANIFEST-000005", "000010.sst"])
def test_any_file_of_rocksdb_alone_tells_its_queues(
    sign: str, unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """As an interrupted copy leaves it: no queue files are built where those in RocksDB were; these are set aside."""
    store = tmp_path / "copy"
    shutil.copytree(unpacked("rocksdb") / "commitlog", store / "commitlog")
    (store / "consumequeue").mkdir()
    shutil.copy(unpacked("rocksdb") / "consumequeue" / sign, store / "consumequeue")
    before = stores.snapshot(store)
    ran = cli("--store", store, "reindex", "--yes")
    assert (ran.code, f"consume queues in RocksDB (consumequeue/{sign})" in ran.err) == (4, True), ran.err
    assert cli("--store", store, "--json", "status").json["newer"][0]["where"] == f"consumequeue/{sign}"
    assert stores.snapshot(store) == before
    assert cli("--store", store, "recover", "--yes").code == 0
    assert list((store / "consumequeue").iterdir()) == []
    assert cli("--store", store, "--json", "status").json["newer"][0]["where"] == f"quarantine/consumequeue/{sign}"
    assert "Nothing to do" in cli("--store", store, "recover", "--dry-run").out


LEFT = (
    "epochFileCheckpoint",
    "timerwheel/",
    "timerlog/README",
    "consumequeue/x.sst",
    "consumequeue/CURRENT",
    "batchconsumequeue/lost+found/",
)


@pytest.mark.parametrize("left", LEFT)
def test_what_is_empty_or_not_of_5_is_no_store_of_5(left: str, new_store: Path, cli: Cli) -> None:
    assert cli("--store", new_store, "put", "T", "--body", "x").code == 0
    place = new_store / left
    if left.endswith("/"):
        place.mkdir(parents=True)
    else:
        place.parent.mkdir(exist_ok=True)
        place.touch()
    assert cli("--store", new_store, "reindex", "--yes").code == 0
    assert cli("--store", new_store, "put", "T", "--body", "y").code == 0


@pytest.mark.parametrize(
    ("name", "what"), [("timerwheel.7", "snapshots of the timer wheel"), ("kvStore/1.log", "pops")]
)
def test_what_a_repair_would_leave_wrong_is_named(
    name: str, what: str, unpacked: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """A broker goes by these, and they point at what a repair takes away: the store is refused, and read."""
    root = stores.copy(unpacked("default"), tmp_path / "store")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(b"something")
    before = stores.snapshot(root)
    ran = cli("--store", root, "recover", "--yes")
    assert (ran.code, ran.out) == (4, "")
    assert what in ran.error_line
    assert stores.snapshot(root) == before
    assert what in cli("--store", root, "check").out
