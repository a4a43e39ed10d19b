"""Gives popped messages again that nobody acknowledged in time: it reads the revive topic as the timer fills it.

A checkpoint comes to it a second before its messages are visible again, their acknowledgements until then. When that
time has passed, and all that the timer had for it is read, what is left of a checkpoint goes to the retry topic of its
group, with reconsumeTimes + 1. How far a queue is done is the offset of CID_RMQ_SYS_REVIVE_GROUP, as RocketMQ 5 has it:
that of the last checkpoint that is done.

Source: PopReviveService (5.3.3).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.broker.pop.journal import QUEUES
from engine.broker.pop.receipts import (
    ACK,
    BATCH_ACK,
    CHECKPOINT,
    Acknowledged,
    PopCheckpoint,
    normal_topic,
    retry_topic,
)
from engine.broker.put.putter import STORED
from engine.broker.turns import TURN_S
from engine.dataclass import dataclass
from engine.errors import FormatError, RStoreError
from engine.format import fastjson, names, properties, queue_unit, sysflag
from engine.format.message import DueMessage
from engine.format.queue_unit import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.pop.journal import PopJournal
    from engine.broker.put.putter import Putter
    from engine.broker.put.timers import TimerService
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.broker.turns import Turns
    from engine.broker.watch.stats import Stats
    from engine.format.hosts import Host
    from engine.format.message import StoredMessage
    from engine.log.results import PutResult
    from engine.store import MessageStore

TICK_S = 0.2
GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Source: PopAckConstants#REVIVE_GROUP."""
GRACE_MS = 500
"""How long after its time a checkpoint waits for what was acknowledged at the last moment."""
FIRST_POP_TIME = "1ST_POP_TIME"
_UNITS = 1024


@dataclass(slots=True, eq=False)
class _Open:
    """A checkpoint whose time has not come, or that is being done. `offset`: its own in the revive queue."""

    checkpoint: PopCheckpoint
    offset: int
    left: set[int]
    under_way: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _ReviveQueue:
    position: int
    open: dict[tuple[str, str, int, int, int, str], _Open] = field(default_factory=dict)


