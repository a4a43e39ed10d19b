"""Clients that are connected: producers, consumers, and what a consumer says of itself.

Source: ConsumerConnectionSubCommand, ProducerConnectionSubCommand, ConsumerStatusSubCommand, ProducerSubCommand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.client.admin.session import LONG_S, answer_of, json_of
from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import NotFound
from engine.format.numbers import INT_MAX
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.peer_object import PeerObject

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession

_V4_0_0 = 213
"""The number of that version; each release has two numbers, for its snapshot and for itself."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client of a group. `last_ms`: when a broker has last heard of it; 0: it does not say."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    version_number: int
    last_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupOnline:
    """The consumers of a group. `subscriptions`: expression by topic."""

    group: str
    clients: tuple[ConnectedClient, ...]
    consumes: str = ""
    model: str = ""
    start: str = ""
    subscriptions: Mapping[str, str] | None = None

    @property
    def lowest_version(self) -> str:
        """Of its clients; empty: it has none."""
        return min(self.clients, key=lambda one: one.version_number).version if self.clients else ""


@dataclass(frozen=True, slots=True)
class QueueAtClient:
    """A queue that a consumer has: messages in memory, the offset that it has committed, when it last pulled."""

    topic: str
    broker: str
    queue_id: int
    commit_offset: int
    cached: int
    cached_first: int
    cached_last: int
    locked: bool
    dropped: bool
    last_pull_ms: int
    last_consume_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a consumer says of itself, with Apache's names of properties. `stack`: of its threads, where asked for."""

    group: str
    client_id: str
    properties: Mapping[str, str]
    subscriptions: tuple[Mapping[str, Any], ...]
    queues: tuple[QueueAtClient, ...]
    rates: Mapping[str, Mapping[str, float]]
    stack: str | None


def version_name(number: int) -> str:
    """V4_9_8 for 409; the number itself before 4.0.0. Source: MQVersion#getVersionDesc."""
    if number < _V4_0_0:
        return str(number)
    release = 400 + (number - _V4_0_0 + 1) // 2
    snapshot = "_SNAPSHOT" if (number - _V4_0_0) % 2 else ""
    return f"V{release // 100}_{release // 10 % 10}_{release % 10}{snapshot}"


async def consumers_of_group(admin: AdminSession, group: str) -> GroupOnline:
    """The consumers of a group that any master knows; none where nobody is connected."""
    online: dict[str, ConnectedClient] = {}
    body = PeerObject({}, "")
    for at in (await admin.clusters()).masters():
        answer = await admin.ask(
            at.address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            {"consumerGroup": group},
            also=ResponseCode.CONSUMER_NOT_ONLINE,
        )
        if answer.code == ResponseCode.SUCCESS:
            body = json_of(answer, at.address, RequestCode.GET_CONSUMER_CONNECTION_LIST)
            online |= {one.client_id: one for one in _clients(group, body)}
    return GroupOnline(
        group,
        tuple(online[name] for name in sorted(online)),
        body.text("consumeType", ""),
        body.text("messageModel", ""),
        body.text("consumeFromWhere", ""),
        {topic: one.text("subString", "") for topic, one in body.table("subscriptionTable").items()},
    )


async def online_consumers(admin: AdminSession, group: str) -> GroupOnline:
    """The consumers of a group.

    Raises:
        InvalidArgument: no such group. NotFound: no consumer of it is connected.
    """
    await admin.demand_group(group)
    online = await consumers_of_group(admin, group)
    demand_connected(online, None)
    return online


async def producers_of_group(admin: AdminSession, group: str, topic: str) -> tuple[ConnectedClient, ...]:
    """The producers of a group that brokers of a topic know.

    Raises:
        InvalidArgument: no such topic. NotFound: no producer of the group is connected.
    """
    route = await admin.demand_topic(topic)
    online: dict[str, ConnectedClient] = {}
    for at in await admin.masters_of(route):
        answer = await admin.ask(
            at.address,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            {"producerGroup": group},
            also=ResponseCode.SYSTEM_ERROR,  # the code for a group that nobody knows
        )
        if answer.code == ResponseCode.SUCCESS:
            body = json_of(answer, at.address, RequestCode.GET_PRODUCER_CONNECTION_LIST)
            online |= {one.client_id: one for one in _clients(group, body)}
    if not online:
        raise NotFound(f"no producer of group {group} is connected")
    return tuple(online[name] for name in sorted(online))


