"""Consumer offsets of groups: set to a time, to the end, or to those of another group.

A group whose consumers are connected is reset by its brokers, which tell the consumers; the offsets of another one are
set queue by queue. Source: ResetOffsetByTimeCommand, SkipAccumulationSubCommand, CloneGroupOffsetCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.admin.members import consumers_of_group
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.calls import BrokerCalls
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.quantities import counted
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient
    from engine.client.queues import MessageQueue

END_MS = -1
"""The time that stands for the end of a queue. Source: SkipAccumulationSubCommand."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """What a reset does to a queue. `old`: None: the group has committed nothing."""

    queue: MessageQueue
    old: int | None
    new: int

    @property
    def words(self) -> str:
        """In a line."""
        if self.old is None:
            return f"queue {self.queue.queue_id}: is set to {self.new}"
        skipped = self.new - self.old
        if not skipped:
            return f"queue {self.queue.queue_id}: stays at {self.old}"
        means = f", {counted(skipped, 'message')} will not be read" if skipped > 0 else ""
        means = f", {counted(-skipped, 'message')} will be read again" if skipped < 0 else means
        return f"queue {self.queue.queue_id}: {self.old} becomes {self.new}{means}"


async def plan_reset(
    client: ClusterClient, admin: AdminSession, group: str, topic: str, time_ms: int, queue_id: int | None = None
) -> AdminPlan:
    """Set a group's offsets in a topic to the first messages that were stored at a time or later.

    What connected consumers have read, and not committed yet, the offsets here do not show: they are told in any case.

    Args:
        time_ms: 0: the first messages that there are. END_MS: the end of each queue.
        queue_id: of each broker, this queue alone.

    Raises:
        InvalidArgument: no such group, topic or queue; or one queue of a group whose consumers are connected.
    """
    await admin.demand_group(group)
    route = await admin.demand_topic(topic)
    queues = route.read_queues(topic)
    if queue_id is not None:
        queues = tuple(one for one in queues if one.queue_id == queue_id)
        if not queues:
            raise InvalidArgument(f"no queue {topic}/{queue_id} in the cluster")
    calls = BrokerCalls(client)
    moves = [await _move(calls, group, one, time_ms) for one in queues]
    online = (await consumers_of_group(admin, group)).clients
    if online and queue_id is not None:
        raise InvalidArgument(
            f"consumers of group {group} are connected: brokers reset all queues of a topic",
            hint="stop them first, or leave --queue out",
        )
    steps: list[AdminStep] = []
    for at in await admin.masters_of(route):
        here = [one for one in moves if one.queue.broker == at.name]
        changed = [one for one in here if one.old != one.new]
        # A broker refuses to reset a group that has committed nothing in one of the queues; where it has, and where it
        # has not, it may say 0.
        commits = [one for one in here if not one.old] if online else changed
        steps += [
            AdminStep.at(at, one.words, RequestCode.UPDATE_CONSUMER_OFFSET, _commit(group, one)) for one in commits
        ]
        if online and here:
            fields = {"topic": topic, "group": group, "timestamp": str(time_ms), "isForce": "true"}
            told = f"the broker tells {counted(len(online), 'consumer')}"
            words = "; ".join([*(one.words for one in changed if one.old), told])
            steps.append(AdminStep.at(at, words, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields))
    return AdminPlan(f"offsets of group {group} in topic {topic}", tuple(steps))


async def _move(calls: BrokerCalls, group: str, queue: MessageQueue, time_ms: int) -> OffsetMove:
    old = await calls.group_offset(group, queue)
    if time_ms == END_MS:
        new = await calls.max_offset(queue)
    elif time_ms == 0:
        new = await calls.min_offset(queue)
    else:
        new = await calls.offset_at(queue, time_ms)
    return OffsetMove(queue, old, new)


def _commit(group: str, move: OffsetMove) -> dict[str, str]:
    queue = move.queue
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "commitOffset": str(move.new),
        "bname": queue.broker,
    }


async def plan_clone(admin: AdminSession, source: str, target: str, topic: str) -> AdminPlan:
    """Give a group the offsets that another one has in a topic.

    Raises:
        InvalidArgument: no such source group or topic; or both are the same.
    """
    if source == target:
        raise InvalidArgument("a group has its own offsets already", hint="name another group")
    await admin.demand_group(source)
    route = await admin.demand_topic(topic)
    fields = {"srcGroup": source, "destGroup": target, "topic": topic, "offline": "true"}
    steps = [
        AdminStep.at(at, f"group {target} gets the offsets of group {source}", RequestCode.CLONE_GROUP_OFFSET, fields)
        for at in await admin.masters_of(route)
    ]
    online = (await consumers_of_group(admin, target)).clients
    notes = [f"consumers of group {target} are connected, and commit over what is set"] if online else []
    return AdminPlan(f"offsets of group {target} in topic {topic}", tuple(steps), tuple(notes))
