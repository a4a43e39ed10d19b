"""What the pipeline's jobs cost on Spark, against the engine alone; how that grows with splits and with stores.

All measures of one kind (Spark on one core, on two, the engine alone) are made by one process
(`python -m engine.pipeline.measured`), as Spark takes seconds to start: that time is reported separately.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bench.workload import GIB
from engine.dataclass import dataclass
from engine.format.quantities import counted

if TYPE_CHECKING:
    from engine.bench.measure import Measurement
    from engine.bench.stores import KeptStore

NAME = "spark"
"""As a job's name on the command line."""
JOBS = ("verify", "reindex", "read")
SPLITS = (1, 4, 16, 64)
STORES = (1, 4, 16)
CORES = (1, 2)
_MIDDLE = 16
_FEW_SPLITS, SPLITS_MOST = 4, 1.5
"""The most splits may take so many times as long as these few do, for the jobs that judge and build."""
SPLIT_JOBS = ("verify", "reindex")

Child = Callable[[list[str]], "Measurement"]
"""Runs a module with its words as a process, and gives what it said."""


@dataclass(frozen=True, slots=True)
class SparkMeasure:
    """One measure: medians over the rounds.

    Attributes:
        job: its name.
        on: "spark" or "engine".
        cores: of Spark, or threads of the engine (processes, where it makes rows).
        splits: of each log; 0: as the job likes.
        stores: how many.
        size: bytes of all logs.
        seconds: of the job, Spark's start apart.
        rss, anon: peak of all Python workers together, bytes, with and without mapped files; 0 for the engine alone.
    """

    job: str
    on: str
    cores: int
    splits: int
    stores: int
    size: int
    seconds: float = 0.0
    rss: int = 0
    anon: int = 0

    @property
    def per_gib(self) -> float:
        """Seconds a GiB."""
        return self.seconds / self.size * GIB

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "job": self.job,
            "on": self.on,
            "cores": self.cores,
            "splits": self.splits,
            "stores": self.stores,
            "bytes": self.size,
            "seconds": self.seconds,
            "secondsPerGiB": self.per_gib,
            "workersRss": self.rss,
            "workersAnon": self.anon,
        }


def split_verdicts(measures: Sequence[SparkMeasure]) -> Iterator[tuple[str, bool]]:
    """How much longer jobs take with the most splits of a log than with a few, in words; whether that may be."""
    wide = {(m.job, m.splits): m.seconds for m in measures if (m.on, m.cores, m.stores) == (NAME, max(CORES), 1)}
    for job in SPLIT_JOBS:
        many, few = wide.get((job, max(SPLITS))), wide.get((job, _FEW_SPLITS))
        if many and few:
            ratio = many / few
            text = f"{job} in {counted(max(SPLITS), 'split')} takes {ratio:.2f} × the time of {_FEW_SPLITS}"
            yield f"{text}, at most {SPLITS_MOST} are asked for", ratio <= SPLITS_MOST


def measure_all(
    large: KeptStore, part: KeptStore, copies: Callable[[int], list[Path]], scratch: Path, rounds: int, child: Child
) -> tuple[list[SparkMeasure], dict[int, float]]:
    """All measures, and how long Spark took to start by cores (s).

    Args:
        large: a store to cut into splits.
        part: a small one.
        copies: so many copies of the small one.
        scratch: a directory to write in.
        rounds: of each.
        child: runs the process.

    Raises:
        StorageError: one could not be made.
    """
    size = large.record_bytes
    measured: list[SparkMeasure] = []
    starts: dict[int, float] = {}
    alone = [SparkMeasure(job, "engine", cores, 0, 1, size) for job in JOBS for cores in CORES]
    wanted = [(measure, [large.root]) for measure in alone]
    measured += _run(wanted, 0, scratch, rounds, child)[0]
    for cores in CORES:
        on_spark: list[tuple[SparkMeasure, list[Path]]] = []
        for job in JOBS:
            many = cores == max(CORES)
            for splits in SPLITS if many else (_MIDDLE,):
                on_spark.append((SparkMeasure(job, NAME, cores, splits, 1, size), [large.root]))
            for count in STORES if many else ():
                bytes_of_all = part.record_bytes * count
                on_spark.append((SparkMeasure(job, NAME, cores, 0, count, bytes_of_all), copies(count)))
        done, starts[cores] = _run(on_spark, cores, scratch, rounds, child)
        measured += done
    return measured, starts


def _run(
    wanted: list[tuple[SparkMeasure, list[Path]]], cores: int, scratch: Path, rounds: int, child: Child
) -> tuple[list[SparkMeasure], float]:
    measures = [
        {
            "job": measure.job,
            "stores": [str(root) for root in roots],
            "threads": measure.cores,
            "splitBytes": -(-measure.size // measure.splits) if measure.splits else None,
        }
        for measure, roots in wanted
    ]
    request = {"cores": cores, "rounds": rounds, "scratch": str(scratch), "measures": measures}
    more = child(["engine.pipeline.measured", json.dumps(request)]).more
    return list(_filled(wanted, more)), more.get("start", 0.0)


def _filled(wanted: list[tuple[SparkMeasure, list[Path]]], more: Any) -> Iterator[SparkMeasure]:
    for number, (m, _) in enumerate(wanted):
        rss, anon = (int(more[f"{number} {kind}"]) if m.on == NAME else 0 for kind in ("rss", "anon"))
        yield SparkMeasure(m.job, m.on, m.cores, m.splits, m.stores, m.size, more[str(number)], rss, anon)
