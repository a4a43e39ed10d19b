"""What handlers share that put messages for clients: what they use, and whether the broker takes messages at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.requests.answers import Answer
from engine.broker.tables.topics import PERM_WRITE
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.put.putter import Putter, QueueTurns
    from engine.broker.put.timer_gate import TimerGate
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.topics import TopicTable
    from engine.broker.watch.stats import Stats
    from engine.format.hosts import Host
    from engine.store import MessageStore


class PuttingHandler:
    """See the module.

    `store_host`: of the messages that are put; `turns`: of queues, where the client names none; `timers`: takes those
    that have a time of their own.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        topics: TopicTable,
        groups: GroupTable,
        stats: Stats,
        settings: CurrentSettings,
        store_host: Host,
        turns: QueueTurns,
        timers: TimerGate,
    ) -> None:
        self._store = store
        self._putter = putter
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._settings = settings
        self._store_host = store_host
        self._turns = turns
        self._timers = timers

    def _demand_writeable(self) -> None:
        """Raises Answer: brokerPermission lets nobody send (AbstractSendMessageProcessor#msgCheck)."""
        settings = self._settings.now
        if not settings.permission & PERM_WRITE:
            raise Answer(ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] sending message is forbidden")
