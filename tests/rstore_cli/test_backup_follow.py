"""`rstore backup create --follow` and `--from`, `rstore backup status`: lines, JSON, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_backup import keys_of, repo  # noqa: F401
from tests.rstore_cli.test_serve import Process, put
from tests.support import stores

WAIT_S = 60


class Following:
    """`rstore backup create --follow --json` as a process; `line`: the next one that it prints."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "rstore_cli.app", "--json", "-q", *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def until(self, end: int) -> dict[str, Any]:
        """The first line that has the log up to `end`."""
        while (line := self.line())["maxOffset"] < end:
            pass
        return line

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


def test_follow_and_its_lag(tmp_path: Path, repo: Path, cli: Cli) -> None:  # noqa: F811
    root = tmp_path / "store"
    prom = tmp_path / "rstore.prom"
    store = MessageStore.open(small(root))
    assert store.put(message(b"first")).append
    following = Following("--store", root, "backup", "create", "--follow", "--every", "100ms", "--metrics-file", prom)
    first = following.line()
    assert set(first) == keys_of("backup create --follow") | {"error"}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, following.process.pid) == max(10, own)  # a broker's sends come first
    assert (first["maxOffset"], first["snapshots"], first["error"]) == (store.log.max_offset, 1, None)
    began = time.monotonic()
    for _ in range(20):
        assert store.put(message(b"x" * 500)).append
    lag = following.until(store.log.max_offset)["lagSeconds"]
    assert lag < time.monotonic() - began + 1  # it looked at the store after all of them were put
    status = cli("backup", "status", "--max-lag", "60s", "--json")
    assert (status.code, set(status.json)) == (0, keys_of("backup status"))
    assert (status.json["logEnd"], status.json["lagBytes"], status.json["lagMs"]) == (store.log.max_offset, 0, 0)
    following.process.send_signal(signal.SIGSTOP)
    assert store.put(message(b"late")).append
    time.sleep(0.02)
    late = cli("backup", "status", "--max-lag", "10ms")
    assert (late.code, "late" in late.out) == (1, True)
    following.process.send_signal(signal.SIGCONT)
    code, _, err = following.stop()
    assert (code, err) == (0, "")
    assert cli("backup", "status", "--json").json["maxOffset"] == store.log.max_offset
    listed = cli("backup", "list", "--json").lines
    assert len(listed) == len({line["finished"] // 3_600_000 for line in listed})  # the last one of each hour
    assert "rstore_backup_lag_seconds{" in prom.read_text()
    store.close()
    assert cli("--store", tmp_path / "new", "restore").code == 0
    assert_sound(small(root))


def test_of_a_running_broker(tmp_path: Path, repo: Path, cli: Cli) -> None:  # noqa: F811
    serving = Process(tmp_path / "store")
    broker = serving.where["broker"]
    try:
        assert put(broker, 50) == 50
        created = cli("backup", "create", "--from", broker, "--json")
        assert (created.code, created.json["messages"], created.json["root"]) == (0, 50, broker)
        following = Following("backup", "create", "--from", broker, "--follow", "--every", "100ms", "--name", "b")
        assert following.line()["store"] == "b"
        assert put(broker, 50) == 50
        assert following.until(created.json["maxOffset"] + 1)["failures"] == 0
        code, _, err = following.stop(signal.SIGINT)
        assert (code, err) == (0, "")
        text = cli("backup", "status")
        assert text.code == 0
        assert created.json["store"] in text.out
    finally:
        assert serving.stop() == 0
    assert cli("--store", tmp_path / "new", "restore", "--name", "b").code == 0
    assert stores.snapshot(tmp_path / "new")


def test_a_repository_that_goes_away_and_comes_back(tmp_path: Path, repo: Path, cli: Cli) -> None:  # noqa: F811
    root = tmp_path / "store"
    store = MessageStore.open(small(root))
    assert store.put(message(b"first")).append
    following = Following("--store", root, "backup", "create", "--follow", "--every", "100ms")
    following.line()
    repo.rename(tmp_path / "away")
    repo.write_text("no directory")
    assert store.put(message(b"second")).append
    failed = following.line()
    assert (failed["failures"], failed["error"]["code"]) == (1, "io")
    repo.unlink()
    (tmp_path / "away").rename(repo)
    assert following.until(store.log.max_offset)["failures"] == 0
    code, _, err = following.stop()
    assert code == 0
    assert "not stored: " in err
    store.close()
    assert cli("backup", "check", "--all").code == 0


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("backup create --every 10ms --follow", 2, "--every"),
        ("backup create --every soon --follow", 2, "--every"),
        ("backup create --metrics-file x", 2, "--metrics-file"),
        ("backup create --from nowhere", 2, "HOST:PORT"),
        ("backup create --from 127.0.0.1:1", 5, "127.0.0.1:1"),
        ("--store /nowhere/at/all backup create --follow", 4, "no"),
        ("backup status --max-lag 1s", 1, ""),
        ("backup status --max-lag x", 2, "--max-lag"),
    ],
)
def test_what_goes_wrong(repo: Path, cli: Cli, line: str, code: int, says: str) -> None:  # noqa: F811
    done = cli(*line.split())
    assert (done.code, says in done.err, "Traceback" in done.err) == (code, True, False), done.err
