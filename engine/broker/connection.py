"""One client's connection: frames in, frames out, and limits on both, so that no client can harm another.

What is answered while bytes of a client are taken goes out in one write. A client that does not read its answers is not
read from, either, and is disconnected when more than `output_limit` bytes wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from engine.errors import FormatError, InvalidArgument
from engine.format.hosts import Host
from engine.format.hosts import parse as parse_host
from engine.wire.command import ONEWAY, RemotingCommand
from engine.wire.frames import FrameReader, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.settings import BrokerSettings

_HIGH_WATER = 4 << 20
_NOBODY = Host(bytes(4), 0)
_INT_MASK = 0x7FFFFFFF


class Serves(Protocol):
    """Who answers."""

    def received(self, connection: Connection, request: RemotingCommand) -> None:
        """A request has come."""

    def opened(self, connection: Connection) -> bool:
        """A client is there; False when it can't be served."""

    def lost(self, connection: Connection) -> None:
        """A client has gone."""


class Connection(asyncio.Protocol):
    """See the module.

    Attributes:
        address: `ip:port` of the client.
        host: the same as a record has it: the bornHost of what it sends.
        active: the loop's time at which bytes came or went last, s.
    """

    def __init__(self, server: Serves, settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._limit = settings.output_limit
        self._loop = loop
        self._reader = FrameReader(settings.frame_limit)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._out: list[bytes | memoryview] | None = None
        self.address = ""
        self.host = _NOBODY
        self.active = loop.time()
        self.fault: str | None = None

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of asyncio."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport = transport
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = f"{name[0]}:{name[1]}"
            with contextlib.suppress(InvalidArgument):
                self.host = parse_host(self.address)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        if not self._server.opened(self):
            transport.close()

    def data_received(self, data: bytes) -> None:
        """As of asyncio."""
        self.active = self._loop.time()
        out: list[bytes | memoryview] = []
        self._out = out
        try:
            for command in self._reader.feed(data):
                if command.is_response:
                    self._answered(command)
                else:
                    self._server.received(self, command)
        except FormatError as error:
            self.fault = str(error)
            self.close()
        finally:
            self._out = None
            if out:
                self._write(out)

    def connection_lost(self, exc: Exception | None) -> None:
        """As of asyncio."""
        del exc
        self._transport = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the client has gone"))
        self._waiting.clear()
        self._server.lost(self)

    def pause_writing(self) -> None:
        """As of asyncio: the client doesn't read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """As of asyncio."""
        if self._transport is not None:
            self._transport.resume_reading()

    # --- for the server ---------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client is there."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, command: RemotingCommand) -> None:
        """Give the client a command; nothing when it has gone."""
        if self._transport is None:
            return
        head, body = encode(command)
        if self._out is not None:
            self._out.append(head)
            if len(body):
                self._out.append(body)
        else:
            self._write([head, body] if len(body) else [head])

    def send_frame(self, frame: bytes) -> None:
        """Give the client a whole frame; nothing when it has gone."""
        if self._out is not None:
            self._out.append(frame)
        elif self._transport is not None:
            self._write([frame])

    def answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Answer a request, unless nobody waits for it."""
        if not request.is_oneway:
            self.send(answer)

    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """A request of ours that nobody answers."""
        self.send(RemotingCommand(code, self._next_opaque(), ONEWAY, None, ext, body))

    async def ask(self, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """A request of ours and the client's answer.

        Raises:
            TimeoutError, ConnectionError.
        """
        opaque = self._next_opaque()
        future = self._loop.create_future()
        self._waiting[opaque] = future
        try:
            self.send(request._replace(opaque=opaque, flag=0))
            answer: RemotingCommand = await asyncio.wait_for(future, timeout_s)
            return answer
        finally:
            self._waiting.pop(opaque, None)

    def close(self) -> None:
        """Say good-bye."""
        if self._transport is not None:
            self._transport.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _answered(self, command: RemotingCommand) -> None:
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    def _write(self, parts: list[Any]) -> None:
        transport = self._transport
        if transport is None:
            return
        self.active = self._loop.time()
        transport.writelines(parts)
        if transport.get_write_buffer_size() > self._limit:
            self.fault = f"{self._limit} bytes wait for it"
            transport.abort()

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 & _INT_MASK
        return self._opaque
