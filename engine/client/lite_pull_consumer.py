"""A consumer that is polled: queues are pulled ahead into caches, and `poll` gives what has come.

    async with client.lite_pull_consumer("billing") as consumer:
        await consumer.subscribe("orders")
        for message in await consumer.poll():
            …

It shares the queues of its topics with its group (`subscribe`), or has those that it is told (`assign`).
Source: DefaultLitePullConsumer, DefaultLitePullConsumerImpl, AssignedMessageQueue.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.client.clock import now_ms
from engine.client.heartbeats import PULL
from engine.client.queue_member import QueueMember
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.client.trace import ConsumeCode
from engine.errors import InvalidArgument, RStoreError

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.consumer_settings import LitePullSettings
    from engine.client.messages import ReceivedMessage
    from engine.client.process_queue import ProcessQueue
    from engine.client.queues import MessageQueue

_Arrival = tuple["MessageQueue", "ProcessQueue", Sequence["ReceivedMessage"]]
Changed = Callable[[tuple["MessageQueue", ...]], None]
"""Is told the queues of a topic when they are others than before."""


class LitePullConsumer(QueueMember):
    """See the module. Made by `ClusterClient.lite_pull_consumer`."""

    def __init__(self, client: ClusterClient, group: str, settings: LitePullSettings) -> None:
        super().__init__(client, group, settings, PULL)
        self._settings = settings
        self._assigned: dict[str, TopicSubscription] | None = None
        self._paused: set[MessageQueue] = set()
        self._cache: deque[_Arrival] = deque()
        self._filled = asyncio.Event()
        self._given: dict[MessageQueue, int] = {}
        self._watched: dict[str, tuple[tuple[MessageQueue, ...], Changed]] = {}

    # --- which queues -------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """See QueueMember. Raises InvalidArgument also where queues were assigned."""
        if self._assigned is not None:
            raise InvalidArgument("subscribe and assign exclude each other")
        await super().subscribe(topic, expression, kind)

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        wire = self._client.wire_name(topic)
        if self._subscriptions.pop(wire, None) is not None:
            await self._have(wire, set())
            await self._client.heartbeat()

    async def begin_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See QueueMember."""
        if self._assigned is None:
            await super().begin_at(offsets)
        else:
            for queue in set(offsets) & set(self._held):
                await self._move(queue, offsets[queue])

    async def assign(self, queues: Collection[MessageQueue], expression: str = ALL, kind: str = TAG) -> None:
        """Consume just these queues, whatever the group's other consumers have.

        Raises:
            InvalidArgument: topics were subscribed to, or an expression that a broker does not understand. Else as
                `queues_of`.
        """
        if self._subscriptions:
            raise InvalidArgument("subscribe and assign exclude each other")
        own = {self._on_the_wire(queue) for queue in queues}
        topics = {queue.topic for queue in own}
        assigned = {topic: TopicSubscription.of(topic, expression, kind, now_ms()) for topic in topics}
        for wanted in assigned.values():
            await self._calls.demand_sense(self._wire_group, wanted)
        self._assigned = assigned
        for topic in topics | {queue.topic for queue in self._held}:
            await self._have(topic, {queue for queue in own if queue.topic == topic})
        await self._client.heartbeat()

    def on_queues_changed(self, topic: str, changed: Changed) -> None:
        """Have `changed` called when a topic has other queues than before. It is looked at as queues are shared out."""
        self._watched[self._client.wire_name(topic)] = ((), changed)
        self.rebalance_soon()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """The messages of one pull, as soon as there are some; none after `timeout_s` (default: the settings')."""
        if self._settings.auto_commit:
            self._count_given()
        if timeout_s is None:
            timeout_s = self._settings.poll_s
        end = time.monotonic() + timeout_s
        while not self._cache:
            self._filled.clear()
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    await self._filled.wait()
            except TimeoutError:
                return []
        queue, held, messages = self._cache.popleft()
        held.consumed_ms = now_ms()
        self._given[queue] = held.remove(messages) or messages[-1].queue_offset + 1
        for message in messages:
            self.counts.consumed[message.topic] += 1
        if self._trace is not None:
            self._trace.ended(self._trace.begins(messages), ConsumeCode.SUCCESS)
        return list(messages)

    async def commit(self, offsets: Mapping[MessageQueue, int] | Collection[MessageQueue] | None = None) -> None:
        """Store where the group continues: after what `poll` gave, of all queues or of these; or at these offsets.

        An offset that no broker took is logged, and stored with the next commit.

        Raises:
            InvalidArgument: one of the queues is not ours.
        """
        if isinstance(offsets, Mapping):
            given = {self._ours(queue): offset for queue, offset in offsets.items()}
        else:
            asked = list(self._given if offsets is None else map(self._ours, offsets))
            given = {queue: self._given[queue] for queue in asked if queue in self._given}
        for queue, offset in given.items():
            self._offsets.update(queue, offset, only_up=False)
        await self._offsets.persist(given)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull nothing more of these; what has come is given all the same."""
        self._paused |= {self._on_the_wire(queue) for queue in queues}

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull them again."""
        self._paused -= {self._on_the_wire(queue) for queue in queues}

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have the next messages of a queue begin here.

        Raises:
            InvalidArgument: it is not ours, or has no such offset. Else as `queues_of`.
        """
        queue = self._ours(queue)
        first, end = await self._calls.min_offset(queue), await self._calls.max_offset(queue)
        if not first <= offset <= end:
            raise InvalidArgument(f"{queue} has no offset {offset}", hint=f"its offsets are {first} to {end}")
        await self._move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Have the next messages of a queue begin with its first one."""
        await self._move(queue, await self._calls.min_offset(self._ours(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Have the next messages of a queue be those that come after now."""
        await self._move(queue, await self._calls.max_offset(self._ours(queue)))

    async def _move(self, queue: MessageQueue, offset: int) -> None:
        async with self._changing:
            queue = self._ours(queue)  # another consumer may have it since
            await asyncio.gather(self._stop_queue(queue), return_exceptions=True)
            await self._leave(queue)
            self._given[queue] = offset
            self._begin_queue(queue, offset)

    def _ours(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the wire has it. Raises InvalidArgument."""
        queue = self._on_the_wire(queue)
        if queue not in self._held:
            raise InvalidArgument(f"{queue} is not one of this consumer's queues")
        return queue

    def _count_given(self) -> None:
        """What was given is consumed."""
        for queue, offset in self._given.items():
            self._offsets.update(queue, offset, only_up=False)

    # --- as a QueueMember ---------------------------------------------------------------------------------------------

    async def _end(self, error: BaseException | None) -> None:
        if self._settings.auto_commit and error is None:
            self._count_given()
        await super()._end(error)

    async def _rebalance(self) -> bool:
        is_whole = await super()._rebalance()
        for topic, (before, changed) in list(self._watched.items()):
            try:
                now = (await self._client.route(topic)).read_queues(topic)
            except RStoreError:
                continue
            if now != before:
                self._watched[topic] = (now, changed)
                changed(now)
        return is_whole

    def _arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        self._cache.append((queue, held, messages))
        self._filled.set()

    async def _leave(self, queue: MessageQueue) -> None:
        self._cache = deque(arrival for arrival in self._cache if arrival[0] != queue)
        self._given.pop(queue, None)

    def _is_full(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        if queue in self._paused or super()._is_full(queue, held):
            return True
        return sum(map(len, self._held.values())) > self._settings.total

    def _wanted_of(self, topic: str) -> TopicSubscription | None:
        return super()._wanted_of(topic) if self._assigned is None else self._assigned.get(topic)

    def _stands_at(self, queue: MessageQueue, offset: int, *, only_up: bool) -> None:
        if not only_up or offset > self._given.get(queue, -1):
            self._given[queue] = offset
