"""Apache's own name server and broker as Java processes: what ours is compared with and measured against.

Which release it is, `RealBroker.version` says: 4.9.8 where ROCKETMQ_HOME leads to one (toolchain.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.client.connection import RemotingClient
from engine.errors import PeerLost
from engine.wire.codes import RequestCode
from tests.compat import shared_classes, toolchain
from tests.compat.served import SETTINGS
from tests.load.ports import any_port, holders, is_free
from tests.support.patience import PATIENT

START_S = 120
REGISTER_S = 120
STOP_S = 60
OPENED = [
    option
    for package in ("sun.nio.ch", "java.nio", "jdk.internal.ref")
    for option in (
        "--add-opens",
        f"java.base/{package}=ALL-UNNAMED",
        "--add-exports",
        f"java.base/{package}=ALL-UNNAMED",
    )
]
NO_TLS = "-Dtls.server.mode=disabled"
"""Without it each start makes two certificates, which takes seconds."""
ON_A_FULL_DISK = tuple(f"-Drocketmq.broker.diskSpace{level}Ratio=0.99" for level in ("WarningLevel", "CleanForcibly"))
"""With its own ratios it refuses puts where the machine that runs the tests uses more than 90 % of its disk.

Source: DefaultMessageStore.CleanCommitLogService."""
FIRST_FLUSH_MS = 500
"""RocketMQ 5 waits for its first flush of transaction metrics in a loop that keeps a core busy, for 3 s by default.

Source: TransactionMetricsFlushService#run."""
LOGBACK = """<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level [%thread] %logger - %msg%n</pattern></encoder>
  </appender>
  <appender name="A" class="ch.qos.logback.classic.AsyncAppender"><appender-ref ref="F"/></appender>
  <root level="{level}"><appender-ref ref="A"/></root>
</configuration>
"""


@dataclass(slots=True)
class RealBroker:
    """A running one, as `served.Served`: its store, and where clients find it.

    Attributes:
        home: its settings and logs.
        version: its release, such as 4.9.8.
    """

    root: Path
    broker: str
    names: str
    process: subprocess.Popen[bytes]
    home: Path
    version: str

    def kill(self) -> None:
        """As a power cut would, but for the page cache."""
        self.process.kill()
        self.process.wait()

    @property
    def ha(self) -> str:
        """Where its slaves find it."""
        host, _, port = self.broker.rpartition(":")
        return f"{host}:{int(port) + 1}"


@contextmanager
def name_server(
    home: Path,
    *,
    port: int = 0,
    heap: str = "128m",
    level: str = "INFO",
    settings: str = "",
    java_options: tuple[str, ...] = (),
    apache: toolchain.ApacheBroker | None = None,
) -> Iterator[str]:
    """Apache's name server alone; its address. `home`: a directory for its settings and logs. Raises Missing.

    `settings`: as of namesrv.conf. `apache`: of another release.
    """
    port = port or free_port(1)
    said = {"listenPort": port, "kvConfigPath": home / "kvConfig.json"}
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    process = _start(main, home, "namesrv", said, settings, heap, level, java_options, apache)
    try:
        _until_booted(process, home / "namesrv.out", port)
        yield f"127.0.0.1:{port}"
        _stop(process, home / "namesrv.out")
    finally:
        process.kill()
        process.wait()


