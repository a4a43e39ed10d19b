"""Checkpoints and acknowledgements as messages of the revive topic, which come to it when they are due.

Each is a timer message: a checkpoint a second before its messages come again, an acknowledgement when they would. So
whatever becomes of the daemon, the timer has all of it, and a broker of RocketMQ 5 that opens the store goes on.

Source: PopMessageProcessor#buildCkMsg, AckMessageProcessor#appendAck (5.3.3).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import orjson

from engine.broker.pop.receipts import CHECKPOINT
from engine.broker.put.putter import STORED
from engine.broker.requests.answers import Answer
from engine.format import names, properties
from engine.format.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from engine.broker.pop.receipts import Acknowledged, PopCheckpoint
    from engine.broker.put.putter import Putter
    from engine.broker.put.timer_gate import TimerGate
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.topics import TopicTable
    from engine.format.hosts import Host
    from engine.log.results import PutResult

QUEUES = 8
"""Of the revive topic. Source: BrokerConfig#reviveQueueNum."""
BEFORE_MS = 1000
"""How much earlier a checkpoint comes to the revive topic than its messages come again. Source: ackTimeInterval."""


class PopJournal:
    """See the module. For the loop's thread alone.

    Attributes:
        topic: the revive topic.
    """

    def __init__(
        self,
        *,
        putter: Putter,
        timers: TimerGate,
        topics: TopicTable,
        settings: CurrentSettings,
        store_host: Host,
        now_ms: Callable[[], int],
    ) -> None:
        self._putter = putter
        self._timers = timers
        self._topics = topics
        self._store_host = store_host
        self._now_ms = now_ms
        self._turn = count()
        self.topic = f"{names.REVIVE_PREFIX}{settings.now.cluster_name}"

    def next_queue(self) -> int:
        """The revive queue of the next pop."""
        return next(self._turn) % QUEUES

    def note(self, checkpoint: PopCheckpoint, queue_id: int, done: Callable[[bool], None]) -> None:
        """Store a checkpoint; `done` with whether that is done."""
        due = checkpoint.revive_ms - BEFORE_MS
        self._put(checkpoint.to_json(), CHECKPOINT, checkpoint.unique_key, queue_id, due, done)

    def acknowledge(self, acked: Acknowledged, queue_id: int, revive_ms: int, done: Callable[[bool], None]) -> None:
        """Store an acknowledgement; `done` as of `note`."""
        self._put(acked.to_json(), acked.tag, acked.unique_key, queue_id, revive_ms, done)

    def _put(
        self, value: dict[str, Any], tag: str, key: str, queue_id: int, due_ms: int, done: Callable[[bool], None]
    ) -> None:
        self._topics.there_soon(self.topic, QUEUES)
        pairs = {properties.TAGS: tag, properties.TIMER_DELIVER_MS: str(due_ms), properties.UNIQ_KEY: key}
        message = Message(
            self.topic,
            orjson.dumps(value),
            queue_id,
            pairs,
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        try:
            message = self._timers.admit(message)
        except Answer:
            done(False)
            return

        def put(result: PutResult) -> None:
            done(result.status in STORED)

        self._putter.put(message, put)
