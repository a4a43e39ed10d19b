"""The daemon's listeners and its switchboard: which handler answers which code, on which port.

Everything runs in the loop's thread; what waits for a disk or a slave answers later. A handler's error is that
request's answer (SYSTEM_ERROR with what went wrong), never the connection's end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Protocol

from engine.broker.net.connection import OTHER, Connection
from engine.broker.net.sniffing import SniffingServer
from engine.broker.requests.answers import Answer, code_of
from engine.broker.requests.json_body import NotRead
from engine.broker.tables.config_file import NotYet
from engine.broker.turns import HELD_S, Turns
from engine.errors import RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.requests.handler import Handler
    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.wire.command import RemotingCommand

_BACKLOG = 1024


class ConnectionRegistry:
    """Who is connected, by whichever listener: each has a descriptor, and they may not take those of the store.

    Attributes:
        connections: that are open.
        greeted: those that have not said yet whether they want TLS, or not shown yet who they are.
    """

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.greeted: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self.connections) + len(self.greeted)


class Switchboard:
    """Takes requests of one listener's connections and has them answered.

    Args:
        settings: limits.
        handlers: by request code.
        lost: called with connections that have gone.
        name: of the listener: broker, vip or names.
        registry: those of all listeners, whom the limit is about (default: this one's).
        turns: of the loop, which the listeners share.

    Attributes:
        connections: that are open.
        answers: see RequestSink.
        refused: connections, as there were too many, or not as TLS wants them.
        cut: connections that were cut off, by reason: see Connection.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        handlers: Mapping[int, Handler],
        lost: Callable[[Connection], None],
        log: logging.Logger,
        turns: Turns,
        name: str = "broker",
        registry: ConnectionRegistry | None = None,
    ) -> None:
        self._settings = settings
        self._log = log
        self.turns = turns
        self.name = name
        self._large: dict[Connection, int] = {}
        self._held = 0
        self.connections: set[Connection] = set()
        self.registry = ConnectionRegistry() if registry is None else registry
        self.answers: dict[int, dict[int, int]] = {OTHER: {}}
        self.refused = 0
        self.cut = {"frame": 0, "input": 0, "output": 0, "idle": 0}
        self.serve(handlers, lost)

    def serve(self, handlers: Mapping[int, Handler], lost: Callable[[Connection], None]) -> None:
        """Have these answer from now on."""
        self._handlers, self._lost = handlers, lost
        for code in handlers:
            self.answers.setdefault(int(code), {0: 0})

    def opened(self, connection: Connection) -> bool:
        """As of RequestSink."""
        if len(self.registry.connections) >= self._settings.connections:
            self.refuse(connection.address, "too many connections")
            return False
        self.connections.add(connection)
        self.registry.connections.add(connection)
        return True

    def refuse(self, peer: str, why: str) -> None:
        """A connection is not served."""
        self.refused += 1
        self._log.warning("connection refused", extra={"peer": peer, "why": why})

    def lost(self, connection: Connection) -> None:
        """As of RequestSink."""
        self.connections.discard(connection)
        self.registry.connections.discard(connection)
        self._held -= self._large.pop(connection, 0)
        if connection.fault is not None:
            self.cut[connection.cut] += 1
            self._log.warning("connection closed", extra={"peer": connection.address, "why": connection.fault})
        self._lost(connection)

    def received(self, connection: Connection, request: RemotingCommand, handler: Handler | None = None) -> None:
        """As of RequestSink. `handler`: instead of that of the code."""
        if handler is None:
            handler = self._handlers.get(request.code)
        clock = self.turns.clock
        began = clock()
        try:
            if handler is None:
                answer: RemotingCommand | None = request.answer(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
                )
            else:
                answer = handler(connection, request)
        except NotYet as early:
            connection.park()
            early.table.when_kept(lambda failure: self._again(connection, request, failure))
            return
        except NotRead as early:
            connection.park()
            self.turns.beside(early.work, partial(self._read, connection, request, early.then or handler))
            return
        except Answer as early:
            answer = request.answer(early.code, early.remark, early.ext)
        except RStoreError as error:
            answer = request.answer(code_of(error), str(error))
        except Exception as error:  # noqa: BLE001 - the request's fault or ours: never the connection's end
            self._log.exception("request failed", extra={"peer": connection.address, "code": request.code})
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None:
            connection.answer(request, answer)
        if clock() - began > HELD_S:
            self.turns.note(request.code, began)

    def _again(self, connection: Connection, request: RemotingCommand, failure: RStoreError | None) -> None:
        """What the request needed is there now, or can't be."""
        connection.go_on()
        if failure is None:
            self.received(connection, request)
        else:
            connection.answer(request, request.answer(code_of(failure), str(failure)))

    def _read(
        self,
        connection: Connection,
        request: RemotingCommand,
        handler: Handler | None,
        outcome: asyncio.Future[RemotingCommand],
    ) -> None:
        """The request's body was read beside the loop, or can't be."""
        connection.go_on()
        if not connection.is_open:
            return
        try:
            read = outcome.result()
        except Answer as refused:
            connection.answer(request, request.answer(refused.code, refused.remark, refused.ext))
        except Exception as error:  # noqa: BLE001 - as `received`
            self._log.exception("request failed", extra={"peer": connection.address, "code": request.code})
            connection.answer(request, request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))
        else:
            self.received(connection, read, handler)

    def holds(self, connection: Connection, size: int) -> None:
        """As of RequestSink: who has been at a large frame for longest goes when all of them are too many bytes."""
        self._held += size - self._large.get(connection, 0)
        if size:
            self._large[connection] = size
        else:
            self._large.pop(connection, None)
        while self._held > self._settings.input_limit:
            slowest = next(iter(self._large))
            self._held -= self._large.pop(slowest)
            slowest.give_up(f"incomplete frames of more than {self._settings.input_limit} bytes", "input")

    def close_idle(self, now: float) -> None:
        """Close the connections on which nothing has come or gone for too long. `now`: the loop's time, s."""
        limit = now - self._settings.idle_s
        for connection in [one for one in self.connections if one.active < limit]:
            if connection.output_waiting:  # and would for ever: a good-bye comes after it
                why = f"the client read nothing for {self._settings.idle_s} s"
                connection.give_up(why, "idle")
            else:
                self.cut["idle"] += 1
                connection.close()


class Listener(Protocol):
    """What listens on a port."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Those that it has."""

    def close(self) -> None:
        """Stop."""


async def listen(
    board: Switchboard,
    settings: BrokerSettings,
    loop: asyncio.AbstractEventLoop,
    port: int,
    context: ssl.SSLContext | None,
    log: logging.Logger,
) -> Listener:
    """A listener; with a context, for TLS. Raises OSError: the port is taken."""

    def make() -> Connection:
        return Connection(board, settings, loop)

    if context is None:
        return await loop.create_server(make, settings.listen_host, port, backlog=_BACKLOG)
    registry = board.registry
    server = SniffingServer(
        loop, make, context, settings.tls.mode, registry.greeted, lambda: len(registry) < settings.connections,
        board.refuse, log,
    )  # fmt: skip
    return await server.start(settings.listen_host, port, _BACKLOG)
