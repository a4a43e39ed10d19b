"""Making the consume queues durable, and the checkpoint that says so (Apache FlushConsumeQueueService).

Every flushIntervalConsumeQueue ms the queues with enough pages, every flushConsumeQueueThoroughInterval all of
them, and then the checkpoint. logicsMsgTimestamp moves only when a flush has covered it; Apache sets it when a unit
is written, and writes it whenever anybody flushes the checkpoint. On a slave, whose log is not written message by
message, physicMsgTimestamp follows in the same way, as far as the log is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config import BrokerRole
from engine.errors import Shortage
from engine.services.worker import OnFailure, Worker, monotonic_ms

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.log.checkpoint import CheckpointFile
    from engine.log.commitlog import CommitLog
    from engine.services.dispatch import DispatchService
    from engine.services.queue_table import QueueTable


class FlushConsumeQueueService(Worker):
    """See the module. Sleeps while there is nothing that was not flushed: `wake` it when a unit was appended."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatch: DispatchService,
        checkpoint: CheckpointFile,
        config: StoreConfig,
        on_failure: OnFailure,
    ) -> None:
        super().__init__("FlushConsumeQueueService", on_failure)
        self._log = log
        self._queues = queues
        self._dispatch = dispatch
        self._slave = config.broker_role is BrokerRole.SLAVE
        self._checkpoint = checkpoint
        self._interval = config.flush_interval_consume_queue
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough = config.flush_consume_queue_thorough_interval
        self._last = 0.0
        self._dirty = False

    def _run(self) -> None:
        going = True
        while going:
            going = self._wait(self._interval if self._dirty else None)
            if going:
                self._dirty = True
                going = self._pause(self._interval)
            if going:
                self._flush_or_wait()
        self.flush_all()

    def _flush_or_wait(self) -> None:
        """A new checkpoint takes space and a descriptor: without them it waits, as nothing is lost by an older one."""
        try:
            self._flush()
        except Shortage:
            self._dirty = True
            self._last = 0.0

    def _flush(self) -> None:
        now = monotonic_ms()
        if now >= self._last + self._thorough:
            self._last = now
            self.flush_all()
            return
        for queue in self._queues.opened():
            queue.flush(self._least_pages)

    def flush_all(self) -> None:
        """Everything, and the checkpoint. Raises DiskFull, StorageError."""
        self._dirty = False
        offset, timestamp = self._dispatch.progress
        for queue in self._queues.opened():
            while not queue.flush(0):
                pass
        if timestamp > 0:
            self._checkpoint.logics_msg_timestamp = timestamp
            if self._slave and self._log.flushed_where >= offset:
                self._checkpoint.physic_msg_timestamp = timestamp
        self._checkpoint.flush()
