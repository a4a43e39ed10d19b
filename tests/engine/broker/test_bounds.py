"""What is bounded, and what the client gets; what is found by an index; what is written beside the loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.broker.names import registration
from engine.broker.names.route_table import RouteTable
from engine.broker.requests.json_body import BODY_MAX, LENIENT_MAX, MARKS_MAX
from engine.broker.tables.config_file import ConfigFile, DataVersion
from engine.broker.tables.consumer_filters import ConsumerFilters
from engine.broker.tables.members import Subscription
from engine.broker.tables.offsets import ConsumerOffsets
from engine.broker.tables.topics import TopicConfig
from engine.broker.turns import HeldTime
from engine.broker.watch.scrubbing import Scrubbing
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format import fastjson
from engine.log.reading import FILTER_TERMS
from engine.log.results import GetMessageStatus
from engine.log.sql import SqlFilter
from engine.wire.codes import V4_9_8, RequestCode, ResponseCode
from tests.engine.broker.client import Client, daemon, pull_fields, send_fields

INT_MAX = (1 << 31) - 1
PATIENCE_S = 300


# --- heartbeats -------------------------------------------------------------------------------------------------------


def sql(topic: str, expression: str = "a = 1", version: int = 1) -> dict[str, Any]:
    return {"topic": topic, "subString": expression, "subVersion": version, "expressionType": "SQL92"}


async def beat(client: Client, consumers: Iterable[dict[str, Any]], producers: Iterable[str] = ()) -> tuple[int, str]:
    body = {
        "clientID": "c",
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    answer = await client.answer(client.send(RequestCode.HEART_BEAT, None, orjson.dumps(body)), PATIENCE_S)
    return answer.code, answer.remark or ""


def group(name: str, *subscriptions: dict[str, Any]) -> dict[str, Any]:
    return {"groupName": name, "subscriptionDataSet": list(subscriptions)}


@pytest.mark.parametrize("padding", [0, 20_000], ids=["in one turn", "in turns"])
def test_a_heartbeat_beyond_its_bounds_is_refused_whole(padding: int, tmp_path: Path) -> None:
    bounds = {"groups_per_client": 3, "subscriptions_per_heartbeat": 4, "filters_per_group": 2}

    async def run() -> None:
        async with daemon(tmp_path / "s", **bounds) as found:
            client = await Client.to(found.listening.broker)
            long = {**group("G"), "padding": "x" * padding}
            for consumers, remark in (
                ([group("a"), group("b"), group("c"), long], "4 groups of a client, at most 3 are allowed"),
                ([{**long, "subscriptionDataSet": [sql(t, "*") | {"expressionType": "TAG"} for t in "abcde"]}],
                 "5 subscriptions in a heartbeat, at most 4 are allowed (maxSubscriptionsPerHeartbeat)"),
                ([{**long, "subscriptionDataSet": [sql(t) for t in "abc"]}],
                 "3 filters of the group G, at most 2 are allowed (maxFiltersPerGroup)"),
            ):  # fmt: skip
                code, said = await beat(client, consumers, ["P"] if "groups" not in remark else [])
                assert code == ResponseCode.SYSTEM_ERROR
                assert remark in said
                assert not found.broker.members.consumers
                assert not found.broker.members.producers
            assert (await beat(client, [long], ["P"]))[0] == 0
            assert (await beat(client, [group("H")]))[0] == 0
            assert "4 groups of a client" in (await beat(client, [group("I")]))[1]  # those of before count
            assert (await beat(client, [group("H")]))[0] == 0
            other = await Client.to(found.listening.broker)
            assert (await beat(other, [group("I")]))[0] == 0

    asyncio.run(run())


def test_a_client_that_goes_amid_its_heartbeat_is_a_member_of_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            many = [group(f"g{n}", sql("T", f"a = {n}")) for n in range(2000)]
            client.send(RequestCode.HEART_BEAT, None, orjson.dumps({"clientID": "c", "consumerDataSet": many}))
            await client.writer.drain()
            members = found.broker.members
            async with asyncio.timeout(60):
                while not members.consumers:
                    await asyncio.sleep(0)
                client.writer.transport.abort()
                while members.consumers or found.broker.later._tasks:
                    await asyncio.sleep(0.001)
            assert members._consumer_of == {}

    asyncio.run(run())


# --- JSON bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [b"[]", b'{"a":[]}', b"1", b"[" * 9 + b"]" * 9])
def test_a_body_of_more_values_than_any_client_sends_is_refused_unread(one: bytes, tmp_path: Path) -> None:
    """4 MiB of brackets are half a second for the parser, which gives way to nobody, in whichever thread it runs."""
    body = b'{"a":[' + b",".join([one] * ((BODY_MAX - 16) // (len(one) + 1))) + b"]}"
    marks = body.count(b",") + body.count(b"[") + body.count(b"{")

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            answer = await client.answer(client.send(RequestCode.HEART_BEAT, None, body), PATIENCE_S)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"JSON body has {marks} commas and brackets, at most {MARKS_MAX} are allowed"
            assert (await beat(client, [group("G")]))[0] == 0

    asyncio.run(run())


def test_the_largest_heartbeat_of_the_defaults_is_read(tmp_path: Path) -> None:
    """As Apache's client writes it."""
    names = {"classFilterMode": False, "tagsSet": [], "codeSet": [], "subVersion": 1_700_000_000_000}
    wanted = [{**names, "topic": f"topic-{n}", "subString": "*", "expressionType": "TAG"} for n in range(10_000)]
    consumer = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False}
    consumers = [
        {**consumer, "groupName": f"group-{n}", "subscriptionDataSet": wanted[n * 2 : n * 2 + 2]} for n in range(5000)
    ]

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert await beat(client, consumers) == (0, "")
            assert len(found.broker.members.consumers) == 5000

    asyncio.run(run())


