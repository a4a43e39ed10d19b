"""Lite pull: polled, committed, moved, held back. Pull: what is asked for, one queue at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.serve import Daemon
from engine.client.asked import running_info
from engine.client.client import ClusterClient
from engine.client.consumer_settings import GroupSettings, LitePullSettings, StartFrom
from engine.client.lite_pull_consumer import LitePullConsumer
from engine.client.messages import OutgoingMessage
from engine.client.process_queue import FlowLimits
from engine.client.pulling import PullStatus
from engine.client.queues import MessageQueue
from engine.client.subscriptions import SQL92
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.errors import InvalidArgument
from tests.engine.client.clusters import PATIENT, client_of, send, talk

FIRST = LitePullSettings(start=StartFrom.FIRST_OFFSET, poll_s=60)
BY_HAND = replace(FIRST, auto_commit=False)
PATIENCE_S = 60


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not state():
            await asyncio.sleep(0.01)


async def polled(consumer: LitePullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = await consumer.poll()
        assert messages
        bodies += [message.body for message in messages]
    return bodies


async def in_one_queue(client: ClusterClient, count: int, first: int = 0) -> MessageQueue:
    """Messages in queue 2 of T, which an x in queue 0 has made."""
    producer = client.producer("One", PATIENT)
    made = await producer.send(OutgoingMessage("T", b"x"), select=lambda queues: queues[0])
    queue = made.queue._replace(queue_id=2)
    for number in range(first, first + count):
        await producer.send(OutgoingMessage("T", b"%03d" % number), queue=queue)
    return queue


def test_polled_messages_are_committed(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await send(client, 100)
        async with client.lite_pull_consumer("G", FIRST) as consumer:
            await consumer.subscribe("T")
            assert Counter(await polled(consumer, 100)) == Counter(sent)
            assert consumer.counts.consumed["T"] == 100
        async with client.lite_pull_consumer("G", FIRST) as consumer:
            await consumer.subscribe("T")
            await send(client, 1, group="Q")
            assert await polled(consumer, 1) == [b"0"]  # it goes on where the first one ended
            assert await consumer.poll(0.01) == []

    talk(tmp_path / "s", work)


def test_what_ends_by_an_error_is_given_again(tmp_path: Path) -> None:
    """The last messages that poll gave were not consumed; those before were."""

    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 20)
        numbers: list[int] = []

        async def failing() -> None:
            async with client.lite_pull_consumer("G", FIRST) as consumer:
                await consumer.assign([queue])
                numbers.append(len(await consumer.poll()))
                await consumer.poll()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await failing()
        async with client.lite_pull_consumer("G", FIRST) as consumer:
            assert await consumer.committed(queue) == numbers[0]
            await consumer.assign([queue])
            assert (await consumer.poll())[0].queue_offset == numbers[0]

    talk(tmp_path / "s", work)


def test_committed_by_hand(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 20)
        async with client.lite_pull_consumer("G", BY_HAND) as consumer:
            await consumer.assign([queue])
            await polled(consumer, 20)
        async with client.lite_pull_consumer("G", BY_HAND) as consumer:
            assert await consumer.committed(queue) is None or await consumer.committed(queue) == 0
            await consumer.assign([queue])
            number = len(await consumer.poll())
            await consumer.commit()
            assert await consumer.committed(queue) == number
            number += len(await consumer.poll())
            await consumer.commit([queue])
            assert await consumer.committed(queue) == number
            await consumer.commit({queue: 7})
        async with client.lite_pull_consumer("G", BY_HAND) as consumer:
            await consumer.assign([queue])
            assert (await consumer.poll())[0].queue_offset == 7
            with pytest.raises(InvalidArgument, match="is not one of this consumer's queues"):
                await consumer.commit([queue._replace(queue_id=0)])

    talk(tmp_path / "s", work)


def test_seek_and_offsets(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 20)
        async with client.lite_pull_consumer("G", FIRST) as consumer:
            await consumer.assign([queue])
            messages = await consumer.poll()
            await consumer.seek(queue, 15)
            assert await polled(consumer, 5) == [b"%03d" % i for i in range(15, 20)]
            await consumer.seek_to_begin(queue)
            assert (await consumer.poll())[0].queue_offset == 0
            await consumer.seek_to_end(queue)
            assert await consumer.poll(0.05) == []
            await in_one_queue(client, 1, first=20)
            assert [message.body for message in await consumer.poll()] == [b"020"]
            time_ms = messages[0].stored.store_timestamp
            assert await consumer.offset_at(queue, time_ms + 3_600_000) == 20  # the last, as Apache's
            await consumer.seek(queue, await consumer.offset_at(queue, time_ms))
            assert (await consumer.poll())[0].stored.store_timestamp == time_ms
            with pytest.raises(InvalidArgument, match="has no offset 22"):
                await consumer.seek(queue, 22)
            with pytest.raises(InvalidArgument, match="is not one of"):
                await consumer.seek(queue._replace(queue_id=1), 0)
            await consumer.begin_at({queue: 3})  # as a broker asks for it
            assert (await consumer.poll())[0].queue_offset == 3

    talk(tmp_path / "s", work)


def test_pause_and_resume(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 0)
        other = queue._replace(queue_id=3)
        async with client.lite_pull_consumer("G", FIRST) as consumer:
            consumer.pause([queue])
            await consumer.assign([queue, other])
            await in_one_queue(client, 5)
            await client.producer("One", PATIENT).send(OutgoingMessage("T", b"other"), queue=other)
            bodies = [message.body for message in await consumer.poll() if message.body != b"x"]
            while b"other" not in bodies:
                bodies += [message.body for message in await consumer.poll() if message.body != b"x"]
            assert bodies == [b"other"]
            assert consumer.held()[queue] == 0
            consumer.resume([queue])
            assert await polled(consumer, 5) == [b"%03d" % i for i in range(5)]

    talk(tmp_path / "s", work)


@pytest.mark.parametrize(
    "settings",
    [
        replace(FIRST, pull=4, limits=FlowLimits(messages=10)),
        replace(FIRST, pull=4, limits=FlowLimits(size=30)),
        replace(FIRST, pull=4, limits=FlowLimits(span=10)),
        replace(FIRST, pull=4, total=10),
    ],
)
def test_caches_are_limited(tmp_path: Path, settings: LitePullSettings) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 60)
        async with client.lite_pull_consumer("G", settings) as consumer:
            await consumer.assign([queue])
            await until(lambda: consumer.held()[queue] > 10)
            bodies = []
            while len(bodies) < 60:
                bodies += [message.body for message in await consumer.poll()]
                assert consumer.held()[queue] <= 15
            assert bodies == [b"%03d" % i for i in range(60)]

    talk(tmp_path / "s", work)


def test_members_share_queues(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        await send(client, 8)
        async with client_of(served) as second, client.lite_pull_consumer("G", FIRST) as one:
            await one.subscribe("T")
            await polled(one, 8)
            async with second.lite_pull_consumer("G", FIRST) as two:
                await two.subscribe("T")
                await until(lambda: [len(one.queues), len(two.queues)] == [2, 2])
                assert not set(one.queues) & set(two.queues)
            await until(lambda: len(one.queues) == 4)
            changes: list[int] = []
            one.on_queues_changed("T", lambda queues: changes.append(len(queues)))
            await until(lambda: changes == [4])
            await one.unsubscribe("T")
            assert one.queues == ()
            await one.assign([])
            with pytest.raises(InvalidArgument, match="exclude"):
                await one.subscribe("T")

    talk(tmp_path / "s", work)


def test_brokers_see_them(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 3)
        async with client.lite_pull_consumer("G", FIRST) as lite, client.pull_consumer("P") as pull:
            await lite.subscribe("T", "a || b")
            await pull.register("T")
            await until(lambda: len(lite.queues) == 4)
            assert {lite.heartbeat()["consumeType"], pull.heartbeat()["consumeType"]} == {"CONSUME_ACTIVELY"}
            assert [one["topic"] for one in lite.heartbeat()["subscriptionDataSet"]] == ["T"]
            assert await pull.balanced_queues("T") == tuple(queue._replace(queue_id=number) for number in range(4))
            for consumer in (lite, pull):
                text = running_info(consumer, "names").decode()
                assert '"PROP_CONSUME_TYPE":"CONSUME_ACTIVELY"' in text
            with pytest.raises(InvalidArgument, match="a consumer of group G already"):
                client.pull_consumer("G")

    talk(tmp_path / "s", work)


def test_pull_by_hand(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 5)
        tagged = OutgoingMessage("T", b"tagged", tags="a")
        await client.producer("One", PATIENT).send(tagged, queue=queue)
        async with client.pull_consumer("P", GroupSettings(pull=4)) as consumer:
            assert queue in await consumer.queues_of("T")
            assert await consumer.max_offset(queue) == 6  # a pull gives what is dispatched, this waits for it
            result = await consumer.pull(queue, await consumer.min_offset(queue))
            assert [message.body for message in result.messages] == [b"%03d" % i for i in range(4)]
            assert (result.next_offset, result.max_offset) == (4, 6)
            result = await consumer.pull(queue, 0, "a", most=32)
            assert [message.body for message in result.messages] == [b"tagged"]
            assert (await consumer.pull(queue, 6)).status is PullStatus.NO_NEW_MESSAGE
            waiting = asyncio.create_task(consumer.pull(queue, 6, wait=True))
            await client.producer("One", PATIENT).send(OutgoingMessage("T", b"new"), queue=queue)
            result = await waiting
            assert [message.body for message in result.messages] == [b"new"]
            consumer.update_offset(queue, 7)
            await consumer.commit()
            await consumer.send_back(result.messages[0], delay_level=1)
        async with client.pull_consumer("P") as consumer, client.lite_pull_consumer("L", FIRST) as retried:
            assert await consumer.committed(queue) == 7
            await retried.subscribe("%RETRY%P")
            assert await polled(retried, 1) == [b"new"]

    talk(tmp_path / "s", work)


def test_in_a_namespace(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        async with client_of(served, "space") as inside, inside.lite_pull_consumer("G", FIRST) as consumer:
            await inside.producer("P", PATIENT).send(OutgoingMessage("T", b"x"))
            await consumer.assign([queue._replace(topic="T") for queue in await consumer.queues_of("T")])
            message = (await consumer.poll())[0]
            assert (message.topic, message.queue.topic) == ("T", "space%T")
            await consumer.seek(message.queue._replace(topic="T"), 0)
            assert (await consumer.poll())[0].id == message.id

    talk(tmp_path / "s", work)


def test_an_expression_that_the_broker_does_not_understand_is_pulled_with_nowhere(tmp_path: Path) -> None:
    """Apache's broker would give all messages."""

    async def work(served: Daemon, client: ClusterClient) -> None:
        queue = await in_one_queue(client, 1)
        words = "does not take the expression"
        async with client.pull_consumer("G") as pulling, client.lite_pull_consumer("H", FIRST) as polling:
            with pytest.raises(InvalidArgument, match=words):
                await pulling.pull(queue, 0, "n >=", SQL92)
            assert (await pulling.pull(queue, 0, "n >= 1", SQL92)).messages == ()
            with pytest.raises(InvalidArgument, match=words):
                await polling.assign([queue], "n >=", SQL92)
            await polling.assign([queue])
            assert await polled(polling, 1) == [b"000"]
        reading = TopicReader(client, "T", "n >=", SQL92).messages(ReadFrom(first=True))
        with pytest.raises(InvalidArgument, match=words):
            await anext(reading)

    talk(tmp_path / "s", work, property_filter=True)
