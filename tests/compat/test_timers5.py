"""Timer messages as RocketMQ 5 has them: the same answers as its broker's, and our stores go on in its broker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.format.message import decode_each
from engine.wire.codes import RequestCode
from tests.compat import real_broker, served, toolchain
from tests.engine.broker.client import Client, pull_fields, send_fields

pytestmark = pytest.mark.interop

SETTINGS = "brokerName=broker-a\n"
OWN = {"MSG_REGION", "TRACE_ON", "UNIQ_KEY"}
"""What a broker of RocketMQ 5 adds to each message, where 4.9.8, and ours, adds nothing."""
IN_MS = "in ms"
"""TIMER_DELIVER_MS as of when that message is sent: those before it may take their time on a busy machine."""
Answer = tuple[int, str | None, tuple[str, ...]]


def props(**pairs: object) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())


async def given(client: Client, topic: str, count: int) -> list[tuple[bytes, frozenset[str]]]:
    """Bodies and names of properties of the first messages of a topic's queue 0, when so many are there."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0, "CID_T"))
            there = (
                [(one.body, frozenset(one.properties) - OWN) for one in decode_each(answer.body)]
                if not answer.code
                else []
            )
            if len(there) >= count:
                return there
            await asyncio.sleep(0.1)


async def _talk(address: str) -> tuple[list[Answer], list[tuple[bytes, frozenset[str]]]]:
    client = await Client.to(address)
    assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Timed"), b"first")).code == 0
    sends: list[dict[str, object]] = [
        {},
        {IN_MS: 3000, "UNIQ_KEY": "0" * 31 + "1"},
        {"TIMER_DELAY_MS": 2100, "UNIQ_KEY": "0" * 31 + "2"},
        {"TIMER_DELAY_SEC": 1},
        {IN_MS: -5},
        {IN_MS: 4 * 24 * 3_600_000},
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELIVER_MS": 1, "TIMER_DEL_UNIQKEY": "K"},
        {"TIMER_DELAY_SEC": 1, "DELAY": 1},
        {"TIMER_DELAY_SEC": 30, "TIMER_OUT_MS": 1},
    ]
    answers: list[Answer] = []
    for number, one in enumerate(sends):
        now = time.time_ns() // 1_000_000
        due = {"TIMER_DELIVER_MS": now + int(str(one.pop(IN_MS)))} if IN_MS in one else {}
        timed = props(**due, **one)
        got = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Timed", 0, timed), b"%d" % number)
        answers.append((got.code, got.remark, tuple(sorted(set(got.fields) - {"transactionId"}))))
    await client.heartbeat("CID_T", "Timed")
    there = await given(client, "Timed", 8)
    return answers, sorted(there)


def test_the_answers_and_what_is_delivered_are_those_of_rocketmq_5(tmp_path: Path) -> None:
    try:
        apache = toolchain.apache_broker5("5.3.3")
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    with real_broker.serve(tmp_path / "theirs", SETTINGS, apache=apache) as broker:
        theirs = asyncio.run(_talk(broker.broker))
    with served.serve(tmp_path / "ours", SETTINGS) as mine:
        ours = asyncio.run(_talk(mine.broker))
    assert ours[0] == theirs[0]
    assert dict(ours[1]) == dict(theirs[1])


def test_a_broker_of_rocketmq_5_goes_on_with_our_timer_messages(tmp_path: Path) -> None:
    """Ours delivers some, is stopped; theirs delivers the rest, and none of ours again."""
    try:
        apache = toolchain.apache_broker5("5.3.3")
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root = tmp_path / "ours"

    async def begin(address: str) -> None:
        client = await Client.to(address)
        for number, delay in enumerate((1, 20, 1, 12_000, 10_000)):
            timed = props(TIMER_DELAY_MS=delay)
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, timed), b"%d" % number)).code == 0
        await client.heartbeat("CID_T", "T")
        # on a machine that stands still for ten seconds the others are there, too, behind them
        assert sorted(body for body, _ in (await given(client, "T", 3))[:3]) == [b"0", b"1", b"2"]

    async def finish(address: str) -> list[bytes]:
        client = await Client.to(address)
        await client.heartbeat("CID_T", "T")
        return sorted(body for body, _ in await given(client, "T", 5))

    with served.serve(root, SETTINGS) as mine:
        asyncio.run(begin(mine.broker))
    with real_broker.serve(root, SETTINGS, apache=apache) as broker:
        assert asyncio.run(finish(broker.broker)) == [b"0", b"1", b"2", b"3", b"4"]
