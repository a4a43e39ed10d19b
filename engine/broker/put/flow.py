"""Flow control: sends are refused with SYSTEM_BUSY while the disk can't follow, before they pile up and time out.

Theory. Apache's sends wait in a queue for threads; when the queue is long, when its head has waited for too long, or
when a put holds the append lock for too long, they are refused and the client turns to another broker
(NettyRemotingAbstract#processRequestCommand, SendMessageProcessor#rejectRequest, BrokerFastFailure; BROKER.md 2.3).
Our puts cost microseconds, and are made by the loop itself: there is no queue while all is well. A put that takes
longer than SLOW_MS says that the disk is slow. From then on puts go through a queue to a worker thread, so
that pulls, heartbeats and refusals continue, and Apache's rules hold for that queue. When it was empty, and every put
quick, for CALM_S, puts are made by the loop again.

Puts that wait for their flush or a slave do so in no queue; they are counted against its capacity.

| refused as | when | setting |
|---|---|---|
| `REJECTREQUEST` | a put is under way for too long, or no write buffer is left | osPageCacheBusyTimeOutMills |
| `OVERLOAD` | too many puts wait | sendThreadPoolQueueCapacity |
| `PCBUSY_CLEAN_QUEUE` | it waits, and a put is under way for too long | brokerFastFailureEnable |
| `TIMEOUT_CLEAN_QUEUE` | it has waited for too long | waitTimeMillsInSendQueue |
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.broker.put.handover import Handover
from engine.errors import RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from engine.broker.net.connection import Connection
    from engine.broker.requests.handler import Handler
    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.log.results import PutResult
    from engine.services.waiting import FlushFuture, Pending
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

SLOW_MS = 200
"""A put by the loop that takes longer makes all others wait as long as they may wait in Apache's send queue."""
CALM_S = 10.0
_LOOK_S = 0.002
_CLEAN_S = 0.01
"""Between two looks at what waits. Source: BrokerFastFailure#start."""
_THREADS_THAT_WAIT = 32
REASONS = ("REJECTREQUEST", "OVERLOAD", "PCBUSY_CLEAN_QUEUE", "TIMEOUT_CLEAN_QUEUE")
"""As what sends are refused; see the module."""
_AT_ONCE = "[{}]system busy, start flow control for a while"
_FROM_QUEUE = "[{}]broker busy, start flow control for a while, period in queue: {}ms, size of queue: {}"


class Busy(RStoreError):
    """A send that is refused for now: the remark of SYSTEM_BUSY."""

    code = "busy"


class _Put(NamedTuple):
    """What waits for the thread. `refuse`: says why not; None: it waits however long it takes. `since`: s."""

    since: float
    work: Callable[[], Any]
    done: Callable[[Any], None]
    refuse: Callable[[Busy], None] | None


