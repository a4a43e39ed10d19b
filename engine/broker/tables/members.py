"""Who is connected as what: producers and consumers by group, from their heartbeats (ProducerManager, ConsumerManager).

A member is a connection; it goes when the connection closes, or EXPIRED_MS after its last heartbeat. Members of a group
are told when others come, go, or subscribe to something else.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.dataclass import dataclass
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.broker.net.connection import Connection

EXPIRED_MS = 120_000
_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_MODELS = ("BROADCASTING", "CLUSTERING")
_STARTS = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""What consumers say of themselves (ConsumeType, MessageModel, ConsumeFromWhere); another word counts as none."""


@dataclass(slots=True)
class Client:
    """One client on one connection."""

    client_id: str
    language: str
    version: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of a topic (SubscriptionData).

    Attributes:
        entry: the whole of it as JSON, not as objects: with ten thousands of them each search for garbage takes long.
    """

    topic: str
    expression: str = "*"
    kind: str = "TAG"
    version: int = 0
    entry: bytes = field(default=b"{}", compare=False)

    @classmethod
    def of_json(cls, entry: dict[str, Any]) -> Subscription:
        """From a heartbeat. Raises Answer: a version that is no number, a text that is none."""
        kind, version = entry.get("expressionType"), fields.whole(entry, "subVersion", 0)
        whole = {
            "classFilterMode": entry.get("classFilterMode") is True,
            "codeSet": _codes(entry),
            "expressionType": "TAG" if kind is None else str(kind),
            "subString": entry.get("subString"),
            "subVersion": version,
            "tagsSet": _list(entry, "tagsSet"),
            "topic": entry.get("topic"),
        }
        try:
            text = orjson.dumps({name: value for name, value in whole.items() if value is not None})
        except orjson.JSONEncodeError as error:  # what only fastjson reads: half a surrogate pair
            raise Answer(ResponseCode.SYSTEM_ERROR, f"malformed subscription: {error}") from None
        return cls(
            str(entry.get("topic", "")),
            str(entry.get("subString") or "*"),
            str(whole["expressionType"]),
            version,
            text,
        )


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group and what they want."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


def _list(body: dict[str, Any], name: str) -> list[Any]:
    entries = body.get(name) or []
    if not isinstance(entries, list):
        raise Answer(ResponseCode.SYSTEM_ERROR, f"{name} is not a list")
    return entries


def _codes(body: dict[str, Any]) -> list[int]:
    """The hashes of the tags; some clients send them as text. Raises Answer."""
    return [fields.whole({"codeSet": code}, "codeSet", 0) for code in _list(body, "codeSet")]


def _seen(members: dict[Connection, Client], connection: Connection, client: Client) -> Client:
    """A member, as it came: later heartbeats tell only that it is there. Source: ConsumerGroupInfo#updateChannel."""
    member = members.setdefault(connection, client)
    member.seen_ms = client.seen_ms
    return member


def _one_of(known: tuple[str, ...], word: Any) -> str | None:
    return word if word in known else None


