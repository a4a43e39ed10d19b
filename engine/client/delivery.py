"""Pulled messages given to a handler: at once as many as it may have, or one after another.

What a handler raises is the application's, and no end of the consumer: its messages are given again later.
Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.client.clock import now_ms
from engine.client.consumer_settings import ConsumeOutcome, MessageModel
from engine.client.time_limit import TimeLimit
from engine.client.trace import ConsumeCode
from engine.dataclass import dataclass

if TYPE_CHECKING:
    import logging

    from engine.client.consumer_settings import ConsumerSettings, Handler
    from engine.client.messages import ReceivedMessage
    from engine.client.offsets import OffsetStore
    from engine.client.process_queue import ProcessQueue
    from engine.client.queues import MessageQueue
    from engine.client.sending_back import SendingBack
    from engine.client.tracing import ConsumeTrace

_TIMED_OUT_LEVEL = 3
"""Delay level of what a handler did not consume in time. Source: ProcessQueue#cleanExpiredMsg."""
_AGAIN_S = 5.0
"""Until a message that no broker took back is given again here."""
_IN_A_ROW = 64
"""Shares that all workers together give to handlers before others of the loop have their turn: pulls, and the hand-over
of queues, for which another consumer waits or has the same messages twice."""


@dataclass(slots=True)
class Counts:
    """Messages that were consumed and that failed, and the time of handlers, by topic."""

    consumed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    spent_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parts:
    """What both ways of delivery use."""

    handler: Handler
    offsets: OffsetStore
    back: SendingBack
    settings: ConsumerSettings
    counts: Counts
    log: logging.Logger
    trace: ConsumeTrace | None = None

    async def handle(self, messages: Sequence[ReceivedMessage], limit: TimeLimit) -> tuple[ConsumeOutcome, bool]:
        """What the handler makes of messages, and whether it was cancelled for taking too long.

        `limit`: that of the task which calls.
        """
        began = time.monotonic()
        topic = messages[0].topic
        traced = None if self.trace is None else self.trace.begins(messages)
        timed_out = False
        code = ConsumeCode.SUCCESS
        try:
            with limit:
                outcome = await self.handler(messages) or ConsumeOutcome.SUCCESS
                code = ConsumeCode.SUCCESS if outcome is ConsumeOutcome.SUCCESS else ConsumeCode.FAILED
        except TimeoutError:
            timed_out = time.monotonic() - began >= self.settings.timeout_s
            self.log.warning("a handler failed with %s, first %s", "a time limit", messages[0].id)
            outcome, code = ConsumeOutcome.LATER, ConsumeCode.TIME_OUT
        except (Exception, asyncio.CancelledError) as error:  # the application's: see the module
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # we are ended ourselves; else it awaited a task of its own that was cancelled
            self.log.warning("a handler failed with %r, first %s", error, messages[0].id)
            outcome, code = ConsumeOutcome.LATER, ConsumeCode.EXCEPTION
        if traced is not None and self.trace is not None:
            self.trace.ended(traced, code)
        counted = self.counts.consumed if outcome is ConsumeOutcome.SUCCESS else self.counts.failed
        counted[topic] += len(messages)
        spent = self.counts.spent_s
        spent[topic] = spent.get(topic, 0.0) + time.monotonic() - began
        return outcome, timed_out


class _Share(NamedTuple):
    """Messages of a queue that a handler is given at once."""

    queue: MessageQueue
    held: ProcessQueue
    messages: Sequence[ReceivedMessage]