class ReviveService:
    """See the module. `tick` every TICK_S. For the loop's thread alone."""

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        journal: PopJournal,
        timers: TimerService,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        stats: Stats,
        turns: Turns,
        store_host: Host,
        broker_name: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._putter = putter
        self._topic = journal.topic
        self._timers = timers
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._stats = stats
        self._turns = turns
        self._store_host = store_host
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._queues: dict[int, _ReviveQueue] = {}
        self._stopped = False

    def stop(self) -> None:
        """Give nothing again any more: the broker stops."""
        self._stopped = True

    def tick(self) -> None:
        """Read what has come, and give again what is due."""
        if self._topics.find(self._topic) is None:
            return
        ends = self._turns.clock() + TURN_S
        for queue_id in range(QUEUES):
            if self._stopped or self._turns.clock() >= ends:
                return
            queue = self._queue(queue_id)
            if self._read(queue_id, queue, ends):
                self._do(queue_id, queue, ends)

    def _queue(self, queue_id: int) -> _ReviveQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            done = self._offsets.get(GROUP, self._topic, queue_id)
            queue = self._queues[queue_id] = _ReviveQueue(0 if done is None else done + 1)
        return queue

    def _read(self, queue_id: int, queue: _ReviveQueue, ends: float) -> bool:
        """Read what has come; whether that is all."""
        units = self._store.find_queue(self._topic, queue_id)
        if units is None:
            return False
        queue.position = min(max(queue.position, units.min_offset), units.max_offset)
        selected = units.select(queue.position, _UNITS)
        if selected is None:
            return not self._store.lags(self._topic, queue_id)
        with selected:
            content = bytes(selected.view[: selected.size // UNIT_SIZE * UNIT_SIZE])
        for at in range(0, len(content), UNIT_SIZE):
            if self._turns.clock() >= ends:
                return False
            self._take_in(queue, queue_unit.decode(content, at).physical_offset)
            queue.position += 1
        return queue.position >= units.max_offset and not self._store.lags(self._topic, queue_id)

    def _take_in(self, queue: _ReviveQueue, physical: int) -> None:
        stored = self._look(physical)
        tag = None if stored is None else stored.properties.get(properties.TAGS)
        if stored is None or tag not in (CHECKPOINT, ACK, BATCH_ACK):
            return
        try:
            value = fastjson.loads(stored.body.decode("utf-8", "replace"))
            if tag == CHECKPOINT:
                one = PopCheckpoint.of_json(value)
                queue.open[one.key] = _Open(one, queue.position, set(one.offsets))
                return
            acked = Acknowledged.of_json(value, self._broker_name)
        except FormatError:
            return
        known = queue.open.get(acked.key)
        if known is not None:
            known.left.difference_update(acked.offsets)

    def _do(self, queue_id: int, queue: _ReviveQueue, ends: float) -> None:
        """Give again what is due, as far as all that the timer had for it is read."""
        now = self._now_ms()
        until = min(now - GRACE_MS, self._timers.progress.until_ms)
        for one in list(queue.open.values()):
            if one.checkpoint.revive_ms > until:
                continue
            if self._turns.clock() >= ends:
                return
            self._give_again(queue_id, queue, one)
        self._commit(queue_id, queue)

    def _give_again(self, queue_id: int, queue: _ReviveQueue, one: _Open) -> None:
        checkpoint = one.checkpoint
        known = self._topics.find(normal_topic(checkpoint.topic, checkpoint.group)) is not None
        if not known or self._groups.find(checkpoint.group) is None:
            one.left.clear()
        for offset in sorted(one.left - one.under_way):
            self._give_one(queue_id, queue, one, offset)
        self._finished(queue, one)

    def _finished(self, queue: _ReviveQueue, one: _Open) -> None:
        if not one.left and queue.open.get(one.checkpoint.key) is one:
            del queue.open[one.checkpoint.key]

    def _commit(self, queue_id: int, queue: _ReviveQueue) -> None:
        first = min((one.offset for one in queue.open.values()), default=queue.position)
        if first > 0:
            self._offsets.commit(GROUP, self._topic, queue_id, first - 1)

    def _give_one(self, queue_id: int, queue: _ReviveQueue, one: _Open, offset: int) -> None:
        checkpoint = one.checkpoint
        units = self._store.find_queue(checkpoint.topic, checkpoint.queue_id)
        unit = None if units is None else units.get(offset)
        stored = None if unit is None else self._look(unit.physical_offset)
        if stored is None:  # it has expired
            one.left.discard(offset)
            return
        message = self._again(checkpoint, stored)

        def done(result: PutResult) -> None:
            one.under_way.discard(offset)
            if result.status in STORED:
                if result.append is not None:
                    self._stats.put(message.topic, 1, result.append.size)
                one.left.discard(offset)
                self._finished(queue, one)
                self._commit(queue_id, queue)

        one.under_way.add(offset)
        self._putter.put(message, done, wait=False)

    def _again(self, checkpoint: PopCheckpoint, stored: StoredMessage) -> DueMessage:
        """The message as it goes to the retry topic. Source: #reviveRetry."""
        topic, group = checkpoint.topic, checkpoint.group
        if not topic.startswith(names.RETRY_PREFIX):
            topic = retry_topic(topic, group)
        if self._topics.find(topic) is None:
            self._topics.there_soon(topic, 1)
            if self._offsets.get(group, topic, 0) is None:
                self._offsets.commit(group, topic, 0, 0)
        pairs = stored.properties
        if stored.reconsume_times == 0 or FIRST_POP_TIME not in pairs:
            pairs[FIRST_POP_TIME] = str(checkpoint.pop_time)
        message = stored.to_message()._replace(
            topic=topic,
            queue_id=0,
            properties=pairs,
            sys_flag=stored.sys_flag & ~sysflag.HOSTS_V6_MASK,
            born_host=self._store_host,
            store_host=self._store_host,
            reconsume_times=stored.reconsume_times + 1,
            prepared_transaction_offset=0,
        )
        return DueMessage(*message)

    def _look(self, physical: int) -> StoredMessage | None:
        try:
            return self._store.look_message(physical)
        except RStoreError:
            return None
