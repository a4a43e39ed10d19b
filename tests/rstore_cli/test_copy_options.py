"""Options of `copy`: new messages followed, refused ones left out, accounts and certificates, the daemon of a store."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.client.messages import OutgoingMessage
from tests.engine.broker import certificates
from tests.rstore_cli.conftest import Cli, process
from tests.rstore_cli.daemons import DaemonThread, daemons
from tests.rstore_cli.test_copy import PATIENCE_S, commit, end_of, many, number, offsets_of, read, send


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[DaemonThread]:
    with daemons(tmp_path) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_new_messages_and_offsets_are_followed(cli: Cli, thread: DaemonThread, tmp_path: Path) -> None:
    here, there = thread.names_of("a"), thread.names_of("b")
    assert cli("admin", "topic", "create", "T", "--queues", "1", "--namesrv", here, "--yes").code == 0
    send(here, many(40)[:20])
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes")
    with process(*words, "--follow", "--rate", "1000") as following:
        try:
            until(lambda: end_of(there, "T") == 20)
            send(here, many(40)[20:])
            commit(here, "G", "T", {0: 4})
            until(lambda: end_of(there, "T") == 40)
            until(lambda: 4 in offsets_of(there, "G", "T").values())
            following.send_signal(signal.SIGINT)
            ended = following.communicate(timeout=PATIENCE_S)
        finally:
            following.kill()
    assert following.returncode == 130, ended
    assert "what was copied is kept: run the same command again to resume" in ended[1]
    again = cli(*words, "--json").json
    assert (again["copied"], again["copiedBefore"], again["doubles"]) == (0, 40, 0)
    assert Counter(map(number, read(there, "T"))) == Counter(range(40))


def test_refused_messages_are_left_out_when_that_is_asked_for(cli: Cli, thread: DaemonThread, tmp_path: Path) -> None:
    here, there = thread.names_of("a"), thread.names_of("b", max_message_size=2000)
    assert cli("admin", "topic", "create", "T", "--queues", "1", "--namesrv", here, "--yes").code == 0
    sizes = (10, 3000, 10, 10)
    send(here, [OutgoingMessage("T", b"x" * size, properties={"n": str(i)}) for i, size in enumerate(sizes)])
    commit(here, "G", "T", {0: 1})
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes")
    ended = cli(*words)
    assert ended.code == 5, ended
    assert "rstore: message 1 of queue T/0 of a: " in ended.err
    assert "--skip-refused leaves such messages out" in ended.err
    done = cli(*words, "--skip-refused", "--json")
    assert (done.code, done.json["refused"], done.json["doubles"]) == (0, 1, 0), done.err
    assert "note: message 1 of queue T/0 of a is left out: " in done.err
    assert list(map(number, read(there, "T"))) == [0, 2, 3]
    assert list(offsets_of(there, "G", "T").values()) == [1]  # of message 2: the refused one is passed over
    assert cli(*words, "--skip-refused", "--json").json["refused"] == 1


ACL = """\
accounts:
  - accessKey: {name}
    secretKey: "12345678"
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - T={right}
    groupPerms:
      - rstore-copy=SUB
      - G=SUB
