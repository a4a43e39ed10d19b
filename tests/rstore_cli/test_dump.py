"""`rstore dump`: shapes, filters, and that it goes on behind damage."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.format.checkpoint import Checkpoint
from tests.rstore_cli.conftest import Cli
from tests.support import fixtures

Store = Callable[[str], Path]

MESSAGE = {
    "msgId",
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "storeSize",
    "bodyCRC",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "properties",
    "bodyLength",
}


def test_the_log_is_what_apache_reads(fixture_store: Store, cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), "dump", "commitlog", "--json")
    assert (ran.code, ran.err) == (0, "")
    expected = [line for line in fixtures.dump("clean-small") if line["type"] in ("log", "blank")]
    kinds = {"log": "message", "blank": "blank"}
    assert [(row["kind"], row["physicalOffset"]) for row in ran.lines] == [
        (kinds[line["type"]], line["physicalOffset"]) for line in expected
    ]
    for row in ran.lines:
        if row["kind"] == "message":
            assert row.keys() - MESSAGE == {"kind", "body"} or row.keys() - MESSAGE == {"kind", "bodyBase64"}
            body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
            assert len(body) == row["bodyLength"]
            assert not body or zlib.crc32(body) & 0x7FFFFFFF == row["bodyCRC"]
            if "bodyBase64" in row and not row["sysFlag"] & 1:
                with pytest.raises(UnicodeDecodeError):
                    body.decode()
        else:
            assert row.keys() == {"kind", "physicalOffset", "length"}


def test_filters(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    rows = cli("--store", store, "dump", "commitlog", "--json").lines
    topic = rows[0]["topic"]
    some = cli("--store", store, "dump", "commitlog", "--json", "--topic", topic, "--limit", "7").lines
    assert some == [row for row in rows if row.get("topic") == topic][:7]
    low, high = rows[10]["physicalOffset"], rows[20]["physicalOffset"]
    for start in (low, low - 1):
        args = ("--from", str(start), "--to", str(high))
        assert cli("--store", store, "dump", "commitlog", "--json", *args).lines == rows[10:20]
    redacted = cli("--store", store, "dump", "commitlog", "--json", "--redact", "--limit", "3").lines
    assert [row.keys() for row in redacted] == [MESSAGE | {"kind"}] * 3
    assert cli("--store", store, "dump", "commitlog", "--limit", "0").out == ""


@pytest.mark.leaves("log-damage")
def test_it_goes_on_behind_damage(damaged: Path, cli: Cli) -> None:
    ran = cli("--store", damaged, "dump", "commitlog", "--json")
    assert ran.code == 1
    (damage,) = (row for row in ran.lines if row["kind"] == "damage")
    assert damage.keys() == {"kind", "physicalOffset", "length", "reason", "file"}
    assert sum(row["kind"] == "message" for row in ran.lines) == 599
    assert f"! damage at {damage['physicalOffset']}" in cli("--store", damaged, "dump", "commitlog").out


def test_no_control_character_reaches_the_terminal(new_store: Path, cli: Cli) -> None:
    cli("--store", new_store, "put", "T", "--body", "a\x1b[31mb\u202e", "--property", "x=\x1b]0;y\x07")
    out = cli("--store", new_store, "dump", "commitlog").out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31m" in out


def test_a_queue_is_what_apache_reads(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    topic, queue_id = messages[0]["cqTopic"], messages[0]["cqQueueId"]
    rows = cli("--store", store, "dump", "consumequeue", topic, str(queue_id), "--json").lines
    assert rows == [
        {
            "queueOffset": m["cqOffset"],
            "physicalOffset": m["cqPhyOffset"],
            "size": m["cqSize"],
            "tagsCode": m["cqTagsCode"],
        }
        for m in messages
        if (m["cqTopic"], m["cqQueueId"]) == (topic, queue_id)
    ]
    some = ("--from", "2", "--to", "6", "--limit", "3")
    assert cli("--store", store, "dump", "consumequeue", topic, str(queue_id), *some, "--json").lines == rows[2:5]
    text = cli("--store", store, "dump", "consumequeue", topic, str(queue_id), "--limit", "1").out.splitlines()
    assert text[0].split() == ["queueOffset", "physicalOffset", "size", "tagsCode"]
    assert text[1].split() == [str(value) for value in rows[0].values()]


def test_a_queue_that_is_not_there_names_some_that_are(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    topic = cli("--store", store, "status", "--json").json["topics"][0]["topic"]
    ran = cli("--store", store, "dump", "consumequeue", topic + "x", "0")
    assert (ran.code, ran.out) == (2, "")
    assert topic in ran.error_line
    assert "has the queues 0" in cli("--store", store, "dump", "consumequeue", topic, "99").error_line


def test_the_index(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    rows = cli("--store", store, "dump", "index", "--json").lines
    heads = cli("--store", store, "dump", "index", "--header", "--json").lines
    assert rows[0].keys() == {"file", "number", "keyHash", "physicalOffset", "timeDiff", "previous"}
    for head in heads:
        own = [row for row in rows if row["file"] == head["file"]]
        assert len(own) == head["indexCount"] - 1
        assert own[-1]["physicalOffset"] == head["endPhyOffset"]
    part = cli("--store", store, "dump", "index", "--json", "--from", "1000", "--to", "9000", "--limit", "5").lines
    assert part == [row for row in rows if 1000 <= row["physicalOffset"] < 9000][:5]
    name = heads[-1]["file"]
    only = cli("--store", store, "dump", "index", "--json", "--file", name).lines
    assert only == [row for row in rows if row["file"] == name]
    assert cli("--store", store, "dump", "index", "--file", "1").code == 2
    assert cli("--store", store, "dump", "index", "--limit", "2").out.splitlines()[0].split() == list(rows[0])


@pytest.mark.leaves("file-size", "index-missing")
def test_a_short_index_file(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    first, *_ = sorted((store / "index").iterdir())
    with first.open("r+b") as file:
        file.truncate(100)
    ran = cli("--store", store, "dump", "index", "--json")
    assert ran.code == 1
    assert first.name in ran.err
    assert first.name not in {row["file"] for row in ran.lines}


@pytest.mark.leaves("checkpoint-missing")
def test_the_checkpoint(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "checkpoint").write_bytes(Checkpoint(1700000000001, 2, 3).encode().ljust(4096, b"\0"))
    expected = {"physicMsgTimestamp": 1700000000001, "logicsMsgTimestamp": 2, "indexMsgTimestamp": 3}
    ran = cli("--store", store, "dump", "checkpoint", "--json")
    assert (ran.code, ran.json) == (0, expected)
    assert "2023-11-14 22:13:20.001" in cli("--store", store, "dump", "checkpoint").out
    (store / "checkpoint").write_bytes(b"short")
    assert cli("--store", store, "dump", "checkpoint").code == 1
    (store / "checkpoint").unlink()
    assert cli("--store", store, "dump", "checkpoint").code == 4


@pytest.mark.leaves("config-bak")
def test_the_configuration_and_its_backups(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    config = store / "config"
    config.mkdir(exist_ok=True)
    for path in config.iterdir():
        path.unlink()
    assert cli("--store", store, "dump", "config").code == 0
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    (config / "consumerOffset.json").write_bytes(bytes(100))
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"t@g":{0:22}}}')
    (config / "delayOffset.json.bak").write_text("{}")
    (config / "broken.json").write_text("{")
    ran = cli("--store", store, "dump", "config", "--json")
    assert ran.code == 1
    found = {row["file"]: row for row in ran.lines}
    assert found["topics.json"] == {"file": "topics.json", "source": "topics.json", "value": {"topicConfigTable": {}}}
    offsets = found["consumerOffset.json"]
    assert offsets["source"] == "consumerOffset.json.bak"
    assert offsets["value"] == {"offsetTable": {"t@g": {"0": 22}}}
    assert "only zeros" in offsets["problem"]
    assert found["delayOffset.json"]["source"] == "delayOffset.json.bak"
    assert found["broken.json"]["source"] is None
    text = cli("--store", store, "dump", "config")
    assert text.code == 1
    assert "# consumerOffset.json, read from consumerOffset.json.bak" in text.out
    assert json.dumps({"topicConfigTable": {}}, indent=2) in text.out
