"""Which queue a message goes to. No I/O.

Source: TopicPublishInfo#selectOneMessageQueue, MQFaultStrategy#selectOneMessageQueue, SelectMessageQueueByHash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from engine.client.latency import FaultTable
from engine.client.queues import MessageQueue
from engine.format.hashing import java_hash

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues for a message."""


def by_hash(key: str) -> Selector:
    """All messages of a key to one queue, the one that Java's client takes."""

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        value = java_hash(key)
        return queues[abs(value) % len(queues)]  # |a % n| of Java's is |a| % n

    return select


def at_random(rng: random.Random) -> Selector:
    """Any queue."""
    return rng.choice


class RoundRobin:
    """Queues one after another; another broker after a failure, and with `faults` no broker that has a penalty.

    Args:
        first: where the turn begins.
        faults: None: latencies don't count.
    """

    def __init__(self, first: int = 0, faults: FaultTable | None = None) -> None:
        self._at = first
        self._faults = faults

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None, now_ms: int) -> MessageQueue:
        """The next queue. `last_broker`: that failed just now."""
        faults = self._faults
        if faults is None:
            return self._next(queues, lambda queue: queue.broker != last_broker)
        available = self._next_of(queues, lambda queue: faults.is_available(queue.broker, now_ms))
        if available is not None:
            return available
        broker = faults.least_bad(now_ms)
        own = [queue for queue in queues if queue.broker == broker]
        if own:
            return self._next(own, lambda queue: True)
        if broker is not None:
            faults.forget(broker)
        return self._next(queues, lambda queue: True)

    def _next(self, queues: Sequence[MessageQueue], wanted: Callable[[MessageQueue], bool]) -> MessageQueue:
        queue = self._next_of(queues, wanted)
        if queue is None:
            self._at += 1
            queue = queues[self._at % len(queues)]
        return queue

    def _next_of(self, queues: Sequence[MessageQueue], wanted: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        for _ in queues:
            self._at += 1
            queue = queues[self._at % len(queues)]
            if wanted(queue):
                return queue
        return None
