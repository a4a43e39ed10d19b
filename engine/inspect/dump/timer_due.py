"""What the timer of a RocketMQ 5 store will deliver, and when: each message that still waits, by its due time.

Theory: a broker goes through the due times from `lastReadTimeMs` of config/timercheck on. For each it takes the last
unit from the timer wheel and follows the chain of previous units; before that, when it starts, it sets the wheel right
by the timer log. So one pass over the log alone gives what the wheel will say (`_Chains`): for each slot the last unit
and how many there are. Then each chain is followed. A chain ends, as a unit names one before it, and a unit is in one
chain only, the one of its due time: hostile files cost a reading of each unit, and no more.

A message is believed when a sound record lies where the unit says, of the length and the topic that it says: the record
is of rmq_sys_wheel_timer, its properties have the topic and queue that it goes to. Messages that the timer has not yet
taken out of the queue of that topic have no unit; they come last.

A message that deletes another names its UNIQ_KEY, or TOPIC+UNIQ_KEY: the releases differ (5.3.2 and 5.3.3 take the
second alone, those before them the first, 5.5.0 goes by its setting appendTopicForTimerDeleteKey), and no file says
which one will read it. Where that setting is not given, either counts: who sent it wrote it for the broker there.

Source: TimerMessageStore#dequeue, #recoverAndRevise, #convertMessage, TimerDequeueGetMessageService.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.format import names, properties, timer_wheel
from engine.format.hashing import java_hash
from engine.format.numbers import parse_int
from engine.format.quantities import counted
from engine.format.queue_unit import QueueUnit
from engine.format.timer_log import DELETE, NO_UNIT, UNIT_SIZE, due_times
from engine.inspect.dump.dump import DAMAGE, MESSAGE
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.timer_log import TimerBatch, timer_batches, unit_at
from engine.inspect.store.timer_records import TimerRecords, as_long, key_digest, keys_of
from engine.inspect.store.timer_wheel import precision_of
from engine.log.derive import TopicQueue
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.format.timer_check import TimerCheck
    from engine.format.timer_log import TimerUnit
    from engine.inspect.store.survey import StoreFiles
    from engine.inspect.store.timer_log import TimerFiles

ROLLED, DELETES, DELETED = "rolled", "deletes", "deleted"
_RUN = 1 << 14
"""Units of a chain that are in memory: those of one due time come in the order of the log, so many at a time."""

_AT_ONCE = 1 << 16
"""Bytes of a record that are read before it is known to be one."""


@dataclass(frozen=True, slots=True)
class DueRow:
    """A message that waits.

    Attributes:
        kind: MESSAGE: it is delivered. ROLLED: it is put into the timer again, to be delivered later. DELETES: it takes
            another message out. DELETED: another one takes it out. DAMAGE: it is not delivered, with `reason`.
        due_time: when, ms; None: nothing tells.
        unit_offset: place of its unit in the timer log; None: it has none yet.
        physical_offset, size: where its record is in the log, bytes.
    """

    kind: str
    due_time: int | None
    unit_offset: int | None = None
    physical_offset: int | None = None
    size: int | None = None
    message: StoredMessage | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Its keys; `topic` and `queueId` are those that the message goes to."""
        row: dict[str, Any] = {"kind": self.kind, "dueTime": self.due_time, "timerOffset": self.unit_offset}
        row |= {"physicalOffset": self.physical_offset, "size": self.size}
        if self.message is None:
            return row | {"reason": self.reason}
        named = self.message.properties
        return row | {
            "topic": named[properties.REAL_TOPIC],
            "queueId": parse_int(named[properties.REAL_QID]),
            "deliverTime": as_long(named[properties.TIMER_OUT_MS]),
            "uniqKey": named.get(properties.UNIQ_KEY),
        }


