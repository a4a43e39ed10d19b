"""A client and the daemon that it talks to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from engine.broker.serve import Daemon
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from tests.engine.broker.client import daemon

PATIENT = ProducerSettings(timeout_s=60)
"""On a busy machine a send that is tried again could be stored twice."""


@asynccontextmanager
async def cluster(root: Path, namespace: str = "", **settings: object) -> AsyncIterator[tuple[Daemon, ClusterClient]]:
    """A running daemon on free ports, and a client of it. It refuses no send because the machine is busy."""
    async with (
        daemon(root, **{"send_wait_ms": 60_000, **settings}) as served,  # type: ignore[arg-type]
        client_of(served, namespace) as client,
    ):
        yield served, client


def client_of(served: Daemon, namespace: str = "", instance: str | None = None) -> ClusterClient:
    """Another client of a daemon."""
    names = served.listening.names
    assert names is not None
    return ClusterClient(ClientConfig((names,), namespace, instance=instance))


async def send(client: ClusterClient, count: int, topic: str = "T", group: str = "P") -> list[bytes]:
    """Messages with the bodies 0, 1, … to a topic, some at a time; returns the bodies."""
    producer = client.producer(group, PATIENT)
    bodies = [b"%d" % i for i in range(count)]
    await asyncio.gather(*(producer.send(OutgoingMessage(topic, body)) for body in bodies))
    return bodies


def talk(root: Path, work: Callable[[Daemon, ClusterClient], Awaitable[None]], **settings: object) -> None:
    """Run a daemon and a client of it, and `work` with both."""

    async def run() -> None:
        async with cluster(root, **settings) as (served, client):
            await work(served, client)

    asyncio.run(run())