@pytest.mark.parametrize(("size", "code"), [(LENIENT_MAX, 0), (LENIENT_MAX + 1, ResponseCode.SYSTEM_ERROR)])
def test_what_is_not_standard_json_is_read_as_far_as_it_is_short(size: int, code: int, tmp_path: Path) -> None:
    body = b'{"clientID":"c",1:"'
    body += b"x" * (size - len(body) - 2) + b'"}'

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            answer = await client.answer(client.send(RequestCode.HEART_BEAT, None, body), PATIENCE_S)
            assert answer.code == code
            if code:
                assert f"not standard JSON, of which at most {LENIENT_MAX} bytes are read" in (answer.remark or "")

    asyncio.run(run())


# --- filters ----------------------------------------------------------------------------------------------------------


class Milliseconds:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        self.ms += 1
        return self.ms


def wants(topic: str, expression: str = "a > 1", version: int = 1) -> Subscription:
    return Subscription(topic, expression, "SQL92", version)


def test_filters_are_bounded_and_the_longest_dead_go_first(tmp_path: Path) -> None:
    file = ConfigFile(Disk(), str(tmp_path), "consumerFilter.json")
    filters = ConsumerFilters(file, Milliseconds(), 1 << 40, most=4)
    filters.register("A", [wants("T"), wants("U")])
    filters.register("B", [wants("T"), wants("U")])
    filters.register("C", [wants("T")])
    assert len(filters) == 4
    assert filters.get("T", "C") is None  # none of the others is dead
    filters.unregister("B")
    filters.unregister("A")
    filters.register("C", [wants("T"), wants("U")])
    assert [name for name in "ABC" if filters.get("T", name)] == ["A", "C"]
    filters.register("C", [wants("T")])  # U is dead now, and A's two for longer
    filters.register("D", [wants("T"), wants("U"), wants("V")])
    assert [name for name in "ABCD" if filters.get("T", name)] == ["C", "D"]
    assert filters.get("U", "C") is None
    changes = filters.changes()
    assert changes is not None
    filters.write(changes)
    fewer = ConsumerFilters(file, Milliseconds(), 1 << 40, most=2)
    fewer.load()
    assert len(fewer) == 2


def test_a_heartbeat_touches_only_the_filters_of_its_group(tmp_path: Path) -> None:
    filters = ConsumerFilters(ConfigFile(Disk(), str(tmp_path), "consumerFilter.json"), Milliseconds(), 1000)
    filters.register("many", [wants(f"t{n}") for n in range(500)])
    steps = sum(1 for _ in filters.steps("few", [wants("t1"), wants("t2")]))
    assert steps == 2
    assert len(filters._topics["few"]) == 2
    filters.unregister("few")
    filters.expire()
    assert len(filters._dead) == 2


