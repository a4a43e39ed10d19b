"""`rstore serve`: the store opened, the tables read, listeners and timers started; and all of it stopped in order.

Stopping: no new connection, no new request; puts under way are waited for, held pulls are answered; offsets are
written; the store is closed, which takes the abort file away. A second start on the same store is refused by the
store's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from engine.broker.access import AccessSettings
from engine.broker.broker import Broker
from engine.broker.deleted import remove_revived, topics_with_queues
from engine.broker.handlers.pull import TICK_MS
from engine.broker.names.name_servers import NameServers
from engine.broker.net import headers, ports
from engine.broker.net.ports import Listening
from engine.broker.net.switchboard import ConnectionRegistry, Switchboard, listen
from engine.broker.permitted import Permitted
from engine.broker.pop import held, revive
from engine.broker.put import schedule, timers
from engine.broker.recovered import recovering
from engine.broker.requests.table import BROKER, NAMES
from engine.broker.tables import consumer_filters
from engine.broker.turns import Turns
from engine.broker.watch import health, stats
from engine.broker.watch.archiving import Archiving
from engine.broker.watch.http import Operations
from engine.broker.watch.live import Live
from engine.broker.watch.scrubbing import Scrubbing
from engine.config import BrokerRole, delay_levels
from engine.errors import RStoreError, StorageError
from engine.files.disk import Disk
from engine.files.lock import holder_of
from engine.inspect.store.change_gate import ChangeKind
from engine.log.natives import NATIVES
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.broker.acl.files import AclFiles
    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.net.switchboard import Listener
    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.broker.tables.config_file import KeptTable
    from engine.config import StoreConfig
    from engine.services.arrivals import Arrival

_SCAN_S = 10
_RETRY_S = 1
_SETTLE_S = 5.0
"""How long puts that are under way are waited for at the end: as long as a flush may take (syncFlushTimeout)."""
FOR_THE_STORE = 512
"""Descriptors that no connection gets: a store that can't open its files takes no messages any more."""
FEWEST = 64
"""Connections that are served where there are fewer descriptors than that."""
_SWITCH_S = 0.0005
"""How long a thread of the store may keep the loop waiting for the interpreter; Python's own 5 ms are a slow answer."""
_WATCH_S = 5
"""How often files of the ACL are looked at. Source: AclFileWatchService#WATCH_INTERVAL."""


def serve(
    config: StoreConfig,
    settings: BrokerSettings,
    *,
    ready: Callable[[Listening], None] = lambda _: None,
    log: logging.Logger | None = None,
) -> None:
    """Run the daemon until SIGTERM, SIGINT or SIGHUP; returns when everything is stored and closed.

    A SIGHUP that is ignored (nohup) stays so.

    Raises:
        StoreLocked, Refused, CannotRepair: the store can't be opened. StorageError: a port is taken (no store is made
        then); or closing failed. InvalidArgument: invalid ports; messageDelayLevel can't be read, with which
        Apache's broker does not start either.
    """
    delay_levels(config)
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
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # as a Java machine ends, Apache's broker in it
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    room = max(FEWEST, _descriptors() - FOR_THE_STORE)
    settings = replace(settings, connections=min(settings.connections, room))
    before = topics_with_queues(Disk(), config)
    is_slave = config.broker_role is BrokerRole.SLAVE
    access = AccessSettings.of(settings, log, is_slave=is_slave)
    if holder_of(Disk(), os.fspath(config.store_path_root_dir)) is None:  # else opening it tells who has it
        ports.demand_free(settings, is_slave=is_slave)
    store = MessageStore.open(config, recover=recovering(log), cleaning=True, kind=ChangeKind.SERVE)
    try:
        async with Daemon(settings, store, loop, log, access, before) as daemon:
            where = daemon.listening
            addresses = {
                "broker": where.broker,
                "listens": where.bound,
                "names": where.names,
                "metrics": where.metrics,
                "ha": where.ha,
            }
            for lane in (
                *NATIVES,
                headers.REQUEST,
                headers.STORED,
            ):  # together they take longer than the loop may be held
                lane.load()
            log.info("serving", extra={**addresses, "max_offset": store.log.max_offset})
            gc.collect()
            gc.freeze()  # what is there now stays: it need not be looked through again and again
            ready(where)
            await stop.wait()
            log.info("stopping", extra={"max_offset": store.log.max_offset})
    finally:
        await loop.run_in_executor(None, store.close)
    log.info("stopped: the store is closed")


