"""How far groups have come, by queue and by time (BROKER.md 1.4; AdminBrokerProcessor, ConsumerOffsetManager)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.admin_topics import demand_topic
from engine.broker.requests import bodies, fields
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.net.connection import Connection
    from engine.broker.put.schedule import ScheduleService
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicConfig, TopicTable
    from engine.broker.watch.stats import Stats
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

_NONE = -1


class OffsetAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        members: Members,
        stats: Stats,
        schedule: ScheduleService,
        settings: CurrentSettings,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._schedule = schedule
        self._settings = settings
        self._address = address
        self._now_ms = now_ms

    def all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET."""
        del connection
        return request.answer(body=orjson.dumps(self._offsets.to_json()))

    def all_delayed(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET."""
        del connection
        return request.answer(body=orjson.dumps(self._schedule.to_json()))

    # --- what is left to consume ------------------------------------------------------------------------------------

    def consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS."""
        del connection
        group, wanted = fields.text(request.fields, "consumerGroup"), request.fields.get("topic", "")
        rows: list[tuple[dict[str, Any], dict[str, int]]] = []
        tps = 0.0
        for topic in self._topics_of(group, wanted):
            rows += self._lag(group, topic, topic.read_queues)
            tps += self._stats.group_get_tps(group, topic.name)
        return request.answer(body=bodies.with_raw({"consumeTps": tps}, "offsetTable", bodies.by_queue(rows)))

    def all_consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS: of every group that there is."""
        del connection
        ordered, total, groups = fields.flag(request.fields, "isOrder"), 0, []
        for group in self._groups.groups:
            stats = []
            for topic in self._topics_of(group, ""):
                if ordered and not topic.order:
                    continue
                rows = self._lag(group, topic, topic.write_queues)
                total += sum(body["brokerOffset"] - body["consumerOffset"] for _, body in rows)
                tps = self._stats.group_get_tps(group, topic.name)
                stats.append(bodies.with_raw({"consumeTps": tps}, "offsetTable", bodies.by_queue(rows)))
            groups.append(bodies.with_raw({}, group, b"[" + b",".join(stats) + b"]"))
        body = {"brokerAddr": self._address, "totalDiff": total}
        return request.answer(body=bodies.with_raw(body, "consumeStatsList", b"[" + b",".join(groups) + b"]"))

    def time_span(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN: first, last and next message of each queue by their store times (ms)."""
        del connection
        topic = demand_topic(self._topics, fields.text(request.fields, "topic"))
        store, now = self._store, self._now_ms()
        done = self._offsets.of(fields.text(request.fields, "group"), topic.name)
        spans = []
        for queue_id in range(topic.write_queues):
            offset, end = done.get(queue_id, _NONE), store.max_offset(topic.name, queue_id)
            first = store.earliest_message_time(topic.name, queue_id)
            last = store.message_store_timestamp(topic.name, queue_id, end - 1)
            consumed = store.message_store_timestamp(topic.name, queue_id, offset - 1) if offset > 0 else first
            following = store.message_store_timestamp(topic.name, queue_id, offset) if offset < end else now
            times = {"minTimeStamp": first, "maxTimeStamp": last, "consumeTimeStamp": consumed}
            spans.append(
                {
                    **times,
                    **{f"{name}Str": _text(ms) for name, ms in times.items()},
                    "delayTime": now - following,
                    "messageQueue": self._queue(topic.name, queue_id),
                }
            )
        return request.answer(body=orjson.dumps({"consumeTimeSpanSet": spans}))

    # --- offsets of groups against each other -----------------------------------------------------------------------

    def correction(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET: the smallest offset that any group has in each queue.

        Where the compared group lies below all of them: Long.MAX_VALUE, for "leave it". Apache's broker loses the
        offsets of `filterGroups` when it is asked; here they are just left out.
        """
        del connection
        ext = request.fields
        topic = fields.text(ext, "topic")
        left_out = set(ext.get("filterGroups", "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.of(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, LONG_MAX))
        for queue_id, offset in self._offsets.of(fields.text(ext, "compareGroup"), topic).items():
            if least.get(queue_id, _NONE) > offset:
                least[queue_id] = LONG_MAX
        offsets = {str(queue_id): offset for queue_id, offset in sorted(least.items())}
        return request.answer(body=orjson.dumps({"correctionOffsets": offsets}))

    def clone(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """CLONE_GROUP_OFFSET. Without a topic: in all topics of the group (Apache's broker does nothing then)."""
        del connection
        ext, offsets = request.fields, self._offsets
        source, target = fields.text(ext, "srcGroup"), fields.text(ext, "destGroup")
        offline = fields.flag(ext, "offline")
        for topic in self._topics_of(source, ext.get("topic", ""), only_subscribed=not offline):
            offsets.clone(source, target, topic.name)
        return request.answer()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _topics_of(self, group: str, wanted: str, *, only_subscribed: bool = True) -> list[TopicConfig]:
        """`wanted`, or those in which the group has offsets; without those that its members do not want now."""
        online = self._members.consumers.get(group)
        subscribed = online.subscriptions if online is not None and only_subscribed else {}
        topics = []
        for name in [wanted] if wanted.strip() else self._offsets.topics_of(group):
            topic = self._topics.find(name)
            if topic is not None and (not subscribed or name in subscribed):
                topics.append(topic)
        return topics

    def _lag(self, group: str, topic: TopicConfig, queues: int) -> list[tuple[dict[str, Any], dict[str, int]]]:
        store, rows = self._store, []
        offsets = self._offsets.of(group, topic.name)
        for queue_id in range(queues):
            done = max(offsets.get(queue_id, 0), 0)
            last = store.message_store_timestamp(topic.name, queue_id, done - 1) if done > 0 else 0
            stats = {
                "brokerOffset": max(store.max_offset(topic.name, queue_id), 0),
                "consumerOffset": done,
                "lastTimestamp": max(last, 0),
            }
            rows.append((self._queue(topic.name, queue_id), stats))
        return rows

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return bodies.message_queue(self._settings.now.broker_name, topic, queue_id)


def _text(ms: int) -> str:
    """Source: UtilAll.YYYY_MM_DD_HH_MM_SS_SSS."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(ms // 1000))}:{ms % 1000:03d}"
