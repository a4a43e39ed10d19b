"""Registers the broker with real name servers: at the start, now and then, when topics change; and takes it back.

Each name server has its own task and its own connection; one that is away is told of once and tried again. What they
know of a master (for slaves) is kept here. Source: BrokerOuterAPI, BrokerController#registerBrokerAll; remoting.md 2.4.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker import registration
from engine.broker.connection import Connection
from engine.broker.names import with_permission
from engine.errors import FormatError, InvalidArgument
from engine.format import fastjson
from engine.wire.codes import V4_9_8, LanguageCode, RequestCode, ResponseCode
from engine.wire.command import RemotingCommand

if TYPE_CHECKING:
    import logging

    from engine.broker.broker import Broker

_AGAIN_S = 5.0
_PAUSE_S = 1.0
"""Between two registrations, at least: a name server that closes each connection is not flooded."""
_STOP_S = 3.0
_SHORTEST_MS, _LONGEST_MS = 10_000, 60_000


class NoNameServer(Exception):
    """A name server that is away, or refuses us; why."""


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """host:port;host:port as they are. Raises InvalidArgument."""
    found = []
    for one in (part.strip() for part in text.split(";")):
        if not one:
            continue
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise InvalidArgument(f"name servers: {one!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    return tuple(dict.fromkeys(found))


class NameServers:
    """See the module. For the loop's thread alone.

    Attributes:
        master_address, ha_address: of our master, as a name server said last; None: it knows none, or we are it.
    """

    def __init__(
        self, broker: Broker, addresses: Sequence[tuple[str, int]], tls: ssl.SSLContext | None, log: logging.Logger
    ) -> None:
        self.broker = broker
        self.tls = tls
        self.log = log
        self.master_address: str | None = None
        self.ha_address: str | None = None
        self._servers = [_NameServer(self, host, port) for host, port in addresses]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register once, as far as they are there, and keep on."""
        await asyncio.gather(*(server.register() for server in self._servers))
        self._tasks = [self.broker.loop.create_task(server.run()) for server in self._servers]

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

    def __init__(self, all_of_them: NameServers, host: str, port: int) -> None:
        self._all = all_of_them
        self._broker = all_of_them.broker
        self._host, self._port = host, port
        self._timeout_s = self._broker.settings.register_timeout_ms / 1000
        self._connection: Connection | None = None
        self._away = False
        self.known = False
        self.wake = asyncio.Event()

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}"

    async def run(self) -> None:
        """Keep us registered."""
        settings = self._broker.settings
        period_s = max(_SHORTEST_MS, min(settings.register_period_ms, _LONGEST_MS)) / 1000
        while True:
            woken = await self._wait(period_s if self.known else _AGAIN_S)
            await self.register(only_changes=not woken and not settings.force_register)
            await asyncio.sleep(_PAUSE_S if not self.known else 0)

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
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connected()
                if not (only_changes and self.known and await self._is_up_to_date(connection)):
                    await self._register(connection)
        except (OSError, NoNameServer) as error:  # TimeoutError, ConnectionError and ssl.SSLError are OSErrors
            self.known = False
            if not self._away:
                self._away = True
                why = str(error) or type(error).__name__
                self._all.log.warning("a name server is away, and tried again", extra={"peer": self._where, "why": why})
            return
        if self._away or not self.known:
            self._all.log.info("registered", extra={"peer": self._where})
        self.known, self._away = True, False

    async def unregister(self) -> None:
        """Say good-bye, and close the connection."""
        connection = self._connection
        if connection is None:
            return
        try:
            if self.known:
                request = self._request(RequestCode.UNREGISTER_BROKER, {})
                answer = await connection.ask(request, _STOP_S)
                if answer.code != ResponseCode.SUCCESS:
                    raise NoNameServer(f"code {answer.code}: {answer.remark}")
        except (OSError, NoNameServer) as error:
            self._all.log.warning("not unregistered", extra={"peer": self._where, "why": str(error)})
        self.known = False
        connection.close()

    # --- what is asked ----------------------------------------------------------------------------------------------

    async def _register(self, connection: Connection) -> None:
        settings, table = self._broker.settings, self._broker.topics
        topics = with_permission(table.topics.values(), settings.permission)
        compressed = settings.compressed_register
        body = registration.encode(table.version, topics, compressed=compressed)
        ext = {
            "haServerAddr": settings.ha_address,
            "compressed": "true" if compressed else "false",
            "bodyCrc32": str(registration.crc(body)),
        }
        answer = await connection.ask(self._request(RequestCode.REGISTER_BROKER, ext, body), self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise NoNameServer(f"code {answer.code}: {answer.remark}")
        self._all.master_address = answer.fields.get("masterAddr")
        self._all.ha_address = answer.fields.get("haServerAddr")
        if len(answer.body):
            ordered = _json(answer.body).get("table")
            if isinstance(ordered, dict):
                table.set_ordered(ordered)

    async def _is_up_to_date(self, connection: Connection) -> bool:
        version = self._broker.topics.version.to_json()
        request = self._request(RequestCode.QUERY_DATA_VERSION, {}, orjson.dumps(version))
        answer = await connection.ask(request, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS or answer.fields.get("changed") != "false":
            return False
        return not len(answer.body) or _json(answer.body) == version

    def _request(self, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        settings = self._broker.settings
        ext = {
            "brokerName": settings.broker_name,
            "brokerAddr": self._broker.address,
            "clusterName": settings.cluster_name,
            "brokerId": str(settings.broker_id),
            **ext,
        }
        return RemotingCommand(code, ext=ext, body=body, language=LanguageCode.JAVA, version=V4_9_8)

    # --- its connection ---------------------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        loop = self._broker.loop
        _, made = await loop.create_connection(
            lambda: Connection(self, self._broker.settings, loop), self._host, self._port, ssl=self._all.tls
        )
        self._connection = made
        return made

    def opened(self, connection: Connection) -> bool:
        """As of Serves."""
        del connection
        return True

    def received(self, connection: Connection, request: RemotingCommand) -> None:
        """As of Serves: a name server asks nothing of a broker."""
        why = f" request type {request.code} not supported"
        connection.answer(request, request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, why))

    def lost(self, connection: Connection) -> None:
        """As of Serves: without the connection it forgets us."""
        if connection is self._connection:
            self._connection = None
            self.known = False
            self.wake.set()


def _json(body: bytes | memoryview) -> dict[str, Any]:
    try:
        found = fastjson.loads(bytes(body).decode("utf-8", "replace"))
    except FormatError:
        found = None
    return found if isinstance(found, dict) else {}
