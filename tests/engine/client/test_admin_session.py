"""The administrator's half of the client, against the daemon: consumers, several brokers, accounts, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker_conf.properties import read_properties
from engine.client.admin import brokers, dead_letters, groups, members, messages, offsets, topics
from engine.client.admin.accounts import AccountWanted, acl_versions, plan_account, plan_delete_account
from engine.client.admin.cluster_map import parse_cluster_map
from engine.client.admin.known import demand_known
from engine.client.admin.members import parse_state, version_name
from engine.client.admin.plan import AdminPlan, AdminStep, carry_out_plan
from engine.client.admin.session import AdminSession
from engine.client.admin.settings_text import settings_body
from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.peers import Credentials
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.config import BrokerRole, StoreConfig
from engine.errors import FormatError, InvalidArgument, NotFound, PeerLost, Refused, RefusedByBroker
from engine.wire.codes import RequestCode
from engine.wire.peer_object import PeerObject
from tests.engine.broker.client import SMALL, daemon
from tests.engine.client.clusters import PATIENT, cluster
from tests.engine.client.test_push_consumer import FIRST, Seen, send

Work = Callable[[ClusterClient, AdminSession], Awaitable[None]]


def talk(root: Path, work: Work) -> None:
    async def run() -> None:
        async with cluster(root) as (_, client):
            await work(client, AdminSession(client))

    asyncio.run(run())


async def done(admin: AdminSession, plan: AdminPlan) -> None:
    """Carry a plan out, which nobody refuses."""
    outcomes = await carry_out_plan(admin, plan)
    assert plan.changed
    assert {one.words for one in outcomes} == {"done"}


# --- with a consumer -------------------------------------------------------------------------------------------------


def test_a_consumer_is_told_of_its_new_offsets(tmp_path: Path) -> None:
    async def work(client: ClusterClient, admin: AdminSession) -> None:
        bodies = await send(client, 20)
        seen = Seen()
        async with client.push_consumer("G", seen, FIRST) as consumer:
            await consumer.subscribe("T")
            await seen.until(20)
            plan = await offsets.plan_reset(client, admin, "G", "T", 0)
            assert "the broker tells 1 consumer" in plan.steps[-1].what
            await done(admin, plan)
            await seen.until(40)
            assert sorted(seen.bodies) == sorted(bodies * 2)
            with pytest.raises(InvalidArgument, match="consumers of group G are connected"):
                await offsets.plan_reset(client, admin, "G", "T", 0, queue_id=0)

    talk(tmp_path / "s", work)


def test_what_is_known_of_a_consumer(tmp_path: Path) -> None:
    async def work(client: ClusterClient, admin: AdminSession) -> None:
        await send(client, 4)
        seen = Seen()
        async with client.push_consumer("G", seen, FIRST) as consumer:
            await consumer.subscribe("T", "a || b")
            online = await members.online_consumers(admin, "G")
            assert [one.client_id for one in online.clients] == [client.id]
            assert (online.subscriptions or {})["T"] == "a || b"
            (state,) = await members.consumer_states(admin, "G")
            assert {one.topic for one in state.queues} <= {"T", "%RETRY%G"}
            with pytest.raises(NotFound, match="no consumer nobody"):
                await members.consumer_states(admin, "G", "nobody")
            progress = await groups.group_progress(admin, "G", clients=True)
            assert {one.client for one in progress.queues} <= {client.id, None}
        assert [one.client_id for one in await members.producers_of_group(admin, "P", "T")] == [client.id]
        assert "P" in [one.group for one in await members.list_producers(admin)]
        deleted = await groups.plan_delete_group(admin, "G")
        assert [one.ext["topic"] for one in deleted.steps[1:]] == ["%RETRY%G", "%RETRY%G"]

    talk(tmp_path / "s", work)


def test_dead_letters_come_once_more(tmp_path: Path) -> None:
    async def work(client: ClusterClient, admin: AdminSession) -> None:
        producer = client.producer("P", PATIENT)
        for number in range(3):
            await producer.send(OutgoingMessage("T", b"%d" % number, tags="a", properties={"n": str(number)}))
        seen = Seen()
        async with client.push_consumer("G", seen, FIRST) as consumer:
            await consumer.subscribe("T", "a")
            await seen.until(3)
            calls = BrokerCalls(client)
            failed = [one async for one in TopicReader(client, "T").messages(ReadFrom(first=True))]
            for message in sorted(failed, key=lambda one: one.body):
                await calls.send_back("G", message, -1, 16)
            await until_dead(admin, 3)
            letters = await dead_letters.dead_letters(client, admin, "G", most=2)
            assert [one.body for one in letters] == [b"0", b"1"]
            plan = await dead_letters.plan_resend(client, admin, "G", ids=(letters[1].id,))
            await done(admin, plan)
            await seen.until(4)
            again = seen.messages[-1]
            assert (again.topic, again.body, again.reconsume_times) == ("T", b"1", 0)
            assert again.application_properties == {"n": "1"}
            with pytest.raises(InvalidArgument, match="no dead letter nothing"):
                await dead_letters.plan_resend(client, admin, "G", ids=("nothing",))
            await done(admin, await dead_letters.plan_resend(client, admin, "G"))
            await seen.until(7)
            (trace,) = await messages.traces_of(admin, letters[0].stored) or [None]
            assert trace is None or trace.state == "NOT_CONSUME_YET"
            given = await messages.give_to_consumer(admin, letters[0].stored, "G", client.id)
            assert given.result == "CR_SUCCESS"

    talk(tmp_path / "s", work)


@pytest.mark.leaves("config-missing")  # no group has committed an offset
def test_what_a_broker_stored_and_did_not_copy_is_given(tmp_path: Path) -> None:
    """SLAVE_NOT_AVAILABLE: the message is stored. Called refused, it would be given again, and be there twice."""

    async def run() -> None:
        async with (
            daemon(tmp_path / "s") as alone,
            ClusterClient(ClientConfig((str(alone.listening.names),))) as client,
        ):
            await send(client, 3)
            consumed = [one async for one in TopicReader(client, "T").messages(ReadFrom(first=True))]
            for message in consumed:
                await BrokerCalls(client).send_back("G", message, -1, 16)
            await until_dead(AdminSession(client), 3)
        config = StoreConfig(store_path_root_dir=tmp_path / "s", broker_role=BrokerRole.SYNC_MASTER)
        async with (
            daemon(tmp_path / "s", config=config.with_changes(**SMALL)) as master,
            ClusterClient(ClientConfig((str(master.listening.names),))) as client,
        ):
            admin = AdminSession(client)
            assert len(await dead_letters.dead_letters(client, admin, "G", most=1)) == 1
            plan = await dead_letters.plan_resend(client, admin, "G")
            outcomes = await carry_out_plan(admin, plan)
            told = "stored on the master alone: no slave keeps up with it (SLAVE_NOT_AVAILABLE)"
            assert [(one.is_done, one.words) for one in outcomes] == [(True, told)] * 3
            given = [one async for one in TopicReader(client, "%RETRY%G").messages(ReadFrom(first=True))]
            assert sorted(one.body for one in given) == sorted(one.body for one in consumed)

    asyncio.run(run())


@pytest.mark.leaves("config-missing")  # no group has committed an offset
def test_dead_letters_that_are_too_large_for_memory_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: ClusterClient, admin: AdminSession) -> None:
        await send(client, 3)
        for message in [one async for one in TopicReader(client, "T").messages(ReadFrom(first=True))]:
            await BrokerCalls(client).send_back("G", message, -1, 16)
        await until_dead(admin, 3)
        size = len((await dead_letters.dead_letters(client, admin, "G", most=1))[0].body)
        monkeypatch.setattr(dead_letters, "_MOST_BYTES", 2 * size)
        assert len(await dead_letters.dead_letters(client, admin, "G", most=1)) == 1
        with pytest.raises(Refused, match="the dead letters of group G have more than"):
            await dead_letters.plan_resend(client, admin, "G")

    talk(tmp_path / "s", work)


async def until_dead(admin: AdminSession, count: int) -> None:
    """Wait until the group G has so many dead letters."""
    async with asyncio.timeout(30):
        while [(one.group, one.messages) for one in await dead_letters.dead_letter_queues(admin)] != [("G", count)]:
            await asyncio.sleep(0.02)


# --- several brokers -------------------------------------------------------------------------------------------------


def test_each_broker_says_what_became_of_its_part(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "a", broker_name="broker-a") as (first, client):
            names = first.listening.names
            assert names is not None
            async with daemon(
                tmp_path / "b", broker_name="broker-b", name_service_port=None, name_servers=names
            ) as second:
                admin = AdminSession(client)
                await until_there(admin, 2)
                plan = await topics.plan_topic(admin, "T", topics.TopicWanted(2, 2, order=True))
                assert [one.where.partition(" ")[0] for one in plan.steps] == ["broker-a", "broker-b", "name"]
                assert plan.steps[2].ext["value"] == "broker-a:2;broker-b:2"
                assert second.listening.broker in plan.steps[1].where
                alone = await topics.plan_topic(admin, "U", topics.TopicWanted(), broker="broker-b")
                assert [one.where.partition(" ")[0] for one in alone.steps] == ["broker-b"]
                await done(admin, alone)
            outcomes = await carry_out_plan(admin, plan)
            assert outcomes[0].words == "done"
            assert isinstance(outcomes[1].problem, PeerLost)
            assert outcomes[2].words == "not sent, because one before it failed"
            lines = {one.broker: one for one in await brokers.broker_lines(AdminSession(client))}
            assert lines["broker-a"].problem is None

    asyncio.run(run())


async def until_there(admin: AdminSession, count: int) -> None:
    """Wait until so many brokers are registered."""
    async with asyncio.timeout(30):
        while len((await admin.clusters()).brokers) < count:
            admin._map = None
            await asyncio.sleep(0.05)


def test_a_broker_that_is_away_is_a_line_of_the_list(tmp_path: Path) -> None:
    async def work(client: ClusterClient, admin: AdminSession) -> None:
        known = await admin.clusters()
        away = replace(known.brokers[0], name="broker-z", address="127.0.0.1:1")
        admin._map = replace(known, brokers=(*known.brokers, away))
        there, gone = await brokers.broker_lines(admin)
        assert there.problem is None
        assert "cannot connect to 127.0.0.1:1" in (gone.problem or "")

    talk(tmp_path / "s", work)


# --- accounts --------------------------------------------------------------------------------------------------------


def test_accounts(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n  - accessKey: administrator\n    secretKey: 12345678\n    admin: true\n")

    async def run() -> None:
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=str(file)) as served:
            names = served.listening.names
            assert names is not None
            config = ClientConfig((names,), account=Credentials("administrator", "12345678"))
            async with ClusterClient(config) as client:
                admin = AdminSession(client)
                (version,) = await acl_versions(admin)
                assert (version.file, version.changes) == (str(file), 0)
                wanted = AccountWanted("newcomer", "abcdefgh", topics=("T=PUB|SUB",), default_topic="DENY")
                plan = await plan_account(admin, wanted)
                assert "abcdefgh" not in repr(wanted) + str(plan.to_json())
                await done(admin, plan)
                assert "newcomer" in file.read_text()
                await done(admin, await plan_delete_account(admin, "newcomer"))
                (again,) = await carry_out_plan(admin, await plan_delete_account(admin, "newcomer"))
                assert isinstance(again.problem, RefusedByBroker)
            async with ClusterClient(replace(config, account=Credentials("administrator", "wrong"))) as client:
                with pytest.raises(RefusedByBroker, match="refused the request with code 1"):
                    await groups.list_groups(AdminSession(client))

    asyncio.run(run())


# --- without a broker ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["48", " leading", "C:\\path\\u0041", "中文 🚀", "a=b:c#d!", ""])
def test_a_setting_is_read_as_it_was_written(value: str) -> None:
    assert read_properties(settings_body("key", value)).values == {"key": value}


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("a b", "x"), ("a=b", "x"), ("k", "x\ny=z")])
def test_what_no_line_can_hold_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidArgument):
        settings_body(key, value)


def test_versions() -> None:
    numbers = {409: "V4_9_8", 401: "V4_9_4", 408: "V4_9_8_SNAPSHOT", 213: "V4_0_0", 479: "V5_3_3", 513: "V5_5_0"}
    assert {number: version_name(number) for number in numbers} == numbers
    assert version_name(121) == "121"


def test_names() -> None:
    demand_known("topic", "T", ["T"])
    with pytest.raises(InvalidArgument, match="no topic Ordres in the cluster") as wrong:
        demand_known("topic", "Ordres", ["Orders", "x"])
    assert wrong.value.hint == "did you mean Orders?"
    with pytest.raises(InvalidArgument) as empty:
        demand_known("topic", "T", [])
    assert empty.value.hint == "there is no topic"


@pytest.mark.parametrize(
    "body",
    [
        {"clusterAddrTable": {"C": ["b"]}, "brokerAddrTable": {"b": {"brokerAddrs": {"x": "y"}}}},
        {"clusterAddrTable": {"C": ["b"]}, "brokerAddrTable": {"b": 7}},
        {"clusterAddrTable": 7},
    ],
)
def test_a_malformed_list_of_brokers(body: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="malformed list of brokers"):
        parse_cluster_map(PeerObject(body, "list of brokers"))


@pytest.mark.parametrize("text", ["", "{}", '{"mqTable":{{"topic":"T"}:{}}}', '{"mqTable":{},"properties":7}'])
def test_a_malformed_state_of_a_consumer(text: str) -> None:
    with pytest.raises(FormatError):
        parse_state("G", "c", text.encode(), "answer")


def test_a_plan_is_sent_step_by_step(tmp_path: Path) -> None:
    async def work(_: ClusterClient, admin: AdminSession) -> None:
        (broker,) = (await admin.clusters()).brokers
        good = AdminStep.at(broker, "a", RequestCode.CLEAN_UNUSED_TOPIC, {})
        bad = AdminStep.at(broker, "b", RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
        outcomes = await carry_out_plan(admin, AdminPlan("x", (good, bad, good, replace(good, follows=True), bad)))
        words = [one.words if one.problem is None else "refused" for one in outcomes]
        assert words == ["done", "refused", "done", "not sent, because one before it failed", "refused"]

    talk(tmp_path / "s", work)
