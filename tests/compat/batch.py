"""Many runs of Apache's store in one JVM, whose start costs more than most runs: each run has a store of its own.

runs = [batch.holds(store, wanted, sizes) for store in stores]
for opened in batch.run(runs): ...
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .apache import Exit, Opened, Sizes, command, options, parse

AT_ONCE = 16
"""Runs at the same time: most of a run is waiting, Apache sleeps a second in its shutdown."""
HANG = 60.0
"""Seconds after which a run counts as hung."""


@dataclass(frozen=True)
class Run:
    """One program of the Java side, and its words."""

    main: str
    words: tuple[str, ...]


def holds(store: Path, wanted: Path, sizes: Sizes, settings: Mapping[str, object] | None = None) -> Run:
    """Opens a store as a broker does, and tells which messages it gives: see Holds.java, also for `wanted`."""
    return Run("Holds", (str(store), "--wanted", str(wanted), *options(sizes, settings)))


def append(
    store: Path, queue: tuple[str, int], count: int, sizes: Sizes, settings: Mapping[str, object] | None = None
) -> Run:
    """Puts `count` messages as `apache.append`, and gets them as a broker does for a consumer (`pulled` lines)."""
    topic, queue_id = queue
    return Run("Append", (str(store), topic, str(queue_id), str(count), "--pull", *options(sizes, settings)))


def run(runs: Sequence[Run], *, hang: float = HANG) -> list[Opened]:
    """What each run printed and how it ended, in the order given."""
    with tempfile.TemporaryDirectory(prefix="rstore-batch-") as directory:
        root = Path(directory)
        jobs = [{"main": one.main, "args": one.words, "out": str(root / f"{i}.out")} for i, one in enumerate(runs)]
        file = root / "jobs.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
        given = [str(file), "--at-once", str(AT_ONCE), "--timeout", str(int(hang))]
        with command("Batch", given) as words:
            ran = subprocess.run(words, capture_output=True, check=False, timeout=hang * (2 + len(runs) / AT_ONCE))
        said = ran.stderr.decode(errors="replace")
        if ran.returncode != Exit.OPENED:
            raise RuntimeError(f"the batch ended with {ran.returncode}: {ran.stdout.decode(errors='replace')}{said}")
        exits = {line["number"]: line["exit"] for line in parse(ran.stdout)}
        if Exit.USAGE in exits.values():
            raise ValueError(said.strip())
        return [Opened.of(exits[i], parse((root / f"{i}.out").read_bytes()), said) for i in range(len(runs))]
