"""What the client can do, a coroutine a feature: each is run against every kind of broker at once (test_client.py).

They share the brokers: topics and groups are a feature's own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import (
    ConsumeOutcome,
    ConsumerSettings,
    LitePullSettings,
    MessageModel,
    StartFrom,
)
from engine.client.messages import OutgoingMessage, ReceivedMessage, reply_to
from engine.client.producer import ProducerSettings, TransactionState
from engine.client.selecting import by_hash
from engine.client.subscriptions import SQL92
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.client.trace import TRACE_TOPIC, TraceKind, TraceRecord, decode
from engine.errors import InvalidArgument, NoRoute, PeerLost
from engine.format.compression import CompressionType
from engine.format.topic_rules import TBW102
from tests.compat.served import java_client, mqadmin, run_client, running_client

PATIENCE_S = 120
PATIENT = ProducerSettings(timeout_s=30)
"""A send that is tried again on a slow machine could be stored twice."""
FIRST = ConsumerSettings(start=StartFrom.FIRST_OFFSET)


@dataclass(frozen=True, slots=True)
class Peer:
    """A running broker.

    Attributes:
        names: the name service of its cluster.
        root: its store. `directory`: for what a feature keeps.
        java_clients: the class path of Java's clients of its release.
    """

    name: str
    names: str
    root: Path
    directory: Path
    java_clients: str


def until_registered(client: ClusterClient) -> None:
    """Wait until a broker has told the name server of itself: that of RocketMQ 5 may do so 10 s after its start."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), client:
            while True:
                with suppress(NoRoute, PeerLost):  # this has more patience than a request
                    await client.route(TBW102)
                    return
                await asyncio.sleep(0.1)

    asyncio.run(run())


Feature = Callable[[ClusterClient, Peer], Awaitable[None]]
FEATURES: dict[str, Feature] = {}
"""By what the table of CLIENT.md calls them."""


def feature(words: str) -> Callable[[Feature], Feature]:
    """One of FEATURES."""

    def added(work: Feature) -> Feature:
        FEATURES[words] = work
        return work

    return added


