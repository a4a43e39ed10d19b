"""The composition: every part of the daemon that answers requests, made once and given what it uses.

It knows them all, and none of them knows it: `engine.broker.serve` alone imports this module, and a test says so.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from engine.broker.ha.role import Role
from engine.broker.handlers.admin_broker import BrokerAdmin
from engine.broker.handlers.admin_clients import ClientAdmin
from engine.broker.handlers.admin_groups import GroupAdmin
from engine.broker.handlers.admin_messages import MessageAdmin
from engine.broker.handlers.admin_offsets import OffsetAdmin
from engine.broker.handlers.admin_topics import TopicAdmin
from engine.broker.handlers.assignments import AssignmentHandler
from engine.broker.handlers.back import BackHandler
from engine.broker.handlers.consume import LockHandler, MemberHandler, OffsetHandler
from engine.broker.handlers.name_admin import NameAdmin
from engine.broker.handlers.pull import PullHandler
from engine.broker.handlers.query import QueryHandler
from engine.broker.handlers.recall import RecallHandler
from engine.broker.handlers.reply import ReplyHandler
from engine.broker.handlers.route import RouteHandler
from engine.broker.handlers.send import SendHandler
from engine.broker.names.route_table import RouteTable
from engine.broker.names.topic_queues import TopicQueues
from engine.broker.net.connection import Connection
from engine.broker.pop.acks import AckHandler
from engine.broker.pop.held import HeldPops
from engine.broker.pop.journal import PopJournal
from engine.broker.pop.judged import PopJudge
from engine.broker.pop.orders import PopOrders
from engine.broker.pop.pops import PopHandler
from engine.broker.pop.positions import PopPositions
from engine.broker.pop.revive import ReviveService
from engine.broker.put.events import EventWriter
from engine.broker.put.flow import FlowControl
from engine.broker.put.putter import Putter, QueueTurns
from engine.broker.put.schedule import ScheduleService
from engine.broker.put.timer_gate import TimerGate
from engine.broker.put.timers import TimerService
from engine.broker.put.transactions import Transactions
from engine.broker.requests.dispatched import AfterDispatch
from engine.broker.requests.later import Later
from engine.broker.requests.table import BrokerHandlers, NameHandlers
from engine.broker.settings.current_settings import CurrentSettings
from engine.broker.settings.live_config import LiveConfig
from engine.broker.settings.name_config import NameConfig
from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.config_history import ConfigHistory
from engine.broker.tables.consumer_filters import ConsumerFilters, SqlFilters
from engine.broker.tables.groups import GroupTable
from engine.broker.tables.kv import KvConfig
from engine.broker.tables.locks import QueueLocks
from engine.broker.tables.members import ConsumerGroup, Members
from engine.broker.tables.offsets import ConsumerOffsets
from engine.broker.tables.request_modes import RequestModes
from engine.broker.tables.topics import TopicTable
from engine.broker.tables.unwritten import Unwritten
from engine.broker.turns import TURN_S
from engine.broker.watch.live import Watched
from engine.broker.watch.runtime import RuntimeInfo
from engine.broker.watch.stats import Stats
from engine.client import master_tables
from engine.format import names
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from engine.broker.net.switchboard import Switchboard
    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.broker.turns import Turns
    from engine.broker.watch.archiving import Archiving
    from engine.broker.watch.scrubbing import Scrubbing
    from engine.store import MessageStore


class Broker:
    """See the module. For the loop's thread alone.

    Attributes:
        current: the settings.
        turns: of the loop.
        address: `ip:port` that clients get.
        store_host: of the messages that are put.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        loop: asyncio.AbstractEventLoop,
        port: int,
        turns: Turns,
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log = log or logging.getLogger("rstore.serve")
        self.turns = turns
        self.current = current = CurrentSettings(settings)
        current.when_changed(self._settings_changed)
        self.store = store
        self.address = f"{settings.broker_ip1}:{port}"
        self.store_host = settings.store_host(port)
        self.started_ms = self.now_ms()
        self.flow = FlowControl(settings, store, loop, log)
        self.stats = Stats(self._now, settings.cluster_name)
        self.putter = Putter(store, self.flow)
        self._make_tables(settings, loop)
        self._make_services(settings, loop, log)

    def _make_tables(self, settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> None:
        disk, root, now = self.store.disk, os.fspath(self.store.config.store_path_root_dir), self._now
        self.history = ConfigHistory(disk, root)
        self.unwritten = Unwritten(disk)

        def file(name: str) -> ConfigFile:
            return ConfigFile(disk, root, name, self.history, self.unwritten)

        self._delays = file(master_tables.DELAYS)
        self._timer_progress = file(names.TIMER_PROGRESS)
        self.topics = TopicTable(settings, file(master_tables.TOPICS), loop, now)
        self.groups = GroupTable(file(master_tables.GROUPS), loop, now, auto_create=settings.auto_create_group)
        self.offsets = ConsumerOffsets(file(master_tables.OFFSETS))
        self.modes = RequestModes(file(names.REQUEST_MODES), loop, now)
        self.sql_filters = SqlFilters()
        self.filters = ConsumerFilters(
            file("consumerFilter.json"), now, settings.filter_data_ms, self.sql_filters, settings.consumer_filters
        )
        self.members = Members(now, self._members_changed)
        self.locks = QueueLocks(now)
        self.orders = PopOrders(file(names.ORDER_INFO), self.topics, self.groups, now)
        self.names = RouteTable(now)
        self._kv_file = ConfigFile(disk, root, "kvConfig.json", unwritten=self.unwritten)
        self.kv = KvConfig(self._kv_file, loop)

    def _make_services(self, settings: BrokerSettings, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        store, now = self.store, self._now
        self.schedule = ScheduleService(
            store=store, putter=self.putter, topics=self.topics, stats=self.stats, now_ms=now, file=self._delays
        )
        self.timers = TimerService(
            store=store, putter=self.putter, topics=self.topics, stats=self.stats, turns=self.turns, now_ms=now,
            file=self._timer_progress, disk=store.disk,
        )  # fmt: skip
        self._timer_gate = TimerGate(
            schedule=self.timers.schedule, topics=self.topics, settings=self.current, now_ms=now
        )
        self.role = Role(
            store=store,
            tables={
                master_tables.TOPICS: self.topics.take,
                master_tables.OFFSETS: self.offsets.take,
                master_tables.DELAYS: self.schedule.take,
                master_tables.GROUPS: self.groups.take,
            },
            timers=self.timers.take,
            settings=settings.ha,
            host=settings.broker_ip2 or settings.broker_ip1,
            after_this=self.flow.after_this,
            loop=loop,
            log=log,
            slaves=self._registered_slaves,
        )
        self.transactions = Transactions(
            store=store, putter=self.putter, topics=self.topics, offsets=self.offsets, members=self.members,
            stats=self.stats, settings=self.current, role=self.role, store_host=self.store_host,
            turns=self.turns, now_ms=now, timers=self._timer_gate,
        )  # fmt: skip
        self.later = Later(loop, self.turns)
        self._route = RouteHandler(
            names=self.names, topics=self.topics, kv=self.kv, role=self.role, settings=self.current,
            later=self.later, address=self.address,
        )  # fmt: skip
        self.topic_queues = TopicQueues(self._route.queues_of, self.later, now)
        self._after_dispatch = AfterDispatch(store, self.later, loop)
        self.config = LiveConfig(
            store=store, settings=self.current, role=self.role, later=self.later, now_ms=now,
            file=settings.config_file, log=log,
        )  # fmt: skip
        events = EventWriter(self.putter, self.stats, settings.broker_name, self.store_host, now)
        self.pulls = PullHandler(
            store=store, topics=self.topics, groups=self.groups, offsets=self.offsets, members=self.members,
            consumer_filters=self.filters, stats=self.stats, settings=self.current, role=self.role, loop=loop,
            events=events, after_dispatch=self._after_dispatch, sql_filters=self.sql_filters, later=self.later,
        )  # fmt: skip

        self.held_pops = HeldPops(self.turns, now, store.listened)
        self._journal = PopJournal(
            putter=self.putter, timers=self._timer_gate, topics=self.topics, settings=self.current,
            store_host=self.store_host, now_ms=now,
        )  # fmt: skip
        self.revive = ReviveService(
            store=store, putter=self.putter, journal=self._journal, timers=self.timers, topics=self.topics,
            groups=self.groups, offsets=self.offsets, stats=self.stats, turns=self.turns, store_host=self.store_host,
            broker_name=settings.broker_name, now_ms=now,
        )  # fmt: skip

    def load(self) -> None:
        """Read the tables, and keep what they were in the history. Raises CannotRepair, StorageError."""
        self.history.begin()
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        self.modes.load()
        self.orders.load()
        self.schedule.load()
        self.timers.load()
        self.transactions.load()
        self.kv.load()
        self.filters.load()

    @property
    def settings(self) -> BrokerSettings:
        """As they hold now."""
        return self.current.now

    @staticmethod
    def now_ms() -> int:
        """The clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def _now(self) -> int:
        return self.now_ms()  # asked anew: a test may set the clock while the daemon runs

    # --- who answers ------------------------------------------------------------------------------------------------

    def handlers(self) -> BrokerHandlers:
        """Of the broker's port."""
        store, putter, stats, current, now = self.store, self.putter, self.stats, self.current, self._now
        topics, groups, offsets, members = self.topics, self.groups, self.offsets, self.members
        turns = QueueTurns()
        send = SendHandler(
            store=store, putter=putter, topics=topics, groups=groups, stats=stats, settings=current,
            store_host=self.store_host, turns=turns, timers=self._timer_gate,
        )  # fmt: skip
        back = BackHandler(
            store=store, putter=putter, topics=topics, groups=groups, stats=stats, settings=current,
            store_host=self.store_host, turns=turns, timers=self._timer_gate,
        )  # fmt: skip
        runtime = RuntimeInfo(store, stats, self.schedule, self.flow, current, self.started_ms, now)
        return BrokerHandlers(
            send=self.flow.guard(send.handle),
            back=self.flow.guard(back.handle),
            reply=ReplyHandler(
                send=send, putter=putter, members=members, later=self.later, stats=stats, settings=current,
                store_host=self.store_host, now_ms=now,
            ),
            pull=self.pulls,
            pop=PopHandler(
                store=store, judge=PopJudge(topics, groups, current), topics=topics,
                positions=PopPositions(store, offsets), journal=self._journal, orders=self.orders,
                held=self.held_pops, pulls=self.pulls, stats=stats, settings=current, later=self.later,
                now_ms=now,
            ),
            recall=RecallHandler(
                putter=putter, timers=self._timer_gate, topics=topics, settings=current, role=self.role,
                store_host=self.store_host, now_ms=now,
            ),
            acks=AckHandler(
                store=store, topics=topics, offsets=offsets, journal=self._journal, orders=self.orders,
                held=self.held_pops, now_ms=now,
            ),
            members=MemberHandler(
                members=members, groups=groups, topics=topics, filters=self.filters, sql_filters=self.sql_filters,
                settings=current, later=self.later, now_ms=now,
            ),
            offsets=OffsetHandler(store, offsets, groups, topics),
            locks=LockHandler(self.locks),
            assignments=AssignmentHandler(
                modes=self.modes, topics=topics, groups=groups, members=members, queues=self.topic_queues,
                later=self.later,
            ),
            query=QueryHandler(store, self._after_dispatch),
            transactions=self.transactions,
            broker_admin=BrokerAdmin(
                store=store, stats=stats, config=self.config, later=self.later, runtime_info=runtime
            ),
            topic_admin=TopicAdmin(
                store=store, topics=topics, offsets=offsets, members=members, stats=stats, settings=current,
                later=self.later, role=self.role,
            ),
            group_admin=GroupAdmin(
                groups=groups, offsets=offsets, members=members, stats=stats, role=self.role, later=self.later
            ),
            offset_admin=OffsetAdmin(
                store=store, topics=topics, groups=groups, offsets=offsets, members=members, stats=stats,
                schedule=self.schedule, timers=self.timers, settings=current, later=self.later, address=self.address,
                now_ms=now,
            ),
            client_admin=ClientAdmin(
                store=store, topics=topics, offsets=offsets, members=members, settings=current, later=self.later
            ),
            message_admin=MessageAdmin(
                store=store, putter=putter, members=members, filters=self.filters, stats=stats
            ),
        )  # fmt: skip

    def name_handlers(self) -> NameHandlers:
        """Of the name service's port."""
        return NameHandlers(self._route, NameAdmin(NameConfig(self.current, self._kv_file.path, self._log)))

    def watched(self, boards: Sequence[Switchboard], scrubbing: Scrubbing, archiving: Archiving) -> Watched:
        """What is looked at. `boards`: of all listeners."""
        return Watched(
            store=self.store, stats=self.stats, topics=self.topics, offsets=self.offsets, members=self.members,
            flow=self.flow, role=self.role, schedule=self.schedule, timers=self.timers,
            transactions=self.transactions, pulls=self.pulls, boards=boards, turns=self.turns, address=self.address,
            started_ms=self.started_ms, now_ms=self._now, scrubbing=scrubbing, archiving=archiving,
        )  # fmt: skip

    def lost(self, connection: Connection) -> None:
        """A client's connection has closed: it waits for nothing, and is no member any more, in turns of the loop."""
        self.pulls.lost(connection)
        self.held_pops.lost(connection)
        self._leave(self.members.leaving(connection))

    def tick_pops(self) -> None:
        """Pops that wait try again where a queue has come free, or are answered when their time is over."""
        for topic, group, queue_id in self.orders.free():
            self.held_pops.wake(topic, group, queue_id)
        self.held_pops.tick()

    def _leave(self, steps: Iterator[None]) -> None:
        began = self.turns.clock()
        for _ in steps:
            if self.turns.clock() - began >= TURN_S:
                self.turns.next(lambda: self._leave(steps))
                return

    def _registered_slaves(self) -> frozenset[str]:
        """Addresses that slaves of our name have registered from, at our own name server."""
        owners = self.names.slaves_of(self.settings.broker_name)
        return frozenset(owner.ip for owner in owners if isinstance(owner, Connection))

    # --- what changes -----------------------------------------------------------------------------------------------

    def _settings_changed(self, before: BrokerSettings, settings: BrokerSettings) -> None:
        self.topics.settings = settings
        self.groups.auto_create = settings.auto_create_group
        if settings.permission != before.permission:
            self.topics.version.next(self.now_ms())
            self.topics.changed()  # routes change with it: name servers are to know

    def _members_changed(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        config = self.groups.find(group.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            for connection in list(group.members):
                connection.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})
