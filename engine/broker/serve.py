"""`rstore serve`: the store opened, the tables read, listeners and timers started; and all of it stopped in order.

Stopping: no new connection, no new request; held pulls are answered; offsets are written; the store is closed, which
takes the abort mark away. A second start on the same store is refused by the store's lock.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.broker import health, schedule, stats
from engine.broker.broker import Broker
from engine.broker.handlers.pull import TICK_MS, PullHandler
from engine.broker.http import Operations
from engine.broker.live import Live
from engine.broker.server import Switchboard, broker_handlers, listen, name_handlers
from engine.errors import RStoreError, StorageError
from engine.store import MessageStore
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.broker.config_file import KeptTable
    from engine.broker.connection import Connection
    from engine.broker.settings import BrokerSettings
    from engine.config import StoreConfig
    from engine.services.dispatch import Arrival

_SCAN_S = 10
_SWITCH_S = 0.0005
"""How long a thread of the store may keep the loop waiting for the interpreter; Python's own 5 ms are a slow answer."""
_VIP_BELOW = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """Where clients find us. `metrics`: where who watches does."""

    broker: str
    names: str | None
    metrics: str | None = None


def serve(
    config: StoreConfig,
    settings: BrokerSettings,
    *,
    ready: Callable[[Listening], None] = lambda _: None,
    log: logging.Logger | None = None,
) -> None:
    """Run the daemon until SIGTERM or SIGINT; returns when everything is stored and closed.

    Raises:
        StoreLocked, Refused, CannotMend: the store can't be opened. StorageError: a port is taken; or closing failed.
    """
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    sys.setswitchinterval(_SWITCH_S)
    with runner:
        runner.run(_serve(config, settings, ready, log or logging.getLogger("rstore.serve")))


async def _serve(
    config: StoreConfig, settings: BrokerSettings, ready: Callable[[Listening], None], log: logging.Logger
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    store = MessageStore.open(config, cleaning=True)
    try:
        async with Daemon(settings, store, loop, log) as daemon:
            where = daemon.listening
            told = {"broker": where.broker, "names": where.names, "metrics": where.metrics}
            log.info("serving", extra={**told, "max_offset": store.log.max_offset})
            gc.collect()
            gc.freeze()  # what is there now stays: it need not be looked through again and again
            ready(where)
            await stop.wait()
            log.info("stopping", extra={"max_offset": store.log.max_offset})
    finally:
        await loop.run_in_executor(None, store.close)
    log.info("stopped: the store is closed")


class Daemon:
    """Listeners and timers around an open store. An async context manager."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, loop: asyncio.AbstractEventLoop, log: logging.Logger
    ) -> None:
        self._settings = settings
        self._store = store
        self._loop = loop
        self._log = log
        self._servers: list[asyncio.Server] = []
        self._boards: list[Switchboard] = []
        self._timers: list[asyncio.Task[None]] = []
        self._operations: Operations | None = None
        self._not_held = 0
        self.listening = Listening("", None)

    @property
    def broker(self) -> Broker:
        """What its handlers share. Once it was entered."""
        return self._broker

    @property
    def health(self) -> health.Health:
        """Whether it is well. Once it was entered."""
        return self._health

    async def __aenter__(self) -> Daemon:
        """Start. Raises StorageError: a port is taken; CannotMend: a table can't be read."""
        settings, loop = self._settings, self._loop
        try:
            # The port is known before anything is answered: it is part of the storeHost of every message.
            board = Switchboard(settings, {}, lambda _: None, self._log)
            server = await listen(board, settings, loop, settings.listen_port)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            broker = self._broker = Broker(settings, self._store, loop, port, self._log)
            broker.load()
            pulls = self._pulls = PullHandler(broker)
            handlers = broker_handlers(broker, pulls)

            def lost(connection: Connection) -> None:
                pulls.lost(connection)
                broker.members.closed(connection)

            board.serve(handlers, lost)
            self._boards.append(board)
            vip = {code: handler for code, handler in handlers.items() if code != RequestCode.PULL_MESSAGE}
            if settings.listen_port:
                await self._add(Switchboard(settings, vip, lost, self._log, "vip"), port - _VIP_BELOW)
            names = None
            if settings.name_service_port is not None:
                name_board = Switchboard(settings, name_handlers(broker), lambda _: None, self._log, "names")
                names = await self._add(name_board, settings.name_service_port)
            self._health = health.Health(self._store, self._log)
            live = Live(broker, pulls, self._boards)
            operations = Operations(live, self._health, [broker.offsets, broker.schedule], self._log)
            self._operations = operations
            metrics = await operations.start(settings.listen_host, settings.metrics_port)
            self.listening = Listening(
                broker.address,
                None if names is None else f"{settings.broker_ip1}:{names}",
                None if metrics is None else f"{settings.listen_host}:{metrics}",
            )
        except OSError as error:
            await self._close_servers()
            if self._operations is not None:
                await self._operations.stop()
            raise StorageError(
                f"can't listen: {error.strerror or error}", hint="is a broker running? see listenPort and --names-port"
            ) from None

        def arrived(arrivals: Sequence[Arrival]) -> None:
            loop.call_soon_threadsafe(pulls.arrived, arrivals)

        self._store.add_listener(arrived, lambda: pulls.held > 0)
        self._timers = [
            loop.create_task(self._every(TICK_MS / 1000, pulls.tick)),
            loop.create_task(self._keep(settings.flush_offsets_ms / 1000, broker.offsets)),
            loop.create_task(self._every(_SCAN_S, self._scan)),
            loop.create_task(self._every(schedule.TICK_MS / 1000, broker.schedule.tick)),
            loop.create_task(self._every(stats.TICK_S, broker.stats.tick)),
            loop.create_task(self._every(health.TICK_S, self._health.tick)),
            loop.create_task(self._keep(_SCAN_S, broker.schedule)),
            loop.create_task(self._every(settings.transaction_check_interval_ms / 1000, broker.transactions.check)),
        ]
        self._health.ready = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._health.ready = False
        for timer in self._timers:
            timer.cancel()
        await self._close_servers()
        self._broker.flow.close()
        self._pulls.close()
        for board in self._boards:
            for connection in list(board.connections):
                connection.close()
        await asyncio.sleep(0)
        if self._operations is not None:
            await self._operations.stop()
        for table in (self._broker.offsets, self._broker.schedule):
            changes = table.changes()
            if changes is not None:
                table.write(changes)

    async def _add(self, board: Switchboard, port: int) -> int:
        server = await listen(board, self._settings, self._loop, port)
        self._servers.append(server)
        self._boards.append(board)
        return int(server.sockets[0].getsockname()[1])

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _every(self, seconds: float, work: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                work()
            except Exception:  # noqa: BLE001 - whatever it is, the others go on
                self._log.exception("a timer failed, and goes on")

    async def _keep(self, seconds: float, table: KeptTable) -> None:
        """Write a table now and then, beside the loop: a disk takes its time."""
        while True:
            await asyncio.sleep(seconds)
            changes = table.changes()
            if changes is not None:
                try:
                    await self._loop.run_in_executor(None, table.write, changes)
                except RStoreError as error:
                    self._log.error("a table was not written, and will be", extra={"why": str(error)})

    def _scan(self) -> None:
        not_held, self._not_held = self._pulls.not_held - self._not_held, self._pulls.not_held
        if not_held:
            self._log.warning("pulls could not wait", extra={"count": not_held, "why": "too many pulls wait"})
        for board in self._boards:
            board.close_idle(self._loop.time())
        for connection in self._broker.members.expire():
            connection.close()
