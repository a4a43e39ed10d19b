"""Commands with several name servers, a wrong one, or a broker that dies: one line says why."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.tail import ClusterTail
from engine.errors import NoRoute
from tests.rstore_cli.conftest import Cli, process
from tests.rstore_cli.daemons import DaemonThread, daemons, until_served
from tests.rstore_cli.test_copy import PATIENCE_S, PATIENT, end_of, read
from tests.rstore_cli.test_serve import Process


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[DaemonThread]:
    with daemons(tmp_path) as made:
        yield made


def bodies(names: str, topic: str) -> set[bytes]:
    return {one.body for one in read(names, topic)}


def test_one_of_two_name_servers_dies(cli: Cli, thread: DaemonThread) -> None:
    first, second = thread.names_of("a"), thread.names_of("b")
    thread.start("z", names=f"{first};{second}")
    on_z = ("admin", "topic", "create", "T", "--broker", "z", "--yes", "--namesrv")
    assert cli(*on_z, f"{first};{second}").code == 0
    until_served(cli, "T", first, second)

    async def run() -> None:
        async with ClusterClient(ClientConfig((first, second))) as client:
            producer = client.producer("P", PATIENT)
            await producer.send(OutgoingMessage("T", b"before"))
            await asyncio.to_thread(thread.stop, "a")
            client.forget_route("T")
            await producer.send(OutgoingMessage("T", b"after"))

    asyncio.run(run())
    both = f"{first};{second}"
    assert cli("send", "T", "--namesrv", both, "--body", "by a new client", "--timeout", "60").code == 0
    got = cli("consume", "T", "--namesrv", both, "--from-beginning", "--json")
    assert {row["body"] for row in got.lines} == {"before", "after", "by a new client"}
    assert cli("admin", "topic", "route", "T", "--namesrv", both).code == 0
    thread.stop("b")
    gone = cli("send", "T", "--namesrv", both, "--body", "x")
    assert (gone.code, gone.err.count("cannot connect to")) == (5, 2), gone
    assert gone.error_line.startswith("rstore: no name server answers: ")


def test_a_name_server_that_does_not_know_the_topic(cli: Cli, thread: DaemonThread) -> None:
    """As one that was started again, with which brokers have not registered yet."""
    ignorant, knowing = thread.names_of("w"), thread.names_of("z")
    assert cli("admin", "topic", "create", "T", "--namesrv", knowing, "--yes").code == 0
    for number, names in enumerate((f"{ignorant};{knowing}", f"{knowing};{ignorant}")):
        assert cli("send", "T", "--namesrv", names, "--body", str(number), "--timeout", "60").code == 0
        assert len(cli("consume", "T", "--namesrv", names, "--from-beginning", "--json").lines) == number + 1
    assert bodies(knowing, "T") == {b"0", b"1"}
    assert end_of(ignorant, "T") == 0
    none = cli("consume", "U", "--namesrv", f"{ignorant};{knowing}", "--from-beginning")
    assert (none.code, "no topic U in the cluster" in none.error_line) == (2, True), none


def test_what_is_no_name_server(cli: Cli, thread: DaemonThread, tmp_path: Path) -> None:
    """The port of a broker, and one of a web server: one line, whatever command it is."""
    broker = thread.start("a").broker
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        web = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=speak_http, args=(server,), daemon=True).start()
        for names in (broker, web):
            for words in (
                ("send", "T", "--body", "x"),
                ("consume", "T", "--from-beginning"),
                ("consume", "T", "--group", "G"),
                ("tail", "T", "-n", "1"),
                ("trace", "T", "key"),
                ("admin", "topic", "list"),
                ("admin", "topic", "create", "T", "--yes"),
            ):
                ran = cli(*words, "--namesrv", names)
                assert (ran.code, ran.out) == (5, ""), (words, ran)
                assert names in ran.error_line, (words, ran)
            copied = cli("copy", "--from", names, "--to", "127.0.0.1:1", "--progress", tmp_path / "map")
            assert (copied.code, copied.out) == (5, ""), copied
            assert copied.error_line


def speak_http(server: socket.socket) -> None:
    """Answer whatever comes as a web server would, until the socket is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(PATIENCE_S)
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_a_topic_that_no_broker_makes(cli: Cli, thread: DaemonThread) -> None:
    names = thread.names_of("a", {"autoCreateTopicEnable": "false"})
    ran = cli("send", "T", "--namesrv", names, "--body", "x")
    assert (ran.code, ran.out) == (1, ""), ran
    assert "no broker serves topic T, and none makes topics by itself" in ran.error_line


