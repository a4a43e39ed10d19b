"""`rstore init`, `put`, `get` and `query`: what goes in comes out."""

from __future__ import annotations

import base64
import errno
import json
import shlex
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import read_store
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.lock import StoreLock
from engine.files.operations import Doing, Operation
from engine.format import topic_rules
from engine.format.message import Message
from engine.log.results import QueryResult
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.rstore_cli.conftest import Cli, process
from tests.support import fixtures, golden, stores

Store = Callable[[str], Path]


# --- init ------------------------------------------------------------------------------------------------------------


def test_init_makes_an_empty_store_that_keeps_its_sizes(tmp_path: Path, cli: Cli) -> None:
    store = tmp_path / "a" / "b"
    sizes = (
        "--commitlog-file-size",
        "64K",
        "--queue-file-units",
        "10",
        "--index-slots",
        "50",
        "--index-entries",
        "200",
    )
    ran = cli("init", "--store", store, "--json", *sizes)
    expected = {
        "mappedFileSizeCommitLog": 65536,
        "mappedFileSizeConsumeQueue": 200,
        "maxHashSlotNum": 50,
        "maxIndexNum": 200,
    }
    assert (ran.code, ran.json) == (0, {"store": str(store), "sizes": expected})
    assert (store / "checkpoint").stat().st_size == 4096
    assert cli("--store", store, "put", "T", "--keys", "k").code == 0
    assert {path.stat().st_size for path in (store / "commitlog").iterdir()} == {65536}
    assert {path.stat().st_size for path in (store / "consumequeue" / "T" / "0").iterdir()} == {200}
    assert {path.stat().st_size for path in (store / "index").iterdir()} == {40 + 50 * 4 + 200 * 20}
    assert cli("--store", store, "status", "--json").json["sizes"] == expected


