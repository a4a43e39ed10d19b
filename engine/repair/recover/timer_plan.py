"""What becomes of RocketMQ 5's timer log, timer wheel and config/timercheck when the log is recovered or cut.

All three say again what the log says: which messages wait for their time. So where one of them is torn or lost, points
after the log end, or disagrees with the log, they are rebuilt as a whole, out of the records of the timer's queue
and what was delivered of them (engine.inspect.store.timer_pending): a timer log with one unit for each message that is
yet to be delivered, the wheel that follows from it, and a timercheck that says that all of the queue is in it.

What its broker does with that (TimerMessageStore#recover, 5.3.3 and 5.5.0): it goes through the last files of the
timer log, and takes the queue offset after that of the last unit's message for where the queue is read on, whatever
timercheck says; so if the queue's last message does not wait, the last unit names it all the same, with a due time that
is over.
It delivers what is due from `lastReadTimeMs` on: nothing that was delivered has a unit, so that may be any time before
the first that waits, and must not be later than now, or what is sent for an earlier time is passed over. It starts at
most seven days ago; what was due before gets a due time of now.

The three are written in this order, timercheck last: it is what the plan goes by beside log and queue, so a repair that
is killed is planned again as it was.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import names, timer_check, timer_log, timer_wheel
from engine.format.hashing import java_hash
from engine.format.numbers import read_java_int
from engine.format.quantities import counted
from engine.format.timer_check import TimerCheck
from engine.format.timer_log import DELETE, NO_UNIT, ROLL, UNIT_SIZE, TimerUnit
from engine.format.timer_wheel import TimerSlot
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.timer_chains import Counted
from engine.inspect.store.timer_log import TimerFiles, timer_files
from engine.inspect.store.timer_pending import TimerMessage, pending, rows_of
from engine.inspect.store.timer_records import TimerRecords, unit_fault
from engine.inspect.store.timer_slots import has_timer, place_of, wrong_slots
from engine.inspect.store.timer_wheel import precision_of, read_timer_check
from engine.log.derive import TopicQueue
from engine.repair.recover.log_end import Mode

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.inspect.store.timer_pending import Row
    from engine.log.source import LogSource
    from engine.repair.recover.plan import RecoverPlan

FILE_SIZE = 100 * 1024 * 1024
"""mappedFileSizeTimerLog unless set."""
QUEUE = TopicQueue(names.TIMER_TOPIC, 0)
_WINDOW = 2 * 24 * 3600
_LARGEST_WINDOW = 7 * 24 * 3600 - 60
_NO_RECORD = 4
"""A length (bytes) at which nothing is decoded."""
_OVERDUE_MS = 6 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class TimerPlan:
    """A timer log, a wheel and a timercheck that are rebuilt.

    Attributes:
        why: what is wrong with those that are there.
        waiting: how many messages wait.
        units: of the timer log, in their order, that of what has been delivered (`sentinel`) last.
        sentinel: whether there is one.
        slots: of the wheel, by their number.
        check: what config/timercheck gets.
        file_size: bytes of a file of the timer log.
        old: files of the timer log that are there, with their lengths (bytes).
    """

    why: str
    waiting: int
    units: tuple[TimerUnit, ...]
    sentinel: bool
    slots: tuple[tuple[int, TimerSlot], ...]
    check: TimerCheck
    file_size: int
    old: tuple[tuple[str, int], ...]

    @property
    def file_count(self) -> int:
        """How many files the timer log has then."""
        return -(-len(self.units) // timer_log.units_of_file(self.file_size))

    def paths(self, root: str) -> list[str]:
        """The files of the timer log then."""
        directory = os.path.join(root, names.TIMER_LOG)
        return [os.path.join(directory, names.segment_name(i * self.file_size)) for i in range(self.file_count)]

    def to_json(self) -> dict[str, Any]:
        """Its keys in the JSON of a plan."""
        return {"why": self.why, "waiting": self.waiting, "lastReadTime": self.check.last_read_time}


def plan_timer(disk: Disk, plan: RecoverPlan, log: LogSource) -> TimerPlan | None:
    """The timer of a store of RocketMQ 5 after a recovery; None where it has none, or nothing is wrong with it.

    `log`: as it will be. Raises StorageError.
    """
    files = plan.files
    timer = timer_files(disk, files)
    if not has_timer(disk, files, timer):
        return None
    check, why = _check_of(disk, files)
    rows, maximum = _rows_of(disk, plan)
    precision = precision_of(files)
    now = disk.now_ms() // precision * precision
    records = TimerRecords(log, files.config)
    seen = _Seen(disk, files, timer, check, precision, plan.log.end.end, records)
    if check is not None and check.is_ahead(now):
        why = (
            f"config/timercheck says that what is due before {check.last_read_time} was delivered, which is yet to come"
        )
    why = why or (None if check is not None or not rows else "config/timercheck is missing") or seen.wrong(rows)
    changed = plan.to is not None or plan.log.bytes_cut or plan.log.bridges or (rows and seen.is_empty)
    if why is None and not (changed or plan.mode is Mode.ABNORMAL):
        return None
    waits = pending(log, files.config, rows, plan.log.end.end, precision).messages
    why = why or seen.differs(waits, rows, maximum)
    if why is None:
        return None
    odd = [path for path, _ in timer.odd if not disk.is_dir(path)]
    held = tuple((path, disk.stat(path).size) for path in (*(one.path for one in timer.files), *odd))
    if rows and not _shows_own(rows[-1], records):
        rows[-1] = (rows[-1][0], rows[-1][1], _NO_RECORD)
    return _made(files, timer, check, waits, rows, maximum, why, precision, now, held)


def _shows_own(row: Row, records: TimerRecords) -> bool:
    """Whether a unit of the timer's queue names the message that belongs there."""
    stored = records.read(row[1], row[2])
    return not isinstance(stored, str) and stored.queue_offset == row[0]


