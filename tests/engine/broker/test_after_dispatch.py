"""What was acknowledged can be seen: requests that come before dispatch has done its work wait for it, off the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.put import flow
from engine.broker.requests import dispatched
from engine.config import StoreConfig
from engine.format.message import decode
from engine.services.pace import DispatchPace
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields
from tests.engine.opening import assert_sound, gather_for_minutes

TOPIC = "T"
QUEUE = {"topic": TOPIC, "queueId": "0"}
ALWAYS = {"beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
KEY = "KEYS\x01k1\x02"
Ask = tuple[int, dict[str, str]]
Judge = Callable[[RemotingCommand], bool]

END: Ask = (RequestCode.GET_MAX_OFFSET, QUEUE)
"""Messages in a queue."""

ASKED: dict[str, tuple[Ask, Judge]] = {
    "max": (END, lambda answer: answer.fields["offset"] == "3"),
    "by-time": (
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**QUEUE, "timestamp": str((1 << 63) - 1)}),
        lambda answer: answer.fields["offset"] == "2",
    ),
    "earliest": (
        (RequestCode.GET_EARLIEST_MSG_STORETIME, QUEUE),
        lambda answer: int(answer.fields["timestamp"]) > 0,
    ),
    "key": (
        (RequestCode.QUERY_MESSAGE, {"topic": TOPIC, "key": "k1", "maxNum": "9", **ALWAYS}),
        lambda answer: answer.code == 0 and decode(answer.body).body == b"a",
    ),
    "pull": (
        (RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 0)),
        lambda answer: answer.code == 0 and decode(answer.body).body == b"a",
    ),
    "pull-after-what-was-sent": (
        (RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 3)),
        lambda answer: answer.code == ResponseCode.PULL_NOT_FOUND,
    ),
    "pull-that-waits-inside": (
        (RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 2, wait_ms=60_000)),
        lambda answer: answer.code == 0 and decode(answer.body).body == b"c",
    ),
}


async def put_three(client: Client) -> None:
    for body in (b"a", b"b", b"c"):
        assert (await client.put(TOPIC, body, properties=KEY if body == b"a" else "")).code == 0


@pytest.mark.parametrize("name", ASKED)
def test_a_request_waits_for_what_was_acknowledged_before_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatched, "MOST_S", 60)
    (code, fields), good = ASKED[name]

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            await two.put("other", b"x")  # the connection works, and the topic's routes are there
            with found.broker.store.dispatch.between_batches():
                await put_three(one)
                opaque = two.send(code, fields)
                # a request that depends on nothing is answered: the loop is free, and the first one waits
                assert (await two.ask(RequestCode.GET_MIN_OFFSET, {"topic": "other", "queueId": "0"})).code == 0
                assert not two.unasked
            assert good(await two.answer(opaque))

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatched, "MOST_S", 0.01)

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            with found.broker.store.dispatch.between_batches():
                await put_three(client)
                assert (await client.ask(*END)).fields["offset"] == "0"

    asyncio.run(run())


def test_who_asks_of_another_queue_does_not_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            await client.put("other", b"x")
            await client.until_there("other", 1)
            with found.broker.store.dispatch.between_batches():
                await put_three(client)
                code, _ = END
                assert (await client.ask(code, {"topic": "other", "queueId": "0"})).fields["offset"] == "1"

    asyncio.run(run())


def test_after_each_burst_all_of_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatched, "MOST_S", 60)

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            for burst in range(1, 31):
                sent = [await client.put(TOPIC, b"m") for _ in range(5)]
                assert all(answer.code == 0 for answer in sent)
                assert (await client.ask(*END)).fields["offset"] == str(5 * burst)
                pulled = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 5 * burst - 1))
                assert (pulled.code, pulled.fields["nextBeginOffset"]) == (0, str(5 * burst))

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_who_is_held_does_not_wait_for_what_is_gathered_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load, and with nobody who listens, dispatch lets messages come: here for minutes, until a pull is held."""
    gather_for_minutes(monkeypatch)

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            store = found.broker.store
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            while not store.dispatch._gathers_alone:
                assert (await one.put(TOPIC, b"m")).code == 0
            assert (await one.put(TOPIC, b"m")).code == 0
            end = store.max_offset(TOPIC, 0)
            pulled = await two.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, end, wait_ms=60_000))
            assert (pulled.code, decode(pulled.body).queue_offset) == (0, end)

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_what_comes_alone_to_a_held_pull_is_dispatched_by_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.services.dispatch.LISTENED", DispatchPace(0, 0, 10**9))
    monkeypatch.setattr(flow, "SLOW_MS", 60_000)  # after a slow put the thread has it all for a while
    by: list[threading.Thread] = []

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            store, pulls = found.broker.store, found.broker.pulls
            store.add_listener(lambda _: by.append(threading.current_thread()), lambda: pulls.held > 0)
            await one.put(TOPIC, b"0")
            while store.dispatch.lag or not store.dispatch._idle:  # the thread makes the queue
                await asyncio.sleep(0.001)
            for offset in range(1, 30):
                opaque = two.send(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, offset, wait_ms=60_000))
                while not (pulls.held and store.dispatch._idle):
                    await asyncio.sleep(0.001)
                await one.put(TOPIC, b"%d" % offset)
                assert decode((await two.answer(opaque)).body).body == b"%d" % offset

    asyncio.run(run())
    assert by == [threading.main_thread()] * 29
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))
