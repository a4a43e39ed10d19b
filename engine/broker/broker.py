"""What the handlers share: the store, the tables, the settings, the clock. Composed by `engine.broker.serve`."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from typing import TYPE_CHECKING

from engine.broker.config_file import ConfigFile
from engine.broker.config_history import ConfigHistory
from engine.broker.consumer_filters import ConsumerFilters
from engine.broker.flow import FlowControl
from engine.broker.groups import GroupTable
from engine.broker.ha import metadata
from engine.broker.ha.role import Role
from engine.broker.kv import KvConfig
from engine.broker.later import Later
from engine.broker.live_config import LiveConfig
from engine.broker.locks import QueueLocks
from engine.broker.members import ConsumerGroup, Members
from engine.broker.names import RouteTable
from engine.broker.offsets import ConsumerOffsets
from engine.broker.schedule import ScheduleService
from engine.broker.stats import Stats
from engine.broker.topics import TopicTable
from engine.broker.transactions import Transactions
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.broker.settings import BrokerSettings
    from engine.store import MessageStore


class Broker:
    """See the module. For the loop's thread alone.

    Attributes:
        address: `ip:port` that clients are told.
        store_host: of the messages that are put.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        loop: asyncio.AbstractEventLoop,
        port: int,
        log: logging.Logger | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.loop = loop
        self.address = f"{settings.broker_ip1}:{port}"
        self.store_host = settings.store_host(port)
        self.started_ms = self.now_ms()
        self.flow = FlowControl(settings, store, loop, log or logging.getLogger(__name__))
        self.stats = Stats(self.now_ms, settings.cluster_name)
        self._disk = disk = store.disk
        root = os.fspath(store.config.store_path_root_dir)
        self.history = ConfigHistory(disk, root)
        self.topics = TopicTable(settings, ConfigFile(disk, root, metadata.TOPICS, self.history), loop, self.now_ms)
        self.groups = GroupTable(
            ConfigFile(disk, root, metadata.GROUPS, self.history),
            loop,
            self.now_ms,
            auto_create=settings.auto_create_group,
        )
        self.offsets = ConsumerOffsets(ConfigFile(disk, root, metadata.OFFSETS, self.history))
        self.role = Role(self, settings.ha, log or logging.getLogger(__name__))
        self.schedule = ScheduleService(self, ConfigFile(disk, root, metadata.DELAYS, self.history))
        self.transactions = Transactions(self)
        self.members = Members(self.now_ms, self._members_changed)
        self.filters = ConsumerFilters(
            ConfigFile(disk, root, "consumerFilter.json", self.history), self.now_ms, settings.filter_data_ms
        )
        self.locks = QueueLocks(self.now_ms)
        self.later = Later(loop)
        self.config = LiveConfig(self, settings.config_file, log or logging.getLogger("rstore.serve"))
        self.names = RouteTable(self.now_ms)
        self.kv = KvConfig(ConfigFile(disk, root, "kvConfig.json"))
        self._turn = itertools.count()

    def load(self) -> None:
        """Read the tables, and keep what they were in the history. Raises CannotMend, StorageError."""
        self.history.begin()
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        self.schedule.load()
        self.transactions.load()
        self.kv.load()
        self.filters.load()

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Go by other settings from now on, as far as that is possible: `engine.broker.live_config.LIVE`."""
        permission = self.settings.permission
        self.settings = self.topics.settings = settings
        self.groups.auto_create = settings.auto_create_group
        if settings.permission != permission:
            self.topics.version.next(self.now_ms())
            self.topics.changed()  # routes change with it: name servers are to know

    @staticmethod
    def now_ms() -> int:
        """The clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def disk_ratios(self) -> list[tuple[str, float]]:
        """Used part of the disks of log, queues and index, by Apache's names."""
        config = self.store.config
        root = os.fspath(config.store_path_root_dir)
        log = os.fspath(config.commit_log_paths[0])
        return [(name, self._disk.disk_used_ratio(path)) for name, path in (("CL", log), ("CQ", root), ("INDEX", root))]

    def any_queue(self, queues: int) -> int:
        """A queue for a message that names none: one after another."""
        return next(self._turn) % max(1, queues)

    def _members_changed(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        config = self.groups.find(group.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            for connection in list(group.members):
                connection.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})