def test_a_broker_that_dies_while_messages_are_sent(cli: Cli, thread: DaemonThread, tmp_path: Path) -> None:
    """What was acknowledged is there when it is back, and the number that the command tells is not more."""
    names = thread.names_of("a", {"autoCreateTopicEnable": "false"})  # and nobody else takes the topic
    (tmp_path / "z").mkdir()
    broker = Process(tmp_path / "z" / "store", "--namesrv", names, more="brokerName=z\n")
    try:
        assert cli("admin", "topic", "create", "T", "--broker", "z", "--namesrv", names, "--yes").code == 0
        until_served(cli, "T", names)
        words = ("send", "T", "--namesrv", names, "--count", "1000000", "--size", "10", "--timeout", "2")
        with process(*words) as sending:
            try:
                deadline = time.monotonic() + PATIENCE_S
                while end_of(names, "T") < 50:
                    assert time.monotonic() < deadline
                broker.process.kill()
                out, err = sending.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                sending.kill()
                raise
    finally:
        broker.process.kill()
        broker.process.wait()
    assert (sending.returncode, out) == (5, ""), err
    *notes, last = err.splitlines()
    told = int(notes[-1].split()[0].replace(",", ""))
    assert last.startswith("rstore: ")
    assert notes[-1].endswith("messages were sent before"), err
    thread.start("z", names=names)
    assert end_of(names, "T") >= told >= 1


ACL = """\
accounts:
  - accessKey: reader-account
    secretKey: "12345678"
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


def test_an_account_that_a_broker_does_not_know(
    cli: Cli, thread: DaemonThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a group: its queues were tried to be shared out each second, without an end."""
    (tmp_path / "acl.yml").write_text(ACL)
    names = thread.names_of("a", {"aclEnable": "true", "rocketmq.acl.plain.file": str(tmp_path / "acl.yml")})
    monkeypatch.setenv("RSTORE_ACCESS_KEY", "reader-account")
    monkeypatch.setenv("RSTORE_SECRET_KEY", "12345678")
    assert cli("send", "T", "--namesrv", names, "--body", "x", "--timeout", "60").code == 0
    words = ("consume", "T", "--namesrv", names, "--group", "G", "--from-beginning", "-n", "1")
    for changed, reason in (("RSTORE_ACCESS_KEY", "No acl config for"), ("RSTORE_SECRET_KEY", "signature")):
        with process(*words, env={changed: "87654321"}) as refused:
            try:
                out, err = refused.communicate(timeout=PATIENCE_S)
            finally:
                refused.kill()
        assert (refused.returncode, out, reason in err.splitlines()[-1]) == (5, "", True), err
    assert cli(*words).code == 0


class _ForgetfulClient(ClusterClient):
    """Counts how often a route was forgotten: each queue's reader does before it waits."""

    forgotten = 0

    def forget_route(self, topic: str) -> None:
        self.forgotten += 1
        super().forget_route(topic)


@pytest.mark.parametrize("topics", [("T",), ()])
def test_a_broker_that_is_away_for_a_while_is_followed_again(
    topics: tuple[str, ...], cli: Cli, thread: DaemonThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where no name server has a route meanwhile: it ended the reading, that of all topics without a word."""
    names = thread.names_of("a", {"autoCreateTopicEnable": "false"})
    thread.start("z", names=names)
    assert cli("admin", "topic", "create", "T", "--broker", "z", "--namesrv", names, "--yes").code == 0

    async def shown(client: ClusterClient, messages: AsyncGenerator[ReceivedMessage], body: bytes) -> None:
        async def sends() -> None:
            while True:
                await client.producer("P", PATIENT).send(OutgoingMessage("T", body))
                await asyncio.sleep(0.05)

        sending = asyncio.create_task(sends())
        try:
            async for message in messages:
                if message.body == body:
                    return
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def has_route(client: ClusterClient) -> bool:
        try:
            await client.names.route("T")
        except NoRoute:
            return False
        return True

    async def run() -> None:
        async with (
            _ForgetfulClient(ClientConfig((names,), route_period_s=0.05), logging.getLogger("away")) as client,
            aclosing(ClusterTail(client, topics).messages()) as messages,
            asyncio.timeout(2 * PATIENCE_S),
        ):
            while not await has_route(client):  # the broker registers the topic a moment after it is made
                await asyncio.sleep(0.05)
            await shown(client, messages, b"before")
            await asyncio.to_thread(thread.stop, "z")
            while await has_route(client):
                await asyncio.sleep(0.05)
            met = client.forgotten + 12  # each of four queues has met it
            while client.forgotten < met:
                await asyncio.sleep(0.05)
            lost = [one.getMessage() for one in caplog.records if one.name == "away" and one.levelname == "WARNING"]
            if topics:  # it is said for each topic
                assert len([text for text in lost if not text.startswith("a heartbeat")]) == 1
            await asyncio.to_thread(thread.start, "z", names=names)
            while not await has_route(client):
                await asyncio.sleep(0.05)
            await shown(client, messages, b"after")

    asyncio.run(run())


def test_a_queue_that_is_not_there(cli: Cli, thread: DaemonThread) -> None:
    names = thread.names_of("a")
    assert cli("send", "T", "--namesrv", names, "--body", "x", "--timeout", "60").code == 0
    ran = cli("consume", "T", "--namesrv", names, "--from-beginning", "--queue", "99")
    assert (ran.code, ran.out, ran.err) == (1, "", "rstore: topic T has no queue 99\n")
