"""What a copy asks and tells clusters beyond what their clients do: brokers, topics.

Source: MQClientAPIImpl#createTopic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.client.admin.session import AdminSession
from engine.client.admin.topics import topic_fields
from engine.client.routes import PERM_READ, PERM_WRITE
from engine.copying.marker import BrokerPlace
from engine.errors import NoRoute, PeerLost
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from engine.format.quantities import counted
from engine.format.topic_rules import is_brokers_own
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.client.admin.cluster_map import ClusterMap
    from engine.client.client import ClusterClient
    from engine.client.routes import TopicRoute

_KNOWN_S = 30.0
"""How long is waited until the name servers know of a new topic."""
_LOOK_S = 0.1


async def brokers_of(client: ClusterClient) -> ClusterMap:
    """The brokers that are registered. Raises PeerLost, RefusedByBroker, FormatError."""
    return await AdminSession(client).clusters()


def places_of(brokers: ClusterMap) -> dict[str, BrokerPlace]:
    """The masters among them, by the name of their broker. Raises NoRoute: there is none."""
    return {one.name: BrokerPlace(one.cluster, one.name, one.address) for one in brokers.masters()}


async def topics_of(client: ClusterClient) -> tuple[str, ...]:
    """All topics that the name servers know, sorted. Raises PeerLost, RefusedByBroker, FormatError."""
    return await AdminSession(client).topics()


def why_left_out(topic: str, own: Collection[str]) -> str | None:
    """Why a topic is not copied; None: it is. `own`: names of the source's clusters and brokers."""
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return "messages that a group failed to consume stay where they are"
    if topic in own or is_brokers_own(topic) or is_system_topic(topic):
        return "a topic of the brokers themselves"
    if topic.removesuffix("_REPLY_TOPIC") in own:
        return "a topic of the brokers themselves"
    return None


async def make_topic(client: ClusterClient, address: str, topic: str, queues: int, perm: int, *, ordered: bool) -> None:
    """Have a broker make a topic, or give it another number of queues. Raises PeerLost, RefusedByBroker."""
    wanted = {
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": perm | PERM_READ | PERM_WRITE,
        "order": ordered,
    }
    await AdminSession(client).ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, wanted))


async def until_known(client: ClusterClient, topic: str, queues: int) -> TopicRoute:
    """The route of a topic once it has so many queues to write to. Raises PeerLost: it does not in time."""
    try:
        async with asyncio.timeout(_KNOWN_S):
            while True:
                client.forget_route(topic)
                try:
                    route = await client.route(topic)
                except NoRoute:
                    route = None
                if route is not None and len(route.write_queues(topic)) >= queues:
                    return route
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise PeerLost(
            f"the name servers don't know {counted(queues, 'queue')} of topic {topic} within {_KNOWN_S:g} s"
        ) from None
