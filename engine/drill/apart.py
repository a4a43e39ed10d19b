"""Runs drills, each in a process of its own, some at a time; on copies, with the proof that the original is untouched.

A process of its own, because a drill may end its process (a SIGBUS is what one of them is there to find), and because
a small file system can be mounted for one alone: in a user and mount namespace (unshare(1)), without root, gone
with the process. Where the system doesn't allow that, the drill is not run, and says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from engine.config import STORE_SIZES
from engine.dataclass import dataclass
from engine.drill.child import ChildTask, settings_text
from engine.drill.files import copy_tree, data_bytes, demand_own, demand_space, fingerprint, remove_tree, snapshot
from engine.drill.result import CARRIED_OUT, DrillReport, DrillResult, Failure, Original
from engine.drill.scene import moved
from engine.errors import InvalidArgument, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import holder_of
from engine.inspect.store.survey import survey

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.drill.script import Drill

Progress = Callable[[str, int, int], None]
"""(drill, done, total). Called from any thread."""

COPIES = 4
"""Copies of the store that one drill has at a time: the one it continues with, the planned one, a try, and a spare."""
_BYTES_A_SECOND = 5 << 20
"""The slowest that a large store is copied or checked."""
_MOUNT = 'mount -t tmpfs -o size="$0",mode=0700 rstore-drill "$1" && shift && exec "$@"'
_NAMESPACES = (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"])
"""How to get a mount namespace: as anybody, or (where users may not) as root."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How drills are run.

    Attributes:
        sample: interruptions a step; None: as the script says.
        thorough: every one of them.
        jobs: drills at a time; None: one a processor.
        keep: leave the scratch stores.
        scratch: the directory for them; None: the system's for temporary files.
    """

    sample: int | None = None
    thorough: bool = False
    jobs: int | None = None
    keep: bool = False
    scratch: str | None = None


def run_drills(
    drills: Sequence[Drill],
    *,
    source: StoreConfig | None = None,
    wanted: RunOptions | None = None,
    progress: Progress | None = None,
) -> DrillReport:
    """Run them; the results in their order. Scratch stores are removed, also when it is interrupted.

    Args:
        drills: which.
        source: the store to copy; None: each drill makes its own.
        wanted: how.
        progress: see Progress.

    Raises:
        InvalidArgument: the store's log lies outside of its directory, or the scratch directory inside.
        StoreLocked: a live process has it. NotAStore, CannotRepair: there is none to copy.
        OutsideStore: a link below the store leads somewhere.
        DiskFull: no room for copies. StorageError.
    """
    wanted = wanted or RunOptions()
    began = time.monotonic()
    disk = Disk()
    if source is not None:
        _demand_apart(wanted.scratch or tempfile.gettempdir(), os.fspath(source.store_path_root_dir))
    if wanted.scratch is not None:
        disk.mkdirs(wanted.scratch)
    scratch = tempfile.mkdtemp(prefix="rstore-drill-", dir=wanted.scratch)
    jobs = max(1, min(wanted.jobs or os.cpu_count() or 1, len(drills)))
    try:
        original = None if source is None else _Source.copied(disk, source, scratch, jobs)
        results = _Runs(scratch, original, wanted, progress).run(drills, jobs)
        proof = None if original is None else original.proof(disk)
    finally:
        if not wanted.keep:
            remove_tree(scratch)
    return DrillReport(results, wanted.thorough, wanted.sample, proof, time.monotonic() - began)


def _demand_apart(place: str, store: str) -> None:
    """Nothing may be written into the original, not even beside its files."""
    if Path(place).resolve().is_relative_to(Path(store).resolve()):
        raise InvalidArgument("the directory for scratch copies is inside the store", path=place, hint="--scratch DIR")


@dataclass(frozen=True, slots=True)
class _Source:
    """The store that was copied, its fingerprint before, and the copy's settings."""

    path: str
    before: str
    settings: str
    size: int

    @classmethod
    def copied(cls, disk: Disk, config: StoreConfig, scratch: str, jobs: int) -> _Source:
        """Copy it, once: the drills take their copies from that one."""
        files = survey(disk, config)
        demand_own(disk, config)
        root = files.root
        for path in config.log_directories:
            if not Path(path).resolve().is_relative_to(Path(root).resolve()):
                raise InvalidArgument("drills copy only the store's directory, and its log is outside of it", path=path)
        holder = holder_of(disk, root)
        if holder is not None:
            who = f"process {holder.pid}" if holder.pid else "another process"
            raise StoreLocked(
                f"the store is locked by {who}, which would change it while it is copied",
                path=root,
                hint="drill a snapshot",
            )
        size = data_bytes(disk, root)
        config = config.with_changes(**{name: getattr(files.config, name) for name in STORE_SIZES})
        # A store that is opened allocates the files that it continues with: two of the log, and one of the index.
        grows = 2 * config.mapped_file_size_commit_log + files.index_layout.file_size
        demand_space(disk, scratch, size + COPIES * jobs * (size + grows))
        before = fingerprint(snapshot(disk, root))
        copy = os.path.join(scratch, "original")
        copy_tree(disk, root, copy)
        return cls(root, before, settings_text(moved(config, copy)), size)

    def proof(self, disk: Disk) -> Original:
        """Look at the original again."""
        return Original(self.path, self.before, fingerprint(snapshot(disk, self.path)))


