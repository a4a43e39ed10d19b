"""Who may ask what beside the ACL: the name service's writers, and what is answered on this machine alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.broker.handlers.acl_off import ACL_OFF
from engine.broker.net.allow import parse_allow_list
from engine.broker.net.connection import Connection
from engine.broker.permitted import Permitted
from engine.broker.requests.answers import Answer
from engine.broker.requests.handler import Handler
from engine.broker.requests.table import BROKER, NAMES
from engine.broker.settings.broker_settings import BrokerSettings
from engine.broker.settings.current_settings import CurrentSettings
from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import TopicConfig
from engine.broker.turns import Turns
from engine.config import StoreConfig
from engine.errors import InvalidArgument
from engine.format.hosts import parse as parse_host
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.acl.accounts import MINE, OPERATOR, acl_file, ask, is_denied
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.opening import assert_sound

C = RequestCode
LOG = logging.getLogger("test")
HERE = ("127.0.0.1:5", "127.8.8.8:5", "[::1]:5", "[::ffff:127.0.0.1]:5")
ELSEWHERE = ("10.1.2.3:5", "[fd00::1]:5", "[::ffff:10.1.2.3]:5")
SETTINGS_AND_FILES = {
    *(C.UPDATE_BROKER_CONFIG, C.CLEAN_EXPIRED_CONSUMEQUEUE, C.CLEAN_UNUSED_TOPIC, C.DELETE_EXPIRED_COMMITLOG),
}
WRITES = {
    C.REGISTER_BROKER: ({"brokerName": "fake", "brokerAddr": "10.6.6.6:1", "clusterName": "DefaultCluster",
                         "brokerId": "0"}, b""),
    C.UNREGISTER_BROKER: ({"brokerName": "fake", "brokerAddr": "10.6.6.6:1", "clusterName": "DefaultCluster",
                           "brokerId": "0"}, b""),
    C.QUERY_DATA_VERSION: ({"brokerAddr": "10.6.6.6:1"}, orjson.dumps(DataVersion(1).to_json())),
    C.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "broker-a"}, b""),
    C.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "broker-a"}, b""),
    C.DELETE_TOPIC_IN_NAMESRV: ({"topic": "Nowhere"}, b""),
    C.PUT_KV_CONFIG: ({"namespace": "N", "key": "k", "value": "v"}, b""),
    C.DELETE_KV_CONFIG: ({"namespace": "N", "key": "k"}, b""),
    C.UPDATE_NAMESRV_CONFIG: ({}, b"orderMessageEnable=false\n"),
}  # fmt: skip
READS = NAMES.rights.keys() - WRITES.keys()


def answers(
    handlers: dict[int, Handler], loop: asyncio.AbstractEventLoop, peer: str
) -> dict[int, tuple[int, str | None]]:
    """What each handler answers to a peer: code and remark."""
    found: dict[int, tuple[int, str | None]] = {}
    connection = Connection(_Sink(loop), BrokerSettings(), loop)
    connection.address, connection.host = peer, parse_host(peer)
    for code, handler in handlers.items():
        try:
            answer = handler(connection, RemotingCommand(code))
        except Answer as early:
            answer = RemotingCommand(code).answer(early.code, early.remark)
        assert answer is not None
        found[code] = (answer.code, answer.remark)
    return found


class _Sink:
    """Of a connection that nothing comes by."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answers: dict[int, dict[int, int]] = {}
        self.turns = Turns(loop, logging.getLogger("test"))

    def received(self, connection: Connection, request: RemotingCommand) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def holds(self, connection: Connection, size: int) -> None: ...
    def opened(self, connection: Connection) -> bool:
        return True


