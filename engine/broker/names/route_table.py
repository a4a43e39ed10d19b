"""The route table of a name service: which brokers there are, and what they serve. No I/O, no clock of its own.

A broker registers again and again; it is forgotten when its connection closes, or LIVE_MS after its last registration.
Its topics are taken over when its data version has changed, and topics that are missing from a later registration stay
until the broker goes, or somebody deletes them. Source: RouteInfoManager (4.9.8); BROKER.md 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import PERM_WRITE, READ_WRITE, TopicConfig
from engine.dataclass import dataclass

LIVE_MS = 120_000
MASTER = 0


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says of itself.

    Attributes:
        owner: the connection that it came by; None: this process, which never expires.
        whole: whether topics that are missing are gone. `gone`: those that are, where only changes are told.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    topics: Mapping[str, TopicConfig]
    filter_servers: tuple[str, ...] | None = None
    owner: Hashable | None = None
    whole: bool = False
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class _Live:
    seen_ms: int
    version: DataVersion
    owner: Hashable | None
    ha_address: str


@dataclass(slots=True)
class _Broker:
    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerAddrs": {str(number): address for number, address in sorted(self.addresses.items())},
            "brokerName": self.name,
            "cluster": self.cluster,
        }


@dataclass(slots=True)
class _Queues:
    """How a topic is there on one broker name (QueueData)."""

    read: int
    write: int
    perm: int
    sys_flag: int

    def to_json(self, broker: str) -> dict[str, Any]:
        return {
            "brokerName": broker,
            "perm": self.perm,
            "readQueueNums": self.read,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write,
        }


class RouteTable:
    """See the module. `now_ms`: the clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._topics: dict[str, dict[str, _Queues]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._live: dict[str, _Live] = {}
        self._filters: dict[str, tuple[str, ...]] = {}

    # --- brokers come and go ----------------------------------------------------------------------------------------

    def register(self, registration: Registration) -> tuple[str, str] | None:
        """A broker is there. For a slave: its master's HA address and address, where they are known.

        Source: #registerBroker.
        """
        for _ in self.steps(registration):
            pass
        return self.master_of(registration)

    def steps(self, registration: Registration) -> Iterator[None]:
        """The same, a topic a step."""
        broker = self._brokers.get(registration.name)
        first = broker is None or registration.broker_id not in broker.addresses
        if broker is None:
            broker = self._brokers[registration.name] = _Broker(registration.cluster, registration.name)
        for number in [number for number, address in broker.addresses.items() if address == registration.address]:
            del broker.addresses[number]  # it may have changed its part
        broker.addresses[registration.broker_id] = registration.address
        known = self.data_version(registration.address)
        self._live[registration.address] = _Live(
            self._now_ms(), registration.version, registration.owner, registration.ha_address
        )
        if registration.filter_servers:
            self._filters[registration.address] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filters.pop(registration.address, None)
        if registration.broker_id == MASTER and (first or known != registration.version):
            yield from self._take_topics(registration)

    def master_of(self, registration: Registration) -> tuple[str, str] | None:
        """As of `register`."""
        broker = self._brokers.get(registration.name)
        master = None if broker is None else broker.addresses.get(MASTER)
        if registration.broker_id == MASTER or master is None or master not in self._live:
            return None
        return self._live[master].ha_address, master

    def unregister(self, name: str, broker_id: int, address: str) -> None:
        """A broker says good-bye. Source: #unregisterBroker."""
        self._forget(address)
        broker = self._brokers.get(name)
        if broker is not None and broker.addresses.get(broker_id) == address:
            del broker.addresses[broker_id]
            self._drop_if_empty(broker)

    def lost(self, owner: Hashable) -> list[str]:
        """A connection has closed: addresses of brokers that have gone with it. Source: #onChannelDestroy."""
        gone = [address for address, live in self._live.items() if live.owner == owner]
        for address in gone:
            self._gone(address)
        return gone

    def expire(self) -> list[tuple[str, Hashable]]:
        """Brokers that have been silent for too long, and their connections, to be closed by the caller."""
        limit = self._now_ms() - LIVE_MS
        gone = [
            (address, live.owner)
            for address, live in self._live.items()
            if live.owner is not None and live.seen_ms < limit
        ]
        for address, _ in gone:
            self._gone(address)
        return gone

    def owns(self, name: str, broker_id: int, address: str) -> bool:
        """Whether this process itself is that broker, or lives at that address."""
        held = self._live.get(address)
        broker = self._brokers.get(name)
        same = None if broker is None else self._live.get(broker.addresses.get(broker_id, ""))
        return any(live is not None and live.owner is None for live in (held, same))

    def slaves_of(self, name: str) -> list[Hashable]:
        """The connections that the slaves of a broker name have registered by."""
        broker = self._brokers.get(name)
        addresses = () if broker is None else (one for number, one in broker.addresses.items() if number != MASTER)
        owners = (live.owner for one in addresses if (live := self._live.get(one)) is not None)
        return [owner for owner in owners if owner is not None]

    def data_version(self, address: str) -> DataVersion | None:
        """Which state of its topics a broker has registered."""
        live = self._live.get(address)
        return None if live is None else live.version

    def touch(self, address: str) -> None:
        """A broker is there, and nothing has changed."""
        live = self._live.get(address)
        if live is not None:
            live.seen_ms = self._now_ms()

    def _take_topics(self, registration: Registration) -> Iterator[None]:
        name = registration.name
        there = self._topics_of.get(name, {})
        gone = [one for one in there if one not in registration.topics] if registration.whole else registration.gone
        for topic in gone:
            if topic in there:
                self._drop_queues(topic, name)
            yield
        for topic, config in registration.topics.items():
            if registration.owner is not None and name not in self._brokers:
                return  # it has gone meanwhile
            queue_data = _Queues(config.read_queues, config.write_queues, config.perm, config.sys_flag)
            self._topics.setdefault(topic, {})[name] = queue_data
            self._topics_of.setdefault(name, {})[topic] = None
            yield

    def _gone(self, address: str) -> None:
        self._forget(address)
        for broker in list(self._brokers.values()):
            for number in [number for number, one in broker.addresses.items() if one == address]:
                del broker.addresses[number]
            self._drop_if_empty(broker)

    def _forget(self, address: str) -> None:
        self._live.pop(address, None)
        self._filters.pop(address, None)

    def _drop_if_empty(self, broker: _Broker) -> None:
        if not broker.addresses:
            del self._brokers[broker.name]
            for topic in list(self._topics_of.get(broker.name, ())):
                self._drop_queues(topic, broker.name)

    def _drop_queues(self, topic: str, broker: str) -> None:
        queues, topics = self._topics[topic], self._topics_of[broker]
        queues.pop(broker, None)
        topics.pop(topic, None)
        if not queues:
            del self._topics[topic]
        if not topics:
            del self._topics_of[broker]

    # --- changes by hand --------------------------------------------------------------------------------------------

    def set_writable(self, broker: str, *, writable: bool) -> int:
        """Take a broker's topics from producers, or give them back; how many. Source: #operateWritePermOfBroker."""
        entries = [self._topics[topic][broker] for topic in self._topics_of.get(broker, ())]
        for one in entries:
            one.perm = READ_WRITE if writable else one.perm & ~PERM_WRITE
        return len(entries)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster. Source: #deleteTopic."""
        for broker in list(self._topics.get(topic, ())):
            if not cluster or (broker in self._brokers and self._brokers[broker].cluster == cluster):
                self._drop_queues(topic, broker)

    # --- questions --------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> dict[str, Any] | None:
        """TopicRouteData of a topic, None when nobody serves it. Source: #pickupTopicRouteData."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addresses = [address for broker in brokers for address in broker.addresses.values()]
        return {
            "brokerDatas": [broker.to_json() for broker in brokers],
            "filterServerTable": {one: list(self._filters[one]) for one in addresses if one in self._filters},
            "queueDatas": [one.to_json(name) for name, one in queues.items()],
        }

    def cluster_info(self) -> dict[str, Any]:
        """ClusterInfo."""
        return {
            "brokerAddrTable": {name: broker.to_json() for name, broker in self._brokers.items()},
            "clusterAddrTable": self._clusters(),
        }

    def topics(self) -> list[str]:
        """All of them."""
        return list(self._topics)

    def topics_of(self, cluster: str) -> list[str]:
        """Those that a cluster's brokers serve."""
        names = {broker.name for broker in self._brokers.values() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if names & queues.keys()]

    def system_topics(self) -> dict[str, Any]:
        """Topics that are named as clusters and brokers are, and any broker's address. Source: #getSystemTopicList."""
        names = [name for cluster, brokers in self._clusters().items() for name in (cluster, *brokers)]
        addresses = (address for broker in self._brokers.values() for address in broker.addresses.values())
        some = next(addresses, None)
        return {"topicList": names} if some is None else {"brokerAddr": some, "topicList": names}

    def unit_topics(self, wanted: Callable[[int], bool]) -> list[str]:
        """Topics by the topicSysFlag that one of their brokers has. Source: #topicQueueTableIter."""
        return [topic for topic, queues in self._topics.items() if wanted(next(iter(queues.values())).sys_flag)]

    def _clusters(self) -> dict[str, list[str]]:
        clusters: dict[str, list[str]] = {}
        for broker in self._brokers.values():
            clusters.setdefault(broker.cluster, []).append(broker.name)
        return clusters


def with_permission(topics: Iterable[TopicConfig], permission: int) -> dict[str, TopicConfig]:
    """Topics as a broker registers them: one that may not read or write gives all of them its own permission.

    Source: BrokerController#registerBrokerAll.
    """
    if permission & READ_WRITE == READ_WRITE:
        return {topic.name: topic for topic in topics}
    return {topic.name: TopicConfig(topic.name, topic.read_queues, topic.write_queues, permission) for topic in topics}
