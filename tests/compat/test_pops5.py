"""Pops as RocketMQ 5 answers them: the same conversation with its broker and with ours."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from engine.broker.pop.receipts import Receipt
from engine.format.message import decode_each
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from tests.compat import real_broker, served, toolchain
from tests.engine.broker.client import Client, send_fields

pytestmark = pytest.mark.interop

SETTINGS = "brokerName=broker-a\n"
GROUP, TOPIC = "CID_P", "Popped"
SHARERS, SHARED = "CID_S", "Shared"
ORDERERS, ORDERED = "CID_O", "Ordered"
OWN = {"MSG_REGION", "TRACE_ON", "UNIQ_KEY"}
"""What a broker of RocketMQ 5 adds to each message, where 4.9.8, and ours, adds nothing."""
TIMES = {"popTime", "reviveQid"}
ORDER_TIMES = {"popTime", "invisibleTime"}
INVISIBLE_MS = 4000
TURNS = 5
"""Brokers that are asked until one conversation is through before what it popped comes again."""
Seen = list[dict[str, object]]


class TooSlow(Exception):
    """What was popped may have come again while the conversation went on: its answers are another conversation's."""


def _fields(**more: object) -> dict[str, str]:
    """bornTime 0: the broker takes its own time, where a pop that is half a second old is answered with a timeout."""
    named = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 8, "invisibleTime": INVISIBLE_MS,
        "pollTime": 0, "bornTime": 0, "initMode": 0, **more,
    }  # fmt: skip
    return {name: str(value) for name, value in named.items()}


def _seen(answer: RemotingCommand) -> dict[str, object]:
    """An answer without what differs from run to run."""
    remark = (answer.remark or "").partition("consumer:[")[0].partition("See http")[0]  # 4.9.8 names another page
    messages = [
        (one.body, one.topic, one.queue_id, one.queue_offset, one.reconsume_times, sorted(set(one.properties) - OWN))
        for one in decode_each(answer.body)
    ]
    fields = {name: "" if name in TIMES else value for name, value in answer.fields.items()}
    return {"code": answer.code, "remark": remark, "fields": fields, "messages": messages}


async def _talk(address: str) -> Seen:
    client = await Client.to(address)
    seen: Seen = []

    async def say(code: int, **fields: object) -> RemotingCommand:
        answer = await client.ask(code, _fields(**fields))
        seen.append(_seen(answer))
        return answer

    for number in range(6):
        send = send_fields(TOPIC, 0, f"TAGS\x01{'AB'[number % 2]}")
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send, b"%d" % number)).code == 0
    await client.heartbeat(GROUP, TOPIC)
    await client.until_there(TOPIC, 6)
    await asyncio.sleep(1)
    began = time.monotonic()
    first = await say(RequestCode.POP_MESSAGE, maxMsgNums=2)
    ext = first.fields
    receipt = Receipt(0, int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"]), "0", "broker-a", 0)
    await say(RequestCode.ACK_MESSAGE, offset=0, extraInfo=receipt.of(0))
    await say(RequestCode.PEEK_MESSAGE)
    tagged = await say(RequestCode.POP_MESSAGE, expType="TAG", exp="A", maxMsgNums=1)
    ext = tagged.fields
    other = Receipt(2, int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"]), "0", "broker-a", 0)
    await say(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, offset=2, extraInfo=other.of(2), invisibleTime=60_000)
    await say(RequestCode.NOTIFICATION)
    await say(RequestCode.POP_MESSAGE)
    await say(RequestCode.POP_MESSAGE)
    await say(RequestCode.NOTIFICATION)
    await say(RequestCode.POLLING_INFO)
    await say(RequestCode.PEEK_MESSAGE)
    for wrong in ({"topic": "None"}, {"queueId": 99}, {"maxMsgNums": 33}, {"bornTime": 1}, {"exp": "||"}):
        await say(RequestCode.POP_MESSAGE, **wrong)
    await say(RequestCode.ACK_MESSAGE, offset=99, extraInfo=receipt.of(99))
    await say(RequestCode.ACK_MESSAGE, queueId=99, offset=0, extraInfo=receipt.of(0))
    await say(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, offset=99, extraInfo=other.of(99))
    assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, {})).code == 208
    if time.monotonic() - began >= INVISIBLE_MS / 1000:
        raise TooSlow
    again: dict[bytes, dict[str, object]] = {}
    async with asyncio.timeout(60):
        while len(again) < 4:  # all that was not acknowledged, and whose time was not changed
            answer = await client.ask(RequestCode.POP_MESSAGE, _fields(maxMsgNums=1, invisibleTime=60_000))
            for one in decode_each(answer.body):
                names = sorted(set(one.properties) - OWN)
                again[one.body] = {"topic": one.topic, "times": one.reconsume_times, "properties": names}
            await asyncio.sleep(0.05)
    seen.append({str(body): one for body, one in sorted(again.items())})
    return seen


