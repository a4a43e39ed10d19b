"""The whole daemon, fed with mangled requests of every code and with bytes that are no frames: it answers, it goes on.

A request ends in an answer with a word of ours, never in a traceback; a frame that is none costs its sender the
connection, and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair.recover.recover import plan_recover
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand, SerializeType
from engine.wire.frames import encode
from tests.engine.broker.client import Client, daemon, pull_fields
from tests.engine.opening import assert_sound
from tests.fuzz.admin import SHORT_MAX
from tests.fuzz.mutator import mutate
from tests.fuzz.requests import mangled, sound

ROUNDS = 5
"""Requests of each code, on each of the two ports."""
SILENT = {
    RequestCode.END_TRANSACTION,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
}
"""Requests that may have no answer at all (an end that says "unknown"), or that wait for one of the client's."""
TIMERS = {"transaction_check_interval_ms": 100, "transaction_timeout_ms": 0, "property_filter": True}


async def send_all(address: str, seed: int, rounds: int) -> int:
    """Mangled requests of every code in random order, one after the other; how many were answered."""
    chance = random.Random(seed)
    client = await Client.to(address)
    codes = [code for code in sound() for _ in range(rounds)]
    chance.shuffle(codes)
    answered = 0
    for number, code in enumerate(codes, 1):
        kind = chance.choice(tuple(SerializeType))
        wanted = mangled(chance, code, kind if code <= SHORT_MAX else SerializeType.JSON)
        client.writer.writelines(encode(wanted._replace(opaque=number)))
        if code in SILENT or ext_waits(wanted):
            continue
        answer = await client.answer(number)
        assert answer.code in iter(ResponseCode), (wanted, answer)
        assert "Traceback" not in (answer.remark or "")
        answered += 1
    client.writer.close()
    return answered


def ext_waits(request: RemotingCommand) -> bool:
    """Whether it may be held, or wait for another client, for longer than a test has time."""
    return request.fields.get("sysFlag") not in (None, "0", "4") and "suspendTimeoutMillis" in request.fields


@pytest.mark.leaves("record-suspect", "consumer-above")  # clients sent such times, flags and offsets
@pytest.mark.parametrize("seed", range(2))
def test_every_request_has_an_answer_and_no_traceback(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> int:
        async with daemon(tmp_path / "store", **TIMERS) as found:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(str(what)))
            answered = 0
            names = found.listening.names
            assert names is not None
            for address in (found.listening.broker, names):
                answered += await send_all(address, seed, ROUNDS)
            await asyncio.sleep(0.5)  # the timers look at what was stored
            await still_serves(found.listening.broker)
            return answered

    wrong: list[str] = []
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run()) > ROUNDS * len(RequestCode)
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert not tracebacks, [(record.getMessage(), record.exc_info) for record in tracebacks[:3]]
    assert not wrong
    plan = plan_recover(Disk(), StoreConfig(store_path_root_dir=tmp_path / "store"))
    assert plan.refusal is None
    assert not plan.changed  # it may tell of queue offsets that come twice: the topic was deleted and made again


async def still_serves(address: str) -> None:
    client = await Client.to(address)
    assert (await client.put("Sound", b"here")).code == 0
    await client.until_there("Sound", 1)
    assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("Sound", 0))).body[-40:]


def test_bytes_that_are_no_frames_cost_only_their_sender(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Mutated frames, each on a connection of its own, while another client goes on."""
    chance = random.Random(3)
    seeds = [
        b"".join(encode(mangled(chance, code, kind)._replace(opaque=1)))
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE)
        for kind in SerializeType
    ]

    async def run() -> None:
        async with daemon(tmp_path / "store") as found:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(str(what)))
            good = await Client.to(found.listening.broker)
            for _ in range(150):
                bad = await Client.to(found.listening.broker)
                bad.writer.write(mutate(seeds, chance))
                bad.writer.write_eof()
                await bad.closed()
                bad.writer.close()
                assert (await good.put("Sound", b"here")).code == 0
            await still_serves(found.listening.broker)

    wrong: list[str] = []
    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert not [record for record in caplog.records if record.exc_info]
    assert not wrong
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "store"))
