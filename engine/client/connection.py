"""One connection to a broker or name server, as its client: requests and their answers, many at a time.

    async with await RemotingClient.connect("127.0.0.1:9876") as client:
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})

For asyncio, and for one loop. Whoever wants to be answered by another after a failure connects again: a client that has
lost its connection stays lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from engine.errors import FormatError, PeerLost
from engine.wire.address import parse_address
from engine.wire.command import ONEWAY, RemotingCommand
from engine.wire.correlation import Correlation
from engine.wire.frames import FrameReader, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

TIMEOUT_S = 3.0
"""How long is waited for a connection or an answer. Source: NettyClientConfig, DefaultMQProducer#sendMsgTimeout."""
_GOODBYE_S = 1.0
_PIECE = 1 << 16


class RemotingClient:
    """See the module. Made by `connect`. An async context manager.

    Attributes:
        address: `host:port` of the peer.
    """

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._writer = writer
        self._requests: Correlation[asyncio.Future[RemotingCommand]] = Correlation()
        self._ended: Callable[[], None] = lambda: None
        self._asked: Callable[[RemotingCommand], None] = lambda request: None
        self._lost: str | None = None
        self._waiting: list[bytes | memoryview] = []
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    @classmethod
    async def connect(
        cls, address: str, *, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> RemotingClient:
        """Connect to `host:port` (an IPv6 host may stand in brackets).

        Raises:
            InvalidArgument: no such address. PeerLost: nobody answers there.
        """
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(timeout_s):
                return cls(address, *await asyncio.open_connection(host, port, ssl=tls))
        except TimeoutError:
            raise PeerLost(f"{address} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise PeerLost(f"cannot connect to {address}: {(error.strerror or str(error)).lower()}") from None

    @property
    def is_open(self) -> bool:
        """Whether the peer is there, as far as is known."""
        return self._lost is None and not self._writer.is_closing()

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, in the loop, when the connection ends."""
        self._ended = tell

    def when_asked(self, tell: Callable[[RemotingCommand], None]) -> None:
        """Have `tell` called, in the loop, with each request of the peer; `answer` answers one."""
        self._asked = tell

    @property
    def local(self) -> tuple[str, int] | None:
        """Our own end of this connection, IP and port; None: the system does not say."""
        name = self._writer.get_extra_info("sockname")
        return (str(name[0]), int(name[1])) if name else None

    def answer(self, answer: RemotingCommand) -> None:
        """Send an answer to a request of the peer; nothing where the connection is lost."""
        if self.is_open:
            self._write_soon(encode(answer))

    async def tell(self, code: int, ext: Mapping[str, str] | None = None, body: bytes | memoryview = b"") -> None:
        """Send a request that nobody answers.

        Raises:
            PeerLost: the connection is lost.
        """
        self._demand_open()
        opaque = self._requests.next_opaque()
        try:
            self._write_soon(encode(RemotingCommand(code, opaque, ONEWAY, None, ext, body)))
            self._write_now()
            await self._writer.drain()
        except OSError as error:
            raise PeerLost(f"{self.address}: {error.strerror or error}") from None

    async def ask(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> RemotingCommand:
        """The answer to a request, whatever its code.

        Raises:
            PeerLost: the connection is lost, or there is no answer in time.
        """
        self._demand_open()
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        opaque = self._requests.begin(future)
        try:
            self._write_soon(encode(RemotingCommand(code, opaque, 0, None, ext, body)))
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
                return await future
        except TimeoutError:
            raise PeerLost(f"{self.address} did not answer request {int(code)} within {timeout_s:g} s") from None
        except OSError as error:
            raise PeerLost(f"{self.address}: {error.strerror or error}") from None
        finally:
            self._requests.forget(opaque)

    async def close(self) -> None:
        """End the connection; who waits gets an error."""
        self._end("closed by this process")
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        with contextlib.suppress(OSError):
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._writer.wait_closed()
            except TimeoutError:  # a peer that takes nothing would be waited for until TCP gives up
                self._writer.transport.abort()

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _write_soon(self, parts: Iterable[bytes | memoryview]) -> None:
        """What is written in one turn of the loop goes to the system in one call: that is a third of a send's cost."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._write_now)
        self._waiting += parts

    def _write_now(self) -> None:
        parts, self._waiting = self._waiting, []
        if parts and self.is_open:
            self._writer.writelines(parts)

    def _demand_open(self) -> None:
        """Nothing is written to a connection that has ended, though the reader may not have been told yet."""
        if not self.is_open:
            raise PeerLost(f"{self.address}: {self._lost or 'the connection was closed'}")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        why = "the connection was closed"
        try:
            while data := await reader.read(_PIECE):
                for command in frames.feed(data):
                    if not command.is_response:
                        self._asked(command)
                        continue
                    future = self._requests.settle(command.opaque)
                    if future is not None and not future.done():
                        future.set_result(command)
        except (OSError, FormatError) as error:
            why = str(error)
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        if self._lost is None:
            self._write_now()
            self._lost = why
            self._writer.close()
            self._ended()
        for future in self._requests.close():
            if not future.done():
                future.set_exception(PeerLost(f"{self.address}: {self._lost}"))
                future.exception()  # whoever asked may have failed in its send, and never look
