"""What members compute each for itself covers every queue once. (Apache's classes beside: tests/compat.)"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client.allocate import (
    BY_NAME,
    Averagely,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
)
from engine.client.queues import MessageQueue
from engine.errors import InvalidArgument

QUEUES = st.lists(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["r1@a", "r2@b", "r1@c"]), st.integers(0, 30)),
    min_size=1,
    max_size=30,
    unique=True,
).map(sorted)
CLIENTS = st.lists(st.sampled_from([f"r{i % 3}@c{i}" for i in range(12)]), min_size=1, unique=True).map(sorted)


def room(name: str) -> str:
    return name.partition("@")[0]


@given(QUEUES, CLIENTS, st.sampled_from(sorted(BY_NAME)))
def test_each_queue_has_one_member(queues: list[MessageQueue], clients: list[str], name: str) -> None:
    for strategy in (BY_NAME[name], MachineRoomNearby(BY_NAME[name], lambda queue: room(queue.broker), room)):
        shares = [strategy.allocate(client, queues, clients) for client in clients]
        assert sorted(itertools.chain.from_iterable(shares)) == queues


@given(QUEUES, CLIENTS)
def test_shares_differ_by_one_at_most(queues: list[MessageQueue], clients: list[str]) -> None:
    sizes = [len(Averagely().allocate(client, queues, clients)) for client in clients]
    assert max(sizes) - min(sizes) <= 1


@given(QUEUES, CLIENTS)
def test_few_queues_move_when_a_member_comes(queues: list[MessageQueue], clients: list[str]) -> None:
    strategy, more = ConsistentHash(), sorted([*clients, "new"])
    for client in clients:
        assert set(strategy.allocate(client, queues, more)) <= set(strategy.allocate(client, queues, clients))


@given(QUEUES, CLIENTS)
def test_only_queues_of_the_rooms_are_read(queues: list[MessageQueue], clients: list[str]) -> None:
    shares = [ByMachineRoom({"r1"}).allocate(client, queues, clients) for client in clients]
    near = [queue for queue in queues if room(queue.broker) == "r1"]
    assert sorted(itertools.chain.from_iterable(shares)) == near


@pytest.mark.parametrize("strategy", BY_NAME.values(), ids=lambda one: one.name)
def test_what_is_no_cluster(strategy: Strategy) -> None:
    queues = [MessageQueue("T", "a", 0)]
    assert strategy.allocate("unknown", queues, ["c"]) == []
    for wrong in (("", queues, ["c"]), ("c", [], ["c"]), ("c", queues, [])):
        with pytest.raises(InvalidArgument):
            strategy.allocate(*wrong)
    nearby = MachineRoomNearby(strategy, lambda queue: "", room)
    with pytest.raises(InvalidArgument, match="machine room"):
        nearby.allocate("r@c", queues, ["r@c"])


def test_by_config() -> None:
    own = (MessageQueue("T", "a", 0),)
    assert ByConfig(own).allocate("whoever", [], []) == list(own)
