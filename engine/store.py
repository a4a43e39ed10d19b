"""The open store: put, get, query, close.

Opening: lock first, then recovery (plan, then apply), then the parts start (store_parts.py, which also says how they
are closed), and only then the first put.

Sources: DefaultMessageStore (4.9.8) for every method of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from engine.config import StoreConfig
from engine.errors import RStoreError, Shortage, StorageError
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format import names
from engine.format.message import Message
from engine.inspect.store.change_gate import ChangeKind, refuse_open
from engine.log.commitlog import Clock, CommitLog
from engine.log.consume_queue import ConsumeQueue
from engine.log.derive import TopicQueue
from engine.log.reading import ReadLimits
from engine.log.results import AppendedRun, PutResult, StoreClosed
from engine.log.state import StoreState
from engine.services.arrivals import Listener, Wanted
from engine.services.dispatch import DispatchFinding
from engine.services.put import Replicate
from engine.services.waiting import Pending
from engine.store_parts import StoreParts

if TYPE_CHECKING:
    from engine.format.batch import BatchItem
    from engine.format.columns import MessageColumns

RECONFIGURABLE = frozenset(
    {
        "delete_when",
        "file_reserved_time",
        "disk_max_used_space_ratio",
        "clean_file_forcibly_enable",
        "clean_resource_interval",
        "delete_commit_log_files_interval",
        "delete_consume_queue_files_interval",
        "destroy_maped_file_interval_forcibly",
        "redelete_hanged_file_interval",
        "max_transfer_bytes_on_message_in_memory",
        "max_transfer_count_on_message_in_memory",
        "max_transfer_bytes_on_message_in_disk",
        "max_transfer_count_on_message_in_disk",
        "access_message_in_memory_max_ratio",
        "max_msgs_num_batch",
    }
)
"""Settings that an open store can be given anew (`MessageStore.reconfigure`); the others count from the next start."""

_KEPT_PAGES = 8 << 20
"""Bytes of the log that dispatch has read, and that stay in this process' memory while many messages are put."""

Recover = Callable[[Disk, StoreConfig], tuple[StoreState, StoreConfig]]
"""Recovers the closed, locked store; where it stands then, and its settings with the sizes that its files have."""


