"""Commands beside a running daemon: those that ask it, those that read, those that are refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from engine.config import StoreConfig, parse
from engine.files import local_socket
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from rstore_cli import daemon_log
from rstore_cli.daemon_log import Format, Level, Rarely, begin
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import CONF, Process, root

__all__ = ["root"]

MANY = 9
"""Messages of 1 MiB: three log files."""
BUSY = ("the loop was held", "slow put: puts moved to worker thread")
"""What the log says on a busy machine, whatever the daemon does."""


@pytest.fixture
def daemon(root: Path) -> Iterator[Process]:
    found = Process(root, "--metrics-port", "0", "--log-file", str(root.parent / "log"))
    yield found
    if found.process.poll() is None:
        assert found.stop() == 0
    assert not (root / "rstore.sock").exists()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One with messages, for all that only ask it."""
    root = tmp_path_factory.mktemp("filled") / "store"
    found = Process(root, "--metrics-port", "0")
    fill(found.where["broker"])
    yield found
    assert found.stop() == 0
    assert_sound(parse(CONF, StoreConfig(store_path_root_dir=root)))


def fill(where: str, size: int = 1 << 20) -> None:
    async def run() -> None:
        client = await Client.to(where)
        for _ in range(MANY):
            assert (await client.ask(310, send_fields("T"), bytes(size))).code == 0
        await client.until_there("T", MANY)
        await client.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"})

    asyncio.run(run())


def test_expire_plans_here_and_deletes_in_the_daemon(filled: Process, cli: Cli) -> None:
    root, daemon = filled.root, filled
    assert cli("flush", "--store", root).code == 0  # a later flush would make the files young again
    files = sorted((root / "commitlog").iterdir())[:3]
    for path in files[:2]:
        os.utime(path, (0, 0))
    assert cli("expire", "--store", root, "--dry-run", "--reserved-hours", "1").code in (0, 1)  # 1 at four o'clock
    words = ("expire", "--store", root, "--force", "--reserved-hours", "1", "--json")
    planned = cli(*words, "--dry-run")
    assert (planned.code, len(planned.json["filesRemoved"])) == (1, 2)
    assert planned.json["minOffset"] == 8 << 20
    assert planned.err == ""
    assert cli(*words).code == 2  # nobody is here to answer
    done = cli(*words, "--yes")
    assert (done.code, done.json) == (0, planned.json)
    assert [path.exists() for path in files] == [False, False, True]
    again = cli(*words, "--yes")
    assert (again.code, again.json["changed"]) == (0, False)
    assert "still being written" in again.json["keptBecause"]

    async def run() -> str:
        client = await Client.to(daemon.where["broker"])
        return (await client.ask(31, {"topic": "T", "queueId": "0"})).fields["offset"]

    assert asyncio.run(run()) == "6"


def test_status_and_flush_ask_it_readers_go_on_and_changes_are_told_its_pid(filled: Process, cli: Cli) -> None:
    root, daemon = filled.root, filled
    flushed = cli("flush", "--store", root, "--json")
    assert (flushed.code, flushed.json["by"], flushed.json["complete"]) == (0, "daemon", True)
    assert flushed.json["flushed"] == flushed.json["dispatched"] > MANY << 20
    assert cli("flush", "--store", root).out.startswith(f"The log is on disk up to {flushed.json['flushed']}")
    live = cli("status", "--store", root, "--json").json["daemon"]
    assert live["pid"] == daemon.process.pid
    assert live["topics"]["T"]["putMessages"] == MANY
    (group,) = live["groups"]
    assert (group["group"], group["topic"], group["members"]) == ("G", "T", 0)
    assert 0 < group["lag"] < MANY
    text = cli("status", "--store", root).out
    assert f"process {daemon.process.pid} at {daemon.where['broker']}" in text
    assert "health      healthy" in text
    with urllib.request.urlopen(f"http://{daemon.where['metrics']}/metrics") as answer:
        assert b'rstore_put_messages_total{topic="T"} 9.0' in answer.read()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{daemon.where['metrics']}/status")
    for words in (("get", "T", "0"), ("verify-crc",), ("dump", "commitlog"), ("dump", "index"), ("doctor",)):
        assert cli(*words, "--store", root).code == 0, words
    for words in (("recover",), ("truncate", "--to-offset", "0", "--yes"), ("put", "T", "--body", "x"), ("reindex",)):
        refused = cli(*words, "--store", root)
        assert refused.code == 3, words
        assert f"the store is locked by process {daemon.process.pid}" in refused.error_line


def test_stopped_at_once_with_clients_and_held_pulls(root: Path, daemon: Process) -> None:
    async def run() -> float:
        clients = [await Client.to(daemon.where["broker"]) for _ in range(20)]
        await clients[0].put("T", b"x")
        await clients[0].until_there("T", 1)
        held = [one.send(11, pull_fields("T", 1, wait_ms=600_000)) for one in clients for _ in range(10)]
        await clients[0].ask(30, {"topic": "T", "queueId": "0"})
        began = time.monotonic()
        assert await asyncio.to_thread(daemon.stop) == 0
        took = time.monotonic() - began
        assert (await clients[-1].answer(held[-1])).code == 19
        return took

    assert asyncio.run(run()) < 60  # the pulls are held for ten minutes, and a busy machine takes seconds
    assert not (root / "abort").exists()
    lines = [json.loads(line) for line in (root.parent / "log").read_text().splitlines()]
    lines = [line for line in lines if line["message"] not in BUSY]
    assert [line["message"] for line in lines] == ["serving", "stopping", "stopped: the store is closed"]
    assert {line["level"] for line in lines} == {"INFO"}
    assert lines[0]["broker"] == daemon.where["broker"]
    assert lines[1]["max_offset"] > lines[0]["max_offset"] == 0


