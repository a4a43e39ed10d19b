"""The embedded name service: routes, brokers that register, key-value pairs (BROKER.md 1.3; DefaultRequestProcessor).

This process's own broker is in the table like any other, only that nobody has to register it: it is taken over whenever
its topics have changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.admin_topics import when_kept
from engine.broker.names import registration
from engine.broker.names.route_table import Registration, with_permission
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.kv import ORDER_TOPICS
from engine.broker.tables.topics import FAQ, UNIT, UNIT_SUB
from engine.errors import FormatError
from engine.format.hashing import body_crc
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.ha.role import Role
    from engine.broker.names.route_table import RouteTable
    from engine.broker.net.connection import Connection
    from engine.broker.requests.handler import Handler
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.kv import KvConfig
    from engine.broker.tables.topics import TopicConfig, TopicTable
    from engine.errors import RStoreError
    from engine.wire.command import RemotingCommand


class RouteHandler:
    """See the module."""

    def __init__(
        self,
        *,
        names: RouteTable,
        topics: TopicTable,
        kv: KvConfig,
        role: Role,
        settings: CurrentSettings,
        later: Later,
        address: str,
    ) -> None:
        self._names = names
        self._topics = topics
        self._kv = kv
        self._role = role
        self._settings = settings
        self._address = address
        self._later = later
        self._registering = asyncio.Lock()
        self._own: tuple[int, int, int] | None = None
        self._known: dict[str, TopicConfig] = {}

    def with_own(self, handler: Handler) -> Handler:
        """A handler that finds our own broker in the table as it is now."""

        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            self._take_own()
            return handler(connection, request)

        return handle

    def _take_own(self) -> None:
        settings = self._settings.now
        version = self._topics.version
        now = (version.timestamp, version.counter, settings.permission)
        if now == self._own:
            return
        self._own = now
        topics = with_permission(self._topics.topics.values(), settings.permission)
        known, self._known = self._known, topics
        changed = {name: topic for name, topic in topics.items() if known.get(name) is not topic}
        own = Registration(
            settings.cluster_name, settings.broker_name, settings.broker_id, self._address, self._role.address,
            DataVersion(version.timestamp, version.counter), changed,
            gone=tuple(known.keys() - topics.keys()),
        )  # fmt: skip
        self._names.register(own)

    def queues_of(self, topic: str) -> bytes | None:
        """The route of a topic, as JSON; None: nobody serves it."""
        self._take_own()
        route = self._names.route(topic)
        return None if route is None else orjson.dumps(route)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def register(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """REGISTER_BROKER."""
        ext = request.fields
        _, name, broker_id, address = _broker_of(request)
        wanted_crc = fields.number(ext, "bodyCrc32", 0)
        if wanted_crc and wanted_crc != body_crc(request.body):
            return request.answer(ResponseCode.SYSTEM_ERROR, "crc32 not match", {})
        if self._names.owns(name, broker_id, address):
            why = f"broker {name} with id {broker_id}, or the address {address}, is this name server's own"
            return request.answer(ResponseCode.SYSTEM_ERROR, why, {})
        self._later.answer(connection, request, self._register(connection, request))
        return None

    async def _register(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The body is read beside the loop, and its topics are taken over in turns; one registration at a time."""
        ext = request.fields
        cluster, name, broker_id, address = _broker_of(request)
        compressed, most = fields.flag(ext, "compressed"), self._settings.now.topics_per_registration

        def decode() -> registration.Body:
            return registration.decode(request.body, compressed=compressed, sender_version=request.version, most=most)

        async with self._registering:
            try:
                version, topics, filters = await self._later.in_thread(decode) if len(request.body) else decode()
            except FormatError as error:
                raise Answer(ResponseCode.SYSTEM_ERROR, error.message, {}) from None
            if not connection.is_open or self._names.owns(name, broker_id, address):
                return request.answer(ResponseCode.SYSTEM_ERROR, f"broker {name} is gone", {})
            entry = Registration(
                cluster, name, broker_id, address, ext.get("haServerAddr", ""), version, topics, filters, connection
            )
            async for _ in self._later.turns.walk(self._names.steps(entry), request.code):
                pass
            master = self._names.master_of(entry)
        answer = {} if master is None else {"haServerAddr": master[0], "masterAddr": master[1]}
        order = self._kv.space(ORDER_TOPICS)
        return request.answer(ext=answer, body=b"" if order is None else orjson.dumps({"table": order}))

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_BROKER."""
        del connection
        _, name, broker_id, address = _broker_of(request)
        if self._names.owns(name, broker_id, address):
            why = f"broker {name} is this name server's own: it is unregistered when the process ends"
            return request.answer(ResponseCode.SYSTEM_ERROR, why)
        self._names.unregister(name, broker_id, address)
        return request.answer()

    def data_version(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_DATA_VERSION."""
        del connection
        address = fields.text(request.fields, "brokerAddr")
        request_body = body_of(request)
        try:
            asked = DataVersion(int(request_body.get("timestamp") or 0), int(request_body.get("counter") or 0))
        except (TypeError, ValueError):
            raise Answer(ResponseCode.SYSTEM_ERROR, "malformed data version") from None
        known = self._names.data_version(address)
        if known == asked:
            self._names.touch(address)
        body = b"" if known is None else orjson.dumps(known.to_json())
        return request.answer(ext={"changed": "false" if known == asked else "true"}, body=body)

    def wipe_write_perm(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER."""
        del connection
        count = self._set_writable(request, writable=False)
        return request.answer(ext={"wipeTopicCount": str(count)})

    def add_write_perm(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER."""
        del connection
        count = self._set_writable(request, writable=True)
        return request.answer(ext={"addTopicCount": str(count)})

    def _set_writable(self, request: RemotingCommand, *, writable: bool) -> int:
        self._known = {}  # our own topics are as they were again with their next version
        return self._names.set_writable(fields.text(request.fields, "brokerName"), writable=writable)

    def cluster(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO."""
        del connection
        return request.answer(body=orjson.dumps(self._names.cluster_info()))

    # --- topics -----------------------------------------------------------------------------------------------------

    def route(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
        del connection
        name = fields.text(request.fields, "topic")
        route = self._names.route(name)
        if route is None:
            remark = f"No topic route info in name server for the topic: {name}{FAQ}"
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, remark)
        order = self._kv.get(ORDER_TOPICS, name) if self._settings.now.order_message_enable else None
        if order is not None:
            route["orderTopicConf"] = order
        return request.answer(body=orjson.dumps(route))

    def topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        del connection
        return _topic_list(request, self._names.topics())

    def topics_of_cluster(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER."""
        del connection
        return _topic_list(request, self._names.topics_of(fields.text(request.fields, "cluster")))

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        del connection
        return request.answer(body=orjson.dumps(self._names.system_topics()))

    def unit_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST, GET_HAS_UNIT_SUB_TOPIC_LIST, GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        del connection
        wanted: dict[int, Callable[[int], bool]] = {
            RequestCode.GET_UNIT_TOPIC_LIST: lambda flag: bool(flag & UNIT),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda flag: bool(flag & UNIT_SUB),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda flag: flag & (UNIT | UNIT_SUB) == UNIT_SUB,
        }
        return _topic_list(request, self._names.unit_topics(wanted[request.code]))

    def delete_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV."""
        del connection
        self._known = {}
        self._names.delete_topic(fields.text(request.fields, "topic"), request.fields.get("clusterName"))
        return request.answer()

    # --- key-value pairs --------------------------------------------------------------------------------------------

    def put_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """PUT_KV_CONFIG."""
        ext = request.fields
        if "namespace" not in ext or "key" not in ext:
            return request.answer(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        space = ext["namespace"]
        self._kv.put(space, ext["key"], fields.text(ext, "value"), self._when_changed(space, connection, request))
        return None

    def get_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG."""
        del connection
        space, key = fields.text(request.fields, "namespace"), fields.text(request.fields, "key")
        text = self._kv.get(space, key)
        if text is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space} Key: {key}", {})
        return request.answer(ext={"value": text})

    def delete_kv(self, connection: Connection, request: RemotingCommand) -> None:
        """DELETE_KV_CONFIG."""
        space, key = fields.text(request.fields, "namespace"), fields.text(request.fields, "key")
        self._kv.delete(space, key, self._when_changed(space, connection, request))

    def kv_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE."""
        del connection
        space = fields.text(request.fields, "namespace")
        table = self._kv.space(space)
        if table is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space}")
        return request.answer(body=orjson.dumps({"table": table}))

    def _when_changed(
        self, space: str, connection: Connection, request: RemotingCommand
    ) -> Callable[[RStoreError | None], None]:
        """Our own broker learns of ordered topics at once, others with their next registration."""

        def changed() -> RemotingCommand:
            if space == ORDER_TOPICS:
                self._topics.set_ordered(self._kv.space(space) or {})
            return request.answer()

        return when_kept(connection, request, changed)


def _broker_of(request: RemotingCommand) -> tuple[str, str, int, str]:
    """Cluster, name, id and address of the broker that a request is about. Raises Answer."""
    ext = request.fields
    return (
        fields.text(ext, "clusterName"),
        fields.text(ext, "brokerName"),
        fields.long(ext, "brokerId"),
        fields.text(ext, "brokerAddr"),
    )


def _topic_list(request: RemotingCommand, topics: list[str]) -> RemotingCommand:
    body: dict[str, Any] = {"topicList": topics}
    return request.answer(body=orjson.dumps(body))
