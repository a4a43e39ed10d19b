"""A driver for tests of a cluster: runs jobs in a session of the master that is named, and prints what they answer.

    python cluster_driver.py MASTER WORK

WORK is JSON: a list of [job, store, options]. The last line of the output is JSON: where executors have the package,
and the answers in order; an error as its class and text.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(master: str, work: list[list[Any]]) -> dict[str, Any]:
    from engine.pipeline.spark import session

    answers = []
    with session(master=master, conf=CONF, name="rstore cluster tests") as spark:
        context = spark.sparkContext
        where = sorted(set(context.parallelize(range(8), 8).map(executor).collect()))
        answers = [answer(spark, *one) for one in work]
    return {"driver": os.getpid(), "executors": where, "answers": answers}


def executor(_: int) -> tuple[str, str]:
    """On an executor: where it has the package from, and its directory, which is an executor's own."""
    import time

    import engine.pipeline.jobs.reindex_write as module

    time.sleep(0.3)  # long enough for the other one to get some
    return os.path.dirname(module.__file__), os.getcwd()


def answer(spark: Any, job: str, store: str, options: dict[str, Any]) -> dict[str, Any]:
    from importlib import import_module

    from engine.errors import RStoreError
    from engine.pipeline.stores import find_stores

    module = import_module(f"engine.pipeline.jobs.{job}")
    wanted = getattr(module, f"{job.capitalize()}Options")(**options)
    try:
        found: dict[str, Any] = module.run(spark, find_stores([store]), wanted).to_json()
    except RStoreError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
