"""Making the commit log durable: at once for many puts together, from time to time, or by way of the write buffers.

    SYNC_FLUSH                     GroupCommitService      puts wait; one flush serves all that came meanwhile
    ASYNC_FLUSH                    FlushRealTimeService    every flushIntervalCommitLog ms, when enough pages wait
    … with transientStorePool      CommitRealTimeService   write buffer → file; then FlushRealTimeService

Theory (Apache CommitLog.GroupCommitService, FlushRealTimeService, CommitRealTimeService, FlushDiskWatcher). Each
sets the checkpoint's physicMsgTimestamp from what it has made durable.

When a flush fails the kernel may have dropped the pages, and says so only once. So a failed flush is final: the
puts that wait for it fail, the store takes no more, and nothing is flushed again to be then called durable.

Where this differs from Apache: services without work sleep until they are woken, instead of every 10 or 500 ms; and a
last flush sets the checkpoint, too.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import TYPE_CHECKING

from engine.errors import RStoreError, Shortage
from engine.log.results import PutMessageStatus
from engine.services.waiting import FlushFuture
from engine.services.worker import OnFailure, Worker, monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.log.checkpoint import CheckpointFile
    from engine.log.commitlog import CommitLog


_OK, _LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT
_YOUNG = 10
"""The part (one of so many) of the time that a put may wait for which others join its group."""


class WaitWatcher(Worker):
    """Ends waiting after its time, with `outcome`. All futures are given the same time, so the oldest ends first."""

    def __init__(self, name: str, timeout_ms: float, outcome: PutMessageStatus, on_failure: OnFailure) -> None:
        super().__init__(name, on_failure)
        self._timeout_ms = timeout_ms
        self._outcome = outcome
        self._idle = True
        self._waiting: deque[tuple[float, FlushFuture]] = deque()

    def add(self, future: FlushFuture) -> None:
        """Answer with the outcome after the timeout, unless there is an answer by then."""
        waiting = self._waiting
        with self._condition:
            while waiting and waiting[0][1].done:  # what is over is not kept until its time
                waiting.popleft()
            waiting.append((monotonic_ms() + self._timeout_ms, future))
            if self._idle:  # else it looks when the time of an older one is over, before this one's
                self._idle = False
                self.wake()

    def _run(self) -> None:
        going = True
        while going:
            with self._condition:
                while self._waiting and self._waiting[0][1].done:
                    self._waiting.popleft()
                left = self._waiting[0][0] - monotonic_ms() if self._waiting else None
                self._idle = left is None
                late = self._waiting.popleft()[1] if left is not None and left <= 0 else None
            if late is not None:
                late.settle(self._outcome)
            else:
                going = self._wait(left)


class GroupCommitService(Worker):
    """Flushes for puts that wait for it: those that come together are a group, with one future and one time to wait.

    A put joins the newest group while that is young, so that nobody is given much less than the time he may wait.
    """

    def __init__(self, log: CommitLog, checkpoint: CheckpointFile, config: StoreConfig, on_failure: OnFailure) -> None:
        super().__init__("GroupCommitService", self._failed)
        self._log = log
        self._checkpoint = checkpoint
        self._tell = on_failure
        self._lock = threading.Lock()
        self._groups: list[FlushFuture] = []
        self._join_until = 0.0
        self._join_ms = config.sync_flush_timeout / _YOUNG
        self._wanted = 0
        self._failure: RStoreError | None = None
        self._over = False
        self._begin: Callable[[], None] = self.wake
        self._watcher = WaitWatcher("FlushDiskWatcher", config.sync_flush_timeout, _LATE, on_failure)

    def start(self) -> None:
        """Begin to work."""
        self._over = False
        self._watcher.start()
        super().start()

    def stop(self) -> None:
        """Flush what is there, answer who waits, and end."""
        super().stop()
        self._watcher.stop()

    def submit(self, next_offset: int) -> FlushFuture:
        """Ask for the log to be durable up to `next_offset` (physical)."""
        with self._lock:
            failure = self._failure
            if failure is not None or self._over:
                durable = next_offset <= self._log.flushed_where
                return FlushFuture.settled(_OK if durable else failure or _LATE)
            self._wanted = max(self._wanted, next_offset)
            groups, now = self._groups, monotonic_ms()
            if groups and now < self._join_until:
                return groups[-1]
            self._join_until = now + self._join_ms
            group = FlushFuture()
            groups.append(group)
            first = len(groups) == 1
        self._watcher.add(group)
        if first:
            self._begin()
        return group

    def begin_through(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Have `begin` called with what begins a flush, where a put asks for one: at once, or a moment later."""
        self._begin = functools.partial(begin, self.wake)

    def _run(self) -> None:
        going = True
        while going:
            going = self._wait(None)
            self._flush()

    def _flush(self) -> None:
        groups, wanted = self._taken()
        try:
            if groups:
                while self._log.flushed_where < wanted and not self._log.flush(0):
                    pass
            else:  # somebody who does not wait
                while not self._log.flush(0):
                    pass
        except RStoreError as error:
            self._answer(groups, wanted, error)
            raise
        _set_physic(self._checkpoint, self._log)
        self._answer(groups, wanted, None)

    def _ended(self) -> None:
        """A put may come after the last flush: it was appended before the log was sealed."""
        with self._lock:
            self._over = True
        self._answer(*self._taken(), self._failure)

    def _taken(self) -> tuple[list[FlushFuture], int]:
        """The groups that wait, and up to where their puts go; who comes now is of the next."""
        with self._lock:
            groups, self._groups = self._groups, []
            wanted, self._wanted = self._wanted, 0
        return groups, wanted

    def _answer(self, groups: list[FlushFuture], wanted: int, error: RStoreError | None) -> None:
        outcome = _OK if wanted <= self._log.flushed_where else error or _LATE
        for group in groups:
            group.settle(outcome)

    def _failed(self, error: RStoreError) -> None:
        with self._lock:
            self._failure = error
        groups, _ = self._taken()
        self._tell(error)
        for group in groups:
            group.settle(error)