class Delivery(Protocol):
    """A way of giving messages to the handler."""

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """A queue is ours from now on."""
        ...

    def arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Messages were pulled, and are in `held`."""
        ...

    async def end(self, queue: MessageQueue) -> None:
        """A queue is no longer ours: returns when no handler has messages of it in order."""
        ...

    async def stop(self, patience_s: float) -> None:
        """Nothing more is given out; handlers that run may go on so long."""
        ...


class Concurrently:
    """Every message as soon as a handler is free. For one loop.

    As many workers as handlers may run take what is ready, one share after another, and end when nothing is.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ready: deque[_Share] = deque()
        self._workers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """See Delivery."""

    def arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """See Delivery."""
        size = self._parts.settings.batch
        self._ready += [_Share(queue, held, messages[at : at + size]) for at in range(0, len(messages), size)]
        self._call_workers()

    async def end(self, queue: MessageQueue) -> None:
        """See Delivery."""

    async def stop(self, patience_s: float) -> None:
        """See Delivery."""
        self._stopped = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _call_workers(self) -> None:
        for _ in range(min(len(self._ready), self._parts.settings.at_once - self._workers)):
            self._workers += 1
            self._begin(self._work())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        limit = TimeLimit(self._parts.settings.timeout_s)
        count = 0
        try:
            while self._ready and not self._stopped:
                share = self._ready.popleft()
                if share.held.dropped:
                    continue
                outcome, timed_out = await self._parts.handle(share.messages, limit)
                if outcome is ConsumeOutcome.LATER:  # beside the others: a broker is asked
                    self._begin(self._return_share(share, timed_out=timed_out))
                else:
                    self._note_consumed(share, share.messages)
                count += 1
                if count % max(1, _IN_A_ROW // self._workers) == 0:  # a handler may never wait
                    await asyncio.sleep(0)
        finally:
            self._workers -= 1
            limit.close()

    async def _return_share(self, share: _Share, *, timed_out: bool) -> None:
        left = await self._give_back(share.messages, timed_out=timed_out)
        kept = {message.queue_offset for message in left}
        self._note_consumed(share, [message for message in share.messages if message.queue_offset not in kept])
        if left:
            await asyncio.sleep(_AGAIN_S)
            self._ready.append(_Share(share.queue, share.held, left))
            self._call_workers()

    def _note_consumed(self, share: _Share, messages: Sequence[ReceivedMessage]) -> None:
        held = share.held
        held.consumed_ms = now_ms()
        offset = held.remove(messages)
        if offset is not None and not held.dropped:
            self._parts.offsets.update(share.queue, offset, only_up=True)

    async def _give_back(self, messages: Sequence[ReceivedMessage], *, timed_out: bool) -> list[ReceivedMessage]:
        """Those that no broker took back, as failed once more."""
        settings = self._parts.settings
        if settings.model is MessageModel.BROADCASTING:
            self._parts.log.warning("%s messages failed, and broadcasting gives none again", len(messages))
            return []
        level = _TIMED_OUT_LEVEL if timed_out else settings.delay_level
        taken = await asyncio.gather(*(self._parts.back.give(message, level) for message in messages))
        return [failed_again(message) for message, is_taken in zip(messages, taken, strict=True) if not is_taken]


class InOrder:
    """The messages of each queue one after another, queues beside each other. For one loop.

    Args:
        locks: a queue is consumed while its lock is held.
    """

    def __init__(self, parts: Parts, locks: Locks) -> None:
        self._parts = parts
        self._locks = locks
        self._wakes: dict[MessageQueue, asyncio.Event] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._busy: dict[MessageQueue, asyncio.Lock] = {}

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """See Delivery."""
        self._wakes[queue] = asyncio.Event()
        self._busy[queue] = asyncio.Lock()
        self._tasks[queue] = asyncio.get_running_loop().create_task(self._run(queue, held))

    def arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """See Delivery."""
        self._wakes[queue].set()

    async def end(self, queue: MessageQueue) -> None:
        """See Delivery."""
        task = self._tasks.get(queue)
        if task is None:
            return
        async with self._busy[queue]:  # who runs may end: nobody else may begin with what follows before
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for table in (self._tasks, self._wakes, self._busy):  # `stop` and who leaves the queue may both come here
            table.pop(queue, None)

    async def stop(self, patience_s: float) -> None:
        """See Delivery."""
        ends = [asyncio.get_running_loop().create_task(self.end(queue)) for queue in list(self._tasks)]
        if ends:
            await asyncio.wait(ends, timeout=patience_s)
        for end in ends:
            end.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*ends, *self._tasks.values(), return_exceptions=True)

    async def _run(self, queue: MessageQueue, held: ProcessQueue) -> None:
        wake = self._wakes[queue]
        limit = TimeLimit(self._parts.settings.timeout_s)
        try:
            await self._consume(queue, held, wake, limit)
        finally:
            limit.close()

    async def _consume(self, queue: MessageQueue, held: ProcessQueue, wake: asyncio.Event, limit: TimeLimit) -> None:
        while not held.dropped:
            if not held.has_waiting:
                wake.clear()
                await wake.wait()
                continue
            if not self._locks.is_held(queue):
                await asyncio.sleep(_LOCK_AGAIN_S)
                await self._locks.take(queue)
                continue
            async with self._busy[queue]:
                again = await self._one(queue, held, limit)
            if again:
                await asyncio.sleep(self._parts.settings.suspend_s)

    async def _one(self, queue: MessageQueue, held: ProcessQueue, limit: TimeLimit) -> bool:
        """Consume the next messages; whether they are to be consumed again."""
        parts = self._parts
        messages = held.take(parts.settings.batch)
        outcome, _ = await parts.handle(messages, limit)
        held.consumed_ms = now_ms()
        if outcome is ConsumeOutcome.LATER:
            again = [message for message in messages if not await self._is_given_up(message)]
            if again:
                held.put_back([failed_again(message) for message in again])
                return True
        offset = held.commit()
        if offset is not None and not held.dropped:
            parts.offsets.update(queue, offset, only_up=False)
        return False

    async def _is_given_up(self, message: ReceivedMessage) -> bool:
        """Whether it has failed too often, and is a dead letter now."""
        settings = self._parts.settings
        if message.reconsume_times < settings.retries:
            return False
        return await self._parts.back.send(message, message.reconsume_times)


class Locks(Protocol):
    """The brokers' locks of queues, which one consumer of a group holds at a time."""

    def is_held(self, queue: MessageQueue) -> bool:
        """Whether we hold it now."""
        ...

    async def take(self, queue: MessageQueue) -> bool:
        """Try to get it."""
        ...


_LOCK_AGAIN_S = 0.1


def failed_again(message: ReceivedMessage) -> ReceivedMessage:
    """The message, as failed once more."""
    return replace(message, stored=message.stored._replace(reconsume_times=message.reconsume_times + 1))
