"""A store of a RocketMQ 5 broker goes on in `rstore serve`, and then in its own broker again: nothing is lost, twice or
other than it was written.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.broker.tables.groups import NEWER
from engine.format import property_crc
from engine.format.message import StoredMessage, decode_each
from engine.format.names import RETRY_PREFIX
from engine.format.record import magic_of_topic
from engine.inspect.store.newer import FORCED
from engine.wire.codes import RequestCode
from tests.compat import real_broker, served, toolchain
from tests.compat.generate5 import SMALL
from tests.engine.broker.client import Client, pull_fields, send_fields

pytestmark = pytest.mark.interop

LONGEST: Mapping[str, int] = {"5.3.3": 184, "5.5.0": 120}
"""Characters of a group's name, which is as long as may be in 5.5.0: in 5.3.3 its retry topic's records are V2."""
FIRST, OURS, LAST = 20, 12, 3
CASES: Mapping[str, Mapping[str, object]] = {
    "5.3.3": {},
    "5.5.0": {"enabledAppendPropCRC": "true", FORCED: "true"},
}
"""By release, settings beside the sizes: with these, a start ends the log at the first record without a CRC."""


def _settings(given: Mapping[str, object]) -> str:
    given = {"brokerName": "broker-a", **SMALL, **given}
    return "".join(f"{name}={value}\n" for name, value in given.items())


async def _pulled(client: Client, topic: str, count: int, group: str) -> list[StoredMessage]:
    """The first messages of queue 0, when so many are there."""
    async with asyncio.timeout(60):
        while True:
            got: list[StoredMessage] = []
            while len(got) < count:
                answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, len(got), group))
                if answer.code:
                    break
                got += decode_each(answer.body)
            if len(got) >= count:
                return got
            await asyncio.sleep(0.05)


async def _popped(client: Client, count: int, invisible_ms: int) -> list[bytes]:
    """Bodies of so many messages of the topic `Popped`, none acknowledged."""
    got: list[bytes] = []
    async with asyncio.timeout(90):
        while len(got) < count:
            fields = {
                "consumerGroup": "CID_POP", "topic": "Popped", "queueId": 0, "maxMsgNums": count - len(got),
                "invisibleTime": invisible_ms, "pollTime": 0, "bornTime": time.time_ns() // 1_000_000, "initMode": 0,
            }  # fmt: skip
            answer = await client.ask(RequestCode.POP_MESSAGE, {name: str(value) for name, value in fields.items()})
            got += [one.body for one in decode_each(answer.body)]
            await asyncio.sleep(0.05)
    return got


async def _sends(client: Client, topic: str, bodies: list[str], **more: str) -> None:
    for body in bodies:
        properties = "\x02".join(f"{name}\x01{value}" for name, value in {"KEYS": body, **more}.items())
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 0, properties), body.encode())
        assert answer.code == 0, answer.remark


async def _written_by_theirs(address: str, group: str) -> None:
    client = await Client.to(address)
    await client.heartbeat(group, "T")
    await _sends(client, "T", [f"theirs-{i}" for i in range(FIRST)])
    await _sends(client, "Late", ["late-0"], DELAY="3")  # ten seconds
    await _sends(client, "Popped", [f"pop-{i}" for i in range(4)])
    assert len(await _pulled(client, "T", FIRST, group)) == FIRST


async def _gone_on_by_ours(address: str, group: str) -> None:
    client = await Client.to(address)
    await client.heartbeat(group, "T")
    await client.heartbeat("CID_POP", "Popped")
    got = await _pulled(client, "T", FIRST, group)
    assert [one.body for one in got] == [b"theirs-%d" % i for i in range(FIRST)]
    await _sends(client, "T", [f"ours-{i}" for i in range(OURS)], TAGS="t")
    await _sends(client, "Timed", ["timed-0"], TIMER_DELAY_MS="12000")
    assert sorted(await _popped(client, 4, 8000)) == [b"pop-%d" % i for i in range(4)]
    back = {"group": group, "offset": str(got[3].physical_offset), "delayLevel": "1", "originTopic": "T"}
    answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "originMsgId": "", "unitMode": "false"})
    assert answer.code == 0, answer.remark
    (again,) = await _pulled(client, RETRY_PREFIX + group, 1, group)
    assert (again.body, again.magic) == (b"theirs-3", magic_of_topic(len(RETRY_PREFIX + group)))


async def _read_by_theirs(address: str, group: str) -> None:
    client = await Client.to(address)
    await client.heartbeat(group, "T")
    bodies = [b"theirs-%d" % i for i in range(FIRST)] + [b"ours-%d" % i for i in range(OURS)]
    assert [one.body for one in await _pulled(client, "T", FIRST + OURS, group)] == bodies
    assert [one.body for one in await _pulled(client, RETRY_PREFIX + group, 1, group)] == [b"theirs-3"]
    await client.heartbeat("CID_POP", "Popped")
    assert sorted(await _popped(client, 4, 60_000)) == [b"pop-%d" % i for i in range(4)]
    assert [one.body for one in await _pulled(client, "Timed", 1, group)] == [b"timed-0"]
    await _sends(client, "T", [f"again-{i}" for i in range(LAST)])
    assert [one.body for one in await _pulled(client, "Late", 1, group)] == [b"late-0"]
    assert len(await _pulled(client, "T", FIRST + OURS + LAST, group)) == FIRST + OURS + LAST


def _tables(root: Path) -> dict[str, object]:
    """Topics and groups with all that their files say of each, but for what RocketMQ 5 takes where it is not there."""
    out: dict[str, object] = {}
    for name, table in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable")):
        content = json.loads((root / "config" / f"{name}.json").read_text())[table]
        for one, kept in content.items():
            out[one] = {key: value for key, value in kept.items() if value != NEWER.get(key)}
    return out


@pytest.mark.parametrize("release", CASES)
def test_its_store_is_served_by_ours_and_goes_on_in_its_own_broker(release: str, tmp_path: Path) -> None:
    try:
        apache = toolchain.apache_broker5(release)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root, settings = tmp_path / "store", _settings(CASES[release])
    ours = _settings({name: value for name, value in CASES[release].items() if name != FORCED})  # refused with it
    group = ("CID_" + "of_a_long_name_" * 12)[: LONGEST[release]]
    with real_broker.serve(root, settings, apache=apache) as broker:
        asyncio.run(_written_by_theirs(broker.broker, group))
    before = _tables(root)
    with served.serve(root, ours) as mine:
        asyncio.run(_gone_on_by_ours(mine.broker, group))
    after = _tables(root)
    assert {name: after[name] for name in before} == before
    assert RETRY_PREFIX + group in after
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    assert (log.count(property_crc.FRONT) > FIRST + OURS) == bool(CASES[release])
    with real_broker.serve(root, settings, apache=apache) as broker:
        asyncio.run(_read_by_theirs(broker.broker, group))
