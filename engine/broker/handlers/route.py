"""The embedded name service: routes, the cluster, key-value pairs (remoting.md 2.4; DefaultRequestProcessor).

It knows one broker: this one. Topics are looked up in the broker's own table, so a topic has a route as soon as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker import fields
from engine.broker.topics import FAQ, TopicConfig
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from engine.broker.broker import Broker
    from engine.broker.connection import Connection
    from engine.wire.command import RemotingCommand


class RouteHandler:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def route(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
        del connection
        name = fields.text(request.fields, "topic")
        topic = self._broker.topics.find(name)
        if topic is None:
            remark = f"No topic route info in name server for the topic: {name}{FAQ}"
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, remark)
        return request.answer(body=orjson.dumps(self._route_of(topic)))

    def cluster(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO."""
        del connection
        settings = self._broker.settings
        said = {
            "brokerAddrTable": {settings.broker_name: self._broker_data()},
            "clusterAddrTable": {settings.cluster_name: [settings.broker_name]},
        }
        return request.answer(body=orjson.dumps(said))

    def topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER, GET_TOPICS_BY_CLUSTER."""
        del connection
        every = request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        wanted = every or request.fields.get("cluster") == self._broker.settings.cluster_name
        known = list(self._broker.topics.topics) if wanted else []
        return request.answer(body=orjson.dumps({"topicList": known}))

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        del connection
        settings = self._broker.settings
        said = {"brokerAddr": self._broker.address, "topicList": [settings.cluster_name, settings.broker_name]}
        return request.answer(body=orjson.dumps(said))

    def put_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG."""
        del connection
        ext = request.fields
        if "namespace" not in ext or "key" not in ext:
            return request.answer(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._broker.kv.setdefault(ext["namespace"], {})[ext["key"]] = fields.text(ext, "value")
        return request.answer()

    def get_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG."""
        del connection
        space, key = fields.text(request.fields, "namespace"), fields.text(request.fields, "key")
        found = self._broker.kv.get(space, {}).get(key)
        if found is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space} Key: {key}", {})
        return request.answer(ext={"value": found})

    def delete_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG."""
        del connection
        space, key = fields.text(request.fields, "namespace"), fields.text(request.fields, "key")
        self._broker.kv.get(space, {}).pop(key, None)
        return request.answer()

    def kv_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE."""
        del connection
        space = fields.text(request.fields, "namespace")
        found = self._broker.kv.get(space)
        if found is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space}")
        return request.answer(body=orjson.dumps({"table": found}))

    def delete_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV: the broker's table is the only one, so there is nothing more to forget."""
        del connection
        return request.answer()

    def _route_of(self, topic: TopicConfig) -> dict[str, Any]:
        return {
            "brokerDatas": [self._broker_data()],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": self._broker.settings.broker_name,
                    "perm": topic.perm,
                    "readQueueNums": topic.read_queues,
                    "topicSysFlag": topic.sys_flag,
                    "writeQueueNums": topic.write_queues,
                }
            ],
        }

    def _broker_data(self) -> dict[str, Any]:
        settings = self._broker.settings
        return {
            "brokerAddrs": {str(settings.broker_id): self._broker.address},
            "brokerName": settings.broker_name,
            "cluster": settings.cluster_name,
        }