class Members:
    """See the module. For the loop's thread alone.

    Args:
        now_ms: the clock.
        changed: called with the group whose members or subscriptions have changed.
    """

    def __init__(self, now_ms: Callable[[], int], changed: Callable[[ConsumerGroup], None]) -> None:
        self._now_ms = now_ms
        self._tell = changed
        self.producers: dict[str, dict[Connection, Client]] = {}
        self._producer_ids: dict[str, Connection] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producer_of: dict[Connection, set[str]] = {}
        self._consumer_of: dict[Connection, set[str]] = {}

    def groups_with(self, connection: Connection, names: Iterable[str]) -> int:
        """Of how many groups a client is a member, once it is one of these, too."""
        there = self._producer_of.get(connection, set()) | self._consumer_of.get(connection, set())
        return len(there.union(names))

    def heartbeat_producer(self, group: str, connection: Connection, client: Client) -> None:
        """A producer is there."""
        member = _seen(self.producers.setdefault(group, {}), connection, client)
        self._producer_ids[member.client_id] = connection  # no other: that would never be forgotten
        self._producer_of.setdefault(connection, set()).add(group)

    def heartbeat_consumer(
        self,
        group: str,
        connection: Connection,
        client: Client,
        entry: dict[str, Any],
        wanted: Mapping[str, Subscription],
        *,
        notify: bool,
    ) -> None:
        """A consumer is there, and says what it wants, by topic. Source: ConsumerManager#registerConsumer."""
        known = self.consumers.setdefault(group, ConsumerGroup(group))
        known.consume_type = _one_of(_TYPES, entry.get("consumeType"))
        known.message_model = _one_of(_MODELS, entry.get("messageModel"))
        known.consume_from_where = _one_of(_STARTS, entry.get("consumeFromWhere"))
        changed = connection not in known.members
        if not changed and known.members[connection].client_id != client.client_id:
            del known.members[connection]
        _seen(known.members, connection, client)
        self._consumer_of.setdefault(connection, set()).add(group)
        for topic, one in wanted.items():
            old = known.subscriptions.get(topic)
            if old is None:
                changed = True
            if old is None or one.version > old.version:
                known.subscriptions[topic] = one
        for topic in known.subscriptions.keys() - wanted.keys():
            del known.subscriptions[topic]
            changed = True
        if changed and notify:
            self._tell(known)

    def unregister(
        self, connection: Connection, producer_group: str | None, consumer_group: str | None, *, notify: bool = True
    ) -> None:
        """A client leaves. Whether it was a member or not, those that are left are told, as by Apache's broker."""
        if producer_group:
            self._drop_producer(producer_group, connection)
        known = self.consumers.get(consumer_group or "")
        if known is not None:
            self._leave(known, connection)
            if notify:
                self._tell(known)

    def closed(self, connection: Connection) -> None:
        """A connection has gone, and all that it was."""
        for _ in self.leaving(connection):
            pass

    def leaving(self, connection: Connection) -> Iterator[None]:
        """The same, a group a step: a client may have been in thousands."""
        for group in self._producer_of.pop(connection, ()):
            self._drop_producer(group, connection)
            yield
        for group in self._consumer_of.pop(connection, ()):
            known = self.consumers.get(group)
            if known is not None and connection in known.members:
                self._leave(known, connection)
                self._tell(known)
            yield

    def expire(self) -> list[Connection]:
        """Connections from which no heartbeat has come for too long; to be closed by the caller."""
        limit = self._now_ms() - EXPIRED_MS
        every = [*self.producers.values(), *(consumer.members for consumer in self.consumers.values())]
        return list(dict.fromkeys(c for members in every for c, client in members.items() if client.seen_ms < limit))

    def producer(self, client_id: str) -> Connection | None:
        """The connection of a producer by its client id. Source: ProducerManager#findChannel."""
        connection = self._producer_ids.get(client_id)
        return connection if connection is not None and connection.is_open else None

    def groups_subscribed_to(self, topic: str) -> Iterator[str]:
        """Consumer groups that want a topic now."""
        return (group for group, consumer in self.consumers.items() if topic in consumer.subscriptions)

    def _drop_producer(self, group: str, connection: Connection) -> None:
        _discard(self._producer_of, connection, group)
        members = self.producers.get(group, {})
        client = members.pop(connection, None)
        if client is not None and self._producer_ids.get(client.client_id) is connection:
            del self._producer_ids[client.client_id]
        if not members:
            self.producers.pop(group, None)

    def _leave(self, known: ConsumerGroup, connection: Connection) -> None:
        _discard(self._consumer_of, connection, known.name)
        known.members.pop(connection, None)
        if not known.members:
            self.consumers.pop(known.name, None)


def _discard(table: dict[Connection, set[str]], connection: Connection, group: str) -> None:
    """A client isn't in that group any more."""
    groups = table.get(connection)
    if groups is not None:
        groups.discard(group)
        if not groups:
            del table[connection]
