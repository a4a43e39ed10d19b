"""The messages that come to topics of a cluster from now on: each topic followed from its end, nothing committed.

Without topics it is all of the cluster that are not the brokers' own, those among them that are made later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from engine.client.admin.session import AdminSession
from engine.client.held_bytes import HeldBytes
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.errors import InvalidArgument, NoRoute, RStoreError
from engine.format.quantities import counted
from engine.format.topic_rules import is_brokers_own

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.messages import ReceivedMessage

MOST_TOPICS = 200
"""Each queue of a topic is a pull that brokers hold."""
_LOOK_S = 5.0
_WAITING = 1
"""A message that is here counts no more as one that its reader holds."""


class ClusterTail:
    """See the module. For the client's loop. `topics`: without namespace; none: all."""

    def __init__(self, client: ClusterClient, topics: Sequence[str]) -> None:
        self._client = client
        self._topics = tuple(dict.fromkeys(topics))
        self._arrived: asyncio.Queue[ReceivedMessage | Exception] = asyncio.Queue(_WAITING)
        self._held = HeldBytes()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begins: dict[str, ReadFrom] = {}

    async def messages(self) -> AsyncGenerator[ReceivedMessage]:
        """Messages as they come, without an end; those of one queue in order.

        Raises:
            NoRoute: a topic that was named is not there. InvalidArgument: the cluster has too many topics to follow.
            PeerLost, RefusedByBroker, FormatError. A broker that is lost is waited for.
        """
        looking: asyncio.Task[None] | None = None
        try:
            if self._topics:
                for topic in self._topics:
                    await self._client.route(self._client.wire_name(topic))
                    self._follow(topic, ReadFrom())
            else:
                await self._look(ReadFrom())
                looking = asyncio.get_running_loop().create_task(self._look_again())
            while True:
                item = await self._arrived.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            tasks = [*self._tasks.values(), *([] if looking is None else [looking])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, begin: ReadFrom) -> None:
        """Follow the topics that there are, and are not followed yet."""
        every = await AdminSession(self._client).topics()
        new = [topic for topic in every if topic not in self._tasks and not is_brokers_own(topic)]
        if len(self._tasks) + len(new) > MOST_TOPICS:
            raise InvalidArgument(
                f"the cluster has {counted(len(self._tasks) + len(new), 'topic')}, at most {MOST_TOPICS} are followed",
                hint="name the topics",
            )
        for topic in new:
            self._follow(topic, self._begins.setdefault(topic, begin))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look(ReadFrom(first=True))
            except InvalidArgument as error:
                await self._arrived.put(error)
            except RStoreError as error:
                self._client.log.warning("%s", error)
            except Exception as error:  # as in TopicReader
                await self._arrived.put(error)
                raise

    def _follow(self, topic: str, begin: ReadFrom) -> None:
        self._tasks[topic] = asyncio.get_running_loop().create_task(self._read(topic, begin))

    async def _read(self, topic: str, begin: ReadFrom) -> None:
        try:
            reader = TopicReader(self._client, topic, held=self._held)
            async with aclosing(reader.messages(begin, follow=True)) as messages:
                async for message in messages:
                    await self._arrived.put(message)
        except NoRoute as error:
            if self._topics:
                await self._arrived.put(error)
            else:  # of all topics, some have no broker now: the next look takes it up again
                del self._tasks[topic]
        except Exception as error:  # noqa: BLE001 - as in TopicReader
            await self._arrived.put(error)
