"""Consumer offsets at the target: where a group of the source continues, translated by the offset maps.

An offset at the target is set or raised, never lowered. A group that stands before what the copy wrote keeps its
offset: it has messages there that the source knows nothing of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING

from engine.client.admin.groups import plan_group
from engine.client.admin.plan import carry_out_plan
from engine.client.admin.session import AdminSession
from engine.client.admin.topics import consumers_of
from engine.client.calls import BrokerCalls
from engine.dataclass import dataclass
from engine.errors import NoRoute, RefusedByBroker
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.client.client import ClusterClient
    from engine.client.queues import MessageQueue
    from engine.copying.progress import QueueProgress


@dataclass(frozen=True, slots=True)
class CarriedOffset:
    """A group's offset in a queue: at the source, and what it is translated to. `kept`: what the target has instead."""

    group: str
    source: MessageQueue
    target: MessageQueue
    offset: int
    translated: int
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class AwayQueue:
    """A queue of the source or the target whose broker has no master, so that no offset was carried."""

    side: str
    queue: MessageQueue


@dataclass(slots=True)
class CarriedOffsets:
    """What became of the offsets. `carried`: the target has them, or was given them; `kept`: it kept its own."""

    carried: list[CarriedOffset] = field(default_factory=list)
    kept: list[CarriedOffset] = field(default_factory=list)
    away: list[AwayQueue] = field(default_factory=list)


async def carry_groups(source: ClusterClient, target: ClusterClient, copied: Iterable[QueueProgress]) -> CarriedOffsets:
    """Translate all groups' offsets in the queues that are copied. Raises PeerLost, RefusedByBroker, FormatError."""
    made = CarriedOffsets()
    here, there = BrokerCalls(source), BrokerCalls(target)
    asked, told = AdminSession(source), AdminSession(target)
    queues: dict[str, list[QueueProgress]] = defaultdict(list)
    for one in copied:
        queues[one.source.topic].append(one)
    for topic, of_topic in sorted(queues.items()):
        groups, readable = await _groups_and_brokers(source, asked, topic)
        known, writable = await _groups_and_brokers(target, told, topic)
        for one in of_topic:
            if one.source.broker not in readable:
                made.away.append(AwayQueue("source", one.source))
                continue
            if one.target.broker not in writable:
                made.away.append(AwayQueue("target", one.target))
                continue
            for group in groups:
                offset = await here.group_offset(group, one.source)
                if offset is None or offset < 0:
                    continue
                current = await there.group_offset(group, one.target)
                if current == 0 and group not in known:
                    current = None  # a broker says so of who has committed nothing
                wanted = one.map.target_of(offset)
                row = CarriedOffset(group, one.source, one.target, offset, wanted)
                if current is not None and current != wanted and (current < one.map.base or current > wanted):
                    made.kept.append(replace(row, kept=current))
                    continue
                if current != wanted:
                    await _commit(target, group, one.target, wanted)
                made.carried.append(row)
    return made


async def _commit(target: ClusterClient, group: str, queue: MessageQueue, offset: int) -> None:
    """Set a group's offset. RocketMQ 5 refuses that of a group that it does not know: it is made, as by its consumers.

    Source: ConsumerManageProcessor#updateConsumerOffset.
    """
    try:
        await BrokerCalls(target).commit(group, queue, offset)
    except RefusedByBroker as error:
        if error.response != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        admin = AdminSession(target)
        for outcome in await carry_out_plan(admin, await plan_group(admin, group, {}, broker=queue.broker)):
            if outcome.problem is not None:
                raise outcome.problem from None
        await BrokerCalls(target).commit(group, queue, offset)


async def _groups_and_brokers(
    client: ClusterClient, admin: AdminSession, topic: str
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Who consumes a topic, and its brokers that have a master: a slave would take a commit, and lose it."""
    client.forget_route(topic)
    try:
        route = await client.route(topic)
    except NoRoute:
        return (), frozenset()
    masters = frozenset(one.name for one in await admin.masters_of(route))
    return await consumers_of(admin, route, topic), masters
