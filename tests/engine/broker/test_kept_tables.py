"""The tables in config/: durable before what needs them is acknowledged, written at once for many, and later when they
can't be written now."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.offsets import ConsumerOffsets
from engine.config import StoreConfig
from engine.errors import CannotRepair
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format import fastjson
from engine.wire.codes import RequestCode
from engine.wire.frames import MAX_HEADER
from tests.engine.broker.client import Client, daemon, pull_fields, send_fields
from tests.engine.opening import assert_sound


def said(root: Path, name: str, table: str) -> dict[str, object]:
    path = root / "config" / name
    found: dict[str, object] = fastjson.loads(path.read_text())[table] if path.exists() else {}
    return found


class NoConfig(FaultyDisk):
    """A disk on which nothing in config/ can be written while `full`; counts what is."""

    def __init__(self) -> None:
        super().__init__(None)
        self.full = False
        self.written = 0

    def begin(self, doing: Doing):
        if "/config/topics.json" in doing.path and doing.operation is Operation.CREATE:
            self.written += 1
        if self.full and "/config/" in doing.path and doing.operation in (Operation.CREATE, Operation.WRITE):
            raise OSError(errno.ENOSPC, "no space", doing.path)
        return super().begin(doing)


def test_a_topic_that_cannot_be_written_is_not_there_and_comes_with_space(tmp_path: Path) -> None:
    disk = NoConfig()
    root = tmp_path / "store"
    made = {"topic": "Made", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}

    async def run() -> None:
        async with daemon(root, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            disk.full = True
            refused = await client.put("Sent", b"lost?")
            assert refused.code == 14
            assert "no space" in (refused.remark or "").lower()
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made)).code == 14
            for topic in ("Sent", "Made"):
                assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0))).code == 17
            disk.full = False
            assert (await client.put("Sent", b"kept")).code == 0
            assert "Sent" in said(root, "topics.json", "topicConfigTable")
            assert "Made" not in said(root, "topics.json", "topicConfigTable")
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made)).code == 0

    asyncio.run(run())
    assert said(root, "topics.json", "topicConfigTable").keys() > {"Sent", "Made"}
    assert_sound(StoreConfig(store_path_root_dir=root))


def test_what_consumers_make_is_written_when_there_is_space(tmp_path: Path) -> None:
    """A consumer joins and commits though nothing can be written; the files follow by themselves."""
    disk = NoConfig()
    root = tmp_path / "store"

    async def run() -> None:
        async with daemon(root, disk=disk, flush_offsets_ms=50) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"body")).code == 0
            disk.full = True
            await client.heartbeat("New", "T")
            place = {"consumerGroup": "New", "topic": "T", "queueId": "0"}
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "1"})).code == 0
            await asyncio.sleep(0.2)
            assert "New" not in said(root, "subscriptionGroup.json", "subscriptionGroupTable")
            disk.full = False
            async with asyncio.timeout(60):
                while not (
                    "New" in said(root, "subscriptionGroup.json", "subscriptionGroupTable")
                    and "%RETRY%New" in said(root, "topics.json", "topicConfigTable")
                    and "T@New" in said(root, "consumerOffset.json", "offsetTable")
                ):
                    await asyncio.sleep(0.02)

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=root))


def test_a_topic_of_more_queues_than_anybody_could_look_at(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "store") as found:
            client = await Client.to(found.listening.broker)
            for queues in ("-1", "2147483647"):
                made = {"topic": "Made", "readQueueNums": queues, "writeQueueNums": "2", "perm": "6"}
                made["topicFilterType"] = "SINGLE_TAG"
                answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made)
                assert answer.code == 1
                assert queues in (answer.remark or "")
                assert (await client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Made"})).code == 17

    asyncio.run(run())


def test_many_topics_at_once_are_written_at_once(tmp_path: Path) -> None:
    disk = NoConfig()

    async def run() -> None:
        async with daemon(tmp_path / "store", disk=disk) as found:
            client = await Client.to(found.listening.broker)
            asked = [
                client.send(RequestCode.SEND_MESSAGE_V2, send_fields(f"Topic{number % 15}"), b"x")
                for number in range(30)
            ]
            assert [(await client.answer(one)).code for one in asked] == [0] * 30
            other = await Client.to(found.listening.broker)
            for number in range(15):
                await other.until_there(f"Topic{number}", 2)

    asyncio.run(run())
    assert disk.written <= 8  # each is the file and its .bak
    assert len(said(tmp_path / "store", "topics.json", "topicConfigTable")) > 15


@pytest.mark.leaves("config-bad", "config-value")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.json", {"topicConfigTable": {"T": {"perm": "x"}}}),
        ("topics.json", {"topicConfigTable": {"T": 5}}),
        ("topics.json", {"topicConfigTable": []}),
        ("topics.json", {"dataVersion": {"counter": []}}),
        ("subscriptionGroup.json", {"subscriptionGroupTable": {"G": {"retryQueueNums": "x"}}}),
    ],
)
def test_a_table_of_another_kind_is_told_at_the_start(name: str, text: object, tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / name).write_bytes(orjson.dumps(text))

    async def run() -> None:
        with pytest.raises(CannotRepair) as error:
            async with daemon(root):
                pass
        assert str(error.value.path).endswith(name)

    asyncio.run(run())


def test_frames_under_way_are_bounded_for_all_together(tmp_path: Path) -> None:
    """Who has been at a large frame for longest goes; the others, and who sends small ones, stay."""
    begun = (8 << 20).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(1 << 20)

    async def run() -> None:
        async with daemon(tmp_path / "store", input_limit=(5 << 20) // 2) as found:
            good = await Client.to(found.listening.broker)
            slow = [await Client.to(found.listening.broker) for _ in range(3)]
            for one in slow:
                one.writer.write(begun)
                await one.writer.drain()
                await asyncio.sleep(0.1)
                assert (await good.put("T", b"body")).code == 0
            assert await slow[0].closed()
            for one in slow[1:]:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await one.reader.read(1)
            for one in slow:
                one.writer.close()

    asyncio.run(run())


def test_a_header_that_no_message_needs_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "store") as found:
            client = await Client.to(found.listening.broker)
            longest = await client.put("T", b"body", properties="a\x01" + "\x03" * 32_000)  # each becomes \u0003
            assert longest.code == 0
            client.writer.write((MAX_HEADER + 100).to_bytes(4, "big") + (MAX_HEADER + 1).to_bytes(4, "big"))
            assert await client.closed()

    asyncio.run(run())


class SlowTopics(FaultyDisk):
    """topics.json is written when `gate` opens; `begun` says that somebody waits for it."""

    def __init__(self) -> None:
        super().__init__(None, mapped=False)
        self.begun, self.gate = threading.Event(), threading.Event()

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        if "/config/topics.json" in doing.path and doing.operation is Operation.CREATE:
            self.begun.set()
            self.gate.wait(120)
        return super().begin(doing)


def test_who_asks_for_routes_while_a_topic_is_written_finds_it_afterwards(tmp_path: Path) -> None:
    disk = SlowTopics()

    async def run() -> None:
        async with daemon(tmp_path / "store", disk=disk) as found:
            assert found.listening.names is not None
            client, names = await Client.to(found.listening.broker), await Client.to(found.listening.names)
            sent = client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
            async with asyncio.timeout(60):
                while not disk.begun.is_set():
                    await asyncio.sleep(0.001)
            assert (await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 17
            before = found.broker.topics.version.to_json()
            disk.gate.set()
            assert (await client.answer(sent)).code == 0
            assert (await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0
            assert found.broker.topics.version.to_json() != before  # other name servers go by it, too

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "store"))


def test_offsets_that_were_given_out_and_not_written_are_written_at_the_end(tmp_path: Path) -> None:
    """Who has asked for them may fail before it writes them (a flush on a full disk), or be cancelled."""
    root = str(tmp_path)
    table = ConsumerOffsets(ConfigFile(Disk(), root, "consumerOffset.json"))
    table.commit("G", "T", 0, 7)
    assert table.changes() is not None
    table.finish()
    assert said(tmp_path, "consumerOffset.json", "offsetTable") == {"T@G": {"0": 7}}
    assert table.changes() is None


def test_an_older_state_never_replaces_a_newer_one(tmp_path: Path) -> None:
    """Two threads may write a table: the timer's and the one of a flush; the slower may have the older state."""
    table = ConsumerOffsets(ConfigFile(Disk(), str(tmp_path), "consumerOffset.json"))
    table.commit("G", "T", 0, 1)
    older = table.changes()
    table.commit("G", "T", 0, 2)
    newer = table.changes()
    assert older is not None
    assert newer is not None
    table.write(newer)
    table.write(older)
    assert said(tmp_path, "consumerOffset.json", "offsetTable") == {"T@G": {"0": 2}}
    assert table.changes() is None
