"""What a copy will do: topics, their queues and where each goes, what is left out. Nothing is changed.

Each queue of the source goes to a queue of the target that no other one shares, so that a consumer offset has one
counterpart: a topic that has too few queues at the target gets more.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from engine.client.admin.session import AdminSession
from engine.client.admin.topics import consumers_of
from engine.client.calls import BrokerCalls
from engine.client.queues import MessageQueue
from engine.client.routes import PERM_READ, PERM_WRITE, QUEUES_MAX
from engine.copying.clusters import brokers_of, places_of, topics_of, why_left_out
from engine.copying.progress import CopyProgress
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NoRoute, NotFound, PeerLost, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from engine.client.client import ClusterClient
    from engine.client.routes import TopicRoute
    from engine.copying.marker import BrokerPlace


@dataclass(frozen=True, slots=True)
class CopiedQueue:
    """A queue of the source. Offsets of the source: of its first message, of the next to be copied, its end.

    `copied`: whether an earlier run has begun with it.
    """

    source: MessageQueue
    target: MessageQueue
    first: int
    following: int
    end: int
    copied: bool = False

    @property
    def messages(self) -> int:
        """Queue offsets that are left to be copied."""
        return max(0, self.end - max(self.first, self.following))


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A topic. `makes`: queues that a broker of the target is to have of it, by name. `groups`: with offsets in it."""

    name: str
    queues: tuple[CopiedQueue, ...]
    groups: tuple[str, ...]
    makes: Mapping[str, int]
    perm: int
    ordered: bool


@dataclass(frozen=True, slots=True)
class AwayBroker:
    """A broker of the source whose master is not registered: neither messages nor offsets of its queues are copied.

    `queues`: those that the name servers or the offset map know.
    """

    name: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """See the module. `left_out`: topics that are not copied, and why. `resumes`: there is a map."""

    source: Mapping[str, BrokerPlace]
    target: Mapping[str, BrokerPlace]
    topics: tuple[CopiedTopic, ...]
    left_out: Mapping[str, str]
    away: tuple[AwayBroker, ...]
    progress: CopyProgress
    resumes: bool

    @property
    def messages(self) -> int:
        """Queue offsets that are left to be copied."""
        return sum(queue.messages for topic in self.topics for queue in topic.queues)


async def plan_copy(
    source: ClusterClient, target: ClusterClient, globs: Sequence[str], kept: CopyProgress | None
) -> CopyPlan:
    """What is to be done.

    Args:
        globs: of topics; one of them has to match.
        kept: what an earlier run left.

    Raises:
        Refused: source and target are one cluster. NotFound: no topic is to be copied, or a queue is not at the target.
        InvalidArgument: the map is of another copy. PeerLost: a broker of the target is away, or does not answer.
        NoRoute, RefusedByBroker, FormatError.
    """
    brokers = await brokers_of(source)
    here, there = places_of(brokers), places_of(await brokers_of(target))
    own = {name for one in brokers.brokers for name in (one.cluster, one.name)}
    _demand_two(here.values(), there.values())
    names = ([place.name for place in here.values()], [place.name for place in there.values()])
    progress = kept or CopyProgress.new(*names)
    if not (set(progress.source) & set(names[0]) and set(progress.target) & set(names[1])):
        raise InvalidArgument(
            f"the offset map is of a copy from {', '.join(progress.source)} to {', '.join(progress.target)}",
            hint="give this copy a directory of its own: --progress DIR",
        )
    topics, left_out = [], {}
    away = {queue for queue in progress.queues if queue.broker not in here and _is_meant(queue.topic, globs)}
    for topic in await topics_of(source):
        if not _is_meant(topic, globs):
            continue
        reason = why_left_out(topic, own)
        if reason is not None:
            left_out[topic] = reason
            continue
        route = await source.route(topic)
        away.update(queue for queue in route.read_queues(topic) if queue.broker not in here)
        topics.append(await _topic(source, target, topic, here, there, progress))
    if not topics and not away:
        more = f"; {len(left_out)} of the brokers themselves are left out" if left_out else ""
        raise NotFound(f"the source has no topic {', '.join(globs)}{more}")
    return CopyPlan(here, there, tuple(topics), left_out, _by_broker(away), progress, kept is not None)


def _is_meant(topic: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, glob) for glob in globs)