"""


def guarded(base: Path, thread: DaemonThread, name: str, right: str) -> tuple[str, str]:
    """A daemon with TLS and an ACL; its name server, and the file of the CA that certifies it."""
    made = certificates.make(base / f"{name}-certificates")
    (base / f"{name}.yml").write_text(ACL.format(name=name, right=right))
    tls = {"tls.server.mode": "enforcing", "tls.server.certPath": made.cert, "tls.server.keyPath": made.key}
    names = thread.names_of(name, {**tls, "aclEnable": "true", "rocketmq.acl.plain.file": str(base / f"{name}.yml")})
    return names, made.authority


def test_each_side_has_its_account_and_its_authority(
    cli: Cli, thread: DaemonThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, here_ca = guarded(tmp_path, thread, "from-account", "PUB|SUB")
    there, there_ca = guarded(tmp_path, thread, "to-account", "PUB|SUB")
    for account, names, authority in (("from-account", here, here_ca), ("to-account", there, there_ca)):
        monkeypatch.setenv("RSTORE_ACCESS_KEY", account)
        monkeypatch.setenv("RSTORE_SECRET_KEY", "12345678")
        known = ("--namesrv", names, "--tls-ca", authority, "--timeout", "60")
        assert cli("send", "T", *known, "--body", "x", "--count", "8", "--timeout", "60").code == 0
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes", "--json")
    plain = cli(*words)
    assert plain.code == 5, plain
    wrong = cli(*words, "--tls-ca", here_ca)
    assert (wrong.code, there in wrong.json["error"]["message"]) == (5, True), wrong
    authorities = ("--from-tls-ca", here_ca, "--to-tls-ca", there_ca)
    refused = cli(*words, *authorities)  # the account of the target, at both
    assert (refused.code, "No acl config for to-account" in refused.json["error"]["message"]) == (5, True), refused
    monkeypatch.setenv("RSTORE_FROM_ACCESS_KEY", "from-account")
    half = cli(*words, *authorities)
    assert (half.code, "RSTORE_FROM_ACCESS_KEY and RSTORE_FROM_SECRET_KEY go together" in half.err) == (2, True)
    monkeypatch.setenv("RSTORE_FROM_SECRET_KEY", "12345678")
    consumed = ("--namesrv", here, "--tls-ca", here_ca, "--group", "G", "--from-beginning", "-n", "1")
    monkeypatch.setenv("RSTORE_ACCESS_KEY", "from-account")
    assert cli("consume", "T", *consumed).code == 0
    monkeypatch.setenv("RSTORE_ACCESS_KEY", "nobody")
    for name, value in (("ACCESS", "to-account"), ("SECRET", "12345678")):
        monkeypatch.setenv(f"RSTORE_TO_{name}_KEY", value)
    done = cli(*words, "--tls-ca", here_ca, "--to-tls-ca", there_ca)
    assert (done.code, done.json["copied"]) == (0, 8), done
    assert {row["group"] for row in done.json["offsets"]} == {"G"}


def test_the_daemon_of_a_store_is_source_or_target(cli: Cli, thread: DaemonThread, tmp_path: Path) -> None:
    here, there = thread.names_of("a"), thread.names_of("b")
    send(here, many(10))
    out = cli("--store", thread.store("a"), "copy", "--to", there, "--progress", tmp_path / "out", "--yes", "--json")
    assert (out.code, out.json["copied"]) == (0, 10), out.err
    send(here, many(30)[10:])
    back = cli("copy", "--from", here, "--store", thread.store("b"), "--progress", tmp_path / "out", "--yes", "--json")
    assert (back.code, back.json["copied"], back.json["copiedBefore"]) == (0, 20, 10), back.err
    assert cli("admin", "topic", "create", "U", "--namesrv", here, "--yes").code == 0
    send(here, [OutgoingMessage("U", b"x")])
    assert cli("admin", "topic", "delete", "T", "--namesrv", here, "--yes").code == 0
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "out", "--yes", "--json")
    rest = cli(*words)  # a topic that was deleted since is none that is away
    assert (rest.code, rest.json["copied"], rest.json["away"]) == (0, 1, []), rest.err
    thread.stop("b")
    nobody = cli("copy", "--from", here, "--store", thread.store("b"))
    assert (nobody.code, "no daemon runs on this store" in nobody.err) == (5, True), nobody.err
    for side, other in (("--from", "--to"), ("--to", "--from")):
        one = cli("copy", side, here)
        assert (one.code, f"{other} is required ({other} HOST:PORT, or --store DIR" in one.err) == (2, True), one.err
    none = cli("copy", "--store", thread.store("a"))
    assert (none.code, "--from or --to is required" in none.err) == (2, True), none.err
