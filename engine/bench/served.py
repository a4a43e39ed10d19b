"""`rstore serve` under load beside Apache's own broker: the same Java clients, the same machine, in turn.

A round is a fresh broker on an empty store with ASYNC_FLUSH: sends by 1, 8 and 32 threads, pulls of what they sent,
and how long a held pull takes to wake; then one with SYNC_FLUSH: sends again. Processor time and memory are the
broker process's, over the seconds of the load.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from engine.bench import brokers
from engine.bench.apache import MAIN, Apache
from engine.bench.brokers import APACHE, OURS, Running
from engine.bench.measure import Measurement, measure
from engine.dataclass import dataclass

NAME = "serve"
"""As a job's name on the command line."""
SIDES = (OURS, APACHE)
BODY = 1024
WARM_S, LOAD_S = 5, 8
QUICK_WARM_S, QUICK_LOAD_S = 1, 2
WAKES, QUICK_WAKES = 1500, 200
WARM_WAKES = 10_000
"""At least; what Java calls less often is not compiled for good (Tier4InvocationThreshold: 5,000). A quick measure does
not wait for that.
"""
_LIMIT_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load. `job`: of Bench.java; `threads`: that send; `flush`: the broker's flushDiskType."""

    name: str
    what: str
    job: str
    threads: int
    flush: str = "ASYNC_FLUSH"

    @property
    def topic(self) -> str:
        """What the load works on: pulls, on what the most threads have sent."""
        return f"Bench-{32 if self.job == 'serve-pull' else self.threads}"


LOADS = (
    *(Load(f"send-{n}", f"sends of 1 KiB, {n} thread{'s' if n > 1 else ''}", "serve-send", n) for n in (1, 8, 32)),
    Load("pull", "pulls, 32 messages each, a thread a queue", "serve-pull", 0),
    Load("wake", "from a send to the consumer whose pull is held", "serve-wake", 0),
    *(Load(f"send-sync-{n}", f"the same sends, SYNC_FLUSH, {n}", "serve-send", n, "SYNC_FLUSH") for n in (8, 32)),
)
FLOORS: Mapping[str, float] = dict.fromkeys(("send-8", "send-32", "send-sync-8", "send-sync-32"), 0.95)
"""Sends a second, against Apache's."""
WAKE_MS = 4.0
"""Of the longest but one in a hundred, at most."""


@dataclass(frozen=True, slots=True)
class One:
    """One measure: messages a second, milliseconds of single calls, what the broker took."""

    rate: float
    p50: float
    p99: float
    p999: float
    failed: int
    broker_cpu: float
    broker_rss: int

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "messagesPerSecond": self.rate,
            "p50Ms": self.p50,
            "p99Ms": self.p99,
            "p999Ms": self.p999,
            "failed": self.failed,
            "brokerCpuSeconds": self.broker_cpu,
            "brokerRss": self.broker_rss,
        }


@dataclass(slots=True)
class ServedResults:
    """All measures, by load and side (of SIDES)."""

    ones: dict[tuple[str, str], list[One]] = field(default_factory=dict)

    def median(self, load: str, side: str, of: Callable[[One], float]) -> float | None:
        """The median over the rounds; None where there is none."""
        loads = self.ones.get((load, side))
        return statistics.median(map(of, loads)) if loads else None

    def ratio(self, load: str) -> float | None:
        """Ours over Apache's, messages a second."""
        ours, theirs = (self.median(load, side, lambda one: one.rate) for side in SIDES)
        return ours / theirs if ours is not None and theirs else None

    def verdicts(self) -> Iterator[tuple[str, str, str, bool | None]]:
        """Each floor: the load, what is asked for, what was found, whether it is met (None: not measured)."""
        for load, least in FLOORS.items():
            ratio = self.ratio(load)
            met = None if ratio is None else ratio >= least
            yield load, f"≥ {least:.2f} ×", "-" if ratio is None else f"{ratio:.2f} ×", met
        wake = self.median("wake", OURS, lambda one: one.p99)
        quick = None if wake is None else wake <= WAKE_MS
        yield "wake", f"p99 ≤ {WAKE_MS:.0f} ms", "-" if wake is None else f"{wake:.2f} ms", quick

    def to_json(self) -> list[dict[str, Any]]:
        """For report.json."""
        return [
            {
                "load": load,
                "side": side,
                "rounds": [one.to_json() for one in loads],
            }
            for (load, side), loads in self.ones.items()
        ]


def measure_all(
    program: tuple[str, ...],
    peer: Apache,
    work: Path,
    rounds: int,
    progress: Callable[[str], None],
    *,
    quick: bool,
    apache: bool,
) -> ServedResults:
    """All loads, `rounds` times on each side in turn.

    Args:
        program: the words that run the command line.
        peer: Java, and the load's class path.
        work: a directory for stores, which are removed.
        progress: called with what is measured.
        quick: short ones, to see that it runs.
        apache: whether Apache's broker is loaded, too.

    Raises:
        StorageError: a broker or a load failed.
    """
    results = ServedResults()
    for _ in range(rounds):
        for side in SIDES if apache else (OURS,):
            for flush in dict.fromkeys(load.flush for load in LOADS):
                with (
                    brokers.empty_place(work / f"serve-{side}") as place,
                    brokers.either(side, program, peer, place, {"flushDiskType": flush}) as running,
                ):
                    for load in LOADS:
                        if load.flush == flush:
                            progress(f"{load.name}, {side}")
                            one = measure_one(load, peer, running, place, quick=quick)
                            results.ones.setdefault((load.name, side), []).append(one)
    return results


def measure_one(load: Load, peer: Apache, running: Running, place: Path, *, quick: bool) -> One:
    """Load a running broker once; `place`: a directory for what the client writes. Raises StorageError."""
    words = {
        "names": running.names,
        "topic": load.topic,
        "callers": load.threads,
        "body": BODY,
        "warm": QUICK_WARM_S if quick else WARM_S,
        "warmCalls": 0 if quick else WARM_WAKES,
        "seconds": QUICK_LOAD_S if quick else LOAD_S,
        "count": QUICK_WAKES if quick else WAKES,
    }
    java = [str(peer.java), f"-Duser.home={place}", "-Drocketmq.client.logLevel=ERROR", "-cp", peer.class_path]
    command = [*java, MAIN, load.job, *(f"{name}={value}" for name, value in words.items())]
    before = cpu(running.pid)
    sample: Measurement = measure(command, answers=True, timeout=_LIMIT_S)
    more = sample.more
    return One(
        sample.messages / sample.seconds if sample.seconds else 0.0,
        more["p50"],
        more["p99"],
        more["p999"],
        int(more.get("failed", 0)),
        cpu(running.pid) - before,
        _rss(running.pid),
    )


def cpu(pid: int) -> float:
    """Processor seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _rss(pid: int) -> int:
    """Resident bytes of a process that are no file's."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * _PAGE
