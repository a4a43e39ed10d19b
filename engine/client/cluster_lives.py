"""The lives of messages, asked of a running cluster: by key or id, with its groups' offsets and the trace topic.

Source: QueryMsgTraceByIdSubCommand, QueryMsgByKeySubCommand, and what brokers write under further topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.admin.brokers import settings_at
from engine.client.admin.messages import messages_by_key
from engine.client.admin.session import AdminSession
from engine.client.admin.topics import consumers_of
from engine.client.calls import BrokerCalls
from engine.client.lives import GroupPlace, LifeStage, MessageLife, id_of, life_of, stage_of, traces_in
from engine.client.queues import MessageQueue
from engine.client.trace import TRACE_TOPIC, TraceRecord
from engine.dataclass import dataclass
from engine.errors import PeerLost, RefusedByBroker
from engine.format.delay import DelayLevels
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from engine.format.shown import printable
from engine.format.topic_rules import HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.client.client import ClusterClient
    from engine.format.message import StoredMessage

_NAMED = 6
"""Names of brokers in a note."""


@dataclass(frozen=True, slots=True)
class ClusterLives:
    """What a cluster tells of messages, and who was not asked.

    Attributes:
        away: brokers that serve the topic and have no master; a slave is not asked.
        others: brokers with a master that don't serve the topic: a consumer whose broker is away may have given a
            message back to one of them.
        silent: addresses of brokers with a delayed message that don't tell their messageDelayLevel.
    """

    lives: tuple[MessageLife, ...]
    away: tuple[str, ...]
    others: tuple[str, ...]
    silent: tuple[str, ...]

    def notes(self, topic: str) -> Iterator[str]:
        """What the answer may lack, a sentence each. `topic`: that was asked for."""
        if self.away:
            yield f"not asked: {_some('broker', self.away)}: no master of it is registered"
        if self.others:
            yield f"not asked: {_some('broker', self.others)}: topic {printable(topic)} is not served there"
        if self.silent:
            silent = _some("broker", self.silent)
            yield f"when delayed messages are due is not known: no messageDelayLevel from {silent}"


def _some(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(printable, names[:_NAMED]))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{noun if len(names) == 1 else noun + 's'} {shown}{more}"


async def lives_of(client: ClusterClient, topic: str, key: str, most: int) -> ClusterLives:
    """The messages of a topic (without namespace) with a key or an id, the newest `most`, oldest first.

    Raises:
        InvalidArgument: no such topic. NoRoute, PeerLost, RefusedByBroker, FormatError.
    """
    admin = AdminSession(client)
    wire = client.wire_name(topic)
    matches = [
        *await messages_by_key(admin, wire, key, most=most),
        *await messages_by_key(admin, wire, key, most=most, unique=True),
    ]
    ids = list(dict.fromkeys(map(id_of, matches)))[-most:]
    route = await admin.demand_topic(wire)
    masters = {at.name: at.address for at in (await admin.clusters()).masters()}
    groups = await consumers_of(admin, route, wire)
    also = [SCHEDULE_TOPIC, HALF_TOPIC, *(prefix + group for group in groups for prefix in (RETRY_PREFIX, DLQ_PREFIX))]
    lives = []
    levels: dict[str, DelayLevels | None] = {}
    for one_id in ids or [key]:
        messages = [message for message in matches if id_of(message) == one_id]
        for other in also:
            messages += await messages_by_key(admin, other, one_id, unique=True, route=route)
        traces = await _traces(admin, one_id)
        places = [
            await _place(client, admin, group, message)
            for message in messages
            if stage_of(message) in (LifeStage.STORED, LifeStage.COMMITTED)
            for group in groups
        ]
        for message in messages:
            if stage_of(message) is LifeStage.DELAYED and (at := str(message.store_host)) not in levels:
                levels[at] = await _levels(admin, at) if at in masters.values() else None
        if messages or traces:
            lives.append(life_of(one_id, messages, traces, places, lambda message: levels[str(message.store_host)]))
    return ClusterLives(
        tuple(lives),
        tuple(sorted(route.brokers.keys() - masters.keys())),
        tuple(sorted(masters.keys() - route.brokers.keys())),
        tuple(sorted(at for at, known in levels.items() if known is None)),
    )


async def _levels(admin: AdminSession, address: str) -> DelayLevels | None:
    """The messageDelayLevel of a broker; None: it does not tell it, as to an account that is no administrator."""
    try:
        text = (await settings_at(admin, address)).get("messageDelayLevel")
    except (PeerLost, RefusedByBroker):
        return None
    return None if text is None else DelayLevels.or_defaults(text)


async def _traces(admin: AdminSession, one_id: str) -> list[TraceRecord]:
    if TRACE_TOPIC not in await admin.topics():
        return []
    return traces_in(await messages_by_key(admin, TRACE_TOPIC, one_id))


async def _place(client: ClusterClient, admin: AdminSession, group: str, message: StoredMessage) -> GroupPlace:
    brokers = {at.address: at.name for at in (await admin.clusters()).masters()}
    offset = None
    if (broker := brokers.get(str(message.store_host))) is not None:
        queue = MessageQueue(message.topic, broker, message.queue_id)
        offset = await BrokerCalls(client).group_offset(group, queue)
    return GroupPlace(group, message.topic, message.queue_id, message.queue_offset, offset)
