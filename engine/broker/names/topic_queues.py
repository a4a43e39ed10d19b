"""The queues of a topic on all brokers that serve it, for clients of RocketMQ 5 that have the broker share them out.

They come from the name servers that this broker registers with; without any, from its own name service. What a name
server said holds for KEPT_MS, and longer where none answers. Source: TopicRouteInfoManager (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.routes import parse_route
from engine.errors import RStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.names.name_servers import NameServers
    from engine.broker.requests.later import Later
    from engine.client.queues import MessageQueue

KEPT_MS = 30_000
"""Source: BrokerConfig#loadBalancePollNameServerInterval."""
_Queues = tuple["MessageQueue", ...]


class TopicQueues:
    """See the module. For the loop's thread alone.

    Args:
        own: the route of a topic, as JSON, of our own name service; None: nobody serves it.
        later: a topic may have 65,536 queues on each broker: they are laid out beside the loop.

    Attributes:
        servers: those that are asked; None: our own name service is.
    """

    def __init__(self, own: Callable[[str], bytes | None], later: Later, now_ms: Callable[[], int]) -> None:
        self._own = own
        self._later = later
        self._now_ms = now_ms
        self._known: dict[str, tuple[int, _Queues]] = {}
        self.servers: NameServers | None = None

    async def of(self, topic: str) -> _Queues | None:
        """The queues that consumers read, sorted; None: nobody serves the topic, or no name server answers."""
        if self.servers is None:
            route = self._own(topic)
            return None if route is None else await self._read(topic, route)
        asked, queues = self._known.get(topic, (0, ()))
        if queues and self._now_ms() - asked < KEPT_MS:
            return queues
        try:
            route = await self.servers.route(topic)
        except RStoreError:
            return queues or None
        if route is None:
            self._known.pop(topic, None)
            return None
        queues = await self._read(topic, route)
        self._known[topic] = (self._now_ms(), queues)
        return queues

    async def _read(self, topic: str, route: bytes) -> _Queues:
        return await self._later.in_thread(lambda: parse_route(route, f"route of {topic}").read_queues(topic))
