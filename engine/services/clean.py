"""Deletes what has expired, and refuses puts on a disk that is nearly full (Apache CleanCommitLogService and
CleanConsumeQueueService).

Theory. Every ten seconds the disks are looked at, and every second while puts are refused for them. Every
cleanResourceInterval, the first time a minute after the start, there is a round: log files go by the rule of
engine.log.retention, then what of the consume queues, their extensions and the index lies before the log's new first
byte. A reader that has a file keeps what it has: its bytes stay mapped until it lets go. A file that somebody holds is
shut to others and is tried again, and after destroyMapedFileIntervalForcibly its holder is overruled.

The order is log, queues, index, each oldest first and each name durable before the next goes: killed anywhere, the log
is a run without a gap, and the next round does the rest. Before a log file goes the queues are made durable: it could
not tell them again.

Nothing of this ends the store's work: what fails is shown in `status` and tried again in the next round.

Where this differs from Apache: what dispatch has not read yet stays, so that no message misses its queue (Apache lets
dispatch jump); queues and index are tried again until nothing hangs, not only when the log has lost a file; one look
at both disks decides about puts (Apache's two checks undo each other's answer).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass
from engine.errors import DiskFull, InvalidArgument, RStoreError
from engine.format import names
from engine.log.retention import MANUAL_ROUNDS, DiskSpace, DiskUse, RetentionRules
from engine.services.running_flags import Flag, RunningFlags
from engine.services.worker import OnFailure, Worker, monotonic_ms

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.commitlog import CommitLog
    from engine.log.index_service import IndexService
    from engine.services.dispatch import DispatchService
    from engine.services.queue_table import QueueTable

FIRST_ROUND_MS = 60_000
"""How long after the start the first round is. Source: DefaultMessageStore#addScheduleTask."""

LOOK_MS = 10_000
"""Between two looks at the disks. Source: DefaultMessageStore#addScheduleTask, diskCheckScheduledExecutorService."""

REFUSED_LOOK_MS = 1000
"""Between two looks for puts that are refused."""


class RetentionArchive(Protocol):
    """What keeps segments before they are deleted: it is told which are to go, and has them deleted (`expire_before`)
    when it holds them."""

    @property
    def hint(self) -> str:
        """What to do about a full disk."""

    def want(self, before: int) -> None:
        """Retention would delete the log files that end at a physical offset or before. It must not block."""


@dataclass(frozen=True, slots=True)
class CleanStatus:
    """What the service has seen and done since the store was opened.

    Attributes:
        disk_use: how full the disks were at the last look; None before the first.
        disk_full: puts are refused because of that.
        manual_rounds: that are left of what was asked for by hand (Apache manualDeleteFileSeveralTimes).
        log_files, queue_files, index_files: how many were deleted.
        hanging: the oldest log file, when it is to go and somebody holds it.
        problems: what of the settings can't be gone by.
        errors: of the last round.
    """

    disk_use: DiskUse | None
    disk_full: bool
    manual_rounds: int
    log_files: int
    queue_files: int
    index_files: int
    hanging: str | None
    problems: tuple[str, ...]
    errors: tuple[RStoreError, ...]