def test_a_killed_one_leaves_a_socket_that_harms_nobody(root: Path, daemon: Process, cli: Cli) -> None:
    fill(daemon.where["broker"], 100)
    daemon.process.kill()
    daemon.process.wait()
    assert stat.S_ISSOCK((root / "rstore.sock").stat().st_mode)
    assert cli("status", "--store", root, "--json").json["daemon"] is None
    assert cli("recover", "--store", root, "--yes").code == 0
    assert cli("check", "--store", root).code == 0
    assert cli("doctor", "--store", root).code == 0
    synced = cli("flush", "--store", root)
    assert synced.code == 0
    assert synced.out.startswith("No daemon runs on the store:")
    again = Process(root)
    assert cli("status", "--store", root, "--json").json["daemon"]["pid"] == again.process.pid
    assert again.stop() == 0


def test_flush_without_a_daemon(new_store: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("put", "T", "--body", "x", "--store", new_store).code == 0
    assert cli("flush", "--store", new_store, "--json").json["files"] >= 3
    with StoreLock(Disk(), str(new_store)):
        refused = cli("flush", "--store", new_store)
        assert refused.code == 3
        assert str(os.getpid()) in refused.error_line
        assert cli("expire", "--store", new_store, "--force", "--yes").code == 3
    assert cli("flush", "--store", tmp_path / "nothing").code == 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "broke during its answer"),
        (b"\0\0\0\0", "broke during its answer"),
        (b'HTTP/1.1 500 No\r\nContent-Length: 85\r\n\r\n{"error":{"code":"io","message":"it broke","path":null,'
         b'"offset":null,"hint":null,"exit":5}}', "it broke"),
    ],
)  # fmt: skip
def test_a_daemon_that_fails(new_store: Path, cli: Cli, answer: bytes, said: str) -> None:
    listener = local_socket.listen_at(str(new_store / "rstore.sock"))
    listener.setblocking(True)

    def serve() -> None:
        one, _ = listener.accept()
        one.recv(1 << 16)
        one.sendall(answer.replace(b": 85", b": %d" % len(answer.partition(b"\r\n\r\n")[2])))
        one.shutdown(socket.SHUT_RDWR)
        one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    failed = cli("flush", "--store", new_store)
    thread.join()
    listener.close()
    assert (failed.code, said in failed.error_line) == (5, True)


@pytest.mark.usefixtures("_log_as_before")
def test_a_log_file_that_can_not_be_opened(cli: Cli, new_store: Path) -> None:
    failed = cli("serve", "--store", new_store, "--log-file", new_store / "none" / "log")
    assert failed.code == 5
    assert "opening the log file" in failed.error_line


@pytest.fixture
def _log_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("rstore", "asyncio", "aiohttp")]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("_log_as_before")
def test_lines_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("rstore.serve")
    for form in Format:
        begin(Level.WARNING, form, None)
        log.info("nobody cares")
        for peer in ("1.2.3.4:5", "1.2.3.4:6", "1.2.3.4:7"):
            log.warning("refused", extra={"peer": peer, "why": "\x1b[31m"})
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("failed")
    json_lines, text = capfd.readouterr().err.split("\n2", 1)
    one, two = map(json.loads, json_lines.splitlines())
    assert (one["level"], one["message"], one["peer"], one["why"]) == ("WARNING", "refused", "1.2.3.4:5", "\x1b[31m")
    assert datetime.fromisoformat(one["time"]).tzinfo is not None
    assert two["traceback"].endswith("ValueError: why")
    assert " WARNING refused (peer=1.2.3.4:5, why=\\x1b[31m)\n" in text
    assert "\x1b" not in text
    assert text.count("refused") == 1
    assert text.endswith("ValueError: why\n")


def test_what_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(daemon_log, "monotonic", lambda: now[0])
    rarely = Rarely()
    passed = []
    for _ in range(25):
        record = logging.makeLogRecord({"msg": "refused", "why": "OVERLOAD"})
        if rarely.filter(record):
            passed.append((now[0], getattr(record, "more", 0)))
        now[0] += 0.125
    assert passed == [(0.0, 0), (1.0, 7), (2.0, 7), (3.0, 7)]
    assert rarely.filter(logging.makeLogRecord({"msg": "refused", "why": "REJECTREQUEST"}))


def test_expire_archives_before_the_daemon_deletes(
    daemon: Process, root: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = ("--repo", tmp_path / "repo")
    fill(daemon.where["broker"])
    assert cli("backup", "init", *repo, "--unencrypted").code == 0
    assert cli("flush", "--store", root).code == 0
    get = ("get", "--store", root, "T", "0", "--count", "1000", "--json")
    before = [{**row, "archived": None} for row in cli(*get).lines]
    monkeypatch.setenv("RSTORE_ARCHIVE", str(tmp_path / "repo"))
    files = sorted((root / "commitlog").iterdir())[:3]
    for path in files[:2]:
        os.utime(path, (0, 0))
    words = ("expire", "--store", root, "--force", "--reserved-hours", "1", "--json", "--yes")
    assert cli(*words).json["archived"] == 0
    assert cli("backup", "create", "--store", root, *repo).code == 0
    done = cli(*words)
    assert (done.code, done.json["archived"]) == (0, 2)
    assert [path.exists() for path in files] == [False, False, True]
    after = cli(*get).lines
    assert [row["archived"] for row in after] == [row["physicalOffset"] < 8 << 20 for row in after]
    assert [{**row, "archived": None} for row in after] == before
