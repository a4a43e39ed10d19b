"""A run of the bench: stores are made, jobs measured in turn, what was missed is profiled, the report written."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path

from engine.bench import apache, backups, clients, kafka, replicated, served, spark, stores
from engine.bench.child import MAKE
from engine.bench.jobs import JOBS, Against, Job, Size
from engine.bench.kafka import Kafka
from engine.bench.machine import machine
from engine.bench.measure import Measurement, TookTooLong, measure
from engine.bench.options import SMALLEST, BenchOptions
from engine.bench.results import Cache, JobPlace, Results, Side
from engine.bench.stores import LEFT, CopyState, KeptStore, Made
from engine.bench.timing import MeasureTask
from engine.bench.work import BATCH, write_lines
from engine.bench.workload import MIB, START, Workload, growing, workloads
from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.repair.create import create_store

_MAKE_S = 1800
_SPARK_S = 3600
_ON_SPARK = "b1k"
"""The workload that the pipeline is measured on."""
_PRELOAD = 24 * MIB
_KEPT = 2.0
"""Bytes of disk for a byte of log: the log, its queues and index, as they were left and closed."""
CLOSE = "recover-queues"
"""The job that closes what Apache left."""
_COPIES = 2
"""The same for copies of queues and index, what a rebuild makes beside them, and what is put."""
_OURS = "RSTORE_"

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

Progress = Callable[[int, int, str], None]


def as_installed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a measured process: an installed rstore has its bytecode, and compiles no module again."""
    return {name: value for name, value in environment.items() if name != _NO_BYTECODE}


def run(wanted: BenchOptions, progress: Progress | None = None) -> Results:
    """Measure all that is wanted, and write report.md, report.json and, where matplotlib is installed, ratios.svg.

    Raises:
        InvalidArgument: something that there isn't. StorageError: no room, a workload that can't be made.
    """
    from engine.bench.report import write

    wanted.checked()
    with _work_directory(wanted.work) as work:
        run_ = _Run(wanted, work, progress or (lambda done, total, label: None))
        results = run_.all()
    write(results, wanted.output)
    return results


@contextlib.contextmanager
def _work_directory(named: Path | None) -> Iterator[Path]:
    try:
        if named is not None:
            named.mkdir(parents=True, exist_ok=True)
            yield named
            return
        with tempfile.TemporaryDirectory(prefix="rstore-bench-") as made:
            yield Path(made)
    except OSError as error:
        raise StorageError((error.strerror or str(error)).lower(), path=error.filename) from None


def _lines_of(root: Path) -> Path:
    """Where the messages lie that are put into a store."""
    return root.with_suffix(".jsonl")


