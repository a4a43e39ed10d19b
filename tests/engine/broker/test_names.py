"""The route table, the bodies of registrations, and both sides of the name service over the wire."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.broker.names import registration
from engine.broker.names.name_servers import parse_addresses
from engine.broker.names.route_table import LIVE_MS, Registration, RouteTable, with_permission
from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import TopicConfig
from engine.errors import FormatError, InvalidArgument
from engine.format.hashing import body_crc
from engine.wire.codes import RequestCode
from engine.wire.registration import LARGEST
from tests.engine.broker.client import Client, daemon, send_fields


class Clock:
    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def said(
    name: str = "b", broker_id: int = 0, address: str | None = None, version: int = 1, *topics: str, **more: Any
) -> Registration:
    table = {topic: TopicConfig(topic) for topic in topics or ("T",)}
    address = address or f"{name}:{broker_id}"
    more = {"owner": f"to {address}", **more}
    return Registration("c", name, broker_id, address, f"ha of {address}", DataVersion(version), table, **more)


def addresses(table: RouteTable, topic: str = "T") -> dict[str, dict[str, str]]:
    return {one["brokerName"]: one["brokerAddrs"] for one in (table.route(topic) or {"brokerDatas": []})["brokerDatas"]}


def test_brokers_are_merged_and_slaves_find_their_master() -> None:
    table = RouteTable(Clock())
    assert table.register(said("b", 1)) is None
    assert table.route("T") is None  # a slave brings no topics
    assert table.register(said("b")) is None
    assert table.register(said("b", 1)) == ("ha of b:0", "b:0")
    table.register(said("d", 0, None, 1, "T", "U"))
    assert addresses(table) == {"b": {"0": "b:0", "1": "b:1"}, "d": {"0": "d:0"}}
    assert addresses(table, "U") == {"d": {"0": "d:0"}}
    info = table.cluster_info()
    assert info["clusterAddrTable"] == {"c": ["b", "d"]}
    assert info["brokerAddrTable"]["b"] == {
        "brokerAddrs": {"0": "b:0", "1": "b:1"}, "brokerName": "b", "cluster": "c",
    }  # fmt: skip
    assert sorted(table.topics()) == ["T", "U"] == sorted(table.topics_of("c"))
    assert table.topics_of("x") == []
    assert table.system_topics() == {"brokerAddr": "b:0", "topicList": ["c", "b", "d"]}


def test_topics_are_taken_over_when_the_version_changes_and_stay() -> None:
    table = RouteTable(Clock())
    table.register(said("b", 0, None, 1, "T"))
    table.register(said("b", 0, None, 1, "U"))
    assert table.topics() == ["T"]
    table.register(said("b", 0, None, 2, "U"))
    assert sorted(table.topics()) == ["T", "U"]
    table.register(said("b", 0, None, 3, "V", whole=True))
    assert table.topics() == ["V"]


def test_a_broker_that_changes_its_part_or_address() -> None:
    table = RouteTable(Clock())
    table.register(said("b", 1, "one"))
    table.register(said("b", 0, "one"))
    assert addresses(table) == {"b": {"0": "one"}}
    table.register(said("b", 0, "two"))
    assert addresses(table) == {"b": {"0": "two"}}
    table.unregister("b", 0, "one")  # the old one says good-bye
    assert addresses(table) == {"b": {"0": "two"}}


@pytest.mark.parametrize("how", ["unregistered", "connection closed", "silent"])
def test_a_broker_goes_and_its_topics_with_it(how: str) -> None:
    clock = Clock()
    table = RouteTable(clock)
    table.register(said("own", 0, None, 1, "T", owner=None))
    table.register(said("b", 0, None, 1, "T", "U"))
    table.register(said("b", 1))
    for broker_id in (0, 1):
        if how == "unregistered":
            table.unregister("b", broker_id, f"b:{broker_id}")
        elif how == "connection closed":
            assert table.lost(f"to b:{broker_id}") == [f"b:{broker_id}"]
        elif broker_id == 0:
            clock.ms += LIVE_MS
            table.touch("b:1")
            clock.ms += 1
            assert table.expire() == [("b:0", "to b:0")]
        else:
            clock.ms += LIVE_MS + 1
            assert table.expire() == [("b:1", "to b:1")]
        if broker_id == 0:
            assert addresses(table) == {"own": {"0": "own:0"}, "b": {"1": "b:1"}}
    assert addresses(table) == {"own": {"0": "own:0"}}
    assert table.route("U") is None
    assert table.topics() == ["T"]
    assert table.lost("to b:0") == [] == table.expire()


def test_write_permissions_and_deleted_topics() -> None:
    table = RouteTable(Clock())
    table.register(said("b", 0, None, 1, "T", "U"))
    table.register(said("d"))
    perms: Callable[[], list[int]] = lambda: [one["perm"] for one in (table.route("T") or {})["queueDatas"]]  # noqa: E731
    assert table.set_writable("b", writable=False) == 2
    assert perms() == [4, 6]
    table.register(said("b", 0, None, 1, "T", "U"))
    assert perms() == [4, 6]  # nothing new, nothing restored
    assert table.set_writable("b", writable=True) == 2
    assert perms() == [6, 6]
    table.delete_topic("T", "other")
    assert len(addresses(table)) == 2
    table.delete_topic("T", "c")
    assert table.route("T") is None
    table.delete_topic("nothing")
    assert with_permission([TopicConfig("T", perm=7)], 4)["T"].perm == 4
    assert with_permission([TopicConfig("T", perm=7)], 6)["T"].perm == 7


def test_unit_topics_and_filter_servers() -> None:
    table = RouteTable(Clock())
    topics = {str(flag): TopicConfig(str(flag), sys_flag=flag) for flag in range(4)}
    one = Registration("c", "b", 0, "b:0", "", DataVersion(1), topics, ("f:1",), "o")
    table.register(one)
    assert table.unit_topics(lambda flag: bool(flag & 1)) == ["1", "3"]
    route = table.route("1")
    assert route is not None
    assert route["filterServerTable"] == {"b:0": ["f:1"]}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_both_ways(compressed: bool) -> None:
    topics = {"T": TopicConfig("T", 3, 5, 6, "MULTI_TAG"), "%RETRY%G": TopicConfig("%RETRY%G", 1, 1)}
    body = registration.encode(DataVersion(7, 9), topics, compressed=compressed)
    assert registration.decode(body, compressed=compressed, sender_version=409) == (DataVersion(7, 9), topics, ())
    for cut in range(1, len(body), 7):
        with pytest.raises(FormatError):
            registration.decode(body[:cut], compressed=compressed, sender_version=409)


def test_registrations_that_are_none() -> None:
    assert registration.decode(b"", compressed=True, sender_version=409)[1] == {}
    old = orjson.dumps({"dataVersion": {"timestamp": 3}, "topicConfigTable": {"T": {"topicName": "T"}}})
    assert registration.decode(old, compressed=False, sender_version=30) == (
        DataVersion(3), {"T": TopicConfig("T")}, None,
    )  # fmt: skip
    bomb = zlib.compress(bytes(LARGEST + 1), 9)
    for body, compressed in ((bomb, True), (b"[]", False), (b'{"topicConfigSerializeWrapper":7}', False), (b"x", True)):
        with pytest.raises(FormatError):
            registration.decode(body, compressed=compressed, sender_version=409)


def test_addresses_of_name_servers() -> None:
    assert parse_addresses("a:1;[::1]:2; a:1 ;") == ("a:1", "[::1]:2")
    for wrong in ("a", "a:b", "a:0", ":1", "a:70000"):
        with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
            parse_addresses(wrong)


def header(**more: str) -> dict[str, str]:
    return {
        "brokerName": "other", "brokerAddr": "10.0.0.9:10911", "clusterName": "DefaultCluster", "brokerId": "0",
        "haServerAddr": "10.0.0.9:10912", **more,
    }  # fmt: skip


def test_a_broker_registers_with_us(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            assert found.listening.names is not None
            one, two = await Client.to(found.listening.names), await Client.to(found.listening.names)
            client = await Client.to(found.listening.broker)
            await client.put("T", b"x")
            body = registration.encode(DataVersion(5, 1), {"T": TopicConfig("T", 2, 2)}, compressed=True)
            wrong = await one.ask(103, header(compressed="true", bodyCrc32="5"), body)
            assert (wrong.code, wrong.remark) == (1, "crc32 not match")
            crc = {"compressed": "true", "bodyCrc32": str(body_crc(body))}
            assert (await one.ask(103, header(**crc), body[:-9])).code == 1
            changed = await one.ask(322, header(), orjson.dumps({"counter": 1, "timestamp": 5}))
            assert (changed.fields["changed"], changed.body) == ("true", b"")
            answer = await one.ask(103, header(**crc), body)
            assert (answer.code, answer.fields, answer.body) == (0, {}, b"")
            same = await one.ask(322, header(), orjson.dumps({"counter": 1, "timestamp": 5}))
            assert (same.fields["changed"], orjson.loads(same.body)) == ("false", {"counter": 1, "timestamp": 5})
            route = orjson.loads((await two.ask(105, {"topic": "T"})).body)
            assert {one["brokerName"] for one in route["queueDatas"]} == {"broker-a", "other"}
            cluster = orjson.loads((await two.ask(106)).body)
            assert cluster["clusterAddrTable"] == {"DefaultCluster": ["broker-a", "other"]}
            assert (await two.ask(205, {"brokerName": "other"})).fields == {"wipeTopicCount": "1"}
            assert (await two.ask(327, {"brokerName": "other"})).fields == {"addTopicCount": "1"}
            stolen = await two.ask(103, header(brokerName="broker-a"), b"")
            assert (stolen.code, "own" in (stolen.remark or "")) == (1, True)
            assert (await two.ask(104, header(brokerName="broker-a"))).code == 1
            slave = await two.ask(103, header(brokerId="1", brokerAddr="10.0.0.8:1"), body)
            assert slave.code == 1  # a body that is compressed, and says it isn't
            slave = await two.ask(103, header(brokerId="1", brokerAddr="10.0.0.8:1", **crc), body)
            assert slave.fields == {"haServerAddr": "10.0.0.9:10912", "masterAddr": "10.0.0.9:10911"}
            one.writer.close()
            for _ in range(1000):
                route = orjson.loads((await two.ask(105, {"topic": "T"})).body)
                if len(route["brokerDatas"][-1]["brokerAddrs"]) == 1:
                    break
            assert route["brokerDatas"][-1]["brokerAddrs"] == {"1": "10.0.0.8:1"}
            assert (await two.ask(104, header(brokerId="1", brokerAddr="10.0.0.8:1"))).code == 0
            route = orjson.loads((await two.ask(105, {"topic": "T"})).body)
            assert [one["brokerName"] for one in route["queueDatas"]] == ["broker-a"]

    asyncio.run(run())


def test_our_own_topics_and_key_value_pairs(tmp_path: Path) -> None:
    async def first() -> None:
        async with daemon(tmp_path / "s", order_message_enable=True) as found:
            assert found.listening.names is not None
            names, client = await Client.to(found.listening.names), await Client.to(found.listening.broker)
            assert (await names.ask(105, {"topic": "T"})).code == 17
            await client.put("T", b"x")
            assert (await names.ask(105, {"topic": "T"})).code == 0
            assert (await names.ask(216, {"topic": "T"})).code == 0
            assert (await names.ask(105, {"topic": "T"})).code == 17
            await client.put("U", b"x")  # a change: all are registered again
            assert (await names.ask(105, {"topic": "T"})).code == 0
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "U"})
            assert (await names.ask(105, {"topic": "U"})).code == 17
            pair = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
            assert (await names.ask(100, pair)).code == 0
            assert (await names.ask(102, {"namespace": "N", "key": "K"})).code == 0
            await names.ask(103, header(), registration.encode(DataVersion(1), {}, compressed=False))
            route = orjson.loads((await names.ask(105, {"topic": "T"})).body)
            assert route["orderTopicConf"] == "broker-a:4"

    async def second() -> None:
        async with daemon(tmp_path / "s") as found:
            assert found.listening.names is not None
            names, client = await Client.to(found.listening.names), await Client.to(found.listening.broker)
            where = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
            assert (await names.ask(101, where)).fields == {"value": "broker-a:4"}
            answer = await names.ask(103, header(), registration.encode(DataVersion(1), {}, compressed=False))
            assert orjson.loads(answer.body) == {"table": {"T": "broker-a:4"}}
            assert b"orderTopicConf" not in (await names.ask(105, {"topic": "T"})).body
            topics = orjson.loads((await client.ask(21)).body)["topicConfigTable"]
            assert topics["T"]["order"] is True
            await names.ask(102, where)
            assert orjson.loads((await client.ask(21)).body)["topicConfigTable"]["T"]["order"] is False
            assert (await names.ask(219, {"namespace": "none"})).code == 22
            for code in (311, 312, 313):
                assert orjson.loads((await names.ask(code)).body) == {"topicList": []}

    asyncio.run(first())
    asyncio.run(second())
    assert (tmp_path / "s" / "config" / "kvConfig.json").exists()


def test_we_register_with_name_servers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two of ours play the name servers; one is away at first."""

    async def topics(names: Client) -> dict[str, list[str]]:
        info = orjson.loads((await names.ask(106)).body)
        return {name: one["brokerAddrs"] for name, one in info["brokerAddrTable"].items()}

    async def run() -> None:
        async with daemon(tmp_path / "n", broker_name="n") as server:
            assert server.listening.names is not None
            gone = "127.0.0.1:1"
            names = await Client.to(server.listening.names)
            async with daemon(
                tmp_path / "s",
                name_service_port=None,
                name_servers=f"{server.listening.names};{gone}",
                compressed_register=True,
                register_timeout_ms=60_000,
            ) as ours:
                assert (await topics(names))["broker-a"] == {"0": ours.listening.broker}
                client = await Client.to(ours.listening.broker)
                await client.ask(310, send_fields("Fresh"), b"x")
                async with asyncio.timeout(60):
                    while (await names.ask(105, {"topic": "Fresh"})).code != 0:
                        await asyncio.sleep(0.01)
            assert "broker-a" not in await topics(names)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    away = [one for one in caplog.records if "not reachable" in one.getMessage()]
    assert [getattr(one, "peer", "") for one in away] == ["127.0.0.1:1"]
