"""`rstore serve` as a process: ready, refused a second time, stopped, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.broker_conf.properties import read_properties
from engine.config import StoreConfig
from engine.format.message import decode
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.engine.opening import assert_sound
from tests.load.ports import free_ports
from tests.support.patience import patient_conf

CONF = "mappedFileSizeCommitLog=4194304\nmaxMessageSize=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=5000\n"


def command(root: Path, *words: str, more: str = "") -> list[str]:
    conf = root.parent / "broker.conf"
    conf.write_text(CONF + patient_conf() + more)
    return [sys.executable, "-m", "rstore_cli.app", "serve", "--store", str(root), "-c", str(conf), *words]


class Process:
    """A daemon, and where it listens."""

    def __init__(self, root: Path, *options: str, more: str = "", **how: Any) -> None:
        words = command(root, "--json", "--port", "0", "--names-port", "0", *options, more=more)
        self.root = root
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **how)
        assert self.process.stdout is not None
        self.where = json.loads(self.process.stdout.readline())

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "store"
    yield root
    assert_sound(
        StoreConfig(store_path_root_dir=root).with_changes(
            mapped_file_size_commit_log=4 << 20, max_hash_slot_num=1000, max_index_num=5000
        )
    )


def put(where: str, count: int) -> int:
    """Messages that were acknowledged."""

    async def run() -> int:
        client = await Client.to(where)
        done = 0
        for i in range(count):
            answer = await client.ask(310, send_fields("T"), b"%d" % i)
            done += answer.code == 0
        return done

    return asyncio.run(run())


def stored(where: str) -> int:
    async def run() -> int:
        client = await Client.to(where)
        await client.until_there("T", 1)
        return int((await client.ask(30, {"topic": "T", "queueId": "0"})).fields["offset"])

    return asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_clean_stop(root: Path, number: int) -> None:
    daemon = Process(root)
    assert (root / "abort").exists()
    assert put(daemon.where["broker"], 3) == 3
    assert daemon.stop(number) == 0
    assert not (root / "abort").exists()


def test_a_second_start_and_commands_are_refused(root: Path) -> None:
    daemon = Process(root, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    daemon.process.send_signal(signal.SIGHUP)  # under nohup it goes on
    second = subprocess.run(command(root, "--port", "0", "--no-names"), capture_output=True, text=True, check=False)
    assert second.returncode == 3
    assert second.stderr.count("\n") == 1
    cut = [sys.executable, "-m", "rstore_cli.app", "recover", "--store", str(root)]
    assert subprocess.run(cut, capture_output=True, check=False).returncode == 3
    assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("which", "option"),
    [
        ("broker", "use another port: --port or listenPort"),
        ("vip", "use another port: two below --port or listenPort"),
        ("ha", "use another port: one above --port or listenPort"),
        ("names", "use another port: --names-port, or --no-names"),
        ("metrics", "use another port: --metrics-port"),
    ],
)
def test_a_port_that_is_taken_leaves_no_new_store(which: str, option: str, root: Path) -> None:
    first, names, metrics = free_ports(3)
    port = {"broker": first, "vip": first - 2, "ha": first + 1, "names": names, "metrics": metrics}[which]
    words = ("--port", str(first), "--names-port", str(names), "--metrics-port", str(metrics))
    with socket.create_server(("127.0.0.1", port)):
        done = subprocess.run(command(root, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert f"ss -ltnp 'sport = :{port}'" in done.stderr
    assert option in done.stderr
    assert done.stderr.count("\n") == 1
    assert not root.exists()
    assert Process(root, *words).stop() == 0


@pytest.mark.parametrize(
    ("port", "why"),
    [
        ("1", "invalid port -1 (two below --port or listenPort)"),
        ("65535", "invalid port 65536 (one above --port or listenPort)"),
        ("{names}", "port {names} is used twice: --port or listenPort, and --names-port, or --no-names"),
    ],
)
def test_ports_that_can_not_be_leave_no_new_store(port: str, why: str, tmp_path: Path) -> None:
    """Whoever has them: a mistake of the command line is told before what this machine lacks."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = taken.getsockname()[1]
        port, why = port.format(names=names), why.format(names=names)
        words = command(tmp_path / "store", "--port", port, "--names-port", str(names))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert why in done.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", ["a..b", "é" * 70, "no.such.host.invalid"])
def test_a_name_that_no_address_has_leaves_no_new_store(name: str, tmp_path: Path) -> None:
    words = command(tmp_path / "store", "--port", "19876", "--no-names", "--listen", name)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert f"cannot listen on {name}:19876: " in done.stderr
    assert "use --listen with an address of this machine" in done.stderr
    assert not (tmp_path / "store").exists()


