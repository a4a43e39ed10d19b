"""A consumer whose handler is slow holds as much in memory as its flow limits say, however much the topic has."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from engine.client.messages import OutgoingMessage
from tests.engine.client.clusters import PATIENT, cluster

BODY, COUNT = 128 << 10, 480
"""60 MiB."""
LIMIT = 4 << 20
MOST_KIB = 24 << 10
"""What is held, twice as it comes from the network, and the memory that Python keeps for itself."""
NONE = 1 << 40
LIMITS = {"size": (LIMIT, NONE, NONE), "messages": (NONE, LIMIT // BODY, NONE), "span": (NONE, NONE, LIMIT // BODY)}


def test_memory_is_bounded_by_each_flow_limit(tmp_path: Path) -> None:
    async def run() -> dict[str, dict[str, int]]:
        async with cluster(tmp_path / "store", default_topic_queue_nums=1) as (served, client):
            producer = client.producer("P", PATIENT)
            body = os.urandom(BODY)  # it is not compressed
            for _ in range(COUNT // 8):
                await producer.send_batch([OutgoingMessage("T", body)] * 8)
            names = str(served.listening.names)
            return {group: await consume(names, group, limits) for group, limits in LIMITS.items()}

    for limit, told in asyncio.run(run()).items():
        assert told["peak"] - told["before"] < MOST_KIB, (limit, told)


async def consume(names: str, group: str, limits: tuple[int, int, int]) -> dict[str, int]:
    """What slow_consumer says."""
    words = ("-m", "tests.engine.client.slow_consumer", names, group, str(COUNT), *map(str, limits))
    child = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    try:
        out, _ = await asyncio.wait_for(child.communicate(), 120)
    finally:
        if child.returncode is None:
            child.kill()
    assert child.returncode == 0
    told: dict[str, int] = json.loads(out)
    return told
