"""Starts processes of clients, tells them where the broker is, and takes what they have seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
END_S = 60
SETTLED_S = 0.3


@dataclass
class Clients:
    """One process of clients. A context manager: it is gone when that ends."""

    wanted: dict[str, Any]
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.load.clients", json.dumps(self.wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def quiet(self) -> None:
        """Send no more, but stay."""
        self._tell({"quiet": True})
        time.sleep(SETTLED_S)

    def told(self) -> dict[str, Any]:
        """What it has seen so far."""
        self._tell({"tell": True})
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def until_many(self, more: int, patience_s: float = END_S) -> None:
        """Wait until it has sent, or got, so many more messages than by now."""
        end, wanted = time.monotonic() + patience_s, len(self.told()["keys"]) + more
        while len(self.told()["keys"]) < wanted and time.monotonic() < end:
            time.sleep(SETTLED_S / 6)

    def until(self, wanted: set[str], patience_s: float) -> set[str]:
        """Wait until it has got these keys; those that it hasn't."""
        end = time.monotonic() + patience_s
        while missing := wanted - set(self.told()["keys"]):
            if time.monotonic() > end:
                break
            time.sleep(SETTLED_S)
        return missing

    def _tell(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Have it end; what it has seen."""
        said, _ = self.process.communicate(timeout=END_S)
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def start(role: str, names: str, name: str, topic: str = "Load", **more: Any) -> Clients:
    """See `tests.load.clients.Wanted`."""
    return Clients({"role": role, "names": names, "name": name, "topic": topic, **more})


@dataclass(frozen=True)
class Held:
    """What a process holds: memory in bytes, descriptors, maps, threads."""

    rss: int
    descriptors: int
    maps: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        """Of a process on this machine."""
        place = Path("/proc") / str(pid)
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        # Pages of mapped files come and go with the page cache: what the process itself holds is anonymous.
        return cls(
            int(status["RssAnon"].split()[0]) << 10,
            len(os.listdir(place / "fd")),
            len((place / "maps").read_text().splitlines()),
            int(status["Threads"]),
        )