def _by_broker(away: Collection[MessageQueue]) -> tuple[AwayBroker, ...]:
    names = sorted({queue.broker for queue in away})
    return tuple(AwayBroker(name, tuple(sorted(one for one in away if one.broker == name))) for name in names)


def _demand_two(here: Iterable[BrokerPlace], there: Iterable[BrokerPlace]) -> None:
    shared = {place.address for place in here} & {place.address for place in there}
    if shared:
        raise Refused(
            f"source and target are one cluster: broker {min(shared)} is in both",
            hint="give --to the name servers of another cluster",
        )


async def _topic(
    source: ClusterClient,
    target: ClusterClient,
    topic: str,
    here: Mapping[str, BrokerPlace],
    there: Mapping[str, BrokerPlace],
    progress: CopyProgress,
) -> CopiedTopic:
    route = await source.route(topic)
    queues = route.read_queues(topic)
    try:
        known = await target.route(topic)
        is_new = not known.write_queues(topic)
    except NoRoute:
        known, is_new = None, True
    makes: dict[str, int] = {}
    if known is not None and not is_new:
        makes = _grown(known, topic, len(queues))
    elif queues:
        each = -(-len(queues) // len(there))
        makes = dict.fromkeys(sorted(there), each)
    free = list(known.write_queues(topic)) if known is not None and not makes else _after(known, topic, makes)
    earlier = {one.source: one.target for one in progress.queues.values()}
    for queue in queues:
        if queue in earlier and earlier[queue].broker not in there:
            raise PeerLost(
                f"broker {earlier[queue].broker} of the target, which has queues of topic {topic}, has no master",
                hint="start it, and run the same command again; or begin a new copy: --progress DIR",
            )
    targets = pair(queues, free, earlier)
    calls = BrokerCalls(source)
    planned = []
    for queue in queues:
        if queue.broker not in here:
            continue
        first, end = await calls.min_offset(queue), await calls.max_offset(queue)
        kept = progress.queues.get(queue)
        following = first if kept is None else kept.map.following
        planned.append(CopiedQueue(queue, targets[queue], first, following, end, kept is not None))
    perm = max((data.perm for data in route.queues), default=PERM_READ | PERM_WRITE)
    groups = await consumers_of(AdminSession(source), route, topic)
    return CopiedTopic(topic, tuple(planned), groups, makes, perm, bool(route.order))


def _grown(known: TopicRoute, topic: str, needed: int) -> dict[str, int]:
    """Queues that brokers are to have, where the topic has too few; nothing otherwise."""
    if len(known.write_queues(topic)) >= needed:
        return {}
    brokers = sorted({queue.broker for queue in known.write_queues(topic)})
    each = -(-needed // len(brokers))
    return {data.broker: max(each, data.write_queues) for data in known.queues if data.broker in brokers}


def _after(known: TopicRoute | None, topic: str, makes: Mapping[str, int]) -> list[MessageQueue]:
    """The queues to write to once `makes` is done."""
    if any(number > QUEUES_MAX for number in makes.values()):
        raise InvalidArgument(f"topic {topic} would need more queues on a broker than {QUEUES_MAX}")
    return [MessageQueue(topic, broker, number) for broker in sorted(makes) for number in range(makes[broker])]


def pair(
    queues: Sequence[MessageQueue], free: Collection[MessageQueue], kept: Mapping[MessageQueue, MessageQueue]
) -> dict[MessageQueue, MessageQueue]:
    """A queue of the target for each of the source: as kept, else the one of the same broker's name and number, else
    the next one that no other has.

    Raises:
        NotFound: a queue that the map names is not at the target any more.
    """
    made = {queue: kept[queue] for queue in queues if queue in kept}
    for queue in made.values():
        if queue not in free:
            raise NotFound(
                f"queue {queue.topic}/{queue.queue_id} of {queue.broker} is not at the target any more",
                hint="begin a new copy: --progress DIR with another directory",
            )
    left = dict.fromkeys(one for one in free if one not in set(kept.values()))
    rest = [queue for queue in queues if queue not in made]
    for queue in rest:
        if queue in left:
            del left[queue]
            made[queue] = queue
    for queue in rest:
        if queue not in made:
            made[queue] = next(iter(left))
            del left[made[queue]]
    return made
