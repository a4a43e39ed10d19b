"""Brings every message of the log to its consume queue and to the index, and tells who waits for it.

Theory (Apache ReputMessageService): one thread follows the log. It is woken when something readable was appended, reads
through the one scanner, derives units and keys a batch at a time, and moves `position` when all of it is written.
Where somebody waits for what comes alone, who puts may do its work (`begin_through`): two hops between threads less.
Both do it under one lock; who does not get it, or meets anything that may wait or fails, leaves it to the thread.

Rules (RECOVERY.md, "Where it differs from Apache 4.9.8"):
- A place without a sound record stops dispatch and the store's writing (rule 9). Nothing is stepped over in
  silence: a gap between segments is, and is a finding; so is a queue offset that jumps (rule 16) or can't be true.
- A full disk, and a lack of descriptors, are waited for: what is done of a batch is remembered, and the rest is tried
  again every second. Meanwhile the store takes no puts: no message is acknowledged that can't be found for long.
- Any other failed write to a queue or the index is final, as Apache's flags have it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.errors import DiskFull, FormatError, RStoreError, Shortage
from engine.format.judge import Reason
from engine.format.quantities import counted
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units
from engine.log.scan import Blank, Damage, Gap, RecordBatch, Scanner, kernels_if_loaded
from engine.services.arrivals import Listener, Listeners, Wanted
from engine.services.dispatch_batch import BatchToWrite
from engine.services.pace import ALONE, LISTENED, still_owed
from engine.services.reached import Reached
from engine.services.running_flags import Flag, RunningFlags
from engine.services.worker import OnFailure, Worker, monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.log.commitlog import CommitLog
    from engine.services.queue_table import QueueTable

RETRY_MS = 1000
"""How long a full disk is waited for before the next try (Apache: 1 s between two of 30 tries)."""

WORTH = 256 << 10
"""Bytes of log that are dispatched without gathering more: a batch costs the same, whatever is in it."""
FEW = 4 << 10
"""Bytes of log that are dispatched without kernels: those of a batch take as long as some twenty records without."""
FINDINGS_KEPT = 1000


class KeyIndex(Protocol):
    """Where keys go."""

    def put(self, keys: Keys, /) -> object:
        """Add entries for all keys."""
        ...

    def has_room(self, keys: int, /) -> bool:
        """Whether so many keys are put at once: few, into files that are there, with their blocks."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchFinding:
    """Something that dispatch met and continued after: where in the log (physical offset), and what."""

    offset: int
    text: str


def _flag_of(error: Shortage) -> Flag:
    return Flag.DISK_FULL if isinstance(error, DiskFull) else Flag.WRITE_LOGICS_QUEUE_ERROR


