"""`rstore admin`, against a daemon that runs beside."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rstore_cli.app import root_command
from rstore_cli.completion import rows
from tests.rstore_cli.conftest import Cli, Ran
from tests.rstore_cli.test_serve import Process, root
from tests.rstore_cli.walking import commands

__all__ = ["root"]


class Administered:
    """A daemon, and `rstore admin` for its name server."""

    def __init__(self, cli: Cli, names: str) -> None:
        self._cli = cli
        self.names = names

    def __call__(self, *words: str, code: int = 0) -> Ran:
        """`rstore admin WORDS`, which ends with this code."""
        ran = self._cli("admin", *words, "--namesrv", self.names)
        assert ran.code == code, ran
        return ran

    def json(self, *words: str, code: int = 0) -> Any:
        """Its one JSON document."""
        return self(*words, "--json", code=code).json

    def rows(self, *words: str, code: int = 0) -> list[Any]:
        """Its JSON lines."""
        return self(*words, "--json", code=code).lines

    def send(self, topic: str, *words: str) -> str:
        """One message; its id."""
        ran = self._cli("send", topic, "--namesrv", self.names, "--json", "--timeout", "60", *words)
        assert ran.code == 0, ran
        return str(ran.json["msgId"])

    def consume(self, group: str, topic: str, count: int) -> None:
        """As this group, from the first message that it has not had."""
        words = ("--group", group, "--from-beginning", "-n", str(count), "--quiet")
        assert self._cli("consume", topic, "--namesrv", self.names, *words).code == 0


@pytest.fixture
def admin(root: Path, cli: Cli) -> Iterator[Administered]:
    process = Process(root)
    yield Administered(cli, process.where["nameService"])
    assert process.stop() == 0


def test_a_topic_from_its_plan_to_its_end(admin: Administered) -> None:
    planned = admin.json("topic", "create", "T", "--queues", "2", "--dry-run", code=1)
    assert planned["steps"][0]["what"] == "is made: 2 read queues, 2 write queues, read and write"
    assert (planned["changed"], planned["done"]) == (True, False)
    assert "T" not in [row["topic"] for row in admin.rows("topic", "list")]
    made = admin("topic", "create", "T", "--queues", "2", "--yes").out
    assert "Plan: topic T" in made
    assert "Done: broker-a (" in made
    assert admin("topic", "create", "T", "--queues", "2", "--yes").out == "Nothing to do for topic T.\n"
    changed = admin.json("topic", "create", "T", "--read-queues", "3", "--yes")
    assert [one["what"] for one in changed["outcomes"]] == ["read queues 2 becomes 3"]  # and nothing else
    assert admin.json("topic", "route", "T")["queues"][0] == {
        "broker": "broker-a", "readQueues": 3, "writeQueues": 2, "perm": 6
    }  # fmt: skip
    admin("topic", "perm", "T", "4", "--yes")
    assert admin.json("topic", "route", "T")["queues"][0]["perm"] == 4
    admin("topic", "perm", "T", "6", "--yes")
    admin.send("T", "--body", "x")
    end = time.monotonic() + 30
    while sum(row["maxOffset"] for row in admin.rows("topic", "status", "T")) != 1:  # it is dispatched
        assert time.monotonic() < end
    assert "The queues hold 1 message." in admin("topic", "status", "T").out
    assert admin.rows("topic", "clusters", "T") == [{"cluster": "DefaultCluster"}]
    assert "Note: its queues hold 1 message" in admin("topic", "delete", "T", "--dry-run", code=1).out
    admin("topic", "create", "U", "--yes")
    assert admin("topic", "delete", "U", "--yes").out.count("Done: ") == 2
    assert "no topic U in the cluster" in admin("topic", "status", "U", code=2).error_line


def test_what_is_unknown_is_named_with_what_is_near(admin: Administered) -> None:
    admin("topic", "create", "Orders", "--yes")
    admin("group", "create", "billing", "--yes")
    topics = (
        *(("topic", verb, "Ordres") for verb in ("status", "route", "clusters", "rates", "delete")),
        ("topic", "perm", "Ordres", "6"), ("topic", "allocate", "Ordres", "--clients", "a"),
        ("message", "key", "Ordres", "k"), ("message", "offset", "Ordres", "0", "0"),
        ("message", "units", "Ordres", "0"), ("offset", "reset", "billing", "Ordres", "--to", "end"),
        ("offset", "skip", "billing", "Ordres"), ("offset", "clone", "billing", "x", "Ordres"),
        ("consumer", "progress", "billing", "--topic", "Ordres"), ("producer", "connections", "g", "Ordres"),
        ("message", "id", "0" * 32, "--topic", "Ordres"),
    )  # fmt: skip
    for words in topics:
        assert "no topic Ordres in the cluster (did you mean Orders?)" in admin(*words, code=2).error_line, words
    groups = (
        *(("group", verb, "biling") for verb in ("config", "delete")),
        *(("consumer", verb, "biling") for verb in ("progress", "connections", "status")),
        ("offset", "reset", "biling", "Orders", "--to", "end"), ("offset", "skip", "biling", "Orders"),
        ("offset", "clone", "biling", "x", "Orders"),
    )  # fmt: skip
    for words in groups:
        assert "no group biling in the cluster (did you mean billing?)" in admin(*words, code=2).error_line, words
    for words in (("broker", "config"), ("broker", "status"), ("broker", "set", "k", "v"), ("cluster", "list")):
        ran = admin(*words, "--broker", "broker-b", code=2)
        assert "no broker broker-b in the cluster (did you mean broker-a?)" in ran.error_line
    ran = admin("topic", "create", "New", "--cluster", "DefaultClustr", "--yes", code=2)
    assert "did you mean DefaultCluster?" in ran.error_line
    assert "no queue Orders/99" in admin("message", "units", "Orders", "99", code=2).error_line
    said = admin.json("topic", "status", "Ordres", code=2)["error"]
    assert (said["code"], said["hint"]) == ("usage", "did you mean Orders?")
    assert "no group with dead letters billing" in admin("dlq", "list", "billing", code=2).error_line


def test_groups_and_their_offsets(admin: Administered) -> None:
    admin("topic", "create", "T", "--queues", "1", "--yes")
    for body in ("one", "two", "three"):
        admin.send("T", "--body", body)
    admin.consume("G", "T", 3)
    (queue,) = admin.json("consumer", "progress", "G")["queues"]
    assert (queue["brokerOffset"], queue["consumerOffset"], queue["lag"]) == (3, 3, 0)
    assert "Lag: no messages" in admin("consumer", "progress", "G").out
    planned = admin("offset", "reset", "G", "T", "--to", "2 hours ago", "--dry-run", code=1).out
    assert "queue 0: 3 becomes 0, 3 messages will be read again" in planned
    assert admin.json("consumer", "progress", "G")["lag"] == 0
    admin("offset", "reset", "G", "T", "--to", "2 hours ago", "--yes")
    assert admin.json("consumer", "progress", "G")["lag"] == 3
    assert [row["lag"] for row in admin.rows("consumer", "lag") if row["group"] == "G"] == [3]
    assert "3 messages will not be read" in admin("offset", "skip", "G", "T", "--yes").out
    admin("offset", "reset", "G", "T", "--to", "first", "--yes")
    admin("offset", "clone", "G", "H", "T", "--yes")
    assert admin("offset", "reset", "G", "T", "--to", "first").out.startswith("Nothing to do")
    lines = {row["group"]: row for row in admin.rows("group", "list")}
    assert (lines["G"]["lag"], lines["G"]["clients"]) == (3, 0)
    admin("group", "create", "H", "--retries", "3", "--yes")
    again = admin.json("group", "create", "H", "--retries", "4", "--no-broadcast", "--yes")
    assert [one["what"] for one in again["steps"]] == ["retryMaxTimes 3 becomes 4"]
    (config,) = admin.rows("group", "config", "H")
    assert (config["values"]["retryMaxTimes"], config["values"]["consumeBroadcastEnable"]) == (4, False)
    assert "no consumer of group G is connected" in admin("consumer", "connections", "G", code=1).error_line
    admin("group", "delete", "H", "--offsets", "--yes")
    assert "H" not in {row["group"] for row in admin.rows("group", "list")}


def test_messages_by_id_key_and_offset(admin: Administered) -> None:
    admin("topic", "create", "T", "--queues", "1", "--yes")
    name = admin.send("T", "--body", "hello", "--keys", "k1", "--tags", "a")
    admin.send("T", "--body", "other", "--keys", "k2")
    (found,) = admin.rows("message", "key", "T", "k1")
    assert found["body"] == "hello"
    assert admin.rows("message", "offset", "T", "0", "0") == [found]
    by_id = admin.json("message", "id", found["msgId"])
    assert by_id == {**found, "groups": []}
    assert admin.json("message", "id", name, "--topic", "T")["msgId"] == found["msgId"]
    admin.consume("G", "T", 2)
    assert admin.json("message", "id", found["msgId"])["groups"] == [{"group": "G", "state": "NOT_ONLINE"}]
    assert "has the key k9" in admin("message", "key", "T", "k9", code=1).err
    assert "(its offsets are 0 to 1)" in admin("message", "offset", "T", "0", "7", code=1).error_line
    admin("topic", "create", "Empty", "--queues", "1", "--yes")
    assert "(the queue has no messages)" in admin("message", "offset", "Empty", "0", "0", code=1).error_line
    assert "names no broker" in admin("message", "id", name, code=2).error_line
    assert admin("message", "id", "0" * 32, "--topic", "T", code=1).error_line
    assert "hex digits" in admin("message", "id", "nothing", code=2).error_line
    assert [one["queueOffset"] for one in admin.json("message", "units", "T", "0")["units"]] == [0, 1]


def test_brokers_and_name_servers(admin: Administered, root: Path) -> None:
    (line,) = admin.rows("cluster", "list")
    assert (line["broker"], line["version"], line["problem"]) == ("broker-a", "V4_9_8", None)
    assert "in today" in admin("cluster", "list", "--more").out
    (status,) = admin.rows("broker", "status", "--key", "brokerVersionDesc")
    assert status["values"] == {"brokerVersionDesc": "V4_9_8"}
    admin("broker", "set", "fileReservedTime", "48", "--yes")
    (config,) = admin.rows("broker", "config", "--broker", "broker-a", "--key", "fileReservedTime")
    assert config["values"] == {"fileReservedTime": "48"}
    assert (root.parent / "broker.conf").read_text().splitlines()[-1] == "fileReservedTime=48"
    assert "Nothing to do" in admin("broker", "set", "fileReservedTime", "48").out
    assert "has no setting nonsense" in admin("broker", "set", "nonsense", "1", "--dry-run", code=1).out
    for what in ("queues", "topics", "log"):
        assert "Done: broker-a" in admin("broker", "clean", what, "--yes").out
    admin("namesrv", "set", "orderMessageEnable", "true", "--yes")
    (names,) = admin.rows("namesrv", "config", "--key", "orderMessageEnable")
    assert names["settings"] == {"orderMessageEnable": "true"}
    admin("topic", "create", "T", "--queues", "2", "--order", "--yes")
    assert [row["value"] for row in admin.rows("topic", "order", "T")] == ["broker-a:2"]
    assert admin.json("topic", "route", "T")["order"] == "broker-a:2"
    admin("topic", "order", "T", "--set", "other:8;broker-a:1", "--yes")
    admin("topic", "create", "T", "--order", "--broker", "broker-a", "--yes")  # what it has, and others keep theirs
    assert [row["value"] for row in admin.rows("topic", "order", "T")] == ["other:8;broker-a:2"]
    admin("topic", "order", "T", "--delete", "--yes")
    assert admin.rows("topic", "order", "T") == []
    admin("namesrv", "kv-set", "S", "a", "b", "--yes")
    assert [(row["key"], row["value"]) for row in admin.rows("namesrv", "kv-list", "S")] == [("a", "b")]
    admin("namesrv", "kv-delete", "S", "a", "--yes")
    assert admin("namesrv", "kv-list", "S").out == "No entries.\n"
    wiped = admin.json("namesrv", "wipe-write", "broker-a", "--yes")
    assert int(wiped["outcomes"][0]["answer"]["wipeTopicCount"]) > 1
    assert admin.json("topic", "route", "T")["queues"][0]["perm"] == 4
    admin("namesrv", "add-write", "broker-a", "--yes")
    assert admin.json("topic", "route", "T")["queues"][0]["perm"] == 6


def test_a_change_without_a_terminal_needs_a_word(admin: Administered) -> None:
    ran = admin("topic", "create", "T", code=2)
    assert "admin topic create asks for confirmation" in ran.err
    assert "--yes applies the plan" in ran.err
    assert "T" not in [row["topic"] for row in admin.rows("topic", "list")]


def test_a_refusal_is_one_line(admin: Administered, tmp_path: Path) -> None:
    ran = admin("acl", "version", code=5)
    assert "refused the request with code 1: ACL is off" in ran.error_line
    (tmp_path / "secret").write_text("12345678\n")
    words = ("acl", "set", "me", "--secret-file", str(tmp_path / "secret"), "--topic", "T=PUB|SUB", "--yes")
    ran = admin(*words, code=5)
    assert "secretKey=***" in ran.out
    assert "12345678" not in ran.out + ran.err
    told = json.loads(admin(*words, "--json", code=5).out)
    assert (told["done"], told["error"]["code"]) == (False, "broker")
    assert "ACL is off" in told["outcomes"][0]["outcome"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("cluster", "list"), 2, "--namesrv is required"),
        (("cluster", "list", "--namesrv", "127.0.0.1:1"), 5, "no name server answers"),
        (("topic", "create", "T", "--namesrv", "127.0.0.1:1", "--yes"), 5, "no name server answers"),
        (("topic", "create", "T", "--queues", "2", "--read-queues", "1"), 2, "--queues excludes"),
        (("topic", "order", "T", "--set", "a:1", "--delete"), 2, "exclude each other"),
        (("offset", "reset", "G", "T", "--to", "when"), 2, "not a time"),
        (("acl", "set", "me", "--secret-file", "none"), 5, "none"),
        (("broker", "clean", "everything"), 2, "everything"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], code: int, text: str, cli: Cli) -> None:
    ran = cli("admin", *words)
    assert ran.code == code, ran
    assert text in ran.error_line
    assert ran.out == ""


def test_the_daemon_of_a_store_is_meant(admin: Administered, root: Path, cli: Cli) -> None:
    conf = ("--store", root, "-c", root.parent / "broker.conf")
    assert cli(*conf, "admin", "topic", "create", "T", "--yes").code == 0
    assert [one["broker"] for one in cli(*conf, "admin", "cluster", "list", "--json").lines] == ["broker-a"]
    assert "T" in [row["topic"] for row in admin.rows("topic", "list")]


def test_names_of_the_cluster_are_completed(admin: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    admin("topic", "create", "Orders", "--yes")
    admin("group", "create", "billing", "--yes")

    def values(*words: str) -> list[str]:
        return [value for kind, value, _ in rows(words[:-1], words[-1], root_command()) if kind == "plain"]

    named = ("--namesrv", admin.names)
    assert values("admin", "topic", "status", *named, "Ord") == ["Orders"]
    assert values("admin", "offset", "reset", *named, "bil") == ["billing"]
    assert values("admin", "offset", "reset", "billing", *named, "Ord") == ["Orders"]
    assert values("admin", "broker", "config", *named, "--broker", "b") == ["broker-a"]
    assert values("send", *named, "Ord") == ["Orders"]
    monkeypatch.setenv("NAMESRV_ADDR", admin.names)
    assert values("consume", "Ord") == ["Orders"]
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert values("consume", "Ord") == []


def test_every_command_takes_the_same_options() -> None:
    """A cluster is named, and a change is planned and confirmed, by the same words everywhere."""
    every = {words[1:]: {name for one in found.params for name in one.opts} for words, found in commands()
             if words[0] == "admin"}  # fmt: skip
    assert len(every) > 40
    assert all({"--namesrv", "--tls-ca"} <= options for options in every.values())
    assert all("--yes" in options for options in every.values() if "--dry-run" in options)
