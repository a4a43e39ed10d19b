"""Files are written beside the loop: who waits for a slow disk waits alone, and changes keep their order."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from engine.broker.access import AccessSettings
from engine.broker.acl.files import AclFiles
from engine.broker.acl.guard import DENIAL
from engine.broker.requests import large_json
from engine.broker.requests.large_json import loads
from engine.broker.serve import Daemon
from engine.broker.settings.broker_settings import BrokerSettings
from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.topics import TopicConfig, TopicTable
from engine.errors import RStoreError
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.wire.codes import RequestCode as C
from engine.wire.command import RemotingCommand
from engine.wire.signing import signature
from tests.engine.broker.client import Client, daemon

ACCOUNTS = "accounts:\n  - {accessKey: operator, secretKey: 12345678, admin: true}\n"
PLACE = {"namespace": "S", "key": "k"}


class Gate(FaultyDisk):
    """A sync of a file with this name waits until `gate` opens; `holds` while one does."""

    def __init__(self, name: str) -> None:
        super().__init__(None, mapped=False)
        self._name = name
        self.gate, self.holds, self.syncs = threading.Event(), False, 0

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        if self._name in doing.path and doing.operation is Operation.SYNC:
            self.syncs += 1
            self.holds = True
            self.gate.wait(120)
            self.holds = False
        return super().begin(doing)

    async def held(self) -> None:
        """Wait until somebody waits."""
        async with asyncio.timeout(60):
            while not self.holds:
                await asyncio.sleep(0.001)

    def fail(self, error: int) -> None:
        """From now on such a sync fails."""
        self.gate.set()
        self.fail_when(lambda doing: self._name in doing.path and doing.operation is Operation.SYNC, error)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work()

    asyncio.run(whole())


async def others_are_answered(found: Daemon, disk: Gate) -> None:
    """While somebody waits for the disk."""
    await disk.held()
    other = await Client.to(found.listening.broker)
    assert (await other.put("Other", b"body")).code == 0
    assert disk.holds, "the loop waited for the disk"


def on_disk(root: Path) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = orjson.loads((root / "config" / "kvConfig.json").read_bytes())["configTable"]
    return table


def test_a_slow_disk_under_a_key_value_pair_holds_nobody_else(tmp_path: Path) -> None:
    disk, root = Gate("kvConfig.json"), tmp_path / "s"

    async def work() -> None:
        async with daemon(root, disk=disk) as found:
            assert found.listening.names is not None
            one, two = [await Client.to(found.listening.names) for _ in range(2)]
            first = one.send(C.PUT_KV_CONFIG, {**PLACE, "value": "first"})
            await others_are_answered(found, disk)
            assert (await two.ask(C.GET_KV_CONFIG, PLACE)).code == 22  # nobody finds what is not durable
            second = one.send(C.PUT_KV_CONFIG, {**PLACE, "value": "second"})
            await two.ask(C.GET_KV_CONFIG, PLACE)
            third = two.send(C.DELETE_KV_CONFIG, {**PLACE, "key": "never"})
            assert not one.unasked
            disk.gate.set()
            assert [(await one.answer(asked)).code for asked in (first, second)] == [0, 0]
            assert (await two.answer(third)).code == 0
            assert (await two.ask(C.GET_KV_CONFIG, PLACE)).fields == {"value": "second"}
            assert on_disk(root) == {"S": {"k": "second"}}

    run(work)


def test_many_pairs_at_once_are_written_at_once(tmp_path: Path) -> None:
    disk, root = Gate("kvConfig.json"), tmp_path / "s"
    disk.gate.set()

    async def work() -> None:
        async with daemon(root, disk=disk) as found:
            assert found.listening.names is not None
            one = await Client.to(found.listening.names)
            asked = [one.send(C.PUT_KV_CONFIG, {**PLACE, "key": f"k{at}", "value": str(at)}) for at in range(300)]
            assert [(await one.answer(at)).code for at in asked] == [0] * 300
            assert on_disk(root) == {"S": {f"k{at}": str(at) for at in range(300)}}

    run(work)
    assert disk.syncs <= 40  # each is the file and its .bak


@pytest.mark.parametrize(("error", "code"), [(28, 14), (5, 1)])
def test_a_pair_that_cannot_be_written_is_not_there(error: int, code: int, tmp_path: Path) -> None:
    disk, root = Gate("kvConfig.json"), tmp_path / "s"
    disk.gate.set()

    async def work() -> None:
        async with daemon(root, disk=disk) as found:
            assert found.listening.names is not None
            one = await Client.to(found.listening.names)
            assert (await one.ask(C.PUT_KV_CONFIG, {**PLACE, "value": "kept"})).code == 0
            disk.fail(error)
            for change, value in ((C.PUT_KV_CONFIG, {"value": "lost"}), (C.DELETE_KV_CONFIG, {})):
                refused = await one.ask(change, {**PLACE, **value})
                assert refused.code == code
                assert "kvConfig.json" in (refused.remark or "")
                assert (await one.ask(C.GET_KV_CONFIG, PLACE)).fields == {"value": "kept"}
                assert on_disk(root) == {"S": {"k": "kept"}}
            disk.heal()
            assert (await one.ask(C.DELETE_KV_CONFIG, PLACE)).code == 0
            assert on_disk(root) == {"S": {}}

    run(work)


def test_a_pair_that_is_being_written_at_the_end_leaves_a_whole_file(tmp_path: Path) -> None:
    disk, root = Gate("kvConfig.json"), tmp_path / "s"

    async def work() -> None:
        async with daemon(root, disk=disk) as found:
            assert found.listening.names is not None
            one = await Client.to(found.listening.names)
            one.send(C.PUT_KV_CONFIG, {**PLACE, "value": "v"})
            await disk.held()
            threading.Timer(0.05, disk.gate.set).start()
        assert not disk.holds  # the store is closed, and nobody writes into it

    run(work)
    assert on_disk(root) == {"S": {"k": "v"}}


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_slow_disk_under_the_settings_holds_nobody_else(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# mine\nfileReservedTime=72\n")
    disk = Gate("broker.conf")

    async def work() -> None:
        async with daemon(tmp_path / "s", disk=disk, config_file=str(conf)) as found:
            one, two = [await Client.to(found.listening.broker) for _ in range(2)]
            first = one.send(C.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48\nslaveReadEnable=true\n")
            await others_are_answered(found, disk)
            assert b"fileReservedTime=72" in (await two.ask(C.GET_BROKER_CONFIG)).body
            assert not found.broker.settings.slave_read
            second = two.send(C.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24\n")
            wrong = two.send(C.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=x\n")
            current = found.broker.current  # somebody else's change of other settings stays
            current.change(replace(current.now, order_message_enable=not current.now.order_message_enable))
            changed = current.now.order_message_enable
            disk.gate.set()
            assert (await one.answer(first)).code == (await two.answer(second)).code == 0
            assert (await two.answer(wrong)).code == 1
            assert b"fileReservedTime=24" in (await two.ask(C.GET_BROKER_CONFIG)).body
            assert found.broker.store.config.file_reserved_time == 24
            assert found.broker.settings.slave_read
            assert found.broker.settings.order_message_enable is changed

    run(work)
    assert conf.read_text() == "# mine\nfileReservedTime=24\nslaveReadEnable=true\n"


@pytest.mark.parametrize("error", [28, 5])
def test_settings_that_cannot_be_written_are_not_in_force(error: int, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=72\n")
    disk = Gate("broker.conf")

    async def work() -> None:
        async with daemon(tmp_path / "s", disk=disk, config_file=str(conf)) as found:
            one = await Client.to(found.listening.broker)
            before = (await one.ask(C.GET_BROKER_CONFIG)).body
            disk.fail(error)
            refused = await one.ask(C.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48\nslaveReadEnable=true\n")
            assert (refused.code, bool(refused.remark)) == (1, True)
            assert bytes((await one.ask(C.GET_BROKER_CONFIG)).body) == bytes(before)
            assert found.broker.store.config.file_reserved_time == 72
            assert not found.broker.settings.slave_read

    run(work)
    assert conf.read_text() == "fileReservedTime=72\n"


# --- accounts ---------------------------------------------------------------------------------------------------------


def access(file: Path, disk: Gate) -> AccessSettings:
    files = AclFiles(disk, str(file), str(file.parent / "acl"), lambda: 5, logging.getLogger("test"))
    files.load()
    return AccessSettings(None, None, None, (), files)


def signed(ext: dict[str, str], key: str = "operator") -> dict[str, str]:
    fields = {**ext, "AccessKey": key}
    return {**fields, "Signature": signature(fields, b"", b"12345678")}


async def serves(client: Client, key: str) -> RemotingCommand:
    return await client.ask(C.GET_ALL_TOPIC_CONFIG, signed({}, key))


def test_a_slow_disk_under_the_accounts_holds_nobody_else(tmp_path: Path) -> None:
    file, disk = tmp_path / "plain_acl.yml", Gate("plain_acl.yml")
    file.write_text(ACCOUNTS + "globalWhiteRemoteAddresses: []\n")

    async def work() -> None:
        async with daemon(tmp_path / "s", access=access(file, disk)) as found:
            one, two = [await Client.to(found.listening.broker) for _ in range(2)]
            account = {"accessKey": "newcomer", "secretKey": "12345678", "admin": "true"}
            first = one.send(C.UPDATE_AND_CREATE_ACL_CONFIG, signed(account))
            await disk.held()
            assert (await serves(two, "operator")).code == 0
            assert disk.holds, "the loop waited for the disk"
            assert (await serves(two, "newcomer")).code == 1
            second = two.send(C.DELETE_ACL_CONFIG, signed({"accessKey": "newcomer"}))
            assert (await serves(one, "operator")).code == 0
            third = one.send(C.UPDATE_AND_CREATE_ACL_CONFIG, signed({**account, "accessKey": "another"}))
            disk.gate.set()
            for client, asked in ((one, first), (two, second), (one, third)):
                assert (await client.answer(asked)).code == 0
            assert (await serves(two, "newcomer")).code == 1
            assert (await serves(two, "another")).code == 0
            white = signed({"globalWhiteAddrs": "127.0.0.1"})
            assert (await two.ask(C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, white)).code == 0
            assert (await two.put("T", b"unsigned")).code == 0

    run(work)
    assert "another" in file.read_text()
    assert "newcomer" not in file.read_text()


@pytest.mark.parametrize("error", [28, 5])
def test_accounts_that_cannot_be_written_do_not_count(error: int, tmp_path: Path) -> None:
    file, disk = tmp_path / "plain_acl.yml", Gate("plain_acl.yml")
    file.write_text(ACCOUNTS)

    async def work() -> None:
        async with daemon(tmp_path / "s", access=access(file, disk)) as found:
            one = await Client.to(found.listening.broker)
            disk.fail(error)
            account = {"accessKey": "newcomer", "secretKey": "12345678", "admin": "true"}
            for code, asked, answered in (
                (C.UPDATE_AND_CREATE_ACL_CONFIG, account, 209),
                (C.DELETE_ACL_CONFIG, {"accessKey": "operator"}, 210),
                (C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "127.0.0.1"}, 211),
            ):
                refused = await one.ask(code, signed(asked))
                assert refused.code == answered
                assert "plain_acl.yml" in (refused.remark or "")
            assert (await serves(one, "newcomer")).code == 1
            assert (await serves(one, "operator")).code == 0
            assert (await one.put("T", b"unsigned")).code == 1

    run(work)
    assert file.read_text() == ACCOUNTS


# --- large bodies -----------------------------------------------------------------------------------------------------


class Reader:
    """Reads large bodies as ever, each when `gate` opens, and notes the threads it does so in."""

    def __init__(self) -> None:
        self.gate, self.threads = threading.Event(), list[int]()

    def __call__(self, body: bytes) -> object:
        self.threads.append(threading.get_ident())
        self.gate.wait(120)
        return loads(body)


def heartbeat(topics: int, group: str = "G") -> bytes:
    wanted = [{"topic": f"Topic{number}", "subString": "*", "expressionType": "TAG"} for number in range(topics)]
    return orjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": group, "subscriptionDataSet": wanted}]})


@pytest.mark.parametrize("guarded", [False, True])
def test_a_large_heartbeat_is_read_once_and_beside_the_loop(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader()
    monkeypatch.setattr(large_json, "loads", reader)
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS + "  - {accessKey: consumer, secretKey: 12345678, groupPerms: [G=SUB], topicPerms: ["
                    + ", ".join(f"Topic{number}=SUB" for number in range(2000)) + "]}\n")  # fmt: skip

    async def work() -> None:
        async with daemon(tmp_path / "s", access=access(file, Gate("never")) if guarded else None) as found:
            one, two = [await Client.to(found.listening.broker) for _ in range(2)]

            def send(body: bytes, key: str = "consumer") -> int:
                fields = {"AccessKey": key}
                return one.send(C.HEART_BEAT, {**fields, "Signature": signature(fields, body, b"12345678")}, body)

            asked = send(heartbeat(2000))
            async with asyncio.timeout(60):
                while not reader.threads:
                    await asyncio.sleep(0.001)
            assert (await serves(two, "operator")).code == 0
            assert not found.broker.members.consumers
            assert not reader.gate.is_set()
            reader.gate.set()
            assert (await one.answer(asked)).code == 0
            assert len(reader.threads) == 1
            assert threading.get_ident() not in reader.threads
            assert len(found.broker.members.consumers["G"].subscriptions) == 2000
            refused = await one.answer(send(heartbeat(2001, "Other")))
            assert refused.code == int(guarded)
            assert refused.remark == (f"{DENIAL}No default permission for group:Other" if guarded else None)
            assert len(reader.threads) == 2
            again = await one.answer(send(b'{"a": 1' + b" " * 70_000))
            assert again.code == 1
            assert "not standard JSON" in (again.remark or "")
            if guarded:  # nothing is read of who did not sign
                unsigned = await one.ask(C.HEART_BEAT, {"AccessKey": "consumer", "Signature": "x"}, heartbeat(2000))
                assert unsigned.remark == f"{DENIAL}Check signature failed for accessKey=consumer"
            assert len(reader.threads) == 3
            assert (await one.ask(C.HEART_BEAT, signed_body(heartbeat(1)), heartbeat(1))).code == 0
            assert len(reader.threads) == 3  # a usual one is read where it is

    run(work)


def signed_body(body: bytes) -> dict[str, str]:
    fields = {"AccessKey": "operator"}
    return {**fields, "Signature": signature(fields, body, b"12345678")}


# --- a master's tables ------------------------------------------------------------------------------------------------


def of_master(counter: int, *names: str) -> dict[str, object]:
    table = {name: TopicConfig(name, 4, 4).to_json() for name in names}
    return {"dataVersion": {"timestamp": 7, "counter": counter}, "topicConfigTable": table}


def topics_of(tmp_path: Path, disk: Gate) -> TopicTable:
    file = ConfigFile(disk, str(tmp_path), "topics.json")
    return TopicTable(BrokerSettings(), file, asyncio.get_running_loop(), lambda: 5)


async def kept(table: TopicTable, topic: TopicConfig) -> RStoreError | None:
    done: asyncio.Future[RStoreError | None] = asyncio.get_running_loop().create_future()
    table.put(topic, done.set_result)
    return await done


def in_file(tmp_path: Path) -> dict[str, object]:
    table: dict[str, object] = orjson.loads((tmp_path / "config" / "topics.json").read_bytes())["topicConfigTable"]
    return table


def test_a_masters_table_is_taken_over_beside_the_loop(tmp_path: Path) -> None:
    disk = Gate("topics.json")

    async def work() -> None:
        table = topics_of(tmp_path, disk)
        before = dict(table.topics)
        taking = asyncio.ensure_future(table.take(of_master(3, "A", "B")))
        await disk.held()
        assert disk.holds, "the loop waited for the disk"
        assert table.topics == before  # nobody finds what is not durable
        table.there_soon("Soon")
        change = asyncio.ensure_future(kept(table, TopicConfig("Mine")))
        await asyncio.sleep(0)
        disk.gate.set()
        await taking
        assert set(table.topics) >= {"A", "B", "Soon"}
        assert await change is None
        assert set(table.topics) == {"A", "B", "Soon", "Mine"} == set(in_file(tmp_path))

    run(work)


def test_a_masters_table_that_cannot_be_written_is_not_taken_over(tmp_path: Path) -> None:
    disk = Gate("topics.json")
    disk.fail(5)

    async def work() -> None:
        table = topics_of(tmp_path, disk)
        before, version = dict(table.topics), table.version.to_json()
        with pytest.raises(RStoreError):
            await table.take(of_master(3, "A"))
        assert table.topics == before
        assert table.version.counter != 3 or version["counter"] == 3
        disk.heal()
        await table.take(of_master(3, "A"))
        assert set(table.topics) == {"A"} == set(in_file(tmp_path))
        assert table.version.to_json() == {"timestamp": 7, "counter": 3}

    run(work)


def test_what_comes_after_a_master_of_fewer_changes_is_written(tmp_path: Path) -> None:
    """Its counter is lower than ours was, and says nothing of which state of the file is the newer one."""
    disk = Gate("topics.json")
    disk.gate.set()

    async def work() -> None:
        table = topics_of(tmp_path, disk)
        for number in range(5):
            assert await kept(table, TopicConfig(f"Mine{number}")) is None
        await table.take(of_master(1, "A"))
        assert await kept(table, TopicConfig("Later")) is None
        assert set(in_file(tmp_path)) == {"A", "Later"}

    run(work)
