"""A clean stop: what is under way is finished, answered and noted, so that the next start does nothing again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from engine.broker.put.schedule import AT_ONCE
from engine.config import StoreConfig
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format import names
from engine.wire.codes import RequestCode
from tests.engine.broker.client import SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound

COUNT = 3 * AT_ONCE


def later() -> int:
    """A clock that goes some seconds before: what was delayed by a second is due."""
    return time.time_ns() // 1_000_000 + 5000


def sound(root: Path) -> None:
    assert_sound(StoreConfig(store_path_root_dir=root).with_changes(**SMALL))


def test_delayed_messages_are_delivered_once_though_the_broker_stops_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "s"

    async def begin() -> None:
        async with daemon(root, sync=True) as found:
            client = await Client.to(found.listening.broker)
            asked = [
                client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, "DELAY\x011"), b"%d" % number)
                for number in range(COUNT)
            ]
            assert {(await client.answer(one)).code for one in asked} == {0}
            store, broker = found.broker.store, found.broker
            async with asyncio.timeout(60):
                while store.max_offset(names.SCHEDULE_TOPIC, 0) < COUNT:
                    await asyncio.sleep(0.001)
                broker.now_ms = later  # type: ignore[method-assign]
                while broker.schedule.to_json()["offsetTable"].get("1", 0) < COUNT // 10:
                    await asyncio.sleep(0)

    async def finish() -> None:
        async with daemon(root, sync=True) as found:
            broker: Broker = found.broker
            assert broker.schedule.to_json()["offsetTable"]["1"] < COUNT
            broker.now_ms = later  # type: ignore[method-assign]
            async with asyncio.timeout(60):
                while broker.schedule.to_json()["offsetTable"]["1"] < COUNT:
                    await asyncio.sleep(0.01)
            broker.store.wait_dispatched()
            assert broker.store.max_offset("T", 0) == COUNT

    asyncio.run(begin())
    asyncio.run(finish())
    sound(root)


class SlowSync(FaultyDisk):
    """Syncs of the log wait for `gate`."""

    def __init__(self) -> None:
        super().__init__(None, mapped=False)
        self.gate = threading.Event()
        self.gate.set()

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        if doing.operation is Operation.SYNC and "commitlog" in doing.path:
            self.gate.wait(120)
        return super().begin(doing)


def test_a_send_that_waits_for_its_flush_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    """Else its producer would send it again: it would be there twice."""
    disk = SlowSync()

    async def run() -> None:
        async with daemon(tmp_path / "s", sync=True, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"first")).code == 0
            disk.gate.clear()
            sent = client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"second")
            async with asyncio.timeout(60):
                while not found.broker.flow.waiting:
                    await asyncio.sleep(0.001)
            asyncio.get_running_loop().call_later(0.1, disk.gate.set)
        assert (await client.answer(sent)).code == 0

    asyncio.run(run())
    sound(tmp_path / "s")


def test_an_offset_behind_the_end_does_not_hold_delayed_messages(tmp_path: Path) -> None:
    """A repair may have cut the log: delayOffset.json is ahead then."""

    async def run() -> None:
        (tmp_path / "s" / "config").mkdir(parents=True)
        (tmp_path / "s" / "config" / "delayOffset.json").write_text('{"offsetTable":{1:99}}')
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            await client.put("T", b"late", 0, "DELAY\x011")
            found.broker.now_ms = later  # type: ignore[method-assign]
            async with asyncio.timeout(60):
                await client.until_there("T", 1)

    asyncio.run(run())
    sound(tmp_path / "s")


@pytest.mark.leaves("config-missing")
def test_a_message_that_comes_again_finds_its_groups_topic_though_that_was_not_written(tmp_path: Path) -> None:
    """A heartbeat makes %RETRY%group at once, and has it written a moment later: killed in between, it is not there."""
    root = tmp_path / "s"

    async def begin() -> None:
        async with daemon(root) as found:
            client = await Client.to(found.listening.broker)
            await client.heartbeat("G", "T")
            sent = await client.put("T", b"again")
            back = {"group": "G", "offset": str(int(sent.fields["msgId"][16:], 16)), "delayLevel": "1"}
            assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0

    async def finish() -> None:
        async with daemon(root) as found:
            client = await Client.to(found.listening.broker)
            found.broker.now_ms = later  # type: ignore[method-assign]
            async with asyncio.timeout(60):
                await client.until_there("%RETRY%G", 1)
            assert found.broker.schedule.lost == 0

    asyncio.run(begin())
    for path in (root / "config").glob("topics.json*"):
        path.unlink()
    asyncio.run(finish())
    sound(root)
