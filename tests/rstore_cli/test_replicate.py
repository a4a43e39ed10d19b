"""`rstore replicate` of a daemon of ours, and what commands and watchers are told of masters and slaves."""

from __future__ import annotations

import json
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.client import master_tables
from engine.config import StoreConfig, parse
from engine.format.message import Message
from engine.store import MessageStore
from tests.engine.broker import certificates
from tests.engine.broker.acl.accounts import acl_file
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import CONF, Process, put


def config(root: Path) -> StoreConfig:
    return parse(CONF, StoreConfig(store_path_root_dir=root))


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def fill(root: Path, count: int, size: int = 1000) -> int:
    """A store with messages; where its log ends."""
    with MessageStore.open(config(root)) as store:
        for i in range(count):
            assert store.put(Message("T", b"%04d" % (i % 10_000) * (size // 4))).ok
        return store.log.max_offset


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A daemon with two files of log."""
    root = tmp_path_factory.mktemp("master") / "store"
    fill(root, 500, 10_000)
    found = Process(root)
    yield found
    assert found.stop() == 0
    assert_sound(config(root))


def words(master: Process, copy: Path, *more: str) -> list[str]:
    return ["--store", str(copy), "--json", "replicate", "--from", master.where["broker"], *more]


def log_of(root: Path, start: int = 0) -> bytes:
    """What records and blanks are of a log: zeros at its end don't count."""
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files if int(path.name) >= start).rstrip(b"\0")


@pytest.mark.parametrize("name", ["haListenPort", "mappedFileSizeCommitLog", "maxIndexNum"])
@pytest.mark.parametrize("said", ["x", "-1", "1" * 5000, "٣"])
def test_a_broker_whose_settings_are_no_numbers(
    cli: Cli, master: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    async def settings(client: object) -> dict[str, str]:
        return {name: said}

    monkeypatch.setattr(master_tables, "settings", settings)
    found = cli(*words(master, tmp_path / "copy", "--until-caught-up"))
    assert (found.code, "Traceback" in found.err) == (4, False), found.err
    assert f"the broker sent an invalid {name}" in found.err
    assert not (tmp_path / "copy").exists()


def test_a_copy_goes_on_where_it_was(cli: Cli, master: Process, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    first = cli(*words(master, copy, "--until-caught-up"))
    assert first.code == 0, first.err
    assert first.json["start"] == 0
    assert first.json["end"] == first.json["masterEnd"] == first.json["verified"]
    assert first.json["appended"] == first.json["end"] - 1
    assert first.json["status"] == "following"
    assert "topics.json" in first.json["tables"]
    assert log_of(copy) == log_of(master.root)
    assert_sound(config(copy))
    put(master.where["broker"], 5)
    again = cli(*words(master, copy, "--until-caught-up", "--compare", "all"))
    assert again.code == 0
    assert again.json["compared"] == first.json["end"] - 1
    assert 0 < again.json["appended"] < 5000
    assert log_of(copy) == log_of(master.root)
    assert_sound(config(copy))


def test_the_last_file_alone(cli: Cli, master: Process, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    found = cli(*words(master, copy, "--until-caught-up", "--last-file", "--no-tables"))
    assert found.code == 0
    assert found.json["start"] == 4 << 20
    assert found.json["tables"] == []
    assert not (copy / "config").exists()
    assert log_of(copy) == log_of(master.root, 4 << 20)
    assert_sound(config(copy))


def test_a_throttle_holds_back_and_ctrl_c_says_how_to_go_on(master: Process, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    command = [sys.executable, "-m", "rstore_cli.app", *words(master, copy, "--throttle", "256K")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: (copy / "commitlog").exists() and len(log_of(copy)) > 1 << 17)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == 130
    assert "run the same command again to resume" in said
    assert "Traceback" not in said
    assert 1 << 17 < len(log_of(copy)) < 3 << 20  # of 5 MiB, which take 20 s
    assert_sound(config(copy))


def test_what_stops_it(cli: Cli, master: Process, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    nobody = cli("--store", copy, "replicate", "--from", "127.0.0.1:1", "--until-caught-up")
    assert nobody.code == 5
    assert "cannot connect to 127.0.0.1:1" in nobody.error_line
    for wrong in (["--from", "nowhere"], ["--from", "a:1", "--throttle", "0"], ["--from", "a:1", "--compare", "x"]):
        assert cli("--store", copy, "replicate", *wrong).code == 2

    end = fill(copy, 20)
    parted = cli(*words(master, copy, "--until-caught-up"))
    assert parted.code == 4
    error = json.loads(parted.out or parted.err)["error"]
    ours, theirs = log_of(copy), log_of(master.root)
    assert error["offset"] == next(i for i in range(1, end) if ours[i] != theirs[i])

    with MessageStore.open(config(copy)):
        held = cli(*words(master, copy, "--until-caught-up"))
    assert held.code == 3


def test_a_full_disk(master: Process, tmp_path: Path) -> None:
    """Files may not grow beyond a limit: what the system says of a disk without room is told the same way."""
    copy = tmp_path / "copy"
    line = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); import signal;"
    line += " signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from rstore_cli.app import main; import sys;"
    line += " sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", line, *words(master, copy, "--until-caught-up")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 5, ran.stderr
    assert "too large" in ran.stderr + ran.stdout
    assert "Traceback" not in ran.stderr


def get(where: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def slave_of(master: Process, root: Path) -> Process:
    options = ("--role", "slave", "--master", master.where["broker"], "--no-names", "--metrics-port", "0")
    more = f"haMasterAddress={master.where['ha']}\nhaSendHeartbeatInterval=300\n"
    return Process(root, *options, more=more)


def test_what_is_told_of_a_master_and_its_slave(cli: Cli, master: Process, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")

    def seen() -> dict[str, Any]:
        found: dict[str, Any] = cli("--json", "status", "--store", slave.root).json["daemon"]["replication"]
        return found

    until(lambda: seen()["copied"]["state"] == "following" and seen()["copied"]["lag"] == 0)
    told = seen()
    assert (told["role"], told["slaves"], told["copied"]["error"]) == ("SLAVE", [], None)

    def ours() -> dict[str, Any]:
        found: dict[str, Any] = cli("--json", "status", "--store", master.root).json["daemon"]["replication"]
        return found

    assert ours()["role"] == "ASYNC_MASTER"
    until(lambda: [one["lag"] for one in ours()["slaves"]] == [0])  # once the slave's report has come
    assert ": lag 0 bytes" in cli("status", "--store", master.root).out
    assert f"{master.where['ha']}: following, lag 0 " in cli("status", "--store", slave.root).out
    assert "slave of" in cli("top", "--store", slave.root, "--once", "-i", "0.1").out
    _, text = get(slave.where["metrics"], "/metrics")
    assert 'rstore_replication_state{state="following"} 1.0' in text
    assert 'rstore_replication_state{state="away"} 0.0' in text
    assert "rstore_replication_behind_bytes 0.0" in text
    assert get(slave.where["metrics"], "/health")[0] == 200
    began = time.monotonic()
    assert slave.stop() == 0
    assert time.monotonic() - began < 30
    assert not (slave.root / "abort").exists()
    assert_sound(config(slave.root))


def test_a_diverged_slave_is_not_well(cli: Cli, master: Process, tmp_path: Path) -> None:
    root = tmp_path / "slave"
    fill(root, 20)
    slave = slave_of(master, root)
    until(lambda: get(slave.where["metrics"], "/health")[0] == 503)
    (reason,) = json.loads(get(slave.where["metrics"], "/health")[1])["reasons"]
    assert reason["code"] == "diverged"
    assert "their bytes differ" in reason["message"]
    assert "diverged" in cli("status", "--store", root).out
    assert slave.stop() == 0
    assert_sound(config(root))


def test_a_master_that_stops_while_its_slave_is_there(tmp_path: Path) -> None:
    for name in ("m", "s"):
        (tmp_path / name).mkdir()
    master = Process(tmp_path / "m" / "store")
    slave = slave_of(master, tmp_path / "s" / "store")
    assert put(master.where["broker"], 20) == 20
    until(lambda: (slave.root / "commitlog").exists() and log_of(slave.root) == log_of(master.root))
    began = time.monotonic()
    assert master.stop() == 0
    assert time.monotonic() - began < 30
    assert not (master.root / "abort").exists()
    assert get(slave.where["metrics"], "/health")[0] == 200  # it serves what it has
    assert slave.stop() == 0
    for one in (master, slave):
        assert_sound(config(one.root))


NOISE = random.Random(7).randbytes(1 << 16)


@contextmanager
def noise() -> Iterator[int]:
    """A replication port that sends random bytes to whoever reports."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, suppress(OSError):
                    client.recv(8)
                    client.sendall(struct.pack(">qi", 1, 4096) + NOISE)
                    client.recv(8)

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_faulty_master_is_named_and_nothing_of_it_is_kept(cli: Cli, master: Process, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with noise() as port:
        found = cli(*words(master, copy, "--ha-port", str(port), "--until-caught-up", "--no-tables"))
    assert (found.code, "Traceback" in found.err) == (4, False), found.err
    assert "the master sent no sound record: no message magic" in (found.out + found.err)
    assert not list((copy / "commitlog").iterdir())


def test_status_of_a_slave_names_the_fault_of_its_master(cli: Cli, tmp_path: Path) -> None:
    with noise() as port:
        more = f"brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:{port}\n"
        slave = Process(tmp_path / "slave", more=more)
        try:
            until(lambda: "faulty" in cli("--store", slave.root, "status").out)
            shown = cli("--store", slave.root, "status").out
            assert f"127.0.0.1:{port}: faulty" in shown
            assert "the master sent no sound record" in " ".join(shown.split())
        finally:
            assert slave.stop() == 0
    assert_sound(config(slave.root))


def test_a_copy_by_tls_and_a_doctor_who_sees_a_port_that_is_open(cli: Cli, tmp_path: Path) -> None:
    """The master takes TLS with a certificate alone, on both ports; another one is open for slaves by hand."""
    made = certificates.make(tmp_path / "certificates")
    fill(tmp_path / "store", 50)
    tls = ("--tls-mode", "enforcing", "--tls-cert", made.cert, "--tls-key", made.key)
    shown = (*tls, "--tls-client-auth", "require", "--tls-ca", made.authority)
    master = Process(tmp_path / "store", "--ha-tls", *shown)
    try:
        plain = cli(*words(master, tmp_path / "copy", "--until-caught-up"))
        assert plain.code == 5
        more = ("--ha-tls", "--tls-ca", made.authority, "--tls-cert", made.client_cert, "--tls-key", made.client_key)
        found = cli(*words(master, tmp_path / "copy", "--until-caught-up", *more))
        assert found.code == 0, found.err
        assert log_of(tmp_path / "copy") == log_of(master.root)
        assert "topics.json" in found.json["tables"]
        assert "ha-open" not in codes(cli, master)
    finally:
        assert master.stop() == 0
    master = Process(tmp_path / "store", "--ha-listen", "0.0.0.0", *shown)
    try:
        assert "ha-open" in codes(cli, master)
    finally:
        assert master.stop() == 0
    for root in ("store", "copy"):
        assert_sound(config(tmp_path / root))


def test_a_copy_of_a_broker_that_demands_an_account(cli: Cli, tmp_path: Path) -> None:
    """Signed with an account that is no admin; the log itself needs no signature, its extent and the tables do."""
    fill(tmp_path / "store", 50)
    accounts = acl_file(tmp_path)
    master = Process(tmp_path / "store", "--acl", accounts)
    try:
        refused = cli(*words(master, tmp_path / "copy", "--until-caught-up"))
        assert (refused.code, "No accessKey is configured" in refused.err) == (5, True), refused
        unread = cli(*words(master, tmp_path / "copy", "--until-caught-up", "--acl", str(tmp_path / "none.yml")))
        assert (unread.code, "none.yml" in unread.error_line) == (2, True), unread
        found = cli(*words(master, tmp_path / "copy", "--until-caught-up", "--acl", accounts))
        assert found.code == 0, found.err
        assert log_of(tmp_path / "copy") == log_of(master.root)
        assert {"topics.json", "consumerOffset.json"} <= set(found.json["tables"])
    finally:
        assert master.stop() == 0
    for root in ("store", "copy"):
        assert_sound(config(tmp_path / root))


def codes(cli: Cli, master: Process) -> list[str]:
    """What doctor finds beside a daemon."""
    return [one["code"] for one in cli("--store", master.root, "--json", "doctor").json["findings"]]
