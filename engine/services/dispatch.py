"""Brings every message of the log to its consume queue and to the index, and tells who waits for it.

Theory (Apache ReputMessageService): one thread follows the log. It is woken when something readable was appended, reads
through the one scanner, derives units and keys a batch at a time, and moves `position` when all of it is written.

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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.errors import DiskFull, FormatError, RStoreError, Shortage
from engine.format.judge import Reason
from engine.format.quantities import counted
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units
from engine.log.scan import Blank, Damage, Gap, RecordBatch, Scanner, kernels_if_loaded
from engine.services.pace import ALONE, LISTENED, still_owed
from engine.services.running_flags import Flag, RunningFlags
from engine.services.worker import OnFailure, Worker, monotonic_ms

if TYPE_CHECKING:
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


class Arrival(NamedTuple):
    """A message that can be pulled now. Source: MessageArrivingListener#arriving.

    `next_offset` is the queue offset after it; times in ms; its properties lie in the log at `physical_offset`.
    """

    topic: str
    queue_id: int
    next_offset: int
    tags_code: int
    store_timestamp: int
    physical_offset: int
    size: int


Listener = Callable[[Sequence[Arrival]], None]
"""Called with what arrived, in log order, from the dispatch thread: it must not block."""

Wanted = Callable[[], bool]
"""Whether a listener would do anything with what arrives; asked in the dispatch thread, which holds no lock then. Who
begins to want it calls `listened`."""


class KeyIndex(Protocol):
    """Where keys go."""

    def put(self, keys: Keys, /) -> object:
        """Add entries for all keys."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchFinding:
    """Something that dispatch met and continued after: where in the log (physical offset), and what."""

    offset: int
    text: str


class _Work:
    """One batch on its way: what is left to be written."""

    __slots__ = ("end", "groups", "keys", "timestamp", "units")

    def __init__(self, units: Units, keys: Keys, end: int, timestamp: int) -> None:
        self.units = units
        self.keys: Keys | None = keys if len(keys) else None
        self.end = end
        self.timestamp = timestamp
        self.groups: deque[tuple[int, NDArray[np.intp] | slice]] = deque(_groups(units))


