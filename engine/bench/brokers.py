"""Brokers to be loaded, each with a name service, as processes: ours, and Apache's own.

Apache's broker and name server are of 4.9.7, on the store, client and wire of 4.9.8: of 4.9.8 they were not published,
and differ in two administrative handlers alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.bench.apache import OPENS, Apache
from engine.errors import StorageError
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from engine.wire.frames import FrameReader, encode

START_S = 60.0
STOP_S = 60.0
_NAMES_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
_SILENT = '<configuration><appender name="N" class="ch.qos.logback.core.helpers.NOPAppender"/></configuration>'
_LOGS = ("logback_broker.xml", "logback_namesrv.xml")
_AROUND = (-2, 0, 1)
"""Ports that a broker takes, from its own on: VIP, itself, HA."""


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that answers: its name service's `ip:port`, and its process."""

    names: str
    pid: int


@contextlib.contextmanager
def ours(program: Sequence[str], place: Path, settings: Mapping[str, str]) -> Iterator[Running]:
    """`rstore serve` on an empty store in `place`. Raises StorageError: it does not start, or does not stop cleanly."""
    port = free_port()
    conf = _written(place / "broker.conf", {"listenPort": str(port), **settings})
    names = free_port()
    words = [*program, "serve", "--store", str(place / "store"), "-c", str(conf), "--names-port", str(names)]
    with _process(words, place / "broker.log") as process:
        yield _ready(process, f"127.0.0.1:{names}", place / "broker.log")
        _stopped(process, place / "broker.log")


@contextlib.contextmanager
def theirs(peer: Apache, place: Path, settings: Mapping[str, str]) -> Iterator[Running]:
    """Apache's name server and broker on an empty store in `place`. Raises StorageError: they do not start."""
    port, names = free_port(), free_port()
    for name in _LOGS:
        (place / "conf").mkdir(parents=True, exist_ok=True)
        (place / "conf" / name).write_text(_SILENT)
    store = {"storePathRootDir": str(place / "store"), "storePathCommitLog": str(place / "store" / "commitlog")}
    where = {"listenPort": str(port), "brokerIP1": "127.0.0.1", "namesrvAddr": f"127.0.0.1:{names}"}
    broker_conf = _written(place / "broker.conf", {**where, **store, **settings})
    names_conf = _written(place / "names.conf", {"listenPort": str(names)})
    java = [str(peer.java), *OPENS, f"-Duser.home={place}", f"-Drocketmq.home.dir={place}", "-cp", peer.class_path]
    with (
        _process([*java, _NAMES_MAIN, "-c", str(names_conf)], place / "names.log"),
        _process([*java, _BROKER_MAIN, "-c", str(broker_conf)], place / "broker.log") as broker,
    ):
        yield _ready(broker, f"127.0.0.1:{names}", place / "broker.log")


def free_port() -> int:
    """A port that is free, as its neighbours are that a broker takes."""
    while True:
        port = random.randrange(20_000, 60_000)
        if all(_is_free(port + step) for step in _AROUND):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _written(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@contextlib.contextmanager
def _process(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(os.environ))
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], names: str, log: Path) -> Running:
    """Wait until the name service tells of a broker. Raises StorageError."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            if _cluster(names).get("brokerAddrTable"):
                return Running(names, process.pid)
        time.sleep(0.2)
    raise StorageError(f"a broker does not start: {_last(log)}", path=log)


def _stopped(process: subprocess.Popen[bytes], log: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        code = None
    if code:
        raise StorageError(f"a broker ended with exit code {code}: {_last(log)}", path=log)


def _cluster(names: str) -> dict[str, object]:
    host, _, port = names.rpartition(":")
    with socket.create_connection((host, int(port)), 2) as client:
        client.settimeout(2)
        client.sendall(b"".join(encode(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 1))))
        reader = FrameReader()
        while data := client.recv(1 << 16):
            for answer in reader.feed(data):
                found = json.loads(bytes(answer.body).replace(b"{0:", b'{"0":') or b"{}")
                return dict(found)
    return {}


def _last(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
