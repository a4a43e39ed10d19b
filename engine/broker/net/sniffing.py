"""A listener that looks at the first byte of a connection before anything reads it: TLS, or plain text, or neither.

The byte is peeked at in the socket, so whoever serves the connection gets all of it: the event loop's TLS, or the
protocol itself. Source: NettyRemotingServer.HandshakeHandler.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from engine.broker.net.tls import TlsMode
from engine.wire.frames import TLS_HELLO

_HELLO_S = 120.0
"""A connection that says nothing for so long is closed, as an idle one. Source: serverChannelMaxIdleTimeSeconds."""
_HANDSHAKE_S = 10.0
_AGAIN_S = 0.5


class SniffingServer:
    """Listens on every address of a host.

    Args:
        make: the protocol of a connection.
        context: for those that want TLS.
        mode: whether others are served.
        greeted: is kept: those between their accept and their protocol, of this listener and others.
        has_room: whether there is room for one more.
        refused: called with those that are not served: address, why.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        mode: TlsMode,
        greeted: set[asyncio.Task[None]],
        has_room: Callable[[], bool],
        refused: Callable[[str, str], None],
        log: logging.Logger,
    ) -> None:
        self._loop = loop
        self._make = make
        self._context = context
        self._mode = mode
        self._greeted = greeted
        self._has_room = has_room
        self._refused = refused
        self._log = log
        self._accepting: list[asyncio.Task[None]] = []
        self.sockets: tuple[socket.socket, ...] = ()

    async def start(self, host: str, port: int, backlog: int) -> SniffingServer:
        """Listen. Raises OSError."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in addresses):
                made = socket.create_server(address[:2], family=family, backlog=backlog)
                sockets.append(made)
                made.setblocking(False)
        except OSError:
            for made in sockets:
                made.close()
            raise
        self.sockets = tuple(sockets)
        self._accepting = [self._loop.create_task(self._accept(one)) for one in sockets]
        return self

    def close(self) -> None:
        """Stop; connections that have their protocol stay."""
        for task in (*self._accepting, *self._greeted):
            task.cancel()
        for one in self.sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                taken, peer = await self._loop.sock_accept(listening)
            except OSError as error:  # no descriptors left, most likely: others will be closed
                self._log.error("accept failed; retrying", extra={"why": str(error)})
                await asyncio.sleep(_AGAIN_S)
                continue
            if not self._has_room():
                taken.close()
                self._say_refused(peer, "too many connections")
                continue
            task = self._loop.create_task(self._greet(taken, peer))
            self._greeted.add(task)
            task.add_done_callback(self._greeted.discard)

    async def _greet(self, taken: socket.socket, peer: object) -> None:
        tls = await self._wants_tls(taken, peer)
        if tls is None:
            taken.close()
            return
        # From here on the loop owns the socket, and closes it.
        try:
            if tls:
                await self._loop.connect_accepted_socket(
                    self._make, taken, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_S
                )
            else:
                await self._loop.connect_accepted_socket(self._make, taken)
        except OSError as error:  # ssl.SSLError and TimeoutError are, too
            self._say_refused(peer, f"{type(error).__name__}: {error}")

    async def _wants_tls(self, taken: socket.socket, peer: object) -> bool | None:
        """What the first byte asks for; None: it is not served, or nothing came."""
        try:
            async with asyncio.timeout(_HELLO_S):
                first = await self._first_byte(taken)
        except OSError as error:
            self._say_refused(peer, f"{type(error).__name__}: {error}")
            return None
        except asyncio.CancelledError:
            taken.close()
            raise
        if not first:
            return None
        tls = first[0] == TLS_HELLO
        if not tls and self._mode is TlsMode.ENFORCING:
            self._say_refused(peer, "plain text, but only TLS is accepted")
            return None
        return tls

    async def _first_byte(self, taken: socket.socket) -> bytes:
        """The first byte, left where it is; b"" when the peer has gone. Raises OSError."""
        taken.setblocking(False)
        while True:
            try:
                return taken.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                pass
            ready = self._loop.create_future()
            self._loop.add_reader(taken.fileno(), _set, ready)
            try:
                await ready
            finally:
                self._loop.remove_reader(taken.fileno())

    def _say_refused(self, peer: object, why: str) -> None:
        where = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._refused(where, why)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
