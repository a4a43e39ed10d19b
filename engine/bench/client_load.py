"""Our client as a load, in a process of its own: `python -m engine.bench.client_load JOB name=value…`.

The jobs and words are those of Served.java, and so is the answer: one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.producer import ProducerSettings
from engine.errors import RStoreError

_TIMEOUT_S = 10.0
_BATCH = 500


def main(words: Sequence[str]) -> int:
    """Run a job. The exit code."""
    job, *pairs = words
    options = dict(pair.split("=", 1) for pair in pairs)
    work = {"serve-send": _send, "serve-push": _push, "fill": _fill}[job]
    try:
        answer = asyncio.run(work(ClientConfig((options["names"],)), options))
    except RStoreError as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps(answer))
    return 0


async def _send(config: ClientConfig, options: Mapping[str, str]) -> dict[str, Any]:
    """So many sends in flight, for `warm` and then `seconds` s."""
    times: list[float] = []
    failed = 0
    body = b"x" * int(options["body"])
    async with ClusterClient(config) as client:
        producer = client.producer("rstore_bench", ProducerSettings(timeout_s=_TIMEOUT_S, retries=0))
        warm_until = time.perf_counter() + int(options["warm"])
        end = warm_until + int(options["seconds"])

        async def send() -> None:
            nonlocal failed
            while (before := time.perf_counter()) < end:
                try:
                    await producer.send(OutgoingMessage(options["topic"], body))
                except RStoreError:
                    failed += before >= warm_until
                else:
                    if before >= warm_until:
                        times.append(time.perf_counter() - before)

        await asyncio.gather(*(send() for _ in range(int(options["callers"]))))
        seconds = time.perf_counter() - warm_until
    return {"seconds": seconds, "messages": len(times), "more": {**_parts(times), "failed": failed}}


async def _push(config: ClientConfig, options: Mapping[str, str]) -> dict[str, Any]:
    """A push consumer takes `count` messages from the first on; timed from its start."""
    count, taken = int(options["count"]), 0
    done = asyncio.Event()

    async def take(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal taken
        taken += len(messages)
        if taken >= count:
            done.set()

    began = time.perf_counter()
    async with (
        ClusterClient(config) as client,
        client.push_consumer(
            "rstore_bench_push_ours", take, ConsumerSettings(start=StartFrom.FIRST_OFFSET)
        ) as consumer,
    ):
        await consumer.subscribe(options["topic"])
        await done.wait()
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "messages": taken, "more": _parts([])}


async def _fill(config: ClientConfig, options: Mapping[str, str]) -> dict[str, Any]:
    """`count` messages in batches: what a consumer finds."""
    began, left = time.perf_counter(), int(options["count"])
    message = OutgoingMessage(options["topic"], b"x" * int(options["body"]))
    async with ClusterClient(config) as client:
        producer = client.producer("rstore_bench", ProducerSettings(timeout_s=_TIMEOUT_S))
        while left > 0:
            await producer.send_batch([message] * min(_BATCH, left))
            left -= _BATCH
    return {"seconds": time.perf_counter() - began, "messages": int(options["count"]), "more": {}}


def _parts(times: list[float]) -> dict[str, float]:
    times.sort()
    places = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {name: 1000 * times[int(part * len(times))] if times else 0.0 for name, part in places.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
