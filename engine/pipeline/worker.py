"""What a Python worker of Spark does once, to be cheap for every task after that."""

from __future__ import annotations

import gc
import sys
from functools import cache


def settle() -> None:
    """At the end of a task: take what has been imported out of Python's search for garbage.

    Spark's daemon collects garbage after every task (pyspark/daemon.py); with numba loaded that is 60 ms of looking
    at modules that stay. Nothing outside of a worker of Spark.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze("numba" in sys.modules)


@cache
def _freeze(_: bool) -> None:
    """Once without kernels, once with them: what a task has left of its own is gone by then."""
    gc.collect()
    gc.freeze()