class CleanService(Worker):
    """See the module. A round can also be had without the thread: `clean`.

    Args:
        disk: the system's files; its clock is the one of their modification times.
        log: its oldest files go.
        queues: follow it.
        index: follows it; None without an index.
        dispatch: how far it has read, files may go.
        flags: DISK_FULL while a disk is used above 90 % (diskSpaceWarningLevelRatio).
        config: settings of the store.
        on_failure: called with what ends the service: nothing but a bug.
    """

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        queues: QueueTable,
        index: IndexService | None,
        dispatch: DispatchService,
        flags: RunningFlags,
        config: StoreConfig,
        on_failure: OnFailure,
    ) -> None:
        super().__init__("CleanService", on_failure)
        self._disk = disk
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._flags = flags
        self._queue_path = str(config.store_path_root_dir / names.CONSUMEQUEUE)
        self._take(config)
        self._round = threading.Lock()
        self._redeleted = 0
        self._followed = 0
        self._hanging = False
        self._manual = 0
        self._asked = False
        self._looked_ms = 0.0
        self._use: DiskUse | None = None
        self._full_paths: tuple[str, ...] = ()
        self._archive: RetentionArchive | None = None
        self._log_files = self._queue_files = self._index_files = 0
        self._errors: tuple[RStoreError, ...] = ()

    # --- for others -------------------------------------------------------------------------------------------------

    @property
    def full_paths(self) -> tuple[str, ...]:
        """Log directories on disks that were used above 85 % at the last look: they get no new file."""
        return self._full_paths

    @property
    def errors(self) -> tuple[RStoreError, ...]:
        """What the last round could not do."""
        return self._errors

    @property
    def status(self) -> CleanStatus:
        """What it has seen and done."""
        first = self._log.files.first()
        return CleanStatus(
            self._use,
            self._flags.is_set_by(Flag.DISK_FULL, self.name),
            self._manual,
            self._log_files,
            self._queue_files,
            self._index_files,
            first.path if first is not None and not first.available else None,
            self._rules.problems,
            self._errors,
        )

    def execute_manually(self) -> None:
        """Have the next 20 rounds delete whatever the hour and the disks, the first at once.

        Raises InvalidArgument: the service does not run. Source: CleanCommitLogService#executeDeleteFilesManually.
        """
        if not self.running:
            raise InvalidArgument("the store was opened without its clean service")
        self._manual = MANUAL_ROUNDS
        self._asked = True
        self.wake()

    def look_soon(self) -> None:
        """A put was refused for a full disk: there may be space by now. At most once in REFUSED_LOOK_MS. Any thread."""
        now = monotonic_ms()
        if now - self._looked_ms >= REFUSED_LOOK_MS and self._flags.is_set_by(Flag.DISK_FULL, self.name):
            self._looked_ms = now
            self.wake()

    def between_rounds(self) -> contextlib.AbstractContextManager[object]:
        """A context in which no file is deleted."""
        return self._round

    def archive_with(self, archive: RetentionArchive) -> None:
        """Delete no file of the log from now on but what `archive` asks for: rounds tell it what is to go."""
        self._archive = archive

    def reconfigure(self, config: StoreConfig) -> None:
        """Go by other settings (when, how old, how full, which pauses) from now on."""
        self._take(config)
        self.wake()

    def _take(self, config: StoreConfig) -> None:
        self._rules = RetentionRules.of(config)
        self._config = config
        self._interval = max(1, config.clean_resource_interval)
        self._log_pause = config.delete_commit_log_files_interval
        self._queue_pause = config.delete_consume_queue_files_interval
        self._forcibly = config.destroy_maped_file_interval_forcibly
        self._redelete = config.redelete_hanged_file_interval

    def stop(self) -> None:
        """End, if need be in the middle of a round. Nobody looks at the disks then: nothing is refused for them.

        A file that hung goes if it can now: else the next start would find its messages again.
        """
        super().stop()
        self._errors += tuple(self._try(lambda: self._log.files.retry_delete_first(self._forcibly)))
        self._flags.clear(Flag.DISK_FULL, by=self.name)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = monotonic_ms() + FIRST_ROUND_MS
        going = True
        while going:
            now = monotonic_ms()
            if self._asked or now >= due:
                self._asked = False
                due = now + self._interval
                self.clean()
            elif failed := self._try(self.look):
                self._errors = tuple(failed)
            going = self._wait(max(0, min(LOOK_MS, due - monotonic_ms())))

    # --- a round ----------------------------------------------------------------------------------------------------

    def clean(self, *, by_hand: bool = False) -> int:
        """One round, now; how many log files went. `by_hand`: whatever the hour and the disks. What fails: `errors`."""
        with self._round:
            before = self._log_files
            failed: list[RStoreError] = []
            for step in (lambda: self._expire_log(by_hand), self._redelete_hanging, self._follow):
                failed += self._try(step)
            self._errors = tuple(failed)
            return self._log_files - before

    def expire_before(self, offset: int) -> int:
        """Delete the log files that end at a physical offset or before, and what follows them, as it was planned.

        Returns how many log files went: fewer where somebody holds one, it goes later. Raises StorageError: the rest is
        done by the next round.
        """
        with self._round:
            before, limit = self._log_files, min(offset, self.in_use)
            ends = (file.file_from_offset + file.file_size for file in self._log.files.files)
            count = sum(1 for end in ends if end <= limit)
            failed = [error for step in (lambda: self._delete_log(count), self._follow) for error in self._try(step)]
            self._errors = tuple(failed)
            if failed:
                raise failed[0]
            return self._log_files - before

    @property
    def in_use(self) -> int:
        """The physical offset from which on the log's files are needed: what is not dispatched, and the last file."""
        files = self._log.files.files
        return min(self._dispatch.position, files[-1].file_from_offset) if files else 0

    def look(self) -> DiskSpace:
        """How full the disks are, and what follows; sets or clears the store's mark. Raises StorageError."""
        use = DiskUse.of(self._config, self._disk.disk_used_ratio)
        space = self._rules.space(use)
        self._use, self._full_paths = use, space.full_paths
        if space.full:
            limit = self._rules.warning_ratio
            error = DiskFull(
                f"disk usage is {max(use.log, use.queues):.0%}: puts are refused above {limit:.0%}",
                path=use.logs[0][0] if use.log > limit else self._queue_path,
                hint="free space; no restart is needed" if self._archive is None else self._archive.hint,
            )
            self._flags.set(Flag.DISK_FULL, error, by=self.name)
        else:
            self._flags.clear(Flag.DISK_FULL, by=self.name)
        return space

    def _expire_log(self, asked: bool) -> None:
        space = self.look()
        now = self._disk.now_ms()
        by_hand = asked or self._manual > 0
        if self._rules.why(space, time.localtime(now / 1000).tm_hour, by_hand=by_hand) is None:
            return
        self._manual = max(0, self._manual - 1)
        in_use = self.in_use
        files = self._log.files.files
        ready = takewhile(lambda file: file.file_from_offset + file.file_size <= in_use, files)
        batch = self._rules.batch((file.last_modified_ms for file in ready), now, hurry=space.hurry)
        if self._archive is None:
            self._delete_log(batch.count)
        elif batch.count:
            last = files[batch.count - 1]
            self._archive.want(last.file_from_offset + last.file_size)

    def _delete_log(self, count: int) -> None:
        """Delete the oldest files of the log, up to the first that somebody holds."""
        if count:
            self._flush_queues()
        for number in range(count):
            if (number and not self._pause(self._log_pause)) or not self._log.files.delete_first(self._forcibly):
                break
            self._log_files += 1

    def _flush_queues(self) -> None:
        """Units are durable before their messages go: after a power cut nothing could tell them any more."""
        for queue in self._queues.opened():
            while not queue.flush(0):
                pass

    def _redelete_hanging(self) -> None:
        """Source: CleanCommitLogService#redeleteHangedFile."""
        now = self._disk.now_ms()
        if now - self._redeleted > self._redelete:
            self._redeleted = now
            self._log_files += self._log.files.retry_delete_first(self._forcibly)

    def _follow(self) -> None:
        """Queues and index lose what lies before the log's first byte. Source: CleanConsumeQueueService."""
        minimum = self._log.min_offset
        if minimum <= self._followed and not self._hanging:
            return
        self._hanging = True  # until all of it is done
        self._queues.begin_at(minimum)
        failed: list[RStoreError] = []
        left = False
        for key in self._queues.queues():
            deleted = 0
            try:
                queue = self._queues.find_to_expire(key)
                if queue is not None:
                    deleted = queue.delete_expired(minimum)
                    left |= queue.hanging
            except RStoreError as error:
                failed.append(error)
            self._queue_files += deleted
            if deleted and not self._pause(self._queue_pause):
                return
        if self._index is not None:
            self._index_files += self._index.delete_expired(minimum)
            left |= self._index.hanging
        if failed:
            raise failed[0]
        self._followed, self._hanging = minimum, left

    @staticmethod
    def _try(step: Callable[[], object]) -> list[RStoreError]:
        try:
            step()
        except RStoreError as error:
            return [error]
        return []
