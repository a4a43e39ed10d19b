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
        self._over = False
        self._open: FlushFuture | None = None
        self._wanted = 0
        self._waiting: list[tuple[int, FlushFuture]] = []
        self._watcher = WaitWatcher(
            "GroupTransferService", timeout_ms, PutMessageStatus.FLUSH_SLAVE_TIMEOUT, on_failure
        )

    def start(self) -> None:
        """Begin to work."""
        self._watcher.start()

    def submit(self, next_offset: int) -> FlushFuture:
        """Wait for a slave to have the log up to `next_offset` (physical), with all that come until `close`."""
        with self._lock:
            if self._over:
                return FlushFuture.settled(PutMessageStatus.SLAVE_NOT_AVAILABLE)
            self._wanted = max(self._wanted, next_offset)
            group = self._open
            if group is not None and not group.done:  # done, and open: its time is over
                return group
            group = self._open = FlushFuture()
        self._watcher.add(group)
        return group

    def close(self) -> None:
        """Who comes from now on is of the next group."""
        with self._lock:
            self._close()

    def reported(self, offset: int) -> None:
        """A slave has the log up to `offset`."""
        with self._lock:
            if self._open is not None and self._wanted <= offset:
                self._close()
            done = [future for wanted, future in self._waiting if wanted <= offset]
            self._waiting = [one for one in self._waiting if one[0] > offset and not one[1].done]
        for future in done:
            future.settle(PutMessageStatus.PUT_OK)

    def _close(self) -> None:
        if self._open is not None:
            self._waiting.append((self._wanted, self._open))
            self._open, self._wanted = None, 0

    def stop(self) -> None:
        """End; who waits learns that there is no slave."""
        with self._lock:
            self._over = True
            self._close()
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.settle(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        self._watcher.stop()
