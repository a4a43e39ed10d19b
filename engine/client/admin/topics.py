"""Topics: which there are, where, how much they hold; made, changed and deleted.

Source: TopicListSubCommand, TopicStatusSubCommand, UpdateTopicSubCommand, UpdateTopicPermSubCommand,
DeleteTopicSubCommand, StatsAllSubCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.client.admin.name_servers import ORDER_SPACE, delete_entry, put_entry
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.session import json_of
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX
from engine.format.quantities import counted
from engine.format.topic_rules import TBW102, refused_by_client
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.admin.session import AdminSession
    from engine.client.routes import TopicRoute
    from engine.wire.peer_object import PeerObject

QUEUES, PERM = 8, 6
"""Of a topic that is made without saying. Source: UpdateTopicSubCommand."""
_PERMS = {2: "write only", 4: "read only", 6: "read and write"}


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic of a list. `groups`: who consumes it; None: nobody asked."""

    topic: str
    cluster: str | None = None
    groups: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What a queue of a topic holds. `last_ms`: store time of its last message; 0: none."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class TopicRates:
    """How much goes into a topic and out of it to a group; rates in messages a second. `lag`: messages."""

    topic: str
    group: str | None
    lag: int | None
    in_rate: float
    out_rate: float
    in_day: int
    out_day: int


@dataclass(frozen=True, slots=True)
class TopicWanted:
    """What a topic is to be; None: as it is, or by default."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None


async def list_topics(
    admin: AdminSession, cluster: str | None = None, *, groups: bool = False
) -> tuple[ListedTopic, ...]:
    """All topics, or those of a cluster. `groups`: and who consumes each."""
    if not groups:
        return tuple(ListedTopic(topic, cluster) for topic in await admin.topics(cluster))
    names = (await admin.clusters()).names if cluster is None else (cluster,)
    return tuple(
        [
            ListedTopic(topic, name, await consumers_of(admin, await admin.demand_topic(topic), topic))
            for name in names
            for topic in await admin.topics(name)
        ]
    )


async def consumers_of(admin: AdminSession, route: TopicRoute, topic: str) -> tuple[str, ...]:
    """The groups that consume a topic, or have."""
    groups: set[str] = set()
    for broker in await admin.masters_of(route):
        body = await admin.json(broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        groups |= set(body.texts("groupList"))
    return tuple(sorted(groups))


async def topic_status(admin: AdminSession, topic: str) -> tuple[QueueStatus, ...]:
    """The queues of a topic, sorted. Raises InvalidArgument: no such topic."""
    route = await admin.demand_topic(topic)
    rows: list[QueueStatus] = []
    for broker in await admin.masters_of(route):
        table, _ = await admin.table(broker.address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        rows += [_queue_status(queue, stats) for queue, stats in table]
    return tuple(sorted(rows, key=lambda one: (one.broker, one.queue_id)))


def _queue_status(queue: PeerObject, stats: PeerObject) -> QueueStatus:
    return QueueStatus(
        queue.text("topic"),
        queue.text("brokerName"),
        queue.number("queueId"),
        stats.number("minOffset"),
        stats.number("maxOffset"),
        stats.number("lastUpdateTimestamp"),
    )


async def topic_rates(admin: AdminSession, topic: str | None = None) -> tuple[TopicRates, ...]:
    """Rates of one topic, or all that are neither retries nor dead letters. Raises InvalidArgument: no such topic."""
    if topic is None:
        topics = [one for one in await admin.topics() if not one.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    else:
        topics = [topic]
    rows: list[TopicRates] = []
    for one in topics:
        route = await admin.demand_topic(one)
        masters = await admin.masters_of(route)
        put = [await _stats(admin, broker, "TOPIC_PUT_NUMS", one) for broker in masters]
        into = (sum(rate for rate, _ in put), sum(day for _, day in put))
        groups = await consumers_of(admin, route, one)
        if not groups:
            rows.append(TopicRates(one, None, None, into[0], 0.0, into[1], 0))
        for group in groups:
            got = [await _stats(admin, broker, "GROUP_GET_NUMS", f"{one}@{group}") for broker in masters]
            lag = 0
            for broker in masters:
                table, _ = await admin.table(
                    broker.address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": one}
                )
                lag += sum(row.number("brokerOffset") - row.number("consumerOffset") for _, row in table)
            rows.append(
                TopicRates(one, group, lag, into[0], sum(r for r, _ in got), into[1], sum(day for _, day in got))
            )
    return tuple(rows)


async def _stats(admin: AdminSession, broker: BrokerAt, name: str, key: str) -> tuple[float, int]:
    """Messages a second of the last minute, and of the last day. Source: StatsAllSubCommand#compute24HourSum."""
    answer = await admin.ask(
        broker.address,
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": name, "statsKey": key},
        also=ResponseCode.SYSTEM_ERROR,
    )
    if answer.code != ResponseCode.SUCCESS:  # nothing was counted yet
        return 0.0, 0
    body = json_of(answer, broker.address, RequestCode.VIEW_BROKER_STATS_DATA)
    sums = (body.part(part).number("sum", default=0) for part in ("statsDay", "statsHour", "statsMinute"))
    return body.part("statsMinute").real("tps", 0.0), next((one for one in sums if one > 0), 0)


async def topic_clusters(admin: AdminSession, topic: str) -> tuple[str, ...]:
    """The clusters whose brokers serve a topic. Raises InvalidArgument: no such topic."""
    route = await admin.demand_topic(topic)
    return tuple(dict.fromkeys(one.cluster for one in (await admin.clusters()).brokers if one.name in route.brokers))


# --- changes ---------------------------------------------------------------------------------------------------------


