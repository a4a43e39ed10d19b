"""Where a topic's queues are: what a name server answers, and the queues that clients make of it. No I/O.

Source: TopicRouteData, MQClientInstance#topicRouteData2TopicPublishInfo, #topicRouteData2TopicSubscribeInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, parse_int
from engine.wire.peer_object import PeerObject

PERM_READ, PERM_WRITE = 4, 2
MASTER = 0
"""The broker id of a master."""
QUEUES_MAX = 1 << 16
"""Queues of a topic on one broker that are believed."""
ALL_QUEUES_MAX = 1 << 18
"""And on all brokers: a consumer keeps something for each."""


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic on the brokers of one name: numbers of queues, permissions."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """See the module.

    Attributes:
        queues: sorted by broker name, as clients sort them.
        brokers: address by broker id, by broker name.
        clusters: cluster by broker name.
        order: of an ordered topic, `BROKER:QUEUES;…`; empty otherwise.
    """

    queues: tuple[QueueData, ...]
    brokers: Mapping[str, Mapping[int, str]]
    clusters: Mapping[str, str]
    order: str = ""

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a producer may send to, in Apache's order."""
        if self.order:
            return _ordered(topic, self.order)
        return tuple(
            MessageQueue(topic, data.broker, number)
            for data in self.queues
            if data.perm & PERM_WRITE and MASTER in self.brokers.get(data.broker, {})
            for number in range(data.write_queues)
        )

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a consumer reads, sorted."""
        return tuple(
            sorted(
                MessageQueue(topic, data.broker, number)
                for data in self.queues
                if data.perm & PERM_READ
                for number in range(data.read_queues)
            )
        )

    def address(self, broker: str, broker_id: int = MASTER, *, only: bool = False) -> str | None:
        """A broker's address; where that id is not there and not `only` it will do, any other of the name."""
        addresses = self.brokers.get(broker, {})
        if broker_id not in addresses and not only and addresses:
            return addresses[min(addresses)]
        return addresses.get(broker_id)

    def for_a_new_topic(self, queues: int) -> TopicRoute:
        """As the route of TBW102 stands for a topic that a send is to create, with at most so many queues a broker.

        Source: MQClientInstance#updateTopicRouteInfoFromNameServer (isDefault).
        """
        made = []
        for data in self.queues:
            number = min(queues, data.read_queues)
            made.append(replace(data, read_queues=number, write_queues=number))
        return replace(self, queues=tuple(made))


def _ordered(topic: str, order: str) -> tuple[MessageQueue, ...]:
    made = []
    for part in filter(None, order.split(";")):
        broker, _, number = part.partition(":")
        if not number.isascii() or not number.isdecimal() or int(number) > QUEUES_MAX:
            raise FormatError(f"malformed order of topic {topic}: {part[:100]!r} is not BROKER:QUEUES")
        made += [MessageQueue(topic, broker, at) for at in range(int(number))]
    return tuple(made)


def parse_route(body: bytes | memoryview, of: str) -> TopicRoute:
    """The route of a name server's answer. `of`: whose route of what it is, for errors.

    Raises:
        FormatError: it is none.
    """
    route = PeerObject.parse(body, of)
    queues = [
        QueueData(
            one.text("brokerName"),
            one.number("readQueueNums", least=0, most=QUEUES_MAX),
            one.number("writeQueueNums", least=0, most=QUEUES_MAX),
            one.number("perm", least=INT_MIN, most=INT_MAX),
        )
        for one in route.objects("queueDatas")
    ]
    if sum(max(one.read_queues, one.write_queues) for one in queues) > ALL_QUEUES_MAX:
        raise FormatError(f"malformed {of}: more queues than {ALL_QUEUES_MAX}")
    brokers, clusters = {}, {}
    for one in route.objects("brokerDatas"):
        name = one.text("brokerName")
        brokers[name] = addresses(one)
        clusters[name] = one.text("cluster", "")
    order = route.text("orderTopicConf", "")
    return TopicRoute(tuple(sorted(queues, key=lambda one: one.broker)), brokers, clusters, order)


def addresses(broker: PeerObject) -> dict[int, str]:
    """Addresses by broker id, of a BrokerData; -1: of a broker of 5.x before its election. Raises FormatError."""
    table = broker.part("brokerAddrs")
    try:
        return {parse_int(number, LONG_MIN, LONG_MAX): table.text(number) for number in table.fields}
    except ValueError as error:
        raise FormatError(f"malformed {table.of}: {error}") from None
