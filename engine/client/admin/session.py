"""An administrator's questions to brokers and name servers, each answer judged.

    async with ClusterClient(config) as client:
        admin = AdminSession(client)
        clusters = await admin.clusters()

Each question raises PeerLost, RefusedByBroker and FormatError. Source: DefaultMQAdminExtImpl, MQClientAPIImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from engine.client.admin.cluster_map import ClusterMap, parse_cluster_map
from engine.client.admin.known import demand_known
from engine.errors import FormatError, RefusedByBroker
from engine.format.names import RETRY_PREFIX
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.peer_object import PeerObject

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import TypeVar

    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.client import ClusterClient
    from engine.client.routes import TopicRoute
    from engine.wire.command import RemotingCommand

    Answer = TypeVar("Answer")

TIMEOUT_S = 5.0
"""How long an answer is waited for. Source: DefaultMQAdminExt#timeoutMillis."""
LONG_S = 15.0
"""Of what a broker collects or asks a consumer for."""


class AdminSession:
    """See the module. For the client's loop.

    Attributes:
        name_servers: `host:port` each.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.name_servers = client.config.name_servers
        self._map: ClusterMap | None = None

    async def ask(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float = TIMEOUT_S,
        also: int | Collection[int] | None = None,
    ) -> RemotingCommand:
        """An answer of `host:port`. `also`: the code or codes besides SUCCESS that are no refusal."""
        answer = await self._client.peers.ask(address, code, ext or {}, body, timeout_s=timeout_s)
        others = (also,) if isinstance(also, int) else also or ()
        if answer.code != ResponseCode.SUCCESS and answer.code not in others:
            raise RefusedByBroker.of(answer.code, answer.remark, address)
        return answer

    async def json(
        self, address: str, code: int, ext: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> PeerObject:
        """The JSON object of an answer."""
        return json_of(await self.ask(address, code, ext, timeout_s=timeout_s), address, code)

    async def table(
        self, address: str, code: int, ext: Mapping[str, str], *, timeout_s: float = LONG_S
    ) -> tuple[list[tuple[PeerObject, PeerObject]], PeerObject]:
        """The `offsetTable` of an answer, whose keys are queues, and its other fields."""
        answer = await self.ask(address, code, ext, timeout_s=timeout_s)
        return PeerObject.parse_table(answer.body, "offsetTable", answer_of(address, code))

    async def ask_names(self, code: int, ext: Mapping[str, str] | None = None, *, known_by: str = "") -> PeerObject:
        """The JSON object that any name server answers. `known_by`: what one that knows brokers has something under."""
        answer, address = await self._client.names.ask(code, ext or {}, knows=_has(known_by, code))
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedByBroker.of(answer.code, answer.remark, address)
        return json_of(answer, address, code)

    async def each(
        self, brokers: Iterable[BrokerAt], ask: Callable[[BrokerAt], Coroutine[None, None, Answer]]
    ) -> list[Answer]:
        """The same question to several brokers, at once; their answers in order. Raises what one raises."""
        return list(await asyncio.gather(*map(ask, brokers)))

    # --- what there is ----------------------------------------------------------------------------------------------

    async def clusters(self) -> ClusterMap:
        """All clusters that the name servers know; asked once a session."""
        if self._map is None:
            body = await self.ask_names(RequestCode.GET_BROKER_CLUSTER_INFO, known_by="brokerAddrTable")
            self._map = parse_cluster_map(body)
        return self._map

    async def topics(self, cluster: str | None = None) -> tuple[str, ...]:
        """Names of all topics, or those of a cluster, sorted."""
        if cluster is None:
            body = await self.ask_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, known_by="topicList")
        else:
            (await self.clusters()).demand_cluster(cluster)
            body = await self.ask_names(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        return tuple(sorted(body.texts("topicList")))

    async def groups(self) -> tuple[str, ...]:
        """Names of all consumer groups that a master has a configuration of, or that have a retry topic."""
        masters = (await self.clusters()).masters()
        tables = await self.each(masters, self.group_tables)
        retried = {topic.removeprefix(RETRY_PREFIX) for topic in await self.topics() if topic.startswith(RETRY_PREFIX)}
        return tuple(sorted(retried.union(*tables)))

    async def group_tables(self, broker: BrokerAt) -> dict[str, PeerObject]:
        """The groups of one broker: configuration by name."""
        body = await self.json(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=LONG_S)
        return body.table("subscriptionGroupTable")

    async def topic_tables(self, broker: BrokerAt) -> dict[str, PeerObject]:
        """The topics of one broker: configuration by name."""
        body = await self.json(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=LONG_S)
        return body.table("topicConfigTable")

    async def demand_topic(self, topic: str) -> TopicRoute:
        """The route of a topic. Raises InvalidArgument: no broker serves it; it names the nearest ones."""
        demand_known("topic", topic, await self.topics())
        return await self._client.names.route(topic)

    async def demand_group(self, group: str) -> None:
        """Raises InvalidArgument: no broker knows the group; it names the nearest ones."""
        demand_known("group", group, await self.groups())

    async def masters_of(self, route: TopicRoute) -> tuple[BrokerAt, ...]:
        """The masters that serve a topic."""
        return tuple(one for one in (await self.clusters()).masters() if one.name in route.brokers)


def _has(name: str, code: int) -> Callable[[RemotingCommand], bool]:
    """Whether a name server's answer has anything under a name: one that was just started knows no broker yet."""

    def knows(answer: RemotingCommand) -> bool:
        if not name or answer.code != ResponseCode.SUCCESS:
            return True
        try:
            return json_of(answer, "", code).has(name)
        except FormatError:  # it is judged as the answer that it is
            return True

    return knows


def answer_of(address: str, code: int) -> str:
    """How errors name an answer."""
    return f"answer of {address} to {RequestCode(code).name}"


def json_of(answer: RemotingCommand, address: str, code: int) -> PeerObject:
    """The JSON object of an answer. `code`: of the request. Raises FormatError."""
    return PeerObject.parse(answer.body, answer_of(address, code))
