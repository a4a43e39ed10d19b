"""TLS of the listeners: modes, certificates of clients, and invalid settings."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as pem

from engine.broker.net.tls import TlsMode, TlsSettings
from engine.broker.settings.broker_settings import BrokerSettings
from engine.config import StoreConfig
from engine.errors import InvalidArgument, StorageError
from tests.engine.broker import certificates
from tests.engine.broker.certificates import Certificates
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.opening import assert_sound


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


async def is_served(address: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a client's message is taken."""
    try:
        client = await Client.to(address, tls)
        answer = await client.put("T", bytes(300_000))
        client.writer.close()
    except (OSError, EOFError):
        return False
    return answer.code == 0


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"), [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)]
)
def test_the_first_byte_decides(
    tmp_path: Path, made: Certificates, mode: str, plain: bool, encrypted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        tls = TlsSettings(TlsMode(mode), made.cert, made.key)
        async with daemon(tmp_path / "s", tls=tls) as found:
            assert found.listening.names is not None
            names = await Client.to(found.listening.names, made.client() if encrypted else None)
            assert (await names.ask(105, {"topic": "TBW102"})).code == 0
            names.writer.close()
            assert await is_served(found.listening.broker) is plain
            assert await is_served(found.listening.broker, made.client()) is encrypted

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    reasons = [str(getattr(one, "why", "")) for one in caplog.records]
    assert any("plain text" in why for why in reasons) is (not plain)
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_a_client_must_show_a_certificate(tmp_path: Path, made: Certificates) -> None:
    async def run() -> None:
        tls = TlsSettings(TlsMode.ENFORCING, made.cert, made.key, client_auth="require", trust=made.authority)
        async with daemon(tmp_path / "s", tls=tls) as found:
            assert await is_served(found.listening.broker, made.client(own=True))
            assert not await is_served(found.listening.broker, made.client())
            reader, writer = await asyncio.open_connection(*found.listening.broker.split(":"))
            writer.write(b"\x16\x03\x01garbage that is no hello, and is long enough to be judged")
            assert b"" in (await reader.read(1), await reader.read())  # an alert, perhaps, and the end

    asyncio.run(run())


def test_many_at_once(tmp_path: Path, made: Certificates) -> None:
    async def run() -> None:
        tls = TlsSettings(TlsMode.PERMISSIVE, made.cert, made.key)
        async with daemon(tmp_path / "s", tls=tls) as found:
            silent = [await Client.to(found.listening.broker) for _ in range(20)]  # they never say anything
            ways = [None, made.client()] * 10
            assert all(await asyncio.gather(*(is_served(found.listening.broker, way) for way in ways)))
            silent[0].writer.close()

    asyncio.run(run())


def test_a_key_with_a_password(tmp_path: Path, made: Certificates) -> None:
    key = pem.load_pem_private_key(Path(made.key).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret"))
    )
    assert TlsSettings(cert=made.cert, key=str(locked), key_password="secret").server_context() is not None
    for wrong in ("", "other"):
        with pytest.raises(InvalidArgument, match="a wrong password") as caught:
            TlsSettings(cert=made.cert, key=str(locked), key_password=wrong).server_context()
        assert caught.value.path == str(locked)


def test_settings_that_can_not_be(tmp_path: Path, made: Certificates) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(StorageError) as missing:
        TlsSettings(cert=str(tmp_path / "nothing.pem"), key=made.key).server_context()
    assert missing.value.path == str(tmp_path / "nothing.pem")
    for settings, what in (
        (TlsSettings(cert=str(text), key=made.key), "not a PEM certificate"),
        (TlsSettings(cert=made.cert, key=str(text)), "not a PEM key"),
        (TlsSettings(cert=made.cert, key=made.client_key), "not a PEM key of"),
        (TlsSettings(cert=made.cert), "not a PEM key"),
        (TlsSettings(cert=made.cert, key=made.key, client_auth="require", trust=str(text)), "not PEM certificates"),
        (TlsSettings(cert=made.cert, key=made.key, client_auth="optional"), "no trusted certificates are set"),
        (TlsSettings(TlsMode.ENFORCING), "TLS without a certificate"),
        (TlsSettings(key=made.key), "TLS without a certificate"),
    ):
        with pytest.raises(InvalidArgument, match=what):
            settings.server_context()
    assert TlsSettings().server_context() is None
    assert TlsSettings().client_context() is None
    assert TlsSettings(client=True, auth_server=True, client_trust=made.authority).client_context() is not None
    with pytest.raises(InvalidArgument, match="not PEM certificates"):
        TlsSettings(client=True, auth_server=True, client_trust=str(text)).client_context()


ENFORCING = TlsSettings(TlsMode.ENFORCING)
SHOWN = TlsSettings(TlsMode.ENFORCING, client_auth="require")
ANY = "any client may read and write"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (BrokerSettings(), None),
        (BrokerSettings(listen_host="localhost"), None),
        (BrokerSettings(listen_host="::1"), None),
        (BrokerSettings(listen_host="0.0.0.0"), ANY),
        (BrokerSettings(listen_host="broker.example.org"), ANY),
        (BrokerSettings(listen_host="::", acl_enable=True), "messages can be read on their way"),
        (BrokerSettings(listen_host="::", acl_enable=True, tls=ENFORCING), None),
        (BrokerSettings(listen_host="::", tls=ENFORCING), ANY),
        (BrokerSettings(listen_host="::", tls=SHOWN), None),
        (BrokerSettings(listen_host="::", tls=TlsSettings(cert="c", key="k")), ANY),
        (BrokerSettings(listen_host="::", tls=TlsSettings(cert="c", key="k", client_auth="require")), ANY),
    ],
)
def test_who_is_warned(settings: BrokerSettings, told: str | None) -> None:
    """TLS says who gets in only where certificates are demanded, and an ACL does not hide what goes over the wire."""
    assert (settings.open_to_all or "").endswith(told or "")
    assert (settings.open_to_all is None) is (told is None)


