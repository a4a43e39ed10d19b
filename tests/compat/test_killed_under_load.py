"""SIGKILL under load: what was acknowledged is consumed after the restart, and Apache reads it in the very store.

Java producers with their own retries, producers of ours that send plain, delayed and half messages, and a group that
consumes and gives some back go on through several kills of the same store.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from tests.compat import apache, toolchain
from tests.compat.apache import Sizes
from tests.compat.served import serve
from tests.engine.opening import assert_sound
from tests.load.clients import rolled_back
from tests.load.ports import free_ports
from tests.load.run import Clients, start

pytestmark = pytest.mark.interop

KILLS = 4
LIVES_S = (1.5, 4.0)
"""How long the broker lives each time: load and a moment that nobody chose."""
PATIENCE_S = 120
SIZES = Sizes(commitlog_file=4 << 20, queue_file=40_000, index_slots=20_000, index_entries=80_000)
SETTINGS = """
brokerName=broker-a
flushDiskType=SYNC_FLUSH
transactionCheckInterval=1000
transactionTimeOut=1000
transactionCheckMax=1000
flushConsumerOffsetInterval=500
""" + "".join(f"{key}={value}\n" for key, value in SIZES.settings().items())
"""Transactions are asked about until their producer answers: 15 times, the default, are over in 15 s here, and what is
not answered then, as the producer's process waits for a processor, is given up."""


def java_producers(names: str, file: Path) -> subprocess.Popen[str]:
    """Four threads that send until their stdin ends."""
    words = [str(toolchain.java()), *toolchain.BRIEF, "-Xmx256m", "-cp", toolchain.clients(), "io.rstore.clients.Load"]
    return subprocess.Popen(
        [*words, "produce", names, "Load", str(file), "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def java_consumes(names: str, file: Path) -> dict[str, Any]:
    words = [str(toolchain.java()), *toolchain.BRIEF, "-Xmx256m", "-cp", toolchain.clients(), "io.rstore.clients.Load"]
    done = subprocess.run(
        [*words, "consume", names, "Load", str(file)], capture_output=True, text=True, timeout=120, check=True
    )
    return told(done.stdout)


def test_what_was_acknowledged_outlives_kills_under_load(tmp_path: Path, apache_store: None) -> None:
    try:
        toolchain.clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root, keys = tmp_path / "store", tmp_path / "java.keys"
    port, names_port = free_ports(2)
    options = ("--port", str(port), "--names-port", str(names_port))
    names = f"127.0.0.1:{names_port}"
    chance = random.Random()
    with (
        start("produce", names, "mixed", clients=4, kind="mixed") as mixed,
        start("produce", names, "large", clients=4, body=3000) as large,
        start("consume", names, "group", clients=2, retry_every=40) as group,
    ):
        java = None
        try:
            for _ in range(KILLS):
                with serve(root, SETTINGS, *options) as served:
                    if java is None:
                        java = java_producers(names, keys)
                        assert java.stdout is not None
                        assert "sending\n" in java.stdout, "Java's producers have ended"
                    time.sleep(chance.uniform(*LIVES_S))
                    served.kill()
            java_said = ended(java)
        finally:
            if java is not None:
                java.kill()
        promised = set(keys.read_text().split())
        assert java_said["acknowledged"] == len(promised) > 100
        as_apache_reads(root, promised, [mixed, large])

        with serve(root, SETTINGS, *options) as served:
            time.sleep(1)
            mixed.quiet()
            large.quiet()
            acknowledged = promised | {key for one in (mixed, large) for key in one.told()["keys"]}
            wanted = {key for key in acknowledged if not rolled_back(key)}
            kinds = {kind: sum(f"-{kind}-" in key for key in wanted) for kind in ("plain", "delayed", "transaction")}
            assert min(kinds.values()) > 50, kinds
            assert not group.until(wanted, PATIENCE_S), "acknowledged, and not consumed"
            got = group.told()
            assert not [key for key in got["keys"] if rolled_back(key)]
            assert got["sent_back"] > 0
            with start("consume", served.names, "late", clients=2) as late:
                assert not late.until(wanted, PATIENCE_S), "not consumed by a group that came later"
            assert java_consumes(names, keys)["missing"] == 0
            assert min(one.told()["gone"] for one in (mixed, large, group)) >= KILLS
    assert not (root / "abort").exists()
    assert_sound(StoreConfig(store_path_root_dir=root))
    opened = apache.read(root, SIZES)
    assert opened.exit == apache.Exit.OPENED
    assert not opened.abnormal
    assert not wanted - {message["uniqKey"] for message in opened.messages} - {m["keys"] for m in opened.messages}


def ended(java: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = java.communicate(timeout=60)
    return told(said)


def told(text: str) -> dict[str, Any]:
    """The last line of JSON: a client that hangs up may write a line of its log behind it."""
    found: dict[str, Any] = json.loads([line for line in text.splitlines() if line.startswith("{")][-1])
    return found


def as_apache_reads(root: Path, promised: set[str], clients: list[Clients]) -> None:
    """As the kill left it: Apache recovers a copy, and reads all that was acknowledged, wherever it waits."""
    acknowledged = promised | {key for one in clients for key in one.told()["keys"]}
    opened = apache.read(root, SIZES, keep=True)
    assert opened.exit == apache.Exit.OPENED, opened.error
    assert opened.abnormal
    there = {message[name] for message in opened.messages for name in ("uniqKey", "keys")}
    assert not acknowledged - there
