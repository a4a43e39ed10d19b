"""Answers to pulls: those that brokers give, and those that make no sense, which lead no reader astray."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client import queue_member
from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, StartAt
from engine.client.messages import ReceivedMessage
from engine.client.pulling import EmptyAnswers, Pull, PullResult, PullStatus
from engine.client.queues import MessageQueue
from engine.client.tail import ClusterTail
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.errors import FormatError, NoRoute, PeerLost, RefusedByBroker
from engine.format.numbers import LONG_MAX
from engine.format.sysflag import COMPRESSED, INNER_BATCH
from engine.wire.codes import ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.client.played_broker import BROKER, Pulled, played_broker, pulled, record

FOUND, NOT_YET = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
AGAIN, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
PATIENCE_S = 60


def judge(answer: Pulled, offset: int = 4, most: int = 4, topic: str = "T") -> PullResult:
    code, fields, body = answer
    pull = Pull(MessageQueue(topic, "b", 0), offset, most, "127.0.0.1:1")
    return pull.result(RemotingCommand(code, 1, 1, "a remark", dict(fields), memoryview(body)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (pulled(FOUND, 5), "no record"),
        (pulled(FOUND, 4, record(4)), "records, and nextBeginOffset 4"),
        (pulled(FOUND, 0, record(4)), "records, and nextBeginOffset 0"),
        (pulled(FOUND, 9, record(3)), "a record with offset 3, where 4 is the least"),
        (pulled(FOUND, 9, record(5), record(5)), "a record with offset 5, where 6 is the least"),
        (pulled(FOUND, 9, record(6), record(5)), "a record with offset 5, where 7 is the least"),
        (pulled(FOUND, 6, record(4), record(6)), "a record with offset 6, and nextBeginOffset 6"),
        (pulled(FOUND, 9, record(4, topic="U")), "a record of queue U/0"),
        (pulled(FOUND, 9, record(4, queue_id=1)), "a record of queue T/1"),
        (pulled(FOUND, 9, *map(record, range(4, 9))), "5 records, at most 4 were asked for"),
        (pulled(FOUND, 5, record(4)[:-1]), "a malformed record"),
        (pulled(FOUND, 5, record(4) + b"\0"), "a malformed record"),
        (pulled(FOUND, 1 << 63, record(4)), "no offset in nextBeginOffset"),
        (pulled(FOUND, -1, record(4)), "no offset in nextBeginOffset"),
        (pulled(NOT_YET, "9" * 5000), "no offset in nextBeginOffset"),
        (pulled(NOT_YET, ""), "no offset in nextBeginOffset"),
        (pulled(MOVED, 4, maxOffset="x"), "no offset in maxOffset: 'x'"),
        (pulled(MOVED, 4, minOffset="-2"), "no offset in minOffset"),
        (pulled(AGAIN, 4, suggestWhichBrokerId="one"), "no offset in suggestWhichBrokerId"),
        ((int(FOUND), {}, record(4)), "no offset in nextBeginOffset"),
    ],
)
def test_nonsense_is_refused_with_its_place(answer: Pulled, words: str) -> None:
    where = "malformed answer of 127.0.0.1:1 to a pull of T/0 of broker b from offset 4: "
    with pytest.raises(FormatError, match=re.escape(where + words)):
        judge(answer)


def test_what_brokers_give() -> None:
    """A filter leaves gaps; records of a light queue have the place where they were sent to; a batch of RocketMQ 5 may
    begin before the offset; a static topic's part is numbered by its broker."""
    assert [one.queue_offset for one in judge(pulled(FOUND, 40, record(4), record(9), record(30))).messages] == [
        4,
        9,
        30,
    ]
    assert len(judge(pulled(FOUND, 5, record(4, topic="parent", queue_id=3)), topic="%LMQ%a").messages) == 1
    assert len(judge(pulled(FOUND, 6, record(3, sys_flag=INNER_BATCH))).messages) == 1
    shifted = judge(pulled(FOUND, 6, record(1, queue_id=7), offsetDelta="3")).messages[0]
    assert (shifted.queue_offset, shifted.queue.queue_id) == (4, 0)
    assert judge(pulled(MOVED, 0, minOffset="-1", maxOffset="-1")).next_offset == 0
    with pytest.raises(RefusedByBroker, match="a remark"):
        judge((int(ResponseCode.NO_PERMISSION), {}, b""))


