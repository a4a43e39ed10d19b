"""Clients of the cluster that a console shows: one for each account that is logged in, made when it asks first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.client.admin.session import AdminSession
from engine.client.client import ClientConfig, ClusterClient
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, RStoreError

if TYPE_CHECKING:
    from engine.client.peers import Credentials
    from engine.console.options import ConsoleOptions

MOST = 32


@dataclass(frozen=True, slots=True)
class Connected:
    """A client, and what asks through it."""

    client: ClusterClient
    admin: AdminSession


class Clusters:
    """See the module. For one loop."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._connected: dict[Credentials | None, Connected] = {}
        self._one = asyncio.Lock()

    async def of(self, account: Credentials | None) -> Connected:
        """The client of an account. Raises InvalidArgument: no cluster is named; PeerLost: no name server is there."""
        account = account or self._options.account
        async with self._one:
            if account not in self._connected:
                if len(self._connected) >= MOST:
                    oldest = next(iter(self._connected))
                    await self.leave(self._connected.pop(oldest))
                self._connected[account] = await self.connect(account)
            return self._connected[account]

    async def connect(self, account: Credentials | None) -> Connected:
        """A client of its own. Raises as `of`."""
        servers = self._options.name_servers
        if not servers:
            raise InvalidArgument("this console shows no cluster", hint="rstore console --namesrv HOST:PORT")
        client = ClusterClient(ClientConfig(servers, account=account, tls=self._options.tls))
        await client.__aenter__()
        return Connected(client, AdminSession(client))

    async def close(self) -> None:
        """Leave the cluster."""
        for one in self._connected.values():
            await self.leave(one)
        self._connected.clear()

    @staticmethod
    async def leave(one: Connected) -> None:
        """End a client."""
        try:
            await one.client.__aexit__(None, None, None)
        except RStoreError:
            return
