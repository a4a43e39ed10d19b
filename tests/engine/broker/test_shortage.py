"""What there is no more of: topics, space, descriptors. Refused in a clear word, and it passes."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Operation
from engine.format import fastjson
from engine.log.retention import DiskSpace
from engine.services import clean
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import Client, daemon
from tests.engine.broker.test_http import get


async def topic_made(client: Client, name: str) -> int:
    ext = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code


def test_sends_create_so_many_topics(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", max_auto_created_topics=3) as found:
            client = await Client.to(found.listening.broker)
            assert await topic_made(client, "ByHand") == 0
            for name in ("A", "B", "C", "A", "ByHand"):
                assert (await client.put(name, b"x")).code == 0
            refused = await client.put("D", b"x")
            assert refused.code == ResponseCode.TOPIC_NOT_EXIST
            assert "maxAutoCreatedTopics" in (refused.remark or "")
            for name in ("A", "B", "C", "ByHand"):  # what exists goes on
                assert (await client.put(name, b"x")).code == 0
            assert await topic_made(client, "Another") == 0  # an administrator may
            assert (await client.put("Another", b"x")).code == 0
        async with daemon(tmp_path / "s", max_auto_created_topics=3) as found:  # a restart forgets nothing
            client = await Client.to(found.listening.broker)
            assert (await client.put("D", b"x")).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "B"})).code == 0
            assert (await client.put("D", b"x")).code == 0
            assert (await client.put("E", b"x")).code == ResponseCode.TOPIC_NOT_EXIST

    asyncio.run(run())
    file = fastjson.loads((tmp_path / "s" / "config" / "topics.json").read_text())
    assert file["topicsCreatedBySends"] == ["A", "C", "D"]


def test_nobody_else_is_told_which_topics_sends_created(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("A", b"x")).code == 0
            answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert set(json.loads(bytes(answer.body))) == {"dataVersion", "topicConfigTable"}

    asyncio.run(run())


def test_a_topic_that_could_not_be_written_does_not_count(tmp_path: Path) -> None:
    async def run() -> None:
        disk = FaultyDisk(None)
        async with daemon(tmp_path / "s", disk=disk, max_auto_created_topics=1) as found:
            client = await Client.to(found.listening.broker)
            disk.fail_when(lambda doing: doing.operation is Operation.CREATE and "topics.json" in doing.path)
            refused = await client.put("A", b"x")
            assert (refused.code, "no space left" in (refused.remark or "")) == (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                True,
            )
            disk.heal()
            assert (await client.put("B", b"x")).code == 0
            assert (await client.put("A", b"x")).code == ResponseCode.TOPIC_NOT_EXIST

    asyncio.run(run())


def test_health_tells_of_a_full_disk_at_once(tmp_path: Path) -> None:
    """Before the clean service looks again, which is every ten seconds."""

    class Full(FaultyDisk):
        used = 50

        def usage(self, path: str) -> Usage:
            return Usage(100 << 20, self.used << 20, 100 - self.used << 20)

    async def run() -> None:
        disk = Full(None)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            assert (await get(found, "/health"))[0] == 200
            disk.used = 100
            status, body = await get(found, "/health")
            assert (status, [one["code"] for one in body["reasons"]]) == (503, ["disk-full"])
            refused = await client.put("T", b"x")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "disk is full" in (refused.remark or "")
            disk.used = 50
            assert (await get(found, "/health"))[0] == 200
            assert (await client.put("T", b"x")).code == 0

    asyncio.run(run())


def test_no_descriptors_left(tmp_path: Path) -> None:
    async def run() -> None:
        disk = FaultyDisk(None)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            for name in ("T", "New"):
                assert await topic_made(client, name) == 0
            assert (await client.put("T", b"x")).code == 0
            opening = (Operation.OPEN, Operation.CREATE, Operation.MAP, Operation.SYNC_DIRECTORY)
            disk.fail_when(lambda doing: doing.operation in opening, errno.EMFILE)
            await client.put("New", b"x")
            code = 0
            while code == 0:
                refused = await client.put("T", b"x")
                code = refused.code
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "no descriptor is left" in (refused.remark or "")
            assert "ulimit -n" in (refused.remark or "")
            refused = await client.put("Another", b"x")  # its topic can't be written
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "no descriptor is left" in (refused.remark or "")
            status, body = await get(found, "/health")
            assert (status, {one["code"] for one in body["reasons"]}) == (503, {"descriptors"})
            disk.heal()
            while (await get(found, "/health"))[0] != 200:
                await asyncio.sleep(0.05)
            assert (await client.put("T", b"x")).code == 0
            assert (await client.put("New", b"x")).code == 0

    asyncio.run(run())


def test_health_tells_that_the_logs_next_file_gets_no_descriptor(tmp_path: Path) -> None:
    """No flag says it: what fits into the last file is stored."""

    async def run() -> None:
        disk = FaultyDisk(None)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            opening = (Operation.OPEN, Operation.CREATE, Operation.LIST)
            disk.fail_when(lambda doing: doing.operation in opening and "commitlog" in doing.path, errno.EMFILE)
            code = 0
            while code == 0:
                code = (await client.put("T", bytes(1 << 20))).code
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            status, body = await get(found, "/health")
            assert (status, [one["code"] for one in body["reasons"]]) == (503, ["descriptors"])
            disk.heal()
            assert (await get(found, "/health"))[0] == 200
            assert (await client.put("T", bytes(1 << 20))).code == 0

    asyncio.run(run())


class FullConfig(FaultyDisk):
    """config/ is a file system of its own, and `full` or not."""

    full = False

    def usage(self, path: str) -> Usage:
        return Usage(100 << 20, 100 << 20, 0) if self.full and "/config" in path else super().usage(path)

    def fill(self) -> None:
        self.full = True
        self.fail_when(lambda doing: self.full and doing.operation is Operation.CREATE and "/config/" in doing.path)


def test_health_names_the_file_of_config_that_finds_no_space(tmp_path: Path) -> None:
    """The log has space: a send to a topic that is there is stored."""

    async def run() -> None:
        disk = FullConfig(None)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            disk.fill()
            refused = await client.put("New", b"x")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            status, body = await get(found, "/health")
            assert (status, [one["code"] for one in body["reasons"]]) == (503, ["disk-full"])
            assert "config/topics.json" in body["reasons"][0]["message"]
            assert (await client.put("T", b"x")).code == 0
            assert (await get(found, "/health"))[0] == 503
            disk.full = False
            assert (await get(found, "/health"))[0] == 200
            assert (await client.put("New", b"x")).code == 0
            assert (await get(found, "/health"))[0] == 200

    asyncio.run(run())


def test_health_names_the_file_of_config_that_is_written_by_itself(tmp_path: Path) -> None:
    """Nobody is refused there: consumer offsets are written every few seconds, and would be lost by a crash."""

    async def run() -> None:
        disk = FullConfig(None)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk, flush_offsets_ms=20) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            disk.fill()
            fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            status, body = 200, {}
            while status == 200:
                status, body = await get(found, "/health")
            assert [one["code"] for one in body["reasons"]] == ["disk-full"]
            assert "config/consumerOffset.json" in body["reasons"][0]["message"]
            disk.full = False
            while (await get(found, "/health"))[0] != 200:
                await asyncio.sleep(0.01)
            offsets = tmp_path / "s" / "config" / "consumerOffset.json"
            while not offsets.exists():
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_sends_look_themselves_whether_there_is_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks /health, and the clean service's own look never comes."""
    monkeypatch.setattr(clean, "LOOK_MS", 10**9)
    monkeypatch.setattr(clean, "FIRST_ROUND_MS", 10**9)

    class Full(FaultyDisk):
        used = 50

        def usage(self, path: str) -> Usage:
            return Usage(100 << 20, self.used << 20, 100 - self.used << 20)

    looks = 0
    look = clean.CleanService.look

    def counted(service: clean.CleanService) -> DiskSpace:
        nonlocal looks
        looks += 1
        return look(service)

    monkeypatch.setattr(clean.CleanService, "look", counted)

    async def run() -> None:
        disk = Full(None)
        async with daemon(tmp_path / "s", disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            disk.used = 100
            found.broker.store.clean.look()
            before, began = looks, time.monotonic()
            for _ in range(300):
                assert (await client.put("T", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert looks - before <= time.monotonic() - began + 2, "it looks for each send"
            disk.used = 50
            while (await client.put("T", b"x")).code:
                await asyncio.sleep(0.01)

    asyncio.run(run())
