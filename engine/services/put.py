"""The way of a put: may the store take it, append, then wait for the flush and the slave as far as was asked for.

Sources: DefaultMessageStore#checkStoreStatus, #checkLmqMessage, #putMessage, #waitForPutResult,
CommitLog#submitFlushRequest, #submitReplicaRequest.

Differences: a message for too many light queues is refused (Apache checks, then looks at the wrong result); each
refusal has its reason in `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from engine.config import BrokerRole
from engine.errors import RStoreError, Shortage, StorageError
from engine.format import properties
from engine.format.quantities import counted
from engine.log.results import (
    AppendedRun,
    MessageRefused,
    PutMessageStatus,
    PutResult,
    StoreClosed,
    WriteFailed,
)
from engine.services.shortage import lasts
from engine.services.waiting import FlushFuture, Pending

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.format.batch import BatchItem
    from engine.format.columns import MessageColumns
    from engine.format.message import Message
    from engine.log.commitlog import Clock, CommitLog
    from engine.services.flush import GroupCommitService
    from engine.services.queue_table import QueueTable
    from engine.services.running_flags import RunningFlags

Replicate = Callable[[int], "FlushFuture"]
"""Asks slaves for the log up to a physical offset: PUT_OK, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""

_GRACE_MS = 5000
"""How much longer than any timeout a put is waited for. Source: DefaultMessageStore#waitForPutResult."""

_made = tuple.__new__
"""As in engine.log.commitlog."""
_LONG_AGO = 10_000_000
_OK = PutMessageStatus.PUT_OK
_UNAVAILABLE = PutMessageStatus.SERVICE_NOT_AVAILABLE


