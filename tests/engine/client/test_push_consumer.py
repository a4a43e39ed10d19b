"""Members of groups consume every message: together, each for itself, in order, again after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.serve import Daemon
from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import (
    ConsumeOutcome,
    ConsumerSettings,
    Handler,
    MessageModel,
    StartAt,
    StartFrom,
    start_at,
)
from engine.client.messages import OutgoingMessage, ReceivedMessage, reply_to
from engine.client.process_queue import FlowLimits
from engine.client.push_consumer import PushConsumer
from engine.client.queues import MessageQueue
from engine.client.selecting import by_hash
from engine.client.subscriptions import ALL, SQL92, TAG, TopicSubscription
from engine.errors import InvalidArgument, NoRoute, RefusedByBroker
from engine.format.compression import CompressionType, inflate
from engine.wire.codes import ResponseCode
from tests.engine.client.clusters import PATIENT, client_of, send, talk

FIRST = ConsumerSettings(start=StartFrom.FIRST_OFFSET)
PATIENCE_S = 60


class Seen:
    """A handler that keeps what it was given, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.messages: list[ReceivedMessage] = []
        self._failures = failures
        self._changed = asyncio.Event()

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
        self._changed.set()
        if self._failures:
            self._failures -= 1
            return ConsumeOutcome.LATER
        self.messages += messages
        self.bodies += [message.body for message in messages]
        return ConsumeOutcome.SUCCESS

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.bodies) < count:
                self._changed.clear()
                await self._changed.wait()