def dump_due(disk: Disk, files: StoreFiles, timer: TimerFiles, check: TimerCheck | None) -> Iterator[DueRow]:
    """The messages that wait, by due time; those of one due time in the order of the timer log.

    `check`: how far the timer is; None: that is not known, and delivered messages are among them. Raises StorageError.
    """
    precision = precision_of(files)
    chains = _Chains(0 if check is None else check.last_read_time // precision, precision)
    for item in timer_batches(disk, files, timer):
        if isinstance(item, TimerBatch):
            chains.add(item)
    with ClosedLog(disk, timer.files) as units, ClosedLog(disk, files.log) as log:
        records = TimerRecords(log, files.config)
        for slot in chains.slots():
            yield from _of_slot(slot, chains, timer, units, records)
        yield from _without_unit(disk, files, records, chains.taken, check)


@dataclass(frozen=True, slots=True)
class _Slot:
    """What waits for a due time (in units of the precision): the last unit, how many there are, whether one deletes."""

    due: int
    last: int
    count: int
    deletes: bool


class _Chains:
    """The wheel as the timer log makes it: 30 MB, whatever the log holds."""

    def __init__(self, first_due: int, precision: int) -> None:
        import numpy as np

        self.first_due = first_due
        self.precision = precision
        self.taken = -1
        """The highest physical offset that a unit names."""
        self._due = np.full(timer_wheel.SLOTS, -1, np.int64)
        self._last = np.full(timer_wheel.SLOTS, NO_UNIT, np.int64)
        self._count = np.zeros(timer_wheel.SLOTS, np.int64)
        self._deletes = np.zeros(timer_wheel.SLOTS, np.bool_)

    def add(self, batch: TimerBatch) -> None:
        import numpy as np

        self.taken = max(self.taken, int(batch.units["physical_offset"].max()))
        due = due_times(batch.units) // self.precision
        waiting = np.flatnonzero(due >= self.first_due)
        due = due[waiting]
        slots = due % timer_wheel.SLOTS
        self._due[slots] = due  # of equal ones the last counts
        self._last[slots] = batch.offset + waiting * UNIT_SIZE
        np.add.at(self._count, slots, 1)
        np.logical_or.at(self._deletes, slots, (batch.units["magic"][waiting] & DELETE) != 0)

    def slots(self) -> Iterator[_Slot]:
        """By due time."""
        import numpy as np

        used = np.flatnonzero(self._last != NO_UNIT)
        for i in used[np.argsort(self._due[used], kind="stable")].tolist():
            yield _Slot(int(self._due[i]), int(self._last[i]), int(self._count[i]), bool(self._deletes[i]))


def _of_slot(
    slot: _Slot, chains: _Chains, timer: TimerFiles, units: ClosedLog, records: TimerRecords
) -> Iterator[DueRow]:
    """The messages of one due time: those that delete others are known first."""
    keys = _deleted_keys(slot, chains, timer, units, records) if slot.deletes else set[bytes]()
    run: list[tuple[int, TimerUnit]] = []
    length, first = 0, slot.last
    broken: DueRow | None = None
    for item in _chain(slot, chains, timer, units):
        if isinstance(item, DueRow):
            broken = item
            continue
        run.append(item)
        first = item[0]
        length += 1
        if len(run) == _RUN:
            yield from (_judged(offset, unit, records, keys) for offset, unit in reversed(run))
            run.clear()
    if broken is not None or length < slot.count:
        why = "the chain of previous units begins here" if broken is None else broken.reason
        at = first if broken is None else broken.unit_offset
        lost = slot.count - length  # a slot whose units are all in its chain has lost what was in a file that is gone
        reason = f"{why}: {counted(lost, 'unit')} of the same slot will not be delivered" if lost else why
        yield DueRow(DAMAGE, slot.due * chains.precision, at, reason=reason)
    yield from (_judged(offset, unit, records, keys) for offset, unit in reversed(run))


def _chain(
    slot: _Slot, chains: _Chains, timer: TimerFiles, units: ClosedLog
) -> Iterator[tuple[int, TimerUnit] | DueRow]:
    """The units of a due time, the last first; at last the unit, with a reason, whose previous unit is none of them."""
    offset, after = slot.last, slot.last
    while offset != NO_UNIT:
        unit = unit_at(units, timer, offset)
        if isinstance(unit, str):
            yield DueRow(DAMAGE, slot.due * chains.precision, after, reason=f"no previous unit at {offset}: {unit}")
            return
        if unit.due_time // chains.precision != slot.due:
            reason = f"the previous unit, at {offset}, has another due time"
            yield DueRow(DAMAGE, slot.due * chains.precision, after, reason=reason)
            return
        yield offset, unit
        offset, after = unit.previous, offset


def _judged(offset: int, unit: TimerUnit, records: TimerRecords, keys: set[bytes]) -> DueRow:
    place = (unit.due_time, offset, unit.physical_offset, unit.message_size)
    stored = records.read(unit.physical_offset, unit.message_size)
    if isinstance(stored, str):
        return DueRow(DAMAGE, *place, reason=stored)
    named = stored.properties
    if java_hash(named[properties.REAL_TOPIC]) != unit.topic_hash:
        return DueRow(DAMAGE, *place, reason=f"the unit is of another topic than {named[properties.REAL_TOPIC]!r}")
    deliver_time = as_long(named[properties.TIMER_OUT_MS])
    if unit.rolls:
        return DueRow(ROLLED, *place, stored)
    if deliver_time != unit.due_time:
        return DueRow(DAMAGE, *place, reason=f"its message is due at {deliver_time}, not at {unit.due_time}")
    if unit.deletes:
        return DueRow(DELETES, *place, stored)
    return DueRow(MESSAGE if keys.isdisjoint(keys_of(named, records.with_topic)) else DELETED, *place, stored)


def _deleted_keys(
    slot: _Slot, chains: _Chains, timer: TimerFiles, units: ClosedLog, records: TimerRecords
) -> set[bytes]:
    """What the messages of a due time delete; 16 bytes each."""
    keys = set()
    for item in _chain(slot, chains, timer, units):
        if isinstance(item, DueRow) or not item[1].deletes:
            continue
        stored = records.read(item[1].physical_offset, item[1].message_size)
        if not isinstance(stored, str) and properties.TIMER_DEL_UNIQKEY in stored.properties:
            keys.add(key_digest(stored.properties[properties.TIMER_DEL_UNIQKEY]))
    return keys


def _without_unit(
    disk: Disk, files: StoreFiles, records: TimerRecords, taken: int, check: TimerCheck | None
) -> Iterator[DueRow]:
    """Messages of the timer's queue that come after those of the last unit and were not delivered at once."""
    if files.newer.hides(names.TIMER_TOPIC):
        return
    queue = next((one for one in files.queues if one.queue == TopicQueue(names.TIMER_TOPIC, 0)), None)
    if queue is None:
        return
    rows = QueueRows(disk, queue)
    low = rows.first if check is None else max(rows.first, check.last_timer_queue_offset)
    for _, chunk in rows.chunks(low, max(low, rows.extent)):
        real = chunk[is_real(chunk)]
        for values in real[real["physical_offset"] > taken].tolist():
            unit = QueueUnit(*values)
            place = (None, unit.physical_offset, unit.size)
            stored = records.read(unit.physical_offset, unit.size)
            if isinstance(stored, str):
                yield DueRow(DAMAGE, None, *place, reason=stored)
                continue
            due = as_long(stored.properties[properties.TIMER_OUT_MS])
            assert due is not None  # `_not_timed`
            deletes = properties.TIMER_DEL_UNIQKEY in stored.properties
            yield DueRow(DELETES if deletes else MESSAGE, due, *place, stored)