def test_an_expression_is_compiled_once_whoever_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", property_filter=True) as found:
            client = await Client.to(found.listening.broker)
            for n in range(5):
                assert (await beat(client, [group(f"g{n}", sql("T", "a = 7"))]))[0] == 0
            compiled = found.broker.sql_filters
            assert list(compiled._filters) == ["a = 7"]
            assert compiled.of("a = 7") is compiled.of("a = 7")

    asyncio.run(run())


# --- pulls ------------------------------------------------------------------------------------------------------------


def wide(terms: int, last: str) -> str:
    return " OR ".join([*(f"a{n} = {n}" for n in range(terms)), last])


def test_a_pull_works_out_so_many_terms_and_the_next_one_goes_on(tmp_path: Path) -> None:
    expression = wide(500, "k = '150'")
    rows = FILTER_TERMS // SqlFilter(expression).terms + 1
    assert 1 < rows < 20

    async def run() -> None:
        async with daemon(tmp_path / "s", property_filter=True) as found:
            client = await Client.to(found.listening.broker)
            for n in range(200):
                await client.put("T", b"x", 0, f"k\x01{n}")
            await client.until_there("T", 200)
            ext = {**pull_fields("T", 0), "expressionType": "SQL92", "subscription": expression}
            ext["maxMsgNums"] = str(INT_MAX)
            at = pulls = 0
            while True:
                answer = await client.ask(RequestCode.PULL_MESSAGE, {**ext, "queueOffset": str(at)})
                following = int(answer.fields["nextBeginOffset"])
                pulls += 1
                assert following == min(at + rows, 200)
                if answer.code == 0:
                    break
                assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                at = following
            assert at <= 150 < following
            assert pulls == 150 // rows + 1
            # at the start of an expression that is short there is no such bound
            short = {**ext, "subscription": "k = '150'"}
            answer = await client.ask(RequestCode.PULL_MESSAGE, short)
            assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "200")

    asyncio.run(run())


def test_large_records_count_for_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", property_filter=True) as found:
            client = await Client.to(found.listening.broker)
            for _ in range(8):
                await client.put("T", bytes(1 << 20), 0, "k\x01v")
            await client.until_there("T", 8)
            result = found.broker.store.get("T", 0, 0, 32, SqlFilter("k = 'w'"))
            assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
            whole = result.next_begin_offset
            found.broker.store._limits = found.broker.store._limits.__class__(
                *(getattr(found.broker.store._limits, name) for name in found.broker.store._limits.__slots__[:-1]), 600
            )
            result = found.broker.store.get("T", 0, 0, 32, SqlFilter("k = 'w'"))
            assert (whole, result.next_begin_offset) == (8, 3)  # 256 pages each

    asyncio.run(run())


def test_a_pull_for_two_billion_messages_looks_at_no_more_units(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            sent = [client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0), b"x") for _ in range(1000)]
            for one in sent:
                assert (await client.answer(one)).code == 0
            await client.until_there("T", 1000)
            ext = {**pull_fields("T", 0), "subscription": "nobody"}
            for most in ("32", str(INT_MAX)):
                answer = await client.ask(RequestCode.PULL_MESSAGE, {**ext, "maxMsgNums": most})
                assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                assert answer.fields["nextBeginOffset"] == "800"

    asyncio.run(run())


