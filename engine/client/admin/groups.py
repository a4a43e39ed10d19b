"""Consumer groups: which there are, how far each has come, their configuration; made, changed and deleted.

Source: ConsumerProgressSubCommand, GetConsumerConfigSubCommand, UpdateSubGroupSubCommand,
DeleteSubscriptionGroupCommand, BrokerConsumeStatsSubCommad.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engine.client.admin.members import consumers_of_group, holders_of_queues
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.topics import deleting
from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX
from engine.format.topic_rules import refused_group
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.admin.session import AdminSession
    from engine.wire.peer_object import PeerObject

DEFAULTS: dict[str, Any] = {
    "consumeEnable": True,
    "consumeFromMinEnable": False,
    "consumeBroadcastEnable": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
}
"""Of a group that is made without saying. Source: SubscriptionGroupConfig, UpdateSubGroupSubCommand."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group has come in a queue. `last_ms`: store time of its last consumed message; 0: not known.

    Attributes:
        client: the consumer that has the queue; None: nobody asked, or nobody has it.
    """

    group: str
    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    last_ms: int
    client: str | None = None

    @property
    def lag(self) -> int:
        """Messages that are unread."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come. `rate`: consumed messages a second."""

    group: str
    queues: tuple[QueueLag, ...]
    rate: float

    @property
    def lag(self) -> int:
        """Messages that are unread."""
        return sum(one.lag for one in self.queues)


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group at a glance. `clients`: consumers that are connected; `version`: the lowest of theirs."""

    group: str
    clients: int
    version: str
    consumes: str
    model: str
    rate: float
    lag: int


@dataclass(frozen=True, slots=True)
class GroupAt:
    """A group's configuration on one broker, by Apache's names."""

    broker: str
    address: str
    values: dict[str, Any]


async def group_progress(
    admin: AdminSession, group: str, topic: str | None = None, *, clients: bool = False
) -> GroupProgress:
    """How far a group has come in all its topics, or one. `clients`: and who has which queue.

    Raises:
        InvalidArgument: no such group or topic.
    """
    await admin.demand_group(group)
    if topic is not None:
        await admin.demand_topic(topic)
    progress = await _progress(admin, group, (await admin.clusters()).masters(), topic)
    if not clients:
        return progress
    holders = await holders_of_queues(admin, group)
    queues = [
        replace(one, client=holders.get(MessageQueue(one.topic, one.broker, one.queue_id))) for one in progress.queues
    ]
    return GroupProgress(group, tuple(queues), progress.rate)


async def _progress(
    admin: AdminSession, group: str, brokers: tuple[BrokerAt, ...], topic: str | None = None
) -> GroupProgress:
    fields = {"consumerGroup": group} if topic is None else {"consumerGroup": group, "topic": topic}
    rows: list[QueueLag] = []
    rate = 0.0
    for broker in brokers:
        table, rest = await admin.table(broker.address, RequestCode.GET_CONSUME_STATS, fields)
        rows += [_queue_lag(group, queue, offsets) for queue, offsets in table]
        rate += rest.real("consumeTps", 0.0)
    return GroupProgress(group, tuple(sorted(rows, key=lambda one: (one.topic, one.broker, one.queue_id))), rate)


def _queue_lag(group: str, queue: PeerObject, offsets: PeerObject) -> QueueLag:
    return QueueLag(
        group,
        queue.text("topic"),
        queue.text("brokerName"),
        queue.number("queueId"),
        offsets.number("brokerOffset"),
        offsets.number("consumerOffset"),
        offsets.number("lastTimestamp"),
    )


async def list_groups(admin: AdminSession, names: Sequence[str] | None = None) -> tuple[GroupLine, ...]:
    """All groups, or those of some names, with who is connected and how far each has come."""
    masters = (await admin.clusters()).masters()
    rows = []
    for group in await admin.groups() if names is None else names:
        progress = await _progress(admin, group, masters)
        online = await consumers_of_group(admin, group)
        rows.append(
            GroupLine(
                group,
                len(online.clients),
                online.lowest_version,
                {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}.get(online.consumes, online.consumes),
                online.model.lower(),
                progress.rate,
                progress.lag,
            )
        )
    return tuple(rows)


async def lag_at(admin: AdminSession, cluster: str | None = None, broker: str | None = None) -> tuple[QueueLag, ...]:
    """How far all groups have come on the masters of a cluster, or one. Raises InvalidArgument: no such one."""
    rows: list[QueueLag] = []
    for at in (await admin.clusters()).masters(cluster, broker):
        for group in sorted(await admin.group_tables(at)):
            rows += (await _progress(admin, group, (at,))).queues
    return tuple(rows)


async def group_config(admin: AdminSession, group: str) -> tuple[GroupAt, ...]:
    """A group's configuration, broker by broker. Raises InvalidArgument: no such group."""
    await admin.demand_group(group)
    masters = (await admin.clusters()).masters()
    tables = await admin.each(masters, admin.group_tables)
    return tuple(
        GroupAt(at.name, at.address, dict(table[group].fields))
        for at, table in zip(masters, tables, strict=True)
        if group in table
    )


# --- changes ---------------------------------------------------------------------------------------------------------


async def plan_group(
    admin: AdminSession, group: str, wanted: dict[str, Any], cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Make a group, or change it where it is.

    Args:
        wanted: by the names of DEFAULTS; what is not there stays as it is.

    Raises:
        InvalidArgument: no name of a group, no such cluster or broker.
    """
    reason = refused_group(group)
    if reason is not None:
        raise InvalidArgument(reason)
    masters = (await admin.clusters()).changed(cluster, broker)
    steps = []
    for at, table in zip(masters, await admin.each(masters, admin.group_tables), strict=True):
        known = table[group].fields if group in table else None
        new = {**(DEFAULTS if known is None else known), "groupName": group, **wanted}
        parts = [
            f"{name} {known.get(name)} becomes {new[name]}" for name in wanted if known and known.get(name) != new[name]
        ]
        if known is None or parts:
            words = ", ".join(parts) if known is not None else f"group {group} is made"
            body = _body(new, at)
            steps.append(AdminStep.at(at, words, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body))
    return AdminPlan(f"group {group}", tuple(steps))


def _body(config: dict[str, Any], at: BrokerAt) -> bytes:
    """Raises FormatError: what the broker says of the group can't be sent back to it."""
    try:
        return orjson.dumps(config)
    except orjson.JSONEncodeError as error:
        raise FormatError(f"malformed group {config['groupName']} of {at.address}: {error}") from None


async def plan_delete_group(
    admin: AdminSession,
    group: str,
    cluster: str | None = None,
    broker: str | None = None,
    *,
    offsets: bool = False,
) -> AdminPlan:
    """Delete a group; of a whole cluster with its topics of retries and dead letters. `offsets`: and its offsets.

    Raises:
        InvalidArgument: no such group, cluster or broker.
    """
    await admin.demand_group(group)
    masters = (await admin.clusters()).changed(cluster, broker)
    online = await consumers_of_group(admin, group)
    fields = {"groupName": group, "removeOffset": "true" if offsets else "false"}
    words = f"group {group} is deleted" + (" with its offsets" if offsets else "; its offsets stay")
    steps = [AdminStep.at(at, words, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields) for at in masters]
    if broker is None:
        topics = await admin.topics()
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            if topic in topics:
                steps += deleting(admin, topic, masters, follows=True)
    notes = []
    if online.clients:
        names = ", ".join(one.client_id for one in online.clients)
        notes.append(f"consumers of the group are connected: {names}")
    return AdminPlan(f"group {group}", tuple(steps), tuple(notes))
