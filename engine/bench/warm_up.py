"""Compile the kernels before anybody waits for them: `python -m engine.bench.warm_up`, a line of progress on stdout.

A small store is made, recovered, checked, rebuilt, read and written in a temporary directory, as the bench does before
it measures. What is compiled already costs nothing but that (about a second).
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.bench.child import MAKE, run
from engine.bench.timing import MeasureTask, Timer
from engine.bench.work import BATCH
from engine.bench.workload import MIB, Workload
from engine.broker.net import headers
from engine.errors import RStoreError
from engine.log.natives import NATIVES

_SIZE = 24 * MIB  # long enough to be read by kernels
_STEPS = {
    MAKE: "recovery",
    "verify-crc": "verification",
    "check": "check",
    "reindex": "reindex",
    "get-columns": "gets",
    "put-batch": "puts",
    "put-jsonl": "puts of a list",
}


def warm_up(tell: Callable[[str], None]) -> None:
    """Run each step; `tell` hears its name before. Raises RStoreError, OSError."""
    workload = Workload("warm-up", 128, size=_SIZE, segment=_SIZE)
    with tempfile.TemporaryDirectory(prefix="rstore-warm-up-") as made:
        messages = 0
        for job, name in _STEPS.items():
            tell(name)
            count = BATCH if job == "put-batch" else messages
            done = run(MeasureTask(job, workload, Path(made), messages, count), Timer())
            messages = done.messages if job == MAKE else messages
            if job == MAKE:
                tell("objects")
                for native in (*NATIVES, headers.REQUEST, headers.STORED):
                    native.compiled()
                tell("JSON lines")
                _lines(MeasureTask("dump", workload, Path(made), messages, messages))


def _lines(task: MeasureTask) -> None:
    """What `dump` and `get` with --json print and `put --jsonl` reads, which no job measures inside a process."""
    import numpy as np

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import dump_log_made
    from engine.log.batch import RecordBatch
    from engine.log.kernels.json_lines import LineForm, LineMaker
    from engine.log.kernels.message_lines import parsed_lines

    parsed_lines(b'{"topic":"T","body":"text"}\n')
    makers = LineMaker(LineForm("message")), LineMaker(LineForm(sound_only=True))

    def make(batch: RecordBatch) -> int:
        if batch.table is None:
            return 0
        at, sizes = (np.ascontiguousarray(batch.table[:, i]) for i in range(2))
        blocks = [maker.blocks(batch.buffer, at, sizes, at + batch.base, lambda _: None) for maker in makers]
        return sum(count for some in blocks for _, count in some)

    for _ in dump_log_made(Disk(), task.config, make):
        pass


def main() -> int:
    """Without numba there is nothing to compile."""
    if importlib.util.find_spec("numba") is None:
        return 0
    began = time.monotonic()
    print("Compiling kernels for long logs, once on this machine (about 10 s): ", end="", flush=True)
    try:
        warm_up(lambda name: print(name, end=", ", flush=True))
    except (RStoreError, OSError) as error:  # a full disk, say: then whoever reads a long log first waits
        print(f"not now: {error}")
        return 0
    print(f"done in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
