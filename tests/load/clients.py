"""Producers and consumers that go on through kills and full disks, and tell what was acknowledged and what they got.

    python -m tests.load.clients '{"role": "produce", "names": "127.0.0.1:1", …}'

They are those of `engine.client`; a producer tries nothing again, so that each answer is told. A process runs until its
stdin ends, and says a line of JSON then. Lines on stdin tell it that it sends no more but stays (`{"quiet": true}`),
and to say its line (`{"tell": true}`). Every key is `name-kind-number`; what is to become of a message follows from its
number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import GroupSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.producer import Producer, ProducerSettings, TransactionState
from engine.client.pull_consumer import PullConsumer
from engine.client.pulling import PullStatus
from engine.client.queues import MessageQueue
from engine.client.sending import SendStatus
from engine.errors import NoRoute, PeerLost, RefusedByBroker
from engine.format.names import RETRY_PREFIX

BROKER = "broker-a"
PAUSE_S = 0.05
BEAT_S = 1.0
"""How soon a broker that was restarted knows its clients again."""
ONCE = ProducerSettings(timeout_s=10, retries=0)


@dataclass
class Wanted:
    """What a process does.

    Attributes:
        role: "produce" or "consume".
        names: address of the name server.
        name: of its messages; of its group.
        topic: where.
        queues: so many.
        clients: each has connections of its own.
        body: bytes of a body.
        kind: "plain", "delayed" (1 s), "transaction", "mixed" (each in turn) or "tags" (a, b, c in turn).
        rate: sends of each client a second; None: as fast as they are answered.
        retry_every: a consumer gives every so-many-th message back once.
        hang_up_every: a client ends and another begins after so many requests.
        tags: a consumer's expression.
    """

    role: str
    names: str
    name: str
    topic: str
    queues: int = 4
    clients: int = 1
    body: int = 200
    kind: str = "plain"
    rate: float | None = None
    retry_every: int = 0
    hang_up_every: int = 0
    tags: str = "*"


@dataclass
class Told:
    """What it has seen: keys, codes and remarks of refusals, times in ms."""

    keys: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    gone: int = 0
    moved: int = 0
    skipped: int = 0
    sent_back: int = 0
    times: list[float] = field(default_factory=list)

    def line(self) -> str:
        times = sorted(self.times)
        words = {name: getattr(self, name) for name in ("keys", "doubled", "gone", "moved", "skipped", "sent_back")}
        parts = {f"p{part}": times[min(len(times) - 1, int(len(times) * part / 100))] for part in (50, 99) if times}
        return json.dumps({**words, **parts, "max": times[-1] if times else None, "refused": dict(self.refused)})

    def refuse(self, refusal: RefusedByBroker) -> None:
        self.refused[f"{refusal.response} {refusal.remark}"] += 1


class Process:
    """The clients of one process, in one loop."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.told = Told()
        self.stopped = asyncio.Event()
        self.quiet = False
        self._seen: set[str] = set()
        self._numbers = 0

    async def run(self) -> None:
        work = {"produce": self._produce, "consume": self._consume}[self.wanted.role]
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async with asyncio.TaskGroup() as clients:
            for at in range(self.wanted.clients):
                clients.create_task(self._keep_on(work, at))
            while line := await lines.readline():
                order = json.loads(line)
                self.quiet = order.get("quiet", self.quiet)
                if "tell" in order:
                    print(self.told.line(), flush=True)
            self.stopped.set()
        print(self.told.line(), flush=True)

    async def _keep_on(self, work: Callable[[ClusterClient, int], Awaitable[None]], at: int) -> None:
        config = ClientConfig((self.wanted.names,), heartbeat_period_s=BEAT_S)
        while not self.stopped.is_set():
            try:
                async with ClusterClient(config) as client:
                    await work(client, at)
            except PeerLost:
                await self._lost()

    async def _lost(self) -> None:
        self.told.gone += 1
        await asyncio.sleep(PAUSE_S)

    # --- producing --------------------------------------------------------------------------------------------------

    async def _produce(self, client: ClusterClient, at: int) -> None:
        wanted = self.wanted
        body = random.Random(at).randbytes(wanted.body)
        producer = client.producer(wanted.name, ONCE, check=lambda half: outcome(half.id))
        sent = 0
        next_at = time.monotonic()
        while not self.stopped.is_set() and (not wanted.hang_up_every or sent < wanted.hang_up_every):
            if self.quiet:
                await asyncio.sleep(PAUSE_S)
                continue
            self._numbers += 1
            sent += 1
            await self._send(producer, self._numbers, body)
            if wanted.rate:
                next_at = max(next_at + 1 / wanted.rate, time.monotonic() - 1)
                await asyncio.sleep(max(0, next_at - time.monotonic()))

    async def _send(self, producer: Producer, number: int, body: bytes) -> None:
        wanted = self.wanted
        kind = ("plain", "delayed", "transaction")[number % 3] if wanted.kind == "mixed" else wanted.kind
        key = f"{wanted.name}-{kind}-{number}"
        tag = "abc"[number % 3] if kind == "tags" else "a"
        level = 1 if kind == "delayed" else 0
        message = OutgoingMessage(wanted.topic, body, tag, (key,), delay_level=level, system={"UNIQ_KEY": key})

        def settle(_: OutgoingMessage) -> TransactionState:
            self.told.keys.append(key)  # acknowledged, even if the end of the transaction does not arrive
            return outcome(key) if number % 2 == 0 else TransactionState.UNKNOWN  # the others are asked for

        began = time.monotonic()
        try:
            if kind == "transaction":
                result, _ = await producer.send_transaction(message, settle)
            else:
                queue = MessageQueue(wanted.topic, BROKER, number % wanted.queues)
                result = await producer.send(message, queue=queue)
                if result.status is SendStatus.SEND_OK:
                    self.told.keys.append(key)
        except RefusedByBroker as refusal:
            self.told.refuse(refusal)
            await asyncio.sleep(PAUSE_S)
        except (PeerLost, NoRoute):
            await self._lost()
            return
        else:
            if result.status is not SendStatus.SEND_OK:
                self.told.refused[result.status.name] += 1
        self.told.times.append((time.monotonic() - began) * 1000)

    # --- consuming --------------------------------------------------------------------------------------------------

    async def _consume(self, client: ClusterClient, at: int) -> None:
        """Pulls the queues of its share, each with one request that may be held."""
        wanted = self.wanted
        retry = RETRY_PREFIX + wanted.name
        mine = [MessageQueue(wanted.topic, BROKER, queue_id) for queue_id in range(at, wanted.queues, wanted.clients)]
        mine += [MessageQueue(retry, BROKER, 0)] if at == 0 else []
        enough = asyncio.Event()
        settings = GroupSettings(start=StartFrom.FIRST_OFFSET, persist_s=BEAT_S)
        async with client.pull_consumer(wanted.name, settings) as consumer, asyncio.TaskGroup() as group:
            for topic in (wanted.topic, retry):
                await consumer.register(topic)
            left = iter(range(wanted.hang_up_every or sys.maxsize))
            tasks = [group.create_task(self._pull(consumer, queue, left, enough)) for queue in mine]
            ends = [group.create_task(one.wait()) for one in (enough, self.stopped)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, *ends):
                task.cancel()

    async def _pull(
        self, consumer: PullConsumer, queue: MessageQueue, left: Iterator[int], enough: asyncio.Event
    ) -> None:
        """Pull a queue until there are enough pulls of all. `left`: pulls that are not begun yet."""
        at: int | None = None
        while True:
            try:
                if at is None:
                    at = await consumer.committed(queue) or await consumer.min_offset(queue)
                if next(left, None) is None:
                    enough.set()
                    return
                result = await consumer.pull(queue, at, self.wanted.tags, wait=True)
            except NoRoute:  # nobody has sent anything yet
                await asyncio.sleep(PAUSE_S)
                continue
            except PeerLost:
                await self._lost()
                continue
            except RefusedByBroker as refusal:
                self.told.refuse(refusal)
                await asyncio.sleep(PAUSE_S)
                continue
            if result.status is PullStatus.OFFSET_ILLEGAL:
                self.told.moved += 1
                self.told.skipped += max(0, result.next_offset - at)
            for message in result.messages:
                await self._got(consumer, message)
            at = result.next_offset
            consumer.update_offset(queue, at)

    async def _got(self, consumer: PullConsumer, message: ReceivedMessage) -> None:
        (key,) = message.keys
        every = self.wanted.retry_every
        if every and number_of(key) % every == 0 and not message.reconsume_times:
            try:
                await consumer.send_back(message, 1)
            except (PeerLost, RefusedByBroker):
                pass  # it may come again or not: it counts as consumed
            else:
                self.told.sent_back += 1
                return
        if key in self._seen:
            self.told.doubled += 1
        else:
            self._seen.add(key)
            self.told.keys.append(key)


def number_of(key: str) -> int:
    return int(key.rpartition("-")[2])


def rolled_back(key: str) -> bool:
    """Whether a transaction's message is never to be seen."""
    return "-transaction-" in key and number_of(key) % 5 == 0


def outcome(key: str) -> TransactionState:
    """What becomes of a transaction."""
    return TransactionState.ROLLBACK if rolled_back(key) else TransactionState.COMMIT


def main() -> None:
    logging.getLogger("rstore.client").addHandler(logging.NullHandler())  # what it meets is told, not logged
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(Process(Wanted(**wanted)).run())


if __name__ == "__main__":
    main()