def answered(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """A handler that answers."""
    del connection
    return request.answer()


def permitted(made: Callable[[Permitted], dict[int, Handler]], peer: str, **settings: Any) -> dict[int, Any]:
    async def run() -> dict[int, Any]:
        loop = asyncio.get_running_loop()
        ours = Permitted(None, CurrentSettings(BrokerSettings(**settings)), None, "a:1", LOG, None)  # type: ignore[arg-type]
        return answers(made(ours), loop, peer)

    return asyncio.run(run())


def of_broker(ours: Permitted) -> dict[int, Handler]:
    return ours.broker(dict.fromkeys(BROKER.rights, answered))


def of_names(ours: Permitted) -> dict[int, Handler]:
    return ours.names(dict.fromkeys(NAMES.rights, answered))


@pytest.mark.parametrize("peer", ELSEWHERE)
def test_without_an_acl_settings_and_files_are_this_machines(peer: str, caplog: pytest.LogCaptureFixture) -> None:
    for made, local in ((of_broker, SETTINGS_AND_FILES), (of_names, {C.UPDATE_NAMESRV_CONFIG})):
        found = permitted(made, peer)
        refused = {code for code, (answer, _) in found.items() if answer == ResponseCode.NO_PERMISSION}
        assert refused == local
        for code in local:
            assert found[code][1] == f"{C(code).name} is not answered to {peer}: adminAllow names the addresses"
        others = {code: answer for code, (answer, _) in found.items() if code not in local}
        assert {code for code, answer in others.items() if answer} <= {50, 51, 52, 53}  # the ACL is off
    told = [getattr(one, "why", "") for one in caplog.records]
    assert len(told) == len(SETTINGS_AND_FILES) + 1
    assert all("adminAllow" in why for why in told)


@pytest.mark.parametrize("peer", HERE)
def test_this_machine_may(peer: str) -> None:
    for made in (of_broker, of_names):
        assert ResponseCode.NO_PERMISSION not in {answer for answer, _ in permitted(made, peer).values()}


def test_addresses_of_administrators() -> None:
    allow = parse_allow_list("adminAllow", "10.1.0.0/16, fd00::/8")
    for made in (of_broker, of_names):
        for peer in (*HERE, *ELSEWHERE):
            assert ResponseCode.NO_PERMISSION not in {
                answer for answer, _ in permitted(made, peer, admin_allow=allow).values()
            }
        found = permitted(made, "10.2.0.1:5", admin_allow=allow)
        assert ResponseCode.NO_PERMISSION in {answer for answer, _ in found.values()}


def test_addresses_of_name_service_writers_without_an_acl() -> None:
    """Set, the list counts whether there is an ACL or not; this machine is not in it by itself."""
    allow = parse_allow_list("namesAllow", "10.1.2.0/24")
    assert {answer for answer, _ in permitted(of_names, "10.1.2.3:5", names_allow=allow).values()} == {0, 16}
    for peer in ("10.1.3.3:5", "127.0.0.1:5"):
        found = permitted(of_names, peer, names_allow=allow)
        refused = {code for code, (answer, _) in found.items() if answer}
        assert refused == WRITES.keys()
        assert (
            found[C.REGISTER_BROKER][1] == f"REGISTER_BROKER is not answered to {peer}: namesAllow names the addresses"
        )


# --- over sockets ---------------------------------------------------------------------------------------------------


async def from_address(address: str, source: str) -> Client:
    """A client of this machine with an address of one's own: all of 127/8 are there."""
    host, _, port = address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port), local_addr=(source, 0)))


