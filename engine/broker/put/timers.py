"""Delivers timer messages: what waits in rmq_sys_wheel_timer goes to its own topic when its time has come.

The queue is read as it grows, and when each message is due is kept in memory (`timer_schedule`); the message itself is
read again when it is due. What was delivered is noted in timerProgress.json: all before a queue offset that was due up
to a time. So a start reads the queue from the first message that waits, and passes over what was delivered; after a
crash what was delivered in the last second may be delivered a second time, as by a broker of RocketMQ 5. Beside it
config/timercheck is written as RocketMQ 5 has it, so that such a broker goes on from there: there is no timer log, so
it takes the queue from the first message that waits.

A message is due when its own properties say, to the millisecond; by TIMER_OUT_MS alone it is the end of that second, as
a broker of RocketMQ 5 delivers it. One that is due in two days or more is put into the queue again meanwhile, so that
the log that it lies in may expire. One with TIMER_DEL_UNIQKEY takes another one of its second out.

Source: TimerMessageStore (5.3.3); BROKER.md 2.8.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.broker.put.putter import STORED
from engine.broker.put.schedule import due_message
from engine.broker.put.timer_log_end import progress_of_log
from engine.broker.put.timer_schedule import TimerSchedule
from engine.broker.put.timer_timing import SECOND_MS, plain_event, timing_of
from engine.broker.tables.config_file import KeptTable
from engine.broker.tables.offsets import at_most_the_end
from engine.broker.tables.topics import DLQ, RETRY
from engine.broker.turns import TURN_S
from engine.errors import CannotRepair, FormatError, RStoreError
from engine.format import names, properties, timer_check
from engine.format.message import DueMessage, plain_properties
from engine.format.numbers import parse_int
from engine.format.queue_unit import UNIT, UNIT_SIZE
from engine.format.record import MIN_RECORD_SIZE
from engine.format.timer_check import TimerCheck
from engine.format.timer_progress import TimerProgress
from engine.log.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.put.putter import Putter
    from engine.broker.tables.config_file import Changes, ConfigFile
    from engine.broker.tables.topics import TopicTable
    from engine.broker.turns import Turns
    from engine.broker.watch.stats import Stats
    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.log.results import PutResult
    from engine.store import MessageStore

TICK_S = 0.02
"""How often the queue is looked at."""
WRITE_S = 1.0
"""How often the progress is written. Source: timerFlushIntervalMs."""
AT_ONCE = 1024
"""Units that are read at a time, and messages that may be under way."""
_AGAIN_S = 0.5
_CHECK_FILE = 4096
"""Bytes of config/timercheck. Source: TimerCheckpoint."""
_LOG_END = "logEnd"
"""What was delivered lies before this physical offset."""
_HOPELESS = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})


class TimerService(KeptTable):
    """See the module. `tick` every `pause_s`. For the loop's thread alone, but `write`.

    Attributes:
        schedule: what waits.
        lost: messages that could not be delivered, as their record can't be read or names no topic.
        recalled: messages that others took out.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        topics: TopicTable,
        stats: Stats,
        turns: Turns,
        now_ms: Callable[[], int],
        file: ConfigFile,
        disk: Disk,
    ) -> None:
        super().__init__(file)
        self._store = store
        self._putter = putter
        self._topics = topics
        self._stats = stats
        self._turns = turns
        self._now_ms = now_ms
        self._disk = disk
        self._check_path = os.path.join(os.path.dirname(file.path), names.TIMER_CHECK)
        self.schedule = TimerSchedule()
        self._before = TimerProgress()
        self._masters: tuple[TimerProgress, int] | None = None
        self._position = 0
        self._deletes: dict[int, Counter[str]] = {}
        self._runs = False
        self._stopped = False
        self._resting_until = 0.0
        self.lost = 0
        self.recalled = 0

    # --- the progress -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read how far it was delivered, here or by a broker of RocketMQ 5. Raises CannotRepair, StorageError.

        Where no file says so, or the log has been cut since, the log itself says it.
        """
        told = self._file.load()
        try:
            mine, log_end = TimerProgress.of(told), int(str(told.get(_LOG_END, 0)))
        except (FormatError, ValueError):
            raise CannotRepair("a time or an offset is not a number", path=self._file.path) from None
        theirs = self._checkpoint()
        if log_end > self._store.log.max_offset or not (told or theirs):
            mine = progress_of_log(self._store, self._now_ms())
            self._changed = bool(told) or mine != TimerProgress()  # a store without any gets no files of a timer
        elif theirs is not None and theirs.last_read_time > mine.until_ms:
            mine = TimerProgress.of_check(theirs)
        end = at_most_the_end(self._store, names.TIMER_TOPIC, 0, mine.queue_offset)
        self._before = mine._replace(queue_offset=end)
        self._position = min(mine.first, end)

    def _checkpoint(self) -> TimerCheck | None:
        if not self._disk.exists(self._check_path):
            return None
        try:
            return timer_check.decode(self._disk.read_file(self._check_path, timer_check.FIELDS_SIZE))
        except FormatError as error:
            raise CannotRepair(error.message, path=self._check_path, hint="repair it, or move it away") from None

    @property
    def progress(self) -> TimerProgress:
        """How far it is delivered; what the start found until all of that is read again."""
        before, position = self._before, self._position
        if position < before.queue_offset:
            return before
        until = max(before.until_ms, min(self._now_ms(), self.schedule.first_due - 1))
        return TimerProgress(until, position, self.schedule.first_offset(position))

    def to_json(self) -> dict[str, Any]:
        """timerProgress.json."""
        return {**self.progress.to_json(), _LOG_END: self._store.log.max_offset}

    def check(self) -> TimerCheck:
        """How far it is delivered, as a broker of RocketMQ 5 has it: it reads the queue from the first that waits."""
        until, _, first = self.progress
        return TimerCheck(until // SECOND_MS * SECOND_MS, 0, first, first)

    def take(self, progress: TimerProgress, log_end: int) -> None:
        """Go by a master's progress, as soon as the log is here up to `log_end` (physical): on a slave.

        What the master has delivered before it said so is before that. Source: SlaveSynchronize#syncTimerCheckPoint.
        """
        self._take_over()
        if self._masters is None:  # else this one would wait in place of one that is nearer
            self._masters = progress, log_end
            self._take_over()

    def _take_over(self) -> None:
        if self._masters is not None and self._store.log.max_offset >= self._masters[1]:
            self._before, self._masters = self._masters[0], None
            self._position = min(self._before.first, self._before.queue_offset)
            self._changed = True

    def changes(self) -> Changes | None:
        """As KeptTable."""
        self._take_over()
        return super().changes()

    def write(self, changes: Changes) -> None:
        """As KeptTable, and the checkpoint of RocketMQ 5 after it."""
        super().write(changes)
        until, _, first = TimerProgress.of(changes.table())
        check = TimerCheck(until // SECOND_MS * SECOND_MS, 0, first, first)
        self._disk.write_file_atomically(self._check_path, check.encode().ljust(_CHECK_FILE, b"\0"))

    # --- the work ---------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that wait, as far as the queue is read."""
        return self.schedule.count

    def pause_s(self) -> float:
        """How long until the next tick: less than TICK_S where a message is due before."""
        return max(0.001, min(TICK_S, (self.schedule.first_due - self._now_ms()) / SECOND_MS))

    def tick(self) -> None:
        """Read what has come, and deliver what is due, in turns."""
        if not self._runs:
            self._runs = True
            self._step()

    def stop(self) -> None:
        """Deliver no more: the broker stops. What is under way is noted when it is there."""
        self._stopped = True

    def _step(self) -> None:
        ends = self._turns.clock() + TURN_S
        more = False
        try:
            if not self._stopped:
                more = self._deliver(ends) | self._read_queue(ends) | self._deliver(ends)
        finally:
            self._runs = more
        if more:
            self._turns.next(self._step)

    def _read_queue(self, ends: float) -> bool:
        """Take in what has come; whether there is more."""
        queue = self._store.find_queue(names.TIMER_TOPIC, 0)
        if queue is None:
            return False
        self._position = max(self._position, queue.min_offset)
        selected = queue.select(self._position, AT_ONCE)
        if selected is None:
            return False
        with selected:
            units = bytes(selected.view[: selected.size // UNIT_SIZE * UNIT_SIZE])
        return self._take_in_many(units, ends) or bool(units)

    def _take_in_many(self, units: bytes, ends: float) -> bool:
        """The messages of the next units: those that are plain by their bytes; whether the time was up before."""
        before, first, clock = self._before, self._position, self._turns.clock
        offset, base, data = first, 0, memoryview(b"")
        plain: list[tuple[int, int]] = []
        for physical, size, _ in UNIT.iter_unpack(units):
            if clock() >= ends:
                break
            at = physical - base
            if at < 0 or at + size > len(data):
                base, data = self._readable(physical, size)
                at = physical - base
            there = size >= MIN_RECORD_SIZE and 0 <= at <= len(data) - size
            parts = plain_properties(bytes(data[at : at + size])) if there else None
            event = None if parts is None else plain_event(parts[1], parts[0])
            if event is None:
                self._take_in(offset, physical)
            elif offset >= before.queue_offset or event > before.until_ms:
                plain.append((event, offset))
            offset += 1
        self.schedule.add_many(plain)
        self._position = offset
        self._changed |= offset > first
        return offset - first < len(units) // UNIT_SIZE

    def _readable(self, physical: int, size: int) -> tuple[int, memoryview]:
        """As MessageReader.readable; nothing where that can't be read."""
        try:
            return self._store.readable(physical, size) or (0, memoryview(b""))
        except RStoreError:
            return 0, memoryview(b"")

    def _take_in(self, offset: int, physical: int) -> None:
        stored = self._stored(physical)
        if stored is None:
            self.lost += 1
            return
        pairs = stored.properties
        timing = timing_of(pairs, stored.store_timestamp)
        if timing is None:
            self.lost += 1
            return
        if offset < self._before.queue_offset and timing.event <= self._before.until_ms:
            return
        key = pairs.get(properties.TIMER_DEL_UNIQKEY)
        if key is not None and not timing.rolls:
            self._deletes.setdefault(timing.out, Counter())[key] += 1
        self.schedule.add(timing.event, offset)

    def _deliver(self, ends: float) -> bool:
        """Deliver what is due; whether there is more."""
        schedule, clock = self.schedule, self._turns.clock
        if clock() < self._resting_until:
            return False
        now = self._now_ms()
        while schedule.open(now):
            if clock() >= ends:
                return True
        while schedule.under_way < AT_ONCE:
            entry = schedule.take(now)
            if entry is None:
                return False
            self._changed = True
            self._deliver_one(entry[1])
            if clock() >= ends:
                return True
        return False

    def _deliver_one(self, offset: int) -> None:
        queue = self._store.find_queue(names.TIMER_TOPIC, 0)
        unit = None if queue is None else queue.get(offset)
        stored = None if unit is None else self._stored(unit.physical_offset)
        timing = None if stored is None else timing_of(stored.properties, stored.store_timestamp)
        if stored is None or timing is None:
            self._dropped(offset)
            return
        key = stored.properties.get(properties.TIMER_DEL_UNIQKEY)
        if not timing.rolls and key is not None:
            self._forget_delete(timing.out, key)
            self.schedule.done(offset)
        elif not timing.rolls and self._is_deleted(timing.out, stored):
            self.recalled += 1
            self.schedule.done(offset)
        else:
            self._put(offset, stored, rolls=timing.rolls)

    def _put(self, offset: int, stored: StoredMessage, *, rolls: bool) -> None:
        message = due_message(stored)
        if message is None or not (rolls or self._known(message.topic)):
            self._dropped(offset)
            return
        pairs = {
            **message.properties,
            properties.TIMER_ENQUEUE_MS: str(stored.store_timestamp),
            properties.TIMER_DEQUEUE_MS: str(self._now_ms()),
        }
        if rolls:
            pairs[properties.TIMER_ROLL_TIMES] = str(_times(pairs) + 1)
            message = DueMessage(*message._replace(topic=names.TIMER_TOPIC, queue_id=0))
        topic = message.topic

        def done(result: PutResult) -> None:
            if result.status in STORED:
                if result.append is not None:
                    self._stats.put(topic, 1, result.append.size)
                self.schedule.done(offset)
            elif result.status in _HOPELESS:
                self._dropped(offset)
            else:
                self.schedule.again(offset)
                self._resting_until = self._turns.clock() + _AGAIN_S
            self._changed = True

        self._putter.put(DueMessage(*message._replace(properties=pairs)), done, wait=False)

    def _dropped(self, offset: int) -> None:
        self.lost += 1
        self.schedule.done(offset)

    def _stored(self, physical: int) -> StoredMessage | None:
        try:
            return self._store.look_message(physical)
        except RStoreError:
            return None

    def _known(self, topic: str) -> bool:
        """As of delayed messages: a group's own topic is made again."""
        topics = self._topics
        return (topics.there_soon(topic) if topic.startswith((RETRY, DLQ)) else topics.find(topic)) is not None

    def _is_deleted(self, out: int, stored: StoredMessage) -> bool:
        """Whether another one takes it out: releases name it in two ways (buildDeleteKey)."""
        keys, pairs = self._deletes.get(out), stored.properties
        key = pairs.get(properties.UNIQ_KEY)
        if not keys or key is None:
            return False
        return key in keys or f"{pairs.get(properties.REAL_TOPIC)}+{key}" in keys

    def _forget_delete(self, out: int, key: str) -> None:
        keys = self._deletes.get(out)
        if keys is not None:
            keys[key] -= 1
            if keys[key] <= 0:
                del keys[key]
            if not keys:
                del self._deletes[out]


def _times(pairs: Mapping[str, str]) -> int:
    try:
        return parse_int(pairs.get(properties.TIMER_ROLL_TIMES, "0"))
    except ValueError:
        return 0