class PutService:
    """See the module. Thread-safe.

    Args:
        log: appended to.
        flags: whether puts are taken.
        queues: counts light queues.
        config: settings of the store.
        clock: ms.
        group_commit: with SYNC_FLUSH, who flushes for us; None otherwise.
        appended: is called after each append (wakes dispatch and flush).
        refused: is called when a flag has refused a put: what set it may look again.
    """

    def __init__(
        self,
        log: CommitLog,
        flags: RunningFlags,
        queues: QueueTable,
        config: StoreConfig,
        clock: Clock,
        group_commit: GroupCommitService | None,
        appended: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        self._log = log
        self._flags = flags
        self._queues = queues
        self._clock = clock
        self._group_commit = group_commit
        self._appended = appended
        self._refused = refused
        self._slave = config.broker_role is BrokerRole.SLAVE
        limits_queues = config.enable_lmq and config.enable_multi_dispatch
        self._sync_master = config.broker_role is BrokerRole.SYNC_MASTER
        self._never_waits = group_commit is None and not self._sync_master
        self._busy = config.os_page_cache_busy_time_out_mills
        self._max_lmq = config.max_lmq_consume_queue_num if limits_queues else None
        self._asks_more = self._slave or limits_queues
        self._patience = (max(config.sync_flush_timeout, config.slave_timeout) + _GRACE_MS) / 1000
        self._paths = [str(path) for path in config.commit_log_paths]
        self._no_space: tuple[Shortage, int] | None = None
        self.closed = False
        self.replicate: Replicate | None = None

    def put(self, message: Message, items: Sequence[BatchItem] | MessageColumns | None, wait: bool | None) -> PutResult:
        """Put a message, or a batch when there are `items`; returns when all that was asked for is done.

        `wait` False: don't wait for flush and slave (default: as the WAIT property says).
        """
        answer = self.begin(message, items, wait)
        return answer if isinstance(answer, PutResult) else self.waited(answer)

    def waited(self, pending: Pending) -> PutResult:
        """The answer to what was begun, when all that was asked for is done."""
        return pending.wait(self._patience)

    def put_columns(self, message: Message, columns: MessageColumns, wait: bool | None) -> tuple[PutResult, ...]:
        """Put any number of messages as batches, one after another, up to the first that can't be stored.

        Returns when all that was asked for is done: an answer a batch.
        """
        try:
            pieces = self._log.batches(message, columns)
        except MessageRefused:
            pieces = []  # `message` is put, and refused, all the same
        answers = []
        for piece in pieces or [columns]:
            answers.append(self.begin(message, piece, wait))
            if answers[-1].append is None:
                break
        return tuple(answer if isinstance(answer, PutResult) else answer.wait(self._patience) for answer in answers)

    def put_async(
        self, message: Message, items: Sequence[BatchItem] | MessageColumns | None, wait: bool | None
    ) -> Future[PutResult]:
        """The same, returning as soon as it is appended; the future never raises."""
        result: Future[PutResult] = Future()
        result.set_running_or_notify_cancel()  # it can't be cancelled: the message is in the log by then
        answer = self.begin(message, items, wait)
        if isinstance(answer, PutResult):
            result.set_result(answer)
        else:
            answer.then(lambda: result.set_result(answer.result()))
        return result

    def begin(
        self, message: Message, items: Sequence[BatchItem] | MessageColumns | None, wait: bool | None
    ) -> PutResult | Pending:
        """Refused, or done, or appended with something to wait for."""
        log = self._log
        if self.closed or self._asks_more or log.begin_time_in_lock or not self._flags.writeable:
            refused = self._check(message)
            if refused is not None:
                return refused
        try:
            append = log.append(message) if items is None else log.append_batch(message, items)
        except MessageRefused as error:
            return PutResult(error.status, error=error)
        except StorageError as error:
            return self._failed(error)
        self._appended()
        if self._never_waits:
            return _made(PutResult, (_OK, append, None))
        waits = properties.waits_for_flush(message.properties) if wait is None else wait
        waiting: tuple[FlushFuture, ...] = ()
        if self._group_commit is not None:
            if waits:
                waiting = (self._group_commit.submit(append.next_offset),)
            else:
                self._group_commit.wake()
        if waits and self._sync_master:
            replicate = self.replicate or _no_slave
            waiting = (*waiting, replicate(append.next_offset))
        return _made(Pending, (append, waiting)) if waiting else PutResult(_OK, append)

    def put_run(self, messages: Sequence[Message]) -> tuple[AppendedRun, PutResult | None] | None:
        """Put the first of some messages in one go, in their order; and the answer to the one that failed after them.

        None: nothing was done, as the first of them, or all, are to be put alone, and are answered then. For one
        thread at a time.
        """
        if not self._never_waits or self._asks_more or self.closed or not self._flags.writeable:
            return None
        try:
            run = self._log.append_run(messages)
        except StoreClosed:
            return None
        if run is None:
            return None
        if len(run):
            self._appended()
        return run, None if run.failure is None else self._failed(run.failure)

    def _failed(self, error: StorageError) -> PutResult:
        """The answer to an append that the system has refused."""
        if isinstance(error, StoreClosed):
            return PutResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, error=error)
        if isinstance(error, WriteFailed):
            return PutResult(PutMessageStatus.UNKNOWN_ERROR, error=error)
        if not isinstance(error, Shortage):
            return PutResult(PutMessageStatus.CREATE_MAPEDFILE_FAILED, error=error)
        # Apache has CREATE_MAPEDFILE_FAILED for a full disk, too: of which a client can't tell that it passes.
        self._no_space = (error, self._log.max_offset)
        return PutResult(_UNAVAILABLE, error=error)

    def _check(self, message: Message) -> PutResult | None:
        """Why the store takes no message now, if it doesn't."""
        if self.closed:
            return PutResult(_UNAVAILABLE, error=StoreClosed("the store is closed"))
        if self._slave:
            return PutResult(_UNAVAILABLE, error=RStoreError("a slave accepts no puts", hint="send to its master"))
        if not self._flags.writeable:
            refused, error = self._flags.refusal
            if refused:
                self._refused()
                return PutResult(_UNAVAILABLE, error=error)
        if self._log.begin_time_in_lock and self.page_cache_busy:
            return PutResult(
                PutMessageStatus.OS_PAGECACHE_BUSY,
                error=RStoreError(f"the append lock has been held for more than {self._busy} ms"),
            )
        if self._max_lmq is not None and self._queues.lmq_count > self._max_lmq:
            targets = message.properties.get(properties.INNER_MULTI_DISPATCH, "")
            if targets.strip():
                return PutResult(
                    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                    error=RStoreError(
                        f"there are {counted(self._queues.lmq_count, 'light queue')}", hint="maxLmqConsumeQueueNum"
                    ),
                )
        return None

    def flush_through(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """See GroupCommitService.begin_through; nothing where puts don't wait for a flush."""
        if self._group_commit is not None:
            self._group_commit.begin_through(begin)

    @property
    def waits(self) -> bool:
        """Whether puts may wait for flush or slave."""
        return not self._never_waits

    def out_of_space(self, disk: Disk) -> Shortage | None:
        """Why the last put got no file of the log; None: there is space (and a descriptor) for one now, or a later
        put was stored.

        No flag says it: each put tries again, as in Apache, and what fits into the last file is stored.
        """
        noted = self._no_space
        if noted is None:
            return None
        error, end = noted
        if self._log.max_offset == end and all(lasts(error, disk, path, self._log.file_size) for path in self._paths):
            return error
        if self._no_space is noted:
            self._no_space = None
        return None

    def files_that_fit(self, disk: Disk) -> int:
        """Files of the log that one of its disks has space for, beside those that are there. Raises StorageError."""
        return max(disk.writable(path) // self._log.file_size for path in self._paths)

    @property
    def page_cache_busy(self) -> bool:
        """Whether a put has held the append lock too long. Source: DefaultMessageStore#isOSPageCacheBusy."""
        begin = self._log.begin_time_in_lock
        return bool(begin) and self._busy < self._clock() - begin < _LONG_AGO


def _no_slave(next_offset: int) -> FlushFuture:
    del next_offset
    return FlushFuture.settled(PutMessageStatus.SLAVE_NOT_AVAILABLE)
