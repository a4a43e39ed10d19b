"""How far a job on Spark has come: Spark's own counts of tasks, looked at by a thread beside it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

    from engine.pipeline.result import Progress

EVERY_S = 0.3


@contextlib.contextmanager
def watched(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Calls `progress` with tasks done, tasks known so far, and the stage, while what is inside runs.

    How many stages there will be, Spark knows only when it plans them: the total grows.
    """
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, progress, ended), name="rstore-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(2 * EVERY_S)


def _watch(spark: SparkSession, progress: Progress, ended: threading.Event) -> None:
    tracker: StatusTracker | None = None
    seen: dict[int, tuple[int, int]] = {}
    running: list[int] = []
    while not ended.wait(EVERY_S):
        try:
            tracker = tracker or spark.sparkContext.statusTracker()
            active = sorted(tracker.getActiveStageIds())
            name = ""
            for stage in {*active, *running}:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
                    name = info.name if stage in active else name
                elif stage in seen:
                    seen[stage] = (seen[stage][1], seen[stage][1])
        except Exception:  # noqa: BLE001 - the JVM is going: there is nothing left to show
            return
        running = active
        done, total = (sum(column) for column in zip(*seen.values(), strict=True)) if seen else (0, 0)
        progress(done, total, name)