@given(st.data())
def test_whatever_is_changed_in_an_answer(data: st.DataObject) -> None:
    """It is refused, or what it gives is in order, of the queue and within the offsets."""
    offsets = sorted(data.draw(st.sets(st.integers(4, 20), min_size=1, max_size=4)))
    code, fields, body = pulled(FOUND, offsets[-1] + data.draw(st.integers(1, 9)), *map(record, offsets))
    assert [one.queue_offset for one in judge((code, fields, body)).messages] == offsets
    changed = bytearray(body)
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        changed[at] = data.draw(st.integers(0, 255))
    number = st.one_of(st.integers(-(1 << 65), 1 << 65).map(str), st.text(max_size=5))
    mixed = {**fields, **data.draw(st.dictionaries(st.sampled_from([*fields, "offsetDelta"]), number, max_size=2))}
    try:
        result = judge((code, mixed, bytes(changed[: data.draw(st.integers(0, len(changed)))])))
    except FormatError:
        return
    got = [one.queue_offset for one in result.messages if not one.stored.sys_flag & INNER_BATCH]
    assert got == sorted(set(got))
    assert all(4 <= offset < result.next_offset <= LONG_MAX for offset in got)
    assert {(one.queue.topic, one.queue.queue_id) for one in result.messages} == {("T", 0)}


def empty(status: PullStatus, following: int) -> PullResult:
    return PullResult(status, (), following, 0, 10, 0)


def test_pauses_after_answers_that_lead_nowhere() -> None:
    pauses = EmptyAnswers()
    got = [pauses.pause_s(empty(PullStatus.NO_NEW_MESSAGE, 4), 4, 0.0) for _ in range(12)]
    assert got[:3] == [0.0, 0.05, 0.1]
    assert got == sorted(got)
    assert got[-1] == 3.0
    assert pauses.pause_s(empty(PullStatus.NO_NEW_MESSAGE, 4), 4, 5.0) == 0.0  # it was held
    for _ in range(9):  # a filter that nothing matches for long
        assert pauses.pause_s(empty(PullStatus.NO_MATCHED_MESSAGE, 5), 4, 0.0) == 0.0
    forth_and_back = [pauses.pause_s(empty(PullStatus.OFFSET_ILLEGAL, 9 - at), at, 0.0) for at in (4, 5, 4, 5)]
    assert forth_and_back == [0.0, 0.05, 0.1, 0.2]


async def read(address: str) -> list[ReceivedMessage]:
    async with ClusterClient(ClientConfig((address,))) as client:
        return [one async for one in TopicReader(client, "T").messages(ReadFrom(first=True))]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda offset: pulled(FOUND, offset, record(offset)), FormatError),
        (lambda offset: pulled(FOUND, offset + 1), FormatError),
        (lambda offset: pulled(FOUND, offset + 1, record(offset, topic="secret")), FormatError),
        (lambda offset: pulled(NOT_YET, offset), PeerLost),
        (lambda offset: pulled(AGAIN, offset), PeerLost),
        (lambda offset: pulled(MOVED, 9 - offset), PeerLost),
    ],
)
def test_a_reader_ends_with_an_error(answer: Callable[[int], Pulled], error: type[Exception]) -> None:
    """Not without one, and not never: it shows as many messages as the queue has, or says what is wrong."""

    async def run() -> None:
        async with played_broker(answer) as broker:
            with pytest.raises(error, match="of broker played"):
                await asyncio.wait_for(read(broker.address), PATIENCE_S)
            assert len(broker.pulls) < 30

    asyncio.run(run())