def test_with_an_acl_the_name_service_is_written_by_admins_and_from_namesallow(tmp_path: Path) -> None:
    assert WRITES.keys() | READS == NAMES.rights.keys()

    async def run() -> None:
        allow = parse_allow_list("namesAllow", "127.0.0.2")
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=acl_file(tmp_path), names_allow=allow) as served:
            names = str(served.listening.names)
            client, broker = await Client.to(names), await from_address(names, "127.0.0.2")
            for code, (ext, body) in WRITES.items():
                unsigned = await client.ask(code, ext, body)
                assert is_denied(unsigned), code.name
                assert (unsigned.remark or "").endswith(
                    "No accessKey is configured; or add the address to namesAllow, as for brokers that sign nothing"
                )
                other = await ask(client, MINE, code, ext, body)
                assert is_denied(other), code.name
                assert f"Need admin permission for request code={int(code)}" in (other.remark or "")
                assert (await ask(client, OPERATOR, code, ext, body)).code == 0, code.name
                assert (await broker.ask(code, ext, body)).code == 0, code.name
            route = await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
            assert orjson.loads(route.body)["brokerDatas"][0]["brokerName"] == "broker-a", "our own broker is there"
            place = {"topic": "TBW102", "namespace": "N", "key": "k", "cluster": "DefaultCluster"}
            for code in READS:
                assert not is_denied(await client.ask(code, place)), code

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_a_false_broker_for_a_secret_topic_is_not_registered(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=acl_file(tmp_path)) as served:
            client = await Client.to(str(served.listening.names))
            table = {"TBW102": TopicConfig("TBW102").to_json(), "Secret": TopicConfig("Secret").to_json()}
            body = {"filterServerList": [], "topicConfigSerializeWrapper":
                    {"dataVersion": DataVersion(1).to_json(), "topicConfigTable": table}}  # fmt: skip
            assert is_denied(await client.ask(C.REGISTER_BROKER, WRITES[C.REGISTER_BROKER][0], orjson.dumps(body)))
            assert (await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "Secret"})).code == 17
            route = orjson.loads((await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).body)
            assert [one["brokerName"] for one in route["brokerDatas"]] == ["broker-a"]
            assert route["queueDatas"][0]["perm"] == 7

    asyncio.run(run())


