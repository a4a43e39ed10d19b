"""A consumer that asks for messages of one queue at a time, from the offset that it is told: it keeps no queue.

    async with client.pull_consumer("audit") as consumer:
        for queue in await consumer.queues_of("orders"):
            result = await consumer.pull(queue, await consumer.min_offset(queue))

Source: DefaultMQPullConsumer, DefaultMQPullConsumerImpl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.client.clock import now_ms
from engine.client.group_member import GroupMember
from engine.client.heartbeats import PULL
from engine.client.routes import MASTER
from engine.client.subscriptions import ALL, TAG, TopicSubscription

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.consumer_settings import GroupSettings
    from engine.client.messages import ReceivedMessage
    from engine.client.pulling import PullResult
    from engine.client.queues import MessageQueue

_RETRIES = 16


class PullConsumer(GroupMember):
    """See the module. Made by `ClusterClient.pull_consumer`."""

    def __init__(self, client: ClusterClient, group: str, settings: GroupSettings) -> None:
        super().__init__(client, group, settings, PULL)
        self._ask_next: dict[MessageQueue, int] = {}
        self._understood: dict[str, tuple[str, str]] = {}

    async def register(self, topic: str) -> None:
        """Say to brokers that the group consumes a topic: its queues are shared among those who say so."""
        self._subscribe(self._client.wire_name(topic))
        await self._client.heartbeat()

    async def balanced_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Our own share of a topic's queues among the group's consumers, sorted (fetchMessageQueuesInBalance)."""
        return tuple(sorted(await self._members_share(self._client.wire_name(topic))))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = ALL,
        kind: str = TAG,
        *,
        most: int | None = None,
        wait: bool = False,
    ) -> PullResult:
        """Messages of a queue from an offset on.

        Args:
            most: messages at most (default: the settings' pull).
            wait: the broker holds the pull until there is a message, for 15 s at most (pullBlockIfNotFound).

        Raises:
            InvalidArgument: no expression, or one that a broker does not understand. Else as `queues_of`.
        """
        queue = self._on_the_wire(queue)
        wanted = TopicSubscription.of(queue.topic, expression, kind, now_ms())
        if self._understood.get(queue.topic) != (expression, kind):
            await self._calls.demand_sense(self._wire_group, wanted)
            self._understood[queue.topic] = (expression, kind)
        broker_id = self._ask_next.get(queue, MASTER)
        most = self._common.pull if most is None else most
        result = await self._calls.pull(
            self._wire_group, queue, offset, wanted, most=most, wait=wait, broker_id=broker_id
        )
        self._ask_next[queue] = result.broker_id
        messages = tuple(message for message in result.messages if wanted.wants(message))
        for message in messages:
            self.counts.consumed[message.topic] += 1
        return replace(result, messages=messages)

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """The group continues here: stored each 5 s, at the end, and by `commit`."""
        self._offsets.update(self._on_the_wire(queue), offset, only_up=False)

    async def commit(self) -> None:
        """Store the offsets of `update_offset` now. One that no broker took is logged, and stored the next time."""
        await self._offsets.persist()

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have a message given to the group again later. Raises as `queues_of`."""
        await self._calls.send_back(self._wire_group, message, delay_level, _RETRIES)
