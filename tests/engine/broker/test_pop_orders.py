"""Groups that pop in order: one has a queue at a time. With Apache's answers: tests/compat/test_pops5.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from engine.broker.pop.receipts import ORDER_QUEUE, Receipt
from engine.errors import CannotRepair
from engine.format.message import decode_each
from engine.wire.codes import V5_0_0, RequestCode
from engine.wire.command import RemotingCommand, SerializeType
from engine.wire.frames import encode
from tests.engine.broker.client import Client, daemon, send_fields
from tests.engine.broker.test_pops import GROUP, TOPIC, now_ms, pop_fields


async def _pop(client: Client, **more: object) -> tuple[list[bytes], RemotingCommand]:
    answer = await client.ask(RequestCode.POP_MESSAGE, pop_fields(order="true", queue_id=0, **more))  # type: ignore[arg-type]
    return [bytes(one.body) for one in decode_each(answer.body)], answer


def _of(answer: RemotingCommand, offset: int, **more: object) -> dict[str, str]:
    receipt = Receipt(0, int(answer.fields["popTime"]), 60_000, ORDER_QUEUE, "0", "broker-a", 0)
    named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "offset": offset, "extraInfo": receipt.of(offset)}
    return {name: str(value) for name, value in {**named, **more}.items()}


async def _ready(address: str) -> Client:
    client = await Client.to(address)
    await client.heartbeat(GROUP, TOPIC)
    return client


def test_a_queue_waits_for_its_acknowledgements_also_over_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await _ready(server.listening.broker)
            for number in range(3):
                await client.put(TOPIC, b"%d" % number)
            await client.until_there(TOPIC, 3)
            bodies, first = await _pop(client, most=2)
            assert bodies == [b"0", b"1"]
            assert (await _pop(client))[0] == []
            assert (await client.ask(RequestCode.ACK_MESSAGE, _of(first, 0))).code == 0
        infos = orjson.loads((tmp_path / "config" / "consumerOrderInfo.json").read_text().replace("0:{", '"0":{'))
        assert infos["table"][f"{TOPIC}@{GROUP}"]["0"]["o"] == [0, 1]
        assert infos["table"][f"{TOPIC}@{GROUP}"]["0"]["cm"] == 1
        async with daemon(tmp_path) as server:
            client = await _ready(server.listening.broker)
            assert (await _pop(client))[0] == []
            change = _of(first, 1, invisibleTime=1)
            assert (await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change)).code == 0
            bodies, again = await _pop(client, pollTime=60_000, bornTime=now_ms())
            assert bodies == [b"1", b"2"]
            assert again.fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"

    asyncio.run(run())


def test_who_waits_gets_the_queue_when_it_comes_free(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await _ready(server.listening.broker)
            for number in range(2):
                await client.put(TOPIC, b"%d" % number)
            await client.until_there(TOPIC, 2)
            _, first = await _pop(client, most=1)
            fields = pop_fields(order="true", queue_id=0, pollTime=60_000, bornTime=now_ms())  # type: ignore[arg-type]
            waiting = client.send(RequestCode.POP_MESSAGE, fields)
            assert (await client.ask(RequestCode.ACK_MESSAGE, _of(first, 0))).code == 0
            assert [bytes(one.body) for one in decode_each((await client.answer(waiting)).body)] == [b"1"]

    asyncio.run(run())


@pytest.mark.parametrize("text", ['{"table":{"T@G":{"0":7}}}', '{"table":{"T@G":{"0":{"o":["x"]}}}}', '{"table":[1]}'])
def test_a_file_that_is_none_ends_the_start(tmp_path: Path, text: str) -> None:
    async def run() -> None:
        async with daemon(tmp_path):
            pass

    (tmp_path / "config").mkdir(parents=True)
    (tmp_path / "config" / "consumerOrderInfo.json").write_text(text)
    with pytest.raises(CannotRepair, match="consumerOrderInfo"):
        asyncio.run(run())


def test_what_a_proxy_asks_first(tmp_path: Path) -> None:
    """One topic's and one group's settings; a group keeps what RocketMQ 5 has of it besides, over a restart."""
    orderly = {"groupName": GROUP, "consumeMessageOrderly": True, "groupRetryPolicy": {"type": "EXPONENTIAL"}}

    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            await client.put(TOPIC, b"it is there")
            body = orjson.dumps(orderly)
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
            topic = orjson.loads((await client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})).body)
            assert (topic["topicName"], topic["attributes"], topic["readQueueNums"]) == (TOPIC, {}, 4)
            assert (await client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "None"})).code == 17
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUP})
            group = orjson.loads(answer.body)
            assert group.items() >= {**orderly, "consumeTimeoutMinute": 15, "retryMaxTimes": 16}.items()

    asyncio.run(run())


def test_a_client_of_rocketmq_5_is_told_the_transaction_id(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            half = send_fields(TOPIC, 0, "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01ABC")
            assert "transactionId" not in (await client.ask(RequestCode.SEND_MESSAGE_V2, half, b"4.9.8")).fields
            command = RemotingCommand(
                RequestCode.SEND_MESSAGE_V2, 77, 0, None, half, b"5", version=V5_0_0, serialize=SerializeType.JSON
            )
            client.writer.writelines(encode(command))
            assert (await client.answer(77)).fields["transactionId"] == "ABC"

    asyncio.run(run())
