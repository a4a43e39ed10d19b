"""The daemon in this process, a client of ours on the wire: semantics, limits, hostile peers, stopping."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from engine.broker.handlers.send import _SHORT, SendHandler
from engine.broker.settings.broker_settings import BrokerSettings
from engine.config import StoreConfig
from engine.errors import InvalidArgument, StorageError
from engine.format import batch
from engine.format.message import decode
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import ONEWAY, SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.opening import assert_sound


def served(root: Path, work: Callable[[Client, Client, str], Awaitable[None]], **settings: object) -> None:
    """Run `work` with two clients of a daemon; its store is sound afterwards."""

    async def run() -> None:
        async with daemon(root, **settings) as found:
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            assert found.listening.names is not None
            await work(one, two, found.listening.names)

    asyncio.run(run())
    assert not (root / "abort").exists()
    assert_sound(StoreConfig(store_path_root_dir=root).with_changes(**SMALL))


def test_what_is_sent_is_pulled(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        sent = await one.put("T", b"hello", 2, "KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true")
        assert (sent.code, sent.fields["queueId"], sent.fields["queueOffset"]) == (0, "2", "0")
        assert sent.fields["MSG_REGION"] == "DefaultRegion"
        found = await two.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, queue_id=2))
        while found.code == ResponseCode.PULL_NOT_FOUND:  # dispatch is a moment behind
            found = await two.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, queue_id=2))
        assert (found.code, found.remark, found.fields["nextBeginOffset"]) == (0, "FOUND", "1")
        message = decode(found.body)
        assert message.body == b"hello"
        assert message.properties == {"KEYS": "k1", "TAGS": "TagA", "CLUSTER": "DefaultCluster"}
        assert message.msg_id == sent.fields["msgId"]
        assert message.born_timestamp == 1_700_000_000_000
        view = await one.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(message.physical_offset)})
        assert view.body == found.body
        ask = {"topic": "T", "key": "k1", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
        keyed = await one.ask(RequestCode.QUERY_MESSAGE, ask)
        while keyed.code == ResponseCode.QUERY_NOT_FOUND:  # the index comes behind the queue
            keyed = await one.ask(RequestCode.QUERY_MESSAGE, ask)
        assert keyed.body == found.body
        name_service = await Client.to(names)
        route = orjson.loads((await name_service.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).body)
        assert route["queueDatas"][0]["writeQueueNums"] == 4
        assert (await name_service.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"})).code == 17

    served(tmp_path / "s", work)


def test_numbers_of_a_header_are_remembered_by_their_very_texts(tmp_path: Path) -> None:
    """More of them than are remembered, each twice; a text that is none is refused whenever it comes."""
    every = [{"e": str(i % 4), "h": f"{'+' * (i % 2)}{i}", "f": "0", "j": str(i % 3)} for i in range(300)]
    wrong = [{"h": "x"}, {"f": ""}, {"e": "1.5"}, {"j": str(1 << 31)}, {"e": "99"}]

    async def work(one: Client, two: Client, names: str) -> None:
        del names
        for _ in range(2):
            for numbers in every:
                opaque = one.send(RequestCode.SEND_MESSAGE_V2, send_fields("T", **numbers), b"b")
                sent = await one.answer(opaque)
                assert (sent.code, sent.fields["queueId"]) == (0, numbers["e"])
                where = {"offset": str(int(sent.fields["msgId"][-16:], 16))}
                stored = decode((await two.ask(RequestCode.VIEW_MESSAGE_BY_ID, where)).body)
                assert stored.queue_id == int(numbers["e"])
                assert (stored.flag, stored.reconsume_times) == (int(numbers["h"]), int(numbers["j"]))
            for numbers in wrong:
                for client in (one, two):
                    opaque = client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T", **numbers), b"b")
                    assert (await client.answer(opaque)).code == ResponseCode.SYSTEM_ERROR

    served(tmp_path / "s", work)


def test_long_texts_of_numbers_are_not_remembered() -> None:
    """Zeros before a number may fill a frame of 16 MiB, and hundreds of combinations are kept."""
    handler = SendHandler.__new__(SendHandler)
    for queue in ("1", "0" * 100 + "1"):
        ext = {"e": queue, "f": "0", "h": "0", "j": "0", "i": "0"}
        texts = (queue, "0", "0", "0")
        assert handler._numbers_of(ext, _SHORT, texts)[0] == 1
    assert list(handler._numbers) == [("1", "0", "0", "0")]


def test_a_batch_and_a_binary_header(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        body = batch.encode([batch.BatchItem.of(b"%d" % i, {"KEYS": f"b{i}"}) for i in range(5)])
        opaque = one.send(RequestCode.SEND_BATCH_MESSAGE, send_fields("B", m="true"), body, kind=1)
        answer = await one.answer(opaque)
        assert (answer.code, answer.serialize, answer.fields["msgId"].count(",")) == (0, 1, 4)
        broken = await one.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("B", m="true"), body[:-3])
        assert (broken.code, broken.ext) == (ResponseCode.SYSTEM_ERROR, None)  # as Apache, whose decoder throws
        one.send(RequestCode.SEND_MESSAGE_V2, send_fields("B"), b"x", flag=ONEWAY)
        assert (await one.ask(RequestCode.GET_MAX_OFFSET, {"topic": "B", "queueId": "0"})).code == 0

    served(tmp_path / "s", work)


def test_sends_that_wait_for_the_disk(tmp_path: Path) -> None:
    """Many at once: their answers come in any order, each with its own place; delays and ends of transactions, too."""

    async def work(one: Client, two: Client, names: str) -> None:
        del names
        sent = [one.send(RequestCode.SEND_MESSAGE_V2, send_fields("S"), b"%d" % i) for i in range(200)]
        places = [(await one.answer(opaque)).fields["queueOffset"] for opaque in sent]
        assert places == [str(i) for i in range(200)]
        body = batch.encode([batch.BatchItem.of(b"%d" % i, {}) for i in range(5)])
        assert (await two.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("S", m="true"), body)).code == 0
        two.send(RequestCode.SEND_MESSAGE_V2, send_fields("S"), b"x", flag=ONEWAY)
        two.send(RequestCode.SEND_BATCH_MESSAGE, send_fields("S", m="true"), body, flag=ONEWAY)
        await two.put("S", b"late", 0, "DELAY\x011")
        half = await two.put("S", b"half", 0, "TRAN_MSG\x01true\x02PGROUP\x01PG")
        place = {
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": str(int(half.fields["msgId"][16:], 16)),
        }
        two.send(37, {"producerGroup": "PG", "commitOrRollback": "8", "msgId": "x", **place}, flag=ONEWAY)
        await two.until_there("S", 213)
        assert two.unasked == []

    served(tmp_path / "s", work, sync=True)


def test_many_connections_and_many_held_pulls(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            clients = [await Client.to(found.listening.broker) for _ in range(200)]
            await clients[0].put("M", b"x")
            await clients[0].until_there("M", 1)
            held = [
                (client, client.send(RequestCode.PULL_MESSAGE, pull_fields("M", 1, wait_ms=60_000)))
                for client in clients[1:]
                for _ in range(10)
            ]
            assert (await clients[0].put("M", b"y")).code == 0
            for client, opaque in held:
                assert decode((await client.answer(opaque)).body).body == b"y"

    asyncio.run(run())


def test_a_pull_waits_and_is_woken_at_once(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        await one.put("W", b"first")
        await one.until_there("W", 1)
        took = []
        for i in range(1, 20):
            opaque = two.send(RequestCode.PULL_MESSAGE, pull_fields("W", i, wait_ms=60_000))
            await two.writer.drain()
            await asyncio.sleep(0.02)
            began = time.perf_counter()
            await one.put("W", b"%d" % i)
            answer = await two.answer(opaque)
            took.append(time.perf_counter() - began)
            assert (answer.code, decode(answer.body).body) == (0, b"%d" % i)
        assert sorted(took)[len(took) // 2] < 1  # far below the ticker's five seconds

    served(tmp_path / "s", work)


def test_a_pull_that_waits_in_vain_is_answered_in_time_and_when_the_broker_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            await client.put("W", b"x")
            await client.until_there("W", 1)
            late = client.send(RequestCode.PULL_MESSAGE, pull_fields("W", 1, wait_ms=600_000))
            await client.writer.drain()
            await asyncio.sleep(0.1)
        assert (await client.answer(late)).code == ResponseCode.PULL_NOT_FOUND

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "ext", "answer", "remark"),
    [
        (9999, None, 3, " request type 9999 not supported"),
        (RequestCode.SEND_MESSAGE_V2, {}, 1, "The specified topic is blank."),
        (RequestCode.SEND_MESSAGE_V2, send_fields("T/x"), 1, "The specified topic contains illegal characters"),
        (RequestCode.SEND_MESSAGE_V2, send_fields("SCHEDULE_TOPIC_XXXX"), 16, "is forbidden."),
        (RequestCode.SEND_MESSAGE_V2, {**send_fields("New"), "c": "nothing"}, 17, "topic[New] not exist"),
        (RequestCode.SEND_MESSAGE_V2, send_fields("Q", 99), 1, "request queueId[99] is illegal"),
        (RequestCode.SEND_MESSAGE_V2, {**send_fields("Q"), "e": "x"}, 1, "is not a number"),
        (RequestCode.PULL_MESSAGE, pull_fields("Nothing", 0), 17, "topic[Nothing] not exist"),
        (RequestCode.PULL_MESSAGE, pull_fields("TBW102", 0, queue_id=8), 1, "queueId[8] is illegal"),
        (RequestCode.PULL_MESSAGE, {**pull_fields("TBW102", 0), "sysFlag": "0"}, 24, "group info not exist"),
        (RequestCode.PULL_MESSAGE, pull_fields("TBW102", 5), 21, "NO_MESSAGE_IN_QUEUE"),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "77"}, 1, "can not find message by the offset, 77"),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, 1, "no consumer for this group, G"),
        (RequestCode.HEART_BEAT, None, 1, "not JSON"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "TBW102"}, 1, "conflict with system topic"),
    ],
)
def test_refusals_have_apaches_codes(
    tmp_path: Path, code: int, ext: dict[str, str] | None, answer: int, remark: str
) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        found = await one.ask(code, ext)
        assert found.code == answer
        assert remark in (found.remark or "")

    served(tmp_path / "s", work)


def test_members_are_told_of_each_other(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        await one.put("T", b"x")
        await one.heartbeat("G", "T")
        await two.heartbeat("G", "T")
        await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
        told = [c for c in one.pushed if c.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
        assert len(told) == 2  # of itself, and of the other
        ids = orjson.loads((await one.ask(38, {"consumerGroup": "G"})).body)["consumerIdList"]
        assert len(ids) == 2
        lock = {"consumerGroup": "G", "clientId": "a", "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "T"}]}
        assert orjson.loads((await one.ask(41, None, orjson.dumps(lock))).body)["lockOKMQSet"]
        other = orjson.dumps({**lock, "clientId": "b"})
        assert not orjson.loads((await two.ask(41, None, other)).body)["lockOKMQSet"]
        await one.ask(42, None, orjson.dumps(lock))
        assert orjson.loads((await two.ask(41, None, other)).body)["lockOKMQSet"]
        two.writer.close()
        while len([c for c in one.pushed if c.code == 40]) < 3:
            await one.ask(38, {"consumerGroup": "G"})

    served(tmp_path / "s", work)


def test_offsets_are_kept(tmp_path: Path) -> None:
    async def first(one: Client, two: Client, names: str) -> None:
        del two, names
        where = {"consumerGroup": "G", "topic": "T", "queueId": "1"}
        await one.put("T", b"x", 1)
        assert (await one.ask(14, where)).fields["offset"] == "0"
        await one.ask(15, {**where, "commitOffset": "1"})
        assert (await one.ask(14, where)).fields["offset"] == "1"

    async def second(one: Client, two: Client, names: str) -> None:
        del two, names
        assert (await one.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": "1"})).fields["offset"] == "1"

    served(tmp_path / "s", first)
    served(tmp_path / "s", second)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\x40\x00\x00\x00", bytes(64), b"\0\0\0\x08\0\0\0\x04{{{{"],
)
def test_who_sends_garbage_is_disconnected_and_no_other(tmp_path: Path, garbage: bytes) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        two.writer.write(garbage)
        assert await two.closed()
        assert (await one.put("T", b"x")).code == 0

    served(tmp_path / "s", work)


def test_who_never_reads_is_disconnected_and_no_other(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        for _ in range(3):
            await one.put("T", bytes(3 << 20))
        while (await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 2))).code != 0:
            pass
        for _ in range(200):
            two.send(RequestCode.PULL_MESSAGE, pull_fields("T", 0))
        assert (await one.put("T", b"x")).code == 0
        assert await two.closed()

    served(tmp_path / "s", work, output_limit=8 << 20)


def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", connections=2) as found:
            clients = [await Client.to(found.listening.broker) for _ in range(3)]
            assert await clients[2].closed()
            assert (await clients[0].put("T", b"x")).code == 0

    asyncio.run(run())


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "a") as first:
            port = int(first.listening.broker.rpartition(":")[2])
            with pytest.raises(StorageError, match=f"cannot listen on 127.0.0.1:{port}: address already in use"):
                async with daemon(tmp_path / "b", listen_port=port):
                    pass

    asyncio.run(run())


def test_settings() -> None:
    found = BrokerSettings.of(
        {"brokerName": "b", "listenPort": "1", "autoCreateTopicEnable": "false"}, listen_host=None
    )
    assert (found.broker_name, found.listen_port, found.auto_create_topic) == ("b", 1, False)
    assert BrokerSettings.of({"listenPort": "x"}).listen_port == BrokerSettings.of({}).listen_port
    with pytest.raises(InvalidArgument, match="not an IP address"):
        BrokerSettings.of({"brokerIP1": "here"})


def test_a_silent_client_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    """A good-bye would wait behind what it doesn't take, and its connection and memory with it."""

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            for _ in range(3):
                await one.put("T", bytes(3 << 20))
            while (await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 2))).code != 0:
                pass
            for _ in range(5):
                two.send(RequestCode.PULL_MESSAGE, pull_fields("T", 0))
            board = found._boards[0]
            async with asyncio.timeout(60):
                while not any(connection.output_waiting for connection in board.connections):
                    await asyncio.sleep(0.01)
                (slow,) = [connection for connection in board.connections if connection.output_waiting]
                board.close_idle(slow.active + found.broker.settings.idle_s + 1)
                while slow in board.connections:
                    await asyncio.sleep(0.01)
            assert board.cut["idle"] >= 1

    asyncio.run(run())