def test_pulls_that_wait_with_a_filter_are_answered_when_the_daemon_stops(tmp_path: Path) -> None:
    """However many, and whatever the filter takes: nothing is worked out any more."""

    async def run() -> None:
        async with daemon(tmp_path / "s", property_filter=True) as found:
            client = await Client.to(found.listening.broker)
            await client.put("T", b"x", 0, "k\x01v")
            await client.until_there("T", 1)
            ext = {**pull_fields("T", 1, wait_ms=60_000), "expressionType": "SQL92", "subscription": wide(500, "k = 1")}
            asked = [client.send(RequestCode.PULL_MESSAGE, ext) for _ in range(50)]
            async with asyncio.timeout(60):
                while found.broker.pulls.held < 50:
                    await asyncio.sleep(0.001)
            await client.put("T", b"x", 0, "k\x012")
            found.broker.pulls.close()
            answers = [await client.answer(one) for one in asked]
            assert {one.code for one in answers} <= {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}
            assert found.broker.pulls.held == 0

    asyncio.run(run())


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_are_found_by_group_and_by_topic_whatever_has_happened(tmp_path: Path) -> None:
    chance = random.Random(7)
    offsets = ConsumerOffsets(ConfigFile(Disk(), str(tmp_path), "consumerOffset.json"))
    model: dict[tuple[str, str], dict[int, int]] = {}
    states: list[tuple[Any, dict[str, Any]]] = []
    for step in range(3000):
        topic, one, other = chance.choice("TUVW"), chance.choice("ABCDE"), chance.choice("ABCDE")
        match chance.randrange(12):
            case 0:
                offsets.forget(one)
                model = {pair: queues for pair, queues in model.items() if pair[1] != one}
            case 1:
                offsets.clone(one, other, topic)
                if (topic, one) in model:
                    model[topic, other] = dict(model[topic, one])
            case 2:
                offsets.take({"offsetTable": {f"{topic}@{one}": {"0": step}}})
                model[topic, one] = {0: step}
            case 3:
                changes = offsets.changes()
                if changes is not None:
                    states.append((changes.table, as_text(model)))
            case _:
                queue = chance.randrange(3)
                offsets.commit(one, topic, queue, step)
                model.setdefault((topic, one), {})[queue] = step
        assert offsets.of(one, topic) == model.get((topic, one), {})
    assert {*offsets.pairs()} == model.keys()
    for name in "ABCDE":
        assert offsets.topics_of(name) == sorted(topic for topic, there in model if there == name)
    for name in "TUVW":
        assert offsets.groups_of(name) == sorted(there for topic, there in model if topic == name)
    assert offsets.topics() == sorted({topic for topic, _ in model})
    assert dict(offsets.entries()) == offsets.to_json()["offsetTable"] == as_text(model)["offsetTable"]
    assert len(states) > 50
    for state, wanted in states:  # as it was when it was taken, whatever came after
        assert state() == wanted


def as_text(model: dict[tuple[str, str], dict[int, int]]) -> dict[str, Any]:
    return {
        "offsetTable": {
            f"{topic}@{name}": {str(queue): offset for queue, offset in sorted(queues.items())}
            for (topic, name), queues in model.items()
        }
    }


def test_offsets_become_text_beside_the_loop(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(ConfigFile(Disk(), str(tmp_path), "consumerOffset.json"))
    for n in range(5000):
        offsets.commit(f"g{n}", "T", 0, 1)
    changes = offsets.changes()
    assert changes is not None
    assert offsets._own == set()  # what a commit copies from now on
    offsets.commit("g7", "T", 0, 2)
    assert offsets._own == {("T", "g7")}
    threads: list[str] = []
    real = fastjson.dumps

    def dumps(value: Any) -> str:
        threads.append(threading.current_thread().name)
        return real(value)

    thread = threading.Thread(target=lambda: offsets.write(changes._replace(table=lambda: noted(changes, threads))))
    thread.start()
    thread.join()
    assert threads == [thread.name]
    assert fastjson.loads((tmp_path / "config" / "consumerOffset.json").read_text())["offsetTable"]["T@g7"] == {"0": 1}
    assert dumps({}) == "{}"


def noted(changes: Any, threads: list[str]) -> dict[str, Any]:
    threads.append(threading.current_thread().name)
    table: dict[str, Any] = changes.table()
    return table


# --- tables of config/ ------------------------------------------------------------------------------------------------


class Counting(FaultyDisk):
    """Counts how often topics.json is written, and fails while `full`."""

    def __init__(self) -> None:
        super().__init__(None)
        self.written, self.full = 0, False

    def begin(self, doing: Doing) -> Any:
        if "/config/topics.json" in doing.path and doing.operation is Operation.CREATE:
            self.written += 1
            if self.full:
                raise OSError(errno.ENOSPC, "no space", doing.path)
        return super().begin(doing)


def made(name: str, queues: int = 2) -> dict[str, str]:
    number = str(queues)
    return {
        "topic": name, "readQueueNums": number, "writeQueueNums": number, "perm": "6", "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip


def test_many_topics_at_once_are_few_writes_and_durable_when_answered(tmp_path: Path) -> None:
    disk, root = Counting(), tmp_path / "s"

    def kept() -> dict[str, Any]:
        table: dict[str, Any] = fastjson.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
        return table

    async def run() -> None:
        async with daemon(root, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            before = disk.written
            asked = {f"U{n}": client.send(RequestCode.UPDATE_AND_CREATE_TOPIC, made(f"U{n}")) for n in range(300)}
            for number, (name, one) in enumerate(asked.items()):
                assert (await client.answer(one, PATIENCE_S)).code == 0
                if number % 50 == 0:
                    assert name in kept()
            assert disk.written - before <= 60  # each is the file, and its .bak
            again = [client.send(RequestCode.UPDATE_AND_CREATE_TOPIC, made("U0", n)) for n in range(1, 9)]
            assert [(await client.answer(one)).code for one in again] == [0] * 8
            assert kept()["U0"]["readQueueNums"] == 8  # the last one counts
            gone = [client.send(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"U{n}"}) for n in range(100)]
            assert [(await client.answer(one)).code for one in gone] == [0] * 100
            assert not {f"U{n}" for n in range(100)} & kept().keys()
            disk.full = True
            for code, ext in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC, made("U200", 7)),
                (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "U200"}),
            ):
                refused = await client.ask(code, ext)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "no space" in (refused.remark or "").lower()
                assert found.broker.topics.topics["U200"].read_queues == 2
            disk.full = False

    asyncio.run(run())


