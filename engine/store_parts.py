"""The parts of an open store: made, started, told of each other, closed in order. The only composition.

Theory: after recovery the abort file is made, then dispatch reads what the queues don't have yet, and only then the
services start (Apache takes the lock last: RECOVERY.md, "Start of a store"). Closing: no more puts; write buffers, log,
dispatch, queues and index are finished in this order, each before the next; the abort file is removed only when all of
that succeeded and nothing is left to dispatch.

Nothing fails in silence: what ends a service makes the store not writeable, and `errors` says why.

Sources: DefaultMessageStore (4.9.8) for every method of the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from engine.config import BrokerRole, FlushDiskType, StoreConfig
from engine.errors import RStoreError, Shortage
from engine.files.abort import AbortFile
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format import names
from engine.format.checkpoint import SAFETY_MS, Checkpoint
from engine.format.index_file import IndexLayout
from engine.log.checkpoint import CheckpointFile
from engine.log.commitlog import Clock, CommitLog
from engine.log.derive import TopicQueue
from engine.log.index_service import IndexService
from engine.log.message_reader import MessageReader
from engine.log.state import NORMAL_FILES, StoreState
from engine.services.clean import CleanService
from engine.services.dispatch import DispatchService
from engine.services.flush import CommitRealTimeService, FlushRealTimeService, GroupCommitService
from engine.services.put import PutService
from engine.services.queue_flush import FlushConsumeQueueService
from engine.services.queue_removal import QueueRemoval
from engine.services.queue_table import QueueTable
from engine.services.running_flags import Flag, RunningFlags
from engine.services.self_check import SelfCheck


class StoreParts(MessageReader):
    """See the module. The base of MessageStore, which opens it and is called by everybody else.

    Attributes:
        log: the commit log.
        queues: the consume queues.
        index: None without messageIndexEnable.
        checkpoint: the checkpoint file.
        dispatch: follows the log.
        clean: deletes what has expired, if the store was opened for that.
        self_check: looks whether its files follow each other, in a broker's store.
        removal: takes queues away whose topic or messages are gone.
        flags: what the store may do now.
    """

    def __init__(self, disk: Disk, config: StoreConfig, state: StoreState, lock: StoreLock, clock: Clock) -> None:
        """For `MessageStore.open` only: composes, and starts nothing."""
        super().__init__(config)
        self._disk = disk
        self._lock = lock
        self._state = state
        self._clock = clock
        self._closed = False
        self._followers: tuple[Callable[[], None], ...] = ()
        self._let_go_to = 0  # physical offset
        root = config.store_path_root_dir
        self.abort = AbortFile(disk, str(root))
        self.flags = RunningFlags()
        self.log = CommitLog(disk, config, clock=clock, full_paths=lambda: self.clean.full_paths)
        self.queues = QueueTable(disk, config)
        self.checkpoint = CheckpointFile.load(disk, str(root / names.CHECKPOINT))
        self.index: IndexService | None = None
        if config.message_index_enable:
            layout = IndexLayout(config.max_hash_slot_num, config.max_index_num)
            self.index = IndexService(disk, str(root / names.INDEX), layout, disk.now_ms, self._index_durable)
        self.dispatch = DispatchService(
            self.log, self.queues, self.index, self.flags, config, self._dispatched, self._failed
        )
        self._queue_flush = FlushConsumeQueueService(
            self.log, self.queues, self.dispatch, self.checkpoint, config, self._failed
        )
        self.clean = CleanService(
            disk, self.log, self.queues, self.index, self.dispatch, self.flags, config, self._failed
        )
        self.self_check = SelfCheck(disk, self.log, self.queues, self._failed)
        self.removal = QueueRemoval(self.log, self.queues, self.dispatch, self.clean)
        sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        group_commit = GroupCommitService(self.log, self.checkpoint, config, self._failed) if sync else None
        self._flushed_by_puts = sync
        self._flush = group_commit or FlushRealTimeService(self.log, self.checkpoint, config, self._failed)
        self._commit: CommitRealTimeService | None = None
        if self.log.pool is not None:
            self._commit = CommitRealTimeService(self.log, config, self._committed, self._commit_full, self._failed)
        self._puts = PutService(
            self.log, self.flags, self.queues, config, clock, group_commit, self._appended, self.clean.look_soon
        )

    def _start(self, *, cleaning: bool) -> None:
        state = self._state
        self.queues.load(state.queues, state.min_offset)
        self.abort.create()
        try:
            one_by_one = cleaning and self.config.broker_role is not BrokerRole.SLAVE  # as clients send
            single_pages = one_by_one or self._flushed_by_puts
            self.log.open(state.max_offset, self.queues.next_offsets(), single_pages=single_pages)
            if self.index is not None:
                self.index.open(state.index_files)
            known = max(self.queues.max_physical_offset(), self.log.min_offset, 0)
            self.dispatch.start_from(min(known, state.max_offset))
            # Without space or descriptors dispatch continues as soon as there are; what is in the queues can be read.
            with contextlib.suppress(Shortage):
                self.dispatch.catch_up(state.max_offset)
            self.log.topic_queue_table = {**self.queues.next_offsets(), **self._ahead()}
        except BaseException:
            self.dispatch.stop()
            self.log.close(clean=True)
            self.queues.shutdown()
            self._finish_index()
            raise
        self._queue_flush.start()
        self._flush.start()
        if self._commit is not None:
            self._commit.start()
        if cleaning:
            self.clean.start()
            self.self_check.start()

    def _ahead(self) -> dict[TopicQueue, int]:
        """Queues that lack records of the log still, and the queue offset of their next message."""
        return {} if self.dispatch.position >= self._state.max_offset else dict(self._state.next_offsets)

    def close(self) -> None:
        """Close cleanly: everything that was acknowledged is durable then. A second time does nothing.

        Raises:
            RStoreError: the first thing that went wrong; the store is closed all the same, and the abort file stays, so
            that the next start recovers.
        """
        if self._closed:
            return
        self._closed = self._puts.closed = True
        self.log.seal()
        self.clean.stop()
        self.self_check.stop()
        if self._commit is not None:
            self._commit.stop()
        self._flush.stop()
        self.dispatch.stop()
        self._queue_flush.stop()
        steps: list[Callable[[], object]] = [self._cut_back, self._finish_index, lambda: self.log.close(clean=True)]
        trapped = self._trapped()
        if trapped:
            steps.append(self._checkpoint_after_trap)
        if self.flags.writeable and self.dispatch.lag == 0:
            steps.append(self.checkpoint.flush)
        for step in steps:
            try:
                step()
            except RStoreError as error:
                self._failed(error)
        self.queues.shutdown()
        try:
            if self.flags.writeable and self.dispatch.lag == 0 and not trapped:
                self.abort.remove()
        finally:
            self._lock.release()
        failure = self.flags.error
        if failure is not None:
            raise failure

    def _cut_back(self) -> None:
        """A slave's log may end within a record: what a stop leaves ends with a whole one. The rest comes again."""
        if self.config.broker_role is BrokerRole.SLAVE and not self.flags.errors:
            self.log.cut_back(self.dispatch.position)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # --- inside -----------------------------------------------------------------------------------------------------

    def _appended(self) -> None:
        if self._commit is not None:
            self._commit.wake()
            return
        dispatch, flush = self.dispatch, self._flush
        if not dispatch.woken:
            dispatch.wake()
        if not flush.woken and not self._flushed_by_puts:
            flush.wake()
        for appended in self._followers:
            appended()

    def _committed(self) -> None:
        self.dispatch.wake()
        self._flush.wake()
        for appended in self._followers:
            appended()

    def _commit_full(self, error: Shortage | None) -> None:
        if error is None:
            self.flags.clear(Flag.DISK_FULL, by="CommitRealTimeService")
        else:
            self.flags.set(Flag.DISK_FULL, error, by="CommitRealTimeService")

    def _dispatched(self) -> None:
        self._queue_flush.wake()

    def _index_durable(self, timestamp: int) -> None:
        self.checkpoint.index_msg_timestamp = timestamp
        with contextlib.suppress(Shortage):  # written with the queues' time, as soon as there is space
            self.checkpoint.flush()

    def _trapped(self) -> bool:
        """Whether a normal start would still read, and cut at, the damage that recovery left in the log."""
        trap, files = self._state.trap, self.log.files.files
        return trap is not None and bool(files) and files[-NORMAL_FILES:][0].file_from_offset <= trap

    def _checkpoint_after_trap(self) -> None:
        """The abort file stays, and the checkpoint has the next start begin with the last file, after the damage."""
        newest = self.log.flushed_timestamp + SAFETY_MS
        if newest > self.checkpoint.physic_msg_timestamp:
            self.checkpoint.set(Checkpoint(newest, newest, newest))

    def _finish_index(self) -> None:
        if self.index is not None:
            self.index.shutdown()

    def _failed(self, error: RStoreError) -> None:
        self.flags.set(Flag.NOT_WRITEABLE, error)
