"""One measure in a process of its own: `python -m engine.bench.child`, a JSON object as its argument, one on stdout.

The argument: `{"task": …, "preload": … or null, "profile": PATH or null}`. `preload` is a task on a small store that is
run first, untimed: modules are imported and kernels loaded then. The answer: `{"seconds", "cpu", "messages", "bytes",
"more"}`, or `{"error": TEXT}` with exit code 1. The job `make` is none of `WORK`: it makes a kept store.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from engine.bench.timing import Done, MeasureTask, Timer
from engine.errors import RStoreError

MAKE = "make"
LIMITS = "limits"


def main(argument: str) -> int:
    """Run it."""
    request = json.loads(argument)
    try:
        if request["preload"] is not None:
            run(MeasureTask.of(request["preload"]), Timer())
        timer = Timer(None if request["profile"] is None else Path(request["profile"]))
        done = run(MeasureTask.of(request["task"]), timer)
    except (RStoreError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    answer: dict[str, Any] = {"seconds": timer.seconds, "cpu": timer.cpu, "messages": done.messages}
    print(json.dumps({**answer, "bytes": done.size, "more": done.more}))
    return 0


def run(task: MeasureTask, timer: Timer) -> Done:
    """Run a task in this process. Raises RStoreError, OSError."""
    if task.job == MAKE:
        return _make(task, timer)
    if task.job == LIMITS:
        from engine.bench.limits import limits

        return limits(task, timer)
    from engine.bench.work import WORK

    return WORK[task.job](task, timer)


def _make(task: MeasureTask, timer: Timer) -> Done:
    """The closed store: the log, and what recovery makes of it."""
    from engine.bench.work import recover
    from engine.bench.workload import write_log
    from engine.format import names
    from engine.format.checkpoint import FILE_SIZE

    made = write_log(task.workload, task.root / names.COMMITLOG)
    (task.root / names.CHECKPOINT).write_bytes(bytes(FILE_SIZE))
    (task.root / names.ABORT).touch()
    recover(task, timer)
    return Done(made.messages, made.record_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
