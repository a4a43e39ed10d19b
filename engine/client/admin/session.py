"""An administrator's questions to brokers and name servers, each answer judged.

    async with ClusterClient(config) as client:
        admin = AdminSession(client)
        clusters = await admin.clusters()

Each question raises PeerLost, RefusedByBroker and FormatError. Source: DefaultMQAdminExtImpl, MQClientAPIImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from engine.client.admin.cluster_map import ClusterMap, parse_cluster_map
from engine.client.admin.known import demand_known
from engine.errors import FormatError, RefusedByBroker
from engine.format import fastjson
from engine.format.names import RETRY_PREFIX
from engine.wire import object_keys
from engine.wire.codes import RequestCode, ResponseCode

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
    ) -> dict[str, Any]:
        """The JSON object of an answer."""
        return json_of(await self.ask(address, code, ext, timeout_s=timeout_s), address)

    async def table(
        self, address: str, code: int, ext: Mapping[str, str], *, timeout_s: float = LONG_S
    ) -> tuple[list[tuple[dict[str, Any], Any]], dict[str, Any]]:
        """The `offsetTable` of an answer, whose keys are queues, and its other fields."""
        answer = await self.ask(address, code, ext, timeout_s=timeout_s)
        rows, rest = object_keys.split(text_of(answer), "offsetTable")
        return rows, _object(rest, address)

    async def ask_names(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        *,
        also: int | None = None,
        knows: Callable[[RemotingCommand], bool] = lambda _: True,
    ) -> RemotingCommand:
        """An answer of any name server. `knows`: as of NameService.ask."""
        answer = await self._client.names.ask(code, ext or {}, knows=knows)
        if answer.code not in (ResponseCode.SUCCESS, also):
            raise RefusedByBroker.of(answer.code, answer.remark, "the name server")
        return answer

    async def each(
        self, brokers: Iterable[BrokerAt], ask: Callable[[BrokerAt], Coroutine[None, None, Answer]]
    ) -> list[Answer]:
        """The same question to several brokers, at once; their answers in order. Raises what one raises."""
        return list(await asyncio.gather(*map(ask, brokers)))

    # --- what there is ----------------------------------------------------------------------------------------------

    async def clusters(self) -> ClusterMap:
        """All clusters that the name servers know; asked once a session."""
        if self._map is None:
            answer = await self.ask_names(RequestCode.GET_BROKER_CLUSTER_INFO, knows=_has("brokerAddrTable"))
            self._map = parse_cluster_map(json_of(answer, "the name server"))
        return self._map

    async def topics(self, cluster: str | None = None) -> tuple[str, ...]:
        """Names of all topics, or those of a cluster, sorted."""
        if cluster is None:
            answer = await self.ask_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, knows=_has("topicList"))
        else:
            (await self.clusters()).demand_cluster(cluster)
            answer = await self.ask_names(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        names = json_of(answer, "the name server").get("topicList") or ()
        return tuple(sorted(map(str, names)))

    async def groups(self) -> tuple[str, ...]:
        """Names of all consumer groups that a master has a configuration of, or that have a retry topic."""
        masters = (await self.clusters()).masters()
        tables = await self.each(masters, self.group_tables)
        retried = {topic.removeprefix(RETRY_PREFIX) for topic in await self.topics() if topic.startswith(RETRY_PREFIX)}
        return tuple(sorted(retried.union(*tables)))

    async def group_tables(self, broker: BrokerAt) -> dict[str, dict[str, Any]]:
        """The groups of one broker: configuration by name."""
        body = await self.json(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=LONG_S)
        return table_of(body, "subscriptionGroupTable", broker.address)

    async def topic_tables(self, broker: BrokerAt) -> dict[str, dict[str, Any]]:
        """The topics of one broker: configuration by name."""
        body = await self.json(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=LONG_S)
        return table_of(body, "topicConfigTable", broker.address)

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


def _has(name: str) -> Callable[[RemotingCommand], bool]:
    """Whether a name server's answer has anything under a name: one that was just started knows no broker yet."""
    return lambda answer: answer.code != ResponseCode.SUCCESS or bool(json_of(answer, "the name server").get(name))


def table_of(body: Mapping[str, Any], name: str, address: str) -> dict[str, dict[str, Any]]:
    """A table of objects in an answer. Raises FormatError."""
    table = body.get(name)
    if not isinstance(table, dict) or not all(isinstance(one, dict) for one in table.values()):
        raise FormatError(f"malformed answer of {address}: {name} is no table")
    return table


def text_of(answer: RemotingCommand) -> str:
    """The text of an answer's body."""
    return bytes(answer.body).decode("utf-8", "replace")


def json_of(answer: RemotingCommand, address: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises FormatError."""
    return _object(text_of(answer), address)


def _object(text: str, address: str) -> dict[str, Any]:
    try:
        body = fastjson.loads(text)
    except FormatError as error:
        raise FormatError(f"malformed answer of {address}: {error.message}") from None
    if not isinstance(body, dict):
        raise FormatError(f"malformed answer of {address}: no JSON object")
    return body
