"""Names of groups and topics that a client of Apache's would refuse come to no table, file, log or terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import orjson
import pytest

from engine.format.topic_rules import escaped, refused_group
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import Client, daemon, pull_fields

BAD = ("G\x1b[31m", "G\n", "a b", "../../etc", "é", "", "  ", "G" * 256)
GOOD = ("G", "%RETRY%G", "CID-a_b|c", "G" * 255)


@pytest.mark.parametrize("name", BAD)
def test_what_a_client_refuses(name: str) -> None:
    why = refused_group(name)
    assert why is not None
    assert why.isprintable()


@pytest.mark.parametrize("name", GOOD)
def test_what_a_client_takes(name: str) -> None:
    assert refused_group(name) is None


def test_a_name_is_shown_escaped() -> None:
    assert escaped("G\x1b[31m\n\x07ä") == "G\\x1b[31m\\n\\x07ä"


def heartbeat(group: str, topic: str = "T", *, producer: bool = False) -> bytes:
    members = [{"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}]}]
    return orjson.dumps({"clientID": "c", "producerDataSet" if producer else "consumerDataSet": members})


async def asked(client: Client, name: str) -> list[RemotingCommand]:
    """With this name, wherever a group or a topic comes in."""
    offset = {"queueId": "0", "commitOffset": "7"}
    back = {"group": name, "offset": "0", "delayLevel": "0", "originMsgId": "x"}
    return [
        await client.ask(RequestCode.HEART_BEAT, None, heartbeat(name)),
        await client.ask(RequestCode.HEART_BEAT, None, heartbeat(name, producer=True)),
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": name, "topic": "T", **offset}),
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, orjson.dumps({"groupName": name})),
        await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back),
        await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, group=name)),
        await client.ask(
            RequestCode.CLONE_GROUP_OFFSET,
            {"srcGroup": "G", "destGroup": name, "topic": "T", "offline": "true"},
        ),
    ]


@pytest.mark.parametrize("name", [name for name in BAD if name])
def test_they_are_refused_wherever_they_come_in(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            for answer in await asked(client, name):
                assert answer.code == 1
                assert "the specified group" in (answer.remark or "")
                assert (answer.remark or "").isprintable()
            if len(name) < 256 and name.strip():
                beat = await client.ask(RequestCode.HEART_BEAT, None, heartbeat("G", name))
                at = {"consumerGroup": "G", "topic": name, "queueId": "0", "commitOffset": "7"}
                for answer in (beat, await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, at)):
                    assert answer.code == 1
                    assert "the specified topic" in (answer.remark or "")
                assert (await client.put(name, b"x")).code == 1

    asyncio.run(run())
    files = [path for path in (tmp_path / "s" / "config").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert name not in path.read_text()
        assert json.dumps(name)[1:-1] not in path.read_text()


def test_a_group_that_a_store_has_already_goes_on(tmp_path: Path) -> None:
    """An older client or another broker has made it."""

    async def begin() -> None:
        async with daemon(tmp_path / "s"):
            pass

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await client.ask(RequestCode.HEART_BEAT, None, heartbeat("my.group"))).code == 0

    asyncio.run(begin())
    path = tmp_path / "s" / "config" / "subscriptionGroup.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"subscriptionGroupTable":{"my.group":{"groupName":"my.group"}}}')
    asyncio.run(run())
