"""What a Spark session needs for the data source, done in the driver when the source is registered.

Spark asks a data source for its name when it is registered, before it notes with which Python its workers are started:
so all of this holds in a session of a user, too, who does no more than `spark.dataSource.register(…)`. In a worker, and
with Spark Connect, which has no JVM here, nothing is done.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Sequence
from typing import Any

from engine.pipeline import prune
from engine.pipeline.failures import engine_error, is_of_spark

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_OURS = "_tells_errors_of_rstore"


def prepare(names: Sequence[str]) -> None:
    """Make the active session ready for the data source that has these names."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context
    session = SparkSession.getActiveSession() if context is not None else None
    if session is None:
        return
    _same_python(context)
    _own_errors()
    prune.install(session, names)


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver's JVM."""
    return _LOCAL.fullmatch(master) is not None


def python_of_workers(setting: str | None) -> str | None:
    """The Python that workers are started with: as spark.pyspark.python says, else PYSPARK_PYTHON, else this very one.

    Without it they are the first `python3` of PATH, which has no numpy and no rstore where an environment is not
    activated. None: PYSPARK_PYTHON says it. The order is Spark's own (its configuration page, spark.pyspark.python).

    Args:
        setting: spark.pyspark.python, where it is given.
    """
    if setting is not None or "PYSPARK_PYTHON" not in os.environ:
        return setting or sys.executable
    return None


def _same_python(context: Any) -> None:
    """Workers on this machine; those of a cluster are its own matter."""
    python = python_of_workers(context.getConf().get("spark.pyspark.python", None))
    if python is not None and is_local(str(context.master)):
        context.pythonExec = python


def _own_errors() -> None:
    """An engine error of the data source is raised as itself, and not as a traceback in an error of Spark.

    Where py4j makes a Java exception a Python one: pyspark puts its own errors in at the same place.
    """
    import py4j.java_gateway

    module: Any = py4j.java_gateway
    before = module.get_return_value
    if getattr(before, _OURS, False):
        return

    asking = threading.local()

    @functools.wraps(before)
    def value(*args: Any, **options: Any) -> Any:
        try:
            return before(*args, **options)
        except Exception as error:
            if getattr(asking, "now", False):  # what an error says is asked of the JVM, which may fail for its part
                raise
            asking.now = True
            try:
                own = engine_error(error) if is_of_spark(error) else None
            finally:
                asking.now = False
            if own is None:
                raise
            raise own from None

    setattr(value, _OURS, True)
    module.get_return_value = value