async def list_producers(
    admin: AdminSession, cluster: str | None = None, broker: str | None = None
) -> tuple[ConnectedClient, ...]:
    """All producers that masters know. Raises InvalidArgument: no such cluster or broker."""
    online: dict[tuple[str, str], ConnectedClient] = {}
    for at in (await admin.clusters()).masters(cluster, broker):
        groups = (await admin.json(at.address, RequestCode.GET_ALL_PRODUCER_INFO)).part("data")
        for group in groups.fields:
            for one in groups.objects(group):
                client = _client(group, one)
                online[client.group, client.client_id] = client
    return tuple(online[key] for key in sorted(online))


def _clients(group: str, body: PeerObject) -> list[ConnectedClient]:
    return [_client(group, one) for one in body.objects("connectionSet")]


def _client(group: str, one: PeerObject) -> ConnectedClient:
    version = one.number("version", least=0, most=INT_MAX)
    return ConnectedClient(
        group,
        one.text("clientId"),
        (one.text("clientAddr", "") or one.text("remoteIP", "")).removeprefix("/"),
        one.text("language"),
        version_name(version),
        version,
        one.number("lastUpdateTimestamp", default=0),
    )


async def consumer_states(
    admin: AdminSession, group: str, client_id: str | None = None, *, stack: bool = False
) -> tuple[ConsumerState, ...]:
    """What the consumers of a group say of themselves. `client_id`: of this one alone. `stack`: with their threads.

    Raises:
        InvalidArgument: no such group. NotFound: no such consumer is connected.
    """
    await admin.demand_group(group)
    online = await consumers_of_group(admin, group)
    chosen = demand_connected(online, client_id)
    return tuple([await _state(admin, group, one, stack=stack) for one in chosen])


def demand_connected(online: GroupOnline, client_id: str | None) -> list[str]:
    """The ids of a group's consumers, or this one alone. Raises NotFound: it is not connected, or none is."""
    ids = [one.client_id for one in online.clients]
    chosen = [one for one in ids if client_id in (None, one)]
    if not chosen:
        what = "no consumer" if client_id is None else f"no consumer {client_id}"
        hint = f"connected: {', '.join(ids)}" if ids else None
        raise NotFound(f"{what} of group {online.group} is connected", hint=hint)
    return chosen


async def _state(admin: AdminSession, group: str, client_id: str, *, stack: bool) -> ConsumerState:
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "true" if stack else "false"}
    masters = (await admin.clusters()).masters()
    for at in masters:
        answer = await admin.ask(
            at.address,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            fields,
            timeout_s=LONG_S,
            also=None if at == masters[-1] else ResponseCode.SYSTEM_ERROR,  # it is connected to another one
        )
        if answer.code == ResponseCode.SUCCESS:
            break
    return parse_state(group, client_id, answer.body, answer_of(at.address, RequestCode.GET_CONSUMER_RUNNING_INFO))


def parse_state(group: str, client_id: str, body: bytes | memoryview, of: str) -> ConsumerState:
    """What a consumer's answer says. `of`: whose answer it is, for errors. Raises FormatError."""
    table, rest = PeerObject.parse_table(body, "mqTable", of)
    queues = [
        QueueAtClient(
            queue.text("topic"),
            queue.text("brokerName"),
            queue.number("queueId"),
            one.number("commitOffset"),
            one.number("cachedMsgCount"),
            one.number("cachedMsgMinOffset"),
            one.number("cachedMsgMaxOffset"),
            one.flag("locked"),
            one.flag("droped"),
            one.number("lastPullTimestamp"),
            one.number("lastConsumeTimestamp"),
        )
        for queue, one in table
    ]
    rates = {topic: {name: one.real(name) for name in one.fields} for topic, one in rest.table("statusTable").items()}
    return ConsumerState(
        group,
        client_id,
        rest.words("properties"),
        tuple(one.fields for one in rest.objects("subscriptionSet")),
        tuple(sorted(queues, key=lambda one: (one.topic, one.broker, one.queue_id))),
        rates,
        rest.text("jstack", "") or None,
    )


async def holders_of_queues(admin: AdminSession, group: str) -> dict[MessageQueue, str]:
    """Which consumer of a group has which queue. One that does not answer has none."""
    holders: dict[MessageQueue, str] = {}
    for client in (await consumers_of_group(admin, group)).clients:
        state = await _state(admin, group, client.client_id, stack=False)
        holders |= {MessageQueue(one.topic, one.broker, one.queue_id): client.client_id for one in state.queues}
    return holders