async def plan_topic(
    admin: AdminSession, topic: str, wanted: TopicWanted, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Make a topic, or change it where it is.

    Raises:
        InvalidArgument: no name of a topic, no such cluster or broker, or a value out of range.
    """
    reason = refused_by_client(topic)
    if reason is not None:
        raise InvalidArgument(reason)
    if wanted.perm is not None and wanted.perm not in _PERMS:
        raise InvalidArgument(f"not a permission: {wanted.perm}", hint="2 (write), 4 (read) or 6 (both)")
    masters = (await admin.clusters()).changed(cluster, broker)
    steps = []
    order: dict[str, int] = {}
    for at, table in zip(masters, await admin.each(masters, admin.topic_tables), strict=True):
        known = _known(table[topic]) if topic in table else None
        old = known or {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": PERM, "order": False}
        new = {**old, **_given(wanted)}
        order[at.name] = new["writeQueueNums"]
        words = _difference(known, new)
        if words:
            steps.append(AdminStep.at(at, words, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, new)))
    if wanted.order:
        steps += await put_entry(
            admin, ORDER_SPACE, topic, lambda old: _order_entry(order, old if broker else None), follows=True
        )
    return AdminPlan(f"topic {topic}", tuple(steps))


def _order_entry(queues: Mapping[str, int], old: str | None) -> str:
    """What name servers tell of an ordered topic: brokers and their queues. `old`: whose other brokers stay.

    Source: UpdateTopicSubCommand, DefaultMQAdminExtImpl#createOrUpdateOrderConf.
    """
    there = dict(one.split(":", 1) for one in (old or "").split(";") if ":" in one)
    return ";".join(f"{name}:{count}" for name, count in {**there, **queues}.items())


async def plan_perm(
    admin: AdminSession, topic: str, perm: int, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Change who may read and write a topic, where it is. Raises InvalidArgument: no such topic, cluster, broker."""
    route = await admin.demand_topic(topic)
    there = {at.address for at in await admin.masters_of(route)}
    plan = await plan_topic(admin, topic, TopicWanted(perm=perm), cluster, broker)
    return AdminPlan(plan.change, tuple(one for one in plan.steps if one.address in there))


def _known(config: PeerObject) -> dict[str, Any]:
    """What a topic is. Raises FormatError."""
    return {
        "readQueueNums": config.number("readQueueNums", least=0),
        "writeQueueNums": config.number("writeQueueNums", least=0),
        "perm": config.number("perm", least=0),
        "order": config.flag("order", default=False),
        "topicFilterType": config.text("topicFilterType", "SINGLE_TAG"),
        "topicSysFlag": config.number("topicSysFlag", default=0),
    }


def _given(wanted: TopicWanted) -> dict[str, Any]:
    names = {"readQueueNums": wanted.read_queues, "writeQueueNums": wanted.write_queues, "perm": wanted.perm}
    return {name: value for name, value in {**names, "order": wanted.order}.items() if value is not None}


def _difference(known: dict[str, Any] | None, new: dict[str, Any]) -> str:
    """What a step does; empty: nothing."""
    read, write, perm = (new[name] for name in ("readQueueNums", "writeQueueNums", "perm"))
    if known is None:
        return f"is made: {counted(read, 'read queue')}, {counted(write, 'write queue')}, {_PERMS.get(perm, perm)}"
    names = {"readQueueNums": "read queues", "writeQueueNums": "write queues", "perm": "permission", "order": "order"}
    parts = [
        f"{words} {known.get(name)} becomes {new.get(name)}"
        for name, words in names.items()
        if bool(known.get(name)) != bool(new.get(name)) or known.get(name, new.get(name)) != new.get(name)
    ]
    return ", ".join(parts)


def topic_fields(topic: str, new: Mapping[str, Any]) -> dict[str, str]:
    """The fields of UPDATE_AND_CREATE_TOPIC. `new`: by the names of TopicConfig."""
    return {
        "topic": topic,
        "defaultTopic": TBW102,
        "readQueueNums": str(new["readQueueNums"]),
        "writeQueueNums": str(new["writeQueueNums"]),
        "perm": str(new["perm"]),
        "topicFilterType": str(new.get("topicFilterType", "SINGLE_TAG")),
        "topicSysFlag": str(new.get("topicSysFlag", 0)),
        "order": "true" if new.get("order") else "false",
    }


def deleting(admin: AdminSession, topic: str, masters: Sequence[BrokerAt], *, follows: bool = False) -> list[AdminStep]:
    """The steps that delete a topic: from these masters of one cluster, then its route. `follows`: other steps."""
    words = f"topic {topic} and its queues are deleted"
    code, fields = RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
    steps = [AdminStep.at(at, words, code, fields, follows=follows) for at in masters]
    words, code = f"the route of topic {topic} is deleted", RequestCode.DELETE_TOPIC_IN_NAMESRV
    fields = {"topic": topic, "clusterName": masters[0].cluster if masters else ""}
    return steps + [AdminStep.at_names(at, words, code, fields, follows=True) for at in admin.name_servers]


async def plan_delete_topic(admin: AdminSession, topic: str, cluster: str | None = None) -> AdminPlan:
    """Delete a topic of a cluster from its masters, then from the name servers.

    Raises:
        InvalidArgument: no such topic or cluster.
    """
    route = await admin.demand_topic(topic)
    masters = [one for one in (await admin.clusters()).changed(cluster, None) if one.name in route.brokers]
    held = sum(queue.max_offset - queue.min_offset for queue in await topic_status(admin, topic))
    steps = deleting(admin, topic, masters)
    steps += await delete_entry(admin, ORDER_SPACE, topic, follows=True)
    notes = [f"its queues hold {counted(held, 'message')}, which nobody finds any more"] if held else []
    return AdminPlan(f"topic {topic}", tuple(steps), tuple(notes))