@pytest.mark.parametrize("allow", ["127.0.0.0/8", ""])
def test_a_broker_registers_where_its_address_is_allowed(
    tmp_path: Path, allow: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another rstore, which without an ACL signs no more than Apache's broker; refused, its log names the setting."""

    async def run() -> None:
        names_allow = parse_allow_list("namesAllow", allow)
        file = acl_file(tmp_path)
        async with daemon(tmp_path / "n", acl_enable=True, acl_file=file, names_allow=names_allow) as service:
            names = str(service.listening.names)
            other = {"name_service_port": None, "name_servers": names, "broker_name": "broker-b"}
            async with daemon(tmp_path / "b", **other):
                client = await Client.to(names)
                route = orjson.loads((await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).body)
                found = sorted(one["brokerName"] for one in route["brokerDatas"])
                assert found == (["broker-a", "broker-b"] if allow else ["broker-a"])

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    said = [getattr(one, "why", "") for one in caplog.records if "name server not reachable" in one.getMessage()]
    assert [("namesAllow" in why) for why in said] == ([] if allow else [True])


OTHERS = "accounts:\n  - accessKey: {key}\n    secretKey: {secret}\n    admin: {admin}\n"
SIGNS = "registrations are signed"


@pytest.mark.parametrize(
    ("key", "secret", "admin", "refused"),
    [
        (OPERATOR, "12345678", "true", None),
        (OPERATOR, "87654321", "true", f"Check signature failed for accessKey={OPERATOR}"),
        ("stranger", "12345678", "true", "No acl config for stranger"),
        (OPERATOR, "12345678", "false", "No accessKey is configured"),
    ],
)
def test_a_broker_with_an_admins_account_signs_where_that_is_demanded(
    tmp_path: Path, key: str, secret: str, admin: str, refused: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """That of its own ACL files; registered, it is taken back with a signature, too."""
    (tmp_path / "mine").mkdir()
    mine = acl_file(tmp_path / "mine", OTHERS.format(key=key, secret=secret, admin=admin))

    async def run() -> None:
        async with daemon(tmp_path / "n", acl_enable=True, acl_file=acl_file(tmp_path)) as service:
            names = str(service.listening.names)
            client = await Client.to(names)

            async def brokers() -> list[str]:
                route = orjson.loads((await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).body)
                return sorted(one["brokerName"] for one in route["brokerDatas"])

            other = {"name_service_port": None, "name_servers": names, "broker_name": "broker-b", "acl_enable": True}
            async with daemon(tmp_path / "b", acl_file=mine, **other):
                assert await brokers() == (["broker-a"] if refused else ["broker-a", "broker-b"])
            assert await brokers() == ["broker-a"]

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    said = [getattr(one, "why", "") for one in caplog.records if "name server not reachable" in one.getMessage()]
    assert [refused in why for why in said] == ([True] if refused else []), said
    signed = [one for one in caplog.records if SIGNS in one.getMessage()]
    assert [getattr(one, "account", "") for one in signed] == ([key] if admin == "true" else [])
    for root in ("n", "b"):
        assert_sound(StoreConfig(store_path_root_dir=tmp_path / root).with_changes(**SMALL))


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "allowed"])
def test_a_broker_signs_nowhere_else(tmp_path: Path, guarded: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever hears an admin's signature can send it again: it goes where it is asked for alone."""
    file = acl_file(tmp_path)
    guards = {"acl_enable": True, "acl_file": file, "names_allow": parse_allow_list("namesAllow", "127.0.0.1")}

    async def run() -> None:
        async with daemon(tmp_path / "n", **(guards if guarded else {})) as service:
            other = {"name_service_port": None, "name_servers": str(service.listening.names), "broker_name": "broker-b"}
            async with daemon(tmp_path / "b", acl_enable=True, acl_file=file, **other):
                pass

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "registered" in [one.getMessage() for one in caplog.records]
    assert not [one for one in caplog.records if SIGNS in one.getMessage()]


def test_with_an_acl_addresses_of_administrators_count_too(tmp_path: Path) -> None:
    """An admin's signature alone is enough without the list; with it, the address must be in it, or this machine's."""

    async def run() -> None:
        allow = parse_allow_list("adminAllow", "10.9.9.9")
        for settings, wanted in (({}, 0), ({"admin_allow": allow}, ResponseCode.NO_PERMISSION)):
            file = acl_file(tmp_path)
            async with daemon(tmp_path / str(wanted), acl_enable=True, acl_file=file, **settings) as served:
                handlers = served._boards[0]._handlers
                loop = asyncio.get_running_loop()
                unsigned = answers({25: handlers[25]}, loop, "10.1.2.3:5")[25]
                assert unsigned[0] == (wanted or ResponseCode.SYSTEM_ERROR)
                client = await Client.to(served.listening.broker)
                assert (await ask(client, OPERATOR, 25, {}, b"fileReservedTime=48\n")).code == 0

    asyncio.run(run())


# --- what is refused, in words --------------------------------------------------------------------------------------


def test_a_broker_without_an_acl_says_so(tmp_path: Path) -> None:
    account = {"accessKey": "newcomer", "secretKey": "12345678"}

    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            client = await Client.to(served.listening.broker)
            for code, ext, wanted in (
                (50, account, 209), (51, account, 210), (53, {"globalWhiteAddrs": "10.0.0.1"}, 211), (52, {}, 1),
            ):  # fmt: skip
                refused = await client.ask(code, ext)
                assert (refused.code, refused.remark) == (wanted, ACL_OFF)
                assert (refused.remark or "").startswith("ACL is off")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("aclStrict", "no", "aclStrict = 'no' is neither true nor false"),
        ("namesAllow", "10.0.0.*", "namesAllow: '10.0.0.*' is neither an IP address nor a network"),
        ("adminAllow", "10.0.0.1/8", "adminAllow: '10.0.0.1/8' has bits after its prefix: the network is 10.0.0.0/8"),
    ],
)
def test_what_opens_a_door_is_never_guessed(key: str, value: str, why: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        BrokerSettings.of({key: value})
    assert refused.value.message == why
    made = BrokerSettings.of({"aclStrict": "False", "adminAllow": "10.0.0.1", "namesAllow": "::1 10.0.0.0/8"})
    assert (made.acl_strict, str(made.admin_allow), str(made.names_allow)) == (False, "10.0.0.1", "::1, 10.0.0.0/8")