class MessageStore(StoreParts):
    """See the module. Thread-safe. Also a context manager; made by `open`."""

    # --- opening and closing ----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        disk: Disk | None = None,
        clock: Clock | None = None,
        *,
        recover: Recover | None = None,
        listeners: Sequence[Listener] = (),
        locked: bool = False,
        cleaning: bool = False,
        kind: ChangeKind = ChangeKind.PUT,
    ) -> MessageStore:
        """Lock, recover and start the store that `config` names; an empty directory becomes an empty store.

        Args:
            config: settings.
            disk: the system's files.
            clock: gives the store times, ms (default: the disk's clock).
            recover: how to recover (default: as the abort file says; damage in the middle is refused).
            listeners: are told of every message from the first one on that is dispatched.
            locked: the caller holds the store's lock, and keeps it when the store is closed.
            cleaning: a broker's store, which deletes what has expired and refuses puts above 90 % of a disk; a tool
                that opens somebody's store does neither.
            kind: what it is opened for: a store of RocketMQ 5 takes some kinds of change alone.

        Raises:
            StoreLocked: a live process holds it. Refused, CannotRepair: recovery would lose data, or can't be done; the
                store is RocketMQ 5's. OutsideStore: a link leads out of it. StorageError.
        """
        from engine.inspect.store.path_slips import slip_in_a_path
        from engine.repair.reach import beneath
        from engine.repair.recover.opening import recover_for_open

        disk = disk or Disk()
        refuse_open(disk, config, kind)
        slip = slip_in_a_path(disk, config)
        if slip is not None:  # before a second, empty store is made
            raise slip
        disk = beneath(disk, config)
        disk.mkdirs(str(config.store_path_root_dir))
        lock = StoreLock(disk, str(config.store_path_root_dir))
        if not locked:
            lock.acquire()
        try:
            if not disk.exists(str(config.store_path_root_dir / names.CONSUMEQUEUE)):
                for path in config.commit_log_paths:  # a new store; queues without a log are for recovery to judge
                    disk.mkdirs(str(path))
            state, config = (recover or recover_for_open)(disk, config)
            store = cls(disk, config, state, lock, clock or disk.now_ms)
            for listener in listeners:
                store.dispatch.add_listener(listener)
            store._start(cleaning=cleaning)
        except BaseException:
            lock.release()
            raise
        return store

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def disk(self) -> Disk:
        """The files it is on: for what lies beside it."""
        return self._disk

    # --- putting ----------------------------------------------------------------------------------------------------

    def put(self, message: Message, *, wait: bool | None = None) -> PutResult:
        """Store a message; returns when it is as durable as the settings say. Never raises: see the status.

        `wait` False: don't wait for flush or slave (default: as the WAIT property says).
        """
        answer = self._puts.begin(message, None, wait)
        return answer if isinstance(answer, PutResult) else self._puts.waited(answer)

    def put_batch(self, message: Message, items: Sequence[BatchItem], *, wait: bool | None = None) -> PutResult:
        """Store several messages of one queue, all or none; `message` has what they share."""
        return self._puts.put(message, items, wait)

    def put_columns(
        self, message: Message, columns: MessageColumns, *, wait: bool | None = None
    ) -> tuple[PutResult, ...]:
        """Store any number of messages of one queue, as many batches as maxMessageSize makes of them.

        Each batch is stored whole or not at all, in order; an answer a batch, up to the first that was not stored.
        """
        return self._puts.put_columns(message, columns, wait)

    def put_run(self, messages: Sequence[Message]) -> tuple[AppendedRun, PutResult | None] | None:
        """As `put` of some messages that follow one another, in one go, as far as they are plain: what a tool takes
        that puts many. For one thread at a time.

        Returns:
            Where the first of them lie, and the answer to the one after them where that has failed. None: put the first
            one by itself.
        """
        answer = self._puts.put_run(messages)
        position = self.dispatch.position
        if position - self._let_go_to >= _KEPT_PAGES:
            self.log.files.let_go(self._let_go_to, position)
            self._let_go_to = position
        return answer

    def put_async(self, message: Message, *, wait: bool | None = None) -> Future[PutResult]:
        """As `put`, returning as soon as the message is in the log."""
        return self._puts.put_async(message, None, wait)

    def begin_put(self, message: Message, *, wait: bool | None = None) -> PutResult | Pending:
        """As `put`, but waits for nothing: the answer, or what there is to wait for, which many puts share."""
        return self._puts.begin(message, None, wait)

    def put_batch_async(
        self, message: Message, items: Sequence[BatchItem], *, wait: bool | None = None
    ) -> Future[PutResult]:
        """As `put_batch`, returning as soon as the messages are in the log."""
        return self._puts.put_async(message, items, wait)

    def append_raw(self, offset: int, data: bytes | memoryview) -> None:
        """Append log bytes of a master, on a slave. Source: #appendToCommitLog.

        Raises:
            InvalidArgument: `offset` is not the log end. StorageError.
        """
        self._demand_open()
        self.log.append_raw(offset, data)
        self._appended()
        self._flush.wake()

    def flush_through(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Have the flushes that SYNC_FLUSH puts wait for begin through `begin`: called in the putting thread with what
        begins one, which may be called a moment later, in any thread. So many puts have one flush.
        """
        self._puts.flush_through(begin)

    def dispatch_through(self, begin: Callable[[Callable[[], None]], bool] | None) -> None:
        """Have a message that comes alone, and that a listener wants, dispatched through `begin`: called by who puts,
        with what does it. It returns whether that will be called: a moment later, in any thread; else one beside does,
        and with None always.
        """
        self.dispatch.begin_through(begin)

    def replicate_with(self, replicate: Replicate | None) -> None:
        """Have the puts of a SYNC_MASTER wait for slaves through `replicate`; None: there is none."""
        self._puts.replicate = replicate

    def follow(self, appended: Callable[[], None]) -> None:
        """Have `appended` called whenever there is more of the log to read; it must not block."""
        self._followers = (*self._followers, appended)

    @property
    def puts_wait(self) -> bool:
        """Whether a put may wait for its flush or a slave: `begin_put` then, where nothing may block."""
        return self._puts.waits

    @property
    def page_cache_busy(self) -> bool:
        """Whether a put has held the append lock longer than osPageCacheBusyTimeOutMills."""
        return self._puts.page_cache_busy

    @property
    def out_of_space(self) -> Shortage | None:
        """Why puts get no next file of the log; None: they do. Raises StorageError."""
        return self._puts.out_of_space(self._disk)

    @property
    def log_files_that_fit(self) -> int:
        """Files of the log that its disks have space for, beside those that are there. Raises StorageError."""
        return self._puts.files_that_fit(self._disk)

    # --- reading (MessageReader has the rest) -----------------------------------------------------------------------

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The consume queue, None when there is none."""
        self._demand_open()
        return self.queues.find(TopicQueue(topic, queue_id))

    def _readable_log(self) -> CommitLog:
        self._demand_open()
        if not self.flags.readable:
            raise StorageError("the store is not readable", path=self.config.store_path_root_dir)
        return self.log

    def _log_end(self) -> int:
        return self.log.max_offset

    def _walk_index(
        self, topic: str, key: str, begin: int, end: int, max_num: int, accept: Callable[[int], bool]
    ) -> tuple[int, int]:
        if self.index is None:
            return 0, 0
        matches = self.index.query(topic, key, begin, end, max_num, accept=accept)
        return matches.last_update_timestamp, matches.last_update_phy_offset

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def dispatch_lag(self) -> int:
        """Bytes of the log that are not in queues and index yet."""
        return self.dispatch.lag

    @property
    def errors(self) -> tuple[RStoreError, ...]:
        """What went wrong and keeps the store from something."""
        return (*self.flags.errors, *self.clean.errors)

    @property
    def findings(self) -> tuple[DispatchFinding, ...]:
        """What dispatch met in the log and continued after."""
        return self.dispatch.findings

    def add_listener(self, listener: Listener, wanted: Wanted = lambda: True) -> None:
        """Tell `listener` of every message that can be pulled from now on, while it is `wanted`.

        When it begins to be, say so (`listened`): under load what arrives comes later by some 20 ms otherwise.
        """
        self.dispatch.add_listener(listener, wanted)

    def listened(self) -> None:
        """Say that a listener has begun to be `wanted`: what arrives is not gathered for long from now on."""
        self.dispatch.listened()

    def wait_dispatched(self, timeout_ms: float | None = None) -> bool:
        """Wait until all that is readable now can be got and queried; False when it didn't come to that."""
        return self.dispatch.wait_dispatched(self.log.max_offset, timeout_ms)

    def when_dispatched(self, call: Callable[[], None]) -> None:
        """Have `call` called, once, when all that is appended now can be got and queried, or when that can't come to be
        for now; from another thread, or at once from this one. It must not block.
        """
        self.dispatch.when_dispatched(self.log.appended, call)

    def lags(self, topic: str, queue_id: int) -> bool:
        """Whether the log has messages of a queue that can't be got from it yet."""
        if self.dispatch.position >= self.log.appended:
            return False
        appended = self.log.next_queue_offset(TopicQueue(topic, queue_id))
        return appended is not None and appended > self.max_offset(topic, queue_id)

    def execute_delete_files_manually(self) -> None:
        """Have 20 rounds of expiry, whatever the hour. Raises InvalidArgument: it was not opened for cleaning."""
        self._demand_open()
        self.clean.execute_manually()

    def reconfigure(self, config: StoreConfig) -> None:
        """Go by other settings from now on, as far as that is possible: those of RECONFIGURABLE."""
        self._demand_open()
        self.config = config
        self._limits = ReadLimits.of(config)
        self.clean.reconfigure(config)

    def flush(self) -> int:
        """Make everything that was put durable; the physical offset up to which it is.

        Raises:
            DiskFull: later. StorageError: the store takes no more puts then.
        """
        self._demand_open()
        try:
            where = self.log.flush_all()
        except Shortage:
            raise
        except StorageError as error:
            self._failed(error)
            raise
        self.dispatch.wake()
        return where

    def flush_all(self, timeout_ms: float | None = None) -> bool:
        """As `flush`, and the same for the queues and the checkpoint; False: not all was dispatched in time.

        Raises as `flush`.
        """
        where = self.flush()
        dispatched = self.dispatch.wait_dispatched(where, timeout_ms)
        self._queue_flush.flush_all()
        return dispatched

    # --- inside -----------------------------------------------------------------------------------------------------

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", path=self.config.store_path_root_dir)