class FlowControl:
    """See the module. For the loop's thread alone, where nothing else is said.

    Attributes:
        slow_ns: SLOW_MS.
        in_worker_thread: puts go to the thread now.
        waiting: puts that are in the log and wait for their flush, or for a slave.
        refused: sends, by reason.
        slow_puts: puts that took longer than SLOW_MS.
    """

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, loop: asyncio.AbstractEventLoop, log: logging.Logger
    ) -> None:
        self._store = store
        self._loop = loop
        self._soon = Handover(loop)
        store.flush_through(self.after_this)
        if not store.puts_wait:  # else their flush would begin after it
            store.dispatch_through(self._dispatch)
        self._waits_for: tuple[FlushFuture, ...] = ()
        self._waiters: list[tuple[Pending, Callable[[PutResult], None]]] = []
        self._log = log
        self._capacity = settings.send_queue
        self._wait_s = settings.send_wait_ms / 1000
        self._cleans = settings.fast_failure
        self._pool_counts = store.log.pool is not None
        self._queue: deque[_Put] = deque()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_slow = 0.0
        self._closed = False
        self._in_progress = 0
        self.slow_ns = SLOW_MS * 1_000_000
        self.in_worker_thread = False
        self.waiting = 0
        self.slow_puts = 0
        self.refused: Counter[str] = Counter()

    @property
    def queued(self) -> int:
        """Puts that wait for the thread."""
        return len(self._queue)

    @property
    def oldest_ms(self) -> int:
        """How long the first put in the queue has waited, ms; 0 when none does."""
        with self._lock:
            return int((monotonic() - self._queue[0].since) * 1000) if self._queue else 0

    # --- refusing ---------------------------------------------------------------------------------------------------

    def guard(self, handler: Handler) -> Handler:
        """A handler of sends that refuses when it must."""

        def guarded(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            if self.in_worker_thread or self.waiting or self._pool_counts:
                busy = self._refusal()
                if busy is not None:
                    return request.answer(ResponseCode.SYSTEM_BUSY, busy.message)
            return handler(connection, request)

        return guarded

    def _refusal(self) -> Busy | None:
        store = self._store
        if store.page_cache_busy or (self._pool_counts and store.log.pool is not None and not store.log.pool.available):
            return self._refused("REJECTREQUEST", _AT_ONCE.format("REJECTREQUEST"))
        if self._in_progress + self.waiting >= self._capacity:
            return self._refused("OVERLOAD", _AT_ONCE.format("OVERLOAD"))
        return None

    def _refused(self, reason: str, remark: str) -> Busy:
        self.refused[reason] += 1
        self._log.warning("sends are refused", extra={"why": reason, "waiting": len(self._queue) + self.waiting})
        return Busy(remark)

    # --- puts -------------------------------------------------------------------------------------------------------

    def was_slow(self, took_ns: int) -> None:
        """A put by the loop took longer than SLOW_MS."""
        self.slow_puts += 1
        self._last_slow = monotonic()
        if not self.in_worker_thread:
            self.in_worker_thread = True
            self._log.warning("slow put: puts moved to worker thread", extra={"took_ms": took_ns // 1_000_000})

    def after_this(self, begin: Callable[[], None]) -> None:
        """Have a flush or a transfer begun when the loop has put all that came with the same bytes: one for all."""
        self._soon.once(begin)

    def _dispatch(self, work: Callable[[], None]) -> bool:
        """Have the loop dispatch what it has put, after it has answered: who waits is told without a thread between."""
        if self.in_worker_thread:  # the disk is slow
            return False
        self._soon.once(work)
        return True

    def wait_for(self, put: Pending, done: Callable[[PutResult], None]) -> None:
        """Have `done` called when a put is flushed, and on a slave: for all puts that wait for the same, at once."""
        self.waiting += 1
        if put.waiting == self._waits_for:
            self._waiters.append((put, done))
            return
        self._waits_for, waiting = put.waiting, [(put, done)]
        self._waiters = waiting
        put.then(lambda: self._soon(self._waited, waiting))

    def _waited(self, waiting: list[tuple[Pending, Callable[[PutResult], None]]]) -> None:
        if waiting is self._waiters:
            self._waits_for, self._waiters = (), []
        self.waiting -= len(waiting)
        for put, done in waiting:
            self._soon.do(done, put.result())

    def run(self, work: Callable[[], Any], done: Callable[[Any], None], refuse: Callable[[Busy], None] | None) -> None:
        """Have `work` done by the thread and `done` told of what it gives (or its future), in the loop's thread.

        `refuse` is called instead when it has waited for too long.
        """
        put = _Put(monotonic(), work, done, refuse)
        self._in_progress += 1
        if self._closed:  # what a put that was under way leads to, and nobody sends again: the end of a transaction
            self._make(put)
            return
        if self._threads is None:
            count = _THREADS_THAT_WAIT if self._store.puts_wait else 1
            self._threads = ThreadPoolExecutor(count, "SendMessageThread")
        with self._lock:
            self._queue.append(put)
        self._threads.submit(self._next)
        if self._timer is None and self._cleans:
            self._timer = self._loop.call_later(_CLEAN_S, self._clean)

    def _next(self) -> None:
        """In a thread: make the put that has waited longest, if it still waits."""
        with self._lock:
            if not self._queue:
                return
            put = self._queue.popleft()
        self._make(put)

    def _make(self, put: _Put) -> None:
        began = monotonic()
        outcome = put.work()
        took = monotonic() - began
        if isinstance(outcome, Future):
            self._soon(self._appended, took)
            outcome.add_done_callback(lambda future: self._soon(self._made, put, future.result()))
        else:  # with SYNC_FLUSH that was the wait for the flush, and says nothing of the log
            self._soon(self._appended, 0.0 if self._store.puts_wait else took)
            self._soon(self._made, put, outcome)

    def _made(self, put: _Put, outcome: Any) -> None:
        self._in_progress -= 1
        put.done(outcome)

    def _appended(self, took_s: float) -> None:
        now = monotonic()
        if took_s * 1000 > SLOW_MS:
            self.was_slow(int(took_s * 1e9))
        elif self.in_worker_thread and not self._queue and now - self._last_slow > CALM_S:
            self.in_worker_thread = False
            self._log.info(
                "puts are fast again: moved back from the worker thread", extra={"refused": sum(self.refused.values())}
            )

    def _clean(self) -> None:
        """Refuse what has waited for too long. Source: BrokerFastFailure#cleanExpiredRequest."""
        self._timer = None
        busy, now = self._store.page_cache_busy, monotonic()
        kept: list[_Put] = []
        gone: list[_Put] = []
        with self._lock:
            while self._queue and (busy or now - self._queue[0].since >= self._wait_s):
                put = self._queue.popleft()
                (kept if put.refuse is None else gone).append(put)
            self._queue.extendleft(reversed(kept))
            left = len(self._queue)
        reason = "PCBUSY_CLEAN_QUEUE" if busy else "TIMEOUT_CLEAN_QUEUE"
        self._in_progress -= len(gone)
        for put in gone:
            assert put.refuse is not None
            put.refuse(self._refused(reason, _FROM_QUEUE.format(reason, int((now - put.since) * 1000), left)))
        if left and not self._closed:
            self._timer = self._loop.call_later(_CLEAN_S, self._clean)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more sends; those that wait are refused. For all other puts: `settled`."""
        self._closed = True
        self._store.dispatch_through(None)
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            left = [put for put in self._queue if put.refuse is not None]
            kept = [put for put in self._queue if put.refuse is None]
            self._queue.clear()
            self._queue.extend(kept)
        self._in_progress -= len(left)
        for put in left:
            assert put.refuse is not None
            put.refuse(Busy(_AT_ONCE.format("SHUTDOWN")))
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def settled(self, timeout_s: float) -> bool:
        """Wait until everybody was told of every put; False: a disk takes longer than that."""
        end = monotonic() + timeout_s
        while self.waiting or self._in_progress:
            if monotonic() > end:
                return False
            await asyncio.sleep(_LOOK_S)
        return True
