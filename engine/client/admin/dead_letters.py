"""Dead letters: messages that a group has failed to consume too often, listed, and given to the group once more.

A dead letter that is sent again goes to the retry topic of its group, so that this group alone gets it. It stays where
it is, too. Source: SendMessageProcessor#handleRetryAndDLQ; mqadmin 4.9.8 has no such command.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.client.admin.known import demand_known
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.topics import topic_status
from engine.client.clock import now_ms
from engine.client.queues import MessageQueue
from engine.client.sending import SendRules, request_of
from engine.client.sending_back import retry_of
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.dataclass import dataclass
from engine.errors import Refused
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX
from engine.format.quantities import counted

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient
    from engine.client.messages import OutgoingMessage, ReceivedMessage

_GROUP = "rstore-admin"
_MOST_BYTES = 256 << 20
"""Bodies that are read into memory at most."""
_MOST_TIMES = 16
"""Failures after which it is a dead letter again. Source: SubscriptionGroupConfig#retryMaxTimes."""


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """The dead letters of a group. `last_ms`: store time of the last; 0: none."""

    group: str
    topic: str
    messages: int
    last_ms: int


async def dead_letter_queues(admin: AdminSession, group: str | None = None) -> tuple[DeadLetterQueue, ...]:
    """All groups that have dead letters, or had.

    Raises:
        InvalidArgument: the group has no dead letters, and never had.
    """
    topics = await _topics(admin, group)
    rows = []
    for topic in topics:
        queues = await topic_status(admin, topic)
        rows.append(
            DeadLetterQueue(
                topic.removeprefix(DLQ_PREFIX),
                topic,
                sum(one.max_offset - one.min_offset for one in queues),
                max((one.last_ms for one in queues), default=0),
            )
        )
    return tuple(rows)


async def _topics(admin: AdminSession, group: str | None) -> list[str]:
    topics = [one for one in await admin.topics() if one.startswith(DLQ_PREFIX)]
    if group is None:
        return topics
    demand_known("group with dead letters", group, [one.removeprefix(DLQ_PREFIX) for one in topics])
    return [DLQ_PREFIX + group]


async def dead_letters(
    client: ClusterClient, admin: AdminSession, group: str, *, since_ms: int | None = None, most: int | None = None
) -> tuple[ReceivedMessage, ...]:
    """The dead letters of a group, oldest first.

    Args:
        since_ms: store time from which on.
        most: at most so many.

    Raises:
        InvalidArgument: the group has no dead letters, and never had. Refused: their topic can't be read, or they have
            more than 256 MiB.
    """
    return await _read(client, admin, group, since_ms, most)


async def _read(
    client: ClusterClient,
    admin: AdminSession,
    group: str,
    since_ms: int | None,
    most: int | None,
    ids: frozenset[str] = frozenset(),
    seen: set[str] | None = None,
) -> tuple[ReceivedMessage, ...]:
    """As `dead_letters`. `ids`: these alone; `seen` gets the ids of all that were read."""
    (topic,) = await _topics(admin, group)
    if not (await admin.demand_topic(topic)).read_queues(topic):
        raise Refused(f"topic {topic} has no read permission", hint="give it permission 6 (admin topic perm)")
    begin = ReadFrom(first=True) if since_ms is None else ReadFrom(time_ms=since_ms)
    letters: list[ReceivedMessage] = []
    size = 0
    async with aclosing(TopicReader(client, topic).messages(begin)) as messages:
        async for one in messages:
            names = {one.id, one.stored.msg_id}
            if seen is not None:
                seen |= names
            if ids and not names & ids:
                continue
            letters.append(one)
            size += len(one.body)
            if most is not None and len(letters) >= 2 * most:  # what is kept stays bounded
                letters = _oldest(letters, most)
                size = sum(len(letter.body) for letter in letters)
            if size > _MOST_BYTES:
                raise Refused(
                    f"the dead letters of group {group} have more than {_MOST_BYTES >> 20} MiB",
                    hint="take some at a time: --limit N, the oldest first",
                )
    return tuple(_oldest(letters, most))


def _oldest(letters: list[ReceivedMessage], most: int | None) -> list[ReceivedMessage]:
    return sorted(letters, key=lambda one: (one.stored.store_timestamp, one.queue_offset))[:most]


async def plan_resend(
    client: ClusterClient,
    admin: AdminSession,
    group: str,
    *,
    since_ms: int | None = None,
    most: int | None = None,
    ids: tuple[str, ...] = (),
) -> AdminPlan:
    """Give dead letters to their group once more.

    Args:
        since_ms, most: as of `dead_letters`.
        ids: these alone, by the producer's id or the broker's.

    Raises:
        InvalidArgument: the group has no dead letters, and never had.
    """
    seen: set[str] = set()
    letters = await _read(client, admin, group, since_ms, None if ids else most, frozenset(ids), seen)
    for name in ids:
        demand_known("dead letter", name, seen)
    masters = {one.name: one for one in (await admin.clusters()).masters()}
    steps = []
    notes = ["they stay in the dead letter queue, too"]
    away = Counter(letter.queue.broker for letter in letters if letter.queue.broker not in masters)
    notes += [
        f"not given: {counted(count, 'message')} of broker {name}, which has no master" for name, count in away.items()
    ]
    for letter in letters:
        at = masters.get(letter.queue.broker)
        if at is None:
            continue
        request = request_of(_again(letter, group), client.new_id(), now_ms(), SendRules(_GROUP))
        fields = request.to(MessageQueue(RETRY_PREFIX + group, at.name, 0))
        words = f"message {letter.id} of topic {letter.topic} is given to group {group} again"
        steps.append(AdminStep.at(at, words, request.code, fields, request.body, sends=True))
    return AdminPlan(f"dead letters of group {group}", tuple(steps), tuple(notes))


def _again(letter: ReceivedMessage, group: str) -> OutgoingMessage:
    """The message for the retry topic of its group, as if it had never failed: delivered at once."""
    return replace(retry_of(letter, group, 0, _MOST_TIMES), delay_level=0)
