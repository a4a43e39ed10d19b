"""Replication beside Apache's: how fast a log is copied that is there already, and what slaves cost their master.

A round of copies is a master on a store with a log of one file, and slaves on empty stores behind it, in
turn. Their rate is taken from their log's file: from the moment in which its first record is there to that of its last.

A round of sends is a master on an empty store with or without a slave; the load is that of `engine.bench.served`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from engine.bench import brokers, served, stores
from engine.bench.apache import Apache
from engine.bench.brokers import APACHE, OURS, Running
from engine.bench.workload import GIB, KIB, MIB, Workload
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.client.sending import SendStatus
from engine.dataclass import dataclass
from engine.errors import NoRoute, PeerLost, RefusedByBroker, StorageError
from engine.format import names
from engine.format.record import BLANK_SIZE, MAGIC_SIZE, POSITION_MAGIC

NAME = "replication"
"""As a job's name on the command line."""
LOG_SIZE = 512 * MIB
THREADS = 8
_LIMIT_S = 300.0
_LOOK_S = 0.002
_ANSWER_S = 10.0

REPLICATE = "rstore replicate"
COPIES = tuple((master, slave) for master in (APACHE, OURS) for slave in (APACHE, OURS, REPLICATE))
"""Who copies from whom: (master, slave)."""
NONE = "none"
SENDS = tuple(
    (master, role, slave)
    for master in (APACHE, OURS)
    for role, slaves in (("ASYNC_MASTER", (NONE, APACHE, OURS)), ("SYNC_MASTER", (APACHE, OURS)))
    for slave in slaves
)
"""Loads: (master, brokerRole, slave). A SYNC_MASTER without a slave tells every sender that it has none."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a log. Bytes, seconds; processor seconds of the slave's process over the copy."""

    size: int
    seconds: float
    slave_cpu: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.size / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class ReplicationResults:
    """All measures: copies by (master, slave), sends by (master, role, slave)."""

    copies: dict[tuple[str, str], list[Copy]] = field(default_factory=dict)
    sends: dict[tuple[str, str, str], list[served.One]] = field(default_factory=dict)

    def copy_rate(self, master: str, slave: str) -> float | None:
        """Median over the rounds, bytes a second; None where there is none."""
        copies = self.copies.get((master, slave))
        return statistics.median(one.rate for one in copies) if copies else None

    def send_rate(self, master: str, role: str, slave: str) -> float | None:
        """Median over the rounds, messages a second."""
        sends = self.sends.get((master, role, slave))
        return statistics.median(one.rate for one in sends) if sends else None

    def copy_ratio(self, master: str, slave: str) -> float | None:
        """Against Apache's slave of the same master."""
        ours, theirs = self.copy_rate(master, slave), self.copy_rate(master, APACHE)
        return ours / theirs if ours is not None and theirs else None

    def kept(self, master: str, role: str, slave: str) -> float | None:
        """The share of the sends of an ASYNC_MASTER without a slave that is left."""
        replicated, alone = self.send_rate(master, role, slave), self.send_rate(master, "ASYNC_MASTER", NONE)
        return replicated / alone if replicated is not None and alone else None

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "copies": [
                {
                    "master": master,
                    "slave": slave,
                    "rounds": [
                        {"bytes": one.size, "seconds": one.seconds, "slaveCpuSeconds": one.slave_cpu} for one in samples
                    ],
                }
                for (master, slave), samples in self.copies.items()
            ],
            "sends": [
                {"master": master, "role": role, "slave": slave, "rounds": [one.to_json() for one in samples]}
                for (master, role, slave), samples in self.sends.items()
            ],
        }


def workload(size: int) -> Workload:
    """Records of 1 KiB bodies, `size` bytes of them, in one file: Apache's slave begins with a master's last one."""
    return Workload("replicated", KIB, size=GIB, segment=GIB, fill=min(size, LOG_SIZE) / GIB)


