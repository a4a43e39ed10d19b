"""A running broker whose store is read from afar: what it tells of it, its tables, and a reader of its log.

    remote = RemoteBroker("10.0.0.1:10911")
    facts = remote.facts()
    with remote.reader(facts) as reader:
        reader.read(facts.start, 4096)

Synchronous: each question is a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from engine.client import master_tables
from engine.client.connection import RemotingClient
from engine.client.ha_protocol import ha_protocol
from engine.client.ha_reader import HaReader
from engine.dataclass import dataclass
from engine.errors import RStoreError, StorageError
from engine.wire.address import PORT_MAX, parse_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from engine.client.signed_peer import RequestSigner

    T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a broker tells of its store.

    Attributes:
        address: `host:port` that was asked.
        name: brokerName; the address where it does not say.
        role: brokerRole, such as SYNC_MASTER; "" where it does not say.
        segment_size: mappedFileSizeCommitLog, bytes; None: it does not say.
        start, end: of its log, physical.
        ha_port: of its replication service, on the same host.
        settings: as GET_BROKER_CONFIG gives them; empty where it gives none.
    """

    address: str
    name: str
    role: str
    segment_size: int | None
    start: int
    end: int
    ha_port: int
    settings: dict[str, str]


class RemoteBroker:
    """See the module.

    Args:
        address: `host:port` of the broker.
        ha_port: of its replication service; None: as its settings say, or the broker's and one more.
        tls: of both connections; None: plain text.
        signer: of requests for which the broker demands an account; None: we have none.
        log: gets what happens.
    """

    def __init__(
        self,
        address: str,
        *,
        ha_port: int | None = None,
        tls: ssl.SSLContext | None = None,
        signer: RequestSigner | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self.address = address
        self._host, self._port = parse_address(address)
        self._ha_port = ha_port
        self._tls = tls
        self._log = log or logging.getLogger("rstore.remote")
        self._asked = master_tables.AskedMaster(address, signer, self._log)

    def facts(self) -> BrokerFacts:
        """As they are now. Raises StorageError, FormatError."""

        async def ask(master: master_tables.AskedMaster) -> tuple[dict[str, str], dict[str, str]]:
            runtime = await master_tables.runtime(master)
            try:
                return runtime, await master_tables.settings(master)
            except RStoreError as error:
                self._log.warning("the broker did not send its settings", extra={"why": str(error)})
                return runtime, {}

        runtime, settings = self._ask(ask)
        start, end = master_tables.extent(runtime)
        port = self._ha_port or master_tables.number(settings, "haListenPort", PORT_MAX) or self._port + 1
        return BrokerFacts(
            self.address,
            settings.get("brokerName") or self.address,
            settings.get("brokerRole", ""),
            master_tables.number(settings, "mappedFileSizeCommitLog"),
            start,
            end,
            port,
            settings,
        )

    def extent(self) -> tuple[int, int]:
        """Where the log begins and ends now, physical. Raises StorageError, FormatError."""
        return master_tables.extent(self._ask(master_tables.runtime))

    def tables(self) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
        """The tables that slaves copy, by the names of their files, and why others are not given.

        Raises StorageError: none is given.
        """

        async def ask(master: master_tables.AskedMaster) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
            tables, missing = {}, []
            for name in master_tables.TABLES:
                try:
                    tables[name] = await master_tables.fetch(master, name)
                except RStoreError as error:
                    missing.append(f"{name}: {error}")
            return tables, tuple(missing)

        tables, missing = self._ask(ask)
        if not tables:
            raise StorageError(f"{self.address} sent no table: {missing[0]}")
        return tables, missing

    def reader(self, facts: BrokerFacts) -> HaReader:
        """A reader of its log; nothing is connected yet."""
        return HaReader(self._host, facts.ha_port, tls=self._tls, protocol=ha_protocol(facts.settings))

    def _ask(self, ask: Callable[[master_tables.AskedMaster], Awaitable[T]]) -> T:
        async def run() -> T:
            async with await RemotingClient.connect(self.address, tls=self._tls) as client:
                return await ask(self._asked.by(client))

        return asyncio.run(run())
