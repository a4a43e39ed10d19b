"""Messages that the broker itself writes about what happens to consumers (BROKER.md 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from engine.broker import bodies
from engine.broker.putting import put
from engine.format import properties
from engine.format.message import Message
from engine.format.topic_rules import OFFSET_MOVED

if TYPE_CHECKING:
    from engine.broker.broker import Broker
    from engine.log.results import PutResult


def offset_moved(broker: Broker, group: str, topic: str, queue_id: int, asked: int, next_offset: int) -> None:
    """A consumer asked for an offset that is not there, and is sent to another: OFFSET_MOVED_EVENT tells of it.

    Source: PullMessageProcessor#generateOffsetMovedEvent.
    """
    said = {
        "consumerGroup": group,
        "messageQueue": bodies.message_queue(broker.settings.broker_name, topic, queue_id),
        "offsetNew": next_offset,
        "offsetRequest": asked,
    }
    message = Message(
        OFFSET_MOVED,
        orjson.dumps(said),
        0,
        {properties.TAGS: group, properties.KEYS: group, properties.WAIT: "true"},
        born_timestamp=broker.now_ms(),
        born_host=broker.store_host,
        store_host=broker.store_host,
    )

    def done(result: PutResult) -> None:
        if result.append is not None:
            broker.stats.stored(result.append.size)

    put(broker, message, done, wait=False)