async def _routed(names: str, topic: str) -> None:
    """Waits until a name server knows a topic, where RocketMQ 5 looks for its queues: it tells it without an answer."""
    client = await Client.to(names)
    async with asyncio.timeout(60):
        while (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code:
            await asyncio.sleep(0.05)


async def _share_out(address: str, names: str) -> Seen:
    """What consumers of RocketMQ 5 ask before they pop."""
    client, other = sorted([await Client.to(address), await Client.to(address)], key=lambda one: one.client_id)
    seen: Seen = []
    wanted = {
        "clientId": client.client_id, "consumerGroup": SHARERS, "messageModel": "CLUSTERING", "strategyName": "AVG",
        "topic": SHARED,
    }  # fmt: skip

    async def say(code: int, **more: object) -> None:
        body = {name: value for name, value in {**wanted, **more}.items() if value is not None}
        answer = await client.ask(code, {}, json.dumps(body).encode())
        told = json.loads(answer.body or b"null")
        if told and "messageQueueAssignments" in told:
            told["messageQueueAssignments"].sort(key=str)
        seen.append({"code": answer.code, "remark": answer.remark, "fields": answer.fields, "told": told})

    async def ask(**more: object) -> None:
        await say(RequestCode.QUERY_ASSIGNMENT, **more)

    async def set_mode(**more: object) -> None:
        await say(RequestCode.SET_MESSAGE_REQUEST_MODE, **more)

    assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(SHARED, 0), b"it is there")).code == 0
    await _routed(names, SHARED)
    await ask()  # nobody is a member
    await client.heartbeat(SHARERS, SHARED)
    for member in (SHARERS, "another"):
        await ask(clientId=client.client_id if member == SHARERS else member)
    for more in ({"strategyName": "AVG_BY_CIRCLE"}, {"strategyName": "OF_MY_OWN"}, {"topic": "None"}):
        await ask(**more)
    for model in ("BROADCASTING", "NONE_OF_BOTH", None):
        await ask(messageModel=model)
    seen[-1]["remark"] = seen[-2]["remark"] = ""  # a NullPointerException
    for wrong in ({"topic": "None"}, {"topic": f"%RETRY%{SHARERS}"}, {"topic": SHARED, "mode": "PULL"}):
        await set_mode(**wrong)
    for share in (0, 1, 2, 9):
        await set_mode(mode="POP", popShareQueueNum=share)
        await ask()
    await other.heartbeat(SHARERS, SHARED)
    await ask(clientId=other.client_id)
    await set_mode(mode="POP", popShareQueueNum=0)
    await ask(clientId=other.client_id)
    await set_mode()
    await ask(clientId=other.client_id)
    return seen


