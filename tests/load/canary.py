"""How long a well-behaved client waits while another one attacks: the slowest of its sends, one each 20 ms.

    python -m tests.load.canary [--seconds 10] [--patience 60] [--tree DIR] [ATTACK …]

Each attack has a broker of its own, `rstore serve` with default settings and `enablePropertyFilter=true`, and attacks
it from a process of its own. SIGTERM is how long the broker takes to end then, amid the attack. `busy` is what this
machine does with a process that only takes CPU. `--tree`: whose code serves (default: this one). What takes longer than
`--patience` is not waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.errors import PeerLost
from tests.load.attacks import ATTACKS

ROOT = Path(__file__).resolve().parents[2]
EVERY_S = 0.02


@dataclass
class Seen:
    """One attack: times in s. `slowest`: of the canary's sends; `rounds`: of the attack, and what the last one said."""

    name: str
    sends: int = 0
    slowest: float = 0.0
    rounds: int = 0
    said: Any = None
    held: list[str] = field(default_factory=list)
    ended: float = 0.0
    times: list[float] = field(default_factory=list)

    def row(self) -> str:
        times = sorted(self.times) or [0.0]
        middle = times[len(times) // 2]
        return (
            f"| {self.name} | {self.sends} | {middle * 1000:.1f} | {times[int(len(times) * 0.99)] * 1000:.0f} | "
            f"{self.slowest * 1000:.0f} | {self.rounds} | {self.ended:.1f} | {str(self.said)[:40]} | "
            f"{', '.join(self.held)} |"
        )


def measure(name: str, seconds: float, patience: float, tree: Path) -> Seen:
    """One attack on a broker of its own."""
    attack = ATTACKS[name]
    seen = Seen(name)
    with tempfile.TemporaryDirectory(prefix="canary-") as place:
        store, conf = Path(place) / "store", Path(place) / "broker.conf"
        attack.prepare(store)
        conf.write_text("enablePropertyFilter=true\n" + getattr(attack, "settings", ""))
        words = ["--store", store, "-c", conf, "--port", "0", "--names-port", "0", "--metrics-port", "0"]
        words += ["--log-file", f"{place}/log", "--json"]
        serve = [sys.executable, "-m", "rstore_cli.app", "serve", *map(str, words)]
        with _process(serve, tree) as broker:
            assert broker.stdout is not None
            told = json.loads(broker.stdout.readline())
            addresses = [told["broker"], told["nameService"], told["metrics"]]
            with _process([sys.executable, "-m", "tests.load.attacks", name, *addresses], ROOT) as attacker:
                _amid(seen, broker, attacker, told["nameService"], seconds, patience)
        seen.held = _who_held(Path(place) / "log")
    return seen


def _amid(
    seen: Seen,
    broker: subprocess.Popen[str],
    attacker: subprocess.Popen[str],
    names: str,
    seconds: float,
    patience: float,
) -> None:
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    assert attacker.stdout.readline()
    asyncio.run(_sends(seen, attacker.stdin, names, seconds, patience))
    seen.sends, seen.slowest = len(seen.times), max(seen.times)
    began = time.monotonic()
    broker.send_signal(signal.SIGTERM)
    try:
        broker.wait(patience)
    except subprocess.TimeoutExpired:
        broker.kill()
    seen.ended = time.monotonic() - began
    attacker.kill()
    for line in attacker.stdout:
        said = json.loads(line)
        if "done" in said:
            seen.rounds, seen.said = seen.rounds + 1, said["done"]


async def _sends(seen: Seen, attack: IO[str], names: str, seconds: float, patience: float) -> None:
    """The canary: a producer that says each answer's time. `attack`: it is told to begin."""
    async with ClusterClient(ClientConfig((names,))) as client:
        producer = client.producer("canary", ProducerSettings(timeout_s=patience, retries=0))
        await producer.send(OutgoingMessage("Canary", b"first"))
        attack.write("\n")
        attack.flush()
        end = time.monotonic() + seconds
        following = time.monotonic()
        with contextlib.suppress(PeerLost):
            while (began := time.monotonic()) < end:
                try:
                    await producer.send(OutgoingMessage("Canary", b"x"))
                finally:
                    seen.times.append(time.monotonic() - began)
                following = max(following + EVERY_S, time.monotonic() - EVERY_S)
                await asyncio.sleep(max(0.0, following - time.monotonic()))


def _who_held(log: Path) -> list[str]:
    """What the daemon's log says of who held the loop: `handler ms`, the longest of each."""
    longest: dict[str, int] = {}
    for line in log.read_text().splitlines():
        said = json.loads(line)
        if said.get("message") == "the loop was held":
            longest[said["handler"]] = max(longest.get(said["handler"], 0), said["took_ms"])
    return [f"{name} {ms}" for name, ms in longest.items()]


@contextlib.contextmanager
def _process(words: list[str], tree: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone when the context ends."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tree, env=env)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.load.canary")
    parser.add_argument("attack", nargs="*", choices=[*ATTACKS, []])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--patience", type=float, default=60)
    parser.add_argument("--tree", type=Path, default=ROOT)
    given = parser.parse_args()
    print("| attack | sends | median ms | 99 % ms | slowest ms | rounds | SIGTERM s | said | held the loop, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.attack or ATTACKS:
        print(measure(name, given.seconds, given.patience, given.tree).row(), flush=True)


if __name__ == "__main__":
    main()
