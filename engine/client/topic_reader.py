"""The messages of a topic as they lie in its queues, without a group's offsets: read, and left as they were.

    async for message in TopicReader(client, "orders").messages(ReadFrom(first=True)):
        …

Queues are read beside each other; the messages of each come in order. Source: DefaultMQPullConsumer (what it does for
one queue), MQAdminImpl.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from engine.client.calls import BrokerCalls
from engine.client.held_bytes import HeldBytes
from engine.client.pulling import EmptyAnswers, PullStatus
from engine.client.routes import MASTER
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.dataclass import dataclass
from engine.errors import NoRoute, NotFound, PeerLost, RStoreError

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.messages import ReceivedMessage
    from engine.client.queues import MessageQueue

GROUP = "rstore-reader"
"""A pull names a group; this one commits nothing."""
_WAITING = 256
_AGAIN_S = 1.0
_TELLS_NOTHING_S = 1.0
"""A pause after empty answers from which on a reader that wants no more than there is gives up."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where reading begins: at the end, with the first message, or with the first one stored since a time."""

    first: bool = False
    time_ms: int | None = None


class TopicReader:
    """See the module. For the client's loop.

    Args:
        topic: without namespace.
        expression, kind: of a subscription.
        queue_id: of each broker, this queue alone.
        group: that pulls name; brokers without automatic groups need one that there is.
        held: what readers beside this one hold, too.

    Raises:
        InvalidArgument: no expression.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        expression: str = ALL,
        kind: str = TAG,
        *,
        queue_id: int | None = None,
        group: str = GROUP,
        held: HeldBytes | None = None,
    ) -> None:
        self._client = client
        self._calls = BrokerCalls(client)
        self._topic = client.wire_name(topic)
        self._queue_id = queue_id
        self._group = client.wire_name(group)
        self._wanted = TopicSubscription.of(self._topic, expression, kind, 0)
        self._away: set[str] = set()
        self._held = HeldBytes() if held is None else held
        self._own_held = 0

    async def messages(self, begin: ReadFrom, *, follow: bool = False) -> AsyncGenerator[ReceivedMessage]:
        """The messages up to the end of each queue as it is now; `follow`: and those that come, without an end.

        Raises:
            NoRoute, PeerLost, RefusedByBroker, FormatError. With `follow` a broker that is lost, or not registered any
                more, is waited for.
            NotFound: no broker has a queue of that id.
            InvalidArgument: an expression that a broker does not understand.
        """
        queues = (await self._client.route(self._topic)).read_queues(self._topic)
        await self._calls.demand_sense(self._group, self._wanted)
        if self._queue_id is not None:
            queues = tuple(queue for queue in queues if queue.queue_id == self._queue_id)
            if not queues:
                raise NotFound(f"topic {self._topic} has no queue {self._queue_id}")
        arrived: asyncio.Queue[ReceivedMessage | Exception | None] = asyncio.Queue(_WAITING)
        readers = [
            asyncio.get_running_loop().create_task(self._reader(queue, begin, arrived, follow=follow))
            for queue in queues
        ]
        try:
            left = len(readers)
            while left:
                item = await arrived.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    left -= 1
                else:
                    yield item
                    self._hold(-item.stored.total_size)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            self._hold(-self._own_held)

    def _hold(self, size: int) -> None:
        self._own_held += size
        self._held.add(size)

    async def _reader(
        self,
        queue: MessageQueue,
        begin: ReadFrom,
        arrived: asyncio.Queue[ReceivedMessage | Exception | None],
        *,
        follow: bool,
    ) -> None:
        """Put what a queue has, then None, or what went wrong. Cancelled, it puts nothing more: nobody takes it."""
        try:
            async for message in self._read(queue, begin, follow=follow):
                await arrived.put(message)
        except Exception as error:  # noqa: BLE001 - whatever it is: who waits for messages gets it
            await arrived.put(error)
        else:
            await arrived.put(None)

    async def _read(self, queue: MessageQueue, begin: ReadFrom, *, follow: bool) -> AsyncGenerator[ReceivedMessage]:
        end, at = 0, None
        broker_id = MASTER
        empty = EmptyAnswers()
        while follow or at is None or at < end:
            try:
                if at is None:
                    end = await self._calls.max_offset(queue)
                    at = await self._start(queue, begin, end)
                    continue
                await self._held.space()
                asked_s = time.monotonic()
                result = await self._calls.pull(self._group, queue, at, self._wanted, wait=follow, broker_id=broker_id)
            except (NoRoute, PeerLost) as error:
                if not follow:
                    raise
                await self._wait_for(queue, error)
                continue
            self._away.discard(queue.broker)
            pause_s = empty.pause_s(result, at, time.monotonic() - asked_s)
            if not follow and pause_s >= _TELLS_NOTHING_S:
                raise PeerLost(
                    f"{queue.topic}/{queue.queue_id} of broker {queue.broker} shows no message at offset {at}, "
                    f"and its end was {end}",
                    hint=f"rstore admin topic status {queue.topic} shows where its queues end now",
                )
            broker_id, at = result.broker_id, result.next_offset
            wanted = [one for one in result.messages if self._wanted.wants(one) and (follow or one.queue_offset < end)]
            self._hold(sum(one.stored.total_size for one in wanted))
            for message in wanted:
                yield message
            if pause_s:
                await asyncio.sleep(pause_s)
            if not follow and result.status is PullStatus.NO_NEW_MESSAGE:
                broker_id = MASTER  # a slave may be behind

    async def _wait_for(self, queue: MessageQueue, error: RStoreError) -> None:
        """Until a broker is asked again; the first failure of its absence is logged."""
        if queue.broker not in self._away:
            self._away.add(queue.broker)
            self._client.log.warning("%s", error)
        self._client.forget_route(queue.topic)  # it may come back elsewhere
        await asyncio.sleep(_AGAIN_S)

    async def _start(self, queue: MessageQueue, begin: ReadFrom, end: int) -> int:
        if begin.first:
            return await self._calls.min_offset(queue)
        if begin.time_ms is not None:
            return await self._calls.offset_at(queue, begin.time_ms)
        return end
