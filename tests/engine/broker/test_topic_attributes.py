"""Attributes of topics: set and changed as RocketMQ 5 does, kept over a restart, told with the topic."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from engine.broker.requests.answers import Answer
from engine.broker.tables.topic_attributes import altered
from engine.wire.codes import RequestCode
from tests.engine.broker.client import Client, daemon

TOPIC = {
    "topic": "A", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}  # fmt: skip


def test_attributes_are_kept_and_told(tmp_path: Path) -> None:
    async def told(client: Client) -> object:
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        return orjson.loads(answer.body)["topicConfigTable"]["A"].get("attributes")

    async def begin() -> None:
        async with daemon(tmp_path / "s") as served:
            client = await Client.to(served.listening.broker)
            made = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "attributes": "+message.type=FIFO"})
            assert made.code == 0
            refused = await client.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "attributes": "+queue.type=SimpleCQ"}
            )
            assert refused.remark == "attempt to update an unchangeable attribute. key: queue.type"
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)).code == 0
            assert await told(client) == {"message.type": "FIFO"}

    async def finish() -> None:
        async with daemon(tmp_path / "s") as served:
            assert await told(await Client.to(served.listening.broker)) == {"message.type": "FIFO"}

    asyncio.run(begin())
    asyncio.run(finish())


@pytest.mark.parametrize(
    ("wanted", "created", "remark"),
    [
        ("message.type=FIFO", True, "add/alter attribute format is wrong: message.type"),
        ("message.type", True, "delete attribute format is wrong: message.type"),
        ("-message.type", True, "only add attribute is supported while creating topic. key: message.type"),
        ("-reserve.time", False, "attempt to delete a nonexistent key: reserve.time"),
        ("+x=1", True, "unsupported key: x"),
        ("+message.type=X", True, "value is not in set: ["),
        ("+reserve.time=-2", True, "value is not in range(-1, "),
        ("+queue.type=BatchCQ", True, "queue.type=BatchCQ is not supported"),
        ("+message.type=FIFO,+message.type=FIFO", True, "alter duplication key. key: message.type"),
    ],
)
def test_attributes_are_refused(wanted: str, created: bool, remark: str) -> None:
    with pytest.raises(Answer) as raised:
        altered({"message.type": "NORMAL"}, wanted, created=created)
    assert str(raised.value.remark).startswith(remark)


def test_attributes_are_changed() -> None:
    now = {"message.type": "NORMAL"}
    assert altered(now, "", created=False) == now
    assert altered(now, "+reserve.time=-1", created=False) == {**now, "reserve.time": "-1"}
    assert altered(now, "-message.type", created=False) == {}
