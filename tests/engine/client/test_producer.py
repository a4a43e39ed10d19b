"""What a producer sends is stored as Apache's client would have it stored, and what fails is said."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage, ReceivedMessage, received
from engine.client.producer import TransactionState
from engine.client.queues import MessageQueue
from engine.client.selecting import at_random, by_hash
from engine.client.sending import SendStatus
from engine.errors import InvalidArgument, NoRoute, PeerLost, RefusedByBroker
from engine.format.hashing import java_hash
from engine.format.message import decode
from engine.wire.codes import RequestCode
from tests.engine.broker.client import daemon
from tests.engine.client.clusters import PATIENT, client_of, cluster


def talk(root: Path, work: Callable[[ClusterClient], Awaitable[None]], **settings: object) -> None:
    async def run() -> None:
        async with cluster(root, **settings) as (_, client):  # type: ignore[arg-type]
            await work(client)

    asyncio.run(run())


async def stored(client: ClusterClient, offset_id: str, queue: MessageQueue) -> ReceivedMessage:
    """The message, by the id that the broker gave it."""
    route = await client.route(client.wire_name(queue.topic))
    address = route.address(queue.broker)
    assert address is not None
    offset = str(int(offset_id[-16:], 16))
    answer = await client.peers.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert answer.code == 0, answer
    return received(decode(answer.body), queue.broker, client.config.namespace)


def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        message = OutgoingMessage("T", b"hello", "a", ("k1", "k2"), {"colour": "red"}, flag=7)
        sent = await client.producer("G", PATIENT).send(message)
        assert sent.status is SendStatus.SEND_OK
        got = await stored(client, sent.offset_id, sent.queue)
        assert (got.topic, got.body, got.tags, got.keys) == ("T", b"hello", "a", ("k1", "k2"))
        assert got.application_properties == {"colour": "red"}
        assert (got.id, got.stored.flag, got.queue) == (sent.id, 7, sent.queue)
        local = (await client.peers.to(sent.address)).local
        assert local is not None
        assert (got.stored.born_timestamp, str(got.stored.born_host)) == (sent.born_ms, "{}:{}".format(*local))

    talk(tmp_path / "s", work)


def test_large_bodies_are_compressed_and_given_out_as_sent(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        body = b"many words " * 1000
        sent = await client.producer("G", PATIENT).send(OutgoingMessage("T", body))
        got = await stored(client, sent.offset_id, sent.queue)
        assert got.body == body
        assert len(got.stored.body) < len(body) // 10
        assert got.stored.sys_flag & 1

    talk(tmp_path / "s", work)


def test_messages_go_round_all_queues(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        producer = client.producer("G", PATIENT)
        sent = await asyncio.gather(*(producer.send(OutgoingMessage("T", b"%d" % i)) for i in range(40)))
        numbers = [one.queue.queue_id for one in sent]
        assert {number: numbers.count(number) for number in range(4)} == dict.fromkeys(range(4), 10)
        assert len({one.id for one in sent}) == 40

    talk(tmp_path / "s", work)


def test_selectors_choose_the_queue(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        producer = client.producer("G", PATIENT)
        for key in ("order-1", "order-2", "é"):
            sent = await producer.send(OutgoingMessage("T", b"x"), select=by_hash(key))
            assert sent.queue.queue_id == abs(java_hash(key)) % 4
        third = (await client.route("T")).write_queues("T")[3]
        assert (await producer.send(OutgoingMessage("T", b"x"), queue=third)).queue == third
        await producer.send(OutgoingMessage("T", b"x"), select=at_random(random.Random(1)))

    talk(tmp_path / "s", work)


def test_a_batch_is_cut_where_it_would_be_too_large(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        producer = client.producer("G", replace(PATIENT, max_size=10_000))
        messages = [OutgoingMessage("T", b"%04d" % i * 500, keys=(f"k{i}",)) for i in range(12)]
        results = await producer.send_batch(messages)
        assert [len(one.id.split(",")) for one in results] == [4, 4, 4]
        assert all(one.status is SendStatus.SEND_OK for one in results)
        for wrong in (
            [OutgoingMessage("T", b"x"), OutgoingMessage("U", b"x")],
            [OutgoingMessage("T", b"x", delay_level=3)],
            [],
        ):
            with pytest.raises(InvalidArgument):
                await producer.send_batch(wrong)

    talk(tmp_path / "s", work)


def test_one_way(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        producer = client.producer("G", PATIENT)
        first = (await producer.send(OutgoingMessage("T", b"x"))).queue
        await producer.send_oneway(OutgoingMessage("T", b"one way"), queue=first)
        after = await producer.send(OutgoingMessage("T", b"x"), queue=first)  # on the same connection
        assert after.queue_offset == 2

    talk(tmp_path / "s", work)


def test_namespaces_are_on_the_wire_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "s", "ns") as (served, client):
            sent = await client.producer("G", PATIENT).send(OutgoingMessage("T", b"x"))
            assert sent.queue.topic == "T"
            got = await stored(client, sent.offset_id, sent.queue)
            assert (got.topic, got.stored.topic) == ("T", "ns%T")
            assert got.properties["INSTANCE_ID"] == "ns"
            async with client_of(served) as other:
                assert (await other.route("ns%T")).write_queues("ns%T")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (OutgoingMessage("bad topic!", b"x"), "illegal characters"),
        (OutgoingMessage("T", b""), "has no body"),
        (OutgoingMessage("T", b"x" * (4 << 20) + b"x"), "4,194,305 bytes"),
        (OutgoingMessage("T", b"x", properties={"KEYS": "k"}), "one of RocketMQ's own"),
        (OutgoingMessage("T", b"x", properties={"a": "b\x02c"}), "separate properties"),
        (OutgoingMessage("T", b"x", properties={"a": "y" * 40_000}), "32767 are allowed"),
        (OutgoingMessage("T", b"x", keys=("a b",)), "a blank"),
        (OutgoingMessage("SCHEDULE_TOPIC_XXXX", b"x"), "broker's own"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_broker_takes_is_not_sent(message: OutgoingMessage, words: str, tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        with pytest.raises(InvalidArgument, match=words):
            await client.producer("G", PATIENT).send(message)

    talk(tmp_path / "s", work)


def test_a_topic_that_nobody_makes(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        with pytest.raises(NoRoute, match="no broker serves topic T, and none makes topics by itself"):
            await client.producer("G", PATIENT).send(OutgoingMessage("T", b"x"))

    talk(tmp_path / "s", work, auto_create_topic=False)


def test_the_broker_refuses(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "s") as (served, client):
            producer = client.producer("G", PATIENT)
            sent = await producer.send(OutgoingMessage("T", b"x"))
            with pytest.raises(RefusedByBroker, match="code 1") as refused:
                await producer.send(OutgoingMessage("T", b"x"), queue=sent.queue._replace(queue_id=99))
            assert refused.value.address == served.listening.broker

    asyncio.run(run())


def test_nobody_is_there() -> None:
    async def run() -> None:
        with pytest.raises(PeerLost, match=r"no name server answers: cannot connect to 127\.0\.0\.1:1"):
            async with ClusterClient(ClientConfig(("127.0.0.1:1",))):
                pass

    asyncio.run(run())


def test_transactions_are_committed_and_rolled_back(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        producer = client.producer("G", PATIENT)
        sent, state = await producer.send_transaction(OutgoingMessage("T", b"in"), lambda _: TransactionState.COMMIT)
        assert state is TransactionState.COMMIT
        await producer.send_transaction(OutgoingMessage("T", b"out"), lambda _: TransactionState.ROLLBACK)

        async def broken(_: OutgoingMessage) -> TransactionState:
            raise KeyError("mine")

        with pytest.raises(KeyError):
            await producer.send_transaction(OutgoingMessage("T", b"open"), broken)
        after = await producer.send(OutgoingMessage("T", b"x"), queue=sent.queue)
        assert after.queue_offset == 1  # the one that was committed came before it

    talk(tmp_path / "s", work)


@pytest.mark.parametrize("problem", [None, KeyError("mine")])
def test_a_transaction_is_done_though_its_broker_is_gone_by_then(
    problem: KeyError | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as broker:
            served = await broker.enter_async_context(daemon(tmp_path / "s", send_wait_ms=60_000))
            async with client_of(served) as client:

                async def work(_: OutgoingMessage) -> TransactionState:
                    await broker.aclose()
                    client.forget_route("T")
                    if problem is not None:
                        raise problem
                    return TransactionState.COMMIT

                producer = client.producer("G", PATIENT)
                with nullcontext() if problem is None else pytest.raises(KeyError, match="mine"):
                    sent, state = await producer.send_transaction(OutgoingMessage("T", b"in"), work)
                    assert (sent.status, state) == (SendStatus.SEND_OK, TransactionState.COMMIT)

    asyncio.run(run())
    assert "the end of transaction" in caplog.text


def test_the_broker_asks_what_became_of_a_transaction(tmp_path: Path) -> None:
    async def work(client: ClusterClient) -> None:
        asked: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

        async def check(half: ReceivedMessage) -> TransactionState:
            await asked.put(half)
            return TransactionState.COMMIT

        producer = client.producer("G", PATIENT, check=check)
        sent, _ = await producer.send_transaction(OutgoingMessage("T", b"late"), lambda _: TransactionState.UNKNOWN)
        async with asyncio.timeout(30):
            half = await asked.get()
        assert (half.id, half.body) == (sent.id, b"late")
        async with asyncio.timeout(30):
            while not (await producer.send(OutgoingMessage("T", b"x"), queue=sent.queue)).queue_offset:
                await asyncio.sleep(0.05)

    talk(tmp_path / "s", work, transaction_timeout_ms=200, transaction_check_interval_ms=200)