@dataclass(slots=True)
class _Run:
    wanted: BenchOptions
    work: Path
    progress: Progress
    results: Results = field(default_factory=Results)
    peer: apache.Apache | None = None
    dumper: Kafka | None = None
    done: int = 0
    total: int = 0

    def all(self) -> Results:
        """Everything."""
        results, wanted = self.results, self.wanted
        plan = list(wanted.plan())
        self.total = sum(len(jobs) for _, jobs in plan) + wanted.apart
        kept_bytes = [workload.size * workload.fill * _KEPT for workload, _ in plan] or [wanted.size * _KEPT]
        stored = max(kept_bytes) if wanted.work is None else sum(kept_bytes)
        besides = any(job.kafka for _, jobs in plan for job in jobs) and wanted.apache
        stores.demand_space(self.work, int(stored + wanted.size * (_COPIES + besides)))
        stores.remove(self._retired)  # of a run that was interrupted
        self._find_peer()
        results.facts = machine(self.work)
        results.settings = {
            "log": f"{wanted.size // MIB} MiB a workload",
            "rounds": f"{wanted.rounds}, of each side in turn; figures are medians",
            "page cache": ", ".join(cache.value for cache in wanted.caches),
        }
        if besides:
            self.dumper, results.settings[kafka.NAME] = kafka.look()
        for workload, jobs in plan:
            kept, small = self._keep(workload)
            stamps = kept.stamps()
            for job in jobs:
                self.progress(self.done, self.total, f"{job.name}, {workload.name}")
                for cache in wanted.caches if job.cold else (Cache.WARM,):
                    self._job(kept, small, job, cache)
                    kept.demand_same(stamps)
                self.done += 1
            self._profile(kept, small)
            stores.remove(self._retired)
            if wanted.work is None:
                stores.remove(kept.root)
                stores.remove(small.root)
                if self.dumper is not None:
                    stores.remove(self.dumper.log_of(kept, self.work))
        if wanted.wants_spark:
            self._spark()
        if wanted.wants_serve:
            self._serve()
        if wanted.wants_client:
            self._client()
        if wanted.wants_replication:
            self._replication()
        if wanted.wants_backup:
            self._backup()
        return results

    @property
    def _retired(self) -> Path:
        """Where stores of many files wait until the workload is measured."""
        return self.work / "retired"

    def _told(self, label: str) -> None:
        self.progress(self.done, self.total, label)

    def _loader(self, what: str) -> apache.Apache | None:
        """The load is a Java client's, whoever is loaded; None: there is none, which is noted."""
        try:
            return self.peer or apache.find()
        except apache.Missing as missing:
            self.results.settings[what] = f"not measured: {missing}"
            return None

    def _serve(self) -> None:
        """The daemon under load, against Apache's broker."""
        wanted, peer = self.wanted, self._loader("rstore serve")
        if peer is None:
            return
        try:
            self.results.served = served.measure_all(
                wanted.program, peer, self.work, wanted.rounds, self._told, quick=wanted.quick, apache=wanted.apache
            )
        except StorageError as error:
            self.results.failures.append(f"rstore serve under load: {error}")
        self.done += 1

    def _client(self) -> None:
        """Our client, beside Java's."""
        wanted, peer = self.wanted, self._loader("the client")
        if peer is None:
            return
        try:
            self.results.clients = clients.measure_clients(
                wanted.program, peer, self.work, wanted.rounds, self._told, quick=wanted.quick, apache=wanted.apache
            )
        except StorageError as error:
            self.results.failures.append(f"the client: {error}")
        self.done += 1

    def _replication(self) -> None:
        """Copies and sends, against Apache's slaves and masters."""
        wanted, peer = self.wanted, self._loader("replication")
        if peer is None:
            return
        self._told("creating a log to copy")
        kept = stores.keep(replicated.workload(wanted.size), self.work, self._make)
        bench = replicated.Bench(
            wanted.program, peer, self.work, kept, self._told, quick=wanted.quick, apache=wanted.apache
        )
        try:
            self.results.replicated = bench.measure(wanted.rounds)
        except StorageError as error:
            self.results.failures.append(f"replication: {error}")
        self.done += 1
        if wanted.work is None:
            stores.remove(kept.root)

    def _backup(self) -> None:
        """Backups and restores, beside restic and borg."""
        self._told("creating a store to back up")
        kept = stores.keep(backups.workload(self.wanted.size), self.work, self._make)
        bench = backups.BackupBench(self.wanted.program, self.work, kept, self._told)
        try:
            self.results.backups = bench.measure(self.wanted.rounds)
        except StorageError as error:
            self.results.failures.append(f"backups: {error}")
        self.done += 1
        stores.remove(kept.root)  # it has grown

    def _spark(self) -> None:
        """The pipeline's jobs, against the engine alone."""
        self.progress(self.done, self.total, "creating stores for Spark")
        workload = workloads(self.wanted.size)[_ON_SPARK]
        part = workload.sized(max(SMALLEST // 4, workload.size // max(spark.STORES)))
        large = stores.keep(workload, self.work, self._make)
        small = stores.keep(part, self.work, self._make, f"{workload.name}-part")
        many = self.work / "many"
        scratch = self.work / "spark"

        def copies(count: int) -> list[Path]:
            roots = [many / str(i) for i in range(count)]
            return [root if root.is_dir() else small.copy(CopyState.CLOSED, root) for root in roots]

        def child(words: list[str]) -> Measurement:
            self.progress(self.done, self.total, "the pipeline on Spark")
            return self._module(words, limit=_SPARK_S)

        stamps = large.stamps()
        stores.warm(large.root)
        stores.remove(many)
        try:
            measures, starts = spark.measure_all(large, small, copies, scratch, self.wanted.rounds, child)
            self.results.spark, self.results.spark_starts = measures, starts
        except StorageError as error:
            if "is not installed" in error.message or "Spark needs Java" in error.message:
                self.results.settings["Spark"] = f"not measured: {error.message}"
            else:
                self.results.failures.append(f"the pipeline on Spark: {error}")
        finally:
            for place in (many, scratch):
                stores.remove(place)
        large.demand_same(stamps)
        self.done += 1
        if self.wanted.work is None:
            stores.remove(large.root)
            stores.remove(small.root)

    def _find_peer(self) -> None:
        if not self.wanted.apache:
            self.results.apache = "not measured: not asked for"
            return
        try:
            self.peer = apache.find()
        except apache.Missing as missing:
            self.results.apache = f"not measured: {missing}"
            return
        self.results.apache = f"Apache RocketMQ {apache.VERSION}, Java {self.peer.version}, the JVM's own defaults"

    # --- stores -----------------------------------------------------------------------------------------------------

    def _keep(self, workload: Workload) -> tuple[KeptStore, KeptStore]:
        """The workload's store, and a small one of the same records to load kernels with."""
        small = replace(workload.sized(min(workload.size, _PRELOAD)), queues=min(workload.queues, 4), fill=1.0)
        self.progress(self.done, self.total, f"creating {workload.name}")
        by_apache = self.peer is not None and workload.fill == 1.0 and not workload.sealed and workload.name != START
        make = self._fill if by_apache else self._make
        return (
            stores.keep(workload, self.work, make, f"{workload.name}-left" if by_apache else None, by_apache=by_apache),
            stores.keep(small, self.work, self._make, f"{workload.name}-small"),
        )

    def _make(self, workload: Workload, root: Path) -> Made:
        made = self._child(MeasureTask(MAKE, workload, root), limit=_MAKE_S)
        return Made(made.messages, made.size)

    def _fill(self, workload: Workload, root: Path) -> Made:
        """By Apache's own store, whose process is killed in the end."""
        assert self.peer is not None
        left = root / LEFT
        left.mkdir()
        filled = measure(
            self.peer.command("fill", MeasureTask("fill", workload, left), {}), answers=True, timeout=_MAKE_S
        )
        stores.close_left(workload, root)
        self._child(MeasureTask(CLOSE, workload, root, filled.messages), limit=_MAKE_S)
        first, last = (int(filled.more[name]) for name in ("firstMs", "lastMs"))
        return Made(filled.messages, filled.size, True, first, max(1, filled.messages // max(1, last - first)))

    # --- measures ---------------------------------------------------------------------------------------------------

    def _job(self, kept: KeptStore, small: KeptStore, job: Job, cache: Cache) -> None:
        place = JobPlace(job.name, kept.workload.name, cache)
        alone = kept.workload.name in growing()
        sides = [Side.OURS] if job.inside else []
        sides += [Side.COMMAND] if job.command is not None and not alone else []
        sides += [Side.APACHE] if job.apache is not None and self.peer is not None and not alone else []
        sides += [Side.KAFKA] if job.kafka and self.dumper is not None and not alone else []
        failed: set[Side] = set()
        for _ in range(self.wanted.rounds):
            for side in sides:
                if side in failed:
                    continue
                try:
                    self.results.add(place, side, self._measure(kept, small, job, side, cache))
                except TookTooLong as error:
                    failed.add(side)
                    notes = self.results.ended if side in (Side.APACHE, Side.KAFKA) else self.results.failures
                    notes.append(f"{job.name} on {kept.workload.name}, {side.value}: {error}")
                except StorageError as error:
                    failed.add(side)
                    self.results.failures.append(f"{job.name} on {kept.workload.name}, {side.value}: {error}")

    def _measure(self, kept: KeptStore, small: KeptStore, job: Job, side: Side, cache: Cache) -> Measurement:
        if side is Side.KAFKA:
            assert self.dumper is not None
            log = self.dumper.fill(kept, self.work)
            stores.warm(log)
            return self.dumper.dump(kept, log, self.wanted.limit)
        with self._prepared(kept, job, side) as task:
            if cache is Cache.COLD:
                self.results.settings["cold by"] = stores.cool(task.root)
            elif job.state is not None:
                stores.warm(task.root)
            if side is Side.APACHE:
                assert self.peer is not None
                assert job.apache is not None
                return measure(
                    self.peer.command(job.apache, task, job.settings), answers=True, timeout=self.wanted.limit
                )
            if side is Side.COMMAND:
                env = {name: value for name, value in as_installed(os.environ).items() if not name.startswith(_OURS)}
                words = self._command(task, job)
                sample = measure(words, answers=False, timeout=self.wanted.limit, env=env, exits=job.exits)
                return replace(sample, messages=task.count)
            with self._prepared(small, job, side, "preload") as first:
                sample = self._child(task, first)
                return replace(sample, size=sample.size or kept.record_bytes) if job.size is Size.LOG else sample

    @contextlib.contextmanager
    def _prepared(self, kept: KeptStore, job: Job, side: Side, name: str = "run") -> Iterator[MeasureTask]:
        """A store for one measure, which goes afterwards, and what to do on it."""
        root = self.work / name
        state = CopyState.LOG_ONLY if job.name == "reindex" and side is Side.APACHE else job.state
        try:
            if state is None:
                stores.remove(root)
                root.mkdir()
            else:
                kept.copy(state, root)
            count = job.size.count(kept.messages, job.callers)
            if job.size is Size.PUTS:
                count = max(BATCH, count // BATCH * BATCH)
            made = kept.made
            yield MeasureTask(
                job.name, kept.workload, root, kept.messages, count, job.callers, made.first_ms, made.per_ms
            )
        finally:
            stores.retire(root, self._retired)
            _lines_of(root).unlink(missing_ok=True)

    def _command(self, task: MeasureTask, job: Job) -> list[str]:
        assert job.command is not None
        middle = task.messages // task.workload.queues // 2
        lines = _lines_of(task.root)
        words = [word.format(topic=task.workload.topic(0), middle=middle, lines=lines) for word in job.command]
        if job.size is Size.LINES:
            create_store(Disk(), task.config)
            write_lines(task, lines)
        # the log of a measured store may have hard links: its copies are made by them
        store = [] if job.name == "help" else ["--store", str(task.root), "--follow-links"]
        return [*self.wanted.program, *store, *words]

    def _child(
        self, task: MeasureTask, first: MeasureTask | None = None, profile: Path | None = None, limit: int | None = None
    ) -> Measurement:
        request = {
            "task": task.to_json(),
            "preload": None if first is None else first.to_json(),
            "profile": None if profile is None else str(profile),
        }
        return self._module(["engine.bench.child", json.dumps(request)], limit=limit)

    def _module(self, words: list[str], limit: int | None = None) -> Measurement:
        """A module of ours as a process, measured."""
        command = [sys.executable, "-m", *words]
        place = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([place, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**as_installed(os.environ), "PYTHONPATH": path}
        return measure(command, answers=True, timeout=self.wanted.limit if limit is None else limit, env=env)

    # --- what was missed --------------------------------------------------------------------------------------------

    def _profile(self, kept: KeptStore, small: KeptStore) -> None:
        """Once more under cProfile, what has missed a floor on this workload."""
        missed = {
            verdict.floor.job
            for verdict in self.results.verdicts()
            if verdict.floor.workload == kept.workload.name
            and verdict.met is False
            and verdict.floor.against in (Against.INSIDE, Against.WHOLE, Against.CRC)
        }
        for job in JOBS:
            if job.name not in missed or not job.inside:
                continue
            self.progress(self.done, self.total, f"profile of {job.name}, {kept.workload.name}")
            text = self.work / "profile.txt"
            text.unlink(missing_ok=True)
            with (
                self._prepared(kept, job, Side.OURS) as task,
                self._prepared(small, job, Side.OURS, "preload") as first,
            ):
                try:
                    self._child(task, first, text)
                except StorageError as error:
                    self.results.failures.append(f"profile of {job.name} on {kept.workload.name}: {error}")
                    continue
            self.results.profiles[job.name, kept.workload.name] = text.read_text(encoding="utf-8")
            text.unlink()
