"""Delivers delayed messages: what waits in SCHEDULE_TOPIC_XXXX goes to its own topic when its time has come.

A level is a queue, read in order: all its messages wait equally long. What was delivered is noted in
delayOffset.json; after a crash the last ones may be delivered a second time, as with Apache's. A message that can't be
put is tried again.

Source: ScheduleMessageService (4.9.8); BROKER.md 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engine.broker.put.putter import STORED
from engine.broker.tables.config_file import KeptTable
from engine.broker.tables.offsets import at_most_the_end
from engine.broker.tables.topics import DLQ, RETRY
from engine.config import delay_levels
from engine.errors import CannotRepair, RStoreError
from engine.format import names, properties, queue_unit, sysflag
from engine.format.delay import queue_of_level
from engine.format.message import DueMessage
from engine.format.queue_unit import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.put.putter import Putter
    from engine.broker.tables.config_file import ConfigFile
    from engine.broker.tables.topics import TopicTable
    from engine.broker.watch.stats import Stats
    from engine.format.message import StoredMessage
    from engine.log.results import PutResult
    from engine.store import MessageStore

TICK_MS = 100
GROUP = "SCHEDULE_CONSUMER"
"""As which deliveries are counted. Source: MixAll#SCHEDULE_CONSUMER_GROUP."""
AT_ONCE = 1024
"""Messages of a level that are delivered before others have their turn."""


class Backlog(NamedTuple):
    """Messages of a level that wait, and how long the next of them should have been delivered, ms."""

    level: int
    messages: int
    late_ms: int


class ScheduleService(KeptTable):
    """See the module. `tick` every TICK_MS.

    Attributes:
        lost: messages that could not be delivered, as their record can't be read or names no topic.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        topics: TopicTable,
        stats: Stats,
        now_ms: Callable[[], int],
        file: ConfigFile,
    ) -> None:
        super().__init__(file)
        self._store = store
        self._putter = putter
        self._topics = topics
        self._stats = stats
        self._now_ms = now_ms
        self._levels = delay_levels(store.config)
        self._offsets: dict[int, int] = {}
        self._under_way: set[int] = set()
        self._stopped = False
        self.lost = 0

    def load(self) -> None:
        """Read delayOffset.json. Raises CannotRepair, StorageError. Source: also #correctDelayOffset."""
        self._read(self._file.load())
        for level, offset in self._offsets.items():
            self._offsets[level] = at_most_the_end(self._store, names.SCHEDULE_TOPIC, queue_of_level(level), offset)

    def take(self, table: dict[str, Any]) -> None:
        """A master's offsets instead of ours. Raises CannotRepair. Source: SlaveSynchronize#syncDelayOffset."""
        self._read(table)
        self._changed = True

    def _read(self, table: dict[str, Any]) -> None:
        try:
            offsets = table.get("offsetTable", {})
            self._offsets = {int(level): int(offset) for level, offset in offsets.items()}
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            raise CannotRepair("an offset is not a number", path=self._file.path) from None

    def to_json(self) -> dict[str, Any]:
        """DelayOffsetSerializeWrapper; delayOffset.json."""
        return {"offsetTable": {str(level): offset for level, offset in sorted(self._offsets.items())}}

    def places(self) -> dict[str, str]:
        """How far each level was delivered, and its end. Source: #buildRunningStats."""
        offsets = {}
        for level, offset in sorted(self._offsets.items()):
            end = self._store.max_offset(names.SCHEDULE_TOPIC, queue_of_level(level))
            offsets[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return offsets

    def backlog(self) -> list[Backlog]:
        """What waits, by level."""
        store, backlog = self._store, []
        for level in range(1, self._levels.max_level + 1):
            queue = store.find_queue(names.SCHEDULE_TOPIC, queue_of_level(level))
            if queue is None:
                continue
            offset = max(self._offsets.get(level, 0), queue.min_offset)
            waiting = max(queue.max_offset - offset, 0)
            selected = queue.select(offset, 1) if waiting else None
            late_ms = 0
            if selected is not None:
                with selected:
                    late_ms = max(0, self._now_ms() - queue_unit.decode(selected.view).tags_code)
            backlog.append(Backlog(level, waiting, late_ms))
        return backlog

    def tick(self) -> None:
        """Deliver what is due."""
        for level in range(1, self._levels.max_level + 1):
            if level not in self._under_way:
                self._deliver(level)

    def stop(self) -> None:
        """Deliver no more: the broker stops. What is under way is noted when it is there."""
        self._stopped = True

    def _deliver(self, level: int) -> None:
        if self._stopped:
            return
        store, queue_id = self._store, queue_of_level(level)
        queue = store.find_queue(names.SCHEDULE_TOPIC, queue_id)
        if queue is None:
            return
        offset = max(self._offsets.get(level, 0), queue.min_offset)
        selected = queue.select(offset, AT_ONCE)
        if selected is None:
            return
        with selected:
            units = bytes(selected.view[: selected.size // UNIT_SIZE * UNIT_SIZE])
        now = self._now_ms()
        for at in range(0, len(units), UNIT_SIZE):
            unit = queue_unit.decode(units, at)
            if min(unit.tags_code, now + self._levels.millis[level - 1]) > now:
                return
            if not self._deliver_one(level, offset, unit.physical_offset):
                return
            offset += 1

    def _deliver_one(self, level: int, offset: int, physical: int) -> bool:
        """Deliver one message; False when the next has to wait."""
        try:
            stored = self._store.look_message(physical)
        except RStoreError:
            stored = None
        message = None if stored is None else due_message(stored)
        if message is None or not self._known(message.topic):
            self.lost += 1
            self._delivered(level, offset)
            return True
        answered: list[PutResult] = []
        returned = False

        def done(result: PutResult) -> None:
            answered.append(result)
            self._under_way.discard(level)
            if result.status in STORED:
                if result.append is not None:
                    stats, size = self._stats, result.append.size
                    stats.put(message.topic, 1, size)
                    stats.got(GROUP, names.SCHEDULE_TOPIC, 1, size)
                self._delivered(level, offset)
                if returned:
                    self._deliver(level)

        self._under_way.add(level)
        self._putter.put(message, done, wait=False)
        returned = True
        return bool(answered) and answered[0].status in STORED

    def _known(self, topic: str) -> bool:
        """Whether there is such a topic: a group's own is made again, as its heartbeat has made it before a crash."""
        topics = self._topics
        return (topics.there_soon(topic) if topic.startswith((RETRY, DLQ)) else topics.find(topic)) is not None

    def _delivered(self, level: int, offset: int) -> None:
        self._offsets[level] = offset + 1
        self._changed = True


def due_message(stored: StoredMessage) -> DueMessage | None:
    """The message as it goes to its own topic; None when it names none. Source: #messageTimeup."""
    pairs = stored.properties
    topic, queue_id = pairs.get(properties.REAL_TOPIC), pairs.get(properties.REAL_QID, "0")
    if not topic or not queue_id.isdecimal():
        return None
    message = stored.to_message()._replace(
        topic=topic, queue_id=int(queue_id), properties=pairs, sys_flag=stored.sys_flag & ~sysflag.HOSTS_V6_MASK
    )
    return DueMessage(*message)