def test_every_port_is_open_on_an_address_of_ipv6(root: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this system has no IPv6")
    first, names, metrics = free_ports(3)
    words = ("--port", str(first), "--names-port", str(names), "--metrics-port", str(metrics), "--listen", "::1")
    daemon = Process(root, *words)
    for port in (first, first - 2, first + 1, names, metrics):
        socket.create_connection(("::1", port), 10).close()
    assert daemon.stop() == 0


def test_the_same_store_and_ports_again_is_told_of_the_store(root: Path) -> None:
    first, names = free_ports(2)
    words = ("--port", str(first), "--names-port", str(names))
    daemon = Process(root, *words)
    second = subprocess.run(command(root, *words), capture_output=True, text=True, check=False)
    assert second.returncode == 3
    assert str(daemon.process.pid) in second.stderr
    assert daemon.stop() == 0


def test_killed_and_started_again(root: Path) -> None:
    log = root.parent / "serve.log"
    daemon = Process(root, "--log-file", str(log))
    done = put(daemon.where["broker"], 500)
    daemon.process.kill()
    daemon.process.wait()
    assert (root / "abort").exists()
    again = Process(root, "--log-file", str(log))
    assert stored(again.where["broker"]) == done == 500
    assert again.stop() == 0
    assert Process(root, "--log-file", str(log)).stop() == 0
    told = [line for line in map(json.loads, log.read_text().splitlines()) if line["message"].startswith("recovered")]
    (killed,) = told  # and nothing of the starts on a new store and on a closed one
    assert killed["level"] == "WARNING"
    assert killed["message"] == "recovered: the store was not closed (process killed, or power loss)"
    assert (killed["records"], killed["bytes_cut"]) == (500, 0)
    assert killed["max_offset"] > 500 * 100
    assert killed["saved"] is None or Path(killed["saved"]).is_dir()


def test_killed_while_many_send_with_sync_flush(root: Path) -> None:
    """All that was acknowledged is there afterwards."""
    daemon = Process(root, more="flushDiskType=SYNC_FLUSH\n")
    acknowledged: list[bytes] = []

    async def send(number: int) -> None:
        client = await Client.to(daemon.where["broker"])
        try:
            for i in range(100_000):
                body = b"%d-%d" % (number, i)
                if (await client.ask(310, send_fields("T"), body)).code == 0:
                    acknowledged.append(body)
        except (EOFError, ConnectionError, TimeoutError):
            return

    async def run() -> None:
        senders = [asyncio.create_task(send(number)) for number in range(8)]
        while len(acknowledged) < 300:
            await asyncio.sleep(0.01)
        daemon.process.kill()
        await asyncio.gather(*senders)

    asyncio.run(run())
    daemon.process.wait()
    again = Process(root)

    async def read() -> set[bytes]:
        client, found, offset = await Client.to(again.where["broker"]), set(), 0
        await client.until_there("T", len(acknowledged))
        while (answer := await client.ask(11, pull_fields("T", offset))).code == 0:
            offset = int(answer.fields["nextBeginOffset"])
            at = 0
            while at < len(answer.body):
                message = decode(answer.body[at:])
                found.add(message.body)
                at += message.total_size
        return found

    assert asyncio.run(read()) >= set(acknowledged)
    assert again.stop() == 0


def test_what_people_read(root: Path) -> None:
    """With a brokerIP1 as a broker.conf has it: where we listen is not where clients are sent."""
    process = subprocess.Popen(
        command(root, "--port", "0", "--no-names", "--metrics-port", "0", more="brokerIP1=192.0.2.7\n"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    (found,) = re.findall(
        r"The broker listens on 127\.0\.0\.1:(\d+); clients connect to 192\.0\.2\.7:(\d+)\.\n", lines[0]
    )
    assert found[0] == found[1]
    (url,) = re.findall(r"at (http://127\.0\.0\.1:\d+/)\.", lines[2])
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert "/metrics" in answer.read().decode()
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "only 127.0.0.1 is listened on: add --listen 0.0.0.0" in stderr


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [(("--tls-cert", "nothing.pem"), 5, "nothing.pem"), (("--acl", "broken.yml"), 2, "line 3: not YAML")],
)
def test_who_is_let_in_must_make_sense(tmp_path: Path, words: tuple[str, str], code: int, what: str) -> None:
    """It is judged before the store is opened."""
    (tmp_path / "broken.yml").write_text("accounts:\n  - accessKey: [\n")
    words = (words[0], str(tmp_path / words[1]))
    done = subprocess.run(command(tmp_path / "store", *words), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert what in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_open_to_all_is_one_line(root: Path) -> None:
    words = ("--listen", "0.0.0.0", "--port", "0", "--no-names", "--log-level", "warning")
    said = command(root, *words, more="brokerIP1=192.0.2.7\n")
    process = subprocess.Popen(said, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "without ACL or client certificates" in stderr
    assert stderr.count("\n") == 1


def test_who_is_allowed_on_the_command_line_overrides_the_file(root: Path) -> None:
    """Lists and aclStrict, and what comes of it: the name server is written from that address alone."""
    words = ("--names-allow", "127.0.0.2", "--admin-allow", "10.0.0.7, fd00::/8", "--no-acl-strict")
    daemon = Process(root, *words, more="namesAllow=127.0.0.1\nadminAllow=10.9.9.9\naclStrict=true\n")

    async def run() -> tuple[dict[str, str], int, int]:
        told = bytes((await (await Client.to(daemon.where["broker"])).ask(26)).body)
        settings = dict(read_properties(told).values)
        host, _, port = daemon.where["nameService"].rpartition(":")
        entry = {"namespace": "N", "key": "k", "value": "v"}
        refused = (await (await Client.to(daemon.where["nameService"])).ask(100, entry)).code
        local = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
        return settings, refused, (await Client(*local).ask(100, entry)).code

    settings, refused, allowed = asyncio.run(run())
    assert daemon.stop() == 0
    there = (settings["namesAllow"], settings["adminAllow"], settings["aclStrict"])
    assert there == ("127.0.0.2", "10.0.0.7, fd00::/8", "false")
    assert (refused, allowed) == (16, 0)


@pytest.mark.parametrize("option", ["--names-allow", "--admin-allow", "--ha-allow"])
def test_lists_of_the_command_line_must_make_sense(tmp_path: Path, option: str) -> None:
    """The message names what was typed; nothing was opened."""
    done = subprocess.run(command(tmp_path / "store", option, "10.0.0.*"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{option}: '10.0.0.*' is neither an IP address nor a network" in done.stderr
    assert not (tmp_path / "store").exists()
