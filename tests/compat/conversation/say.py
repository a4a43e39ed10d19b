"""How requests are said: headers and bodies as clients write them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from engine.format.hashing import tags_code
from engine.wire.codes import RequestCode as Code
from engine.wire.command import RemotingCommand
from tests.compat.conversation.talk import Peer

BORN = 1_700_000_000_000
SEND_LOOSE = ("ext.queueId",)


def properties(**said: str) -> str:
    """As clients write them."""
    return "\x02".join(f"{name}\x01{value}" for name, value in said.items())


def send(topic: Any, queue: Any = 0, **more: Any) -> dict[str, Any]:
    """SEND_MESSAGE_V2; None leaves a field out."""
    said: dict[str, Any] = {
        "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": BORN, "h": 7, "i": "", "j": 0,
        "k": "false", "m": "false",
    }  # fmt: skip
    return {**said, **more}


def send_v1(topic: Any, queue: Any = 0, **more: Any) -> dict[str, Any]:
    """SEND_MESSAGE."""
    said: dict[str, Any] = {
        "producerGroup": "PG", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": queue,
        "sysFlag": 0, "bornTimestamp": BORN, "flag": 7, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
    }  # fmt: skip
    return {**said, **more}


def batch(*messages: tuple[bytes, str]) -> bytes:
    """The body of a batch: bodies and their properties."""
    found = bytearray()
    for body, said in messages:
        raw = said.encode()
        size = 4 * 5 + len(body) + 2 + len(raw)
        found += struct.pack(">iiiii", size, 0, 0, 3, len(body)) + body + struct.pack(">h", len(raw)) + raw
    return bytes(found)


def pull(topic: Any, offset: Any = 0, queue: Any = 0, group: Any = "PullGroup", **more: Any) -> dict[str, Any]:
    """PULL_MESSAGE with its own subscription, that doesn't wait."""
    said: dict[str, Any] = {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    return {**said, **more}


def topic(name: Any, queues: Any = 4, perm: Any = 6, **more: Any) -> dict[str, Any]:
    """UPDATE_AND_CREATE_TOPIC."""
    said: dict[str, Any] = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return {**said, **more}


def group(name: Any, **more: Any) -> dict[str, Any]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    said: dict[str, Any] = {
        "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
        "groupName": name, "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }  # fmt: skip
    return {**said, **more}


def subscription(name: str, expression: str = "*", version: int = 1, kind: str | None = "TAG") -> dict[str, Any]:
    """One topic of a heartbeat."""
    tags = [] if expression == "*" or kind == "SQL92" else [tag.strip() for tag in expression.split("||")]
    found = {
        "classFilterMode": False, "codeSet": list(map(tags_code, tags)), "subString": expression,
        "subVersion": version, "tagsSet": tags, "topic": name,
    }  # fmt: skip
    return found if kind is None else {**found, "expressionType": kind}


def heartbeat(client: str, *consumers: dict[str, Any], producers: tuple[str, ...] = ()) -> dict[str, Any]:
    """HEART_BEAT."""
    return {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
    }


def consumer(name: str, *subscriptions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A consumer group of a heartbeat."""
    said: dict[str, Any] = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": name,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
    }
    return {**said, **more}


async def until(peer: Peer, code: Code, ext: dict[str, Any], wanted: Callable[[RemotingCommand], bool]) -> None:
    """Until a request is answered as `wanted`; not for ever: what is answered then, the step that follows tells."""
    for _ in range(200):
        if wanted(await peer.quiet(code, ext)):
            return
        await asyncio.sleep(0.05)


async def until_there(peer: Peer, name: str, offset: int, queue: int = 0) -> None:
    """Until a queue has so many messages: dispatch is a moment behind the put."""
    for _ in range(400):
        found = await peer.quiet(Code.GET_MAX_OFFSET, {"topic": name, "queueId": queue})
        if int(found.fields["offset"]) >= offset:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name}-{queue} never reaches {offset}")
