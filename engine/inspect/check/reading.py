"""The reading of the log for check: in one process by threads, or in several; as a whole, or up to a stale tail."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.check.log import LogPart, LogTask, check_apart, check_log
from engine.inspect.check.stale_tail import StaleJudge
from engine.inspect.check.verify import live_end
from engine.inspect.parallel import processes, run_apart
from engine.log.scan import Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.files.disk import Disk
    from engine.inspect.check.index import IndexPiece
    from engine.inspect.check.stale_tail import StaleTail
    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.survey import StoreFiles

RUNS_PER_PROCESS = 4


@dataclass(frozen=True, slots=True)
class CheckReading:
    """How it is read: as the fields of `LogTask` say. `progress`: called with bytes read and in all."""

    disk: Disk
    files: StoreFiles
    pieces: tuple[IndexPiece, ...] | None
    live: bool
    deadline: float | None
    bridged: Intervals
    jobs: int | None
    progress: Callable[[int, int], None] | None

    def parts(self, stop: int | None) -> list[LogPart]:
        """What the log holds, up to its last file's end or to the physical offset `stop`.

        Raises:
            StorageError.
        """
        files = self.files
        if self.live and stop is None and files.log:
            with ClosedLog(self.disk, files.log) as source:
                stop = live_end(source)
        indexed = max((p.high for p in self.pieces or ()), default=0) if self.live else None
        size = sum(s.size for s in files.log)
        one = files.rocksdb is not None or self._by_threads()  # an open database is not taken to another process
        count = 1 if one else processes(self.jobs, len(files.log), size)
        log = tuple(s for s in files.log if stop is None or s.offset < stop)
        tasks = [
            LogTask(files, run, self.pieces, self.live, indexed, self.deadline, self.bridged, self.jobs, stop)
            for run in _runs(log, count)
        ]
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if self.progress is not None:
                self.progress(done, size)

        parts: list[LogPart] = []
        results: Iterator[LogPart] = (
            (check_log(self.disk, task, advance) for task in tasks)
            if count == 1
            else run_apart(check_apart, tasks, count)
        )
        for task, part in zip(tasks, results, strict=True):
            parts.append(part)
            if count > 1:
                advance(sum(s.size for s in task.segments))
        return parts

    def stale(self, parts: list[LogPart]) -> StaleTail | None:
        """The stale records after the log end, if there are any: judged as recovery does (stale_tail.py)."""
        files = self.files
        if self.live or not all(part.in_time for part in parts):
            return None
        places = [place for part in parts for place in part.back]
        places += [(two.start, one.last_stored) for one, two in pairwise(parts) if two.records]
        with ClosedLog(self.disk, files.log) as log:
            scanner = Scanner(log, max_message_size=files.config.max_message_size)
            judge = StaleJudge(self.disk, files, scanner, files.log[0].offset)
            return next((t for at, stored in sorted(places) if (t := judge.judge(at, stored)) and t.records), None)

    def _by_threads(self) -> bool:
        """Whether one process reads the log, by kernels and in threads."""
        segments = self.files.log
        with ClosedLog(self.disk, segments) as log:
            return not self.live and Scanner(log).by_kernels(segments[0].offset, segments[-1].end) is not None


def _runs(log: tuple[Segment, ...], count: int) -> Iterator[tuple[Segment, ...]]:
    """The segments in runs, a few for each process; one for one process."""
    runs = 1 if count == 1 else min(len(log), count * RUNS_PER_PROCESS)
    for i in range(runs):
        yield log[i * len(log) // runs : (i + 1) * len(log) // runs]
