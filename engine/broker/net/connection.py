"""One client's connection: frames in, frames out, and limits on both, so that no client can harm another.

What is answered while bytes of a client are taken goes out in one write. A client that does not read its answers is not
read from, either, and is disconnected when more than `output_limit` bytes wait for it. A client whose requests take
more than a turn of the loop has the rest of them handled in its next turns, and is not read from meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Protocol, cast

from engine.broker.net.headers import command_of
from engine.broker.turns import TURN_S
from engine.errors import FormatError, InvalidArgument
from engine.format.hosts import Host
from engine.format.hosts import parse as parse_host
from engine.wire.codes import LanguageCode, ResponseCode
from engine.wire.command import ONEWAY, RESPONSE, RemotingCommand
from engine.wire.correlation import Correlation
from engine.wire.frames import FrameReader, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.broker.turns import Turns

_HIGH_WATER = 4 << 20
_LARGE = 1 << 18
"""Bytes of a frame that isn't whole yet from which on they are counted: one read gives no more."""
_NOBODY = Host(bytes(4), 0)
OTHER = -1
"""Instead of the request codes that are not served: a client can't make us count each number that there is."""


class RequestSink(Protocol):
    """Who answers.

    Attributes:
        answers: how often each request code was answered with each response code; OTHER: codes that nobody knows.
        turns: of the loop.
    """

    answers: dict[int, dict[int, int]]
    turns: Turns

    def received(self, connection: Connection, request: RemotingCommand) -> None:
        """A request has come."""

    def opened(self, connection: Connection) -> bool:
        """A client is there; False when it can't be served."""

    def lost(self, connection: Connection) -> None:
        """A client has gone."""

    def holds(self, connection: Connection, size: int) -> None:
        """So many bytes of a large frame are here, and the rest isn't; 0: it was whole."""


class Connection(asyncio.Protocol):
    """See the module.

    Attributes:
        address: `ip:port` of the client.
        host: the same as a record has it: the bornHost of what it sends.
        active: the loop's time at which bytes came or went last, s.
        fault: why it was cut off by us, None: it wasn't. `cut`: the same as one word: "frame", "input" or "output".
    """

    def __init__(self, server: RequestSink, settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._limit = settings.output_limit
        self._loop = loop
        self._reader = FrameReader(settings.frame_limit, command_of)
        self._transport: asyncio.Transport | None = None
        self._requests: Correlation[asyncio.Future[RemotingCommand]] = Correlation()
        self._out: list[bytes | memoryview] = []
        self._flushes = False
        self._large = False
        self._parked = 0
        self._turns = server.turns
        self._commands: Iterator[RemotingCommand] | None = None
        self._rests = False
        self.address = ""
        self.host = _NOBODY
        self.active = loop.time()
        self.fault: str | None = None
        self.cut = ""
        self._answers = server.answers

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
        coming = self._reader.feed(data)
        if self._commands is None:
            self._commands = coming
            self._handle()
        else:  # it was read before reading was paused
            self._commands = itertools.chain(self._commands, coming)

    def connection_lost(self, exc: Exception | None) -> None:
        """As of asyncio."""
        del exc
        self._transport = self._commands = None
        for future in self._requests.close():
            if not future.done():
                future.set_exception(ConnectionError("the client is disconnected"))
        self._server.lost(self)

    def pause_writing(self) -> None:
        """As of asyncio: the client doesn't read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """As of asyncio."""
        if self._transport is not None and not self._parked:
            self._transport.resume_reading()

    # --- for the server ---------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client is there."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def ip(self) -> str:
        """The client's address without its port."""
        return self.address.rpartition(":")[0]

    @property
    def output_waiting(self) -> int:
        """Bytes that it has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, command: RemotingCommand) -> None:
        """Give the client a command; nothing when it has gone."""
        if self._transport is None:
            return
        head, body = encode(command)
        self._push(head)
        if len(body):
            self._push(body)

    def answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Answer a request, unless nobody waits for it."""
        counts = self._answers.get(request.code) or self._answers[OTHER]
        counts[answer.code] = counts.get(answer.code, 0) + 1
        if request.is_oneway:
            return
        try:
            self.send(answer)
        except FormatError as error:  # no frame holds it
            self.send(request.answer(ResponseCode.SYSTEM_ERROR, error.message))

    def answer_frame(self, request: RemotingCommand, frame: bytes) -> None:
        """The same with a whole frame that says SUCCESS."""
        counts = self._answers.get(request.code) or self._answers[OTHER]
        counts[0] = counts.get(0, 0) + 1
        if not request.flag & ONEWAY and self._transport is not None:
            self._push(frame)

    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """A request of ours that nobody answers."""
        self.send(RemotingCommand(code, self._requests.next_opaque(), ONEWAY, None, ext, body, LanguageCode.JAVA))

    async def ask(self, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """A request of ours and the client's answer.

        Raises:
            TimeoutError, ConnectionError.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        opaque = self._requests.begin(future)
        try:
            self.send(request._replace(opaque=opaque, flag=0))
            return await asyncio.wait_for(future, timeout_s)
        finally:
            self._requests.forget(opaque)

    def park(self) -> None:
        """One of its requests waits for something of ours: nothing more is read meanwhile."""
        self._parked += 1
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """It waits no longer."""
        self._parked -= 1
        if self._transport is not None and not self._parked:
            self._transport.resume_reading()

    def leave(self) -> None:
        """What has come and is not handled yet isn't any more, as if it had come too late."""
        self._commands = None

    def give_up(self, why: str, cut: str) -> None:
        """Hang up at once, whatever is under way. `cut`: as the attribute."""
        self.fault, self.cut = why, cut
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Say good-bye."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _handle(self) -> None:
        """Handle what has come, until the turn is over."""
        if self._commands is None or not self.is_open:
            self._commands = None
            return
        clock, over = self._turns.clock, True
        end = clock() + TURN_S
        self._flushes = True
        try:
            for command in self._commands:
                if clock() >= end:
                    self._commands, over = itertools.chain((command,), self._commands), False
                    break
                if command.flag & RESPONSE:
                    self._answered(command)
                else:
                    self._server.received(self, command)
        except FormatError as error:
            self.fault, self.cut = str(error), "frame"
            self.close()
        finally:
            self._flush()
        if over:
            self._handled()
        else:
            if not self._rests:
                self._rests = True
                self.park()
            self._turns.next(self._handle, request=True)

    def _handled(self) -> None:
        self._commands = None
        held = self._reader.held
        if held > _LARGE or self._large:
            self._large = held > _LARGE
            self._server.holds(self, held if self._large else 0)
        if self._rests:
            self._rests = False
            self.go_on()

    def _answered(self, command: RemotingCommand) -> None:
        future = self._requests.settle(command.opaque)
        if future is not None and not future.done():
            future.set_result(command)

    def _push(self, part: bytes | memoryview) -> None:
        """Write it together with what else is answered in this turn of the loop."""
        self._out.append(part)
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        transport, out = self._transport, self._out
        if transport is None or not out:
            return
        self._out = []
        self.active = self._loop.time()
        transport.writelines(out)
        if transport.get_write_buffer_size() > self._limit:
            self.give_up(f"more than {self._limit} unsent bytes", "output")