@dataclass(slots=True)
class _Runs:
    """The processes of one run of drills."""

    scratch: str
    source: _Source | None
    wanted: RunOptions
    progress: Progress | None
    running: set[subprocess.Popen[str]] = field(default_factory=set)
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, drills: Sequence[Drill], jobs: int) -> list[DrillResult]:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                futures = [pool.submit(self._one, number, drill) for number, drill in enumerate(drills)]
                return [future.result() for future in futures]
            except BaseException:
                self._stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.kill()

    def _one(self, number: int, drill: Drill) -> DrillResult:
        place = os.path.join(self.scratch, f"{number:02d}-{drill.name}")
        Path(place).mkdir()
        mounted = drill.store.file_system
        source = None if drill.store.own else self.source
        task = ChildTask(
            drill.text,
            drill.source,
            place,
            None if source is None else source.settings,
            self.wanted.sample,
            self.wanted.thorough,
            self.wanted.keep,
            mounted is not None,
            0 if source is None else source.size // _BYTES_A_SECOND,
        )
        if mounted is None:
            return self._result(drill, *self._run(drill, task, []))
        refusals = []
        for namespace in _NAMESPACES[: 2 if os.geteuid() == 0 else 1]:
            answer = self._run(drill, task, [*namespace, "sh", "-c", _MOUNT, str(mounted), place])
            if answer[0]:
                return self._result(drill, *answer)
            refusals.append(answer[2])
        why = "can't mount a small file system here: " + "; ".join(dict.fromkeys(refusals))
        return DrillResult(drill.name, drill.purpose, "not run", why)

    def _run(self, drill: Drill, task: ChildTask, prefix: list[str]) -> tuple[bool, dict[str, Any] | None, str]:
        """(whether it began, its result, what it said besides)."""
        with tempfile.TemporaryFile("w+") as errors:
            try:
                process = self._start([*prefix, sys.executable, "-P", "-m", "engine.drill.child"], errors)
            except FileNotFoundError as error:
                return False, None, f"{error.filename} is not installed"
            ready, result = False, None
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                with contextlib.suppress(BrokenPipeError):  # it ended before: its exit says why
                    process.stdin.write(task.to_line())
                    process.stdin.flush()
                for line in process.stdout:
                    answer = json.loads(line)
                    ready = ready or "ready" in answer
                    result = answer.get("result", result)
                    if "progress" in answer and self.progress is not None:
                        self.progress(drill.name, *answer["progress"])
            finally:
                self._end(process)
            errors.seek(0)
            errors_text = " | ".join(line.strip() for line in errors.read().splitlines() if line.strip())[-600:]
        if result is None and process.returncode < 0:
            errors_text = f"the process was killed by {signal.Signals(-process.returncode).name}. {errors_text}"
        return ready, result, errors_text

    def _start(self, command: list[str], errors: IO[str]) -> subprocess.Popen[str]:
        """A process that Ctrl-C doesn't reach: this one ends it."""
        ours = os.fspath(Path(__file__).resolve().parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ours, *filter(None, sys.path)])}
        with self.lock:
            if self.stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )
            self.running.add(process)
        return process

    def _end(self, process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        process.wait()
        with self.lock:
            self.running.discard(process)

    def _result(self, drill: Drill, ready: bool, result: dict[str, Any] | None, errors_text: str) -> DrillResult:
        if result is not None:
            return DrillResult.from_json(result)
        broken = DrillResult(drill.name, drill.purpose)
        broken.fail(Failure(0, CARRIED_OUT, "an end", errors_text or "the process ended without a result"))
        return broken
