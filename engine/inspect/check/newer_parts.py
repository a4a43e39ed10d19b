"""What RocketMQ 5 keeps beside log, queues and index, against the log: timer log and wheel, timercheck, epochs.

A unit of the timer log is judged as long as it waits: what is due before `lastReadTimeMs` has been delivered, and its
message may have been deleted with its segment since. Beside a live writer all of this changes all the time, and is not
judged.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import checkpoint, names
from engine.format.quantities import counted
from engine.format.timer_log import TimerUnit
from engine.inspect.store.epochs import epoch_files
from engine.inspect.store.newer import ROCKSDB_QUEUES
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.timer_chains import Counted
from engine.inspect.store.timer_log import timer_files
from engine.inspect.store.timer_pending import pending, rows_of
from engine.inspect.store.timer_records import TimerRecords, unit_fault
from engine.inspect.store.timer_slots import has_timer, place_of, wrong_slots
from engine.inspect.store.timer_wheel import precision_of, read_timer_check
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.format.timer_check import TimerCheck
    from engine.inspect.finding import Findings
    from engine.inspect.store.survey import QueueFiles, StoreFiles
    from engine.inspect.store.timer_chains import Waiting
    from engine.inspect.store.timer_log import TimerFiles
    from engine.log.source import LogSource

_TIMER_CHECK = os.path.join(names.CONFIG, names.TIMER_CHECK)


class NewerPartsJudge:
    """Judges them, up to the log end (physical).

    Attributes:
        units: units of the timer log that were looked at.
        in_time: False when the time was up before the end.
    """

    def __init__(self, disk: Disk, files: StoreFiles, findings: Findings, end: int, deadline: float | None) -> None:
        self._disk, self._files, self._findings, self._end, self._deadline = disk, files, findings, end, deadline
        self.units = 0
        self.in_time = True

    def judge(self, log: LogSource) -> None:
        """Raises StorageError."""
        self._epochs()
        self._replica_offsets()
        timer = timer_files(self._disk, self._files)
        if not has_timer(self._disk, self._files, timer):
            return
        check = self._timer_check(timer)
        for path, what in timer.odd:
            where = os.path.relpath(path, self._files.root)
            self._findings.add("timer-damage", where, where, what)
        first = 0 if check is None else check.last_read_time // precision_of(self._files)
        units = Counted(self._disk, self._files, timer, first, precision_of(self._files))
        self.units = units.units
        for row in (*timer.wrong, *units.rows):
            self._findings.add("timer-damage", row.path, self._place(row.path, row.offset), f"{row.reason}")
        records = TimerRecords(log, self._files.config)
        for waiting in units.waiting():
            self._chains(waiting)
            self._units(waiting, records)
            if not self.in_time:
                return
        for wrong in wrong_slots(self._disk, self._files, timer, units, check):
            self._findings.add("timer-slot", names.TIMER_WHEEL, place_of(wrong.number), wrong.reason)
        if check is not None and units.last is not None and not self._files.abort:
            self._resumed(check, units.last[1], records)
        if check is not None and units.last is None:
            self._without_units(check, log)

    def _without_units(self, check: TimerCheck, log: LogSource) -> None:
        """A timer log without a unit: its broker reads its queue on from where config/timercheck says."""
        queue = self._timer_queue()
        if queue is None:
            return
        rows = list(rows_of(QueueRows(self._disk, queue), 0, check.queue_offset))
        waits = pending(log, self._files.config, rows, self._end, precision_of(self._files)).messages
        if lost := sum(not one.deletes for one in waits):
            self._findings.add(
                "timer-damage",
                names.TIMER_LOG,
                f"{names.TIMER_LOG}/",
                f"no unit, and {counted(lost, 'message')} before queue offset {check.queue_offset} wait"
                f"{'s' if lost == 1 else ''}",
            )

    def _resumed(self, check: TimerCheck, last: NDArray[np.void], records: TimerRecords) -> None:
        """A broker that was not killed has written how far the timer log goes."""
        stored = records.read(int(last["physical_offset"]), int(last["message_size"]))
        if not isinstance(stored, str) and stored.queue_offset >= check.queue_offset:
            detail = f"the queue offset is {check.queue_offset}, the timer log has the message of {stored.queue_offset}"
            self._findings.add("timer-check", _TIMER_CHECK, _TIMER_CHECK, detail)

    def _place(self, path: str, offset: int) -> str:
        return f"{names.TIMER_LOG}/{os.path.basename(path)} at {offset}"

    def _timer_queue(self) -> QueueFiles | None:
        """The queue of timer messages; None where it has no file."""
        every = (one for one in self._files.queues if one.queue == TopicQueue(names.TIMER_TOPIC, 0))
        return next((one for one in every if one.files), None)

    # --- the timer --------------------------------------------------------------------------------------------------

    def _timer_check(self, timer: TimerFiles) -> TimerCheck | None:
        findings = self._findings
        try:
            check = read_timer_check(self._disk, self._files)
        except FormatError as error:
            findings.add("timer-check", _TIMER_CHECK, _TIMER_CHECK, error.message)
            return None
        queue = self._timer_queue()
        maximum = 0 if queue is None else QueueRows(self._disk, queue).extent
        if check is None:
            if maximum or timer.files:
                findings.add("timer-check", _TIMER_CHECK, _TIMER_CHECK, "the file does not exist")
            return None
        if check.is_ahead(self._disk.now_ms()):
            detail = f"lastReadTimeMs is {check.last_read_time}, a time yet to come: what is due before is passed over"
            findings.add("timer-check", _TIMER_CHECK, _TIMER_CHECK, detail)
        if check.last_timer_queue_offset > maximum and not self._files.newer.has(ROCKSDB_QUEUES):
            detail = f"lastTimerQueueOffset is {check.last_timer_queue_offset}, the queue ends at {maximum}"
            findings.add("timer-check", _TIMER_CHECK, _TIMER_CHECK, detail)
        return check

    def _chains(self, waiting: Waiting) -> None:
        lost = len(waiting) - int(waiting.reached().sum())
        torn = waiting.begins().nonzero()[0].tolist()
        if not torn:
            return
        where = f"{names.TIMER_LOG} at {int(waiting.offsets[torn[0]])}"
        detail = f"{counted(lost, 'unit')} before such places will not be delivered"
        self._findings.add("timer-chain", names.TIMER_LOG, where, detail, len(torn))

    def _units(self, waiting: Waiting, records: TimerRecords) -> None:
        for offset, values in zip(waiting.offsets.tolist(), waiting.units.tolist(), strict=True):
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.in_time = False
                return
            self._unit(offset, TimerUnit(*values), records)

    def _unit(self, offset: int, unit: TimerUnit, records: TimerRecords) -> None:
        fault = unit_fault(unit, records, self._end)
        if fault is not None:
            code = "timer-orphaned" if fault.orphaned else "timer-foreign"
            self._findings.add(code, names.TIMER_LOG, f"{names.TIMER_LOG} at {offset}", fault.detail)

    # --- a controller -----------------------------------------------------------------------------------------------

    def _epochs(self) -> None:
        held = epoch_files(self._disk, self._files)
        used = next((one for one in held if one.entries), None)
        for one in held:
            where = os.path.basename(one.path)
            if one.problem is not None:
                self._findings.add("epoch-bad" if used is None else "epoch-bak", where, where, one.problem.message)
            ahead = [entry for entry in one.entries if entry.start_offset > self._end]
            if ahead:
                detail = f"epoch {ahead[0].epoch} begins at {ahead[0].start_offset}, the log ends at {self._end}"
                self._findings.add("epoch-ahead", where, where, detail, len(ahead))
            for before, after in pairwise(one.entries):
                if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                    detail = (
                        f"epoch {after.epoch} at {after.start_offset} follows {before.epoch} at {before.start_offset}"
                    )
                    self._findings.add("epoch-order", where, where, detail)

    def _replica_offsets(self) -> None:
        path = os.path.join(self._files.root, names.CHECKPOINT)
        entry = self._disk.look(path)
        if entry is None or not entry.is_file:
            return
        held = checkpoint.decode_replica_offsets(self._disk.read_file(path, checkpoint.REPLICA_SIZE))
        named = (
            {}
            if held is None
            else {"masterFlushedOffset": held.master_flushed_offset, "confirmPhyOffset": held.confirm_phy_offset}
        )
        for name, offset in named.items():
            if offset > self._end:
                detail = f"{name} is {offset}, the log ends at {self._end}"
                self._findings.add("checkpoint-offset", names.CHECKPOINT, names.CHECKPOINT, detail)
