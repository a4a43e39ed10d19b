"""A broker of ours in a process of its own, and Apache's clients that talk to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat import shared_classes, toolchain
from tests.support.patience import patient_conf

START_S = 60
STOP_S = 60
CLIENT_S = 280
SETTINGS = """
brokerName=broker-a
transactionCheckInterval=2000
transactionTimeOut=2000
enablePropertyFilter=true
"""


@dataclass(slots=True)
class Served:
    """A running broker: its store, and where clients find it.

    `ha`: where slaves do, "" of a slave: not always one port above, which with port 0 may be taken.
    """

    root: Path
    broker: str
    names: str
    process: subprocess.Popen[str]
    metrics: str | None = None
    ha: str = ""

    def kill(self) -> None:
        """As a power cut would, but for the page cache."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serve(root: Path, settings: str = SETTINGS, *options: str) -> Iterator[Served]:
    """`rstore serve` on free ports; stopped by SIGTERM, and its exit code checked."""
    conf = root.parent / f"{root.name}.conf"
    conf.write_text(patient_conf() + settings)
    command = [sys.executable, "-m", "rstore_cli.app", "serve", "--store", str(root), "-c", str(conf), "--json"]
    with (root.parent / f"{root.name}.log").open("w+") as said:
        process = subprocess.Popen(
            [*command, "--port", "0", "--names-port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (root.parent / f"{root.name}.log").read_text()
            where = json.loads(line)
            yield Served(root, where["broker"], where["nameService"], process, where["metrics"], where["ha"] or "")
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_S) == 0, (root.parent / f"{root.name}.log").read_text()
        finally:
            process.kill()
            process.wait()


def run_scenario(names: str, name: str, count: int, *options: str) -> dict[str, Any]:
    """One of the Java side's Scenarios; what it counted. `options`: of Java."""
    return run_client(java_client("Scenarios", name, names, str(count), options=options))


def java_client(program: str, *words: str, options: tuple[str, ...] = (), class_path: str | None = None) -> list[str]:
    """The command that runs one of the Java side's programs. `class_path`: with clients of another release."""
    path = class_path or toolchain.clients()
    brief = (*toolchain.BRIEF, *options, *shared_classes.options(path))
    return [str(toolchain.java()), *brief, "-cp", path, f"io.rstore.clients.{program}", *words]


def run_client(command: list[str]) -> dict[str, Any]:
    """A client that ends with what it counted, as a line of JSON."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@contextmanager
def running_client(command: list[str]) -> Iterator[dict[str, Any]]:
    """A client that prints what it counted, as a line of JSON, and runs on until its stdin ends."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            counted = next((line for line in process.stdout if line.startswith("{")), None)
            assert counted, "the client ended and had counted nothing"
            yield json.loads(counted)
            process.stdin.close()
            assert process.wait(STOP_S) == 0
        finally:
            process.kill()


class Admins:
    """mqadmin, and the clients that it looks at, in one process of Java's: a command a call.

    Args:
        home: a directory for its settings, and its own.
        names: the name service.
    """

    def __init__(self, home: Path, names: str) -> None:
        _settings(home)
        java = [
            str(toolchain.java()),
            *toolchain.BRIEF,
            *shared_classes.options(toolchain.clients()),
            f"-Drocketmq.namesrv.addr={names}",
            f"-Drocketmq.home.dir={home}",
        ]
        command = [*java, "-cp", toolchain.clients(), "io.rstore.clients.Admin", names]
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __call__(self, *words: str) -> str:
        """What the command prints."""
        return _answered(lambda: self._said(words))

    def _said(self, words: tuple[str, ...]) -> str:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"it ended: {words}"
        return str(json.loads(line))

    def close(self) -> None:
        """End it, and its clients."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        finally:
            self._process.kill()
            self._process.wait()


TURNS = 4
_GAVE_UP = re.compile("Remoting(Timeout|SendRequest)Exception")


def _answered(ask: Callable[[], str]) -> str:
    """What mqadmin prints, asked again where it gave an answer up: after 3 or 5 s, however busy the machine is.

    A broker that leaves a request unanswered is so told all the same: it leaves each.
    """
    for _ in range(TURNS - 1):
        if not _GAVE_UP.search(said := ask()):
            return said
    return ask()


_LOGBACK = '<configuration><appender name="N" class="ch.qos.logback.core.helpers.NOPAppender"/></configuration>'


def mqadmin(home: Path, names: str, *words: str, options: tuple[str, ...] = (), answered: bool = True) -> str:
    """What mqadmin prints. `home`: a directory for its settings, conf/tools.yml among them. `options`: of Java.

    `answered`: see `_answered`.
    """
    _settings(home)
    command = [
        str(toolchain.java()),
        *toolchain.BRIEF,
        *options,
        *shared_classes.options(toolchain.clients()),
        f"-Drocketmq.namesrv.addr={names}",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        toolchain.clients(),
        "org.apache.rocketmq.tools.command.MQAdminStartup",
        *words,
    ]

    def ask() -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S, check=False)
        return done.stdout + done.stderr

    return _answered(ask) if answered else ask()


def _settings(home: Path) -> None:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text(_LOGBACK)
