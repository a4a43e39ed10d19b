"""Puts of a SYNC_MASTER wait here until a slave has them (GroupTransferService, CommitLog#submitReplicaRequest)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.log.results import PutMessageStatus
from engine.services.flush import WaitWatcher
from engine.services.waiting import FlushFuture

if TYPE_CHECKING:
    from engine.services.worker import OnFailure


class GroupTransfer:
    """See the module. Thread-safe.

    Apache takes the highest report of any slave there ever was for what slaves have, so that one wrong report makes
    every put succeed. Here a put is answered by a report that comes after it, and `MasterService` takes no report
    beyond the log.
    """

    def __init__(self, timeout_ms: int, on_failure: OnFailure) -> None:
        """`timeout_ms`: slaveTimeout."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, FlushFuture]] = []
        self._watcher = WaitWatcher(
            "GroupTransferService", timeout_ms, PutMessageStatus.FLUSH_SLAVE_TIMEOUT, on_failure
        )

    def start(self) -> None:
        """Begin to work."""
        self._watcher.start()

    def submit(self, next_offset: int) -> FlushFuture:
        """Wait for a slave to have the log up to `next_offset` (physical)."""
        future = FlushFuture()
        with self._lock:
            self._waiting.append((next_offset, future))
        self._watcher.add(future)
        return future

    def reported(self, offset: int) -> None:
        """A slave has the log up to `offset`."""
        with self._lock:
            done = [future for wanted, future in self._waiting if wanted <= offset]
            self._waiting = [one for one in self._waiting if one[0] > offset and not one[1].done]
        for future in done:
            future.settle(PutMessageStatus.PUT_OK)

    def stop(self) -> None:
        """End; who waits is told that there is no slave."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.settle(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        self._watcher.stop()
