"""Pops and notifications that wait for messages: of a group, a topic, and one of its queues or all (−1).

A message that arrives wakes one of each group for its queue and one for all queues, so that it is not looked for by
thousands; who finds nothing waits again, until its time is over.

Source: PopLongPollingService (5.3.3).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine.broker.pop.receipts import normal_topic
from engine.dataclass import dataclass
from engine.format import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.broker.net.connection import Connection
    from engine.broker.turns import Turns
    from engine.services.arrivals import Arrival

TICK_S = 0.2
MOST = 100_000
"""That wait at a time. Source: BrokerConfig#maxPopPollingSize."""
MOST_OF_A_QUEUE = 1024
"""Source: BrokerConfig#popPollingSize."""
ALL_QUEUES = -1


@dataclass(frozen=True, slots=True, eq=False)
class HeldPop:
    """Somebody who waits. `ends_ms`: until when; `again`: tries, whether it was answered; `over`: answers anyway."""

    connection: Connection
    topic: str
    group: str
    queue_id: int
    ends_ms: int
    again: Callable[[], bool]
    over: Callable[[], None]


class HeldPops:
    """See the module. For the loop's thread alone."""

    def __init__(self, turns: Turns, now_ms: Callable[[], int], first: Callable[[], None]) -> None:
        """`first` is called when somebody waits, and nobody did before."""
        self._turns = turns
        self._now_ms = now_ms
        self._first = first
        self._lines: dict[tuple[str, str, int], deque[HeldPop]] = {}
        self._groups: dict[str, dict[str, None]] = {}
        self.count = 0

    def hold(self, one: HeldPop) -> bool:
        """It waits; False: too many do."""
        line = self._lines.get((one.topic, one.group, one.queue_id))
        if self.count >= MOST or (line is not None and len(line) > MOST_OF_A_QUEUE):
            return False
        if line is None:
            line = self._lines[one.topic, one.group, one.queue_id] = deque()
        line.append(one)
        self._groups.setdefault(one.topic, {})[one.group] = None
        self.count += 1
        if self.count == 1:
            self._first()
        return True

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait."""
        return len(self._lines.get((topic, group, queue_id), ()))

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Messages can be popped now."""
        for topic, queue_id in {(one.topic, one.queue_id) for one in arrivals}:
            if topic in self._groups:
                for group in list(self._groups[topic]):
                    self.wake(topic, group, queue_id)
            if topic.startswith(names.RETRY_PREFIX):
                self._wake_of_retry(topic)

    def _wake_of_retry(self, topic: str) -> None:
        for known, groups in list(self._groups.items()):
            for group in list(groups):
                if topic.startswith(f"{names.RETRY_PREFIX}{group}") and normal_topic(topic, group) == known:
                    self.wake(known, group, ALL_QUEUES)
                    for _, _, queue_id in [key for key in self._lines if key[:2] == (known, group)]:
                        self.wake(known, group, queue_id)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """One of each line tries again."""
        for line_id in {queue_id, ALL_QUEUES}:
            one = self._next(topic, group, line_id)
            if one is not None and one.connection.is_open and not one.again():
                self.hold(one)

    def tick(self) -> None:
        """Answer those whose time is over."""
        now = self._now_ms()
        self._end(iter([one for line in self._lines.values() for one in line if one.ends_ms <= now]))

    def lost(self, connection: Connection) -> None:
        """Nobody waits there any more."""
        for key, line in list(self._lines.items()):
            kept = deque(one for one in line if one.connection is not connection)
            self.count -= len(line) - len(kept)
            self._lines[key] = kept
            self._forget(key)

    def close(self) -> None:
        """Answer all that wait: the broker stops."""
        for one in [one for line in self._lines.values() for one in line]:
            self._remove(one)
            one.over()

    def _end(self, those: Iterable[HeldPop]) -> None:
        for one in those:
            if self._remove(one) and one.connection.is_open:
                one.over()

    def _next(self, topic: str, group: str, queue_id: int) -> HeldPop | None:
        line = self._lines.get((topic, group, queue_id))
        if not line:
            return None
        one = line.popleft()
        self.count -= 1
        self._forget((topic, group, queue_id))
        return one

    def _remove(self, one: HeldPop) -> bool:
        line = self._lines.get((one.topic, one.group, one.queue_id))
        if line is None or one not in line:
            return False
        line.remove(one)
        self.count -= 1
        self._forget((one.topic, one.group, one.queue_id))
        return True

    def _forget(self, key: tuple[str, str, int]) -> None:
        if not self._lines.get(key):
            self._lines.pop(key, None)
            topic, group, _ = key
            if not any(other[:2] == (topic, group) for other in self._lines):
                groups = self._groups.get(topic)
                if groups is not None:
                    groups.pop(group, None)
                    if not groups:
                        del self._groups[topic]