@dataclass(slots=True)
class Bench:
    """One run.

    Attributes:
        program: the words that run the command line.
        peer: Java, and the load's class path.
        work: a directory for stores, which are removed.
        kept: the store with the log that is copied.
        progress: called with what is measured.
        quick: short loads, to see that it runs.
        apache: whether Apache's broker takes part.
    """

    program: tuple[str, ...]
    peer: Apache
    work: Path
    kept: stores.KeptStore
    progress: Callable[[str], None]
    quick: bool
    apache: bool

    def measure(self, rounds: int) -> ReplicationResults:
        """Everything, `rounds` times. Raises StorageError: a broker or a load failed."""
        results = ReplicationResults()
        for _ in range(rounds):
            for master in dict.fromkeys(master for master, _ in COPIES):
                slaves = [slave for whose, slave in COPIES if whose == master and self._has(master, slave)]
                if slaves:
                    self._copies(results, master, slaves)
            for master, role, slave in SENDS:
                if self._has(master, slave):
                    self.progress(f"sends to {master}, {role}, slave: {slave}")
                    results.sends.setdefault((master, role, slave), []).append(self._send(master, role, slave))
        return results

    def _has(self, master: str, slave: str) -> bool:
        return self.apache or APACHE not in (master, slave)

    # --- copies -----------------------------------------------------------------------------------------------------

    def _copies(self, results: ReplicationResults, master: str, slaves: list[str]) -> None:
        with self._place("master") as place:
            # A broker may write its log: it gets one of its own, not the links that other measures share.
            self.kept.copy(stores.CopyState.CLOSED, place / "store")
            log = place / "store" / names.COMMITLOG
            stores.remove(log)
            _copy_sparse(self.kept.root / names.COMMITLOG, log)
            stores.warm(place / "store")
            with self._broker(master, place, {"brokerRole": "ASYNC_MASTER"}) as running:
                for slave in slaves:
                    self.progress(f"copy of {master}'s log by {slave}")
                    with self._place("slave") as copy, self._slave(slave, copy, running) as pid:
                        results.copies.setdefault((master, slave), []).append(self._watch(copy / "store", pid))

    def _watch(self, store: Path, pid: int) -> Copy:
        """From the first record to the last. Raises StorageError: it does not come."""
        file = store / names.COMMITLOG / names.segment_name(0)
        end = self.kept.record_bytes
        looked = time.monotonic()
        until = looked + _LIMIT_S
        began = cpu = None
        lives = True
        while lives and looked < until:
            lives = _lives(pid)  # before the look: what it has written before its end counts
            now = time.monotonic()
            first, last = _seen(file, end)
            if first and began is None:
                began, cpu = looked, served.cpu(pid)
            if last and began is not None and cpu is not None:
                return Copy(end, now - began, served.cpu(pid) - cpu)
            looked = now
            time.sleep(_LOOK_S)
        why = f"was not copied in {_LIMIT_S:.0f} s" if lives else "is incomplete, and the slave has ended"
        raise StorageError(f"the log {why}", path=file)

    # --- sends ------------------------------------------------------------------------------------------------------

    def _send(self, master: str, role: str, slave: str) -> served.One:
        load = served.Load("send", "", "serve-send", THREADS)
        with (
            self._place("master") as place,
            self._broker(master, place, {"brokerRole": role}) as running,
            contextlib.ExitStack() as copies,
        ):
            if slave != NONE:
                where = copies.enter_context(self._place("slave"))
                copies.enter_context(self._slave(slave, where, running))
                asyncio.run(_send_until_copied(running.names, load.topic, where / "store"))
            return served.measure_one(load, self.peer, running, place, quick=self.quick)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def _place(self, name: str) -> contextlib.AbstractContextManager[Path]:
        return brokers.empty_place(self.work / f"replication-{name}")

    def _broker(
        self, side: str, place: Path, settings: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Running]:
        return brokers.either(side, self.program, self.peer, place, settings)

    @contextlib.contextmanager
    def _slave(self, slave: str, place: Path, master: Running) -> Iterator[int]:
        """A slave on an empty store; its process."""
        if slave == REPLICATE:
            words = [*self.program, "--store", str(place / "store"), "-q", "replicate", "--from", master.address]
            with brokers.process([*words, "--until-caught-up"], place / "replicate.log") as running:
                yield running.pid
                if running.wait(_LIMIT_S):
                    raise StorageError("rstore replicate failed", path=place / "replicate.log")
            return
        settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": master.ha_address}
        with self._broker(slave, place, settings) as running_slave:
            yield running_slave.pid


def _seen(file: Path, end: int) -> tuple[bool, bool]:
    """Whether a log's first record has come, and its last, which ends at `end`."""
    try:
        with file.open("rb", buffering=0) as log:
            return any(os.pread(log.fileno(), MAGIC_SIZE, POSITION_MAGIC)), any(os.pread(log.fileno(), 16, end - 16))
    except FileNotFoundError:
        return False, False


def _lives(pid: int) -> bool:
    """Whether a process of ours has not ended yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _copy_sparse(source: Path, target: Path) -> None:
    """A directory of files, blocks that are not there left out. Raises StorageError."""
    stores.cp("-a", "--sparse=always", source, target)


async def _send_until_copied(name_server: str, topic: str, store: Path) -> None:
    """Send until a message is answered with SEND_OK and a slave has begun its log. Raises StorageError."""
    file = store / names.COMMITLOG / names.segment_name(0)
    until = time.monotonic() + _LIMIT_S
    async with ClusterClient(ClientConfig((name_server,))) as client:
        producer = client.producer("bench", ProducerSettings(timeout_s=_ANSWER_S, retries=0))
        while time.monotonic() < until:
            with contextlib.suppress(NoRoute, PeerLost, RefusedByBroker):
                result = await producer.send(OutgoingMessage(topic, b"x"))
                if result.status is SendStatus.SEND_OK and file.exists():
                    with file.open("rb") as log:
                        if any(log.read(BLANK_SIZE)[POSITION_MAGIC:]):
                            return
            await asyncio.sleep(0.2)
    raise StorageError("no slave connected", path=store)
