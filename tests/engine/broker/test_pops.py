"""Consumers that pop: given once, acknowledged or given again, over restarts and kills; and while they wait."""

from __future__ import annotations

import asyncio
import base64
import shutil
import time
from pathlib import Path

import orjson
import pytest

from engine.broker.broker import Broker
from engine.broker.pop.receipts import Acknowledged, PopCheckpoint, Receipt, kind_of, normal_topic, retry_topic
from engine.broker.serve import Daemon
from engine.config import StoreConfig
from engine.errors import FormatError
from engine.format.message import StoredMessage, decode_each
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound, gather_for_minutes

GROUP, TOPIC = "G", "T"
LONG_MS = 60_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def pop_fields(queue_id: int = -1, most: int = 32, invisible_ms: int = LONG_MS, **more: object) -> dict[str, str]:
    named = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "maxMsgNums": most, "invisibleTime": invisible_ms,
        "pollTime": 0, "bornTime": 0, "initMode": 0, **more,
    }  # fmt: skip
    return {name: str(value) for name, value in named.items()}


class Popper:
    """A client that pops, and knows the receipts of what it got."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    async def to(cls, served: Daemon) -> Popper:
        client = await Client.to(served.listening.broker)
        await client.heartbeat(GROUP, TOPIC)
        return cls(client)

    async def pop(self, **wanted: int) -> list[tuple[StoredMessage, str]]:
        """Messages with their receipts; as the Java client makes them of the answer."""
        return receipts(await self.client.ask(RequestCode.POP_MESSAGE, pop_fields(**wanted)))

    async def pop_until(self, count: int, **wanted: int) -> list[tuple[StoredMessage, str]]:
        got: list[tuple[StoredMessage, str]] = []
        async with asyncio.timeout(60):
            while len(got) < count:
                got += await self.pop(**wanted)
                await asyncio.sleep(0.01)
        return got

    def _ext(self, message: StoredMessage, receipt: str, **more: object) -> dict[str, str]:
        kind = receipt.split(" ")[4]
        topic = retry_topic(TOPIC, GROUP) if kind == "1" else TOPIC
        return {
            "consumerGroup": GROUP, "topic": topic, "queueId": str(message.queue_id),
            "offset": str(message.queue_offset), "extraInfo": receipt, **{k: str(v) for k, v in more.items()},
        }  # fmt: skip

    async def ack(self, message: StoredMessage, receipt: str) -> None:
        answer = await self.client.ask(RequestCode.ACK_MESSAGE, self._ext(message, receipt))
        assert (answer.code, answer.remark) == (0, None)

    async def change(self, message: StoredMessage, receipt: str, invisible_ms: int) -> RemotingCommand:
        fields = self._ext(message, receipt, invisibleTime=invisible_ms)
        return await self.client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)


def receipts(answer: RemotingCommand) -> list[tuple[StoredMessage, str]]:
    if answer.code:
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        return []
    ext = answer.fields
    starts = {}
    for one in ext["startOffsetInfo"].split(";"):
        kind, queue_id, start = one.split(" ")
        starts[kind, int(queue_id)] = int(start)
    got = []
    for message in decode_each(answer.body):
        receipt = message.properties.get("POP_CK")
        if receipt is None:
            receipt = Receipt(
                starts["0", message.queue_id], int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"]),
                "0", "broker-a", message.queue_id,
            ).of(message.queue_offset)  # fmt: skip
        got.append((message, receipt))
    return got


async def put(client: Client, count: int, queues: int = 4) -> None:
    for number in range(count):
        answer = await client.ask(
            RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, number % queues, "TAGS\x01A"), b"%d" % number
        )
        assert answer.code == 0


def pass_time(served: Daemon) -> None:
    """What was invisible is to be given again now."""
    served.broker.now_ms = lambda: now_ms() + LONG_MS + 2000  # type: ignore[method-assign]


async def until_revived(served: Daemon) -> None:
    """Wait until what was to be given again is."""
    broker = served.broker
    async with asyncio.timeout(60):
        while not revived(broker):
            await asyncio.sleep(0.02)
    broker.store.wait_dispatched()


def revived(broker: Broker) -> bool:
    """Whether each revive queue is read to its end, and all of it is done."""
    broker.store.wait_dispatched()
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    done = {queue: broker.offsets.get("CID_RMQ_SYS_REVIVE_GROUP", topic, queue) for queue in range(8)}
    ends = {queue: broker.store.max_offset(topic, queue) for queue in range(8)}
    return all(end == 0 or done[queue] == end - 1 for queue, end in ends.items())


def bodies(got: list[tuple[StoredMessage, str]]) -> set[bytes]:
    return {message.body for message, _ in got}


def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            popper = await Popper.to(served)
            await put(popper.client, 20)
            got = await popper.pop_until(20, invisible_ms=LONG_MS)
            assert bodies(got) == {b"%d" % number for number in range(20)}
            assert await popper.pop() == []
            for message, receipt in got[:15]:
                await popper.ack(message, receipt)
            pass_time(served)
            again = await popper.pop_until(5)
            assert bodies(again) == bodies(got[15:])
            assert {message.reconsume_times for message, _ in again} == {1}
            assert {message.topic for message, _ in again} == {TOPIC}
            assert {message.properties["1ST_POP_TIME"] for message, _ in again} <= {one.split(" ")[1] for _, one in got}
            for message, receipt in again:
                await popper.ack(message, receipt)
            assert await popper.pop() == []

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_what_nobody_acknowledged_comes_again_after_a_restart(tmp_path: Path) -> None:
    async def begin() -> None:
        async with daemon(tmp_path / "s") as served:
            popper = await Popper.to(served)
            await put(popper.client, 12)
            got = await popper.pop_until(12, invisible_ms=LONG_MS)
            for message, receipt in got:
                if int(message.body) % 3 == 0:
                    await popper.ack(message, receipt)

    async def finish() -> None:
        async with daemon(tmp_path / "s") as served:
            pass_time(served)
            popper = await Popper.to(served)
            again = await popper.pop_until(8)
            assert bodies(again) == {b"%d" % number for number in range(12) if number % 3}
            assert await popper.pop() == []

    asyncio.run(begin())
    asyncio.run(finish())


def test_none_is_lost_by_a_kill(tmp_path: Path) -> None:
    """The files as a kill leaves them while messages are invisible: offsets and progress may be old."""

    async def begin() -> None:
        async with daemon(tmp_path / "s") as served:
            popper = await Popper.to(served)
            await put(popper.client, 12)
            got = await popper.pop_until(12, invisible_ms=LONG_MS)
            for message, receipt in got[:6]:
                acked.add(message.body)
                await popper.ack(message, receipt)
            served.broker.store.flush_all()
            shutil.copytree(tmp_path / "s", tmp_path / "killed", ignore=shutil.ignore_patterns("rstore.sock"))

    async def finish() -> None:
        async with daemon(tmp_path / "killed") as served:
            pass_time(served)
            popper = await Popper.to(served)
            left = {b"%d" % number for number in range(12)}
            async with asyncio.timeout(60):
                while left - acked:
                    left -= bodies(await popper.pop())
                    await asyncio.sleep(0.05)

    acked: set[bytes] = set()
    asyncio.run(begin())
    asyncio.run(finish())


def test_the_time_of_a_message_is_changed(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            popper = await Popper.to(served)
            await put(popper.client, 2, queues=1)
            (first, second) = await popper.pop_until(2, invisible_ms=LONG_MS)
            answer = await popper.change(*first, invisible_ms=300)
            assert answer.code == 0
            assert answer.fields["invisibleTime"] == "300"
            assert answer.fields["reviveQid"] == first[1].split(" ")[3]
            again = await popper.pop_until(1)
            assert bodies(again) == {first[0].body}
            assert again[0][0].reconsume_times == 1
            answer = await popper.change(second[0]._replace(queue_offset=99), second[1], 300)
            assert answer.code == ResponseCode.NO_MESSAGE

    asyncio.run(run())


def test_a_batch_is_acknowledged(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            popper = await Popper.to(served)
            await put(popper.client, 5, queues=1)
            served.broker.store.wait_dispatched()
            got = await popper.pop_until(5, invisible_ms=LONG_MS)
            start, popped, invisible, revive, kind, _, queue_id, _ = got[0][1].split(" ")
            ack = {
                "c": GROUP, "t": TOPIC, "r": kind, "so": int(start), "q": int(queue_id), "rq": int(revive),
                "pt": int(popped), "it": int(invisible), "b": base64.b64encode(bytes([0b01111])).decode(),
            }  # fmt: skip
            body = orjson.dumps({"brokerName": "broker-a", "acks": [ack]})
            assert (await popper.client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == 0
            pass_time(served)
            again = await popper.pop_until(1)
            assert bodies(again) == {b"4"}
            await until_revived(served)
            assert await popper.pop() == []
            assert (await popper.client.ask(RequestCode.BATCH_ACK_MESSAGE, {})).code == ResponseCode.NO_MESSAGE

    asyncio.run(run())


def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            popper, other = await Popper.to(served), await Client.to(served.listening.broker)
            await put(other, 1)
            await popper.pop_until(1)
            asked = popper.client.send(RequestCode.POP_MESSAGE, pop_fields(pollTime=60_000))
            place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
            while (await other.ask(RequestCode.POLLING_INFO, place)).fields["pollingNum"] != "1":
                await asyncio.sleep(0.01)
            await put(other, 1)
            assert len(receipts(await popper.client.answer(asked))) == 1
            told = popper.client.send(RequestCode.NOTIFICATION, pop_fields(pollTime=60_000, queueId=1))
            while (await other.ask(RequestCode.POLLING_INFO, {**place, "queueId": "1"})).fields["pollingNum"] != "1":
                await asyncio.sleep(0.01)
            await put(other, 2)
            assert (await popper.client.answer(told)).fields["hasMsg"] == "true"
            bodies: list[bytes] = []
            while len(bodies) < 2:  # stored, and in their queue a moment later
                peeked = await other.ask(RequestCode.PEEK_MESSAGE, pop_fields())
                bodies = [one.body for one in decode_each(peeked.body)]
            popped = await popper.pop()
            assert sorted(bodies) == sorted(message.body for message, _ in popped)
            brief = await popper.client.ask(RequestCode.POP_MESSAGE, pop_fields(pollTime=300))
            assert (brief.code, brief.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
            assert served.broker.held_pops.count == 0
            popper.client.send(RequestCode.POP_MESSAGE, pop_fields(pollTime=60_000))
            while (await other.ask(RequestCode.POLLING_INFO, place)).fields["pollingNum"] != "1":
                await asyncio.sleep(0.01)
            popper.client.writer.close()
            while served.broker.held_pops.count:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_pop_that_is_held_does_not_wait_for_what_is_gathered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As test_after_dispatch has it of a pull."""
    gather_for_minutes(monkeypatch)

    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            other, popper = await Client.to(served.listening.broker), await Popper.to(served)
            count = 1
            while not served.broker.store.dispatch._gathers_alone:
                await put(other, 1)
                count += 1
            await put(other, 1)
            got: set[int] = set()
            async with asyncio.timeout(60):
                while len(got) < count:
                    got |= {message.queue_offset for message, _ in await popper.pop(pollTime=60_000)}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, "topic[None] not exist, apply first please!"),
        ({"consumerGroup": "None"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [None] does not"),
        (
            {"queueId": 99},
            ResponseCode.INVALID_PARAMETER,
            "queueId[99] is illegal, topic:[T] topicConfig.readQueueNums",
        ),
        ({"most": 33}, ResponseCode.INVALID_PARAMETER, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"bornTime": 1}, ResponseCode.POLLING_TIMEOUT, "the broker[127.0.0.1] pop message is timeout too much"),
        ({"expType": "TAG", "exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription"),
    ],
)
def test_a_pop_is_refused(tmp_path: Path, changed: dict[str, int], code: int, remark: str) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", auto_create_group=False) as served:
            client = await Client.to(served.listening.broker)
            served.broker.groups.auto_create = True
            await client.heartbeat(GROUP, TOPIC)
            served.broker.groups.auto_create = False
            await put(client, 1)
            answer = await client.ask(RequestCode.POP_MESSAGE, pop_fields(**changed))
            assert answer.code == code
            assert answer.remark is not None
            assert answer.remark.startswith(remark)

    asyncio.run(run())


def test_what_is_written_is_read_again() -> None:
    checkpoint = PopCheckpoint("T", "G", 3, 10, 1000, 600, "b", (10, 12, 13))
    assert PopCheckpoint.of_json(checkpoint.to_json()) == checkpoint
    assert PopCheckpoint.of_json({**checkpoint.to_json(), "d": None, "bm": 2}).offsets == (10, 12)
    for offsets in ((12,), (12, 13)):
        acked = Acknowledged("T", "G", 3, 10, 1000, "b", offsets)
        assert Acknowledged.of_json(acked.to_json(), "x") == acked
        assert acked.key == checkpoint.key
    receipt = Receipt(10, 1000, 600, 2, "0", "b", 3)
    assert Receipt.parse(receipt.of(12)) == receipt
    for wrong in ("", "1 2 3", "a b c d e f g"):
        with pytest.raises(FormatError):
            Receipt.parse(wrong)
    with pytest.raises(FormatError):
        PopCheckpoint.of_json({"t": "T"})
    assert retry_topic("T", "G") == "%RETRY%G_T"
    assert normal_topic("%RETRY%G_T", "G") == "T"
    assert [kind_of(name) for name in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["0", "1", "2"]
