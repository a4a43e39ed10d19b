"""One consumer of a group by our client: NAME-SERVICE GROUP TOPIC FILE concurrent|ordered, as Java's and Go's members.

    python -m tests.compat.member 127.0.0.1:9876 g T /tmp/lines concurrent

It ends, as one that is shut down, with its stdin. FILE: a line a message, written before it counts as consumed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, StartFrom
from engine.client.messages import ReceivedMessage


async def consume(names: str, group: str, topic: str, path: str, how: str) -> None:
    """See the module."""
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def note(messages: Sequence[ReceivedMessage]) -> None:
        for one in messages:
            line = b"%d %d %d %s\n" % (time.time_ns(), one.queue.queue_id, one.queue_offset, one.body)
            os.write(file, line)

    config = ClientConfig((names,), route_period_s=2, heartbeat_period_s=2)
    settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, ordered=how == "ordered", persist_s=1)
    async with ClusterClient(config) as client, client.push_consumer(group, note, settings) as consumer:
        await consumer.subscribe(topic)
        print("started", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:6]))
