"""The connections of one client: to each address one, made when it is needed, and signed where there is an account."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.client.connection import TIMEOUT_S, RemotingClient
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, PeerLost
from engine.wire.signing import signed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from engine.wire.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom the brokers' ACL knows us as. `token`: of an account that is given for a time."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Credentials({self.access_key!r})"


class Peers:
    """See the module. For one loop.

    Args:
        asked: is called with each request of a peer, and its connection.
    """

    def __init__(
        self,
        asked: Callable[[RemotingClient, RemotingCommand], None],
        *,
        tls: ssl.SSLContext | None = None,
        account: Credentials | None = None,
        connect_s: float = TIMEOUT_S,
    ) -> None:
        self._asked = asked
        self._tls = tls
        self._account = account
        self._connect_s = connect_s
        self._open: dict[str, RemotingClient] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def to(self, address: str) -> RemotingClient:
        """The connection to `host:port`.

        Raises:
            PeerLost: nobody answers there, or there is no such address.
        """
        known = self._open.get(address)
        if known is not None and known.is_open:
            return known
        async with self._locks.setdefault(address, asyncio.Lock()):
            known = self._open.get(address)
            if known is not None and known.is_open:
                return known
            if known is not None:
                await known.close()
            try:
                made = await RemotingClient.connect(address, timeout_s=self._connect_s, tls=self._tls)
            except InvalidArgument as error:  # told by a name server: what users give is looked at before
                raise PeerLost(f"a broker is registered with an invalid address: {error.message}") from None
            made.when_asked(lambda request: self._asked(made, request))
            self._open[address] = made
            return made

    async def ask(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> RemotingCommand:
        """The answer of whoever is at `host:port`, whatever its code.

        Raises:
            PeerLost: there is no such address, nobody is there, or answers in time.
        """
        peer = await self.to(address)
        return await peer.ask(code, self._signed(ext, body), body, timeout_s=timeout_s)

    async def tell(
        self, address: str, code: int, ext: Mapping[str, str] | None = None, body: bytes | memoryview = b""
    ) -> None:
        """A request that nobody answers. Raises as `ask`."""
        peer = await self.to(address)
        await peer.tell(code, self._signed(ext, body), body)

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(peer.close() for peer in self._open.values()))
        self._open.clear()

    def _signed(self, ext: Mapping[str, str] | None, body: bytes | memoryview) -> Mapping[str, str] | None:
        account = self._account
        if account is None:
            return ext
        return signed(ext or {}, body, account.access_key, account.secret_key.encode(), account.token)