def test_apaches_keys(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.certPath=/b.pem\ntls.server.mode=disabled\ntls.server.need.client.auth=REQUIRE\n")
    keys = {"tls.server.mode": "Enforcing", "tls.server.certPath": "/a.pem", "tls.server.authClient": "true"}
    found = BrokerSettings.of(keys | {"tls.config.file": str(file)}).tls
    assert (found.mode, found.cert, found.auth_client) == (TlsMode.ENFORCING, "/b.pem", True)
    assert TlsSettings.of(keys, cert="/c.pem", mode=None).cert == "/c.pem"
    for key, value, what in (
        ("tls.server.mode", "strict", "must be disabled, permissive or enforcing"),
        ("tls.server.need.client.auth", "maybe", "must be none, optional or require"),
        ("tls.test.mode.enable", "true", "makes no test certificate"),
    ):
        with pytest.raises(InvalidArgument, match=what):
            TlsSettings.of({key: value})
    with pytest.raises(StorageError):
        TlsSettings.of({"tls.config.file": str(tmp_path / "nothing")})


def test_who_says_nothing_counts_as_a_connection(tmp_path: Path, made: Certificates) -> None:
    """Of all listeners together: else they would take the descriptors that are the store's."""

    async def run() -> None:
        async with daemon(
            tmp_path / "s", tls=TlsSettings(TlsMode.PERMISSIVE, made.cert, made.key), connections=3
        ) as on:
            assert on.listening.names is not None
            silent = [await Client.to(address) for address in (on.listening.broker, on.listening.names)]
            good = await Client.to(on.listening.broker)
            assert (await good.put("T", b"x")).code == 0
            late = await Client.to(on.listening.names)
            assert await late.closed()
            silent[0].writer.close()
            async with asyncio.timeout(60):
                while not await is_served(on.listening.broker):
                    await asyncio.sleep(0.01)

    asyncio.run(run())
