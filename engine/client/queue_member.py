"""A consumer that has its share of its group's queues and pulls each of them: what push and lite pull share.

Which queues are its own is computed again each 20 s, when a broker says that consumers have come or gone, and when
routes have changed. Each queue is pulled by a task of its own, while the flow limits allow it. Source: RebalanceImpl,
RebalancePushImpl, RebalanceLitePullImpl, PullMessageService, DefaultLitePullConsumerImpl.PullTaskImpl.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from engine.client.clock import now_ms
from engine.client.consumer_settings import GroupSettings, StartAt, start_at
from engine.client.group_member import GroupMember
from engine.client.messages import demand_packages
from engine.client.process_queue import ProcessQueue
from engine.client.pulling import EmptyAnswers, PullStatus
from engine.client.routes import MASTER
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.errors import NoRoute, RefusedByBroker, RStoreError
from engine.format.names import RETRY_PREFIX
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from engine.client.client import ClusterClient
    from engine.client.messages import ReceivedMessage
    from engine.client.queues import MessageQueue

_FULL_S = 0.05
_FAILED_S = 3.0
_BUSY_S = 0.02
_NO_ROUTE_S = 1.0
_LEAVE_S = 1.0
"""How long other queues wait for those that are left. Source: RebalancePushImpl#removeUnnecessaryMessageQueue."""


