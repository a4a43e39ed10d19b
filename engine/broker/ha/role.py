"""What a broker does as a master or as a slave, beside serving clients.

A master has the service that slaves copy its log from; with SYNC_MASTER puts wait for them. A slave copies the log and
the tables of its master: the one that it was told, or the one that a name server knows.

Source: BrokerController#handleSlaveSynchronize, DefaultMessageStore#start (4.9.8).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from engine.broker.ha.loop_reads import LoopReads
from engine.broker.ha.master import MasterService, SlaveState
from engine.broker.ha.slave import Copied, LinkStatus, SlaveClient
from engine.broker.ha.sync import SlaveSync
from engine.client.ha_protocol import ha_protocol
from engine.config import BrokerRole
from engine.errors import StorageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from engine.broker.ha.settings import HaSettings
    from engine.broker.ha.sync import Take
    from engine.client.signed_peer import RequestSigner
    from engine.format.timer_progress import TimerProgress
    from engine.store import MessageStore

_LOOK_S = 1.0


class KnowsMaster(Protocol):
    """Who has been told where our master is: `host:port` of its broker and of its service, None while nobody has."""

    @property
    def master_address(self) -> str | None:
        """Of its broker."""

    @property
    def ha_address(self) -> str | None:
        """Of its service."""

    @property
    def slaves(self) -> frozenset[str]:
        """Addresses of our slaves, without ports."""


class Role:
    """See the module. For the loop's thread alone.

    Args:
        store: whose log is copied, from us or by us.
        tables: what takes over a master's tables, by file name.
        timers: takes over how far a master has delivered timer messages (`TimerService.take`).
        settings: of replication.
        host: where slaves find a master's service.
        after_this: as `engine.broker.put.flow.FlowControl`.
        slaves: addresses of the slaves that have registered with our own name server.
        log: gets what happens.

    Attributes:
        address: `ip:port` of a master's service, as name servers get it.
        open_to_all: why everybody who reaches a master's service gets its log; None: not everybody does.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        tables: Mapping[str, Take],
        timers: Callable[[TimerProgress, int], None],
        settings: HaSettings,
        host: str,
        after_this: Callable[[Callable[[], None]], None],
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
        slaves: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._own_slaves = slaves
        self._registered: frozenset[str] = frozenset()
        self._store = store
        self._tables = tables
        self._timers = timers
        self._host = host
        self._after_this = after_this
        self._loop = loop
        self._settings = settings
        self._log = log
        self._master: MasterService | None = None
        self._slave: SlaveClient | None = None
        self._sync: SlaveSync | None = None
        self._name_servers: KnowsMaster | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.address = ""
        self.open_to_all: str | None = None

    @property
    def is_slave(self) -> bool:
        """Whether our role is SLAVE."""
        return self._store.config.broker_role is BrokerRole.SLAVE

    @property
    def slaves(self) -> tuple[SlaveState, ...]:
        """Who copies from us."""
        return () if self._master is None else self._master.slaves

    @property
    def rejections(self) -> Mapping[str, int]:
        """Connections to a master's service that are no slaves, or no longer, by reason."""
        return {} if self._master is None else self._master.rejections

    @property
    def copied(self) -> Copied | None:
        """How far we have copied; None: we are a master."""
        return None if self._slave is None else self._slave.state

    @property
    def rounds(self) -> int:
        """How often all tables of the master were taken."""
        return 0 if self._sync is None else self._sync.rounds

    def to_json(self) -> dict[str, Any]:
        """For programs: our role, who copies from us, how far we have copied."""
        copied = self.copied
        fields: dict[str, Any] = {
            "role": self._store.config.broker_role.value,
            "address": None if self.is_slave else self.address,
            "slaves": [{"address": one.address, "acked": one.acked, "lag": one.lag} for one in self.slaves],
            "rejected": sum(self.rejections.values()),
            "openToAll": self.open_to_all,
        }
        if copied is not None:
            fields["copied"] = {
                "master": copied.master,
                "state": copied.status.value,
                "end": copied.end,
                "masterEnd": copied.master_end,
                "lag": copied.lag,
                "appended": copied.appended,
                "compared": copied.compared,
                "rounds": self.rounds,
                "error": None if copied.error is None else str(copied.error),
            }
        return fields

    @property
    def divergence(self) -> str | None:
        """What differs; None: nothing that is known."""
        copied = self.copied
        if copied is None or copied.status is not LinkStatus.DIVERGED:
            return None
        return str(copied.error)

    def listen(self, host: str, port: int, *, exactly: bool, tls: ssl.SSLContext | None = None) -> str | None:
        """A master's service; where it is, None on a slave. `exactly`: that port, or none. `tls`: None: plain text.

        Raises:
            StorageError: the port is taken.
        """
        if not self.is_slave:
            try:
                port = self._serve(host, port, tls)
            except StorageError:
                if exactly:
                    raise
                port = self._serve(host, 0, tls)
        self.address = f"{self._host}:{port}"
        return None if self.is_slave else self.address

    def _serve(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        master = MasterService(
            self._store, host, port, self._settings, self._log, self._after_this,
            tls=tls, registered=lambda: self._registered, reads=LoopReads(self._loop),
        )  # fmt: skip
        port = master.start()
        self._master = master
        return port

    def start(
        self, name_servers: KnowsMaster | None, tls: ssl.SSLContext | None = None, signer: RequestSigner | None = None
    ) -> None:
        """A slave begins to copy, a master to look who has registered.

        Args:
            name_servers: say who the master is, where the settings don't, and who its slaves are.
            tls: of a slave; None: plain text.
            signer: of a slave's requests for tables; None: it has no accounts.
        """
        self._name_servers = name_servers
        if not self.is_slave:
            if self._settings.allow.registered:
                self._tasks = [self._loop.create_task(self._look_for_slaves())]
            return
        self._slave = SlaveClient(self._store, self._settings, self._log, start=self._settings.start, tls=tls)
        self._slave.start()
        slave, from_last = self._slave, self._settings.start is None
        self._sync = SlaveSync(
            self._master_broker, self._tables, slave.know, self._timers,
            lambda settings: slave.speak(ha_protocol(settings, last_file=from_last)),
            self._log, tls, signer,
        )  # fmt: skip
        self._tasks = [self._loop.create_task(self._sync.run()), self._loop.create_task(self._look())]

    async def stop(self) -> None:
        """Let slaves go, or end copying."""
        for task in self._tasks:
            task.cancel()
        for ends in (self._master, self._slave):
            if ends is not None:
                await self._loop.run_in_executor(None, ends.stop)

    def _master_broker(self) -> str:
        """`host:port` of the master's broker, whose tables we take; "" while nobody has said."""
        known = None if self._name_servers is None else self._name_servers.master_address
        return self._settings.master_broker or known or ""

    async def _look(self) -> None:
        """Follow who the name servers say is our master, unless the settings do."""
        while self._name_servers is not None and not self._settings.master_address:
            address = self._name_servers.ha_address
            if address and self._slave is not None:
                self._slave.follow(address)
            await asyncio.sleep(_LOOK_S)

    async def _look_for_slaves(self) -> None:
        """Note who has registered, for the thread that accepts slaves."""
        while True:
            elsewhere = frozenset() if self._name_servers is None else self._name_servers.slaves
            self._registered = self._own_slaves() | elsewhere
            await asyncio.sleep(_LOOK_S)
