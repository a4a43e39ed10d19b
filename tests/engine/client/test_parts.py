"""The parts of the client that decide, without I/O: penalties, namespaces, ids, routes, what is held of a queue."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client import namespaces
from engine.client.latency import FaultTable, penalty_ms
from engine.client.messages import CORRELATION_ID, ReceivedMessage, received
from engine.client.process_queue import FlowLimits, ProcessQueue
from engine.client.queues import MessageQueue
from engine.client.replies import Replies
from engine.client.routes import parse_route
from engine.client.selecting import RoundRobin
from engine.client.subscriptions import SQL92, TAG, TopicSubscription
from engine.client.unique_id import UniqueIds
from engine.errors import FormatError, InvalidArgument, NotInstalled
from engine.format.compression import CompressionType, deflate
from engine.format.message import Message, decode, encode, patch
from engine.wire.codes import RequestCode
from engine.wire.command import ONEWAY, RemotingCommand

if TYPE_CHECKING:
    from engine.client.connection import RemotingClient


@pytest.mark.parametrize(
    ("latency", "penalty"),
    [(0, 0), (99, 0), (550, 30_000), (999, 30_000), (1000, 60_000), (3000, 180_000), (15_000, 600_000)],
)
def test_penalties_are_apaches(latency: int, penalty: int) -> None:
    assert penalty_ms(latency) == penalty
    assert penalty_ms(latency, failed=True) == 600_000


def test_a_broker_with_a_penalty_is_passed_over() -> None:
    queues = [MessageQueue("T", broker, number) for broker in "ab" for number in range(2)]
    faults = FaultTable()
    turn = RoundRobin(0, faults)
    faults.note("a", 2000, 0)
    assert {turn.select(queues, None, 10).broker for _ in range(8)} == {"b"}
    faults.note("b", 5000, 0)
    assert turn.select(queues, None, 10).broker == "a"  # both have one, and this one answers sooner
    assert {turn.select(queues, None, 200_000).broker for _ in range(8)} == {"a", "b"}
    faults.note("gone", 1, 200_000, failed=True)
    assert turn.select(queues, None, 200_001).broker in "ab"


def test_another_broker_follows_a_failure() -> None:
    queues = [MessageQueue("T", broker, number) for broker in "ab" for number in range(4)]
    turn = RoundRobin()
    assert {turn.select(queues, "a", 0).broker for _ in range(8)} == {"b"}
    assert {turn.select(queues[:4], "a", 0).broker for _ in range(8)} == {"a"}


@pytest.mark.parametrize(
    ("name", "wire"),
    [("T", "ns%T"), ("%RETRY%G", "%RETRY%ns%G"), ("%DLQ%G", "%DLQ%ns%G"), ("ns%T", "ns%T"), ("TBW102", "TBW102")],
)
def test_namespaces(name: str, wire: str) -> None:
    assert namespaces.wrapped("ns", name) == wire
    assert namespaces.wrapped("", name) == name
    if wire != name:
        assert namespaces.unwrapped("ns", wire) == name
        assert namespaces.unwrapped("other", wire) == wire


def test_ids_have_the_form_of_javas() -> None:
    now = datetime(2026, 12, 31, 23, 59, 59, 999_000)
    clock = [int(now.timestamp() * 1000)]
    ids = UniqueIds(bytes([10, 0, 0, 1]), 0x12345, 0x1_0BADCAFE, lambda: clock[0])
    first, second = ids.next(), ids.next()
    assert first[:20] == "0A000001" + "2345" + "0BADCAFE"
    assert int(first[20:28], 16) == clock[0] - int(datetime(2026, 12, 1).timestamp() * 1000)
    assert (first[28:], second[28:]) == ("0000", "0001")
    clock[0] += 1
    assert int(ids.next()[20:28], 16) == 0  # a new month, and year
    clock[0] -= 500
    assert int(ids.next()[20:28], 16) == 0  # set back a little
    assert len(UniqueIds(bytes(16), 1, 1, lambda: clock[0]).next()) == 56


ROUTE = {
    "brokerDatas": [
        {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": "h:1", "1": "h:2"}},
        {"brokerName": "a", "cluster": "c", "brokerAddrs": {"1": "h:3"}},
    ],
    "queueDatas": [
        {"brokerName": "b", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6},
        {"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
    ],
}


def test_routes() -> None:
    route = parse_route(json.dumps(ROUTE).replace('"0":', "0:").encode(), "answer")  # as fastjson writes keys
    assert route.write_queues("T") == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))  # a has no master
    assert [queue.broker for queue in route.read_queues("T")] == ["a", "b", "b", "b"]
    assert (route.address("b"), route.address("b", 1), route.address("a"), route.address("x")) == (
        "h:1", "h:2", "h:3", None
    )  # fmt: skip
    assert route.address("a", only=True) is None
    assert len(route.for_a_new_topic(1).write_queues("T")) == 1
    ordered = parse_route(json.dumps({**ROUTE, "orderTopicConf": "b:1;z:2"}).encode(), "answer")
    assert [(queue.broker, queue.queue_id) for queue in ordered.write_queues("T")] == [("b", 0), ("z", 0), ("z", 1)]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"queueDatas":[{}]}', b'{"brokerDatas":[1]}',
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":99999999,"writeQueueNums":1,"perm":6}]}',
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":-1,"writeQueueNums":1,"perm":6}]}',
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":1,"writeQueueNums":1,"perm":1e999}]}',
        json.dumps({"queueDatas": [
            {"brokerName": f"b{at}", "readQueueNums": 60_000, "writeQueueNums": 1, "perm": 6} for at in range(5)
        ]}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_route(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_route(body, "answer")


def test_a_broker_before_its_election_is_no_malformed_route() -> None:
    """It registers with -1 (BrokerStartup of 5.x); its master is found beside it."""
    broker = {"cluster": "C", "brokerName": "b", "brokerAddrs": {"-1": "h:1", "0": "h:2"}}
    route = parse_route(json.dumps({"queueDatas": [], "brokerDatas": [broker]}).encode(), "answer")
    assert route.address("b") == "h:2"


def message(offset: int, size: int = 1, tags: str | None = None) -> ReceivedMessage:
    properties = {} if tags is None else {"TAGS": tags}
    record = encode(Message("T", b"x" * size, properties=properties))
    patch(record, 0, queue_offset=offset, physical_offset=0, store_timestamp=0)
    return received(decode(record), "a")


@given(st.permutations(list(range(12))), st.integers(1, 5))
def test_the_offset_is_that_of_the_oldest_message(order: list[int], batch: int) -> None:
    held, messages = ProcessQueue(), [message(100 + i) for i in range(12)]
    held.add(messages)
    left = set(range(12))
    for at in range(0, 12, batch):
        part = order[at : at + batch]
        left -= set(part)
        assert held.remove([messages[i] for i in part]) == 100 + (min(left) if left else 12)
    assert (len(held), held.size, held.remove([messages[0]])) == (0, 0, None)


def test_what_is_taken_in_order_comes_back_first() -> None:
    held = ProcessQueue()
    held.add([message(i, size=10) for i in range(5)])
    taken = held.take(3)
    assert [one.queue_offset for one in taken] == [0, 1, 2]
    assert (len(held), held.size, held.bounds()) == (5, 50, (0, 4))
    held.put_back(taken[1:])
    assert (len(held), held.size) == (4, 40)
    assert [one.queue_offset for one in held.take(10)] == [1, 2, 3, 4]
    assert held.commit() == 5
    assert (held.commit(), held.size, held.bounds()) == (None, 0, None)


def test_what_is_full() -> None:
    held = ProcessQueue()
    held.add([message(0), message(3000)])
    assert held.is_full(FlowLimits(), ordered=False)
    assert not held.is_full(FlowLimits(), ordered=True)
    assert held.is_full(FlowLimits(messages=1), ordered=True)
    assert held.is_full(FlowLimits(size=1), ordered=True)


def test_subscriptions() -> None:
    def of(expression: str, kind: str = TAG) -> TopicSubscription:
        return TopicSubscription.of("T", expression, kind, 1)

    assert of("").expression == of(" * ").expression == "*"
    wanted = of("a || b||")
    assert wanted.tags == ("a", "b")
    assert [wanted.wants(message(0, tags=tags)) for tags in ("a", "c", None)] == [True, False, False]
    assert wanted.to_json()["codeSet"] == [97, 98]
    assert of("a > 1", SQL92).wants(message(0))
    for expression, kind in (("||", TAG), (" ", SQL92), ("*", "XPATH")):
        with pytest.raises(InvalidArgument):
            of(expression, kind)


NOBODY = cast("RemotingClient", None)
"""The peer of a request that nobody answers."""


def test_a_reply_whose_body_needs_a_package_fails_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        replies = Replies()
        fields = {"sysFlag": str(CompressionType.ZSTD.flags), "properties": f"{CORRELATION_ID}\x01one\x02"}
        body = deflate(b"answer", CompressionType.ZSTD, 5)
        pushed = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, flag=ONEWAY, ext=fields, body=body)
        with replies.expected("one") as future:
            replies.take(NOBODY, pushed)
            assert (await future).body == b"answer"
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with replies.expected("one") as future:
            replies.take(NOBODY, pushed)
            with pytest.raises(NotInstalled, match="needs zstandard"):
                await future

    asyncio.run(run())
