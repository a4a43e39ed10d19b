"""Registers the broker with real name servers: at the start, now and then, when topics change; and takes it back.

Each name server has its own task and its own connection; one that is away is logged once and tried again. What they
know of a master (for slaves) is kept here. Source: BrokerOuterAPI, BrokerController#registerBrokerAll; BROKER.md 1.3.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.names import registration
from engine.broker.names.route_table import with_permission
from engine.client.connection import RemotingClient
from engine.client.signed_peer import Peer, RequestSigner
from engine.errors import FormatError, StorageError
from engine.format import fastjson
from engine.format.hashing import body_crc
from engine.wire.address import parse_address
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import logging

    from engine.broker.ha.role import Role
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.topics import TopicTable
    from engine.wire.command import RemotingCommand

_AGAIN_S = 5.0
_PAUSE_S = 1.0
"""Between two registrations, at least: a name server that closes each connection is not flooded."""
_STOP_S = 3.0
_SHORTEST_MS, _LONGEST_MS = 10_000, 60_000


def parse_addresses(text: str) -> tuple[str, ...]:
    """host:port;host:port, each once. Raises InvalidArgument."""
    addresses = []
    for one in (part.strip() for part in text.split(";")):
        if not one:
            continue
        parse_address(one)
        addresses.append(one)
    return tuple(dict.fromkeys(addresses))


class NameServers:
    """See the module. For the loop's thread alone.

    Args:
        addresses: `host:port` each.
        topics: that they are told.
        address: of our broker, as clients get it.
        role: says where slaves find us.
        tls: None: plain text.
        signer: signs for name servers that demand it; None: we have no accounts.

    Attributes:
        master_address, ha_address: of our master, as a name server said last; None: it knows none, or we are it.
        slaves: addresses of our slaves, as name servers said last, where haAllow goes by them.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        topics: TopicTable,
        settings: CurrentSettings,
        address: str,
        role: Role,
        tls: ssl.SSLContext | None,
        log: logging.Logger,
        signer: RequestSigner | None = None,
    ) -> None:
        self.topics = topics
        self.settings = settings
        self.address = address
        self.role = role
        self.tls = tls
        self.log = log
        self.signer = signer
        self.master_address: str | None = None
        self.ha_address: str | None = None
        self.slaves: frozenset[str] = frozenset()
        self._servers = [_NameServer(self, address) for address in addresses]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register once, as far as they are there, and keep on."""
        await asyncio.gather(*(server.register() for server in self._servers))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(server.run()) for server in self._servers]
        if self.settings.now.ha.allow.registered and not self.role.is_slave:
            self._tasks.append(loop.create_task(self._look_for_slaves()))

    async def _look_for_slaves(self) -> None:
        """Ask who our slaves are, of each that answers."""
        while True:
            told = await asyncio.gather(*(server.slaves() for server in self._servers))
            if any(one is not None for one in told):  # else they stay those that were known last
                self.slaves = frozenset().union(*(one for one in told if one is not None))
            await asyncio.sleep(_AGAIN_S)

    async def route(self, topic: str) -> bytes | None:
        """The route of a topic, as the first that answers has it; None: nobody serves it.

        Raises:
            StorageError: none answers.
        """
        for server in self._servers:
            try:
                return await server.route(topic)
            except StorageError as error:
                away = error
        raise away

    def changed(self) -> None:
        """Topics are others now: they are told of soon."""
        for server in self._servers:
            server.wake.set()

    async def stop(self) -> None:
        """Unregister where we are registered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(server.unregister() for server in self._servers))

    @property
    def registered(self) -> int:
        """With how many we are registered now."""
        return sum(server.known for server in self._servers)


