"""How far groups have come, by queue and by time (BROKER.md 1.4; AdminBrokerProcessor, ConsumerOffsetManager).

There may be any number of groups, topics and queues: what looks at all of them does so in turns of the loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.admin_topics import demand_topic
from engine.broker.requests import bodies, fields
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.broker.net.connection import Connection
    from engine.broker.put.schedule import ScheduleService
    from engine.broker.put.timers import TimerService
    from engine.broker.requests.later import Later
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
        timers: TimerService,
        settings: CurrentSettings,
        later: Later,
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
        self._timers = timers
        self._settings = settings
        self._later = later
        self._address = address
        self._now_ms = now_ms

    def all(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_ALL_CONSUMER_OFFSET."""

        async def collect() -> RemotingCommand:
            table = await self._later.object_of(self._offsets.entries(), request)
            return request.answer(body=bodies.with_raw({}, "offsetTable", table))

        self._later.answer(connection, request, collect())

    def all_delayed(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET."""
        del connection
        return request.answer(body=orjson.dumps(self._schedule.to_json()))

    def timers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT. Daemons of rstore go by the fields, which say all of the progress."""
        del connection
        told = {name: str(value) for name, value in self._timers.progress.to_json().items()}
        return request.answer(ext=told, body=self._timers.check().encode())

    # --- what is left to consume ------------------------------------------------------------------------------------

    def consume_stats(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_CONSUME_STATS."""
        group, wanted = fields.text(request.fields, "consumerGroup"), request.fields.get("topic", "")

        async def collect() -> RemotingCommand:
            topics = self._topics_of(group, wanted)
            rows = (row for topic in topics for row in self._lag(group, topic, topic.read_queues))
            table = await self._later.object_of(rows, request)
            tps = sum(self._stats.group_get_tps(group, topic.name) for topic in topics)
            return request.answer(body=bodies.with_raw({"consumeTps": float(tps)}, "offsetTable", table))

        self._later.answer(connection, request, collect())

    def all_consume_stats(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_BROKER_CONSUME_STATS: of every group that there is."""
        ordered = fields.flag(request.fields, "isOrder")

        async def collect() -> RemotingCommand:
            groups, lags = bytearray(b"["), _Sum()
            async for _ in self._later.turns.walk(self._all_stats(groups, lags, ordered), request.code):
                pass
            body = {"brokerAddr": self._address, "totalDiff": lags.total}
            return request.answer(body=bodies.with_raw(body, "consumeStatsList", groups + b"]"))

        self._later.answer(connection, request, collect())

    def _all_stats(self, out: bytearray, lags: _Sum, ordered: bool) -> Iterator[None]:
        """Append `{group: [ConsumeStats of each of its topics]}` of each group to `out`, in steps."""
        for group in list(self._groups.groups):
            out += b"{" if len(out) == 1 else b",{"
            out += orjson.dumps(group) + b":["
            comma = b""
            for topic in self._topics_of(group, ""):
                if ordered and not topic.order:
                    continue
                tps = self._stats.group_get_tps(group, topic.name)
                out += comma + orjson.dumps({"consumeTps": tps})[:-1] + b',"offsetTable":{'
                yield from bodies.entries_of(out, lags.counted(self._lag(group, topic, topic.write_queues)))
                out += b"}}"
                comma = b","
            out += b"]}"
            bodies.demand_fits(out)
            yield

    def time_span(self, connection: Connection, request: RemotingCommand) -> None:
        """QUERY_CONSUME_TIME_SPAN: first, last and next message of each queue by their store times (ms)."""
        topic = demand_topic(self._topics, fields.text(request.fields, "topic"))
        group = fields.text(request.fields, "group")

        async def collect() -> RemotingCommand:
            spans = await self._later.list_of(self._spans(topic, group), request)
            return request.answer(body=bodies.with_raw({}, "consumeTimeSpanSet", spans))

        self._later.answer(connection, request, collect())

    def _spans(self, topic: TopicConfig, group: str) -> Iterator[dict[str, Any]]:
        store, now = self._store, self._now_ms()
        done = self._offsets.of(group, topic.name)
        for queue_id in range(topic.write_queues):
            offset, end = done.get(queue_id, _NONE), store.max_offset(topic.name, queue_id)
            first = store.earliest_message_time(topic.name, queue_id)
            last = store.message_store_timestamp(topic.name, queue_id, end - 1)
            consumed = store.message_store_timestamp(topic.name, queue_id, offset - 1) if offset > 0 else first
            following = store.message_store_timestamp(topic.name, queue_id, offset) if offset < end else now
            times = {"minTimeStamp": first, "maxTimeStamp": last, "consumeTimeStamp": consumed}
            yield {
                **times,
                **{f"{name}Str": _text(ms) for name, ms in times.items()},
                "delayTime": now - following,
                "messageQueue": self._queue(topic.name, queue_id),
            }

    # --- offsets of groups against each other -----------------------------------------------------------------------

    def correction(self, connection: Connection, request: RemotingCommand) -> None:
        """QUERY_CORRECTION_OFFSET: the smallest offset that any group has in each queue.

        Where the compared group lies below all of them: Long.MAX_VALUE, for "leave it". Apache's broker loses the
        offsets of `filterGroups` when it is asked; here they are just left out.
        """
        ext = request.fields
        topic, compared = fields.text(ext, "topic"), fields.text(ext, "compareGroup")
        left_out = set(ext.get("filterGroups", "").split(","))

        async def collect() -> RemotingCommand:
            least: dict[int, int] = {}
            async for queue_id, offset in self._later.turns.walk(self._offsets_in(topic, left_out), request.code):
                if offset >= self._store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, LONG_MAX))
            for queue_id, offset in self._offsets.of(compared, topic).items():
                if least.get(queue_id, _NONE) > offset:
                    least[queue_id] = LONG_MAX
            offsets = {str(queue_id): offset for queue_id, offset in sorted(least.items())}
            return request.answer(body=orjson.dumps({"correctionOffsets": offsets}))

        self._later.answer(connection, request, collect())

    def _offsets_in(self, topic: str, left_out: set[str]) -> Iterator[tuple[int, int]]:
        for group in self._offsets.groups_of(topic):
            if group not in left_out:
                yield from self._offsets.of(group, topic).items()

    def clone(self, connection: Connection, request: RemotingCommand) -> None:
        """CLONE_GROUP_OFFSET. Without a topic: in all topics of the group (Apache's broker does nothing then)."""
        ext, offsets = request.fields, self._offsets
        source, target = fields.text(ext, "srcGroup"), fields.text(ext, "destGroup")
        wanted, offline = ext.get("topic", ""), fields.flag(ext, "offline")
        self._groups.demand_name(target)

        async def clone() -> RemotingCommand:
            topics = self._topics_of(source, wanted, only_subscribed=not offline)
            async for topic in self._later.turns.walk(topics, request.code):
                offsets.clone(source, target, topic.name)
            return request.answer()

        self._later.answer(connection, request, clone())

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

    def _lag(self, group: str, topic: TopicConfig, queues: int) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        store = self._store
        offsets = self._offsets.of(group, topic.name)
        for queue_id in range(queues):
            done = max(offsets.get(queue_id, 0), 0)
            last = store.message_store_timestamp(topic.name, queue_id, done - 1) if done > 0 else 0
            stats = {
                "brokerOffset": max(store.max_offset(topic.name, queue_id), 0),
                "consumerOffset": done,
                "lastTimestamp": max(last, 0),
            }
            yield self._queue(topic.name, queue_id), stats

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return bodies.message_queue(self._settings.now.broker_name, topic, queue_id)


class _Sum:
    """What is left to consume in the queues that were passed on, messages."""

    def __init__(self) -> None:
        self.total = 0

    def counted(
        self, rows: Iterable[tuple[dict[str, Any], dict[str, int]]]
    ) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        for queue, stats in rows:
            self.total += stats["brokerOffset"] - stats["consumerOffset"]
            yield queue, stats


def _text(ms: int) -> str:
    """Source: UtilAll.YYYY_MM_DD_HH_MM_SS_SSS."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(ms // 1000))}:{ms % 1000:03d}"
