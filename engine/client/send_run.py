"""Many messages sent one after another, some at a time: what `rstore send` does. In the order of the input, per queue
only where one is in flight at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import field
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING

from engine.client.client import ClientConfig, ClusterClient
from engine.client.pace import Pace
from engine.client.producer import ProducerSettings
from engine.client.task_errors import first_error
from engine.dataclass import dataclass
from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.client.messages import OutgoingMessage
    from engine.client.producer import Producer
    from engine.client.sending import SendResult


@dataclass(frozen=True, slots=True)
class SendOrders:
    """How to send.

    Attributes:
        group: of the producer.
        at_once: sends that are not answered yet, at most.
        rate: messages a second at most, by the rule of Pace; None: as fast as they are answered.
        reads: messages come from a file or a pipe: sends continue while the next one is waited for.
    """

    group: str
    at_once: int = 1
    rate: float | None = None
    reads: bool = False
    producer: ProducerSettings = field(default_factory=ProducerSettings)


@dataclass(slots=True)
class SendRun:
    """What came of it. `problem`: what ended it."""

    sent: int = 0
    seconds: float = 0.0
    problem: RStoreError | None = None


def send_all(
    config: ClientConfig,
    messages: Iterable[OutgoingMessage],
    orders: SendOrders,
    on_sent: Callable[[OutgoingMessage, SendResult], None],
) -> SendRun:
    """Send messages until there are no more, or one fails. `on_sent`: is told of each, in any order.

    Raises:
        PeerLost: no name server is there. What `messages` raises, after those before it were sent.
    """
    return asyncio.run(_send_all(config, messages, orders, on_sent))


async def _send_all(
    config: ClientConfig,
    messages: Iterable[OutgoingMessage],
    orders: SendOrders,
    on_sent: Callable[[OutgoingMessage, SendResult], None],
) -> SendRun:
    run = SendRun()
    began = time.monotonic()
    async with ClusterClient(config) as client:
        producer = client.producer(orders.group, orders.producer)
        source, pace = _Source(messages, reads=orders.reads), Pace(orders.rate)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(orders.at_once):
                    group.create_task(_sender(producer, source, pace, run, on_sent))
        except BaseExceptionGroup as problems:
            first = first_error(problems)
            if not isinstance(first, RStoreError):
                raise first from None
            run.problem = first
        finally:
            source.close()
    if source.problem is not None and run.problem is None:
        raise source.problem
    run.seconds = time.monotonic() - began
    return run


class _Source:
    """Messages one after another, for senders that run beside each other. For one loop.

    Reading is done by a thread that nobody waits for at the end: it may stand in a read of a terminal or a pipe.

    Attributes:
        problem: what the messages raised. It is their end: what was read before is still sent.
    """

    def __init__(self, messages: Iterable[OutgoingMessage], *, reads: bool) -> None:
        self.problem: Exception | None = None
        self._messages = iter(messages)
        self._asked: SimpleQueue[Future[OutgoingMessage | None] | None] | None = None
        if reads:
            self._asked = SimpleQueue()
            threading.Thread(target=self._answer, args=(self._asked,), name="messages to send", daemon=True).start()

    async def next(self) -> OutgoingMessage | None:
        """The next message; None: there are no more."""
        try:
            if self._asked is None:
                return next(self._messages, None)
            asked: Future[OutgoingMessage | None] = Future()
            self._asked.put(asked)
            return await asyncio.wrap_future(asked)
        except Exception as error:  # noqa: BLE001 - raised where all senders have ended
            self.problem = self.problem or error
            return None

    def close(self) -> None:
        """Nothing more is asked for."""
        if self._asked is not None:
            self._asked.put(None)

    def _answer(self, asked: SimpleQueue[Future[OutgoingMessage | None] | None]) -> None:
        while (one := asked.get()) is not None:
            if not one.set_running_or_notify_cancel():
                continue
            try:
                one.set_result(next(self._messages, None))
            except Exception as error:  # noqa: BLE001 - of who waits for it
                one.set_exception(error)


async def _sender(
    producer: Producer,
    source: _Source,
    pace: Pace,
    run: SendRun,
    on_sent: Callable[[OutgoingMessage, SendResult], None],
) -> None:
    while (message := await source.next()) is not None:
        await pace.wait()
        result = await producer.send(message)
        run.sent += 1
        on_sent(message, result)


def repeated(message: OutgoingMessage, count: int) -> Iterator[OutgoingMessage]:
    """The same message so many times."""
    return islice(iter(lambda: message, None), count)
