"""What a broker does as a master or as a slave, beside serving clients.

A master has the service that slaves copy its log from; with SYNC_MASTER puts wait for them. A slave copies the log and
the tables of its master: the one that it was told, or the one that a name server knows.

Source: BrokerController#handleSlaveSynchronize, DefaultMessageStore#start (4.9.8).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from engine.broker.ha import metadata
from engine.broker.ha.master import MasterService, SlaveState
from engine.broker.ha.slave import Copied, LinkStatus, SlaveClient
from engine.broker.ha.sync import SlaveSync
from engine.config import BrokerRole
from engine.errors import StorageError

if TYPE_CHECKING:
    from engine.broker.broker import Broker
    from engine.broker.ha.settings import HaSettings
    from engine.broker.name_servers import NameServers

_LOOK_S = 1.0


class Role:
    """See the module. For the loop's thread alone.

    Args:
        broker: whose store and tables.
        settings: of replication.
        log: told what happens.

    Attributes:
        address: `ip:port` of a master's service, as name servers are told.
    """

    def __init__(self, broker: Broker, settings: HaSettings, log: logging.Logger) -> None:
        self._broker = broker
        self._settings = settings
        self._log = log
        self._master: MasterService | None = None
        self._slave: SlaveClient | None = None
        self._sync: SlaveSync | None = None
        self._name_servers: NameServers | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.address = ""

    @property
    def is_slave(self) -> bool:
        """Whether our role is SLAVE."""
        return self._broker.store.config.broker_role is BrokerRole.SLAVE

    @property
    def slaves(self) -> tuple[SlaveState, ...]:
        """Who copies from us."""
        return () if self._master is None else self._master.slaves

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
        found: dict[str, Any] = {
            "role": self._broker.store.config.broker_role.value,
            "address": None if self.is_slave else self.address,
            "slaves": [{"address": one.address, "acked": one.acked, "behind": one.behind} for one in self.slaves],
        }
        if copied is not None:
            found["copied"] = {
                "master": copied.master,
                "state": copied.status.value,
                "end": copied.end,
                "masterEnd": copied.master_end,
                "behind": copied.behind,
                "appended": copied.appended,
                "compared": copied.compared,
                "rounds": self.rounds,
                "error": None if copied.error is None else str(copied.error),
            }
        return found

    @property
    def divergence(self) -> str | None:
        """What differs; None: nothing that is known."""
        copied = self.copied
        if copied is None or copied.status is not LinkStatus.DIVERGED:
            return None
        return str(copied.error)

    def listen(self, host: str, port: int, *, exactly: bool) -> str | None:
        """A master's service; where it is, None on a slave. `exactly`: that port, or none.

        Raises:
            StorageError: the port is taken.
        """
        broker = self._broker
        if not self.is_slave:
            after = broker.flow.after_this
            master = MasterService(broker.store, host, port, self._settings, self._log, after)
            try:
                port = master.start()
            except StorageError:
                if exactly:
                    raise
                master = MasterService(broker.store, host, 0, self._settings, self._log, after)
                port = master.start()
            self._master = master
        self.address = f"{broker.settings.broker_ip2 or broker.settings.broker_ip1}:{port}"
        return None if self.is_slave else self.address

    def start(self, name_servers: NameServers | None) -> None:
        """A slave begins to copy. `name_servers`: say who the master is, where the settings don't."""
        if not self.is_slave:
            return
        self._name_servers = name_servers
        self._slave = SlaveClient(self._broker.store, self._settings, self._log, start=self._settings.start)
        self._slave.start()
        broker = self._broker
        take = {
            metadata.TOPICS: broker.topics.take,
            metadata.OFFSETS: broker.offsets.take,
            metadata.DELAYS: broker.schedule.take,
            metadata.GROUPS: broker.groups.take,
        }
        self._sync = SlaveSync(self._master_broker, take, self._slave.know, self._log)
        self._tasks = [broker.loop.create_task(self._sync.run()), broker.loop.create_task(self._look())]

    async def stop(self) -> None:
        """Let slaves go, or end copying."""
        for task in self._tasks:
            task.cancel()
        for ends in (self._master, self._slave):
            if ends is not None:
                await self._broker.loop.run_in_executor(None, ends.stop)

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