def _check_of(disk: Disk, files: StoreFiles) -> tuple[TimerCheck | None, str | None]:
    try:
        return read_timer_check(disk, files), None
    except FormatError as error:
        return None, error.message


def _rows_of(disk: Disk, plan: RecoverPlan) -> tuple[list[Row], int]:
    """The units of the timer's queue as they will be, and its maximum."""
    queue = next((one for one in plan.queues if one.queue == QUEUE), None)
    if queue is None:
        return [], 0
    rows: dict[int, tuple[int, int]] = {}
    held = next((one for one in plan.files.queues if one.queue == QUEUE), None)
    if held is not None and held.files:
        on_disk = rows_of(QueueRows(disk, held), queue.min_offset, queue.max_offset)
        rows = {at: (physical, size) for at, physical, size in on_disk}
    for chunk in plan.writes.chunks():
        for row in chunk[chunk["queue"] == queue.number]:
            rows[int(row["queue_offset"])] = (int(row["physical_offset"]), int(row["size"]))
    listed = sorted((at, *place) for at, place in rows.items() if queue.min_offset <= at < queue.max_offset)
    return listed, queue.max_offset


class _Seen:
    """What a broker would make of the timer files that are there."""

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        timer: TimerFiles,
        check: TimerCheck | None,
        precision: int,
        end: int,
        records: TimerRecords,
    ) -> None:
        self._disk, self._files, self._timer, self._check, self._end = disk, files, timer, check, end
        self._records = records
        first = 0 if check is None else check.last_read_time // precision
        self._counted = Counted(disk, files, timer, first, precision, live=False)  # the lock that is held is our own
        self._first = first
        self._precision = precision
        self._physical: Counter[int] = Counter()

    @property
    def is_empty(self) -> bool:
        """Whether the timer log has no unit: then nothing in it tells that some are lost."""
        return self._counted.last is None

    def wrong(self, rows: list[Row]) -> str | None:
        """What is wrong with the files, whatever the log says."""
        timer, counted_units = self._timer, self._counted
        for path, what in timer.odd:
            if not self._disk.is_dir(path):  # a broker passes over directories
                return f"{what} in the timer log ({os.path.basename(path)})"
        for row in (*timer.wrong, *counted_units.rows):
            return f"damage in the timer log at {row.offset}: {row.reason}"
        for waiting in counted_units.waiting():
            physical = waiting.units["physical_offset"].astype("i8")
            after = physical + waiting.units["message_size"] > self._end
            if after.any():
                return f"{counted(int(after.sum()), 'unit')} of the timer log after the log end"
            if waiting.begins().any():
                at = int(waiting.offsets[waiting.begins().nonzero()[0][0]])
                return f"the chain of units in the timer log is broken at {at}"
            for offset, values in zip(waiting.offsets.tolist(), waiting.units.tolist(), strict=True):
                if (fault := unit_fault(TimerUnit(*values), self._records, self._end)) is not None:
                    return f"the unit at {offset} of the timer log names the message at {fault.detail}"
            self._physical.update(physical.tolist())
        for wrong in wrong_slots(self._disk, self._files, self._timer, counted_units, self._check):
            return f"{place_of(wrong.number)}: {wrong.reason}"
        resumed = self._resumed(rows)
        if self._check is not None and resumed > self._check.queue_offset:
            return f"config/timercheck says {self._check.queue_offset}, the timer log has the queue up to {resumed}"
        return None

    def _resumed(self, rows: list[Row]) -> int:
        """The queue offset after the message of the last unit; −1: nothing tells."""
        if self._counted.last is None:
            return -1
        last = self._counted.last[1]
        place = (int(last["physical_offset"]), int(last["message_size"]))
        return next((at + 1 for at, *named in rows if tuple(named) == place), -1)

    def differs(self, waits: tuple[TimerMessage, ...], rows: list[Row], maximum: int) -> str | None:
        """Where a broker would deliver other messages than those that wait."""
        check = self._check
        if check is None:
            return None
        if max(check.last_timer_queue_offset, 0) > maximum:
            return f"config/timercheck names queue offset {check.last_timer_queue_offset}, the queue ends at {maximum}"
        resumed = self._resumed(rows)
        resumed = min(check.last_timer_queue_offset if resumed < 0 else resumed, check.master_timer_queue_offset)
        delivered = self._physical + Counter(physical for at, physical, _ in rows if at >= resumed)
        wanted = Counter(one.physical_offset for one in waits)
        if delivered == wanted:
            return None
        lost, again = (wanted - delivered).total(), (delivered - wanted).total()
        some = [f"{counted(lost, 'message')} would not be delivered"] if lost else []
        some += [f"{counted(again, 'message')} would be delivered again"] if again else []
        return " and ".join(some)


