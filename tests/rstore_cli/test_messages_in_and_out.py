"""`rstore init`, `put`, `get` and `query`: what goes in comes out."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format import topic_rules
from tests.rstore_cli.conftest import Cli, process
from tests.support import stores

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