def _descriptors() -> int:
    """As many as the system lets us have; a connection takes one, and so does each file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Daemon:
    """Listeners and timers around an open store. An async context manager.

    `access`: as the settings say, if None. `topics_before`: those that had queues before the store was opened
    (`engine.broker.deleted`); None: don't ask.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
        access: AccessSettings | None = None,
        topics_before: frozenset[str] | None = None,
    ) -> None:
        self._settings = settings
        self._topics_before = topics_before
        self._access = access
        self._store = store
        self._loop = loop
        self._log = log
        self._servers: list[Listener] = []
        self._boards: list[Switchboard] = []
        self._timers: list[asyncio.Task[None]] = []
        self._name_servers: NameServers | None = None
        self._role: Role | None = None
        self._operations: Operations | None = None
        self._scrubbing: Scrubbing | None = None
        self._archiving = Archiving(store, settings.archive, log)
        self._not_held = 0
        self._turns = Turns(loop, log)
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
        """Start.

        Raises:
            StorageError: a port is taken, a file of TLS or ACL can't be read; CannotRepair: a table can't be read;
            InvalidArgument: TLS or ACL settings that make no sense.
        """
        settings = self._settings
        try:
            await self._listen()
        except (OSError, RStoreError) as error:
            await self._close_servers()
            await self._end_services()
            if isinstance(error, RStoreError):
                raise
            raise StorageError(f"cannot listen: {error.strerror or error}") from None
        self._start_timers()
        access = self._access
        self._broker.role.start(
            self._name_servers, access.ha_context if access else None, access.reader if access else None
        )
        if self._name_servers is not None:
            self._broker.topics.changed = self._name_servers.changed
            await self._name_servers.start()
        if settings.open_to_all is not None:
            self._log.warning(f"listening on {settings.listen_host} {settings.open_to_all}")
        for what in (ports.unreachable(settings, self.listening.broker), self._broker.role.open_to_all):
            if what is not None:
                self._log.warning(what)
        self._health.ready = True
        if self._scrubbing is not None:
            self._scrubbing.start()
        self._archiving.start()
        return self

    async def _listen(self) -> None:
        """Open the ports, and have them answered. Raises OSError, RStoreError."""
        settings, loop = self._settings, self._loop
        is_slave = self._store.config.broker_role is BrokerRole.SLAVE
        access = self._access = self._access or AccessSettings.of(settings, self._log, is_slave=is_slave)
        # The port is known before anything is answered: it is part of the storeHost of every message.
        registry, turns = ConnectionRegistry(), self._turns
        board = Switchboard(settings, {}, lambda _: None, self._log, turns, registry=registry)
        with ports.binding(settings.listen_host, settings.listen_port, ports.BROKER):
            server = await listen(board, settings, loop, settings.listen_port, access.context, self._log)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        broker = self._broker = Broker(settings, self._store, loop, port, turns, self._log)
        broker.load()
        if self._topics_before is not None:
            for queue in remove_revived(self._store, broker.topics, self._topics_before):
                self._log.info("queue of a deleted topic deleted again", extra={"queue": str(queue)})
        permitted = Permitted(access.acl, broker.current, self._store, broker.address, self._log, broker.later)
        handlers = permitted.broker(BROKER.bind(broker.handlers()))
        lost = broker.lost
        role = self._role = broker.role
        ha_host, tls = ports.ha_host(settings), access.ha_context
        ha = role.listen(ha_host, port + ports.HA_ABOVE, exactly=bool(settings.listen_port), tls=tls)
        role.open_to_all = None if is_slave else ports.ha_open_to_all(settings)
        board.serve(handlers, lost)
        self._boards.append(board)
        if access.name_servers:
            self._name_servers = NameServers(
                access.name_servers, topics=broker.topics, settings=broker.current, address=broker.address, role=role,
                tls=access.client_context, log=self._log, signer=access.signer,
            )  # fmt: skip
            broker.topic_queues.servers = self._name_servers
        if settings.listen_port:
            vip_board = Switchboard(settings, BROKER.on_vip(handlers), lost, self._log, turns, "vip", registry)
            await self._add(vip_board, port - ports.VIP_BELOW, ports.VIP)
        names = None
        if settings.name_service_port is not None:
            handlers = permitted.names(NAMES.bind(broker.name_handlers()))
            name_board = Switchboard(settings, handlers, self._name_client_lost, self._log, turns, "names", registry)
            names = await self._add(name_board, settings.name_service_port, ports.NAMES)
        self._health = health.Health(self._store, self._log, lambda: role.divergence, broker.unwritten.errors)
        self._scrubbing = Scrubbing(
            self._store.config, settings.scrub_period_ms, sealing=settings.seals, rate=settings.scrub_rate,
            log=self._log,
        )  # fmt: skip
        live = Live(broker.watched(self._boards, self._scrubbing, self._archiving))
        own = () if names is None else (f"{settings.broker_ip1}:{names}",)
        tables: list[KeptTable] = [broker.offsets, broker.schedule, broker.timers]
        operations = Operations(live, self._health, tables, self._log, own or tuple(access.name_servers))
        self._operations = operations
        with ports.binding(settings.listen_host, settings.metrics_port or 0, ports.METRICS):
            metrics = await operations.start(settings.listen_host, settings.metrics_port)
        self.listening = Listening(
            broker.address,
            own[0] if own else None,
            None if metrics is None else ports.joined(settings.listen_host, metrics),
            ha,
            settings.listen_host,
            ha_host,
        )

    def _start_timers(self) -> None:
        loop, broker, pulls = self._loop, self._broker, self._broker.pulls

        pops = broker.held_pops

        def arrived(arrivals: Sequence[Arrival]) -> None:
            loop.call_soon_threadsafe(pulls.arrived, arrivals)
            if pops.count:
                loop.call_soon_threadsafe(pops.arrived, arrivals)

        self._store.add_listener(arrived, lambda: pulls.held > 0 or pops.count > 0)
        every, keep = self._every, self._keep
        work = [
            every(lambda: TICK_MS / 1000, pulls.tick),
            keep(lambda: broker.settings.flush_offsets_ms / 1000, broker.offsets),
            keep(lambda: consumer_filters.WRITE_S, broker.filters),
            every(lambda: held.TICK_S, broker.tick_pops),
            keep(lambda: broker.settings.flush_offsets_ms / 1000, broker.orders),
            every(lambda: _SCAN_S, self._scan),
            every(lambda: _RETRY_S, broker.topics.retry),
            every(lambda: _RETRY_S, broker.groups.retry),
            every(lambda: stats.TICK_S, broker.stats.tick),
            every(lambda: health.TICK_S, self._health.tick),
            keep(lambda: _SCAN_S, broker.schedule),
            keep(lambda: timers.WRITE_S, broker.timers),
        ]
        if not broker.role.is_slave:
            work += [
                every(lambda: schedule.TICK_MS / 1000, broker.schedule.tick),
                every(broker.timers.pause_s, broker.timers.tick),
                every(lambda: revive.TICK_S, broker.revive.tick),
                every(lambda: broker.settings.transaction_check_interval_ms / 1000, broker.transactions.check),
            ]
        if self._access is not None and self._access.acl is not None:
            work.append(self._watch(self._access.acl))
        self._timers = [loop.create_task(one) for one in work]

    def _name_client_lost(self, connection: Connection) -> None:
        for address in self._broker.names.lost(connection):
            self._log.warning(
                "broker removed from the routes", extra={"peer": address, "why": "its connection was closed"}
            )

    async def __aexit__(self, *_: object) -> None:
        self._health.ready = False
        if self._name_servers is not None:
            await self._name_servers.stop()
        for timer in self._timers:
            timer.cancel()
        await self._close_servers()
        await self._broker.later.close()
        for board in self._boards:
            for connection in board.connections:
                connection.park()
                connection.leave()
        await self._finish_puts()
        self._broker.pulls.close()
        self._broker.held_pops.close()
        for board in self._boards:
            for connection in list(board.connections):
                connection.close()
        await asyncio.sleep(0)
        await self._end_services()
        broker = self._broker
        failures: list[RStoreError] = []
        for table in (
            broker.offsets, broker.orders, broker.schedule, broker.timers, broker.filters, broker.topics, broker.groups,
            broker.modes, broker.kv,
        ):  # fmt: skip
            try:
                table.finish()
            except RStoreError as error:
                failures.append(error)
        await self._loop.run_in_executor(None, broker.history.close)
        if failures:
            raise failures[0]

    async def _end_services(self) -> None:
        """Those that have threads or files of their own."""
        beside = [self._archiving.stop] if self._scrubbing is None else [self._archiving.stop, self._scrubbing.stop]
        await asyncio.gather(*(self._loop.run_in_executor(None, stop) for stop in beside))
        if self._role is not None:
            await self._role.stop()
        if self._operations is not None:
            await self._operations.stop()

    async def _finish_puts(self) -> None:
        """What is under way is answered, and noted in the tables: else it would be done again after the next start."""
        broker = self._broker
        broker.schedule.stop()
        broker.timers.stop()
        broker.revive.stop()
        broker.transactions.stop()
        broker.flow.close()
        if not await broker.flow.settled(_SETTLE_S):
            self._log.warning("stopping while puts are in progress")

    async def _add(self, board: Switchboard, port: int, option: str) -> int:
        context = None if self._access is None else self._access.context
        with ports.binding(self._settings.listen_host, port, option):
            server = await listen(board, self._settings, self._loop, port, context, self._log)
        self._servers.append(server)
        self._boards.append(board)
        return int(server.sockets[0].getsockname()[1])

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _every(self, seconds: Callable[[], float], work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(seconds())
            began = self._turns.clock()
            try:
                work()
            except Exception:  # noqa: BLE001 - whatever it is, the others continue
                self._log.exception("timer callback failed; continuing")
            self._turns.note(work.__qualname__, began)

    async def _keep(self, seconds: Callable[[], float], table: KeptTable) -> None:
        """Write a table now and then, beside the loop: a disk takes its time."""
        while True:
            await asyncio.sleep(seconds())
            changes = table.changes()
            if changes is not None:
                try:
                    await self._loop.run_in_executor(None, table.write, changes)
                except RStoreError as error:
                    self._log.error("table write failed; will retry", extra={"why": str(error)})

    async def _watch(self, acl: AclFiles) -> None:
        """Look at the files of the ACL now and then, beside the loop."""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._loop.run_in_executor(None, acl.look)
            except Exception:  # noqa: BLE001 - whatever it is, they are looked at again
                self._log.exception("timer callback failed; continuing")

    def _scan(self) -> None:
        not_held, self._not_held = self._broker.pulls.not_held - self._not_held, self._broker.pulls.not_held
        if not_held:
            self._log.warning("pulls not held", extra={"count": not_held, "why": "the limit of held pulls is reached"})
        for board in self._boards:
            board.close_idle(self._loop.time())
        for connection in self._broker.members.expire():
            connection.close()
        self._broker.locks.expire()
        self._broker.filters.expire()
        for address, owner in self._broker.names.expire():
            self._log.warning(
                "broker removed from the routes",
                extra={"peer": address, "why": "no registration within the time limit"},
            )
            cast("Connection", owner).close()
