"""Who reads which queues, told to consumers of RocketMQ 5. With Apache's answers: tests/compat/test_pops5.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CannotRepair
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import Client, daemon

GROUP, TOPIC = "CID", "T"


async def _set(client: Client, mode: str, **more: object) -> None:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode, **more}
    assert (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())).code == 0


async def _assigned(client: Client, **more: object) -> Any:
    body = {
        "topic": TOPIC, "consumerGroup": GROUP, "clientId": client.client_id, "strategyName": "AVG",
        "messageModel": "CLUSTERING", **more,
    }  # fmt: skip
    answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
    assert answer.code == 0
    rows = json.loads(answer.body).get("messageQueueAssignments")
    if rows is None:
        return None
    return sorted((row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"], row["mode"]) for row in rows)


async def _ready(client: Client) -> None:
    assert (await client.put(TOPIC, b"it is there")).code == 0
    await client.heartbeat(GROUP, TOPIC)


def test_clients_share_queues_and_modes_outlast_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client, other = await Client.to(server.listening.broker), await Client.to(server.listening.broker)
            await _ready(client)
            assert await _assigned(client) == [("broker-a", number, "PULL") for number in range(4)]
            await _ready(other)
            halves = await _assigned(client), await _assigned(other)
            assert sorted(halves[0] + halves[1]) == [("broker-a", number, "PULL") for number in range(4)]
            await _set(client, "POP")
            assert await _assigned(client) == await _assigned(other) == [("broker-a", -1, "POP")]
            assert await _assigned(client, strategyName="CONFIG") is None
        text = (tmp_path / "config" / "messageRequestMode.json").read_text()
        mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC}
        assert json.loads(text) == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            await client.heartbeat(GROUP, TOPIC)
            assert await _assigned(client) == [("broker-a", -1, "POP")]

    asyncio.run(run())


def test_the_next_clients_pop_a_clients_queues_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            clients = [await Client.to(server.listening.broker) for _ in range(4)]
            for client in clients:
                await _ready(client)
            await _set(clients[0], "POP", popShareQueueNum=1)
            shares = [await _assigned(client) for client in clients]
            assert all(len(share) == 2 for share in shares)
            assert sorted(queue for share in shares for queue in share) == sorted(
                ("broker-a", number, "POP") for number in (*range(4), *range(4))
            )

    asyncio.run(run())


def test_queues_of_other_brokers_come_from_the_name_server(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "a") as names:
            servers = {"name_servers": names.listening.names, "broker_name": "broker-b", "name_service_port": None}
            async with daemon(tmp_path / "b", **servers) as server:
                one, other = await Client.to(names.listening.broker), await Client.to(server.listening.broker)
                await _ready(one)
                assert await _assigned(one) == [("broker-a", number, "PULL") for number in range(4)]
                await _ready(other)
                both = sorted((broker, number, "PULL") for broker in ("broker-a", "broker-b") for number in range(4))
                async with asyncio.timeout(60):
                    while await _assigned(one) != both:  # it registers when the topic is there
                        await asyncio.sleep(0.02)
                assert await _assigned(other) == both
                assert await _assigned(other, topic="None") is None

    asyncio.run(run())


def test_a_topic_of_many_queues_is_shared_out_whole(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            await _ready(client)
            topic = {"topic": TOPIC, "readQueueNums": 65536, "writeQueueNums": 8, "perm": 6}
            fields = {name: str(value) for name, value in (topic | {"topicFilterType": "SINGLE_TAG"}).items()}
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
            assert await _assigned(client) == [("broker-a", number, "PULL") for number in range(65536)]
            await _set(client, "POP")
            assert await _assigned(client) == [("broker-a", -1, "POP")]

    asyncio.run(run())


def test_what_can_not_be_set_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path) as server:
            client = await Client.to(server.listening.broker)
            await _ready(client)
            for more, code in (
                ({"mode": "PUSH"}, ResponseCode.SYSTEM_ERROR),
                ({"topic": None}, ResponseCode.SYSTEM_ERROR),
                ({"popShareQueueNum": "many"}, ResponseCode.SYSTEM_ERROR),
                ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
                ({"topic": "%RETRY%CID"}, ResponseCode.NO_PERMISSION),
            ):
                body = json.dumps({"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", **more}).encode()
                assert (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)).code == code, more
        assert not (tmp_path / "config" / "messageRequestMode.json").exists()

    asyncio.run(run())


def test_a_file_that_is_none_ends_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path):
            pass

    asyncio.run(run())
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "messageRequestMode.json").write_text('{"messageRequestModeMap":{"T":7}}')
    with pytest.raises(CannotRepair, match="T: not a JSON object"):
        asyncio.run(run())