def _made(
    files: StoreFiles,
    timer: TimerFiles,
    check: TimerCheck | None,
    waits: tuple[TimerMessage, ...],
    rows: list[Row],
    maximum: int,
    why: str,
    precision: int,
    now: int,
    held: tuple[tuple[str, int], ...],
) -> TimerPlan:
    file_size = timer.size if timer.files else _setting(files, "mappedFileSizeTimerLog", FILE_SIZE)
    room = timer_log.units_of_file(file_size)
    window = _setting(files, "timerRollWindowSlot", _WINDOW)
    window = (window if 2 <= window <= _LARGEST_WINDOW else _LARGEST_WINDOW) * precision
    units: list[TimerUnit] = []
    slots: dict[int, TimerSlot] = {}

    def add(unit: TimerUnit, weight: int) -> None:
        offset = len(units) // room * file_size + len(units) % room * UNIT_SIZE
        due = unit.due_time // precision
        before = slots.get(due, TimerSlot(due, offset, NO_UNIT, 0))
        units.append(replace(unit, previous=before.last))
        slots[due] = TimerSlot(due, before.first, offset, before.count + weight)

    for one in waits:
        add(_unit_of(one, now, window, precision), -1 if one.deletes else 1)
    read_time = now if check is None else min(check.last_read_time // precision * precision, now)
    read_time = min([read_time, *(due * precision for due in slots)])
    sentinel = bool(waits) and bool(rows) and waits[-1].queue_offset != rows[-1][0]
    if sentinel:
        _, physical, size = rows[-1]
        add(TimerUnit(UNIT_SIZE, NO_UNIT, 1, read_time - precision, 0, physical, size, 0), 0)
    end = len(units) // room * file_size + len(units) % room * UNIT_SIZE
    old = check or TimerCheck()
    return TimerPlan(
        why=why,
        waiting=sum(not one.deletes for one in waits),
        units=tuple(units),
        sentinel=sentinel,
        slots=tuple(sorted((timer_wheel.slot_of(due), slot) for due, slot in slots.items())),
        check=TimerCheck(read_time, end, maximum, maximum, old.state_version, old.timestamp, old.counter),
        file_size=file_size,
        old=held,
    )


def _unit_of(one: TimerMessage, now: int, window: int, precision: int) -> TimerUnit:
    """The unit that its broker would make of a message now. Source: TimerMessageStore#doEnqueue."""
    due, magic = one.deliver_time, 1
    write_time = min(now, due)
    if due - now >= window:
        magic |= ROLL
        near = due - now - window < window // precision // 3 * precision
        due = now + (window // precision // 2 * precision if near else window)
    elif due < now - _OVERDUE_MS:
        due = write_time = now
    if one.deletes:
        magic |= DELETE
    topic = java_hash(one.topic)
    return TimerUnit(UNIT_SIZE, NO_UNIT, magic, write_time, due - write_time, one.physical_offset, one.size, topic)


def _setting(files: StoreFiles, key: str, default: int) -> int:
    try:
        return read_java_int(files.config.other.get(key, ""), 1)
    except ValueError:
        return default


def check_bytes(check: TimerCheck, before: bytes) -> bytes:
    """The whole file config/timercheck. `before`: what it was."""
    head = check.encode()
    return (head + before[len(head) :]).ljust(timer_check.FILE_SIZE, b"\0")
