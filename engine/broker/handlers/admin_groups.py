"""Subscription groups, and who is connected (BROKER.md 1.4; AdminBrokerProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.admin_topics import demand_master, when_kept
from engine.broker.requests import bodies, fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.groups import NEWER, GroupConfig
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.members import Client, Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.watch.stats import Stats
    from engine.wire.command import RemotingCommand


class GroupAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        members: Members,
        stats: Stats,
        role: Role,
        later: Later,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._role = role
        self._later = later

    def put(self, connection: Connection, request: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        demand_master(self._role)
        entry = body_of(request)
        if entry.get("groupName") is None:
            raise Answer(ResponseCode.SYSTEM_ERROR, "the group has no name")
        group = GroupConfig.of_json(str(entry["groupName"]), entry)
        self._groups.put(group, when_kept(connection, request, request.answer))

    def delete(self, connection: Connection, request: RemotingCommand) -> None:
        """DELETE_SUBSCRIPTIONGROUP."""
        demand_master(self._role)
        name = fields.text(request.fields, "groupName")

        def deleted() -> RemotingCommand:
            if fields.flag(request.fields, "removeOffset"):
                self._offsets.forget(name)
            self._stats.forget_group(name)
            return request.answer()

        self._groups.delete(name, when_kept(connection, request, deleted))

    def all(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        version, groups = self._groups.version.to_json(), list(self._groups.groups.items())

        async def collect() -> RemotingCommand:
            table = await self._later.object_of(((name, group.to_json()) for name, group in groups), request)
            body = bodies.with_raw({"dataVersion": version}, "subscriptionGroupTable", table)
            return request.answer(body=body)

        self._later.answer(connection, request, collect())

    def one(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG of RocketMQ 5."""
        del connection
        group = self._groups.find(fields.text(request.fields, "group"))
        if group is None:
            return request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.answer(body=orjson.dumps({**NEWER, **group.to_json()}))

    def consumers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST."""
        del connection
        name = fields.text(request.fields, "consumerGroup")
        group = self._members.consumers.get(name)
        if group is None:
            return request.answer(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = {
            "connectionSet": _connections(group.members),
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {topic: orjson.Fragment(one.entry) for topic, one in group.subscriptions.items()},
        }
        return request.answer(body=orjson.dumps({name: value for name, value in body.items() if value is not None}))

    def producers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST."""
        del connection
        name = fields.text(request.fields, "producerGroup")
        members = self._members.producers.get(name)
        if not members:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.answer(body=orjson.dumps({"connectionSet": _connections(members)}))

    def all_producers(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_ALL_PRODUCER_INFO."""
        groups = list(self._members.producers.items())

        async def collect() -> RemotingCommand:
            table = await self._later.object_of(((group, _producers(members)) for group, members in groups), request)
            return request.answer(body=bodies.with_raw({}, "data", table))

        self._later.answer(connection, request, collect())


def _producers(members: Mapping[Connection, Client]) -> list[dict[str, Any]]:
    return [
        {
            "clientId": client.client_id,
            "language": client.language,
            "lastUpdateTimestamp": client.seen_ms,
            "remoteIP": f"/{member.address}",
            "version": client.version,
        }
        for member, client in members.items()
    ]


def _connections(members: Mapping[Connection, Client]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": member.address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for member, client in members.items()
    ]
