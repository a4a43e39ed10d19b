"""What RocketMQ 5's own message store makes of damaged stores: writes `fixtures/starts/RELEASE.jsonl.xz`.

    python -m tests.compat.starts5 [RELEASE…]

The bases are what the same release wrote (`Starts5.java`): one closed cleanly, one killed in the middle of its puts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import mutate, starts

from . import damage5, fixtures, toolchain
from .apache import OPENS, Line

SETTINGS = starts.SETTINGS
OFTEN = {
    "flushIntervalCommitLog": 100,
    "flushCommitLogThoroughInterval": 100,
    "flushConsumeQueueThoroughInterval": 1000,
}
AT_ONCE = 12
"""Stores that are started side by side in one Java."""
HANG_S = 120
"""Seconds after which a start counts as hung."""
TURNS = 2
COUNT = 120
"""Damaged stores of each base; two bases a release."""
RELEASES = ("5.3.1", "5.3.3", "5.4.0", "5.5.0")


@dataclass(frozen=True)
class Job:
    """A store to start; further settings; topics whose queues have another type (`queue.type`); a file that says what
    is asked for then (Holds5.java).
    """

    store: Path
    settings: dict[str, object]
    types: dict[str, str]
    wanted: Path | None = None

    def line(self) -> str:
        """For the program."""
        asked = () if self.wanted is None else (str(self.wanted),)
        return "\t".join((str(self.store), _pairs(self.settings), _pairs(self.types), *asked)) + "\n"


def java(release: str, home: Path, words: list[str]) -> list[str]:
    """The command line of the program."""
    own = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
    classes = ["-cp", toolchain.store5(release), "io.rstore.compat5.Starts5"]
    return [
        str(toolchain.java()),
        "-Xmx6g",
        "-XX:MaxDirectMemorySize=3g",
        *toolchain.BRIEF,
        *own,
        *OPENS,
        *classes,
        *words,
    ]


def outcomes(release: str, jobs: Sequence[Job]) -> dict[str, Line]:
    """What a release's message store made of each, by the path of the store; the stores are changed."""
    with tempfile.TemporaryDirectory(prefix="rstore-starts-") as directory:
        file = Path(directory) / "jobs"
        file.write_text("".join(job.line() for job in jobs))
        words = java(release, Path(directory), ["start", str(file), str(AT_ONCE), str(HANG_S)])
        with _turn():
            ran = subprocess.run(words, capture_output=True, timeout=1500, check=True)
    lines = (line for line in ran.stdout.decode().splitlines() if line.startswith("{"))
    return {line["store"]: line for line in map(json.loads, lines)}


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Lets so many Javas of all workers run at a time: each may take the 6 GiB of its heap."""
    path = Path(tempfile.gettempdir()) / f"rstore-starts-turn-{os.getpid() % TURNS}"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_base(
    release: str, store: Path, *, killed: bool, topics: str = "Orders,Hot,Rare", messages: int = 420
) -> None:
    """A store of that release, new."""
    with tempfile.TemporaryDirectory(prefix="rstore-starts-") as home:
        settings = {**SETTINGS, **OFTEN} if killed else SETTINGS
        seed, pause = ("2", "240") if killed else ("1", "0")
        words = ["write", str(store), _pairs(settings), topics, str(messages), seed, pause]
        subprocess.run(java(release, Path(home), words), capture_output=True, timeout=120, check=True)
    for name in ("lock", "abort.bak"):
        (store / name).unlink(missing_ok=True)


def generate(release: str, count: int, work: Path) -> list[Line]:
    """All cases of a release, each with what came of it."""
    made: list[Line] = []
    for kind in ("clean", "killed"):
        base = f"{kind}-{release}"
        store = starts.unpack(base, work)
        made += damage5.cases(base, store, count)
    return list(run(release, made, work))


def _damaged(case: Line, store: Path) -> bool:
    """Makes the damaged store of a case; whether its damage fits its base."""
    starts.unpack(case["base"], store.parent)
    try:
        mutate.apply(store, case["ops"])
    except mutate.Misfit:
        return False
    return True


def run(release: str, cases: Iterable[Line], work: Path) -> Iterator[Line]:
    """Damages a copy for each case and starts it; the cases with their outcome."""
    made: dict[str, Line] = {}
    for case in cases:
        store = work / case["id"] / case["base"]
        if _damaged(case, store):
            made[str(store)] = case
    found = outcomes(release, [Job(Path(path), dict(SETTINGS), {}) for path in made])
    for path, case in made.items():
        outcome: dict[str, Any] = {name: value for name, value in found[path].items() if name != "store"}
        yield case | {"outcome": outcome}


def _pairs(values: dict[str, Any]) -> str:
    return ";".join(f"{name}={value}" for name, value in values.items())


def main(argv: list[str]) -> int:
    """Writes the bases that are not there, and the outcomes."""
    for release in argv or RELEASES:
        with tempfile.TemporaryDirectory(prefix="rstore-starts-") as directory:
            work = Path(directory)
            for kind in ("clean", "killed"):
                if not starts.archive(f"{kind}-{release}").is_file():
                    store = work / f"{kind}-{release}"
                    write_base(release, store, killed=kind == "killed")
                    fixtures.pack(store, store.name, int(time.time()), starts.DIRECTORY)
            lines = generate(release, COUNT, work / "cases")
        fixtures.write_lines(starts.DIRECTORY / f"{release}.jsonl.xz", lines)
        print(f"{release}: {len(lines)} stores", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
