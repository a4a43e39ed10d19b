"""Heartbeats, members, offsets and locks of queues: what consumers do besides pulling (BROKER.md 1.1, 1.2).

Sources: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor#lockBatchMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.pull import NO_SQL, SQL
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.consumer_filters import TAG_KINDS
from engine.broker.tables.members import Client, Subscription
from engine.broker.tables.topics import RETRY, UNIT_SUB
from engine.log.sql import BadExpression, compile_expression
from engine.wire.codes import LanguageCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.consumer_filters import ConsumerFilters
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.locks import QueueLocks
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

_NEVER = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class MemberHandler:
    """Heartbeats and what they say: who is there, and what groups want."""

    def __init__(
        self,
        *,
        members: Members,
        groups: GroupTable,
        topics: TopicTable,
        filters: ConsumerFilters,
        settings: CurrentSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._members = members
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._settings = settings
        self._now_ms = now_ms

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """HEART_BEAT."""
        body = body_of(request)
        language = "OTHER" if request.language is None else LanguageCode(request.language).name
        client = Client(str(body.get("clientID", "")), language, request.version, self._now_ms())
        producers, consumers = fields.objects(body, "producerDataSet"), fields.objects(body, "consumerDataSet")
        for consumer in consumers:  # all of it is read before any of it counts
            for one in fields.objects(consumer, "subscriptionDataSet"):
                Subscription.of_json(one)
        for producer in producers:
            self._members.heartbeat_producer(_group_of(producer), connection, client)
        for consumer in consumers:
            name = _group_of(consumer)
            group = self._groups.find(name)
            if group is not None:
                sub = UNIT_SUB if consumer.get("unitMode") is True else 0
                self._topics.there_soon(RETRY + name, group.retry_queues, sub)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._members.heartbeat_consumer(name, connection, client, consumer, notify=notify)
            self._filters.register(name, self._members.consumers[name].subscriptions.values())
        return request.answer()

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT."""
        producers, consumers = request.fields.get("producerGroup"), request.fields.get("consumerGroup")
        group = None if consumers is None else self._groups.find(consumers)
        notify = group is None or group.notify_consumer_ids_changed_enable
        self._members.unregister(connection, producers, consumers, notify=notify)
        return request.answer(ext={})

    def client_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG."""
        del connection
        wanted = body_of(request).get("subscriptionData") or {}
        if not isinstance(wanted, dict):
            raise Answer(ResponseCode.SYSTEM_ERROR, "subscriptionData is not an object")
        if wanted.get("expressionType") in TAG_KINDS:
            return request.answer()
        if not self._settings.now.property_filter:
            return request.answer(ResponseCode.SYSTEM_ERROR, NO_SQL.format(wanted.get("expressionType")))
        if wanted.get("expressionType") != SQL:
            remark = f"unknown expression type {wanted.get('expressionType')}"
            return request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        try:
            compile_expression(str(wanted.get("subString") or ""))
        except BadExpression as error:
            return request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.answer()

    def members(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP."""
        del connection
        name = fields.text(request.fields, "consumerGroup")
        group = self._members.consumers.get(name)
        if group is None or not group.members:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}", {})
        ids = [client.client_id for client in group.members.values()]
        return request.answer(ext={}, body=orjson.dumps({"consumerIdList": ids}))


class OffsetHandler:
    """How far groups have come."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._offsets = offsets

    def query_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET."""
        del connection
        group, topic, queue_id = self._place(request)
        offset = self._offsets.get(group, topic, queue_id)
        if offset is None and self._store.min_offset(topic, queue_id) <= 0 and self._young(topic, queue_id):
            offset = 0
        if offset is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, _NEVER, {})
        return request.answer(ext={"offset": str(offset)})

    def update_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET."""
        del connection
        group, topic, queue_id = self._place(request)
        self._offsets.commit(group, topic, queue_id, fields.long(request.fields, "commitOffset"))
        return request.answer(ext={})

    def _place(self, request: RemotingCommand) -> tuple[str, str, int]:
        ext = request.fields
        return fields.text(ext, "consumerGroup"), fields.text(ext, "topic"), fields.number(ext, "queueId")

    def _young(self, topic: str, queue_id: int) -> bool:
        """Whether a queue's first message would still be in memory. Source: #checkInDiskByConsumeOffset."""
        return not self._store.is_cold(topic, queue_id, 0)


class LockHandler:
    """Queues that one client consumes at a time, in order."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def lock(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ: the queues that the client holds now."""
        del connection
        body = body_of(request)
        (group, client), locks = _locker(body), self._locks
        got = [queue for queue in fields.objects(body, "mqSet") if locks.lock(group, _queue(queue), client)]
        return request.answer(body=orjson.dumps({"lockOKMQSet": got}))

    def unlock(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ."""
        del connection
        body = body_of(request)
        group, client = _locker(body)
        for queue in fields.objects(body, "mqSet"):
            self._locks.unlock(group, _queue(queue), client)
        return request.answer()


def _group_of(entry: Any) -> str:
    """A group of a heartbeat. Raises Answer."""
    name = entry.get("groupName") if isinstance(entry, dict) else None
    if name is None:
        raise Answer(ResponseCode.SYSTEM_ERROR, "malformed heartbeat: a group has no name")
    return str(name)


def _locker(body: Mapping[str, Any]) -> tuple[str, str]:
    """Who wants queues. Raises Answer."""
    group, client = body.get("consumerGroup"), body.get("clientId")
    if body.get("mqSet") and (group is None or client is None):
        raise Answer(ResponseCode.SYSTEM_ERROR, "consumerGroup and clientId are required")
    return str(group), str(client)


def _queue(queue: Any) -> tuple[str, str, int]:
    try:
        return str(queue.get("brokerName")), str(queue.get("topic")), int(queue.get("queueId", 0))
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise Answer(ResponseCode.SYSTEM_ERROR, f"invalid message queue: {queue!r}") from None
