"""What administrators ask of the broker and its name service; what is asked of clients; replies to requests."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import decode
from engine.inspect.check.check import check
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.broker.test_daemon import served

RUNTIME_KEYS = frozenset(
    [
        "bootTimestamp",
        "brokerVersion",
        "brokerVersionDesc",
        "commitLogDirCapacity",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "consumeQueueDiskRatio",
        "dispatchBehindBytes",
        "dispatchMaxBuffer",
        "earliestMessageTimeStamp",
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "getFoundTps",
        "getMessageEntireTimeMax",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning",
        "pageCacheLockTimeMills",
        "pullThreadPoolQueueCapacity",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "putLatency99",
        "putLatency999",
        "putMessageAverageSize",
        "putMessageDistributeTime",
        "putMessageEntireTimeMax",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageTimesTotal",
        "putTps",
        "queryThreadPoolQueueCapacity",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueSize",
        "remainHowManyDataToFlush",
        "remainTransientStoreBufferNumbs",
        "runtime",
        "sendThreadPoolQueueCapacity",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "sendThreadPoolQueueSize",
        "startAcceptSendRequestTimeStamp",
    ]
)
"""BROKER.md 1.5, but for the keys that name a path or a delay level."""


async def json_of(client: Client, code: int, **ext: str) -> Any:
    found = await client.ask(code, ext)
    assert found.code == 0, found.remark
    return orjson.loads(found.body)


def queue_files(root: Path, topic: str) -> list[str]:
    return sorted(path.name for path in (root / "consumequeue" / topic).rglob("*") if path.is_file())


def test_the_runtime_has_apaches_keys(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        await one.put("T", b"x" * 100)
        await one.put("T", b"late", 0, "DELAY\x011")
        await one.until_there("T", 1)
        await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))
        while "scheduleMessageOffset_1" not in (table := (await json_of(one, 28))["table"]):
            await asyncio.sleep(0.05)  # a second, and it is delivered
        named = {"scheduleMessageOffset_1", f"commitLogDiskRatio_{tmp_path / 's' / 'commitlog'}"}
        assert table.keys() - named == RUNTIME_KEYS
        assert table["scheduleMessageOffset_1"] == "1,1"
        assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "3"
        assert table["msgGetTotalTodayNow"] == "2"  # the one that was pulled, and the one that was delivered
        assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, ")
        assert table["brokerVersionDesc"] == "V4_9_8"
        assert table["remainHowManyDataToFlush"].endswith("B")
        assert float(table["putTps"].split(" ")[0] or 0) >= 0

    served(tmp_path / "s", work)


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_are_told_changed_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# mine\nbrokerName=broker-a\nautoCreateTopicEnable=true\n")

    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        before = await one.ask(RequestCode.GET_BROKER_CONFIG)
        told = dict(line.split("=", 1) for line in bytes(before.body).decode().splitlines())
        assert (told["autoCreateTopicEnable"], told["fileReservedTime"], told["listenPort"]) == ("true", "72", "0")
        assert orjson.loads(before.fields["version"])["counter"] == 0
        body = b"autoCreateTopicEnable=false\nfileReservedTime=48\nflushDiskType=SYNC_FLUSH\nnonsense=1\n"
        assert (await one.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body)).code == 0
        assert (await one.ask(RequestCode.SEND_MESSAGE_V2, send_fields("New"), b"x")).code == 17
        after = await one.ask(RequestCode.GET_BROKER_CONFIG)
        told = dict(line.split("=", 1) for line in bytes(after.body).decode().splitlines())
        assert (told["fileReservedTime"], told["flushDiskType"]) == ("48", "SYNC_FLUSH")
        assert "nonsense" not in told
        assert orjson.loads(after.fields["version"])["counter"] == 1

    served(tmp_path / "s", work, config_file=str(conf))
    assert conf.read_text() == (
        "# mine\nbrokerName=broker-a\nautoCreateTopicEnable=false\nfileReservedTime=48\nflushDiskType=SYNC_FLUSH\n"
    )
    assert "flushDiskType = SYNC_FLUSH takes effect at the next start" in caplog.text
    assert "nonsense is not a setting" in caplog.text
    assert not list(tmp_path.glob("broker.conf.*"))


def test_what_is_not_in_force_of_the_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# \u5317\u4eac\nfileReservedTime=5 # hours\nstorePathIndex=/i\ntraceOn=false\nregionId=r\n"
        "commercialBigCount=two\ntls.enable=false\ndeleteWhen=04 # at night\naclEnable=true\nhaListen=0.0.0.0\n",
        encoding="utf-8",
    )

    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        assert (await one.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48")).code == 0

    served(tmp_path / "s", work, config_file=str(conf))
    told = [(record.message, vars(record)["why"]) for record in caplog.records if "why" in vars(record)]
    assert len(told) == len(set(told)), "the log of serve passes a line and its why once a second"
    said = {what: [why for line, why in told if line == what] for what, _ in told}
    first, second, *others = said["setting not in force as written"]
    assert first.startswith("line 2, fileReservedTime: not a 32-bit integer: a comment after a value")
    assert second.startswith("line 3, storePathIndex: the index is always in index/")
    assert [why.split(":")[0] for why in others] == ["line 6, commercialBigCount", "line 8, deleteWhen"]
    assert said["ignored settings"] == ["regionId, traceOn"]
    (danger,) = said["dangerous setting"]  # of its replication port the daemon judges with its options
    assert "nothing is ever deleted" in danger
    text = conf.read_text(encoding="utf-8")
    assert text.startswith("# \u5317\u4eac\nfileReservedTime=48\n")  # what others wrote stays as it is


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (
            b"a=\\u12",
            ResponseCode.SYSTEM_ERROR,
            "string2Properties error: not a properties file: Invalid \\u escape sequence: \\u12",
        ),
        (b"a=\xff", ResponseCode.SYSTEM_ERROR, "string2Properties error: not UTF-8 text"),
        (
            b"a=\\\n" + b"\\\n" * 2_000,  # took seconds of the loop, and hours in a body of a megabyte
            ResponseCode.SYSTEM_ERROR,
            "string2Properties error: line 102: a value of more than 100 lines",
        ),
        (b"a=" + b"x" * (16 << 10), ResponseCode.SYSTEM_ERROR, "settings of 16,414 bytes: a request may have 16,384"),
        (b"fileReservedTime=soon", ResponseCode.SYSTEM_ERROR, "fileReservedTime = 'soon' is not a 32-bit integer"),
        (
            b"flushDiskType=sync_flush",
            ResponseCode.SYSTEM_ERROR,
            "flushDiskType = 'sync_flush' is not one of SYNC_FLUSH, ASYNC_FLUSH",
        ),
        (b"brokerPermission=none", ResponseCode.SYSTEM_ERROR, "brokerPermission = 'none' is not a 32-bit integer"),
    ],
)
def test_settings_that_are_refused_change_nothing(tmp_path: Path, body: bytes, code: int, remark: str) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        before = await one.ask(RequestCode.GET_BROKER_CONFIG)
        refused = await one.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=false\n" + body)
        assert (refused.code, refused.remark) == (code, remark)
        assert bytes((await one.ask(RequestCode.GET_BROKER_CONFIG)).body) == bytes(before.body)
        assert (await one.put("New", b"x")).code == 0

    served(tmp_path / "s", work)


def test_a_broker_that_may_not_be_written(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two
        await one.put("T", b"x")
        assert (await one.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")).code == 0
        assert (await one.put("T", b"y")).code == ResponseCode.NO_PERMISSION
        service = await Client.to(names)
        assert (await json_of(service, 105, topic="T"))["queueDatas"][0]["perm"] == 4

    served(tmp_path / "s", work)


# --- topics and queues ----------------------------------------------------------------------------------------------


def assert_only_deleted(root: Path, *codes: str) -> None:
    """`check` finds a sound store: of the topics that were deleted it has the records, and says so."""
    report = check(Disk(), StoreConfig(store_path_root_dir=root).with_changes(**SMALL))
    assert not (root / "abort").exists()
    assert {finding.code for finding in report.findings} - {"topic-unused", "config-absent"} == set(codes)


def serve_once(root: Path, work: Callable[[Client], Awaitable[None]]) -> None:
    """Run `work` with a client of a daemon."""

    async def run() -> None:
        async with daemon(root) as found:
            await work(await Client.to(found.listening.broker))

    asyncio.run(run())


def test_a_topic_that_is_deleted_leaves_no_queue_and_can_be_made_again(tmp_path: Path) -> None:
    root = tmp_path / "s"

    async def work(client: Client) -> None:
        for topic in ("Gone", "Kept"):
            await client.put(topic, b"x")
            await client.until_there(topic, 1)
        assert queue_files(root, "Gone")
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})).code == 0
        assert not queue_files(root, "Gone")
        assert queue_files(root, "Kept")
        assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("Gone", 0))).code == 17
        assert (await client.put("Gone", b"again")).fields["queueOffset"] == "0"
        await client.until_there("Gone", 1)
        found = await client.ask(RequestCode.PULL_MESSAGE, pull_fields("Gone", 0))
        assert decode(found.body).body == b"again"
        refused = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
        assert refused.remark == "The topic[TBW102] is conflict with system topic."

    serve_once(root, work)
    assert_only_deleted(root, "unit-deleted")


@pytest.mark.parametrize("newest", ["Gone", "Kept"])
def test_a_topic_that_was_deleted_does_not_come_back_with_the_next_start(tmp_path: Path, newest: str) -> None:
    root = tmp_path / "s"

    async def first(client: Client) -> None:
        for topic in {"Gone": ("Kept", "Gone"), "Kept": ("Gone", "Kept")}[newest]:
            await client.put(topic, b"x")
            await client.until_there(topic, 1)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})).code == 0

    async def second(client: Client) -> None:
        assert not queue_files(root, "Gone")
        assert queue_files(root, "Kept")
        assert (await client.put("Gone", b"again")).fields["queueOffset"] == "0"
        await client.until_there("Gone", 1)

    serve_once(root, first)
    assert_only_deleted(root, "unit-deleted")
    serve_once(root, second)
    assert_only_deleted(root, "unit-deleted")


def test_a_queue_that_was_lost_comes_back_and_one_without_a_topic_stays_until_it_is_cleaned(tmp_path: Path) -> None:
    root = tmp_path / "s"

    async def first(client: Client) -> None:
        for topic in ("Lost", "Nameless", "Kept"):
            await client.put(topic, b"x")
            await client.until_there(topic, 1)

    async def second(client: Client) -> None:
        assert decode((await client.ask(RequestCode.PULL_MESSAGE, pull_fields("Lost", 0))).body).body == b"x"
        assert queue_files(root, "Nameless")
        assert (await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert not queue_files(root, "Nameless")

    serve_once(root, first)
    shutil.rmtree(root / "consumequeue" / "Lost")
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("Nameless", "Renamed"))
    serve_once(root, second)
    assert_only_deleted(root, "unit-deleted")


def test_queues_whose_messages_are_gone_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "s"
    monkeypatch.setitem(SMALL, "file_reserved_time", 0)

    async def run() -> None:
        async with daemon(root) as found:
            client = await Client.to(found.listening.broker)
            await client.put("Old", b"x")
            while found._store.log.min_offset < 4 << 20:
                for _ in range(3):
                    await client.put("New", bytes(3 << 20))
                await client.until_there("New", 1)
                await asyncio.to_thread(found._store.clean.clean, by_hand=True)
            assert (await client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
            assert not queue_files(root, "Old")
            assert queue_files(root, "New")
            assert (await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
            assert found._store.clean.status.manual_rounds > 0

    asyncio.run(run())


def test_units_of_a_queue(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        for i in range(3):
            await one.put("T", b"%d" % i, 0, "TAGS\x01A")
        await one.until_there("T", 3)
        where = {"topic": "T", "queueId": "0", "index": "1", "count": "5"}
        found = await one.ask(RequestCode.QUERY_CONSUME_QUEUE, where)
        said = orjson.loads(found.body)
        assert (found.remark, said["minQueueIndex"], said["maxQueueIndex"]) == ("not set any response code", 0, 3)
        assert [unit["tagsCode"] for unit in said["queueData"]] == [65, 65]
        assert "filterData" not in said
        await two.heartbeat("G", "T", "A")
        online = await json_of(one, 321, **where, consumerGroup="G")
        assert (online["subscriptionData"]["subString"], online["filterData"]) == ("A", "null")
        offline = await json_of(one, 321, **where, consumerGroup="H")
        assert offline["filterData"] == "H@T is not online!"
        beyond = await one.ask(RequestCode.QUERY_CONSUME_QUEUE, {**where, "index": "9"})
        assert (beyond.code, beyond.remark, bytes(beyond.body)) == (0, "Index 9 of 0@T is not exist!", b"")
        missing = await one.ask(RequestCode.QUERY_CONSUME_QUEUE, {**where, "queueId": "7"})
        assert (missing.code, missing.remark) == (1, "7@T is not exist!")

    served(tmp_path / "s", work)
