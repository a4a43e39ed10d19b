"""Checks of half messages: none is lost on a full disk, none is asked about that has its end, none stops the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.put.transactions import GROUP
from engine.broker.serve import Daemon
from engine.config import StoreConfig
from engine.errors import DiskFull
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format.message import decode
from engine.format.topic_rules import HALF_TOPIC
from engine.services.running_flags import Flag
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import ONEWAY, SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound

COMMIT = "8"
SAID = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01"


async def half(client: Client, name: str, more: str = "") -> RemotingCommand:
    """A half message is put; its answer."""
    sent = send_fields("T", 0, SAID + name + more, g=str(time.time_ns() // 1_000_000))
    found = await client.ask(RequestCode.SEND_MESSAGE_V2, sent, name.encode())
    assert found.code == 0
    return found


def end(client: Client, sent: RemotingCommand, kind: str = COMMIT) -> None:
    place = {
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": str(int(sent.fields["msgId"][16:], 16)),
    }
    client.send(RequestCode.END_TRANSACTION, {"producerGroup": "PG", "commitOrRollback": kind, **place}, flag=ONEWAY)


async def checked(found: Daemon, client: Client, count: int) -> list[str]:
    """The unique keys of so many half messages that the producer is asked about."""
    await client.until_there(HALF_TOPIC, count)
    await asyncio.sleep(0.005)  # older than transactionTimeOut
    found.broker.transactions.check()
    return [(await client.asked(RequestCode.CHECK_TRANSACTION_STATE)).fields["msgId"] for _ in range(count)]


def sound(root: Path) -> None:
    assert_sound(StoreConfig(store_path_root_dir=root).with_changes(**SMALL))


def test_a_half_message_that_can_not_be_put_anew_is_asked_about_later(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            await half(client, "a")
            await half(client, "b")
            await client.until_there(HALF_TOPIC, 2)
            flags = found.broker.store.flags
            flags.set(Flag.DISK_FULL, DiskFull("no space"), by="test")
            await asyncio.sleep(0.005)
            found.broker.transactions.check()
            assert found.broker.offsets.get(GROUP, HALF_TOPIC, 0) in (None, 0)
            flags.clear(Flag.DISK_FULL, by="test")
            assert await checked(found, client, 2) == ["a", "b"]
            assert found.broker.offsets.get(GROUP, HALF_TOPIC, 0) == 2

    asyncio.run(run())
    sound(tmp_path / "s")


def test_a_check_that_waits_for_the_disk_asks_about_each_once(tmp_path: Path) -> None:
    """With SYNC_FLUSH the loop is told of each put later; another check meanwhile does nothing."""

    async def run() -> None:
        async with daemon(tmp_path / "s", sync=True, transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            for name in "abcde":
                await half(client, name)
            await client.until_there(HALF_TOPIC, 5)
            await asyncio.sleep(0.005)
            found.broker.transactions.check()
            found.broker.transactions.check()
            asked = [(await client.asked(RequestCode.CHECK_TRANSACTION_STATE)).fields["msgId"] for _ in range(5)]
            assert asked == list("abcde")
            await client.until_there(HALF_TOPIC, 10)
            await asyncio.sleep(0.05)
            assert client.pushed == []

    asyncio.run(run())
    sound(tmp_path / "s")


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


def test_a_commit_that_waits_for_its_flush_is_not_asked_about(tmp_path: Path) -> None:
    """The producer would commit the copy, too: the message would be there twice."""
    disk = SlowSync()

    async def run() -> None:
        async with daemon(tmp_path / "s", sync=True, disk=disk, transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            sent = await half(client, "a")
            await client.until_there(HALF_TOPIC, 1)
            await asyncio.sleep(0.005)
            disk.gate.clear()
            end(client, sent)
            async with asyncio.timeout(60):
                while found.broker.store.max_offset("T", 0) < 1:  # the real message is in the log
                    await asyncio.sleep(0.001)
            found.broker.transactions.check()
            disk.gate.set()
            await client.until_there("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
            found.broker.transactions.check()
            await asyncio.sleep(0.05)
            assert client.pushed == []
            assert found.broker.store.max_offset(HALF_TOPIC, 0) == 1
            assert found.broker.offsets.get(GROUP, HALF_TOPIC, 0) == 1

    asyncio.run(run())
    sound(tmp_path / "s")


@pytest.mark.parametrize("name", ["TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"])
def test_a_number_that_is_none_does_not_stop_the_others(name: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            await half(client, "a", f"\x02{name}\x01{'9' * 5000}")
            await half(client, "b")
            assert await checked(found, client, 2) == ["a", "b"]

    asyncio.run(run())
    sound(tmp_path / "s")


def test_an_offset_behind_the_end_does_not_hide_half_messages(tmp_path: Path) -> None:
    """After a crash, or a repair, the log may end before what was committed."""

    async def run() -> None:
        config = tmp_path / "s" / "config"
        config.mkdir(parents=True)
        (config / "consumerOffset.json").write_text(f'{{"offsetTable":{{"{HALF_TOPIC}@{GROUP}":{{0:99}}}}}}')
        async with daemon(tmp_path / "s", transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            await half(client, "a")
            assert await checked(found, client, 1) == ["a"]

    asyncio.run(run())
    sound(tmp_path / "s")


def test_what_is_resumed_and_names_no_queue_stops_no_check(tmp_path: Path) -> None:
    """RESUME_CHECK_HALF_MESSAGE takes any message for one, whatever its properties say."""

    async def run() -> None:
        async with daemon(tmp_path / "s", transaction_timeout_ms=1) as found:
            client = await Client.to(found.listening.broker)
            await client.produce("PG")
            said = "PGROUP\x01PG\x02UNIQ_KEY\x01a\x02REAL_TOPIC\x01T\x02REAL_QID\x01x"
            now = str(time.time_ns() // 1_000_000)
            sent = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, said, g=now), b"a")
            resume = {"msgId": sent.fields["msgId"]}
            assert (await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)).code == 0
            await half(client, "b")
            assert await checked(found, client, 2) == ["a", "b"]
            (first,) = found.broker.store.get(HALF_TOPIC, 0, 0, 1).messages
            place = {"tranStateTableOffset": "0", "commitLogOffset": str(decode(bytes(first)).physical_offset)}
            ended = {"producerGroup": "PG", "commitOrRollback": COMMIT, **place}
            assert (await client.ask(RequestCode.END_TRANSACTION, ended)).code == 0
            await client.until_there("T", 2)

    asyncio.run(run())
