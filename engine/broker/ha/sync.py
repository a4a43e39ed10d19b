"""A slave's tables follow its master's: topics, groups, offsets, delayed messages' offsets, every EVERY_S.

So does how far timer messages are delivered, every TIMERS_S: it counts as soon as the log is here up to where the
master's was when it said so. What is asked first is said of an earlier log.

Consumers read on a slave with its own tables; what they commit there does not go back to the master, as with Apache.

Source: SlaveSynchronize (4.9.8), BrokerController#handleSlaveSynchronize; BROKER.md 3.2.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from engine.client import master_tables
from engine.client.connection import RemotingClient
from engine.errors import RStoreError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    Take = Callable[[dict[str, Any]], Awaitable[None] | None]
    """Takes over a table of a master's, in the loop's thread; what it gives is awaited."""

    from engine.client.signed_peer import RequestSigner
    from engine.format.timer_progress import TimerProgress

FIRST_S, EVERY_S, TIMERS_S = 3.0, 10.0, 3.0


class SlaveSync:
    """See the module. `run` it as a task of the loop.

    Args:
        master: `host:port` of the master's broker, "" while it is not known; asked before each round.
        take: by the table's file name, what takes it over; in the loop's thread.
        know: called with where the master's log begins and ends (physical).
        timers: called with how far a master of timer messages has delivered them, and where its log ended after that.
        settings: called once with the settings of each master that gives them.
        log: gets what fails.
        tls: None: plain text.
        signer: signs where the master demands it; None: we have no accounts.
    """

    def __init__(
        self,
        master: Callable[[], str],
        take: Mapping[str, Take],
        know: Callable[[int, int], None],
        timers: Callable[[TimerProgress, int], None],
        settings: Callable[[dict[str, str]], None],
        log: logging.Logger,
        tls: ssl.SSLContext | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        self._signer = signer
        self._asked = master_tables.AskedMaster("", None, log)
        self._tls = tls
        self._master = master
        self._know = know
        self._timers = timers
        self._timed = False
        self._settings = settings
        self._settings_of = ""
        self._take = take
        self._log = log
        self.rounds = 0
        """Full ones that went well."""

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            address = self._master()
            if address:
                await self._round(address)
            await self._rest(address)

    async def _rest(self, address: str) -> None:
        rest = EVERY_S
        while rest > 0:
            pause = min(TIMERS_S, rest)
            await asyncio.sleep(pause)
            rest -= pause
            if rest > 0 and self._timed:
                try:
                    async with await RemotingClient.connect(address, tls=self._tls) as client:
                        await self._extent(self._asked.by(client))
                except RStoreError:
                    return  # the next round says so

    async def _extent(self, master: master_tables.AskedMaster) -> None:
        progress = await master_tables.timers(master)
        self._timed = progress is not None
        low, high = master_tables.extent(await master_tables.runtime(master))
        self._know(low, high)
        if progress is not None:
            self._timers(progress, high)

    async def _round(self, address: str) -> None:
        wrong = 0
        if self._asked.address != address:
            self._asked = master_tables.AskedMaster(address, self._signer, self._log)
        try:
            async with await RemotingClient.connect(address, tls=self._tls) as client:
                master = self._asked.by(client)
                await self._extent(master)
                await self._ask_settings(master)
                for name, take in self._take.items():
                    try:
                        taking = take(await master_tables.fetch(master, name))
                        if taking is not None:
                            await taking
                    except (RStoreError, TypeError, ValueError, AttributeError) as error:
                        wrong += 1
                        extra = {"table": name, "peer": address, "why": str(error)}
                        self._log.warning("configuration table of the master not copied", extra=extra)
        except RStoreError as error:
            wrong += 1
            self._log.warning(
                "configuration tables of the master not reachable", extra={"peer": address, "why": str(error)}
            )
        self.rounds += not wrong

    async def _ask_settings(self, master: master_tables.AskedMaster) -> None:
        if self._settings_of == master.address:
            return
        try:
            self._settings(await master_tables.settings(master))
        except RStoreError as error:
            self._log.warning("the master did not send its settings", extra={"peer": master.address, "why": str(error)})
        else:
            self._settings_of = master.address