def test_every_message_is_consumed_once(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await send(client, 200)
        seen = Seen()
        async with client.push_consumer("G", seen, FIRST) as consumer:
            await consumer.subscribe("T")
            await seen.until(200)
            sent += await send(client, 50)
            await seen.until(250)
            assert len(consumer.queues) == 5  # four of T, one of %RETRY%G
            assert consumer.counts.consumed["T"] == 250
        assert Counter(seen.bodies) == Counter(sent)
        again = Seen()
        async with client.push_consumer("G", again, FIRST) as consumer:
            await consumer.subscribe("T")
            await send(client, 1, group="Q")
            await again.until(1)
            assert again.bodies == [b"0"]  # it goes on where the first one ended

    talk(tmp_path / "s", work)


def test_members_share_queues_and_take_over(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 40)
        one, two = Seen(), Seen()
        async with AsyncExitStack() as first, client_of(served) as other:
            a = await first.enter_async_context(client.push_consumer("G", one, FIRST))
            await a.subscribe("T")
            await one.until(40)
            async with other.push_consumer("G", two, FIRST) as b:
                await b.subscribe("T")
                async with asyncio.timeout(PATIENCE_S):
                    while [len([q for q in c.queues if q.topic == "T"]) for c in (a, b)] != [2, 2]:
                        await asyncio.sleep(0.02)
                shared = await send(client, 40, group="Q")
                async with asyncio.timeout(PATIENCE_S):
                    while not set(shared) <= set(one.bodies[40:]) | set(two.bodies):
                        await asyncio.sleep(0.02)
                assert set(one.bodies[40:]) & set(shared)
                assert set(two.bodies) & set(shared)
                await first.aclose()
                two.bodies.clear()
                await send(client, 40, group="R")
                async with asyncio.timeout(PATIENCE_S):
                    while not set(shared) <= set(two.bodies):
                        await asyncio.sleep(0.02)

    talk(tmp_path / "s", work)


def test_what_fails_comes_again(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        seen = Seen(failures=1)
        async with client.push_consumer("G", seen, ConsumerSettings(start=StartFrom.FIRST_OFFSET, delay_level=1)) as c:
            await c.subscribe("T")
            await send(client, 3)
            await seen.until(3)
        assert sorted(seen.bodies) == [b"0", b"1", b"2"]
        again = [message for message in seen.messages if message.reconsume_times]
        assert [(message.topic, message.reconsume_times) for message in again] == [("T", 1)]
        assert again[0].stored.topic == "%RETRY%G"

    talk(tmp_path / "s", work)


def test_what_fails_for_ever_is_a_dead_letter(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        async def fail(messages: Sequence[ReceivedMessage]) -> None:
            raise ValueError("never")

        settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, delay_level=-1)
        async with client.push_consumer("G", fail, settings) as consumer:
            await consumer.subscribe("T")
            await send(client, 1)
            calls = BrokerCalls(client)
            dead = MessageQueue("%DLQ%G", "broker-a", 0)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(NoRoute):
                        if await calls.max_offset(dead) == 1:
                            break
                    await asyncio.sleep(0.02)

    talk(tmp_path / "s", work)


def test_order_is_kept_also_after_failures(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        producer = client.producer("P", PATIENT)
        first = await producer.send(OutgoingMessage("T", b"0"))
        for i in range(1, 30):
            await producer.send(OutgoingMessage("T", b"%d" % i), queue=first.queue)
        seen = Seen(failures=2)
        settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, ordered=True, suspend_s=0.05, batch=4)
        async with client.push_consumer("G", seen, settings) as consumer:
            await consumer.subscribe("T")
            await seen.until(30)
        assert seen.bodies == [b"%d" % i for i in range(30)]
        times = [message.reconsume_times for message in seen.messages]
        assert times[0] == 2
        assert times == sorted(times, reverse=True)

    talk(tmp_path / "s", work)


def test_only_one_member_has_a_queue_in_order(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 20)
        seen = Seen()
        settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, ordered=True)
        async with client_of(served) as other, AsyncExitStack() as stack:
            a = await stack.enter_async_context(client.push_consumer("G", seen, settings))
            b = await stack.enter_async_context(other.push_consumer("G", seen, settings))
            await a.subscribe("T")
            await b.subscribe("T")
            await seen.until(20)
            async with asyncio.timeout(PATIENCE_S):
                while {len(set(a.queues) & set(b.queues)), len(a.queues) + len(b.queues)} != {0, 5}:
                    await asyncio.sleep(0.02)
        assert Counter(seen.bodies) == Counter(b"%d" % i for i in range(20))

    talk(tmp_path / "s", work)


def test_broadcasting_gives_each_member_everything(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 10)
        settings = ConsumerSettings(
            model=MessageModel.BROADCASTING, start=StartFrom.FIRST_OFFSET, offsets_in=tmp_path / "offsets"
        )
        one, two = Seen(), Seen()
        async with client_of(served, instance="other") as other, AsyncExitStack() as stack:
            for member, seen in ((client, one), (other, two)):
                consumer = await stack.enter_async_context(member.push_consumer("G", seen, settings))
                await consumer.subscribe("T")
                await seen.until(10)
        assert Counter(one.bodies) == Counter(two.bodies)
        third = Seen()
        async with client.push_consumer("G", third, settings) as consumer:
            await consumer.subscribe("T")
            await send(client, 1, group="Q")
            await third.until(1)
        assert third.bodies == [b"0"]

    talk(tmp_path / "s", work)


def test_tags_and_expressions(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        producer = client.producer("P", PATIENT)
        for i, tag in enumerate(("a", "b", "c")):
            await producer.send(OutgoingMessage("T", tag.encode(), tag, properties={"n": str(i)}))
        for group, expression, kind, wanted in (
            ("G1", "a || c", "TAG", [b"a", b"c"]),
            ("G2", "n >= 1", SQL92, [b"b", b"c", b"new", b"new"]),
        ):
            seen = Seen()
            async with client.push_consumer(group, seen, FIRST) as consumer:
                await consumer.subscribe("T", expression, kind)
                await seen.until(len(wanted))
                assert sorted(seen.bodies) == wanted
                with pytest.raises(InvalidArgument, match="does not take the expression"):
                    await consumer.subscribe("T", "n >= ", SQL92)
                for count in (1, 2):  # it goes by what it had, also when it asks the queue again
                    for body, tag, number in ((b"not", "b", "0"), (b"new", "c", "2")):
                        message = OutgoingMessage("T", body, tag, properties={"n": number})
                        await producer.send(message, select=by_hash("one"))
                    await seen.until(len(wanted) + count)
                assert sorted(seen.bodies) == sorted([*wanted, b"new", b"new"])

    talk(tmp_path / "s", work, property_filter=True)


@pytest.mark.parametrize(
    ("start", "of_topic", "of_retry_topic"),
    [
        (StartFrom.FIRST_OFFSET, StartAt.FIRST, StartAt.FIRST),
        (StartFrom.LAST_OFFSET, StartAt.END, StartAt.FIRST),
        (StartFrom.TIMESTAMP, StartAt.TIME, StartAt.END),
    ],
)
def test_where_a_new_group_begins(start: StartFrom, of_topic: StartAt, of_retry_topic: StartAt) -> None:
    assert start_at(start, is_retry=False) is of_topic
    assert start_at(start, is_retry=True) is of_retry_topic


@pytest.mark.parametrize("start", StartFrom)
def test_a_new_group_has_all_of_a_queue_that_was_never_cut(start: StartFrom, tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 8)
        seen = Seen()
        async with client.push_consumer("G", seen, ConsumerSettings(start=start)) as consumer:
            await consumer.subscribe("T")
            await seen.until(8)

    talk(tmp_path / "s", work)


def test_flow_control_bounds_what_is_held(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 400)
        gate, most = asyncio.Event(), 0
        count = 0

        async def slow(messages: Sequence[ReceivedMessage]) -> None:
            nonlocal count
            await gate.wait()
            count += len(messages)

        settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, limits=FlowLimits(messages=20), pull=8)
        handler: Handler = slow
        async with client.push_consumer("G", handler, settings) as consumer:
            await consumer.subscribe("T")
            async with asyncio.timeout(PATIENCE_S):
                while max(consumer.held().values(), default=0) <= 20:  # a queue is full
                    await asyncio.sleep(0.01)
            for _ in range(40):
                most = max(most, *consumer.held().values(), 0)
                await asyncio.sleep(0.01)
            assert 20 < most <= 28
            gate.set()
            async with asyncio.timeout(PATIENCE_S):
                while count < 400:
                    await asyncio.sleep(0.02)

    talk(tmp_path / "s", work)


def test_a_request_is_replied_to(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        async with client_of(served) as other:
            answers = other.producer("A")

            async def answer(messages: Sequence[ReceivedMessage]) -> None:
                for message in messages:
                    await answers.send(reply_to(message, b"re: " + message.body))

            await send(client, 1)
            async with other.push_consumer("G", answer) as consumer:
                await consumer.subscribe("T")
                async with asyncio.timeout(PATIENCE_S):
                    while len(consumer.queues) < 4:
                        await asyncio.sleep(0.02)
                reply = await client.producer("R").request(OutgoingMessage("T", b"who?"), timeout_s=PATIENCE_S)
        assert reply.body == b"re: who?"

    talk(tmp_path / "s", work)


def test_compressed_bodies_wait_for_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        packing = replace(PATIENT, compression=CompressionType.LZ4, compress_above=1)
        for number in range(3):
            await client.producer("P", packing).send(OutgoingMessage("T", b"%d" % number))
        seen = Seen()
        monkeypatch.setitem(sys.modules, "lz4.frame", None)
        async with client.push_consumer("G", seen, FIRST) as consumer:
            await consumer.subscribe("T")
            async with asyncio.timeout(PATIENCE_S):
                while "needs lz4, which is not installed (pip install" not in caplog.text:
                    await asyncio.sleep(0.02)
            assert seen.bodies == []
            wanted = TopicSubscription.of("T", ALL, TAG, 0)
            queues = (await client.route("T")).read_queues("T")
            packed: list[bytes] = []
            while len(packed) < 3:  # dispatch is a moment behind the sends
                pulls = [await BrokerCalls(client).pull("R", queue, 0, wanted) for queue in queues]
                packed = [message.stored.body for one in pulls for message in one.messages]
            monkeypatch.undo()
            assert {inflate(body, CompressionType.LZ4.flags) for body in packed} == {b"0", b"1", b"2"}
            await seen.until(3)
        assert sorted(seen.bodies) == [b"0", b"1", b"2"]

    talk(tmp_path / "s", work)


def test_consumers_come_and_subscribe_while_a_heartbeat_asks_for_routes(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 1)
        async with client.push_consumer("G", Seen(), FIRST) as first:
            await first.subscribe("T")
            client.forget_route("T")
            beating = asyncio.create_task(client.heartbeat())
            await asyncio.sleep(0)
            assert not beating.done()
            async with client.push_consumer("H", Seen(), FIRST) as second:
                await second.subscribe("T")
                await first.subscribe("U")
                await beating

    talk(tmp_path / "s", work)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_that_awaits_a_cancelled_task_has_failed(ordered: bool, tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        seen = Seen()
        failures = [b"cancelled"]

        async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
            if failures:
                failures.pop()
                own = asyncio.create_task(asyncio.sleep(60))
                own.cancel()
                await own
            return await seen(messages)

        settings = replace(FIRST, ordered=ordered, suspend_s=0.05, delay_level=1, at_once=1)
        async with client.push_consumer("G", handle, settings) as consumer:
            await consumer.subscribe("T")
            await send(client, 3)
            await seen.until(3)
            assert consumer.counts.failed["T"] == 1
        assert sorted(seen.bodies) == [b"0", b"1", b"2"]

    talk(tmp_path / "s", work)


def test_a_queue_whose_pulls_ended_by_an_error_is_begun_again(tmp_path: Path) -> None:
    class Broken(PushConsumer):
        errors = 4  # one of each queue of T

        def _wanted_of(self, topic: str) -> TopicSubscription | None:
            if topic == "T" and self.errors:
                self.errors -= 1
                raise RuntimeError("a bug")
            return super()._wanted_of(topic)

    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await send(client, 20)
        seen = Seen()
        async with Broken(client, "G", seen, replace(FIRST, rebalance_s=0.2)) as consumer:
            await consumer.subscribe("T")
            await seen.until(20)
        assert sorted(seen.bodies) == sorted(sent)

    talk(tmp_path / "s", work)


def test_a_refused_pull_outlives_that_no_name_server_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("engine.client.queue_member._FAILED_S", 0)

    async def run() -> None:
        client = ClusterClient(ClientConfig(("127.0.0.1:1",)))
        consumer = client.push_consumer("G", Seen(), FIRST)
        consumer._subscribe("T")
        client.add_consumer(consumer)
        unknown = RefusedByBroker.of(ResponseCode.SUBSCRIPTION_NOT_EXIST, "no such group", "127.0.0.1:1")
        await consumer._refused(MessageQueue("T", "broker-a", 0), unknown)

    asyncio.run(run())
    assert "a heartbeat failed: no name server answers" in caplog.text


def test_a_queue_that_a_handler_has_is_left_under_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.client.push_consumer.RENEW_S", 0.05)
    monkeypatch.setattr("engine.client.queue_member._LEAVE_S", 0.1)

    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await client.producer("P", PATIENT).send(OutgoingMessage("T", b"0"))
        queue = sent.queue
        begun, may_end = asyncio.Event(), asyncio.Event()
        given = []

        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            given.append(messages[0].queue_offset)
            begun.set()
            await may_end.wait()

        locks: list[set[MessageQueue]] = []
        ask = BrokerCalls.lock

        async def lock(self: BrokerCalls, group: str, broker: str, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
            locks.append(set(queues))
            return await ask(self, group, broker, queues)

        async with asyncio.timeout(PATIENCE_S), client.push_consumer("G", handle, replace(FIRST, ordered=True)) as own:
            await own.subscribe("T")
            await begun.wait()
            others = set(own.queues) - {queue}
            await own.begin_at({queue: 0})  # does not wait for the handler
            monkeypatch.setattr(BrokerCalls, "lock", lock)
            await own._rebalance()
            assert queue not in own.queues  # nor is it begun again beside it
            assert others <= set(own.queues)
            while sum(queue in asked for asked in locks) < 3:
                await asyncio.sleep(0.01)
            assert given == [0]
            may_end.set()
            while len(given) < 2 or queue not in own.queues:
                await asyncio.sleep(0.01)
            assert given == [0, 0]

    talk(tmp_path / "s", work)


def test_a_closed_consumer_keeps_its_locks_while_a_handler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.push_consumer.RENEW_S", 0.05)
    locks: list[set[MessageQueue]] = []
    renewed = asyncio.Event()
    ask = BrokerCalls.lock

    async def lock(self: BrokerCalls, group: str, broker: str, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        locks.append(set(queues))
        if len(locks) >= 3:
            renewed.set()
        return await ask(self, group, broker, queues)

    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await client.producer("P", PATIENT).send(OutgoingMessage("T", b"0"))
        begun, ended = asyncio.Event(), asyncio.Event()

        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            begun.set()
            await renewed.wait()
            ended.set()

        patient = replace(FIRST, ordered=True, patience_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S), client.push_consumer("G", handle, patient) as own:
            await own.subscribe("T")
            await begun.wait()
            monkeypatch.setattr(BrokerCalls, "lock", lock)
            locks.clear()
        assert ended.is_set()
        assert all(sent.queue in asked for asked in locks)
        assert await BrokerCalls(client).group_offset("G", sent.queue) == 1

    talk(tmp_path / "s", work)


def test_a_handler_of_a_queue_that_is_being_left_is_ended_with_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.queue_member._LEAVE_S", 0.1)

    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await client.producer("P", PATIENT).send(OutgoingMessage("T", b"0"))
        begun, ended = asyncio.Event(), asyncio.Event()

        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        settings = replace(FIRST, ordered=True, patience_s=0.1)
        async with asyncio.timeout(PATIENCE_S):
            async with client.push_consumer("G", handle, settings) as consumer:
                await consumer.subscribe("T")
                await begun.wait()
                await consumer.begin_at({sent.queue: 0})
                assert not ended.is_set()
        assert ended.is_set()

    talk(tmp_path / "s", work)
