"""Which queues of a topic a consumer of a group reads: the six strategies of 4.9.8. No I/O, no state.

Every consumer computes it for itself from the same two sorted lists, queues and client ids, and takes its own share:
what all consumers compute together covers each queue once. So each strategy gives to the letter what Apache's class
gives; `tests/compat/test_allocation.py` holds them against the classes of the jar.

Source: AllocateMessageQueueStrategy and what implements it (client/consumer/rebalance), ConsistentHashRouter.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from engine.client.queues import MessageQueue
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.hashing import java_order

VIRTUAL_NODES = 10
"""Places of a client on the ring of consistent hashing. Source: AllocateMessageQueueConsistentHash."""
_HASH_BYTES = 4
_ROOM_PARTS = 2


class Strategy(Protocol):
    """A strategy of allocation.

    Attributes:
        name: Apache's (getName): the broker is told it, and mqadmin shows it.
    """

    @property
    def name(self) -> str: ...

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """The queues of `client_id`. Both lists are sorted.

        Raises:
            InvalidArgument: one of them is empty, or the strategy can't tell where one of them belongs.
        """
        ...


def _takes_part(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> bool:
    """Whether there is anything to share. Source: AbstractAllocateMessageQueueStrategy#check."""
    if not client_id or not queues or not clients:
        raise InvalidArgument("an allocation needs a client id, queues and clients")
    return client_id in clients


@dataclass(frozen=True, slots=True)
class Averagely:
    """Neighbouring queues to each client, as many as to the others or one more. Apache's default."""

    name: str = "AVG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy."""
        if not _takes_part(client_id, queues, clients):
            return []
        at = clients.index(client_id)
        each, more = divmod(len(queues), len(clients))
        start = at * each + min(at, more)
        return list(queues[start : start + each + (at < more)])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Queues dealt out one after another, round and round."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy."""
        if not _takes_part(client_id, queues, clients):
            return []
        return list(queues[clients.index(client_id) :: len(clients)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """The queues that this client was given by its configuration, whoever else there is."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy. Raises nothing."""
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Queues of brokers whose name is `ROOM@NAME`, of the rooms given; others are read by nobody."""

    rooms: Collection[str]
    name: str = "MACHINE_ROOM"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy."""
        if not _takes_part(client_id, queues, clients):
            return []
        near = [queue for queue in queues if self._is_near(queue.broker)]
        at = clients.index(client_id)
        each, more = divmod(len(near), len(clients))
        left = near[each * len(clients) + at : each * len(clients) + at + 1] if at < more else []
        return near[at * each : (at + 1) * each] + left

    def _is_near(self, broker: str) -> bool:
        parts = broker.split("@")
        while parts and not parts[-1]:  # as Java's split, which leaves out what is empty at the end
            parts.pop()
        return len(parts) == _ROOM_PARTS and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues to the clients of their own room, by another strategy; those of rooms without a client to all.

    Attributes:
        strategy: shares within a room.
        room_of_broker, room_of_client: where a broker name, a client id stands.
    """

    strategy: Strategy
    room_of_broker: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        """Apache's, with the inner strategy's."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy."""
        if not _takes_part(client_id, queues, clients):
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room(self.room_of_broker(queue), str(queue)), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for client in clients:
            clients_of.setdefault(_room(self.room_of_client(client), client), []).append(client)
        own_room = self.room_of_client(client_id)
        own = queues_of.pop(own_room, None)
        mine = self.strategy.allocate(client_id, own, clients_of[own_room]) if own else []
        for room in sorted(queues_of, key=java_order):
            if room not in clients_of:
                mine += self.strategy.allocate(client_id, queues_of[room], clients)
        return mine


def _room(room: str, whose: str) -> str:
    if not room:
        raise InvalidArgument(f"nobody knows in which machine room {whose} stands")
    return room


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Queues to the client that comes next on a ring of hashes: few queues move when a client comes or goes."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        """See Strategy."""
        if not _takes_part(client_id, queues, clients):
            return []
        ring = self._ring(clients)
        if not ring:
            return []
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect.bisect_left(places, _ring_hash(str(queue))) % len(places)]] == client_id
        ]

    def _ring(self, clients: Sequence[str]) -> dict[int, str]:
        ring: dict[int, str] = {}
        for client in clients:
            held = sum(owner == client for owner in ring.values())  # of a client id that is there twice
            for number in range(held, held + self.virtual_nodes):
                ring[_ring_hash(f"{client}-{number}")] = client
        return ring


def _ring_hash(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_BYTES], "big")


BY_NAME: dict[str, Strategy] = {one.name: one for one in (Averagely(), AveragelyByCircle(), ConsistentHash())}
"""The strategies that need no configuration."""
