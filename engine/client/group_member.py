"""A consumer as its group and the brokers know it: name, subscriptions, offsets, heartbeats. What all kinds share.

Source: MQConsumerInner, and what DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl and DefaultMQPullConsumerImpl
have in common.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engine.client.calls import BrokerCalls
from engine.client.clock import now_ms
from engine.client.consumer_settings import MessageModel
from engine.client.delivery import Counts
from engine.client.heartbeats import consumer_data
from engine.client.offsets import LocalOffsets, OffsetStore, RemoteOffsets
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.client.tracing import ConsumeTrace
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.format.topic_rules import refused_group

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from types import TracebackType

    from engine.client.client import ClusterClient
    from engine.client.consumer_settings import GroupSettings, Handler
    from engine.client.process_queue import ProcessQueue
    from engine.client.queues import MessageQueue

_OFFSETS = Path("~/.rocketmq_offsets")


class GroupMember:
    """See the module. An async context manager, for the client's loop.

    Args:
        group: without namespace.
        kind: as brokers know it (ConsumeType).

    Attributes:
        handler: what consumes a message that a broker wants to be consumed now; None: nothing does.
        counts: messages that were consumed and that failed.
        started_ms: when, ms since 1970.

    Raises:
        InvalidArgument: no name of a group.
    """

    handler: Handler | None = None

    def __init__(self, client: ClusterClient, group: str, settings: GroupSettings, kind: str) -> None:
        reason = refused_group(group)
        if reason is not None:
            raise InvalidArgument(reason)
        self.group = group
        self.counts = Counts()
        self.started_ms = 0
        self._kind = kind
        self._common = settings
        self._client = client
        self._wire_group = client.wire_name(group)
        self._calls = BrokerCalls(client)
        self._subscriptions: dict[str, TopicSubscription] = {}
        self._offsets = self._offset_store()
        self._trace = ConsumeTrace(client.tracer(group, "CONSUME"), group) if settings.trace else None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _is_broadcast(self) -> bool:
        return self._common.model is MessageModel.BROADCASTING

    def _offset_store(self) -> OffsetStore:
        if self._is_broadcast:
            place = (self._common.offsets_in or _OFFSETS).expanduser()
            instance = self._client.config.instance or "default"
            return LocalOffsets(Disk(), place / instance / self._wire_group / "offsets.json", self._client.log)
        return RemoteOffsets(self._calls, self._wire_group, self._client.log)

    async def __aenter__(self) -> Self:
        self.started_ms = now_ms()
        self._client.add_consumer(self)
        self._begin(self._persists())
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end(error)
        await self._client.remove_consumer(self)

    def _start(self) -> None:
        """What a kind begins with."""

    async def _end(self, error: BaseException | None) -> None:
        """What a kind ends with, before brokers are told. `error`: what it ends by."""
        await self._offsets.persist()

    def _subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> TopicSubscription:
        wanted = TopicSubscription.of(topic, expression, kind, now_ms())
        self._subscriptions[topic] = wanted
        return wanted

    # --- what brokers see of it ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that it consumes, on the wire."""
        return tuple(self._subscriptions)

    def state(self) -> list[tuple[MessageQueue, ProcessQueue, int | None]]:
        """Its queues, what it holds of them, and where it stands."""
        return []

    def heartbeat(self) -> dict[str, Any]:
        """As a heartbeat's consumerDataSet has it."""
        common = self._common
        return consumer_data(self._wire_group, self._kind, common.model, common.start, self._subscriptions.values())

    def running_properties(self) -> dict[str, str]:
        """As GET_CONSUMER_RUNNING_INFO tells them."""
        return {
            "PROP_CLIENT_VERSION": "V4_9_8",
            "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
            "PROP_CONSUME_TYPE": self._kind,
            "consumeFromWhere": self._common.start.value,
            "consumerGroup": self.group,
            "messageModel": self._common.model.value,
        }

    def rebalance_soon(self) -> None:
        """Members, routes or subscriptions have changed."""

    async def begin_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """A broker wants its queues to be consumed from other offsets on."""

    # --- of queues ----------------------------------------------------------------------------------------------------

    async def queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that consumers read, sorted.

        Raises:
            NoRoute, PeerLost, RefusedByBroker, FormatError. So do all methods that ask a broker.
        """
        wire = self._client.wire_name(topic)
        return (await self._client.route(wire)).read_queues(wire)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset of a queue."""
        return await self._calls.min_offset(self._on_the_wire(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """One more than the last offset of a queue."""
        return await self._calls.max_offset(self._on_the_wire(queue))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at this time (ms since 1970) or later."""
        return await self._calls.offset_at(self._on_the_wire(queue), time_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group continues, by what was committed here or is stored; None: nothing was."""
        queue = self._on_the_wire(queue)
        known = self._offsets.known(queue)
        return await self._offsets.stored(queue) if known is None else known

    async def _members_share(self, topic: str) -> set[MessageQueue]:
        """The queues of a topic (on the wire) that are our own among the group's consumers."""
        queues = (await self._client.route(topic)).read_queues(topic)
        if self._is_broadcast:
            return set(queues)
        consumers = await self._calls.members(self._wire_group, topic)
        return set(self._common.strategy.allocate(self._client.id, queues, consumers))

    def _on_the_wire(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._client.wire_name(queue.topic))

    # --- beside -----------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _persists(self) -> None:
        while True:
            await asyncio.sleep(self._common.persist_s)
            await self._offsets.persist()
