"""What the jobs cost, in a process of its own: `python -m engine.pipeline.measured`, for `rstore bench --spark`.

The argument is a JSON object: `{"cores": N or 0, "rounds": N, "scratch": DIR, "measures": [{"job", "stores": [DIR],
"splitBytes"}]}`. With cores, each job runs on Spark with local[N]; without, the engine does the same by itself, with
`"threads"` of the measure (for `read`: processes). On stdout, one line: `{"seconds", "messages", "bytes", "more":
{"start": s, "0": s, "0 rss": bytes, "0 anon": bytes, …}}`, medians of the rounds by the measure's place in the list;
memory is the peak of all Python workers together.

Every job runs once on the first stores that it is measured on, untimed: modules, kernels and workers are there then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.pipeline.splits import SPLIT_BYTES, Split, plan_splits
from engine.pipeline.stores import StoreRef, find_stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.05
_KIB = 1024

Run = Callable[[], int]
"""Does it once; the records that it saw."""


def main(argument: str) -> int:
    """Run it."""
    request = json.loads(argument)
    more: dict[str, float] = {}
    try:
        if request["cores"]:
            began = time.perf_counter()
            from engine.pipeline.spark import session

            with session(master=f"local[{request['cores']}]", name="rstore bench") as spark:
                more["start"] = time.perf_counter() - began
                messages = _all(request, more, spark)
        else:
            messages = _all(request, more, None)
    except (RStoreError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps({"seconds": more.get("start", 0.0), "messages": messages, "bytes": 0, "more": more}))
    return 0


def _all(request: dict[str, Any], more: dict[str, float], spark: SparkSession | None) -> int:
    seen: set[str] = set()
    messages = 0
    for number, measure in enumerate(request["measures"]):
        run = _run_of(measure, Path(request["scratch"]), spark)
        if measure["job"] not in seen:
            seen.add(measure["job"])
            run()
        seconds: list[float] = []
        with _Workers() as workers:
            for _ in range(request["rounds"]):
                began = time.perf_counter()
                messages = run()
                seconds.append(time.perf_counter() - began)
        more[str(number)] = statistics.median(seconds)
        more[f"{number} rss"], more[f"{number} anon"] = workers.rss, workers.anon
    return messages


def _run_of(measure: dict[str, Any], scratch: Path, spark: SparkSession | None) -> Run:
    stores = find_stores(f"{i}={place}" for i, place in enumerate(measure["stores"]))
    size = measure.get("splitBytes") or SPLIT_BYTES
    if spark is not None:
        return _on_spark(measure["job"], stores, size, scratch, spark)
    return _alone(measure["job"], stores[0], measure["threads"], scratch)


# --- on Spark --------------------------------------------------------------------------------------------------------


def _on_spark(job: str, stores: tuple[StoreRef, ...], size: int, scratch: Path, spark: SparkSession) -> Run:
    def verify() -> int:
        from engine.pipeline.jobs.verify import VerifyOptions, run

        return int(run(spark, stores, VerifyOptions(split_bytes=size)).facts["records"])

    def reindex() -> int:
        from engine.pipeline.jobs.reindex import ReindexOptions, run

        with _directory(scratch) as into:
            return int(run(spark, stores, ReindexOptions(split_bytes=size, output=into)).facts["records"])

    def read() -> int:
        """Every column of every record made, handed to the JVM, and dropped there."""
        from engine.pipeline.source import NAME

        reader = spark.read.format(NAME).option("splitBytes", size)
        reader.load(",".join(f"{s.name}={s.root}" for s in stores)).write.format("noop").mode("overwrite").save()
        return 0

    return {"verify": verify, "reindex": reindex, "read": read}[job]


# --- the engine alone ------------------------------------------------------------------------------------------------


def _alone(job: str, store: StoreRef, threads: int, scratch: Path) -> Run:
    def verify() -> int:
        from engine.inspect.check.verify import verify as run

        return run(Disk(), store.config, jobs=threads).records

    def reindex() -> int:
        from engine.repair.reindex.reindex import Scope, build

        with _directory(scratch) as into:
            return build(Disk(), store.config, into, Scope(), jobs=threads).records

    def read() -> int:
        """The same rows as Arrow batches, dropped at once."""
        from engine.inspect.parallel import run_apart

        splits = plan_splits([store])
        if threads == 1:
            return sum(map(_rows, splits))
        return sum(run_apart(_rows, splits, threads))

    return {"verify": verify, "reindex": reindex, "read": read}[job]


def _rows(split: Split) -> int:
    from engine.pipeline.read import SKIP, ReadOptions, read_split

    return sum(len(batch) for batch in read_split(split, ReadOptions(on_damage=SKIP)))


@contextlib.contextmanager
def _directory(scratch: Path) -> Iterator[str]:
    """A new directory that goes."""
    place = scratch / "out"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield str(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


# --- memory ----------------------------------------------------------------------------------------------------------


class _Workers:
    """Watches the memory of all Python processes below this one: the peak of their sum, in bytes."""

    def __init__(self) -> None:
        self.rss = 0
        self.anon = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Workers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            memories = [_memory(pid) for pid in _below(os.getpid())]
            self.rss = max(self.rss, sum(rss for rss, _ in memories))
            self.anon = max(self.anon, sum(anon for _, anon in memories))


def _below(root: int) -> Iterator[int]:
    """Python processes below `root`, however deep."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                words = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
                parents[int(entry)] = int(words.split()[1])
    for pid in parents:
        at: int | None = pid
        while at is not None and at != root:
            at = parents.get(at)
        if at == root and pid != root:
            with contextlib.suppress(OSError):
                if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]:
                    yield pid


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, with and without mapped files."""
    fields = {"VmRSS": 0, "RssAnon": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in fields:
                fields[name] = int(value.split()[0]) * _KIB
    return fields["VmRSS"], fields["RssAnon"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
