"""Heartbeats, members, offsets and locks of queues: what consumers do besides pulling (BROKER.md 1.1, 1.2).

Sources: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor#lockBatchMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.pull import NO_SQL, SQL
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import ReadBody, body_of
from engine.broker.tables.consumer_filters import TAG_KINDS
from engine.broker.tables.members import Client, Subscription
from engine.broker.tables.topics import RETRY, UNIT_SUB
from engine.format.topic_rules import refused_group
from engine.log.sql import BadExpression
from engine.wire.codes import LanguageCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.consumer_filters import ConsumerFilters, SqlFilters
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
        sql_filters: SqlFilters,
        settings: CurrentSettings,
        later: Later,
        now_ms: Callable[[], int],
    ) -> None:
        self._members = members
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._sql_filters = sql_filters
        self._settings = settings
        self._later = later
        self._now_ms = now_ms

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """HEART_BEAT."""
        body = body_of(request)
        language = "OTHER" if request.language is None else LanguageCode(request.language).name
        client = Client(str(body.get("clientID", "")), language, request.version, self._now_ms())
        steps = self._join(connection, client, body)
        if isinstance(request.body, ReadBody):
            self._later.answer(connection, request, self._join_later(request, steps))
            return None
        for _ in steps:
            pass
        return request.answer()

    async def _join_later(self, request: RemotingCommand, steps: Iterator[None]) -> RemotingCommand:
        async for _ in self._later.turns.walk(steps, request.code):
            pass
        return request.answer()

    def _join(self, connection: Connection, client: Client, body: dict[str, Any]) -> Iterator[None]:
        """What a heartbeat says, in steps: all of it is read, and judged, before any of it counts. Raises Answer."""
        producers, consumers = fields.objects(body, "producerDataSet"), fields.objects(body, "consumerDataSet")
        names = [*map(_group_of, producers), *map(_group_of, consumers)]
        self._demand_few_groups(connection, names)
        for name in names:
            self._groups.demand_name(name)
            yield
        wanted, count = [], 0
        for consumer in consumers:
            subscriptions: dict[str, Subscription] = {}
            entries = fields.objects(consumer, "subscriptionDataSet")[::-1]
            consumer["subscriptionDataSet"] = None
            while entries:  # one after another they are let go: all at once would be a long step, too
                count += 1
                subscription = Subscription.of_json(entries.pop())
                _demand_topic(subscription.topic, self._topics)
                subscriptions[subscription.topic] = subscription
                yield
            self._demand_few_filters(_group_of(consumer), subscriptions)
            wanted.append((consumer, subscriptions))
        most = self._settings.now.subscriptions_per_heartbeat
        if count > most:
            raise _too_many("subscriptions in a heartbeat", count, "maxSubscriptionsPerHeartbeat", most)
        for producer in producers:
            if connection.is_open:
                self._members.heartbeat_producer(_group_of(producer), connection, client)
            yield
        for consumer, subscriptions in wanted:
            if connection.is_open:
                yield from self._join_group(connection, client, consumer, subscriptions)
            yield

    def _join_group(
        self,
        connection: Connection,
        client: Client,
        consumer: dict[str, Any],
        wanted: dict[str, Subscription],
    ) -> Iterator[None]:
        name = _group_of(consumer)
        group = self._groups.find(name)
        if group is not None:
            sub = UNIT_SUB if consumer.get("unitMode") is True else 0
            self._topics.there_soon(RETRY + name, group.retry_queues, sub)
        notify = group is None or group.notify_consumer_ids_changed_enable
        self._members.heartbeat_consumer(name, connection, client, consumer, wanted, notify=notify)
        yield from self._filters.steps(name, list(self._members.consumers[name].subscriptions.values()))

    def _demand_few_groups(self, connection: Connection, names: list[str]) -> None:
        most = self._settings.now.groups_per_client
        count = max(len(names), self._members.groups_with(connection, names))
        if count > most:
            raise _too_many("groups of a client", count, "maxGroupsPerClient", most)

    def _demand_few_filters(self, group: str, wanted: dict[str, Subscription]) -> None:
        most = self._settings.now.filters_per_group
        count = sum(one.kind not in TAG_KINDS for one in wanted.values())
        if count > most:
            raise _too_many(f"filters of the group {group}", count, "maxFiltersPerGroup", most)

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
            self._sql_filters.of(str(wanted.get("subString") or ""))
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

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, groups: GroupTable, topics: TopicTable) -> None:
        self._store = store
        self._offsets = offsets
        self._groups = groups
        self._topics = topics

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
        if self._offsets.get(group, topic, queue_id) is None:  # of those that are there the names are
            self._groups.demand_name(group)
            _demand_topic(topic, self._topics)
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


def _too_many(what: str, count: int, key: str, most: int) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, f"{count} {what}, at most {most} are allowed ({key})")


def _group_of(entry: Any) -> str:
    """A group of a heartbeat. Raises Answer."""
    name = entry.get("groupName") if isinstance(entry, dict) else None
    if name is None:
        raise Answer(ResponseCode.SYSTEM_ERROR, "malformed heartbeat: a group has no name")
    return str(name)


def _demand_topic(name: str, topics: TopicTable) -> None:
    """Raises Answer: a name that no topic can have. It would stand in files, in logs and on terminals."""
    wrong = None if topics.find(name) is not None or not name else refused_group(name)
    if wrong is not None:
        raise Answer(
            ResponseCode.SYSTEM_ERROR,
            wrong.replace("specified group", "specified topic").replace("than group max", "than topic max"),
        )


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
