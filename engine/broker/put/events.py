"""Messages that the broker itself writes about what happens to consumers (BROKER.md 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from engine.broker.requests import bodies
from engine.format import properties
from engine.format.message import Message
from engine.format.topic_rules import OFFSET_MOVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.put.putter import Putter
    from engine.broker.watch.stats import Stats
    from engine.format.hosts import Host
    from engine.log.results import PutResult


class EventWriter:
    """See the module. For the loop's thread alone.

    Args:
        broker_name: as which the events name us.
        store_host: of the messages.
        now_ms: the clock.
    """

    def __init__(
        self, putter: Putter, stats: Stats, broker_name: str, store_host: Host, now_ms: Callable[[], int]
    ) -> None:
        self._putter = putter
        self._stats = stats
        self._broker_name = broker_name
        self._store_host = store_host
        self._now_ms = now_ms

    def offset_moved(self, group: str, topic: str, queue_id: int, asked: int, next_offset: int) -> None:
        """A consumer asked for an offset that is not there, and is sent to another: OFFSET_MOVED_EVENT tells of it.

        Source: PullMessageProcessor#generateOffsetMovedEvent.
        """
        event = {
            "consumerGroup": group,
            "messageQueue": bodies.message_queue(self._broker_name, topic, queue_id),
            "offsetNew": next_offset,
            "offsetRequest": asked,
        }
        message = Message(
            OFFSET_MOVED,
            orjson.dumps(event),
            0,
            {properties.TAGS: group, properties.KEYS: group, properties.WAIT: "true"},
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        self._putter.put(message, self._stored, wait=False)

    def _stored(self, result: PutResult) -> None:
        if result.append is not None:
            self._stats.stored(result.append.size)
