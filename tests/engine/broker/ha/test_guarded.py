"""Who may copy a master's log: allow-list, TLS, bind address, and what is told of a port that is open to all."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.ha import sync
from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave import LinkStatus
from engine.broker.ha.slave_list import parse_slave_list
from engine.broker.net import ports
from engine.broker.net.tls import TlsMode, TlsSettings
from engine.broker.settings.broker_settings import BrokerSettings
from engine.config import BrokerRole, StoreConfig
from engine.errors import InvalidArgument
from engine.log.results import PutMessageStatus
from engine.wire.codes import RequestCode
from engine.wire.ha import encode_ack
from tests.engine.broker import certificates
from tests.engine.broker.certificates import Certificates
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.broker.ha.pair import QUICK, WAIT_S, Pair, log_of, until
from tests.engine.opening import assert_sound, message

Make = Callable[..., Pair]
ENFORCING = TlsSettings(TlsMode.ENFORCING)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def tls_of(made: Certificates, client_auth: str = "require") -> TlsSettings:
    """Of a master and its slaves: one certificate."""
    return TlsSettings(TlsMode.ENFORCING, made.cert, made.key, client_auth=client_auth, trust=made.authority)


def copied(port: int, source: str = "127.0.0.1", said: bytes = encode_ack(1)) -> bytes:
    """All that a plain connection gets until it is closed, or some log has come."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0)) as link:
        data = b""
        try:
            link.sendall(said)
            while len(data) < 60 and (piece := link.recv(1 << 16)):
                data += piece
        except ConnectionError:
            pass
        return data


def test_who_is_not_in_the_list_gets_no_byte_and_is_no_slave(pair: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        one = pair(BrokerRole.SYNC_MASTER, ha=replace(QUICK, allow=parse_slave_list("127.0.0.1, fd00::/8")))
        one.put(5)
        assert copied(one.port, "127.0.0.2") == b""
        assert one.service.slaves == ()
        assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
        assert len(copied(one.port)) >= 60
        client = one.slave()
        until(lambda: client.state.end == one.master.log.max_offset)
    assert one.service.rejections["address"] == 1
    (told,) = [one for one in caplog.records if one.message == "slave connection rejected"]
    assert str(getattr(told, "peer", "")).startswith("127.0.0.2:")
    assert getattr(told, "why", "") == "haAllow does not allow it: 127.0.0.1, fd00::/8"


def test_slaves_that_registered(pair: Make) -> None:
    one = pair(ha=replace(QUICK, allow=parse_slave_list("registered")))
    one.put(5)
    assert copied(one.port) == b""
    client = one.slave()
    until(lambda: one.service.rejections["address"] >= 3)  # it tries again and again
    one.registered.add("127.0.0.1")
    until(lambda: client.state.end == one.master.log.max_offset)
    assert copied(one.port, "127.0.0.2") == b""


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("", ["10.0.0.7", "::1"], []),
        ("registered", ["192.0.2.1"], ["10.0.0.7"]),
        ("10.0.0.0/24; Registered", ["10.0.0.7", "192.0.2.1"], ["10.0.1.7"]),
        ("fd00::/8,10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7", "fd00::7"], ["192.0.2.1"]),
    ],
)
def test_lists(text: str, allowed: list[str], refused: list[str]) -> None:
    found = parse_slave_list(text)
    assert [one for one in (*allowed, *refused) if found.allows(one, {"192.0.2.1"})] == allowed
    assert parse_slave_list(str(found)) == found


@pytest.mark.parametrize("text", ["unregistered", "registered/24", "10.0.0.7/8", "everybody"])
def test_lists_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="haAllow: "):
        HaSettings.of({"haAllow": text})


@pytest.mark.parametrize("word", ["yes", "", "True # or not"])
def test_tls_of_replication_is_not_guessed(word: str) -> None:
    assert HaSettings.of({"haTls": "TRUE "}).tls
    with pytest.raises(InvalidArgument, match=r"haTls = .*: must be true or false"):
        HaSettings.of({"haTls": word})


def test_a_slave_by_tls(pair: Make, made: Certificates, tmp_path: Path) -> None:
    """Also through many transfers, in both directions at a time, and with the connection cut."""
    tls = tls_of(made)
    one = pair(BrokerRole.SYNC_MASTER, tls=tls.master_context())
    one.put(500, size=3000)
    client = one.slave(tls=tls.slave_context())
    until(lambda: client.state.end == one.master.log.max_offset)
    for i in range(50):
        assert one.master.put(message(b"%d" % i)).status is PutMessageStatus.PUT_OK
        if i % 10 == 9:
            compared = client.state.compared
            client._cut()
            until(lambda compared=compared: client.state.compared > compared)  # type: ignore[misc]
    end = one.master.log.max_offset
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


