"""Brokers to be loaded, each with a name server, as processes: ours, and Apache's own.

Apache's broker and name server are of 4.9.7, on the store, client and wire of 4.9.8: of 4.9.8 they were not published,
and differ in two administrative handlers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from engine.bench.apache import OPENS, Apache
from engine.client.admin.session import AdminSession
from engine.client.client import ClientConfig, ClusterClient
from engine.dataclass import dataclass
from engine.errors import RStoreError, StorageError

START_S = 60.0
STOP_S = 60.0
_NAMES_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
_SILENT = '<configuration><appender name="N" class="ch.qos.logback.core.helpers.NOPAppender"/></configuration>'
_LOGS = ("logback_broker.xml", "logback_namesrv.xml")
_NAMES = 2
_AROUND = (-2, 0, 1, _NAMES)
"""Ports that a broker takes, from its own on: VIP, itself, HA; and its name server's."""


OURS, APACHE = "ours", "apache"


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that answers: its name server's `ip:port`, its process, and its own port."""

    names: str
    pid: int
    port: int

    @property
    def address(self) -> str:
        """Of the broker, `ip:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def ha_address(self) -> str:
        """Where slaves find it."""
        return f"127.0.0.1:{self.port + 1}"


@contextlib.contextmanager
def ours(program: Sequence[str], place: Path, settings: Mapping[str, str]) -> Iterator[Running]:
    """`rstore serve` on the store in `place`. Raises StorageError: it does not start, or does not stop cleanly."""
    port = free_port()
    conf = _written(place / "broker.conf", {"listenPort": str(port), **settings})
    names = port + _NAMES
    words = [*program, "serve", "--store", str(place / "store"), "-c", str(conf), "--names-port", str(names)]
    with process(words, place / "broker.log") as broker:
        yield _ready(broker, f"127.0.0.1:{names}", port, place / "broker.log")
        _stopped(broker, place / "broker.log")


@contextlib.contextmanager
def theirs(peer: Apache, place: Path, settings: Mapping[str, str]) -> Iterator[Running]:
    """Apache's name server and broker on the store in `place`. Raises StorageError: they do not start."""
    port = free_port()
    names = port + _NAMES
    for name in _LOGS:
        (place / "conf").mkdir(parents=True, exist_ok=True)
        (place / "conf" / name).write_text(_SILENT)
    store = {"storePathRootDir": str(place / "store"), "storePathCommitLog": str(place / "store" / "commitlog")}
    where = {"listenPort": str(port), "brokerIP1": "127.0.0.1", "namesrvAddr": f"127.0.0.1:{names}"}
    broker_conf = _written(place / "broker.conf", {**where, **store, **settings})
    names_conf = _written(place / "names.conf", {"listenPort": str(names)})
    java = [str(peer.java), *OPENS, f"-Duser.home={place}", f"-Drocketmq.home.dir={place}", "-cp", peer.class_path]
    with (
        process([*java, _NAMES_MAIN, "-c", str(names_conf)], place / "names.log"),
        process([*java, _BROKER_MAIN, "-c", str(broker_conf)], place / "broker.log") as broker,
    ):
        yield _ready(broker, f"127.0.0.1:{names}", port, place / "broker.log")


def either(
    side: str, program: Sequence[str], peer: Apache, place: Path, settings: Mapping[str, str]
) -> contextlib.AbstractContextManager[Running]:
    """`ours` or `theirs`, by its side. Raises StorageError."""
    return ours(program, place, settings) if side == OURS else theirs(peer, place, settings)


@contextlib.contextmanager
def empty_place(path: Path) -> Iterator[Path]:
    """An empty directory for a broker, which is removed in the end."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def free_port() -> int:
    """A port that is free, as its neighbours are that a broker takes.

    Below those that the system gives to connections that go out (ip_local_port_range, from 32768).
    """
    while True:
        port = random.randrange(20_000, 32_000)
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
def process(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says what it says into a file, and is killed in the end."""
    with log.open("wb") as output:
        running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(os.environ))
        try:
            yield running
        finally:
            running.kill()
            running.wait()


def _ready(broker: subprocess.Popen[bytes], names: str, port: int, log: Path) -> Running:
    """Wait until the name server tells of a broker. Raises StorageError."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and broker.poll() is None:
        with contextlib.suppress(RStoreError):
            if asyncio.run(_known(names)):
                return Running(names, broker.pid, port)
        time.sleep(0.2)
    raise StorageError(f"a broker did not start: {_last(log)}", path=log)


def _stopped(broker: subprocess.Popen[bytes], log: Path) -> None:
    broker.send_signal(signal.SIGTERM)
    try:
        code = broker.wait(STOP_S)
    except subprocess.TimeoutExpired:
        code = None
    if code:
        raise StorageError(f"a broker ended with exit code {code}: {_last(log)}", path=log)


async def _known(names: str) -> bool:
    """Whether the name server tells of a broker. Raises RStoreError."""
    async with ClusterClient(ClientConfig((names,))) as client:
        return bool((await AdminSession(client).clusters()).brokers)


def _last(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
