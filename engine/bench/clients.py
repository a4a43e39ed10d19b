"""Our client beside Apache's own: the same broker, Apache's, the same machine, in turn.

A round is a fresh broker with ASYNC_FLUSH: sends of 1 KiB with 1, 8 and 32 in flight (threads of Java's client, tasks
of ours), then a push consumer of each side that takes what lies in a topic. Memory is the client process's highest, of
pages that are no file's: flow control bounds it, whatever the topic has.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bench import brokers
from engine.bench.apache import MAIN
from engine.bench.brokers import APACHE, OURS
from engine.bench.measure import Measurement, measure
from engine.bench.served import BODY, LOAD_S, QUICK_LOAD_S, QUICK_WARM_S, WARM_S
from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.bench.apache import Apache
    from engine.bench.brokers import Running

NAME = "client"
"""As a job's name on the command line."""
SIDES = (OURS, APACHE)
CONSUMED, QUICK_CONSUMED = 200_000, 20_000
FLOOR = 0.5
"""Messages a second, against Java's client."""
_LIMIT_S = 300.0
_FILLED = "Bench-consumed"


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """One kind of load. `at_once`: sends in flight; 0: it consumes."""

    name: str
    what: str
    at_once: int


CLIENT_LOADS = (
    *(ClientLoad(f"send-{n}", f"sends of 1 KiB, {n} in flight", n) for n in (1, 8, 32)),
    ClientLoad("consume", "a push consumer, from the first message to the last of a topic", 0),
)


@dataclass(slots=True)
class ClientResults:
    """All measures, by load and side (of SIDES)."""

    ones: dict[tuple[str, str], list[Measurement]] = field(default_factory=dict)

    def median(self, load: str, side: str, of: Callable[[Measurement], float]) -> float | None:
        """The median over the rounds; None where there is none."""
        samples = self.ones.get((load, side))
        return statistics.median(map(of, samples)) if samples else None

    def ratio(self, load: str) -> float | None:
        """Ours over Java's, messages a second."""
        ours, theirs = (self.median(load, side, rate) for side in SIDES)
        return ours / theirs if ours is not None and theirs else None

    def verdicts(self) -> Iterator[tuple[str, str, str, bool | None]]:
        """Each floor: the load, what is asked for, what was measured, whether it is met (None: not measured)."""
        for load in CLIENT_LOADS:
            ratio = self.ratio(load.name)
            shown = "-" if ratio is None else f"{ratio:.2f} ×"
            yield load.name, f"≥ {FLOOR:.2f} ×", shown, None if ratio is None else ratio >= FLOOR

    def to_json(self) -> list[dict[str, Any]]:
        """For report.json."""
        return [
            {"load": load, "side": side, "rounds": [one.to_json() for one in samples]}
            for (load, side), samples in self.ones.items()
        ]


def rate(one: Measurement) -> float:
    """Messages a second."""
    return one.messages / one.seconds if one.seconds else 0.0


def measure_clients(
    program: tuple[str, ...],
    peer: Apache,
    work: Path,
    rounds: int,
    progress: Callable[[str], None],
    *,
    quick: bool,
    apache: bool,
) -> ClientResults:
    """All loads, `rounds` times by each client in turn. The arguments are those of `served.measure_all`.

    Raises:
        StorageError: a broker or a load failed.
    """
    results = ClientResults()
    for _ in range(rounds):
        with (
            brokers.empty_place(work / NAME) as place,
            brokers.either(
                APACHE if apache else OURS, program, peer, place, {"flushDiskType": "ASYNC_FLUSH"}
            ) as running,
        ):
            count = QUICK_CONSUMED if quick else CONSUMED
            _run(OURS, "fill", peer, place, {"names": running.names, "topic": _FILLED, "count": count, "body": BODY})
            for load in CLIENT_LOADS:
                for side in SIDES if apache else (OURS,):
                    progress(f"{load.name}, {side} client")
                    one = _measure_one(load, side, peer, running, place, count, quick=quick)
                    results.ones.setdefault((load.name, side), []).append(one)
    return results


def _measure_one(
    load: ClientLoad, side: str, peer: Apache, running: Running, place: Path, count: int, *, quick: bool
) -> Measurement:
    words: dict[str, object] = {
        "names": running.names,
        "topic": f"Bench-{side}-{load.at_once}" if load.at_once else _FILLED,
        "callers": load.at_once,
        "body": BODY,
        "warm": QUICK_WARM_S if quick else WARM_S,
        "seconds": QUICK_LOAD_S if quick else LOAD_S,
        "count": count,
    }
    return _run(side, "serve-send" if load.at_once else "serve-push", peer, place, words)


def _run(side: str, job: str, peer: Apache, place: Path, words: Mapping[str, object]) -> Measurement:
    command = [sys.executable, "-m", "engine.bench.client_load"]
    if side == APACHE:
        java = [str(peer.java), f"-Duser.home={place}", "-Drocketmq.client.logLevel=ERROR", "-cp", peer.class_path]
        command = [*java, MAIN]
    return measure([*command, job, *(f"{key}={value}" for key, value in words.items())], answers=True, timeout=_LIMIT_S)
