"""Operations beside Apache's own: its broker watched by `rstore top`, on a store with a daemon's socket left in it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.client.connection import RemotingClient
from engine.files import local_socket
from tests.compat import real_broker, toolchain
from tests.engine.broker.client import send_fields

pytestmark = pytest.mark.interop


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
def traffic(address: str) -> Iterator[None]:
    """Puts to queue 0 of topic T; the group G has consumed half of them."""
    stop = threading.Event()

    async def run() -> None:
        async with await RemotingClient.connect(address) as client:
            while not stop.is_set():
                sent = await client.ask(310, send_fields("T"), bytes(1000))
                assert sent.code == 0, sent
                done = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
                half = str(int(sent.fields["queueOffset"]) // 2)
                await client.ask(15, {**done, "commitOffset": half})
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_top_of_apaches_broker(broker: real_broker.RealBroker) -> None:
    words = [sys.executable, "-m", "rstore_cli.app", "top", "--broker", broker.broker, "--json", "--interval", "4"]
    with traffic(broker.broker):
        top = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert top.stdout is not None
        lines = [top.stdout.readline() for _ in range(4)]
        top.send_signal(2)
        _, said = top.communicate(timeout=60)
    assert (top.returncode, said) == (0, "")
    last: dict[str, Any] = json.loads(lines[-1])
    row = next(row for row in last["topics"] if row["topic"] == "T")
    assert 10 < row["putMessagesPerSecond"] < 200
    assert row["getMessagesPerSecond"] == pytest.approx(row["putMessagesPerSecond"] / 2, rel=0.2)
    assert row["putBytesPerSecond"] > 1000  # the broker samples every ten seconds
    group = next(row for row in last["groups"] if row["group"] == "G")
    assert group["lag"] > 50
    assert group["lagPerSecond"] > 5
    assert 0 < last["disks"]["CL"] < 1
    assert last["log"]["maxOffset"] > 50_000
    assert last["dispatchLag"] >= 0
    assert last["flushLag"] >= 0