def test_a_broker_conf_is_stronger_than_the_store_s_own(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\n")
    found = cli("--store", new_store, "-c", conf, "status", "--json").json["sizes"]
    assert (found["mappedFileSizeCommitLog"], found["mappedFileSizeConsumeQueue"]) == (1048576, 2000)


def test_init_leaves_what_is_there(fixture_copy: Store, cli: Cli, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    before = stores.snapshot(store)
    ran = cli("--store", store, "init")
    assert ran.code == 4
    assert "empty" in ran.error_line
    assert stores.snapshot(store) == before
    (tmp_path / "file").write_text("x")
    assert cli("--store", tmp_path / "file", "init").code == 4


# --- put and get -----------------------------------------------------------------------------------------------------


def test_one_message(new_store: Path, cli: Cli) -> None:
    args = ("--body", "hällo", "--queue", "2", "--tags", "A", "--keys", "k1 k2", "--property", "x=y=z")
    ran = cli("--store", new_store, "put", "Orders", *args, "--json")
    assert ran.code == 0
    answer = ran.json
    assert answer["status"] == "PUT_OK"
    assert (answer["topic"], answer["queueId"], answer["queueOffset"]) == ("Orders", 2, 0)
    (got,) = cli("--store", new_store, "get", "Orders", "2", "--json").lines
    assert got["body"] == "hällo"
    assert got["bodyLength"] == 6
    assert got["properties"] == {"x": "y=z", "KEYS": "k1 k2", "TAGS": "A"}
    assert got["msgId"] == answer["msgId"]
    for way in (
        ("get", "--msg-id", answer["msgId"]),
        ("get", "--physical-offset", "0"),
        ("query", "Orders", "k1"),
        ("query", "Orders", "k2"),
        ("get", "Orders", "2", "--tags", "B || A"),
    ):
        assert cli("--store", new_store, *way, "--json").lines == [got]
    text = cli("--store", new_store, "get", "Orders", "2").out
    assert "Orders/2 at 0" in text
    assert "hällo" in text
    again = cli("--store", new_store, "put", "Orders", "--queue", "2", "--sync")
    assert again.out.startswith("PUT_OK  Orders/2 at 1 ")


def test_the_body_from_a_file(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00")
    assert cli("--store", new_store, "put", "T", "--body-file", tmp_path / "body").code == 0
    (got,) = cli("--store", new_store, "get", "T", "0", "--json").lines
    assert "body" not in got
    assert base64.b64decode(got["bodyBase64"]) == b"\xff\x00"
    assert "binary: ff 00" in cli("--store", new_store, "get", "T", "0").out
    assert cli("--store", new_store, "put", "T", "--body-file", tmp_path / "none").code == 5


def test_a_delayed_message_says_where_it_waits(new_store: Path, cli: Cli) -> None:
    answer = cli("--store", new_store, "put", "T", "--delay-level", "3", "--json").json
    assert (answer["topic"], answer["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 2)
    (got,) = cli("--store", new_store, "get", "SCHEDULE_TOPIC_XXXX", "2", "--json").lines
    assert got["properties"] == {"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0"}


def test_the_address_is_the_broker_s(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerIP1=192.0.2.7\nlistenPort=20911\n")
    assert cli("--store", new_store, "-c", conf, "put", "T").code == 0
    (got,) = cli("--store", new_store, "get", "T", "0", "--json").lines
    assert got["storeHost"] == "192.0.2.7:20911"


def test_load(new_store: Path, cli: Cli) -> None:
    ran = cli("--store", new_store, "put", "T", "--count", "500", "--size", "1K", "--json")
    assert ran.code == 0
    assert ran.json.keys() == {"messages", "bytes", "seconds", "messagesPerSecond", "bytesPerSecond"}
    assert ran.json["messages"] == 500
    assert "500 messages" in cli("--store", new_store, "put", "T", "--count", "500").out
    got = cli("--store", new_store, "get", "T", "0", "0", "--count", "1000", "--json").lines
    assert [m["queueOffset"] for m in got] == list(range(1000))
    assert {m["bodyLength"] for m in got} == {1024}


@pytest.mark.parametrize("kind", [(), ("--delay-level", "2"), ("--property", "INNER_MULTI_DISPATCH=a,b")])
def test_load_in_batches_is_load_one_by_one(kind: tuple[str, ...], new_store: Path, cli: Cli) -> None:
    def load(*how: str) -> list[dict[str, object]]:
        first = cli("--store", new_store, "dump", "commitlog", "--json").lines
        what = ("put", "T", "--count", "30", "--size", "100", "--tags", "a", "--keys", "k l", "--queue", "2")
        assert cli("--store", new_store, *what, *kind, *how).code == 0
        return cli("--store", new_store, "dump", "commitlog", "--json").lines[len(first) :]

    said = (
        "topic",
        "queueId",
        "bodyCRC",
        "flag",
        "sysFlag",
        "bornHost",
        "storeHost",
        "body",
        "properties",
        "storeSize",
    )
    one, two = ([[row.get(name) for name in said] for row in load(*how)] for how in ((), ("--sync",)))
    assert one == two
    assert len(one) == 30


@pytest.mark.parametrize("name", ["clean-small", "crashed-small"])
def test_a_whole_store_through_json_and_back(name: str, fixture_store: Store, new_store: Path, cli: Cli) -> None:
    conf = new_store / "rstore.conf"
    conf.write_text(conf.read_text().replace("65536", "1048576"))
    dump = cli("--store", fixture_store(name), "dump", "commitlog", "--json")
    path = new_store.parent / "all.jsonl"
    path.write_text(dump.out, encoding="utf-8")
    ran = cli("--store", new_store, "put", "--jsonl", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    originals = [row for row in dump.lines if row["kind"] == "message"]
    assert len(ran.lines) == len(originals)
    copies = cli("--store", new_store, "dump", "commitlog", "--json").lines
    same = ("topic", "queueId", "bodyCRC", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeHost", "bodyLength")
    for one, two in zip(originals, copies, strict=True):
        assert [one[key] for key in same] == [two[key] for key in same]
        assert one.get("body") == two.get("body")
        assert one.get("bodyBase64") == two.get("bodyBase64")
        assert sorted(one["properties"].items()) == sorted(two["properties"].items())
    assert cli("--store", new_store, "verify-crc").code == 0


def test_lines_from_stdin(new_store: Path, cli: Cli) -> None:
    lines = [{"topic": "A", "body": "1"}, {"body": "2", "queueId": 3}, {"kind": "blank"}]
    ran = process("--store", new_store, "put", "B", "--jsonl", "-", stdin=subprocess.PIPE)
    out, err = ran.communicate("\n".join(map(json.dumps, lines)) + "\n\n", timeout=60)
    assert (ran.returncode, err) == (0, "")
    assert out.startswith("2 messages")
    assert cli("--store", new_store, "get", "B", "0", "--json").lines[0]["body"] == "1"
    assert cli("--store", new_store, "get", "B", "3", "--json").lines[0]["body"] == "2"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a JSON object"),
        ("{}", "line 2: no topic"),
        ('{"topic":1}', "line 2: topic is not text"),
        ('{"topic":"T","queueId":"x"}', "line 2: queueId is not a number"),
        ('{"topic":"T","properties":{"a":1}}', "line 2: properties"),
        ('{"topic":"T","properties":{"a":"\\u0001"}}', "line 2: property a"),
        ('{"topic":"T","bodyBase64":"!"}', "line 2: bodyBase64"),
        ('{"topic":"T","bornHost":"x"}', "line 2: invalid host"),
        ('{"topic":"' + "x" * 200 + '"}', "line 2: The specified topic is longer than topic max length 127"),
        ('{"topic":"a b"}', "line 2: The specified topic[a b] contains illegal characters"),
        ('{"topic":"T","queueId":99999999999}', "number"),
        ('{"topic":"T","queue_id":1}', "(did you mean queueId?)"),
        ('{"topic":"T","keys":"k"}', '(it is a property: "properties": {"KEYS": "…"})'),
        ('{"topic":"T","payload":"x"}', "(fields of a message: topic, queueId, "),
    ],
)
def test_a_wrong_line_is_named(line: str, says: str, new_store: Path, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"topic":"T","body":"fine"}\n' + line + "\n")
    ran = cli("--store", new_store, "put", "--jsonl", path)
    assert ran.code == 2
    assert says in ran.error_line
    assert len(cli("--store", new_store, "get", "T", "0", "--json").lines) == 1
    assert cli("--store", new_store, "status", "--json").json["state"] == "clean"


def test_a_store_that_needs_recovery_is_not_put_into(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    before = stores.contents(store)
    ran = cli("--store", store, "put", "T")
    assert ran.code == 4
    assert ran.next_command[0] == "--store"
    after = stores.contents(store)
    assert {k: v for k, v in after.items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}
    cli("--store", store, "recover", "--yes")
    assert cli("--store", store, "put", "T").code == 0


def test_a_locked_store_is_not_put_into(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, "put", "T").code == 3


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("bad topic!", "The specified topic[bad topic!] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a.b", "illegal characters"),
        ("Bestellungen_ü", "illegal characters"),
        ("", "The specified topic is blank"),
        (" \t", "The specified topic is blank"),
        ("x" * 128, "The specified topic is longer than topic max length 127"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is forbidden"),
        ("SCHEDULE_TOPIC_XXXX", "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden"),
    ],
)
def test_a_topic_that_apache_s_client_refuses_is_refused(topic: str, says: str, new_store: Path, cli: Cli) -> None:
    before = stores.snapshot(new_store)
    ran = cli("--store", new_store, "put", topic, "--body", "x")
    assert ran.code == 2
    assert says in ran.error_line
    assert stores.snapshot(new_store) == before
    assert cli("--store", new_store, "put", "x" * 127, "--body", "x").code == 0
    assert cli("--store", new_store, "put", "%RETRY%group|a-b_C", "--body", "x").code == 0


def test_the_rule_of_topics_is_the_same_for_client_and_broker() -> None:
    for letter in map(chr, [*range(1, 256), 0x4E2D]):
        allowed = letter.isascii() and (letter.isalnum() or letter in "%|_-")
        assert (topic_rules.refused_by_client(f"a{letter}b") is None) == allowed
        assert (topic_rules.invalid_topic(f"a{letter}b") is None) == allowed


# --- get -------------------------------------------------------------------------------------------------------------


def test_get_is_what_apache_reads(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    topic, queue_id = messages[0]["cqTopic"], messages[0]["cqQueueId"]
    own = [m for m in messages if (m["cqTopic"], m["cqQueueId"]) == (topic, queue_id)]
    got = cli("--store", store, "get", topic, str(queue_id), "--count", "10000", "--json").lines
    assert [m["msgId"] for m in got] == [m["msgId"] for m in own]
    some = cli("--store", store, "get", topic, str(queue_id), "5", "--count", "2", "--json")
    assert some.lines == got[5:7]
    (more,) = some.err.splitlines()
    assert cli(*shlex.split(more.removeprefix("more: rstore "))).lines == got[7:9]
    at = got[6]["storeTimestamp"]
    first = next(m for m in got if m["storeTimestamp"] >= at)
    assert cli("--store", store, "get", topic, str(queue_id), "--at", str(at), "-n", "1", "--json").lines == [first]


def test_where_nothing_is(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    topic = cli("--store", store, "status", "--json").json["topics"][0]["topic"]
    ran = cli("--store", store, "get", topic, "0", "1000000", "--json")
    assert (ran.code, ran.out) == (0, "")
    assert "holds offsets 0 to" in ran.err
    assert cli("--store", store, "get", topic + "x", "0").code == 2
    assert topic in cli("--store", store, "get", topic + "x", "0").error_line
    assert cli("--store", store, "get", "--physical-offset", "1000000000000").code == 2
    assert cli("--store", store, "get", "--physical-offset", "1").code == 2
    assert cli("--store", store, "get", "--msg-id", "xyz").code == 1
    assert cli("--store", store, "get", topic, "0", "0", "--at", "now").code == 2


@pytest.mark.leaves("log-damage")
def test_a_body_that_is_not_its_crc_s(damaged: Path, cli: Cli) -> None:
    (bad,) = cli("--store", damaged, "verify-crc", "--json").json["damage"]
    ran = cli("--store", damaged, "get", "--physical-offset", str(bad["physicalOffset"]), "--json")
    assert ran.code == 1
    assert len(ran.lines) == 1
    assert "body CRC mismatch" in ran.err


@pytest.mark.leaves("log-damage")
def test_a_queue_goes_on_behind_bytes_that_are_no_record(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    first = next(m for m in messages if m["cqPhyOffset"] < 131072 and m["cqOffset"] == 0)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(first["cqPhyOffset"])
        file.write(bytes(first["cqSize"]))
    queue = (first["cqTopic"], str(first["cqQueueId"]))
    own = [m for m in messages if (m["cqTopic"], str(m["cqQueueId"])) == queue]
    ran = cli("--store", store, "get", *queue, "--count", "1000", "--json")
    assert ran.code == 1
    assert [m["msgId"] for m in ran.lines] == [m["msgId"] for m in own[1:]]
    assert "can't be read" in ran.err


def test_compressed_bodies(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    packed = zlib.compress(b"plain" * 100)
    line = {"topic": "T", "sysFlag": 1, "bodyBase64": base64.b64encode(packed).decode()}
    (tmp_path / "lines").write_text(json.dumps(line) + "\n")
    assert cli("--store", new_store, "put", "--jsonl", tmp_path / "lines").code == 0
    (stored,) = cli("--store", new_store, "get", "T", "0", "--json").lines
    assert base64.b64decode(stored["bodyBase64"]) == packed
    (plain,) = cli("--store", new_store, "get", "T", "0", "--decompress", "--json").lines
    assert (plain["body"], plain["decompressedLength"]) == ("plain" * 100, 500)


CLIENTS_ID = "7F0000015BD418B4AAC2914F53A10000"


def test_a_message_by_its_client_s_id_with_and_without_a_topic(new_store: Path, cli: Cli) -> None:
    def put(topic: str, *args: str) -> str:
        unique = ("--property", f"UNIQ_KEY={CLIENTS_ID}")
        found: str = cli("--store", new_store, "put", topic, *unique, *args, "--json").json["msgId"]
        return found

    first = put("Orders", "--body", "one")
    assert cli("--store", new_store, "put", "Orders", "--keys", CLIENTS_ID, "--body", "another's key").code == 0
    second = put("%RETRY%billing", "--body", "two")
    for word in (CLIENTS_ID, CLIENTS_ID.lower()):
        both = cli("--store", new_store, "get", "--msg-id", word, "--json")
        assert (both.code, [message["msgId"] for message in both.lines]) == (0, [first, second])
    (one,) = cli("--store", new_store, "get", "Orders", "--msg-id", CLIENTS_ID, "--json").lines
    assert one["body"] == "one"
    assert cli("--store", new_store, "get", "Orders", "--msg-id", first, "--json").lines == [one]
    assert "belongs to topic Orders" in cli("--store", new_store, "get", "T", "--msg-id", first).error_line
    none = cli("--store", new_store, "get", "--msg-id", CLIENTS_ID[:-1] + "1")
    assert none.code == 1
    assert "no message with the id" in none.error_line
    assert "not in the index, which goes up to" in none.error_line
    assert cli("--store", new_store, "get", "Orders", "0", "--msg-id", first).code == 2


def test_an_id_of_the_client_s_own_making(new_store: Path, cli: Cli) -> None:
    cli("--store", new_store, "put", "T", "--property", "UNIQ_KEY=order 4711", "--body", "x")
    (found,) = cli("--store", new_store, "get", "--msg-id", "order 4711", "--json").lines
    assert found["body"] == "x"


@pytest.mark.parametrize("millis", [1 << 60, (1 << 63) - 1, -(1 << 63)])
def test_a_damaged_time_in_the_index_ends_no_search(millis: int, new_store: Path, cli: Cli) -> None:
    """The header of an index file is believed by no one: the time up to which it goes is told as what it is."""
    assert cli("--store", new_store, "put", "Orders", "--keys", "k", "--body", "one").code == 0
    (index,) = (new_store / "index").iterdir()
    with index.open("r+b") as file:
        file.seek(8)  # endTimestamp
        file.write(millis.to_bytes(8, "big", signed=True))
    for asked in (("get", "--msg-id", CLIENTS_ID), ("query", "Orders", "another")):
        none = cli("--store", new_store, *asked)
        assert none.code == 1, none.err
        assert "fault of rstore" not in none.err
        says = f"which goes up to {millis} ms" if millis > 0 else "whose times are damaged"
        assert f"not in the index, {says}" in none.err.replace("\n", " ")
    assert cli("--store", new_store, "check").code == 1
    assert cli("--store", new_store, "reindex", "--yes").code == 0


def of_several_index_files(store: Path) -> Path:
    """A store of forty messages with a key and a client's id each, in index files of thirty entries."""
    config = StoreConfig(store_path_root_dir=store).with_changes(
        mapped_file_size_commit_log=1 << 16, max_hash_slot_num=20, max_index_num=30
    )
    with MessageStore.open(config) as writer:
        for i in range(40):
            assert writer.put(Message("T", b"x", properties={"KEYS": f"k{i}", "UNIQ_KEY": f"u{i}"})).ok
        assert writer.wait_dispatched()
    return store


@pytest.mark.parametrize("millis", [1 << 60, (1 << 63) - 1, -(1 << 63), -1])
@pytest.mark.parametrize("field", [0, 8], ids=["beginTimestamp", "endTimestamp"])
def test_a_damaged_time_in_the_index_hides_no_message(field: int, millis: int, tmp_path: Path, cli: Cli) -> None:
    """Who asks for no times goes by none: neither in that file nor in the older one."""
    store = of_several_index_files(tmp_path / "s")
    older, newer = sorted((store / "index").iterdir())[-2:]
    for path in (older, newer):
        true = path.read_bytes()
        path.write_bytes(true[:field] + millis.to_bytes(8, "big", signed=True) + true[field + 8 :])
        for i in (0, 20, 39):
            for asked in (("query", "T", f"k{i}"), ("get", "--msg-id", f"u{i}")):
                found = cli("--store", store, *asked, "--json")
                assert (found.code, [line["queueOffset"] for line in found.lines]) == (0, [i]), (path.name, asked)
        path.write_bytes(true)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 1 << 20, (1 << 31) - 1, -1, -(1 << 31)])
def test_a_damaged_count_in_the_index_hides_no_message(count: int, tmp_path: Path, cli: Cli) -> None:
    """Slots and links name the entries; the header's count of them is held against both by check, not by who asks."""
    store = of_several_index_files(tmp_path / "s")
    for path in sorted((store / "index").iterdir()):
        true = path.read_bytes()
        path.write_bytes(true[:36] + count.to_bytes(4, "big", signed=True) + true[40:])
        for i in (0, 20, 39):
            for asked in (("query", "T", f"k{i}"), ("get", "--msg-id", f"u{i}")):
                found = cli("--store", store, *asked, "--json")
                assert (found.code, [line["queueOffset"] for line in found.lines]) == (0, [i]), (path.name, asked)
        path.write_bytes(true)


@pytest.mark.parametrize("last_file", [True, False])
@pytest.mark.parametrize("tags", [(), ("--tags", "A")])
def test_a_page_that_cannot_be_read_costs_its_messages(
    tags: tuple[str, ...], last_file: bool, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in front of it is shown, and the command that is printed shows what follows."""
    store = tmp_path / "s"
    config = StoreConfig(store_path_root_dir=store).with_changes(mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(config) as writer:
        put = [writer.put(Message("T", b"x" * 1000, properties={"TAGS": "AB"[i % 2]})) for i in range(100)]
        assert writer.wait_dispatched()
    places = [one.append.physical_offset for one in put if one.append is not None]
    bad = 80 if last_file else 20
    path = sorted((store / "commitlog").iterdir())[places[bad] >> 16]
    page = range(places[bad] % (1 << 16) + 10, places[bad] % (1 << 16) + 20)

    def unreadable(doing: Doing) -> bool:
        start = doing.offset or 0
        return (
            doing.operation is Operation.READ
            and doing.path == str(path)
            and (start < page.stop and start + (doing.length or 1) > page.start)
        )

    def failing(mapped: bool) -> FaultyDisk:
        disk = FaultyDisk(None, mapped=mapped)
        disk.fail_when(unreadable, errno.EIO)
        return disk

    monkeypatch.setattr(read_store, "Disk", failing)
    step = 2 if tags else 1
    ran = cli("--store", store, "get", "T", 0, bad - 6, *tags, "--json")
    assert (ran.code, [line["queueOffset"] for line in ran.lines[:-1]]) == (5, list(range(bad - 6, bad, step)))
    error = ran.lines[-1]["error"]
    assert "input/output error" in error["message"]
    words = shlex.split(error["next"]["command"])
    assert words[:1] == ["rstore"]
    ran = cli(*words[1:])
    assert (ran.code, [line["queueOffset"] for line in ran.lines]) == (0, list(range(bad + step, 100, step))[:32])
    monkeypatch.undo()


# --- query -----------------------------------------------------------------------------------------------------------


def test_query_is_what_apache_finds(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    some = [
        m for m in cli("--store", store, "dump", "commitlog", "--json").lines if m.get("properties", {}).get("KEYS")
    ]
    key, topic = some[3]["properties"]["KEYS"].split()[0], some[3]["topic"]
    found = cli("--store", store, "query", topic, key, "--json").lines
    wanted = [m for m in some if m["topic"] == topic and key in m["properties"]["KEYS"].split(" ")]
    assert [m["msgId"] for m in found] == [m["msgId"] for m in wanted]
    assert {m["msgId"] for m in found} <= {m["msgId"] for m in messages} | {m["msgId"] for m in wanted}
    newest = cli("--store", store, "query", topic, key, "--max", "1", "--json").lines
    assert newest == found[-1:]
    late = str(found[-1]["storeTimestamp"] + 5000)
    none = cli("--store", store, "query", topic, key, "--begin", late, "--json")
    assert (none.code, none.out) == (1, "")
    assert "no message" in none.err
    text = cli("--store", store, "query", topic, key)
    assert text.code == 0
    assert found[0]["msgId"] in text.out


@pytest.mark.parametrize("times", [(), ("--begin", "2024-01-01"), ("--begin", "2024-01-01", "--end", "2099-01-01")])
def test_what_a_broker_indexes_while_a_query_runs_is_found(
    times: tuple[str, ...], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query looks twice where it finds nothing: a live writer puts the key into the index between the two."""
    look = ReadStore.query
    config = StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:

        def put(key: str) -> None:
            assert writer.put(Message("T", b"body of " + key.encode(), properties={"KEYS": key})).ok
            assert writer.wait_dispatched()

        def query(store: ReadStore, topic: str, key: str, *args: int) -> QueryResult:
            found = look(store, topic, key, *args)
            if not found.messages:
                put(key)
            return found

        put("first")
        monkeypatch.setattr(ReadStore, "query", query)
        ran = cli("--store", tmp_path / "s", "query", "T", "k1", *times)
        assert (ran.code, ran.err) == (0, "")
        assert "body of k1" in ran.out
