"""What a run of the bench is asked for: workloads, jobs, rounds, caches; and which jobs that makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.bench import backups, clients, replicated, served, spark
from engine.bench.jobs import GROWN, JOBS, LIMITS, Job
from engine.bench.results import Cache
from engine.bench.workload import GIB, MIB, SPARSE, Workload, growing, workloads
from engine.dataclass import dataclass
from engine.errors import InvalidArgument

ROUNDS = 3
QUICK_SIZE = 128 * MIB
QUICK_ROUNDS = 1
SMALLEST = MIB
LIMIT_S = 300
_APART = (spark.NAME, served.NAME, clients.NAME, replicated.NAME, backups.NAME)
"""Jobs that have their own workloads."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is asked for.

    Attributes:
        program: the words that run the command line (`rstore`).
        output: the directory of the report; made when it is missing.
        size: bytes of a log.
        workloads, jobs: names; empty: all.
        rounds: measures of each side.
        caches: warm, cold or both.
        apache: whether Apache's store is measured, too.
        growth: whether the growing logs are measured, too: ours alone.
        work: where logs and copies go and stay; None: a temporary directory that goes.
        limit: seconds after which a measure is ended.
        spark, serve, client, replication: whether the pipeline on Spark, the daemon under load, the client, or
            replication is measured, too; alone, where it is the only job. `backup`: the same of backups.
        quick: short loads.
    """

    program: tuple[str, ...]
    output: Path
    size: int = GIB
    workloads: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    rounds: int = ROUNDS
    caches: tuple[Cache, ...] = (Cache.WARM,)
    apache: bool = True
    growth: bool = False
    work: Path | None = None
    limit: int = LIMIT_S
    spark: bool = False
    serve: bool = False
    replication: bool = False
    quick: bool = False
    client: bool = False
    backup: bool = False

    @property
    def wants_spark(self) -> bool:
        """By the flag, or as a job."""
        return self.spark or spark.NAME in self.jobs

    @property
    def wants_serve(self) -> bool:
        """By the flag, or as a job."""
        return self.serve or served.NAME in self.jobs

    @property
    def wants_client(self) -> bool:
        """By the flag, or as a job."""
        return self.client or clients.NAME in self.jobs

    @property
    def wants_replication(self) -> bool:
        """By the flag, or as a job."""
        return self.replication or replicated.NAME in self.jobs

    @property
    def wants_backup(self) -> bool:
        """By the flag, or as a job."""
        return self.backup or backups.NAME in self.jobs

    @property
    def apart(self) -> int:
        """Jobs that have their own workloads and are wanted."""
        return self.wants_spark + self.wants_serve + self.wants_client + self.wants_replication + self.wants_backup

    def checked(self) -> BenchOptions:
        """Self. Raises InvalidArgument: a name that there isn't, a size that is too small."""
        known = {"workload": tuple(self._workloads()), "job": (*(job.name for job in JOBS), *_APART)}
        for what, names in (("workload", self.workloads), ("job", self.jobs)):
            for name in names:
                if name not in known[what]:
                    raise InvalidArgument(f"unknown {what}: {name}", hint="there are " + ", ".join(known[what]))
        if not SMALLEST <= self.size <= GIB:
            raise InvalidArgument(f"--size {self.size} is invalid: 1M to 1G")
        if not any(self.plan()) and not self.apart:
            raise InvalidArgument("none of these jobs is measured on these workloads")
        return self

    def plan(self) -> Iterator[tuple[Workload, list[Job]]]:
        """The jobs of each workload, in order."""
        if self.jobs and set(self.jobs) <= set(_APART):
            return
        for workload in self._workloads().values():
            if self.workloads and workload.name not in self.workloads:
                continue
            jobs = [job for job in JOBS if self._wants(job, workload.name)]
            if any(job.name != LIMITS for job in jobs) or LIMITS in self.jobs:
                yield workload, jobs

    def _workloads(self) -> dict[str, Workload]:
        return {**workloads(self.size), **(growing(self.size) if self.growth else {})}

    def _wants(self, job: Job, workload: str) -> bool:
        if workload in growing():
            return job.name in GROWN and (not self.jobs or job.name in self.jobs)
        if self.jobs and job.name not in (*self.jobs, LIMITS):
            return False
        if workload in job.workloads:
            return True
        # a job that is asked for by name on a workload that is asked for by name
        return job.name in self.jobs and bool(self.workloads) and (workload == SPARSE) == (job.workloads == (SPARSE,))