# --- registrations ----------------------------------------------------------------------------------------------------


def body_of(topics: Iterable[TopicConfig], compressed: bool = False) -> bytes:
    return registration.encode(DataVersion(5, 2), {one.name: one for one in topics}, compressed=compressed)


def decoded(body: bytes, compressed: bool = False, most: int | None = None) -> registration.Body:
    return registration.decode(body, compressed=compressed, sender_version=V4_9_8, most=most)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_of_too_many_topics_is_refused(compressed: bool, tmp_path: Path) -> None:
    body = body_of((TopicConfig(f"t{n}") for n in range(11)), compressed)
    assert len(decoded(body, compressed, 11)[1]) == 11
    with pytest.raises(FormatError, match="at most 10 are allowed"):
        decoded(body, compressed, 10)

    async def run() -> None:
        async with daemon(tmp_path / "s", topics_per_registration=10) as found:
            client = await Client.to(found.listening.names or "")
            ext = {
                "brokerName": "o", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
                "compressed": str(compressed).lower(),
            }  # fmt: skip
            refused = await client.ask(RequestCode.REGISTER_BROKER, ext, body)
            assert refused.code == 1
            assert "at most 10 are allowed" in (refused.remark or "")
            few = body_of((TopicConfig(f"t{n}") for n in range(10)), compressed)
            assert (await client.ask(RequestCode.REGISTER_BROKER, ext, few)).code == 0
            assert "t9" in found.broker.names.topics()

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}',
        '{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"timestamp":4},'
        '"topicConfigTable":{"a}\\"":{"topicName":"a}\\"","perm":2} , "b" :{"readQueueNums":3}}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"perm":2,"attributes":{"x":"}"}},"b":{"perm":4}},'
        '"dataVersion":{"counter":1}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"perm":2},"b":{"perm":4,"attributes":{}},'
        '"c":{"perm":6}}}}',
        "{}",
        '{"topicConfigSerializeWrapper":null}',
    ],
)
def test_topic_by_topic_a_registration_says_the_same(text: str) -> None:
    """As the parser that is given all of it at once."""
    version, topics, filters = decoded(text.encode())
    fields = orjson.loads(text)
    wrapper = fields.get("topicConfigSerializeWrapper") or {}
    table = wrapper.get("topicConfigTable") or {}
    assert topics == {name: TopicConfig.of_json(name, one) for name, one in table.items()}
    assert version.counter == (wrapper.get("dataVersion") or {}).get("counter", 0)
    assert filters == tuple(fields.get("filterServerList") or ())


def test_a_registration_with_much_beside_its_topics_is_refused() -> None:
    body = b'{"x":"' + b"y" * registration.REST_MAX + b'","topicConfigSerializeWrapper":{"topicConfigTable":{}}}'
    with pytest.raises(FormatError, match="are no topics"):
        decoded(body)
    with pytest.raises(FormatError, match="are no topics"):
        decoded(b'{"topicConfigTable":{"a":{"b":{' + b'"c":1,' * registration.REST_MAX)


def test_a_broker_that_goes_takes_only_its_own_topics(tmp_path: Path) -> None:
    table = RouteTable(Milliseconds())
    from engine.broker.names.route_table import Registration

    def register(name: str, count: int) -> None:
        topics = {f"{name}{n}": TopicConfig(f"{name}{n}") for n in range(count)}
        table.register(Registration("c", name, 0, f"{name}:0", "", DataVersion(1), topics, None, name))

    register("a", 50)
    register("b", 3)
    assert {name: len(topics) for name, topics in table._topics_of.items()} == {"a": 50, "b": 3}
    table.lost("b")
    assert table._topics_of.keys() == {"a"}
    assert len(table.topics()) == 50
    table.delete_topic("a1")
    assert len(table._topics_of["a"]) == len(table.topics()) == 49


