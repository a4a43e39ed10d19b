"""What mqadmin asks of a broker: topics, groups, offsets, statistics (remoting.md 2.5; AdminBrokerProcessor)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker import fields
from engine.broker.groups import GroupConfig
from engine.broker.handlers.consume import body_of
from engine.broker.topics import TopicConfig, invalid_topic
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.broker import Broker
    from engine.broker.connection import Connection
    from engine.wire.command import RemotingCommand


class AdminHandler:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # --- topics -----------------------------------------------------------------------------------------------------

    def put_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC."""
        del connection
        ext, broker = request.fields, self._broker
        name = fields.text(ext, "topic")
        wrong = invalid_topic(name)
        if wrong is None and name in broker.topics.system:
            wrong = f"The topic[{name}] is conflict with system topic."
        if wrong is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, wrong)
        old = broker.topics.find(name) or TopicConfig(name)
        broker.topics.put(
            replace(
                old,
                read_queues=fields.number(ext, "readQueueNums"),
                write_queues=fields.number(ext, "writeQueueNums"),
                perm=fields.number(ext, "perm"),
                filter_type=ext.get("topicFilterType", "SINGLE_TAG"),
                sys_flag=fields.number(ext, "topicSysFlag", 0),
            )
        )
        return request.answer(remark="not set any response code")

    def delete_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER."""
        del connection
        name = fields.text(request.fields, "topic")
        if name in self._broker.topics.system:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic.")
        self._broker.topics.delete(name)
        return request.answer()

    def all_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG."""
        del connection
        return request.answer(body=orjson.dumps(self._broker.topics.to_json()))

    def topic_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO."""
        del connection
        name = fields.text(request.fields, "topic")
        topic = self._broker.topics.find(name)
        if topic is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store = self._broker.store
        table: list[tuple[dict[str, Any], Any]] = []
        for queue_id in range(topic.write_queues):
            low, high = store.min_offset(name, queue_id), store.max_offset(name, queue_id)
            last = store.message_store_timestamp(name, queue_id, high - 1) if high > low else 0
            said = {"lastUpdateTimestamp": max(last, 0), "maxOffset": high, "minOffset": max(low, 0)}
            table.append((self._queue(name, queue_id), said))
        return request.answer(body=_with_object_keys({}, table))

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        del connection
        return request.answer(body=orjson.dumps({"topicList": sorted(self._broker.topics.system)}))

    # --- groups -----------------------------------------------------------------------------------------------------

    def put_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        del connection
        said = body_of(request)
        self._broker.groups.put(GroupConfig.of_json(str(said.get("groupName", "")), said))
        return request.answer()

    def delete_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP."""
        del connection
        name = fields.text(request.fields, "groupName")
        self._broker.groups.delete(name)
        if fields.flag(request.fields, "removeOffset"):
            self._broker.offsets.forget(name)
        return request.answer()

    def all_groups(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        del connection
        return request.answer(body=orjson.dumps(self._broker.groups.to_json()))

    def all_offsets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET."""
        del connection
        return request.answer(body=orjson.dumps(self._broker.offsets.to_json()))

    def consumer_connections(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST."""
        del connection
        name = fields.text(request.fields, "consumerGroup")
        group = self._broker.members.consumers.get(name)
        if group is None:
            return request.answer(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        said = {
            "connectionSet": [
                {"clientAddr": c.address, "clientId": m.client_id, "language": m.language, "version": m.version}
                for c, m in group.members.items()
            ],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {topic: one.said for topic, one in group.subscriptions.items()},
        }
        return request.answer(body=orjson.dumps(said))

    def producer_connections(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST."""
        del connection
        name = fields.text(request.fields, "producerGroup")
        members = self._broker.members.producers.get(name)
        if not members:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        said = [
            {"clientAddr": c.address, "clientId": m.client_id, "language": m.language, "version": m.version}
            for c, m in members.items()
        ]
        return request.answer(body=orjson.dumps({"connectionSet": said}))

    def consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS."""
        del connection
        ext, broker = request.fields, self._broker
        group = fields.text(ext, "consumerGroup")
        wanted = ext.get("topic")
        names = [wanted] if wanted else broker.offsets.topics_of(group)
        table: list[tuple[dict[str, Any], Any]] = []
        for name in names:
            topic = broker.topics.find(name)
            for queue_id in range(0 if topic is None else topic.read_queues):
                end = max(broker.store.max_offset(name, queue_id), 0)
                done = broker.offsets.get(group, name, queue_id)
                done = 0 if done is None else done
                last = broker.store.message_store_timestamp(name, queue_id, done - 1) if done > 0 else 0
                said = {"brokerOffset": end, "consumerOffset": done, "lastTimestamp": max(last, 0)}
                table.append((self._queue(name, queue_id), said))
        return request.answer(body=_with_object_keys({"consumeTps": 0.0}, table))

    def who_consumes(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO."""
        del connection
        topic = fields.text(request.fields, "topic")
        found = {*self._broker.members.groups_subscribed_to(topic), *self._broker.offsets.groups_of(topic)}
        return request.answer(body=orjson.dumps({"groupList": sorted(found)}))

    # --- the broker -------------------------------------------------------------------------------------------------

    def runtime(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO."""
        del connection
        return request.answer(body=orjson.dumps({"table": self._broker.runtime()}))

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return {"brokerName": self._broker.settings.broker_name, "queueId": queue_id, "topic": topic}


def _with_object_keys(said: dict[str, Any], table: list[tuple[dict[str, Any], Any]]) -> bytes:
    """An offsetTable as fastjson writes it: queues, as objects, are its keys. No standard JSON; clients read it."""
    rows = b",".join(orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in table)
    head = b"".join(orjson.dumps(name) + b":" + orjson.dumps(value) + b"," for name, value in said.items())
    return b"{" + head + b'"offsetTable":{' + rows + b"}}"
