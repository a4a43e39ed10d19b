"""A master and slaves of ours in one process, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.broker.ha.loop_reads import LoopReads
from engine.broker.ha.master import MasterService
from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave import SlaveClient
from engine.config import BrokerRole
from engine.files.disk import Disk
from engine.store import MessageStore
from tests.engine.opening import message, small

QUICK = HaSettings(heartbeat_ms=100, housekeeping_ms=120_000, retry_ms=50)
"""Nobody is cut off because the machine stands still."""
LOG = logging.getLogger("test")
WAIT_S = 60


class Pair:
    """A master that listens, and slaves that follow it. A loop reads reports to a SYNC_MASTER, as in the daemon.

    A put waits for a slave as long as the machine takes, unless `changes` have another `slave_timeout`.
    """

    def __init__(
        self,
        root: Path,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        ha: HaSettings = QUICK,
        tls: ssl.SSLContext | None = None,
        **changes: Any,
    ) -> None:
        self.root = root
        self.registered: set[str] = set()
        self.changes = changes
        self.master = MessageStore.open(
            small(root / "master", broker_role=role, **{"slave_timeout": 60_000, **changes})
        )
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.service = MasterService(
            self.master, "127.0.0.1", 0, ha, LOG,
            tls=tls, registered=lambda: self.registered, reads=LoopReads(self.loop),
        )  # fmt: skip
        self.port = self.service.start()
        self.slaves: list[tuple[MessageStore, SlaveClient]] = []

    def slave(
        self,
        name: str = "slave",
        start: int | None = 0,
        overlap: int = 1 << 20,
        port: int = 0,
        disk: Disk | None = None,
        bytes_per_s: float | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> SlaveClient:
        store = MessageStore.open(small(self.root / name, broker_role=BrokerRole.SLAVE, **self.changes), disk)
        settings = replace(QUICK, master_address=f"{host}:{port or self.port}")
        client = SlaveClient(store, settings, LOG, start=start, overlap=overlap, bytes_per_s=bytes_per_s, tls=tls)
        client.start()
        self.slaves.append((store, client))
        return client

    def put(self, count: int, size: int = 100) -> None:
        for i in range(count):
            assert self.master.put(message(bytes([i % 251]) * size, i % 3, KEYS=f"k{i}"), wait=False).append

    def close_slave(self) -> None:
        store, client = self.slaves.pop()
        client.stop()
        store.close()

    def close(self) -> None:
        while self.slaves:
            self.close_slave()
        self.service.stop()
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()
        self.master.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def log_of(root: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))[:end]