async def _in_order(address: str) -> Seen:
    """What a group that consumes in order does."""
    client = await Client.to(address)
    seen: Seen = []

    async def say(code: int, **fields: object) -> RemotingCommand:
        own = {"topic": ORDERED, "consumerGroup": ORDERERS, "maxMsgNums": 2, "invisibleTime": 60_000, "order": "true"}
        answer = await client.ask(code, _fields(**{**own, **fields}))
        told = _seen(answer)
        told["fields"] = {name: "" if name in ORDER_TIMES else value for name, value in answer.fields.items()}
        told["remark"] = (answer.remark or "").partition("/127")[0]
        queried = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, _fields(topic=ORDERED, consumerGroup=ORDERERS))
        seen.append({**told, "offset": queried.fields.get("offset")})
        return answer

    async def pop(attempt: str, **fields: object) -> Receipt:
        ext = (await say(RequestCode.POP_MESSAGE, attemptId=attempt, **fields)).fields
        return Receipt(0, int(ext["popTime"]), 60_000, 999, "0", "broker-a", 0)

    async def ack(receipt: Receipt, offset: int) -> None:
        await say(RequestCode.ACK_MESSAGE, offset=offset, extraInfo=receipt.of(offset))

    for number in range(5):
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERED, 0), b"%d" % number)).code == 0
    await client.heartbeat(ORDERERS, ORDERED)
    await client.until_there(ORDERED, 5)
    await asyncio.sleep(1)
    first = await pop("one")
    await pop("two")
    await say(RequestCode.NOTIFICATION, attemptId="two")
    await asyncio.sleep(0.01)  # another popTime
    again = await pop("one")
    await ack(first, 0)  # of a pop that is over
    await ack(again, 1)
    await pop("two")
    await ack(again, 3)  # it was not given
    await ack(again, 0)
    await ack(again, 0)
    alone = await pop("three", maxMsgNums=1)
    change = {"offset": 2, "extraInfo": alone.of(2), "invisibleTime": 1000}
    await say(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **change)
    await say(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **{**change, "offset": 1})
    last = await pop("four", pollTime=30_000, maxMsgNums=1)  # waits until 2 comes again
    body = {"c": ORDERERS, "t": ORDERED, "so": 2, "q": 0, "rq": 999, "pt": last.pop_time, "it": 60_000, "r": "0"}
    batch = {"brokerName": "broker-a", "acks": [{**body, "b": base64.b64encode(bytes([1])).decode()}]}
    answer = await client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(batch).encode())
    seen.append({"batch": answer.code, "remark": answer.remark})
    await pop("five", queueId=-1, maxMsgNums=8)
    return seen


def _kept(root: Path) -> object:
    """What consumerOrderInfo.json says, without times. fastjson writes numbers as keys."""
    text = (root / "config" / "consumerOrderInfo.json").read_text()
    return re.sub(r'("l"|"popTime"|"ot"):[^,}]*', r"\1:0", re.sub(r"\s", "", text))


def _told(
    serve: Callable[[Path], AbstractContextManager[real_broker.RealBroker | served.Served]], place: Path
) -> tuple[Path, Seen, Seen, Seen]:
    """A store, and what its broker has said: to consumers that share, to those in order, and to the others."""
    place.mkdir()
    for turn in range(TURNS):
        with serve(place / f"store-{turn}") as broker:
            shared = asyncio.run(_share_out(broker.broker, broker.names))
            ordered = asyncio.run(_in_order(broker.broker))
            try:
                talked = asyncio.run(_talk(broker.broker))
            except TooSlow:
                continue
        return broker.root, shared, ordered, talked
    raise AssertionError("no conversation was through before what it popped came again")


def test_pops_are_answered_as_by_rocketmq_5(tmp_path: Path) -> None:
    try:
        apache = toolchain.apache_broker5("5.3.3")
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    their_store, theirs_shared, theirs_ordered, theirs = _told(
        lambda root: real_broker.serve(root, SETTINGS, apache=apache), tmp_path / "theirs"
    )
    our_store, ours_shared, ours_ordered, ours = _told(lambda root: served.serve(root, SETTINGS), tmp_path / "ours")
    assert ours_shared == theirs_shared
    for one, other in zip(ours_ordered, theirs_ordered, strict=True):
        assert one == other
    assert _kept(our_store) == _kept(their_store)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