class FlushRealTimeService(Worker):
    """Flushes every flushIntervalCommitLog ms what is worth it, and all every flushCommitLogThoroughInterval."""

    def __init__(self, log: CommitLog, checkpoint: CheckpointFile, config: StoreConfig, on_failure: OnFailure) -> None:
        super().__init__("FlushRealTimeService", on_failure)
        self._log = log
        self._checkpoint = checkpoint
        self._interval = config.flush_interval_commit_log
        self._timed = config.flush_commit_log_timed
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough = config.flush_commit_log_thorough_interval
        self._last = 0.0

    def _run(self) -> None:
        going = True
        while going:
            idle = self._log.files.remain_to_flush() <= 0
            going = self._wait(None if idle else self._interval)
            if going and self._timed:
                going = self._pause(self._interval)
            if going:
                self._flush()
        while not self._log.flush(0):
            pass
        _set_physic(self._checkpoint, self._log)

    def _flush(self) -> None:
        now = monotonic_ms()
        least = self._least_pages
        if now >= self._last + self._thorough:
            self._last = now
            least = 0
        self._log.flush(least)
        _set_physic(self._checkpoint, self._log)


class CommitRealTimeService(Worker):
    """Copies the write buffers to their files, then wakes the flush and the dispatch.

    A full disk, and a lack of descriptors, are waited for: nothing is lost meanwhile but time, and `on_full` is told
    (None when it is over).
    """

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        on_commit: Callable[[], None],
        on_full: Callable[[Shortage | None], None],
        on_failure: OnFailure,
    ) -> None:
        super().__init__("CommitRealTimeService", on_failure)
        self._log = log
        self._on_commit = on_commit
        self._on_full = on_full
        self._full = False
        self._interval = config.commit_interval_commit_log
        self._least_pages = config.commit_commit_log_least_pages
        self._thorough = config.commit_commit_log_thorough_interval
        self._last = 0.0

    def _run(self) -> None:
        going = True
        while going:
            self._commit()
            idle = self._log.files.remain_to_commit() <= 0
            going = self._wait(None if idle else self._interval)
        while not self._log.commit(0):
            self._on_commit()

    def _commit(self) -> None:
        now = monotonic_ms()
        least = self._least_pages
        if now >= self._last + self._thorough:
            self._last = now
            least = 0
        try:
            still = self._log.commit(least)
        except Shortage as error:
            self._full = True
            self._on_full(error)
            return
        if self._full:
            self._full = False
            self._on_full(None)
        if not still:
            self._last = monotonic_ms()
            self._on_commit()


def _set_physic(checkpoint: CheckpointFile, log: CommitLog) -> None:
    timestamp = log.flushed_timestamp
    if timestamp > 0:
        checkpoint.physic_msg_timestamp = timestamp
