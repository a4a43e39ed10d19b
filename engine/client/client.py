"""One client of a cluster: its connections, the routes that it knows, its heartbeats. Producers and consumers share it.

    async with ClusterClient(ClientConfig(("127.0.0.1:9876",))) as client:
        producer = client.producer("orders")
        await producer.send(OutgoingMessage("T", b"hello"))

Routes are asked for again each 30 s, heartbeats are sent each 30 s, and at once to a broker that has become known. For
one loop. Source: MQClientInstance, ClientConfig, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from engine.client import namespaces
from engine.client.asked import BrokerRequests
from engine.client.clock import now_ms
from engine.client.heartbeats import heartbeat_body
from engine.client.name_service import NameService
from engine.client.peers import Credentials, Peers
from engine.client.replies import Replies
from engine.client.routes import MASTER, TopicRoute
from engine.client.unique_id import UniqueIds
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NoRoute, RefusedByBroker, RStoreError
from engine.format.topic_rules import TBW102
from engine.wire.address import parse_address
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from engine.client.consumer_settings import ConsumerSettings, GroupSettings, Handler, LitePullSettings
    from engine.client.group_member import GroupMember
    from engine.client.lite_pull_consumer import LitePullConsumer
    from engine.client.producer import Check, Producer, ProducerSettings
    from engine.client.pull_consumer import PullConsumer
    from engine.client.push_consumer import PushConsumer
    from engine.client.trace_writer import TraceWriter

_FAREWELL_S = 1.0
"""For all brokers together, when a group is left."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach a cluster. Times in s.

    Attributes:
        name_servers: `host:port` each.
        namespace: of all topics and groups; "": none.
        account: for brokers with an ACL.
        tls: None: plain text.
        instance: tells clients of one machine apart; None: made of process and time.
    """

    name_servers: tuple[str, ...]
    namespace: str = ""
    account: Credentials | None = None
    tls: ssl.SSLContext | None = None
    instance: str | None = None
    route_period_s: float = 30.0
    heartbeat_period_s: float = 30.0


class ClusterClient:
    """See the module. An async context manager.

    Attributes:
        id: what brokers know it as, once it has started.
        peers, names: its connections, its name servers.
        replies: what producers wait for.
    """

    def __init__(self, config: ClientConfig, log: logging.Logger | None = None) -> None:
        self.config = config
        self.log = log or logging.getLogger("rstore.client")
        self.replies = Replies()
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, GroupMember] = {}
        self._tracers: dict[tuple[str, str], TraceWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = BrokerRequests(self._producers, self._consumers, self.replies, config, self.background, self.log)
        self.peers = Peers(self._asked.take, tls=config.tls, account=config.account)
        for address in config.name_servers:
            parse_address(address)
        self.names = NameService(self.peers, config.name_servers)
        self.id = ""
        self._ids: UniqueIds | None = None
        self._routes: dict[str, TopicRoute] = {}
        self._template: TopicRoute | None = None
        self._greeted: set[str] = set()

    async def __aenter__(self) -> ClusterClient:
        """Start. Raises PeerLost: no name server is there."""
        try:
            ip = await self.names.local_ip()
        except BaseException:
            await self.peers.close()
            raise
        instance = self.config.instance or f"{os.getpid()}#{time.monotonic_ns()}"
        self.id = f"{ip}@{instance}"
        self._ids = UniqueIds(_packed(ip), os.getpid(), id(self), now_ms)
        self.background(self._repeat(self.config.route_period_s, self._refresh))
        self.background(self._repeat(self.config.heartbeat_period_s, self.heartbeat))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(tracer.close() for tracer in self._tracers.values()))
        await asyncio.gather(*(self._unregister("producerGroup", group) for group in self._producers))
        await self.peers.close()

    def producer(self, group: str, settings: ProducerSettings | None = None, *, check: Check | None = None) -> Producer:
        """A producer of this client. `check`: see Producer; that of a group's newest producer answers brokers.

        Raises:
            InvalidArgument: no name of a group.
        """
        from engine.client.producer import Producer, ProducerSettings

        made = Producer(self, group, settings or ProducerSettings(), check)
        self._producers[group] = made
        return made

    def push_consumer(self, group: str, handler: Handler, settings: ConsumerSettings | None = None) -> PushConsumer:
        """A consumer of this client, to be started by `async with`; one a group.

        Raises:
            InvalidArgument: no name of a group, or the client has a consumer of it already.
        """
        from engine.client.consumer_settings import ConsumerSettings
        from engine.client.push_consumer import PushConsumer

        self._demand_new(group)
        return PushConsumer(self, group, handler, settings or ConsumerSettings())

    def lite_pull_consumer(self, group: str, settings: LitePullSettings | None = None) -> LitePullConsumer:
        """A consumer that is polled. As `push_consumer`."""
        from engine.client.consumer_settings import LitePullSettings
        from engine.client.lite_pull_consumer import LitePullConsumer

        self._demand_new(group)
        return LitePullConsumer(self, group, settings or LitePullSettings())

    def pull_consumer(self, group: str, settings: GroupSettings | None = None) -> PullConsumer:
        """A consumer that pulls what it is told to. As `push_consumer`."""
        from engine.client.consumer_settings import GroupSettings
        from engine.client.pull_consumer import PullConsumer

        self._demand_new(group)
        return PullConsumer(self, group, settings or GroupSettings())

    def _demand_new(self, group: str) -> None:
        if group in self._consumers:
            raise InvalidArgument(f"this client has a consumer of group {group} already")

    def tracer(self, group: str, role: str) -> TraceWriter:
        """What writes the traces of a group. `role`: see TraceWriter."""
        from engine.client.trace_writer import TraceWriter

        if (group, role) not in self._tracers:
            self._tracers[group, role] = TraceWriter(self, group, role)
        return self._tracers[group, role]

    def add_consumer(self, consumer: GroupMember) -> None:
        """It has started: heartbeats tell of it."""
        self._consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: GroupMember) -> None:
        """It has ended: brokers are told at once, so that others take its queues."""
        del self._consumers[consumer.group]
        await self._unregister("consumerGroup", consumer.group)

    def wire_name(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return namespaces.wrapped(self.config.namespace, name)

    def new_id(self) -> str:
        """An id for a message. After the start."""
        assert self._ids is not None
        return self._ids.next()

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Have something done beside; it ends with the client."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- routes -----------------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, create: int = 0) -> TopicRoute:
        """Where the queues of a topic (on the wire) are: as known, or as a name server says now.

        Args:
            create: for a topic that no broker serves: queues on each broker that would make it by itself. 0: never.

        Raises:
            NoRoute, PeerLost, RefusedByBroker, FormatError.
        """
        known = self._routes.get(topic)
        if known is not None:
            return known
        try:
            route = await self.names.route(topic)
        except NoRoute:
            if not create:
                raise
            route = await self._route_of_a_new_topic(topic, create)
        else:
            self._routes[topic] = route
        await self._greet(route)
        return route

    async def _route_of_a_new_topic(self, topic: str, queues: int) -> TopicRoute:
        try:
            self._template = await self.names.route(TBW102)
            return self._template.for_a_new_topic(queues)
        except NoRoute:
            raise NoRoute(
                f"no broker serves topic {topic}, and none makes topics by itself", hint="create the topic first"
            ) from None

    def forget_route(self, topic: str) -> None:
        """A send was told that the route is not so: the next one asks again."""
        self._routes.pop(topic, None)

    async def _refresh(self) -> None:
        for topic in list(self._routes):
            before = self._routes.get(topic)
            try:
                self._routes[topic] = await self.names.route(topic)
            except NoRoute:
                self._routes.pop(topic, None)
            if self._routes.get(topic) != before:
                self._wake_consumers()
            await self._greet(self._routes.get(topic))

    # --- heartbeats -------------------------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Say to all brokers that are known who we are."""
        topics = {topic for consumer in self._consumers.values() for topic in consumer.topics}
        for topic in topics:  # meanwhile consumers come and go
            with contextlib.suppress(NoRoute):
                await self.route(topic)
        routes = [*self._routes.values(), *filter(None, (self._template,))]
        self._greeted = set().union(*map(self._to_greet, routes))
        await asyncio.gather(*map(self._greet_one, self._greeted))

    def _to_greet(self, route: TopicRoute) -> set[str]:
        """Addresses of brokers that need to know us: producers matter to masters alone."""
        ids = [addresses.items() for addresses in route.brokers.values()]
        return {at for pairs in ids for number, at in pairs if number == MASTER or self._consumers}

    async def _greet(self, route: TopicRoute | None) -> None:
        """Say who we are to brokers that don't know it."""
        if route is None or not (self._producers or self._consumers):
            return
        new = self._to_greet(route) - self._greeted
        self._greeted |= new
        await asyncio.gather(*map(self._greet_one, new))

    async def _greet_one(self, address: str) -> None:
        producers = map(self.wire_name, self._producers)
        body = heartbeat_body(self.id, producers, (consumer.heartbeat() for consumer in self._consumers.values()))
        try:
            answer = await self.peers.ask(address, RequestCode.HEART_BEAT, {}, body)
            if answer.code != ResponseCode.SUCCESS:
                raise RefusedByBroker.of(answer.code, answer.remark, address)
        except RStoreError as error:
            self._greeted.discard(address)
            self.log.warning("a heartbeat failed: %s", error)

    async def _unregister(self, kind: str, group: str) -> None:
        ext = {"clientID": self.id, kind: self.wire_name(group)}
        asked = [self.peers.ask(address, RequestCode.UNREGISTER_CLIENT, ext) for address in self._greeted]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):  # for all of them: a broker that does not hear it forgets us, too
                await asyncio.gather(*asked, return_exceptions=True)

    def _wake_consumers(self) -> None:
        for consumer in self._consumers.values():
            consumer.rebalance_soon()

    async def _repeat(self, period_s: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await work()
            except RStoreError as error:
                self.log.warning("%s", error)
            except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end heartbeats or refreshes for good
                self.log.warning("%s failed: %r", work.__name__.strip("_"), error)


def _packed(ip: str) -> bytes:
    """4 or 16 bytes of an address."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0])