class DispatchService(Worker):
    """See the module.

    Args:
        log: followed.
        queues: get the units.
        index: gets the keys, None without an index.
        flags: DISK_FULL while waiting for space; the error bits of queues and index.
        config: settings of the store.
        on_progress: is called when units or keys were written.
        on_failure: called with what ended it.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        flags: RunningFlags,
        config: StoreConfig,
        on_progress: Callable[[], None],
        on_failure: OnFailure,
    ) -> None:
        super().__init__("DispatchService", self._failed)
        self._tell = on_failure
        self._log = log
        self._queues = queues
        self._index = index
        self._on_progress = on_progress
        self._flags = flags
        from_a_master = config.broker_role is BrokerRole.SLAVE
        self._in_pieces = from_a_master
        self._scanner = Scanner(
            log,
            check_crc=from_a_master,
            max_message_size=config.max_message_size,
            kernels=kernels_if_loaded(),
            few=FEW,
        )
        self._numbers = QueueNumbers()
        self._deriver = Deriver(DeriveRules.of(config), self._numbers)
        self._with_times = config.enable_consume_queue_ext
        self._pending: BatchToWrite | None = None
        self._turn = threading.Lock()
        self._finishing = threading.Lock()
        self._begin: Callable[[Callable[[], None]], bool] | None = None
        self._idle = False
        self._met: Exception | None = None
        self._owed = self._owed_alone = 0.0
        self._turn_ended = 0.0
        self._listeners = Listeners()
        self._reached = Reached(self._wait_for_it)
        self._progress = (0, 0)
        self._awaited = 0
        self._gathers_alone = False
        self._findings: deque[DispatchFinding] = deque(maxlen=FINDINGS_KEPT)

    @property
    def position(self) -> int:
        """Physical offset up to which everything is in queues and index. Source: reputFromOffset."""
        return self._reached.position

    @property
    def progress(self) -> tuple[int, int]:
        """Physical offset after the newest dispatched message with a unit, and its store time (ms); zeros at first."""
        return self._progress

    @property
    def lag(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.max_offset - self._reached.position)

    @property
    def findings(self) -> tuple[DispatchFinding, ...]:
        """What was met so far, the newest 1000."""
        return tuple(self._findings)

    def start_from(self, position: int) -> None:
        """Begin at a record's physical offset."""
        self._reached.position = position
        self.start()
        self.wake()

    def add_listener(self, listener: Listener, wanted: Wanted = lambda: True) -> None:
        """Tell `listener` of everything that arrives from now on, while it is `wanted`."""
        self._listeners.add(listener, wanted)

    def listened(self) -> None:
        """What arrives is `wanted` from now on, by a listener: it is not gathered as if nobody listened."""
        if self._gathers_alone:
            with self._condition:
                self._gathers_alone = False
                self._condition.notify_all()

    def begin_through(self, begin: Callable[[Callable[[], None]], bool] | None) -> None:
        """Have what comes alone, and is waited for, dispatched through `begin`, and not by the thread (None: by it).

        It is called by who appends, with what does it, and returns whether that will be called: a moment later, in any
        thread. Little is done then, and nothing that may wait for a file: the thread does that.
        """
        self._begin = begin
        self._rouse()

    def wake(self) -> None:
        """There is something to do."""
        begin = self._begin
        if begin is not None and not self.woken and self._comes_alone():
            self.woken = True
            if begin(self._dispatch_here):
                return
            self.woken = False
        super().wake()

    def between_batches(self) -> contextlib.AbstractContextManager[object]:
        """A context in which nothing is appended to a queue: keep it short."""
        return self._finishing

    def wait_dispatched(self, offset: int, timeout_ms: float | None = None) -> bool:
        """As Reached.wait; nothing is gathered meanwhile, and what nobody has woken for is looked at."""
        return self._reached.wait(offset, timeout_ms)

    def catch_up(self, offset: int) -> None:
        """As Reached.catch_up. Raises RStoreError, Shortage."""
        self._reached.catch_up(offset)

    def when_dispatched(self, offset: int, call: Callable[[], None]) -> None:
        """As Reached.when. Nothing is gathered meanwhile."""
        self._reached.when(offset, call)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        going = True
        self._turn_ended = monotonic_ms()
        while going:
            with self._turn:
                began = monotonic_ms()
                caught_up = self._dispatch()
                if caught_up:
                    self._count_turn(began)
            if caught_up:
                self._gather(max(0.0, self._owed - LISTENED.free), self._owed_alone - ALONE.free)
            self._idle = caught_up
            going = self._wait(None if caught_up else RETRY_MS)
            self._idle = False
        with self._turn:
            self._dispatch()

    def _count_turn(self, began: float) -> None:
        """What is owed to others after a turn that began then."""
        now = monotonic_ms()
        rest, took, self._turn_ended = began - self._turn_ended, now - began, now
        self._owed = still_owed(self._owed, rest, took, LISTENED)
        self._owed_alone = still_owed(self._owed_alone, rest, took, ALONE)

    def _gather(self, ms: float, ms_alone: float) -> None:
        """Let messages come, unless somebody waits for them; for so long where nobody listens."""
        if ms <= 0 and ms_alone <= 0:
            return
        with self._condition:
            if self._condition.wait_for(lambda: self._stopping or self._awaited, ms / 1000) or ms_alone <= ms:
                return
        self._gathers_alone = True  # who begins to listen from here on says so
        if not self._listeners.any_wanted:  # without the lock that each put takes
            with self._condition:
                self._condition.wait_for(
                    lambda: self._stopping or self._awaited or not self._gathers_alone, (ms_alone - ms) / 1000
                )
        self._gathers_alone = False

    def _wait_for_it(self, more: int) -> None:
        """So many more wait for what is dispatched (fewer: below 0)."""
        with self._condition:
            self._awaited += more
        if more > 0:
            self._rouse()

    def _rouse(self) -> None:
        """Have the thread look, whoever was going to."""
        with self._condition:
            self.woken = True
            self._condition.notify_all()

    # --- in the thread of who appends -------------------------------------------------------------------------------

    def _comes_alone(self) -> bool:
        """Whether what is there now is little, somebody wants it, and the thread would not gather it."""
        return (
            self._idle
            and self._progress[0] > 0  # the first batch has the thread load what is needed for it
            and self._log.max_offset - self._reached.position <= FEW
            and self._owed - (monotonic_ms() - self._turn_ended) <= LISTENED.free
            and not (self._in_pieces or self._with_times or self._scanner.loads_within(FEW))
            and self._listeners.any_wanted
        )

    def _dispatch_here(self) -> None:
        """What the thread would do, as far as it is little and waits for nothing; else the thread is woken."""
        done = False
        try:
            if self._turn.acquire(blocking=False):
                try:
                    self.woken = False
                    began, before = monotonic_ms(), self._reached.position
                    done = self._dispatch_little()
                    if self._reached.position > before:
                        self._count_turn(began)
                except Exception as error:  # noqa: BLE001 - for the thread to raise: it says what becomes of dispatch
                    self._met = error
                finally:
                    self._turn.release()
        finally:
            if not done:
                self._rouse()

    def _dispatch_little(self) -> bool:
        """Everything that is readable; False when some of it is left for the thread."""
        end = self._log.max_offset
        if not self._idle or self._pending is not None or self._met is not None or end - self._reached.position > FEW:
            return False
        while self._reached.position < end and self._follow(end, patient=False):
            pass
        return self._reached.position >= end

    def _has_room(self, work: BatchToWrite) -> bool:
        """Whether a batch goes into files that are there, mapped and with their blocks."""
        offsets = work.units.queue_offset
        return all(
            self._queues.has_room(self._numbers[number], offsets[rows].tolist()) for number, rows in work.groups
        ) and (work.keys is None or self._index is None or self._index.has_room(len(work.keys)))

    # --- both -------------------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        self._reached.end()

    def _dispatch(self) -> bool:
        """Everything that is readable; False when the system lacks something and the rest has to wait.

        A little that came meanwhile is left for another turn.
        """
        try:
            if self._met is not None:
                met, self._met = self._met, None
                raise met
            if self._pending is not None:
                self._finish(self._pending)
            end = self._log.max_offset
            while self._reached.position < end and self._follow(end):
                end = self._log.max_offset
                if 0 < end - self._reached.position < WORTH and not (self._stopping or self._awaited):
                    self.wake()  # by itself: a blank record may be all that came, of an append that has failed
                    break
        except Shortage as error:
            self._flags.set(_flag_of(error), error, by=self.name)
            self._reached.stick(error)
            return False
        return True

    def _follow(self, end: int, *, patient: bool = True) -> bool:
        """Dispatch up to `end`; False when the rest is the beginning of a record (a slave gets the log in pieces).

        Who is not `patient` stops (False) with a batch that may have to wait: it is pending then.
        """
        before = self._reached.position
        for event in self._scanner.scan(before, end):
            match event:
                case RecordBatch():
                    self._step_to(event.start)
                    self._pending = self._derive(event)
                    if not self._finish(self._pending, patient=patient):
                        return False
                case Blank():
                    self._step_to(event.offset)
                    self._reached.move(event.end)
                case Gap():
                    self._step_to(event.end)
                case Damage(offset, Reason.CUT, _) if self._in_pieces and end < self._log.roll_next_file(offset):
                    self._step_to(offset)
                    return False
                case Damage(offset, reason, segment):
                    self._step_to(offset)
                    raise FormatError(
                        f"dispatch stopped at a damaged record: {reason.value}",
                        path=segment.path,
                        offset=offset,
                        hint="close the store and run rstore recover",
                    )
        if self._reached.position == before:
            self._step_to(end)
        return True

    def _derive(self, batch: RecordBatch) -> BatchToWrite:
        before = self._deriver.unplaced
        units, keys = self._deriver.derive(batch)
        if self._deriver.unplaced > before:
            unplaced = self._deriver.unplaced - before
            self._find(
                batch.start,
                f"{counted(unplaced, 'message has', 'messages have')} a topic that is not a valid directory name: "
                "no queue contains them",
            )
        return BatchToWrite(units, keys, batch.end, batch.last_store_timestamp)

    def _finish(self, work: BatchToWrite, *, patient: bool = True) -> bool:
        """Write a batch. Who is not `patient` does nothing (False) where that may have to wait for something."""
        if not self._finishing.acquire(blocking=patient):
            return False
        try:
            if not (patient or self._has_room(work)):
                return False
            while work.groups:
                number, rows = work.groups[0]
                self._append(self._numbers[number], work.units, rows)
                work.groups.popleft()
        finally:
            self._finishing.release()
        if work.keys is not None and self._index is not None:
            try:
                self._index.put(work.keys)
            except Shortage:
                raise
            except RStoreError as error:
                self._flags.set(Flag.WRITE_INDEX_FILE_ERROR, error)
                raise
        work.keys = None
        self._pending = None
        if self._reached.stuck is not None:
            self._reached.stuck = None
            self._flags.clear(Flag.DISK_FULL, by=self.name)
            self._flags.clear(Flag.WRITE_LOGICS_QUEUE_ERROR, by=self.name)
        if len(work.units):
            self._progress = (work.end, work.timestamp)
        self._reached.move(work.end)
        self._on_progress()
        for failure in self._listeners.announce(work.units, self._numbers):
            self._find(int(work.units.physical_offset[0]), f"listener failed: {failure!r}")
        return True

    def _append(self, queue: TopicQueue, units: Units, rows: NDArray[np.intp] | slice) -> None:
        try:
            result = self._queues.obtain(queue).append(
                units.queue_offset[rows],
                units.physical_offset[rows],
                units.size[rows],
                units.tags_code[rows],
                store_timestamp=units.store_timestamp[rows] if self._with_times else None,
            )
        except Shortage:
            raise
        except RStoreError as error:
            self._flags.set(Flag.WRITE_LOGICS_QUEUE_ERROR, error)
            raise
        if result.filled or result.refused:
            where = int(units.physical_offset[rows][0])
            if result.filled:
                self._find(
                    where, f"{queue}: {counted(result.filled, 'missing queue offset')}, filled with the previous unit"
                )
            if result.refused:
                self._find(
                    where,
                    f"{queue}: {counted(result.refused, 'message has', 'messages have')} "
                    "an invalid queue offset and got no unit",
                )

    def _step_to(self, offset: int) -> None:
        """Go to `offset`; what lies between is missing from the log, and named."""
        missing = offset - self._reached.position
        if missing > 0:
            self._find(self._reached.position, f"{missing} bytes of the log are missing")
            self._reached.move(offset)

    def _find(self, offset: int, text: str) -> None:
        self._findings.append(DispatchFinding(offset, text))

    def _failed(self, error: RStoreError) -> None:
        self._tell(error)
        self._reached.fail(error)
