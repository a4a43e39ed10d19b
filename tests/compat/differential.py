"""Apache's outcome for each damage case: writes `fixtures/differential.jsonl.xz`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import apache, damage, fixtures, mutate
from .apache import Line

AT_ONCE = 2


def generate(say: Callable[[str], object]) -> None:
    """Damages a fresh copy for each case, and lets Apache open it."""
    apache.harness()
    with tempfile.TemporaryDirectory(prefix="rstore-differential-") as work, ThreadPoolExecutor(AT_ONCE) as pool:
        cases = list(damage.all_cases())
        done = list(pool.map(lambda case: run(case, Path(work)), cases))
    fixtures.write_lines(fixtures.FIXTURES / "differential.jsonl.xz", done)
    hung = sum(1 for case in done if case["exit"] is None)
    say(f"differential: {len(done)} cases, {hung} of them hung\n")


def run(case: Line, work: Path) -> Line:
    """The case with Apache's outcome."""
    directory = work / case["id"]
    name = case["base"]
    store = fixtures.unpack(name, directory)
    try:
        mutate.apply(store, case["ops"])
        settings = fixtures.manifest(name)["settings"]
        return case | apache.outcome(store, fixtures.sizes(name), settings=settings)
    finally:
        shutil.rmtree(directory)