class Given:
    """A handler that keeps what it was given; the first `failures` times it fails."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[ReceivedMessage] = []
        self._failures = failures

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
        if self._failures:
            self._failures -= 1
            return ConsumeOutcome.LATER
        self.messages += messages
        return ConsumeOutcome.SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < count:
                await asyncio.sleep(0.02)


@feature("single messages, batches, one way")
async def single_messages_batches_and_one_way(client: ClusterClient, peer: Peer) -> None:
    producer, given = client.producer("P", PATIENT), Given()
    large = b"compressed " * 1000
    await producer.send(OutgoingMessage("Plain", large, "tag", ("k1", "k2"), {"colour": "red"}))
    await producer.send_batch([OutgoingMessage("Plain", b"batch %d" % i) for i in range(3)])
    await producer.send_oneway(OutgoingMessage("Plain", b"one way"))
    async with client.push_consumer("GPlain", given, FIRST) as consumer:
        await consumer.subscribe("Plain")
        await given.until(5)
    first = next(message for message in given.messages if message.body == large)
    assert (first.tags, first.keys, first.application_properties["colour"]) == ("tag", ("k1", "k2"), "red")
    assert sorted(given.bodies) == sorted([large, b"batch 0", b"batch 1", b"batch 2", b"one way"])


@feature("delayed messages")
async def delayed(client: ClusterClient, peer: Peer) -> None:
    given = Given()
    await client.producer("P", PATIENT).send(OutgoingMessage("Late", b"now"))
    async with client.push_consumer("GLate", given, FIRST) as consumer:
        await consumer.subscribe("Late")
        await given.until(1)  # else a start that takes longer than the delay may be given both in any order
        await client.producer("P", PATIENT).send(OutgoingMessage("Late", b"later", delay_level=1))
        await given.until(2)
    assert given.bodies == [b"now", b"later"]
    times = given.messages[1].stored
    assert times.store_timestamp - times.born_timestamp >= 900


@feature("transactions, and what brokers ask for")
async def transactions(client: ClusterClient, peer: Peer) -> None:
    asked: list[str] = []

    async def check(half: ReceivedMessage) -> TransactionState:
        asked.append(half.id)
        return TransactionState.ROLLBACK if half.body == b"out" else TransactionState.COMMIT

    producer, given = client.producer("PT", PATIENT, check=check), Given()
    for body, state in ((b"in", "COMMIT"), (b"out", "ROLLBACK"), (b"asked", "UNKNOWN")):
        message = OutgoingMessage("Tx", body)
        sent, _ = await producer.send_transaction(message, lambda _, state=state: TransactionState[state])
    async with client.push_consumer("GTx", given, FIRST) as consumer:
        await consumer.subscribe("Tx")
        async with asyncio.timeout(PATIENCE_S):
            while set(given.bodies) != {
                b"asked",
                b"in",
            }:  # RocketMQ 5 may ask for what it was told, and store twice
                await asyncio.sleep(0.02)
    assert sent.id in asked


@feature("given again after a failure, in order")
async def again_and_in_order(client: ClusterClient, peer: Peer) -> None:
    producer = client.producer("P", PATIENT)
    for i in range(40):
        await producer.send(OutgoingMessage("Order", b"%03d" % i), select=by_hash("one"))
    ordered, again = Given(failures=2), Given(failures=1)
    async with client.push_consumer("GOrder", ordered, replace(FIRST, ordered=True, suspend_s=0.1)) as consumer:
        await consumer.subscribe("Order")
        await ordered.until(40)
    assert ordered.bodies == [b"%03d" % i for i in range(40)]
    async with client.push_consumer("GAgain", again, replace(FIRST, delay_level=1)) as consumer:
        await consumer.subscribe("Order")
        await again.until(40)
    assert sorted(again.bodies) == ordered.bodies
    assert [message.topic for message in again.messages if message.reconsume_times] == ["Order"]


@feature("filters: tags and SQL92")
async def filters(client: ClusterClient, peer: Peer) -> None:
    producer, tags, sql = client.producer("P", PATIENT), Given(), Given()
    for i, tag in enumerate("abc"):
        await producer.send(OutgoingMessage("Filter", tag.encode(), tag, properties={"n": str(i)}))
    async with client.push_consumer("GTags", tags, FIRST) as consumer:
        await consumer.subscribe("Filter", "a || c")
        await tags.until(2)
    async with client.push_consumer("GSql", sql, FIRST) as consumer:
        await consumer.subscribe("Filter", "n >= 1", SQL92)
        await sql.until(2)
        with pytest.raises(InvalidArgument, match="does not take the expression"):
            await consumer.subscribe("Filter", "n >=", SQL92)
        for count, body in ((3, b"e"), (4, b"f")):  # it goes by what it had, also when it asks the queue again
            for given, number in ((b"d", "0"), (body, "3")):
                await producer.send(OutgoingMessage("Filter", given, properties={"n": number}), select=by_hash("one"))
            await sql.until(count)
    assert (sorted(tags.bodies), sorted(sql.bodies)) == ([b"a", b"c"], [b"b", b"c", b"e", b"f"])


@feature("broadcasting, and two consumers of a group")
async def broadcasting_and_two_members(client: ClusterClient, peer: Peer) -> None:
    for i in range(20):
        await client.producer("P", PATIENT).send(OutgoingMessage("Wide", b"%d" % i))
    everything = replace(FIRST, model=MessageModel.BROADCASTING, offsets_in=peer.directory)
    one, two = Given(), Given()
    async with ClusterClient(ClientConfig((peer.names,), instance="other")) as other:
        async with (
            client.push_consumer("GAll", one, everything) as a,
            other.push_consumer("GAll", two, everything) as b,
        ):
            await a.subscribe("Wide")
            await b.subscribe("Wide")
            await asyncio.gather(one.until(20), two.until(20))
        shared = Given()
        async with (
            client.push_consumer("GTwo", shared, FIRST) as a,
            other.push_consumer("GTwo", shared, FIRST) as b,
        ):
            await a.subscribe("Wide")
            await b.subscribe("Wide")
            async with asyncio.timeout(PATIENCE_S):
                while [sum(queue.topic == "Wide" for queue in each.queues) for each in (a, b)] != [2, 2]:
                    await asyncio.sleep(0.05)
                # a queue that changes hands may give messages twice: their number says nothing
                while set(shared.bodies) != {b"%d" % i for i in range(20)}:
                    await asyncio.sleep(0.02)


@feature("a request and its reply")
async def a_request_and_its_reply(client: ClusterClient, peer: Peer) -> None:
    producer = client.producer("P", PATIENT)
    await producer.send(OutgoingMessage("Ask", b"made"))

    async def answer(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if message.body != b"made":
                await producer.send(reply_to(message, b"re: " + message.body))

    async with (
        ClusterClient(ClientConfig((peer.names,), instance="asks")) as other,
        client.push_consumer("GAsk", answer, FIRST) as consumer,
    ):
        await consumer.subscribe("Ask")
        reply = await other.producer("PAsk").request(OutgoingMessage("Ask", b"who?"), timeout_s=PATIENCE_S)
    assert reply.body == b"re: who?"


@feature("namespaces")
async def namespaces(_: ClusterClient, peer: Peer) -> None:
    given = Given()
    async with ClusterClient(ClientConfig((peer.names,), namespace="space")) as client:
        await client.producer("P", PATIENT).send(OutgoingMessage("Inner", b"x"))
        async with client.push_consumer("GInner", given, FIRST) as consumer:
            await consumer.subscribe("Inner")
            await given.until(1)
    assert (given.messages[0].topic, given.messages[0].stored.topic) == ("Inner", "space%Inner")


@feature("lite pull consumer: subscribe, assign, seek, commit")
async def lite_pull(client: ClusterClient, peer: Peer) -> None:
    producer = client.producer("P", PATIENT)
    sent = [await producer.send(OutgoingMessage("Lite", b"%d" % i), select=by_hash("one")) for i in range(20)]
    queue = sent[0].queue
    settings = LitePullSettings(start=StartFrom.FIRST_OFFSET, poll_s=PATIENCE_S)
    bodies: list[bytes] = []
    async with client.lite_pull_consumer("GLite", settings) as consumer:
        await consumer.subscribe("Lite")
        while len(bodies) < 20:
            bodies += [message.body for message in await consumer.poll()]
    assert bodies == [b"%d" % i for i in range(20)]
    async with client.lite_pull_consumer("GLite", replace(settings, auto_commit=False)) as consumer:
        assert await consumer.committed(queue) == 20
        await consumer.assign([queue])
        await consumer.seek(queue, 12)
        assert (await consumer.poll())[0].body == b"12"
        await consumer.seek_to_begin(queue)
        messages = await consumer.poll()
        assert messages[0].body == b"0"
        await consumer.commit()
        assert await consumer.committed(queue) == len(messages)
        with pytest.raises(InvalidArgument, match="has no offset 21"):
            await consumer.seek(queue, 21)


@feature("pull consumer: wait, offsets by time, give back")
async def pull(client: ClusterClient, peer: Peer) -> None:
    producer = client.producer("P", PATIENT)
    sent = [
        await producer.send(OutgoingMessage("Pull", b"%d" % i, "ab"[i % 2]), select=by_hash("one")) for i in range(6)
    ]
    queue = sent[0].queue
    async with client.pull_consumer("GPull") as consumer:
        await consumer.register("Pull")
        assert queue in await consumer.balanced_queues("Pull")
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.max_offset(queue) < 6:
                await asyncio.sleep(0.02)
        result = await consumer.pull(queue, await consumer.min_offset(queue), "b")
        assert [message.body for message in result.messages] == [b"1", b"3", b"5"]
        assert result.next_offset == 6
        waiting = asyncio.create_task(consumer.pull(queue, 6, wait=True))
        await producer.send(OutgoingMessage("Pull", b"new"), queue=queue)
        assert [message.body for message in (await waiting).messages] == [b"new"]
        assert await consumer.offset_at(queue, result.messages[0].stored.store_timestamp) <= 5
        consumer.update_offset(queue, 3)
        await consumer.commit()
        await consumer.send_back(result.messages[0], delay_level=1)
    settings = LitePullSettings(start=StartFrom.FIRST_OFFSET, poll_s=PATIENCE_S)
    async with client.pull_consumer("GPull") as again, client.lite_pull_consumer("GLook", settings) as retried:
        assert await again.committed(queue) == 3
        await retried.subscribe("%RETRY%GPull")
        assert [(one.body, one.reconsume_times) for one in await retried.poll()] == [(b"1", 1)]


async def told_of(client: ClusterClient, wanted: str) -> list[TraceRecord]:
    """What the trace topic has of a message; the first trace makes the topic."""
    made: list[TraceRecord] = []
    with suppress(NoRoute):
        async with aclosing(TopicReader(client, TRACE_TOPIC).messages(ReadFrom(first=True))) as messages:
            async for message in messages:
                made += [record for record in decode(message.body.decode()) if record.id == wanted]
    return made


@feature("traces: ours for mqadmin, Java's for us")
async def traces(client: ClusterClient, peer: Peer) -> None:
    """mqadmin reads what we write, and we read what Java's clients write."""

    async def records(wanted: str, count: int) -> list[TraceRecord]:
        async with asyncio.timeout(PATIENCE_S):
            while len(made := await told_of(client, wanted)) < count:
                await asyncio.sleep(0.1)
            return made

    async def shown(wanted: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                text = await asyncio.to_thread(mqadmin, peer.directory, peer.names, "queryMsgTraceById", "-i", wanted)
                if "GTraced" in text:
                    return text

    given = Given()
    async with ClusterClient(ClientConfig((peer.names,), instance="traced")) as traced:
        producer = traced.producer("PTraced", replace(PATIENT, trace=True))
        sent = await producer.send(OutgoingMessage("Traced", b"x", "tag", ("key-1",)))
        async with traced.push_consumer("GTraced", given, replace(FIRST, trace=True)) as consumer:
            await consumer.subscribe("Traced")
            await given.until(1)
    await records(sent.id, 3)
    text = await shown(sent.id)
    for word in ("Pub", "PTraced", "success"):
        assert word in text, text
    with ExitStack() as stack:
        started = running_client(java_client("Traced", peer.names, "3", "JavaTraced"))
        theirs = await asyncio.to_thread(stack.enter_context, started)
        assert theirs["all"]
        kinds = await records(theirs["ids"][2], 3)
        await asyncio.to_thread(stack.close)
    assert {one.kind for one in kinds} == {TraceKind.SENT, TraceKind.CONSUMING, TraceKind.CONSUMED}
    assert {(one.group, one.keys, one.success) for one in kinds} == {
        ("JavaProducer", "key-2", True),
        ("JavaConsumer", "key-2", True),
    }


@feature("bodies compressed with zlib, lz4 and zstd: ours for Java, Java's for us, both in the store")
async def compression(client: ClusterClient, peer: Peer) -> None:
    bodies = sorted(f"{side} {kind.name}" for side in ("java", "ours") for kind in CompressionType)
    for kind in CompressionType:
        producer, body = client.producer(f"P{kind}", replace(PATIENT, compression=kind)), f"ours {kind.name}" * 2000
        await producer.send(OutgoingMessage("Packed", body.encode(), keys=("packed",)))
    command = java_client("Packed", peer.names, "Packed", str(len(bodies)), class_path=peer.java_clients)
    assert await asyncio.to_thread(run_client, command) == {"all": True, "bodies": bodies}
    given = Given()
    async with client.push_consumer("GPacked", given, FIRST) as consumer:
        await consumer.subscribe("Packed")
        await given.until(len(bodies))
    assert sorted(given.bodies) == [text.encode() * 2000 for text in bodies]
    assert {one.stored.sys_flag for one in given.messages} == {kind.flags for kind in CompressionType}
    query = [sys.executable, "-m", "rstore_cli.app", "--store", str(peer.root), "query", "Packed", "packed"]
    process = await asyncio.create_subprocess_exec(*query, "--decompress", "--json", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert sorted(json.loads(line)["body"] for line in out.splitlines()) == [text * 2000 for text in bodies]