def _groups(units: Units) -> list[tuple[int, NDArray[np.intp] | slice]]:
    """(queue number, which rows) for each queue of the units, rows in log order."""
    count = len(units)
    if count == 0:
        return []
    first = int(units.queue[0])
    if count == 1 or (units.queue == first).all():
        return [(first, slice(None))]
    import numpy as np

    order = np.argsort(units.queue, kind="stable")
    sorted_queues = units.queue[order]
    cuts = np.flatnonzero(np.diff(sorted_queues)) + 1
    return [(int(units.queue[rows[0]]), rows) for rows in np.split(order, cuts)]


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
        self._pending: _Work | None = None
        self._finishing = threading.Lock()
        self._listeners: tuple[tuple[Listener, Wanted], ...] = ()
        self._moved = threading.Condition()
        self._position = 0
        self._progress = (0, 0)
        self._failure: RStoreError | None = None
        self._stuck: Shortage | None = None
        self._over = False
        self._awaited = 0
        self._gathers_alone = False
        self._calls: list[tuple[int, Callable[[], None]]] = []
        self._findings: deque[DispatchFinding] = deque(maxlen=FINDINGS_KEPT)

    @property
    def position(self) -> int:
        """Physical offset up to which everything is in queues and index. Source: reputFromOffset."""
        return self._position

    @property
    def progress(self) -> tuple[int, int]:
        """Physical offset after the newest dispatched message with a unit, and its store time (ms); zeros at first."""
        return self._progress

    @property
    def lag(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.max_offset - self._position)

    @property
    def findings(self) -> tuple[DispatchFinding, ...]:
        """What was met so far, the newest 1000."""
        return tuple(self._findings)

    def start_from(self, position: int) -> None:
        """Begin at a record's physical offset."""
        self._position = position
        self.start()
        self.wake()

    def add_listener(self, listener: Listener, wanted: Wanted = lambda: True) -> None:
        """Tell `listener` of everything that arrives from now on, while it is `wanted`."""
        self._listeners = (*self._listeners, (listener, wanted))

    def listened(self) -> None:
        """What arrives is `wanted` from now on, by a listener: it is not gathered as if nobody listened."""
        if self._gathers_alone:
            with self._condition:
                self._gathers_alone = False
                self._condition.notify_all()

    def between_batches(self) -> contextlib.AbstractContextManager[object]:
        """A context in which nothing is appended to a queue: keep it short."""
        return self._finishing

    def wait_dispatched(self, offset: int, timeout_ms: float | None = None) -> bool:
        """Wait until `position` has reached `offset`; False after `timeout_ms`, or when dispatch has failed."""
        with self._hurried(), self._moved:
            self._moved.wait_for(
                lambda: self._position >= offset or self._failure is not None or self._over,
                None if timeout_ms is None else timeout_ms / 1000,
            )
            return self._position >= offset

    def catch_up(self, offset: int) -> None:
        """Wait until `position` has reached `offset`.

        Raises:
            RStoreError: dispatch has failed. Shortage: it waits for space, or for descriptors.
        """
        with self._hurried(), self._moved:
            self._moved.wait_for(lambda: self._position >= offset or self._failure or self._stuck or self._over)
            trouble = self._failure or self._stuck
            if self._position < offset and trouble is not None:
                raise trouble

    def when_dispatched(self, offset: int, call: Callable[[], None]) -> None:
        """Have `call` called, once, when `position` has reached `offset`, or dispatch can't get there for now.

        From the dispatch thread, or at once from this one; it must not block, nor raise. Nothing is gathered meanwhile.
        """
        with self._moved:
            waits = self._position < offset and not (self._failure or self._stuck or self._over)
            if waits:
                self._calls.append((offset, call))
        if waits:
            self._hurry()
        else:
            call()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        going = True
        owed = owed_alone = 0.0
        ended = monotonic_ms()
        while going:
            began = monotonic_ms()
            caught_up = self._dispatch()
            if caught_up:
                now = monotonic_ms()
                rest, took, ended = began - ended, now - began, now
                owed = still_owed(owed, rest, took, LISTENED)
                owed_alone = still_owed(owed_alone, rest, took, ALONE)
                self._gather(max(0.0, owed - LISTENED.free), owed_alone - ALONE.free)
            going = self._wait(None if caught_up else RETRY_MS)
        self._dispatch()

    def _gather(self, ms: float, ms_alone: float) -> None:
        """Let messages come, unless somebody waits for them; for so long where nobody listens."""
        if ms <= 0 and ms_alone <= 0:
            return
        with self._condition:
            if self._condition.wait_for(lambda: self._stopping or self._awaited, ms / 1000) or ms_alone <= ms:
                return
        self._gathers_alone = True  # who begins to listen from here on says so
        if not any(wanted() for _, wanted in self._listeners):  # without the lock that each put takes
            with self._condition:
                self._condition.wait_for(
                    lambda: self._stopping or self._awaited or not self._gathers_alone, (ms_alone - ms) / 1000
                )
        self._gathers_alone = False

    @contextlib.contextmanager
    def _hurried(self) -> Iterator[None]:
        """Somebody waits: nothing is gathered meanwhile, and what nobody has woken for is looked at."""
        self._hurry()
        try:
            yield
        finally:
            self._unhurry(1)

    def _hurry(self) -> None:
        with self._condition:
            self._awaited += 1
            self.woken = True
            self._condition.notify_all()

    def _unhurry(self, count: int) -> None:
        with self._condition:
            self._awaited -= count

    def _ended(self) -> None:
        with self._moved:
            self._over = True
            self._moved.notify_all()
        self._call_all()

    def _call_all(self, position: int | None = None) -> None:
        """Call who waits for a physical offset up to `position`; None: everybody, as nothing more will come for now."""
        with self._moved:
            calls, self._calls = self._calls, []
            if position is not None:
                self._calls = [(offset, call) for offset, call in calls if offset > position]
                calls = [(offset, call) for offset, call in calls if offset <= position]
        if calls:
            self._unhurry(len(calls))
        for _, call in calls:
            call()

    def _dispatch(self) -> bool:
        """Everything that is readable; False when the system lacks something and the rest has to wait.

        A little that came meanwhile is left for another turn.
        """
        try:
            if self._pending is not None:
                self._finish(self._pending)
            end = self._log.max_offset
            while self._position < end and self._follow(end):
                end = self._log.max_offset
                if 0 < end - self._position < WORTH and not (self._stopping or self._awaited):
                    self.wake()  # by itself: a blank record may be all that came, of an append that has failed
                    break
        except Shortage as error:
            self._flags.set(_flag_of(error), error, by=self.name)
            with self._moved:
                self._stuck = error
                self._moved.notify_all()
            self._call_all()
            return False
        return True

    def _follow(self, end: int) -> bool:
        """Dispatch up to `end`; False when the rest is the beginning of a record (a slave gets the log in pieces)."""
        before = self._position
        for event in self._scanner.scan(before, end):
            match event:
                case RecordBatch():
                    self._step_to(event.start)
                    self._pending = self._derive(event)
                    self._finish(self._pending)
                case Blank():
                    self._step_to(event.offset)
                    self._move(event.end)
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
        if self._position == before:
            self._step_to(end)
        return True

    def _derive(self, batch: RecordBatch) -> _Work:
        before = self._deriver.unplaced
        units, keys = self._deriver.derive(batch)
        if self._deriver.unplaced > before:
            unplaced = self._deriver.unplaced - before
            self._find(
                batch.start,
                f"{counted(unplaced, 'message has', 'messages have')} a topic that is not a valid directory name: "
                "no queue contains them",
            )
        return _Work(units, keys, batch.end, batch.last_store_timestamp)

    def _finish(self, work: _Work) -> None:
        with self._finishing:
            while work.groups:
                number, rows = work.groups[0]
                self._append(self._numbers[number], work.units, rows)
                work.groups.popleft()
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
        if self._stuck is not None:
            self._stuck = None
            self._flags.clear(Flag.DISK_FULL, by=self.name)
            self._flags.clear(Flag.WRITE_LOGICS_QUEUE_ERROR, by=self.name)
        if len(work.units):
            self._progress = (work.end, work.timestamp)
        self._move(work.end)
        self._on_progress()
        listeners = [listener for listener, wanted in self._listeners if wanted()]
        if listeners and len(work.units):
            self._announce(work, listeners)

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

    def _announce(self, work: _Work, listeners: Sequence[Listener]) -> None:
        units = work.units
        columns = (units.queue, units.queue_offset, units.tags_code, units.store_timestamp, units.physical_offset)
        arrivals = [
            Arrival(*self._numbers[number], offset + 1, tags, time, physical, size)
            for number, offset, tags, time, physical, size in zip(
                *(column.tolist() for column in columns), units.size.tolist(), strict=True
            )
        ]
        for listener in listeners:
            try:
                listener(arrivals)
            except Exception as error:  # noqa: BLE001 - a listener is not ours; dispatch must continue
                self._find(arrivals[0].physical_offset, f"listener failed: {error!r}")

    def _step_to(self, offset: int) -> None:
        """Go to `offset`; what lies between is missing from the log, and named."""
        missing = offset - self._position
        if missing > 0:
            self._find(self._position, f"{missing} bytes of the log are missing")
            self._move(offset)

    def _move(self, position: int) -> None:
        with self._moved:
            self._position = position
            self._moved.notify_all()
        if self._calls:
            self._call_all(position)

    def _find(self, offset: int, text: str) -> None:
        self._findings.append(DispatchFinding(offset, text))

    def _failed(self, error: RStoreError) -> None:
        self._tell(error)
        with self._moved:
            self._failure = error
            self._moved.notify_all()
        self._call_all()