class QueueMember(GroupMember):
    """See the module. The methods without a body are what the kinds differ in."""

    def __init__(self, client: ClusterClient, group: str, settings: GroupSettings, kind: str) -> None:
        super().__init__(client, group, settings, kind)
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()

    async def _may_take(self, queue: MessageQueue) -> bool:
        """Whether a queue of our share can be begun with."""
        return True

    def _taken(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """A queue is ours from now on."""

    def _arrived(self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Messages were pulled, and are in `held`."""
        raise NotImplementedError

    async def _leave(self, queue: MessageQueue) -> None:
        """A queue is no longer ours, and not pulled; its offset is stored next."""

    async def _left(self, queue: MessageQueue) -> None:
        """Its offset is stored."""

    def _is_full(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Whether to pull nothing more of it for a while."""
        return held.is_full(self._common.limits, ordered=False)

    def _wanted_of(self, topic: str) -> TopicSubscription | None:
        """What is wanted of a topic; None: it is not known now."""
        return self._subscriptions.get(topic)

    def _pull_brings(self, wanted: TopicSubscription) -> TopicSubscription | None:
        """The subscription that a pull brings; None: the broker goes by that of the heartbeats."""
        return wanted

    def _pull_commits(self, queue: MessageQueue) -> int | None:
        """The offset that a pull stores on its way."""
        return None

    def _stands_at(self, queue: MessageQueue, offset: int, *, only_up: bool) -> None:
        """Without a message that is wanted, the queue is consumed up to here."""
        self._offsets.update(queue, offset, only_up=only_up)

    def _start(self) -> None:
        self._begin(self._rebalances())

    async def _end(self, error: BaseException | None) -> None:
        await asyncio.gather(*self._leaving.values(), *map(self._drop, list(self._held)))

    async def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """Consume a topic, too. `kind`: TAG, or SQL92.

        Raises:
            InvalidArgument: no expression, or one that a broker does not understand.
        """
        wire = self._client.wire_name(topic)
        await self._calls.demand_sense(self._wire_group, TopicSubscription.of(wire, expression, kind, now_ms()))
        self._subscribe(wire, expression, kind)
        await self._client.heartbeat()
        self.rebalance_soon()

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are its own now, sorted."""
        return tuple(sorted(self._held))

    def held(self) -> dict[MessageQueue, int]:
        """Messages of each queue that were pulled and are not consumed."""
        return {queue: len(held) for queue, held in self._held.items()}

    def state(self) -> list[tuple[MessageQueue, ProcessQueue, int | None]]:
        """See GroupMember."""
        return [(queue, self._held[queue], self._offsets.known(queue)) for queue in self.queues]

    async def begin_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Leave what is held of these queues, and go on at other offsets. Source: MQClientInstance#resetOffset."""
        async with self._changing:
            await self._drop_all(set(offsets) & set(self._held), offsets)
        self.rebalance_soon()

    def rebalance_soon(self) -> None:
        """See GroupMember."""
        self._wake.set()

    # --- which queues -----------------------------------------------------------------------------------------------

    async def _rebalances(self) -> None:
        await self._wake.wait()  # brokers know of no consumer before its first heartbeat
        while True:
            self._wake.clear()
            is_whole = await self._rebalance()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._common.rebalance_s if is_whole else _NO_ROUTE_S):
                    await self._wake.wait()

    async def _rebalance(self) -> bool:
        """Take and leave queues; whether all topics could be looked at."""
        await self._offsets.persist()  # who takes a queue over now asks where we stood
        is_whole = True
        for topic in list(self._subscriptions):
            try:
                await self._rebalance_topic(topic)
            except NoRoute as error:
                is_whole = False
                if not topic.startswith(RETRY_PREFIX):
                    self._client.log.info("%s", error)
            except RStoreError as error:
                is_whole = False
                self._client.log.warning("queues of %s were not shared out: %s", topic, error)
        return is_whole

    async def _rebalance_topic(self, topic: str) -> None:
        if await self._have(topic, await self._members_share(topic)) and topic in self._subscriptions:
            self._subscribe(topic, self._subscriptions[topic].expression, self._subscriptions[topic].kind)
            await self._client.heartbeat()

    async def _have(self, topic: str, mine: set[MessageQueue]) -> bool:
        """Of this topic just these queues are ours; whether that was a change."""
        async with self._changing:
            own = {queue for queue in self._held if queue.topic == topic}
            unpulled = {queue for queue in own & mine if self._pulls[queue].done()}  # by an error: begun again
            gone = own - mine | unpulled
            await self._drop_all(gone)
            changed = bool(gone)
            for queue in sorted(mine - set(self._held) - set(self._leaving)):
                changed |= await self._take(queue)
        return changed

    async def _take(self, queue: MessageQueue) -> bool:
        """Begin with a queue; whether it is ours now."""
        if not await self._may_take(queue):
            return False
        self._offsets.forget(queue)
        self._begin_queue(queue, await self._start_of(queue))
        return True

    def _begin_queue(self, queue: MessageQueue, offset: int) -> None:
        held = ProcessQueue()
        self._held[queue] = held
        self._taken(queue, held)
        self._pulls[queue] = asyncio.get_running_loop().create_task(self._pull(queue, held, offset))

    async def _start_of(self, queue: MessageQueue) -> int:
        """Where to begin with a queue.

        A broker that has all of a queue since its first message gives a new group offset 0 (Apache's and ours): then
        the group has "committed" something, and begins there.
        """
        stored = await self._offsets.stored(queue)
        if stored is not None and stored >= 0:
            return stored
        match start_at(self._common.start, is_retry=queue.topic.startswith(RETRY_PREFIX)):
            case StartAt.FIRST:
                return 0
            case StartAt.END:
                return await self._calls.max_offset(queue)
            case StartAt.TIME:
                return await self._calls.offset_at(queue, self._common.start_ms)

    def _stop_queue(self, queue: MessageQueue) -> asyncio.Task[None]:
        """What is held of a queue counts no more, and nothing is pulled once the task is done."""
        self._held.pop(queue).dropped = True
        pull = self._pulls.pop(queue)
        pull.cancel()
        return pull

    async def _drop_all(self, queues: Collection[MessageQueue], at: Mapping[MessageQueue, int] | None = None) -> None:
        """Queues are no longer ours. Those that a handler still has are left beside what follows, and taken no sooner.

        `at`: where they are to be begun again, and not where we stood.
        """
        if queues:
            leaves = [self._drop(queue, None if at is None else at[queue]) for queue in queues]
            _, late = await asyncio.wait(leaves, timeout=_LEAVE_S)
            for leaving in late:
                leaving.add_done_callback(lambda _: self.rebalance_soon())

    def _drop(self, queue: MessageQueue, at: int | None = None) -> asyncio.Task[None]:
        """See `_drop_all`: the task that leaves the queue."""
        leaving = asyncio.get_running_loop().create_task(self._depart(queue, self._stop_queue(queue), at))
        self._leaving[queue] = leaving
        return leaving

    async def _depart(self, queue: MessageQueue, pull: asyncio.Task[None], at: int | None) -> None:
        try:
            (problem,) = await asyncio.gather(pull, return_exceptions=True)
            if isinstance(problem, Exception):
                self._client.log.warning("pulls of %s ended with %r", queue, problem)
            await self._leave(queue)
            if at is not None:
                self._offsets.update(queue, at, only_up=False)
            await self._offsets.persist([queue])
            self._offsets.forget(queue)
            await self._left(queue)
        finally:
            del self._leaving[queue]

    # --- pulls ------------------------------------------------------------------------------------------------------

    async def _pull(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        broker_id = MASTER
        empty = EmptyAnswers()
        problem = ""
        while not held.dropped:
            wanted = self._wanted_of(queue.topic)
            if wanted is None or self._is_full(queue, held):
                await asyncio.sleep(_FULL_S)
                continue
            asked_s = time.monotonic()
            try:
                result = await self._calls.pull(
                    self._wire_group,
                    queue,
                    offset,
                    self._pull_brings(wanted),
                    most=self._common.pull,
                    wait=True,
                    commit=self._pull_commits(queue),
                    broker_id=broker_id,
                )
                demand_packages(result.messages)
            except RefusedByBroker as error:
                await self._refused(queue, error)
                continue
            except RStoreError as error:
                if problem != str(error):  # once, however often it is tried
                    problem = str(error)
                    self._client.log.warning("a pull of %s failed: %s", queue, error)
                await asyncio.sleep(_FAILED_S)
                continue
            problem = ""
            held.pulled_ms = now_ms()
            pause_s = empty.pause_s(result, offset, time.monotonic() - asked_s)
            broker_id = result.broker_id
            offset = result.next_offset
            if result.status is PullStatus.OFFSET_ILLEGAL:
                self._client.log.warning("%s has no such offset: its pulls continue at %s", queue, offset)
                self._stands_at(queue, offset, only_up=False)
                await asyncio.sleep(pause_s)
                continue
            messages = [message for message in result.messages if wanted.wants(message)]
            if messages:
                held.add(messages)
                self._arrived(queue, held, messages)
            elif not len(held):
                self._stands_at(queue, offset, only_up=True)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _refused(self, queue: MessageQueue, error: RefusedByBroker) -> None:
        """Wait until the pull may be tried again."""
        if error.response == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_BUSY_S)
            return
        self._client.log.warning("a pull of %s failed: %s", queue, error)
        self._client.forget_route(queue.topic)
        if error.response in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
            try:
                await self._client.heartbeat()
            except RStoreError as problem:  # no name server: the next heartbeat says it
                self._client.log.warning("a heartbeat failed: %s", problem)
        await asyncio.sleep(_FAILED_S)