def test_a_consumer_does_not_spin_and_warns_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again, less and less often, and takes what comes at last."""
    monkeypatch.setattr(queue_member, "_FAILED_S", 0.1)
    bodies: list[bytes] = []
    taken = asyncio.Event()

    async def handler(messages: object) -> None:
        bodies.extend(one.body for one in messages)  # type: ignore[attr-defined]
        taken.set()

    async def run() -> None:
        async with (
            played_broker(lambda offset: pulled(NOT_YET, offset)) as broker,
            ClusterClient(ClientConfig((broker.address,))) as client,
            client.push_consumer("G", handler, ConsumerSettings(start=StartAt.FIRST)) as consumer,
        ):
            began = time.monotonic()
            await consumer.subscribe("T")
            await asyncio.wait_for(broker.until_pulls(6), PATIENCE_S)
            assert time.monotonic() - began >= 0.05 + 0.1 + 0.2 + 0.4
            broker.answer = lambda offset: pulled(FOUND, offset, record(offset))
            with caplog.at_level(logging.WARNING):
                count = len(broker.pulls)
                await asyncio.wait_for(broker.until_pulls(count + 3), PATIENCE_S)
            broker.answer = lambda offset: (
                pulled(FOUND, 1, record(0, body=b"at last")) if offset == 0 else pulled(NOT_YET, offset)
            )
            await asyncio.wait_for(taken.wait(), PATIENCE_S)
        assert bodies == [b"at last"]
        told = [one.getMessage() for one in caplog.records if "records, and nextBeginOffset" in one.getMessage()]
        assert len([text for text in told if f"T/0 of broker {BROKER}" in text]) == 1

    asyncio.run(run())


def test_bodies_are_held_as_they_came() -> None:
    """Forty bodies of 4 MiB that compress to 4 KiB: what waits takes 160 KiB, and what is asked for is not kept."""
    body = zlib.compress(bytes(4 << 20), 9)
    answer = judge(
        pulled(FOUND, 44, *(record(offset, body=body, sys_flag=COMPRESSED) for offset in range(4, 44))), most=40
    )
    tracemalloc.start()
    try:
        assert {len(one.body) for one in answer.messages} == {4 << 20}
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_readers_hold_a_bounded_number_of_bytes() -> None:
    """A reader that nobody takes from pulls no more: messages wait by bytes, not by number alone."""
    body = bytes(1 << 20)

    async def run() -> None:
        async with (
            played_broker(lambda offset: pulled(FOUND, offset + 1, record(offset, body=body))) as broker,
            ClusterClient(ClientConfig((broker.address,))) as client,
        ):
            messages = TopicReader(client, "T").messages(ReadFrom(first=True), follow=True)
            assert (await anext(messages)).queue_offset == 0
            await asyncio.wait_for(broker.until_pulls(32), PATIENCE_S)
            before = len(broker.pulls)
            for _ in range(3):  # it is at its limit now, and stays there while the broker answers others
                await BrokerCalls(client).max_offset(MessageQueue("T", BROKER, 0))
            assert len(broker.pulls) <= before + 1
            got = [(await anext(messages)).queue_offset for _ in range(100)]
            assert got == list(range(1, 101))
            await messages.aclose()

    asyncio.run(run())


def test_a_tail_of_a_topic_that_nobody_has() -> None:
    async def run() -> None:
        async with played_broker(lambda offset: pulled(NOT_YET, offset)) as broker:
            broker.has_route = False
            async with ClusterClient(ClientConfig((broker.address,))) as client:
                with pytest.raises(NoRoute, match="no broker serves topic T"):
                    await anext(ClusterTail(client, ["T"]).messages())

    asyncio.run(run())


def test_an_unforeseen_error_of_a_reader_reaches_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is seen; it was silence."""

    def broken(self: TopicReader, *_: object) -> None:
        raise RuntimeError("a bug")

    async def run() -> None:
        async with played_broker(lambda offset: pulled(NOT_YET, offset)) as broker:
            monkeypatch.setattr(TopicReader, "_start", broken)
            with pytest.raises(RuntimeError, match="a bug"):
                await asyncio.wait_for(read(broker.address), PATIENCE_S)
            async with ClusterClient(ClientConfig((broker.address,))) as client:
                with pytest.raises(RuntimeError, match="a bug"):
                    await asyncio.wait_for(anext(ClusterTail(client, ["T"]).messages()), PATIENCE_S)

    asyncio.run(run())