def test_a_pull_that_waits_keeps_nothing_of_its_request(tmp_path: Path) -> None:
    """A hundred thousand may wait; each may have come with a frame of 16 MiB."""

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            one = await Client.to(found.listening.broker)
            await one.put("T", b"x")
            await one.until_there("T", 1)
            wait = {**pull_fields("T", 1, wait_ms=60_000), "more": "x" * 100_000}
            waiting = one.send(RequestCode.PULL_MESSAGE, wait, bytes(1 << 20))
            async with asyncio.timeout(60):
                while not found.broker.pulls.held:
                    await asyncio.sleep(0.001)
            held = [what for what in gc.get_objects() if type(what) is RemotingCommand]
            assert all(len(what.body) < 1000 and "more" not in what.fields for what in held)
            await one.put("T", b"y")
            assert (await one.answer(waiting)).code == 0

    asyncio.run(run())


def test_other_names_of_a_producer_are_not_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            one = await Client.to(found.listening.broker)
            for number in range(5):
                said = {"clientID": f"c{number}", "producerDataSet": [{"groupName": "P"}]}
                assert (await one.ask(RequestCode.HEART_BEAT, None, orjson.dumps(said))).code == 0
            members = found.broker.members
            assert members.producer("c0") is not None
            assert [members.producer(f"c{number}") for number in range(1, 5)] == [None] * 4

    asyncio.run(run())
