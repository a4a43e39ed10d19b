"""Topics: made, deleted, listed, looked at (BROKER.md 1.4; AdminBrokerProcessor)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import bodies, fields
from engine.broker.requests.answers import Answer, BadField, code_of
from engine.broker.tables.topic_attributes import altered
from engine.broker.tables.topics import FILTER_TYPES, TopicConfig
from engine.format.topic_rules import invalid_topic
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.broker.watch.stats import Stats
    from engine.errors import RStoreError
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

NOT_SET = "not set any response code"
"""The remark of an answer that Apache forgets to clear (REMOTING.md 1.1)."""


class TopicAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        members: Members,
        stats: Stats,
        settings: CurrentSettings,
        later: Later,
        role: Role,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._settings = settings
        self._later = later
        self._role = role

    def put(self, connection: Connection, request: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC."""
        demand_master(self._role)
        ext = request.fields
        name = self._name(request)
        kind = ext.get("topicFilterType")
        if kind not in FILTER_TYPES:
            raise BadField(f"topicFilterType = [{kind}] value invalid")
        known = self._topics.find(name)
        old = known or TopicConfig(name)
        attributes = altered(dict(old.attributes), ext.get("attributes", ""), created=known is None)
        self._topics.put(
            replace(
                old,
                read_queues=fields.number(ext, "readQueueNums"),
                write_queues=fields.number(ext, "writeQueueNums"),
                perm=fields.number(ext, "perm"),
                filter_type=kind,
                sys_flag=fields.number(ext, "topicSysFlag", 0),
                attributes=tuple(attributes.items()),
            ),
            when_kept(connection, request, lambda: request.answer(remark=NOT_SET)),
        )

    def delete(self, connection: Connection, request: RemotingCommand) -> None:
        """DELETE_TOPIC_IN_BROKER: its configuration, and the queues of all topics that have none.

        Its messages stay in the log until that expires; nobody finds them any more.
        """
        demand_master(self._role)

        def deleted(failure: RStoreError | None) -> None:
            if failure is None:
                self.clean_unused(connection, request)
            else:
                connection.answer(request, request.answer(code_of(failure), str(failure)))

        self._topics.delete(self._name(request), deleted)

    def clean_unused(self, connection: Connection, request: RemotingCommand) -> None:
        """CLEAN_UNUSED_TOPIC: the queues of topics that have no configuration."""
        kept = {*self._topics.topics, *self._topics.system}

        async def clean() -> RemotingCommand:
            gone = await self._later.in_thread(lambda: self._store.removal.unused(kept))
            for topic in {queue.topic for queue in gone}:
                self._stats.forget_topic(topic)
            return request.answer()

        self._later.answer(connection, request, clean())

    def all(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_ALL_TOPIC_CONFIG."""
        version, topics = self._topics.version.to_json(), list(self._topics.topics.items())

        async def collect() -> RemotingCommand:
            table = await self._later.object_of(((name, topic.to_json()) for name, topic in topics), request)
            return request.answer(ext={}, body=bodies.with_raw({"dataVersion": version}, "topicConfigTable", table))

        self._later.answer(connection, request, collect())

    def one(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG of RocketMQ 5."""
        del connection
        name = fields.text(request.fields, "topic")
        topic = self._topics.find(name)
        if topic is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return request.answer(body=orjson.dumps({"attributes": {}, **topic.to_json()}))

    def stats(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_TOPIC_STATS_INFO."""
        topic = demand_topic(self._topics, fields.text(request.fields, "topic"))

        async def collect() -> RemotingCommand:
            table = await self._later.object_of(self._rows(topic), request)
            return request.answer(body=bodies.with_raw({}, "offsetTable", table))

        self._later.answer(connection, request, collect())

    def _rows(self, topic: TopicConfig) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        store, broker_name = self._store, self._settings.now.broker_name
        for queue_id in range(topic.write_queues):
            low, high = store.min_offset(topic.name, queue_id), store.max_offset(topic.name, queue_id)
            last = store.message_store_timestamp(topic.name, queue_id, high - 1) if high > 0 else 0
            stats = {"lastUpdateTimestamp": last, "maxOffset": high, "minOffset": max(low, 0)}
            yield bodies.message_queue(broker_name, topic.name, queue_id), stats

    def system(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        del connection
        return request.answer(body=orjson.dumps({"topicList": sorted(self._topics.system)}))

    def who_consumes(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO."""
        del connection
        topic = fields.text(request.fields, "topic")
        groups = {*self._members.groups_subscribed_to(topic), *self._offsets.groups_of(topic)}
        return request.answer(body=orjson.dumps({"groupList": sorted(groups)}))

    def _name(self, request: RemotingCommand) -> str:
        """The topic that is to be changed. Raises Answer: none can be called so, or it is the system's."""
        name = request.fields.get("topic", "")
        wrong = invalid_topic(name)
        if wrong is None and self._topics.is_system(name):
            wrong = f"The topic[{name}] is conflict with system topic."
        if wrong is not None:
            raise Answer(ResponseCode.SYSTEM_ERROR, wrong)
        return name


def when_kept(
    connection: Connection, request: RemotingCommand, answer: Callable[[], RemotingCommand]
) -> Callable[[RStoreError | None], None]:
    """What answers a request when the change that it asked for is durable, or can't be written."""

    def done(failure: RStoreError | None) -> None:
        refused = None if failure is None else request.answer(code_of(failure), str(failure))
        connection.answer(request, refused or answer())

    return done


def demand_topic(topics: TopicTable, name: str) -> TopicConfig:
    """The topic that is asked about. Raises Answer."""
    topic = topics.find(name)
    if topic is None:
        raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    return topic


def demand_master(role: Role) -> None:
    """Raises Answer on a slave, whose tables are its master's."""
    if role.is_slave:
        raise Answer(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
        )