@contextmanager
def broker(
    root: Path,
    names: str,
    settings: str = SETTINGS,
    *,
    port: int = 0,
    heap: str = "512m",
    level: str = "INFO",
    java_options: tuple[str, ...] = (),
    apache: toolchain.ApacheBroker | None = None,
) -> Iterator[RealBroker]:
    """Apache's broker, registered at a name server; stopped by SIGTERM.

    Args:
        root: the store; what is in it already is recovered. Settings and logs are beside it, in `<root>-home`.
        names: a name server's address, Apache's or ours.
        settings: as of broker.conf; stronger than what is said here (brokerId, brokerRole, sizes, a slave's...).
        port: listenPort; the VIP port is two below, the HA port one above. 0: free ones.
        heap: of Java.
        level: of its log.
        apache: of another release.

    Raises:
        Missing: Java or Apache's jars are not to be had here.
    """
    home = root.parent / f"{root.name}-home"
    port = port or free_port(4)
    said: dict[str, object] = {
        "listenPort": port,
        "namesrvAddr": names,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        **PATIENT,
    }
    if apache is not None and apache.version.startswith("5"):
        said["transactionMetricFlushInterval"] = FIRST_FLUSH_MS
    main = "org.apache.rocketmq.broker.BrokerStartup"
    process = _start(main, home, "broker", said, settings, heap, level, java_options, apache)
    out = home / "broker.out"
    try:
        _until_booted(process, out, port)
        version = (apache or toolchain.apache_broker()).version
        yield RealBroker(root, f"127.0.0.1:{port}", names, process, home, version)
        if process.poll() is None:
            _stop(process, out)
    finally:
        process.kill()
        process.wait()


@contextmanager
def serve(
    root: Path,
    settings: str = SETTINGS,
    *,
    port: int = 0,
    names_port: int = 0,
    heap: str = "512m",
    apache: toolchain.ApacheBroker | None = None,
) -> Iterator[RealBroker]:
    """A name server and a broker, as `served.serve` is both in one. Ports of 0: free. `apache`: of another release."""
    with (
        name_server(root.parent / f"{root.name}-names", port=names_port, apache=apache) as names,
        broker(root, names, settings, port=port, heap=heap, apache=apache) as found,
    ):
        with ThreadPoolExecutor(1) as pool:  # whose caller may have a loop of its own
            pool.submit(asyncio.run, _registered(names)).result()
        yield found


async def _registered(names: str) -> None:
    """Waits until the name server knows a broker: it is booted before. Not for long, as some never register."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REGISTER_S):
            while not await _knows_a_broker(names):
                await asyncio.sleep(0.05)


async def _knows_a_broker(names: str) -> bool:
    try:
        async with await RemotingClient.connect(names) as client:
            answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    except PeerLost:  # a busy one answers later: whoever waits for it has more patience than a request
        return False
    return b'"brokerName"' in bytes(answer.body)


def free_port(needed: int) -> int:
    """A port p such that p - 2 to p + `needed` - 3 are free now (1: p alone)."""
    first = -2 if needed > 1 else 0
    for _ in range(200):
        port = any_port()
        if all(is_free(port + step) for step in range(first, first + needed)):
            return port
    raise AssertionError("no free ports")


def _start(
    main: str,
    home: Path,
    name: str,
    said: Mapping[str, object],
    settings: str,
    heap: str,
    level: str,
    java_options: tuple[str, ...] = (),
    apache: toolchain.ApacheBroker | None = None,
) -> subprocess.Popen[bytes]:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / f"logback_{name}.xml").write_text(LOGBACK.format(file=home / f"{name}.log", level=level))
    conf = home / f"{name}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in said.items()) + settings)
    class_path = (apache or toolchain.apache_broker()).class_path
    command = [
        str(toolchain.java()), *toolchain.BRIEF, *shared_classes.options(class_path),
        f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=2g",
        *OPENED, NO_TLS, *ON_A_FULL_DISK, *java_options,
        f"-Drocketmq.home.dir={home}", f"-Duser.home={home}",
        "-cp", class_path, main, "-c", str(conf),
    ]  # fmt: skip
    hidden = {"ROCKETMQ_HOME", "NAMESRV_ADDR", "JAVA_TOOL_OPTIONS"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    with (home / f"{name}.out").open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=home)


def _until_booted(process: subprocess.Popen[bytes], out: Path, port: int) -> None:
    """`port`: that is listened on; a start that fails over it says who has it."""
    until = time.monotonic() + START_S
    while "boot success" not in (said := out.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            who = "".join(f"\n{holders(port + step)}" for step in (-2, 0, 1)) if "already in use" in said else ""
            raise AssertionError(said[-4000:] + who)
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes], out: Path) -> None:
    process.send_signal(signal.SIGTERM)
    code = process.wait(STOP_S)
    assert code in (0, 128 + signal.SIGTERM), f"{code}: {out.read_text()[-4000:]}"
