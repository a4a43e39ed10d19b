"""What brokers ask of a consumer, as mqadmin and dashboards come by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from engine.client.asked import reset_table
from engine.client.consumer_settings import ConsumeOutcome, ConsumerSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.queues import MessageQueue
from engine.errors import FormatError
from engine.wire import object_keys
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import Client as Admin
from tests.engine.client.clusters import PATIENT, cluster
from tests.engine.client.test_push_consumer import PATIENCE_S, Seen, send

FIRST = ConsumerSettings(start=StartFrom.FIRST_OFFSET, persist_s=0.05)


def test_where_it_stands_and_that_it_begins_elsewhere(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "s") as (served, client):
            seen = Seen()
            await send(client, 12)
            async with client.push_consumer("G", seen, FIRST) as consumer:
                await consumer.subscribe("T", "*")
                await seen.until(12)
                admin = await Admin.to(served.listening.broker)
                who = {"consumerGroup": "G", "clientId": client.id, "jstackEnable": "false"}
                answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, who)
                assert answer.code == 0, answer
                text = bytes(answer.body).decode()
                rows = object_keys.read(text, "mqTable")
                assert {(key["topic"], key["queueId"]) for key, _ in rows} >= {("T", number) for number in range(4)}
                assert sum(value["commitOffset"] for key, value in rows if key["topic"] == "T") == 12
                head = orjson.loads(text[: text.index(',"mqTable"')] + "}")
                assert head["statusTable"]["T"]["consumeOKTPS"] > 0
                assert head["properties"]["PROP_CONSUMEORDERLY"] == "false"
                back = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
                async with asyncio.timeout(PATIENCE_S):
                    while (await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, back)).code:
                        await asyncio.sleep(0.02)  # a broker resets no group that has committed nothing
                await seen.until(24)
            assert sorted(seen.bodies[:12]) == sorted(seen.bodies[12:24])

    asyncio.run(run())


def test_a_message_is_consumed_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "s") as (served, client):
            sent = await client.producer("P", PATIENT).send(OutgoingMessage("T", b"x"))
            outcomes = [ConsumeOutcome.LATER, ConsumeOutcome.SUCCESS]

            async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
                if not outcomes:
                    raise ValueError("no more")
                return outcomes.pop()

            async with client.push_consumer("G", handle) as consumer:
                await consumer.subscribe("Other")
                admin = await Admin.to(served.listening.broker)
                who = {"consumerGroup": "G", "clientId": client.id, "msgId": sent.offset_id, "brokerName": "broker-a"}
                results = []
                for _ in range(3):
                    answer = await admin.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, who)
                    assert answer.code == 0, answer
                    results.append(orjson.loads(answer.body))
                assert [one["consumeResult"] for one in results] == ["CR_SUCCESS", "CR_LATER", "CR_THROW_EXCEPTION"]
                assert results[2]["remark"] == "ValueError('no more')"
            gone = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**who, "jstackEnable": "false"})
            assert gone.code == ResponseCode.SYSTEM_ERROR

    asyncio.run(run())


def test_tables_with_objects_as_keys() -> None:
    queue = {"brokerName": "b", "queueId": 3, "topic": "T"}
    body = b'{"offsetTable":' + object_keys.write([(queue, 7)]) + b"}"
    assert body == b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:7}}'
    assert reset_table(body) == {MessageQueue("T", "b", 3): 7}
    assert reset_table(b'{"offsetTable":{}}') == {}
    for wrong in (
        b"",
        b"{}",
        b'{"offsetTable":{{"a":1}:2}}',
        b'{"offsetTable":{"a":2}}',
        b'{"offsetTable":{{"queueId":',
    ):
        with pytest.raises(FormatError):
            reset_table(wrong)
