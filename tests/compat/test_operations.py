"""Operations beside Apache's own: its broker watched by `rstore top`, on a store with a daemon's socket left in it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.client.clock import now_ms
from engine.client.connection import RemotingClient
from engine.files import local_socket
from tests.compat import real_broker, toolchain
from tests.engine.broker.client import send_fields

pytestmark = pytest.mark.interop
PATIENCE_S = 120
RATES = ("putMessagesPerSecond", "getMessagesPerSecond")
NEAR = 5
"""Rates are rounded, and a put may be under way."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[real_broker.RealBroker]:
    root = tmp_path / "store"
    root.mkdir()
    local_socket.listen_at(str(root / "rstore.sock")).close()  # as a killed daemon leaves it
    try:
        with real_broker.serve(root) as found:
            yield found
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    assert (root / "rstore.sock").exists()


@contextmanager
def traffic(address: str) -> Iterator[list[int]]:
    """Puts to queue 0 of topic T; the group G has consumed half of them. When each was there, in milliseconds."""
    stop = threading.Event()
    there: list[int] = []

    async def run() -> None:
        async with await RemotingClient.connect(address) as client:
            while not stop.is_set():
                sent = await client.ask(310, send_fields("T"), bytes(1000), timeout_s=PATIENCE_S)
                if sent.code and "busy" in (sent.remark or ""):  # flow control: it was not stored
                    await asyncio.sleep(0.2)
                    continue
                assert sent.code == 0, sent
                done = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
                half = str(int(sent.fields["queueOffset"]) // 2)
                await client.ask(15, {**done, "commitOffset": half}, timeout_s=PATIENCE_S)
                there.append(now_ms())
                await asyncio.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: asyncio.run(run()))
        try:
            yield there
        finally:
            stop.set()
            running.result()


def shown(line: dict[str, Any], by: str, name: str, what: str) -> float:
    """A number of a topic, or of a group; 0 while it is not known yet."""
    return next((float(row[what]) for row in line[f"{by}s"] if row[by] == name), 0.0)


def frames_of_top(address: str) -> tuple[list[dict[str, Any]], tuple[int, str]]:
    """Its lines, until the broker has figures of its last 10 s, too; how it ended at Ctrl-C: code and stderr.

    It ends by itself when one of its many questions is not answered within 3 s, and is begun again then.
    """
    words = [sys.executable, "-m", "rstore_cli.app", "top", "--broker", address, "--json", "--interval", "4"]
    end = time.monotonic() + PATIENCE_S
    while True:
        lines: list[dict[str, Any]] = []
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
            assert top.stdout is not None
            while len(lines) < 4 or shown(lines[-1], "topic", "T", "putBytesPerSecond") <= 1000:
                assert time.monotonic() < end, lines
                line = top.stdout.readline()
                if not line:
                    break
                lines.append(json.loads(line))
            else:
                top.send_signal(signal.SIGINT)
                said = top.communicate(timeout=60)[1]
                return lines, (top.returncode, said)
            said = top.communicate(timeout=60)[1]
            assert "did not answer" in said, said


def test_top_of_apaches_broker(broker: real_broker.RealBroker) -> None:
    with traffic(broker.broker) as times:
        end = time.monotonic() + PATIENCE_S
        while not times:  # topic and group are there, to be counted from the first look on
            assert time.monotonic() < end
            time.sleep(0.05)
        lines, ended = frames_of_top(broker.broker)
    assert ended == (0, "")
    put, got = (sum(shown(one, "topic", "T", name) * one["seconds"] for one in lines) for name in RATES)
    there = [bisect(times, one["time"]) for one in lines]
    least, most = there[-2] - there[0], len(times)  # the broker may be a moment late, but not a whole window
    assert least - NEAR <= put <= most + NEAR
    assert least / 2 - NEAR <= got <= most / 2 + NEAR
    lags = [shown(one, "group", "G", "lag") for one in lines[-2:]]
    assert there[-2] - most / 2 - NEAR <= lags[1] <= most - there[-2] / 2 + NEAR
    last = lines[-1]
    growth = shown(last, "group", "G", "lagPerSecond") * last["seconds"]
    assert growth == pytest.approx(lags[1] - lags[0], abs=NEAR)
    assert lags[1] > shown(lines[0], "group", "G", "lag")
    assert 0 < last["disks"]["CL"] < 1
    assert last["log"]["maxOffset"] > 50_000
    assert last["dispatchLag"] >= 0
    assert last["flushLag"] >= 0
