"""Our client with TLS and an account, at Apache's brokers of 4.9.8 and 5.5.0 and at our own: what may go through does.

RocketMQ 5 makes its users and rights of the same plain_acl.yml (migrateAuthFromV1Enabled); it refuses in other words.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, LitePullSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.peers import Credentials
from engine.client.producer import ProducerSettings
from engine.errors import PeerLost, RefusedByBroker
from tests.compat import real_broker, served, toolchain
from tests.compat.client_features import until_registered
from tests.compat.real_broker import SETTINGS
from tests.engine.broker import certificates

pytestmark = pytest.mark.interop

PATIENCE_S = 120
PATIENT = ProducerSettings(timeout_s=30)
ACL = """\
accounts:
  - accessKey: application
    secretKey: "12345678"
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - Allowed=PUB|SUB
    groupPerms:
      - readers=SUB
      - pollers=SUB
"""
_AUTH = "org.apache.rocketmq.auth"
AUTH5 = f"""\
authenticationEnabled=true
authenticationProvider={_AUTH}.authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider={_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider
authorizationEnabled=true
authorizationProvider={_AUTH}.authorization.provider.DefaultAuthorizationProvider
authorizationMetadataProvider={_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider
initAuthenticationUser={{"username":"broker","password":"12345678"}}
innerClientAuthenticationCredentials={{"accessKey":"broker","secretKey":"12345678"}}
migrateAuthFromV1Enabled=true
"""
ACCOUNT = Credentials("application", "12345678")
WORDS = {
    "topic": "Denied",
    "signature": "Check signature failed",
    "unknown": "No acl config for nobody",
    "none": "accessKey",
}
WORDS5 = {
    "topic": "no permission to access Topic:Denied",
    "signature": "check signature failed",
    "unknown": "User:nobody is not found",
    "none": "username cannot be null",
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster with TLS and an ACL. `authority`: the file of the CA that certifies it. `words`: of what it refuses."""

    names: str
    authority: str
    words: dict[str, str]

    def client(self, account: Credentials | None = ACCOUNT, *, tls: bool = True) -> ClusterClient:
        context = ssl.create_default_context(cafile=self.authority)
        return ClusterClient(ClientConfig((self.names,), account=account, tls=context if tls else None))


@pytest.fixture(scope="module", params=["4.9.8", "5.5.0", "rstore"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    base = tmp_path_factory.mktemp("guarded")
    made = certificates.make(base / "certificates")
    root = base / "store"
    root.mkdir()
    with ExitStack() as stack:
        if request.param == "rstore":
            (base / "plain_acl.yml").write_text(ACL)
            conf = (
                f"tls.server.mode=enforcing\ntls.server.certPath={made.cert}\ntls.server.keyPath={made.key}\n"
                "brokerName=broker-a\n"
            )
            one = stack.enter_context(served.serve(root, conf, "--acl", str(base / "plain_acl.yml")))
            yield Guarded(one.names, made.authority, WORDS)
            return
        tls = (
            "-Dtls.test.mode.enable=false", f"-Dtls.server.certPath={made.cert}", f"-Dtls.server.keyPath={made.key}"
        )  # fmt: skip
        conf_dir = base / "store-home" / "conf"
        conf_dir.mkdir(parents=True)
        (conf_dir / "plain_acl.yml").write_text(ACL)
        try:
            permissive, enforcing = (*tls, "-Dtls.server.mode=permissive"), (*tls, "-Dtls.server.mode=enforcing")
            is_old = request.param == "4.9.8"
            if not is_old:
                enforcing += ("-Dtls.enable=false",)  # over TLS it tells the name server of itself ten seconds later
            apache = toolchain.apache_broker() if is_old else toolchain.apache_broker5()
            place = real_broker.name_server(base / "names", java_options=permissive, apache=apache)
            names = stack.enter_context(place)
            settings = SETTINGS + ("aclEnable=true\n" if is_old else AUTH5)
            started = real_broker.broker(root, names, settings, java_options=enforcing, apache=apache)
            broker = stack.enter_context(started)
        except toolchain.Missing as missing:
            pytest.skip(str(missing))
        one = Guarded(names, made.authority, WORDS if is_old else WORDS5)
        until_registered(one.client())
        yield one
        if not is_old:
            broker.kill()  # its end takes 17 s


def test_what_is_allowed_goes_through(guarded: Guarded) -> None:
    async def run() -> None:
        bodies: list[bytes] = []
        done = asyncio.Event()

        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            bodies.extend(message.body for message in messages)
            if len(bodies) == 11:
                done.set()

        async with guarded.client() as client:
            producer = client.producer("P", PATIENT)
            for number in range(10):
                await producer.send(OutgoingMessage("Allowed", b"%d" % number, "tag", ("k",), {"colour": "red"}))
            await producer.send_batch([OutgoingMessage("Allowed", b"batch" * 2000)])
            settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET)
            async with client.push_consumer("readers", handle, settings) as consumer:
                await consumer.subscribe("Allowed")
                await asyncio.wait_for(done.wait(), PATIENCE_S)
            polling = LitePullSettings(start=StartFrom.FIRST_OFFSET, poll_s=PATIENCE_S)
            async with client.lite_pull_consumer("pollers", polling) as polled:
                await polled.subscribe("Allowed")
                assert await polled.poll()
        assert sorted(bodies) == sorted([*(b"%d" % number for number in range(10)), b"batch" * 2000])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("account", "topic", "why"),
    [
        (ACCOUNT, "Denied", "topic"),
        (Credentials("application", "87654321"), "Allowed", "signature"),
        (Credentials("nobody", "12345678"), "Allowed", "unknown"),
        (None, "Allowed", "none"),
    ],
)
def test_what_is_not_is_refused(guarded: Guarded, account: Credentials | None, topic: str, why: str) -> None:
    async def run() -> str:
        async with guarded.client() as made:
            await made.producer("P", PATIENT).send(OutgoingMessage("Allowed", b"x"))  # makes the topic
        async with guarded.client(account) as client:
            with pytest.raises(RefusedByBroker) as refused:
                await client.producer("P", PATIENT).send(OutgoingMessage(topic, b"x"))
        return str(refused.value)

    assert guarded.words[why] in asyncio.run(run())


def test_plain_text_is_refused(guarded: Guarded) -> None:
    async def run() -> None:
        async with guarded.client() as made:
            await made.producer("P", PATIENT).send(OutgoingMessage("Allowed", b"x"))
        with pytest.raises(PeerLost):
            await plain()

    async def plain() -> None:
        async with guarded.client(tls=False) as client:
            await client.producer("P").send(OutgoingMessage("Allowed", b"x"))

    asyncio.run(run())