@pytest.mark.parametrize("client_auth", ["require", "none"])
def test_who_gets_nothing_by_tls(pair: Make, made: Certificates, tmp_path: Path, client_auth: str) -> None:
    others = certificates.make(tmp_path / "others")
    tls = tls_of(made, client_auth)
    one = pair(BrokerRole.SYNC_MASTER, tls=tls.master_context())
    one.put(5)
    for said in (encode_ack(1), b"\x16\x03\x01\0\x05hello"):
        assert b"T" not in copied(one.port, said=said)  # an alert, perhaps
    until(lambda: one.service.rejections["tls"] >= 2)
    for context in (made.client(), ssl_with(made, others)):
        got = over_tls(one.port, context)
        assert (got == b"") is (client_auth == "require")
    refused = 4 if client_auth == "require" else 2
    until(lambda: one.service.rejections["tls"] == refused)
    until(lambda: one.service.slaves == ())
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    assert over_tls(one.port, made.client(own=True))


def ssl_with(made: Certificates, others: Certificates) -> ssl.SSLContext:
    """A client with a certificate of an authority that nobody trusts."""
    context = made.client()
    context.load_cert_chain(others.client_cert, others.client_key)
    return context


def over_tls(port: int, context: ssl.SSLContext) -> bytes:
    """The first bytes of the log, b"": refused."""
    plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
    with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as link:
        try:
            link.sendall(encode_ack(1))
            return link.recv(60)
        except OSError:
            return b""


def test_a_slave_that_does_not_trust_its_master(pair: Make, made: Certificates, tmp_path: Path) -> None:
    """Of another authority, or of another host: named as a fault, nothing is taken."""
    others = certificates.make(tmp_path / "others")
    one = pair(tls=tls_of(made).master_context())
    one.put(5)
    client = one.slave(tls=tls_of(others).slave_context())
    until(lambda: client.state.status is LinkStatus.FAULTY)
    assert "the master's certificate is not trusted: " in str(client.state.error)
    assert client.state.end == 0
    one.close_slave()
    client = one.slave("slave", host="127.0.0.2", tls=tls_of(made).slave_context())
    assert client.state.end == 0
    until(lambda: client.state.error is not None)
    assert client.state.status in (LinkStatus.FAULTY, LinkStatus.AWAY)
    one.close_slave()


def test_a_slave_by_tls_of_a_master_without(pair: Make, made: Certificates) -> None:
    one = pair()
    one.put(5)
    client = one.slave(tls=tls_of(made).slave_context())
    until(lambda: client.state.error is not None)
    assert "TLS failed: " in str(client.state.error)
    assert "--ha-tls must be on at the master, too" in str(client.state.error)


