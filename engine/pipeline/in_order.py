"""Rows of a log through Spark, in log order, without ever holding more than a few splits of them.

Spark hands over partitions in order (toLocalIterator), but works on one at a time then. So each task is a Spark job of
its own, as many at once as the cluster has cores, and the answers are taken in the tasks' order: what waits is bounded
by twice that number.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def in_order(spark: SparkSession, tasks: Iterable[Task], work: Callable[[Task], Answer]) -> Generator[Answer]:
    """`work(task)` of each task, done by executors, in order. Who stops taking answers cancels the rest.

    Args:
        spark: the session.
        tasks: what is to be done; goes to executors pickled.
        work: a function that executors can import; its answers come back pickled.

    Raises:
        Whatever Spark raises (engine.pipeline.failures.translate).
    """
    context = spark.sparkContext

    def job(task: Task) -> Answer:
        (answer,) = context.parallelize([task], 1).map(work).collect()
        return answer

    at_once = max(1, context.defaultParallelism)
    left = iter(tasks)
    waiting: collections.deque[Future[Answer]] = collections.deque()
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="rstore-spark")
    try:
        waiting.extend(pool.submit(job, task) for task in itertools.islice(left, 2 * at_once))
        while waiting:
            answer = waiting.popleft().result()
            waiting.extend(pool.submit(job, task) for task in itertools.islice(left, 1))
            yield answer
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if waiting:
            with contextlib.suppress(Exception):  # the JVM may be gone
                context.cancelAllJobs()
        pool.shutdown(wait=True)
