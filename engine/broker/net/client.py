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

from engine.errors import FormatError, StorageError
from engine.wire.address import parse_address
from engine.wire.command import RemotingCommand
from engine.wire.correlation import Correlation
from engine.wire.frames import FrameReader, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
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
        self._lost: str | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    @classmethod
    async def connect(
        cls, address: str, *, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> RemotingClient:
        """Connect to `host:port` (an IPv6 host may stand in brackets).

        Raises:
            InvalidArgument: no such address. StorageError: nobody answers there.
        """
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(timeout_s):
                return cls(address, *await asyncio.open_connection(host, port, ssl=tls))
        except TimeoutError:
            raise StorageError(f"{address} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise StorageError(f"cannot connect to {address}: {(error.strerror or str(error)).lower()}") from None

    @property
    def is_open(self) -> bool:
        """Whether the peer is there, as far as is known."""
        return self._lost is None

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, in the loop, when the connection ends."""
        self._ended = tell

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
            StorageError: the connection is lost, or there is no answer in time.
        """
        if self._lost is not None:
            raise StorageError(f"{self.address}: {self._lost}")
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        opaque = self._requests.begin(future)
        try:
            self._writer.writelines(encode(RemotingCommand(code, opaque, 0, None, ext, body)))
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
                return await future
        except TimeoutError:
            raise StorageError(f"{self.address} did not answer request {int(code)} within {timeout_s:g} s") from None
        except OSError as error:
            raise StorageError(f"{self.address}: {error.strerror or error}") from None
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

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        why = "the connection was closed"
        try:
            while data := await reader.read(_PIECE):
                for command in frames.feed(data):
                    if not command.is_response:
                        continue  # what a broker tells its clients of their groups: we are in none
                    future = self._requests.settle(command.opaque)
                    if future is not None and not future.done():
                        future.set_result(command)
        except (OSError, FormatError) as error:
            why = str(error)
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
            self._writer.close()
            self._ended()
        for future in self._requests.close():
            if not future.done():
                future.set_exception(StorageError(f"{self.address}: {self._lost}"))
