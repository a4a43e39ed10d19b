"""What the timer of a RocketMQ 5 store will deliver, and when: each message that still waits, by its due time.

Theory: a broker goes through the due times from `lastReadTimeMs` of config/timercheck on. For each it takes the last
unit from the timer wheel and follows the chain of previous units; before that, when it starts, it sets the wheel right
by the timer log. So the log alone gives what the wheel will say, and the units of each due time, many at once
(engine.inspect.store.timer_chains). Where each of them names the one before it, they are the chain; any other chain is
followed unit by unit. It ends, as a unit names one before it, and a unit is in one chain only, the one of its due time:
hostile files cost a reading of each unit, and no more.

A message is believed when a sound record lies where the unit says, of the length and the topic that it says: the record
is of rmq_sys_wheel_timer, its properties have the topic and queue that it goes to. Messages that the timer has not yet
taken out of the queue of that topic have no unit; they come last.

A message that deletes another names its UNIQ_KEY, or TOPIC+UNIQ_KEY: the releases differ (5.3.2 and 5.3.3 take the
second alone, those before them the first, 5.5.0 goes by its setting appendTopicForTimerDeleteKey), and no file says
which one will read it. Where that setting is not given, either counts: who sent it wrote it for the broker there.

Source: TimerMessageStore#dequeue, #recoverAndRevise, #convertMessage, TimerDequeueGetMessageService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engine.dataclass import dataclass
from engine.format import names, properties
from engine.format.hashing import java_hash
from engine.format.quantities import counted
from engine.format.queue_unit import QueueUnit
from engine.format.timer_log import DELETE, NO_UNIT, ROLL, due_times
from engine.inspect.dump.dump import DAMAGE, MESSAGE
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.timer_chains import Counted
from engine.inspect.store.timer_log import unit_at
from engine.inspect.store.timer_records import TimerRecords, key_digest, keys_of
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
    from engine.inspect.store.timer_chains import Waiting
    from engine.inspect.store.timer_log import TimerFiles
    from engine.inspect.store.timer_records import Timed

ROLLED, DELETES, DELETED = "rolled", "deletes", "deleted"
_RUN = 1 << 14
"""Units of a chain that are in memory: those of one due time come in the order of the log, so many at a time."""

_TOGETHER = 1 << 13
"""Units whose records are read together, in the order of the log."""
_TOPICS = 1 << 10
"""Topics whose hash is kept."""


class DueRow(NamedTuple):
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
    timed: Timed | None = None
    reason: str | None = None

    @property
    def message(self) -> StoredMessage | None:
        """The message; None where there is damage."""
        return None if self.timed is None else self.timed.message

    def to_json(self) -> dict[str, Any]:
        """Its keys; `topic` and `queueId` are those that the message goes to."""
        row: dict[str, Any] = {
            "kind": self.kind,
            "dueTime": self.due_time,
            "timerOffset": self.unit_offset,
            "physicalOffset": self.physical_offset,
            "size": self.size,
        }
        timed = self.timed
        if timed is None:
            row["reason"] = self.reason
            return row
        row["topic"] = timed.topic
        row["queueId"] = timed.queue_id
        row["deliverTime"] = timed.deliver_time
        row["uniqKey"] = timed.named.get(properties.UNIQ_KEY)
        return row


def dump_due(disk: Disk, files: StoreFiles, timer: TimerFiles, check: TimerCheck | None) -> Iterator[DueRow]:
    """The messages that wait, by due time; those of one due time in the order of the timer log.

    `check`: how far the timer is; None: that is not known, and delivered messages are among them. Raises StorageError.
    """
    precision = precision_of(files)
    counted_units = Counted(disk, files, timer, 0 if check is None else check.last_read_time // precision, precision)
    with ClosedLog(disk, timer.files) as units, ClosedLog(disk, files.log) as log:
        records = TimerRecords(log, files.config)
        for part in counted_units.waiting():
            yield from _of_part(part, counted_units, timer, units, records)
        yield from _without_unit(disk, files, records, counted_units.taken, check)


@dataclass(frozen=True, slots=True)
class _Slot:
    """What waits for a due time (in units of the precision, ms): the last unit, how many there are, whether one
    deletes.
    """

    due: int
    precision: int
    last: int
    count: int
    deletes: bool


def _of_part(
    part: Waiting, counted_units: Counted, timer: TimerFiles, units: ClosedLog, records: TimerRecords
) -> Iterator[DueRow]:
    """The messages of some due times: chains that are whole many at once, others unit by unit."""
    import numpy as np

    if not len(part):
        return
    firsts = np.flatnonzero(part.firsts())
    lengths = np.diff(np.append(firsts, len(part)))
    dues = part.due[firsts]
    counts = counted_units.count_of(dues)
    plain = (np.add.reduceat(part.begins(), firsts) == 0) & (lengths == counts)
    deletes = np.logical_or.reduceat((part.units["magic"] & DELETE) != 0, firsts)
    plain &= ~deletes
    begin = 0
    for i in np.flatnonzero(~plain).tolist():
        at = int(firsts[i])
        yield from _many(part, begin, at, records)
        begin = at + int(lengths[i])
        last = int(part.offsets[begin - 1])
        slot = _Slot(int(dues[i]), counted_units.precision, last, int(counts[i]), bool(deletes[i]))
        yield from _of_slot(slot, timer, units, records)
    yield from _many(part, begin, len(part), records)


def _many(part: Waiting, begin: int, end: int, records: TimerRecords) -> Iterator[DueRow]:
    """The messages of units [begin, end), of which none deletes another."""
    hashes: dict[str, int] = {}
    for low in range(begin, end, _TOGETHER):
        units = part.units[low : min(low + _TOGETHER, end)]
        places = list(zip(units["physical_offset"].tolist(), units["message_size"].tolist(), strict=True))
        columns = zip(
            due_times(units).tolist(),
            part.offsets[low : low + len(units)].tolist(),
            (units["magic"] & ROLL).tolist(),
            units["topic_hash"].tolist(),
            places,
            records.read_many(places),
            strict=True,
        )
        if len(hashes) > _TOPICS:
            hashes.clear()
        for due, offset, rolls, topic_hash, (physical, size), timed in columns:
            if isinstance(timed, str):
                yield DueRow(DAMAGE, due, offset, physical, size, reason=timed)
                continue
            own = hashes.get(timed.topic)
            if own is None:
                own = hashes[timed.topic] = java_hash(timed.topic)
            if own == topic_hash and not rolls and timed.deliver_time == due:
                yield DueRow(MESSAGE, due, offset, physical, size, timed)
            else:
                yield _row(due, offset, (physical, size), topic_hash, timed, rolls=bool(rolls))


def _of_slot(slot: _Slot, timer: TimerFiles, units: ClosedLog, records: TimerRecords) -> Iterator[DueRow]:
    """The messages of one due time: those that delete others are known first."""
    keys = _deleted_keys(slot, timer, units, records) if slot.deletes else set[bytes]()
    run: list[tuple[int, TimerUnit]] = []
    length, first = 0, slot.last
    broken: DueRow | None = None
    for item in _chain(slot, timer, units):
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
        yield DueRow(DAMAGE, slot.due * slot.precision, at, reason=reason)
    yield from (_judged(offset, unit, records, keys) for offset, unit in reversed(run))


def _chain(slot: _Slot, timer: TimerFiles, units: ClosedLog) -> Iterator[tuple[int, TimerUnit] | DueRow]:
    """The units of a due time, the last first; at last the unit, with a reason, whose previous unit is none of them."""
    offset, after = slot.last, slot.last
    while offset != NO_UNIT:
        unit = unit_at(units, timer, offset)
        if isinstance(unit, str):
            yield DueRow(DAMAGE, slot.due * slot.precision, after, reason=f"no previous unit at {offset}: {unit}")
            return
        if unit.due_time // slot.precision != slot.due:
            reason = f"the previous unit, at {offset}, has another due time"
            yield DueRow(DAMAGE, slot.due * slot.precision, after, reason=reason)
            return
        yield offset, unit
        offset, after = unit.previous, offset


def _judged(offset: int, unit: TimerUnit, records: TimerRecords, keys: set[bytes]) -> DueRow:
    place = unit.physical_offset, unit.message_size
    timed = records.timed(*place)
    if isinstance(timed, str):
        return DueRow(DAMAGE, unit.due_time, offset, *place, reason=timed)
    row = _row(unit.due_time, offset, place, unit.topic_hash, timed, rolls=unit.rolls)
    if row.kind != MESSAGE:
        return row
    if unit.deletes:
        return row._replace(kind=DELETES)
    return row if keys.isdisjoint(keys_of(timed.named, records.with_topic)) else row._replace(kind=DELETED)


def _row(due_time: int, offset: int, place: tuple[int, int], topic_hash: int, timed: Timed, *, rolls: bool) -> DueRow:
    """A unit and its message, which no other one deletes. `place`: physical offset and size."""
    if java_hash(timed.topic) != topic_hash:
        return DueRow(DAMAGE, due_time, offset, *place, reason=f"the unit is of another topic than {timed.topic!r}")
    if rolls:
        return DueRow(ROLLED, due_time, offset, *place, timed)
    if timed.deliver_time != due_time:
        reason = f"its message is due at {timed.deliver_time}, not at {due_time}"
        return DueRow(DAMAGE, due_time, offset, *place, reason=reason)
    return DueRow(MESSAGE, due_time, offset, *place, timed)


def _deleted_keys(slot: _Slot, timer: TimerFiles, units: ClosedLog, records: TimerRecords) -> set[bytes]:
    """What the messages of a due time delete; 16 bytes each."""
    keys = set()
    for item in _chain(slot, timer, units):
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
            timed = records.timed(unit.physical_offset, unit.size)
            if isinstance(timed, str):
                yield DueRow(DAMAGE, None, *place, reason=timed)
                continue
            deletes = properties.TIMER_DEL_UNIQKEY in timed.named
            yield DueRow(DELETES if deletes else MESSAGE, timed.deliver_time, *place, timed)
