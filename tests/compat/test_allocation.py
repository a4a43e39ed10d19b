"""Ten thousand random clusters, shared out by our strategies and by the classes of Apache's client."""

from __future__ import annotations

import json
import subprocess
from random import Random
from typing import Any

import pytest

from engine.client.allocate import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
)
from engine.client.queues import MessageQueue
from engine.errors import InvalidArgument
from tests.compat import served, toolchain

pytestmark = pytest.mark.interop

CLUSTERS = 10_000
ROOMS = ("", "r1", "r2", "é3", "r4@x")


def cluster(seed: int) -> dict[str, Any]:
    """Queues, clients (sorted, as a member sorts them), which clients ask: one of them may be unknown."""
    rng = Random(f"cluster {seed}")
    most = rng.choice((1, 3, 8, 40))
    brokers = [f"{rng.choice(ROOMS)}@b{i}" if rng.random() < 0.9 else f"b{i}" for i in range(rng.randint(1, 5))]
    queues = sorted(
        {MessageQueue(rng.choice(("T", "%RETRY%G")), rng.choice(brokers), rng.randrange(most)) for _ in range(most)}
    )
    clients = sorted({f"{rng.choice(ROOMS)}@c{rng.randrange(999)}" for _ in range(rng.choice((1, 2, 5, 12)))})
    if rng.random() < 0.05:
        clients = []
    return {
        "queues": [queue._asdict() for queue in queues],
        "clients": clients,
        "asked": [*clients[:4], *clients[-1:], "unknown@c"],
        "rooms": sorted(rng.sample(ROOMS, rng.randint(0, 4))),
        "nodes": rng.choice((0, 1, 10, 10, 30)),
    }


def room(name: str) -> str:
    return name.partition("@")[0] if "@" in name else ""


def strategies(made: dict[str, Any], queues: list[MessageQueue]) -> list[Strategy]:
    def nearby(inner: Strategy) -> Strategy:
        return MachineRoomNearby(inner, lambda queue: room(queue.broker), room)

    return [
        Averagely(),
        AveragelyByCircle(),
        ByConfig(tuple(queues[: len(queues) // 2])),
        ByMachineRoom(frozenset(made["rooms"])),
        nearby(Averagely()),
        nearby(AveragelyByCircle()),
        ConsistentHash(made["nodes"]),
    ]


def share(strategy: Strategy, client: str, queues: list[MessageQueue], clients: list[str]) -> list[int] | str:
    try:
        return [queues.index(queue) for queue in strategy.allocate(client, queues, clients)]
    except InvalidArgument:
        return "IllegalArgumentException"


def ours(made: dict[str, Any]) -> list[Any]:
    queues = [MessageQueue(**one) for one in made["queues"]]
    return [
        [strategy.name, [share(strategy, client, queues, made["clients"]) for client in made["asked"]]]
        for strategy in strategies(made, queues)
    ]


def test_shares_are_those_of_apaches_classes() -> None:
    try:
        command = served.java_client("Allocations", options=("-Dfile.encoding=UTF-8",))
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    clusters = [cluster(seed) for seed in range(CLUSTERS)]
    lines = "".join(json.dumps(made) + "\n" for made in clusters)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == CLUSTERS
    for seed, (made, theirs) in enumerate(zip(clusters, answers, strict=True)):
        assert ours(made) == theirs, (seed, made)
    shares = [share for theirs in answers for _, every in theirs for share in every]
    assert {type(share) for share in shares} == {list, str}
    assert {name for theirs in answers for name, _ in theirs} == {
        *("AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH"),
        *("MACHINE_ROOM_NEARBY-AVG", "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"),
    }
