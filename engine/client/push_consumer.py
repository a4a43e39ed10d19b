"""A consumer of a consumer group: pulls the queues that are its own and gives their messages to a handler.

    async with client.push_consumer("billing", handle) as consumer:
        await consumer.subscribe("orders", "paid || cancelled")
        …

Source: DefaultMQPushConsumerImpl, RebalancePushImpl.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.client.delivery import Concurrently, Delivery, InOrder, Parts
from engine.client.heartbeats import PUSH
from engine.client.queue_locks import RENEW_S, HeldLocks
from engine.client.queue_member import QueueMember
from engine.client.sending_back import SendingBack
from engine.client.subscriptions import TAG, TopicSubscription
from engine.format.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.client import ClusterClient
    from engine.client.consumer_settings import ConsumerSettings, Handler
    from engine.client.messages import ReceivedMessage
    from engine.client.process_queue import ProcessQueue
    from engine.client.queues import MessageQueue


class PushConsumer(QueueMember):
    """See the module. Made by `ClusterClient.push_consumer`."""

    def __init__(self, client: ClusterClient, group: str, handler: Handler, settings: ConsumerSettings) -> None:
        super().__init__(client, group, settings, PUSH)
        self.handler = handler
        self.settings = settings
        self._locks = HeldLocks(self._calls, self._wire_group, client.log)
        self._needs_locks = settings.ordered and not self._is_broadcast
        back = SendingBack(
            self._calls, client.producer(f"CLIENT_INNER_{group}"), self._wire_group, settings.retries, client.log
        )
        parts = Parts(handler, self._offsets, back, settings, self.counts, client.log, self._trace)
        locks = _Unlocked() if self._is_broadcast else self._locks
        self._delivery: Delivery = InOrder(parts, locks) if settings.ordered else Concurrently(parts)

    def _start(self) -> None:
        if not self._is_broadcast:
            self._subscribe(f"{RETRY_PREFIX}{self._wire_group}")
        super()._start()
        self._begin(self._renews())

    async def _end(self, error: BaseException | None) -> None:
        renewing = asyncio.get_running_loop().create_task(self._renews())  # handlers may have queues for long
        try:
            await self._delivery.stop(self.settings.patience_s)
            await super()._end(error)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def running_properties(self) -> dict[str, str]:
        """See GroupMember."""
        return {
            **super().running_properties(),
            "PROP_CONSUMEORDERLY": str(self.settings.ordered).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self.settings.at_once),
        }

    # --- as a QueueMember --------------------------------------------------------------------------------------------

    async def _may_take(self, queue: MessageQueue) -> bool:
        return not self._needs_locks or await self._locks.take(queue)

    def _taken(self, queue: MessageQueue, held: ProcessQueue) -> None:
        self._delivery.begin(queue, held)

    def _arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        self._delivery.arrived(queue, held, messages)

    async def _leave(self, queue: MessageQueue) -> None:
        await self._delivery.end(queue)

    async def _left(self, queue: MessageQueue) -> None:
        await self._locks.give_back([queue])

    def _is_full(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        return held.is_full(self.settings.limits, ordered=self.settings.ordered)

    def _pull_brings(self, wanted: TopicSubscription) -> TopicSubscription | None:
        return None if wanted.kind == TAG else wanted

    def _pull_commits(self, queue: MessageQueue) -> int | None:
        return None if self._is_broadcast else self._offsets.known(queue) or None

    async def _renews(self) -> None:
        while self._needs_locks:
            await asyncio.sleep(RENEW_S)
            await self._locks.renew([*self._held, *(self._locks.taken & set(self._leaving))])


class _Unlocked:
    """Broadcasting needs no locks: nobody else has our offsets."""

    def is_held(self, queue: MessageQueue) -> bool:
        return True

    async def take(self, queue: MessageQueue) -> bool:
        return True