# --- what is left to consume ------------------------------------------------------------------------------------------


@pytest.mark.leaves("config-value", "topic-hidden", "consumer-above")
def test_lags_are_those_of_each_queue_by_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            for name, queues in (("T", 4), ("U", 2)):
                assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made(name, queues))).code == 0
            for n in range(20):
                assert (await client.put("T", b"x", n % 4)).code == 0
                assert (await client.put("U", b"x", n % 2)).code == 0
            offsets, store = found.broker.offsets, found.broker.store
            assert await asyncio.to_thread(store.wait_dispatched)  # a batch is appended queue by queue
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made("T", 3))).code == 0  # queue 3 is no more
            for name, topic, queue, offset in (
                ("A", "T", 0, 2), ("A", "T", 3, 1), ("A", "U", 1, 99),
                ("B", "T", 9, 4), ("B", "U", 0, -5), ("C", "X", 0, 1),
            ):  # fmt: skip
                offsets.commit(name, topic, queue, offset)
            from engine.broker.watch.live import Live

            config = found.broker.store.config
            scrubbing = Scrubbing(config, None, sealing=False, rate=None, log=logging.getLogger("test"))
            live = Live(found.broker.watched([], scrubbing, found._archiving))
            await asyncio.gather(*(live.refresh() for _ in range(5)))  # which is one
            wanted = {}
            for topic, name in offsets.pairs():
                done, config = offsets.of(name, topic), found.broker.topics.find(topic)
                wanted[name, topic] = sum(
                    max(store.max_offset(topic, queue) - max(done.get(queue, 0), store.min_offset(topic, queue), 0), 0)
                    for queue in {*done, *range(0 if config is None else config.read_queues)}
                )
            assert {(lag.group, lag.topic): lag.messages for lag in live.lags} == wanted
            assert wanted["A", "T"] == 3 + 5 + 5 + 4

    asyncio.run(run())


# --- nobody holds the loop --------------------------------------------------------------------------------------------


def test_large_tables_hold_the_loop_for_no_more_than_a_moment(tmp_path: Path) -> None:
    """By the CPU time of the loop's own thread: what else runs on the machine doesn't count."""
    root = tmp_path / "s"
    (root / "config").mkdir(parents=True)
    table = {f"t{n % 50}@g{n // 2}": {"0": 5} for n in range(20_000)}
    version = {"counter": 1, "timestamp": 1}
    groups = {f"g{n}": {"groupName": f"g{n}"} for n in range(10_000)}
    topics = {f"t{n}": TopicConfig(f"t{n}", 1, 1).to_json() for n in range(50)}
    for name, content in (
        ("consumerOffset.json", {"offsetTable": table}),
        ("subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups}),
        ("topics.json", {"dataVersion": version, "topicConfigTable": topics}),
    ):
        (root / "config" / name).write_text(fastjson.dumps(content))

    async def run() -> dict[str, HeldTime]:
        async with daemon(root, metrics_port=0, flush_offsets_ms=100) as found:
            found._turns.clock = time.thread_time
            client = await Client.to(found.listening.broker)
            committed = {"consumerGroup": "g1", "topic": "t1", "queueId": "0", "commitOffset": "9"}
            asked = [
                client.send(RequestCode.UPDATE_CONSUMER_OFFSET, committed),
                client.send(RequestCode.UPDATE_AND_CREATE_TOPIC, made("Wide", 65_536)),
            ]
            assert [(await client.answer(one, PATIENCE_S)).code for one in asked] == [0, 0]
            asked = [
                client.send(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
                client.send(RequestCode.GET_ALL_CONSUMER_OFFSET),
                client.send(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
                client.send(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"}),
            ]
            for one in asked:
                assert (await client.answer(one, PATIENCE_S)).code == 0
            many = [group(f"h{n}", sql(f"s{n}", f"a = {n}")) for n in range(3000)]
            assert (await beat(client, many))[0] == 0
            return found._turns.held

    gc.collect()
    gc.freeze()  # as the daemon does: what the tests before have left isn't looked through
    try:
        held = asyncio.run(run())
    finally:
        gc.unfreeze()
    assert {name: one.longest for name, one in held.items() if one.longest > 0.1} == {}
