"""The administrator's requests about groups, clients, half messages and the name service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from engine.broker.handlers import admin_clients, reply
from engine.config import StoreConfig
from engine.format.message import decode
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import ONEWAY, SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.broker.test_admin import json_of
from tests.engine.broker.test_daemon import served

# --- groups and their offsets ---------------------------------------------------------------------------------------


async def commit(client: Client, group: str, offset: int, queue_id: int = 0) -> None:
    where = {"consumerGroup": group, "topic": "T", "queueId": str(queue_id), "commitOffset": str(offset)}
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where)).code == 0


def test_offsets_by_time_against_each_other_and_cloned(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        for i in range(6):
            await one.put("T", b"%d" % i)
        await one.until_there("T", 6)
        await commit(one, "A", 2)
        await commit(one, "B", 5)
        spans = (await json_of(one, 303, topic="T", group="A"))["consumeTimeSpanSet"]
        first = spans[0]
        assert first["minTimeStamp"] <= first["consumeTimeStamp"] <= first["maxTimeStamp"]
        assert first["delayTime"] >= 0
        assert first["minTimeStampStr"][10] == "#"
        assert (await one.ask(303, {"topic": "U", "group": "A"})).remark == "topic[U] not exist"
        assert (await json_of(one, 308, topic="T", compareGroup="A"))["correctionOffsets"] == {"0": 2}
        assert (await json_of(one, 308, topic="T", compareGroup="A", filterGroups="A"))["correctionOffsets"] == {
            "0": (1 << 63) - 1
        }
        assert (await one.ask(314, {"srcGroup": "A", "destGroup": "C", "topic": "T", "offline": "true"})).code == 0
        asked = {"consumerGroup": "C", "topic": "T", "queueId": "0"}
        assert (await one.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).fields["offset"] == "2"
        await two.heartbeat("B", "Other")
        assert (await one.ask(314, {"srcGroup": "B", "destGroup": "C", "topic": "T", "offline": "false"})).code == 0
        assert (await one.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).fields["offset"] == "2"
        await one.ask(200, None, orjson.dumps({"groupName": "A"}))
        stats = await one.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        text = bytes(stats.body)
        assert b'"totalDiff":4' in text
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":6,"consumerOffset":2' in text
        assert b'{"TOOLS_CONSUMER":[]}' in text
        assert (await json_of(one, RequestCode.GET_ALL_DELAY_OFFSET)) == {"offsetTable": {}}

    served(tmp_path / "s", work)


def test_what_was_counted_is_viewed(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        await one.put("T", b"x")
        await one.until_there("T", 1)
        await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))
        view = await json_of(one, 315, statsName="TOPIC_PUT_NUMS", statsKey="T")
        assert view.keys() == {"statsDay", "statsHour", "statsMinute"}
        assert view["statsMinute"].keys() == {"avgpt", "sum", "tps"}
        assert (await one.ask(315, {"statsName": "GROUP_GET_NUMS", "statsKey": "T@G"})).code == 0
        missing = await one.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "U"})
        assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")

    served(tmp_path / "s", work)


def test_all_producers(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        await two.produce("PG")
        found = (await json_of(one, RequestCode.GET_ALL_PRODUCER_INFO))["data"]["PG"]
        assert found[0]["clientId"] == two.client_id
        assert found[0]["remoteIP"].startswith("/127.0.0.1:")

    served(tmp_path / "s", work)


# --- clients that are asked -----------------------------------------------------------------------------------------


def test_a_consumer_is_asked_and_its_answer_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_clients, "CLIENT_S", 60.0)

    async def work(one: Client, two: Client, names: str) -> None:
        del names
        sent = await one.put("T", b"hello")
        await two.heartbeat("G", "T")
        who = {"consumerGroup": "G", "clientId": two.client_id}
        opaque = one.send(RequestCode.GET_CONSUMER_RUNNING_INFO, {**who, "jstackEnable": "true"})
        asked = await two.asked(RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert asked.fields["jstackEnable"] == "true"
        two.reply(asked, 0, "fine", b'{"properties":{}}')
        answer = await one.answer(opaque)
        assert (answer.code, answer.remark, bytes(answer.body)) == (0, "fine", b'{"properties":{}}')
        opaque = one.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**who, "msgId": sent.fields["msgId"]})
        asked = await two.asked(RequestCode.CONSUME_MESSAGE_DIRECTLY)
        assert (asked.fields["brokerName"], decode(asked.body).body) == ("broker-a", b"hello")
        two.reply(asked, 1, "no")
        assert (await one.answer(opaque)).remark == "no"
        absent = await one.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**who, "clientId": "x"})
        assert (absent.code, absent.remark) == (1, "The Consumer <G> <x> not online")
        wrong = await one.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**who, "msgId": "12"})
        assert wrong.code == 1

    served(tmp_path / "s", work)


def test_a_consumer_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_clients, "CLIENT_S", 0.2)

    async def work(one: Client, two: Client, names: str) -> None:
        del names
        await two.heartbeat("G", "T")
        who = {"consumerGroup": "G", "clientId": two.client_id}
        late = await one.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, who)
        assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (late.remark or "").startswith(f"consumer <G> <{two.client_id}> Timeout: ")
        monkeypatch.setattr(admin_clients, "CLIENT_S", 60.0)  # now it is its end that answers, not its time
        opaque = one.send(RequestCode.GET_CONSUMER_RUNNING_INFO, who)
        for _ in range(2):  # that of before, which it has not read yet, and this one
            await two.asked(RequestCode.GET_CONSUMER_RUNNING_INFO)
        two.writer.close()
        assert (await one.answer(opaque)).code == ResponseCode.SYSTEM_ERROR

    served(tmp_path / "s", work)


def test_offsets_are_reset_at_the_consumers(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        for i in range(4):
            await one.put("T", b"%d" % i)
        await one.until_there("T", 4)
        ask = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        missing = await one.ask(222, {**ask, "topic": "U"})
        assert missing.remark == "[reset-offset] reset offset failed, no topic in this broker. topic=U"
        assert (await one.ask(222, ask)).remark == "THe consumer group <G> not exist"
        for queue_id in range(4):
            await commit(one, "G", 1, queue_id)
        offline = await one.ask(222, ask)
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert offline.remark == "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: -1"
        await two.heartbeat("G", "T")
        reset = await one.ask(222, ask)
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:4' in bytes(reset.body)
        told = await two.asked(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        assert told.flag == ONEWAY
        assert (told.fields["isForce"], bytes(told.body)) == ("false", bytes(reset.body))
        gentle = await one.ask(222, {**ask, "timestamp": "0", "isForce": "false"})
        assert b'"topic":"T"}:0' in bytes(gentle.body)

    served(tmp_path / "s", work)


def test_where_consumers_stand(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del names
        nobody = await one.ask(223, {"topic": "T", "group": "G"})
        assert nobody.remark == "No Any Consumer online in the consumer group: [G]"
        await two.heartbeat("G", "T")
        opaque = one.send(223, {"topic": "T", "group": "G"})
        asked = await two.asked(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        table = b'{{"brokerName":"b}","queueId":0,"topic":"T"}:5}'
        two.reply(asked, 0, None, b'{"consumerTable":{},"messageQueueTable":' + table + b"}")
        said = bytes((await one.answer(opaque)).body)
        assert said == (b'{"messageQueueTable":{},"consumerTable":{"' + two.client_id.encode() + b'":' + table + b"}}")

    served(tmp_path / "s", work)


@pytest.mark.leaves("config-missing")
def test_a_reply_goes_to_the_client_that_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "DefaultCluster_REPLY_TOPIC"
    monkeypatch.setattr(reply, "PUSH_S", 60.0)

    async def work(one: Client, two: Client, names: str) -> None:
        del names
        await two.produce("Asking")
        said = f"CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01{two.client_id}\x02WAIT\x01true"
        opaque = one.send(RequestCode.SEND_REPLY_MESSAGE_V2, send_fields(topic, 0, said), b"pong")
        asked = await two.asked(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        assert bytes(asked.body) == b"pong"
        assert asked.fields["topic"] == topic
        assert "PUSH_REPLY_TIME\x01" in asked.fields["properties"]
        assert asked.fields["bornHost"].startswith("127.0.0.1:")
        two.reply(asked)
        answer = await one.answer(opaque)
        assert (answer.code, answer.fields["queueOffset"], len(answer.fields["msgId"])) == (0, "0", 32)
        await one.until_there(topic, 1)
        stored = decode((await one.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0))).body)
        assert stored.properties["CORRELATION_ID"] == "c-1"
        assert "PUSH_REPLY_TIME" not in stored.properties
        monkeypatch.setattr(reply, "PUSH_S", 0.1)
        lost = await one.ask(RequestCode.SEND_REPLY_MESSAGE_V2, send_fields(topic, 0, said), b"pong")
        assert (lost.code, lost.remark) == (1, f"push reply message to {two.client_id}fail.")
        assert lost.fields["queueOffset"] == "1"  # it is stored all the same
        for named, remark in (
            ("REPLY_TO_CLIENT\x01nobody", "push reply message fail, channel of <nobody> not found."),
            ("a\x01b", "reply message properties[REPLY_TO_CLIENT] is null"),
        ):
            found = await one.ask(RequestCode.SEND_REPLY_MESSAGE_V2, send_fields(topic, 0, named), b"pong")
            assert (found.code, found.remark) == (1, remark)

    served(tmp_path / "s", work)


# --- half messages, events, filters ---------------------------------------------------------------------------------


def test_the_check_of_a_half_message_is_taken_up_again(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        half = await one.put("T", b"half", 0, "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TRANSACTION_CHECK_TIMES\x0115")
        msg_id = half.fields["msgId"]
        assert (await one.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": msg_id})).code == 0
        await one.until_there("RMQ_SYS_TRANS_HALF_TOPIC", 2)
        units = await json_of(
            one, RequestCode.QUERY_CONSUME_QUEUE, topic="RMQ_SYS_TRANS_HALF_TOPIC", queueId="0", index="1", count="1"
        )
        offset = str(units["queueData"][0]["physicOffset"])
        again = decode((await one.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})).body)
        assert (again.body, again.properties["TRANSACTION_CHECK_TIMES"]) == (b"half", "0")
        wrong = await one.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "00" * 16})
        assert wrong.code == 0 or (wrong.remark or "").startswith("Exception was thrown")
        assert (await one.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "x"})).code == 1

    served(tmp_path / "s", work)


def test_a_moved_offset_is_an_event(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        await one.put("T", b"x")
        await one.until_there("T", 1)
        moved = await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 99))
        assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
        await one.until_there("OFFSET_MOVED_EVENT", 1)
        event = decode((await one.ask(RequestCode.PULL_MESSAGE, pull_fields("OFFSET_MOVED_EVENT", 0))).body)
        assert orjson.loads(event.body) == {
            "consumerGroup": "G",
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "offsetNew": 1,
            "offsetRequest": 99,
        }
        assert (event.properties["TAGS"], event.properties["KEYS"]) == ("G", "G")

    served(tmp_path / "s", work)


def test_filters_are_known_again_after_a_start(tmp_path: Path) -> None:
    root = tmp_path / "s"
    asked = {**pull_fields("T", 0), "sysFlag": "0"}

    async def first(one: Client, two: Client, names: str) -> None:
        del names
        await one.put("T", b"no", 0, "a\x011")
        await one.put("T", b"yes", 0, "a\x019")
        await one.until_there("T", 2)
        await two.heartbeat("G", "T", "a > 5", 7, "SQL92")
        found = await two.ask(RequestCode.PULL_MESSAGE, {**asked, "subVersion": "7"})
        assert decode(found.body).body == b"yes"
        newer = await two.ask(RequestCode.PULL_MESSAGE, {**asked, "subVersion": "8"})
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await two.heartbeat("H", "T", "a >", 7, "SQL92")
        wrong = await two.ask(RequestCode.PULL_MESSAGE, {**asked, "consumerGroup": "H", "subVersion": "7"})
        assert wrong.code == ResponseCode.FILTER_DATA_NOT_EXIST

    async def second(one: Client, two: Client, names: str) -> None:
        del one, names
        await two.heartbeat("G", "T", "a > 5", 7, "SQL92")
        assert decode((await two.ask(RequestCode.PULL_MESSAGE, {**asked, "subVersion": "7"})).body).body == b"yes"

    served(root, first, property_filter=True)
    kept = orjson.loads((root / "config" / "consumerFilter.json").read_bytes())["filterDataByTopic"]["T"]
    entry = kept["groupFilterData"]["G"]
    assert (entry["expression"], entry["clientVersion"], entry["dead"]) == ("a > 5", 7, True)
    assert entry["bloomFilterData"]["bitNum"] == 112
    served(root, second, property_filter=True)


# --- the name service -----------------------------------------------------------------------------------------------


def test_the_name_services_own_matters(tmp_path: Path) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del two
        service = await Client.to(names)
        make = {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "order": "false"}
        make["topicFilterType"] = "SINGLE_TAG"
        for topic, flag in (("Plain", 0), ("Unit", 1), ("Sub", 2), ("Both", 3)):
            assert (await one.ask(17, {**make, "topic": topic, "topicSysFlag": str(flag)})).code == 0
        units = [sorted((await json_of(service, code))["topicList"]) for code in (311, 312, 313)]
        assert units == [["Both", "Unit"], ["Both", "Sub"], ["Sub"]]

        async def perm() -> int:
            return int((await json_of(service, 105, topic="Plain"))["queueDatas"][0]["perm"])

        wiped = await service.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
        assert int(wiped.fields["wipeTopicCount"]) >= 4
        assert await perm() == 4
        other = await service.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-x"})
        assert other.fields["wipeTopicCount"] == "0"
        assert await perm() == 4
        await service.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
        assert await perm() == 6
        await service.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
        await one.ask(17, {**make, "topic": "Another"})
        assert await perm() == 6  # the broker registered anew
        config = bytes((await service.ask(RequestCode.GET_NAMESRV_CONFIG)).body)
        assert b"orderMessageEnable=false\n" in config
        await service.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "Plain", "value": "broker-a:1"})
        assert "orderTopicConf" not in await json_of(service, 105, topic="Plain")
        assert (await service.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true")).code == 0
        assert (await json_of(service, 105, topic="Plain"))["orderTopicConf"] == "broker-a:1"
        refused = await service.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"kvConfigPath=/x")
        assert refused.code == ResponseCode.NO_PERMISSION

    served(tmp_path / "s", work)


def test_passwords_are_not_told(tmp_path: Path) -> None:
    keys = {"tls.server.keyPassword": "open sesame", "tls.server.mode": "disabled"}
    config = StoreConfig(store_path_root_dir=tmp_path / "s", other=keys).with_changes(**SMALL)

    async def run() -> None:
        async with daemon(tmp_path / "s", config=config) as found:
            client = await Client.to(found.listening.broker)
            told = bytes((await client.ask(RequestCode.GET_BROKER_CONFIG)).body)
            assert b"tls.server.mode" in told
            assert b"sesame" not in told

    asyncio.run(run())