def test_tls_of_replication_needs_a_certificate(made: Certificates) -> None:
    for tls, why in (
        (TlsSettings(), "without a certificate"),
        (TlsSettings(TlsMode.DISABLED), "while TLS is disabled"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            tls.master_context()
    assert TlsSettings(trust=made.authority).slave_context().verify_mode is ssl.CERT_REQUIRED


GUARDED = [{"acl_enable": True}, {"tls": ENFORCING}]


@pytest.mark.parametrize("guard", GUARDED)
@pytest.mark.parametrize(
    ("listen", "ha", "there", "is_open"),
    [
        ("0.0.0.0", HaSettings(), "127.0.0.1", False),
        ("::", HaSettings(), "::1", False),
        ("192.0.2.1", HaSettings(allow=parse_slave_list("10.0.0.7")), "192.0.2.1", False),
        ("192.0.2.1", HaSettings(tls=True), "192.0.2.1", True),
        ("192.0.2.1", HaSettings(listen="0.0.0.0"), "0.0.0.0", True),
        ("192.0.2.1", HaSettings(listen="127.0.0.1"), "127.0.0.1", False),
        ("127.0.0.5", HaSettings(), "127.0.0.5", False),
    ],
)
def test_where_slaves_find_a_guarded_master(
    guard: dict[str, object], listen: str, ha: HaSettings, there: str, is_open: bool
) -> None:
    settings = BrokerSettings(listen_host=listen, ha=ha, **guard)  # type: ignore[arg-type]
    assert ports.ha_host(settings) == there
    assert (ports.ha_open_to_all(settings) is not None) is is_open
    if ha.tls:
        shown = replace(settings, tls=replace(settings.tls, client_auth="require"))
        assert ports.ha_open_to_all(shown) is None


def test_where_slaves_find_a_master_that_everybody_may_use() -> None:
    settings = BrokerSettings(listen_host="0.0.0.0")
    assert ports.ha_host(settings) == "0.0.0.0"
    assert ports.ha_open_to_all(settings) is None  # that all of it is open is told already
    assert ports.ha_host(replace(settings, ha=HaSettings(listen="192.0.2.1"))) == "192.0.2.1"


def config(root: Path, role: BrokerRole) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SMALL, broker_role=role, slave_timeout=60_000)


@pytest.mark.parametrize("guard", ["tls", "acl"])
def test_a_guarded_daemon_keeps_replication_to_itself(
    tmp_path: Path, made: Certificates, guard: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight bytes got the log. Without a word about slaves nobody reaches it from elsewhere; opened, it is told."""
    (tmp_path / "acl.yml").write_text("accounts:\n  - accessKey: operator\n    secretKey: 87654321\n    admin: true\n")
    guards: dict[str, object] = {"tls": tls_of(made)}
    if guard == "acl":
        guards = {"acl_enable": True, "acl_file": str(tmp_path / "acl.yml")}

    async def run(root: str, **more: object) -> tuple[str, str | None]:
        settings = {"listen_host": "0.0.0.0", **guards, **more}
        async with daemon(tmp_path / root, config=config(tmp_path / root, BrokerRole.SYNC_MASTER), **settings) as on:
            assert on.listening.ha_bound is not None
            return on.listening.ha_bound.rpartition(":")[0], on.broker.role.open_to_all

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run("a")) == ("127.0.0.1", None)
        assert not [one for one in caplog.records if "whoever connects gets the log" in one.message]
        host, told = asyncio.run(run("b", ha=HaSettings(listen="0.0.0.0")))
    assert host == "0.0.0.0"
    assert told is not None
    assert "whoever connects gets the log; set haAllow" in told
    assert [one for one in caplog.records if one.message == told]
    for root in ("a", "b"):
        assert_sound(StoreConfig(store_path_root_dir=tmp_path / root).with_changes(**SMALL))


async def until_async(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_daemons_by_tls(tmp_path: Path, made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log and tables: the master takes nothing else than TLS with a certificate on any port."""
    monkeypatch.setattr(sync, "FIRST_S", 0.05)
    monkeypatch.setattr(sync, "EVERY_S", 0.1)
    tls = tls_of(made)

    async def run() -> None:
        masters, slaves = config(tmp_path / "m", BrokerRole.SYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)
        ha = HaSettings(heartbeat_ms=100, retry_ms=50, tls=True)
        async with daemon(tmp_path / "m", config=masters, ha=ha, tls=tls) as master:
            assert master.listening.ha is not None
            client = await Client.to(master.listening.broker, made.client(own=True))
            assert (await client.put("T", b"alone")).code == 11
            plain = await asyncio.to_thread(copied, int(master.listening.ha.rpartition(":")[2]))
            assert b"alone" not in plain
            its = replace(ha, master_broker=master.listening.broker, master_address=master.listening.ha)
            async with daemon(tmp_path / "s", config=slaves, ha=its, tls=tls, broker_id=1) as slave:
                store = slave.broker.store
                await until_async(lambda: store.log.max_offset == master.broker.store.log.max_offset)
                await until_async(lambda: any(one.lag == 0 for one in master.broker.role.slaves))
                assert (await client.put("T", b"copied")).code == 0
                await until_async(lambda: slave.broker.role.rounds > 0)
                assert slave.broker.topics.find("T") is not None

    asyncio.run(run())
    for root in ("m", "s"):
        assert_sound(StoreConfig(store_path_root_dir=tmp_path / root).with_changes(**SMALL))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["own-name-server", "other-name-server"])
def test_a_slave_that_registers_may_copy(tmp_path: Path, elsewhere: bool) -> None:
    """At the master's own name server, and at one that both register with; whoever else registers is no slave."""

    async def run() -> None:
        masters, slaves = config(tmp_path / "m", BrokerRole.ASYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)
        ha = HaSettings(heartbeat_ms=100, retry_ms=50, allow=parse_slave_list("registered"))
        async with daemon(tmp_path / "n", broker_name="other") as other:
            there = {"name_servers": other.listening.names} if elsewhere else {}
            async with daemon(tmp_path / "m", config=masters, ha=ha, **there) as master:
                assert master.listening.ha is not None
                names = other.listening.names if elsewhere else master.listening.names
                client = await Client.to(master.listening.broker)
                assert (await client.put("T", b"one")).code == 0
                port = int(master.listening.ha.rpartition(":")[2])
                assert await asyncio.to_thread(copied, port) == b""
                async with daemon(
                    tmp_path / "s", config=slaves, ha=HaSettings(retry_ms=50), broker_id=1, name_servers=names
                ) as slave:
                    end = master.broker.store.log.max_offset
                    await until_async(lambda: slave.broker.store.log.max_offset == end)
                    assert (await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})).code == 0
                assert master.broker.role.rejections["address"] > 0

    asyncio.run(run())
    for root in ("m", "s", "n"):
        assert_sound(StoreConfig(store_path_root_dir=tmp_path / root).with_changes(**SMALL))