class _NameServer:
    """One of them.

    Attributes:
        known: whether it knows us.
        wake: set when it should know something new.
    """

    def __init__(self, all_of_them: NameServers, address: str) -> None:
        self._all = all_of_them
        self._address = address
        self._timeout_s = all_of_them.settings.now.register_timeout_ms / 1000
        self._client: RemotingClient | None = None
        self._away = False
        self._peer = Peer(all_of_them.signer, self._signing_begins)
        self.known = False
        self.wake = asyncio.Event()

    async def run(self) -> None:
        """Keep us registered."""
        settings = self._all.settings.now
        period_s = max(_SHORTEST_MS, min(settings.register_period_ms, _LONGEST_MS)) / 1000
        while True:
            woken = await self._wait(period_s if self.known else _AGAIN_S)
            await self.register(only_changes=not woken and not settings.force_register)
            await asyncio.sleep(0 if self.known else _PAUSE_S)

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True

    async def register(self, *, only_changes: bool = False) -> None:
        """Register; what goes wrong is logged. `only_changes`: not when it knows our topics as they are."""
        self.wake.clear()
        try:
            client = await self._connected()
            if not (only_changes and self.known and await self._is_up_to_date(client)):
                await self._register(client)
        except StorageError as error:
            self.known = False
            if not self._away:
                self._away = True
                self._all.log.warning(
                    "name server not reachable; retrying", extra={"peer": self._address, "why": str(error)}
                )
            return
        if not self.known:
            self._all.log.info("registered", extra={"peer": self._address})
        self.known, self._away = True, False

    async def unregister(self) -> None:
        """Say good-bye, and close the connection."""
        client = self._client
        if client is None:
            return
        try:
            if self.known:
                await self._ask(client, RequestCode.UNREGISTER_BROKER, {}, timeout_s=_STOP_S)
        except StorageError as error:
            self._all.log.warning("unregistering failed", extra={"peer": self._address, "why": str(error)})
        self.known = False
        await client.close()

    async def slaves(self) -> set[str] | None:
        """Addresses of the slaves of our name that it knows; None: it does not answer."""
        client = self._client
        if client is None or not client.is_open:
            return None
        try:
            answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=self._timeout_s)
        except StorageError:
            return None
        brokers = _json(answer.body).get("brokerAddrTable")
        broker = brokers.get(self._all.settings.now.broker_name) if isinstance(brokers, dict) else None
        addresses = broker.get("brokerAddrs") if isinstance(broker, dict) else None
        if not isinstance(addresses, dict):
            return set()
        return {str(one).rpartition(":")[0].strip("[]") for number, one in addresses.items() if str(number) != "0"}

    async def route(self, topic: str) -> bytes | None:
        """As of all of them. Raises StorageError: it does not answer, or has an error."""
        client = self._client
        if client is None or not client.is_open:
            raise StorageError(f"{self._address} is not connected")
        ext = {"topic": topic}
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_s=self._timeout_s)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise StorageError(f"{self._address} answered {answer.code}: {answer.remark}")
        return bytes(answer.body)

    # --- what is asked ----------------------------------------------------------------------------------------------

    async def _register(self, client: RemotingClient) -> None:
        settings, table = self._all.settings.now, self._all.topics
        topics = with_permission(table.topics.values(), settings.permission)
        compressed = settings.compressed_register
        body = registration.encode(table.version, topics, compressed=compressed)
        ext = {
            "haServerAddr": self._all.role.address,
            "compressed": "true" if compressed else "false",
            "bodyCrc32": str(body_crc(body)),
        }
        answer = await self._ask(client, RequestCode.REGISTER_BROKER, ext, body)
        self._all.master_address = answer.fields.get("masterAddr")
        self._all.ha_address = answer.fields.get("haServerAddr")
        if len(answer.body):
            ordered = _json(answer.body).get("table")
            if isinstance(ordered, dict):
                table.set_ordered(ordered)

    async def _is_up_to_date(self, client: RemotingClient) -> bool:
        version = self._all.topics.version.to_json()
        answer = await self._ask(client, RequestCode.QUERY_DATA_VERSION, {}, orjson.dumps(version))
        return answer.fields.get("changed") == "false" and (not len(answer.body) or _json(answer.body) == version)

    async def _ask(
        self,
        client: RemotingClient,
        code: int,
        ext: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """The answer. Raises StorageError: there is none, or it is no."""
        settings = self._all.settings.now
        own = {
            "brokerName": settings.broker_name,
            "brokerAddr": self._all.address,
            "clusterName": settings.cluster_name,
            "brokerId": str(settings.broker_id),
        }
        answer = await self._peer.ask(client, code, own | ext, body, timeout_s or self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise StorageError(f"{self._address} answered {answer.code}: {answer.remark}")
        return answer

    def _signing_begins(self, account: str) -> None:
        extra = {"peer": self._address, "account": account}
        self._all.log.info("name server demands an account; registrations are signed", extra=extra)

    async def _connected(self) -> RemotingClient:
        if self._client is None or not self._client.is_open:
            self._client = await RemotingClient.connect(self._address, timeout_s=self._timeout_s, tls=self._all.tls)
            self._client.when_lost(self._lost)
        return self._client

    def _lost(self) -> None:
        """Without the connection it forgets us."""
        self.known = False
        self.wake.set()


def _json(body: bytes | memoryview) -> dict[str, Any]:
    try:
        table = fastjson.loads(bytes(body).decode("utf-8", "replace"))
    except FormatError:
        table = None
    return table if isinstance(table, dict) else {}
