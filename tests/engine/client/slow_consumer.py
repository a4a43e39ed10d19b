"""A process that consumes a topic with a slow handler, and says how much memory that took: `NAMES GROUP COUNT LIMITS`.

LIMITS: size in bytes of what is held of a queue, number of messages, span of offsets.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, StartFrom
from engine.client.messages import ReceivedMessage
from engine.client.process_queue import FlowLimits

_SLOW_S = 0.002


def kib(name: str) -> int:
    """A number of /proc/self/status."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if name in line)


async def consume(names: str, group: str, count: int, size: int, messages: int, span: int) -> None:
    """Until so many messages are consumed."""
    offsets: set[int] = set()
    done = asyncio.Event()

    async def handle(given: Sequence[ReceivedMessage]) -> None:
        await asyncio.sleep(_SLOW_S)
        offsets.update(message.queue_offset for message in given)
        if len(offsets) == count:
            done.set()

    limits = FlowLimits(messages, size, span)
    settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, limits=limits, at_once=1)
    async with (
        ClusterClient(ClientConfig((names,))) as client,
        client.push_consumer(group, handle, settings) as consumer,
    ):
        before = kib("VmRSS")
        await consumer.subscribe("T")
        await done.wait()
    print(json.dumps({"before": before, "peak": kib("VmHWM")}))


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:3], *map(int, sys.argv[3:7])))
