"""A run of segments against queues and index, in one reading: what check does in each of its processes.

Records never cross segments, so runs can be checked apart. What only the whole log can tell (where it ends, units that
no record vouches for) is left to the parent: a part says which units it found right, and which records have none.
"""

from __future__ import annotations

import os
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.format import names
from engine.format.judge import Reason
from engine.format.quantities import counted
from engine.format.queue_unit import EXT_ADDRESS_MAX
from engine.inspect.check.doubts import DoubtfulRecords
from engine.inspect.check.entries import EntryChain, EntryRun
from engine.inspect.check.index import IndexPiece, KeyComparer
from engine.inspect.check.queue_compare import QueueComparer, lost_delivery_time
from engine.inspect.check.rocksdb_queues import StoreTimes
from engine.inspect.check.stale_tail import ascends_from, goes_back
from engine.inspect.check.verify import settled_events
from engine.inspect.finding import Findings, place
from engine.inspect.store.intervals import union
from engine.inspect.store.newer import PROPERTY_CRC, crc_demand
from engine.inspect.store.queue_rows import row_dtype
from engine.inspect.store.tag_keys import TagKeys
from engine.log.ahead import scan_ahead
from engine.log.closed_queue import ClosedExt
from engine.log.derive import Deriver, DeriveRules, QueueNumbers, TopicQueue
from engine.log.doubts import Doubt, doubts_of
from engine.log.inert import inert_in
from engine.log.property_crcs import CLIENTS, CrcFault, CrcJudge, add_faults, crc_faults_of
from engine.log.scan import Blank, Damage, Event, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.survey import StoreFiles
    from engine.log.kernels.derive import DerivedPart

MAX_PENDING = 1 << 16
"""Records without a unit that a part hands on one by one."""
MOST_CRC_FAULTS = 1 << 14
"""Wrong property CRCs of a segment that are kept before they are judged."""
MOST_BACK = 64
"""Places where a stale tail may begin that a part hands on: it ends with the log, so the last ones count."""
_MOVED_AWAY = "what it contained is no longer in salvage/"


@dataclass(frozen=True, slots=True)
class LogTask:
    """A run of segments. `live`: another process writes the store; what lies after `indexed` (physical) is not judged.

    `pieces` None: the index is left out. `deadline`: of time.monotonic(), which is the same in every process.
    `bridged`: ranges (physical) that a repair made readable: what the index has of them is of lost messages.
    `threads`: that read it, where there are kernels (None: one a core). `stop`: the log ends at this physical offset,
    as what follows is stale.
    """

    files: StoreFiles
    segments: tuple[Segment, ...]
    pieces: tuple[IndexPiece, ...] | None
    live: bool
    indexed: int | None
    deadline: float | None
    bridged: Intervals
    threads: int | None = 1
    stop: int | None = None


@dataclass(slots=True)
class LogPart:
    """What a run held: the log from `start` to `until` (physical).

    `end`: after its last sound record. `reached`: physical offset up to which it was looked at. `lost`: damaged
    ranges with a sound record after them; `held`: those at the run's end. `right`: units (queue offsets) that are
    their record's. `pending`: records without a unit (row_dtype, `queue` a place in `queues`), `more_pending` beyond.
    `back`: the last places where a stale tail may begin (physical), with the store time (ms) in front; `last_stored`:
    store time of the last record. `entries`: the first and the last DLedger entry.
    """

    start: int
    reached: int
    until: int
    records: int = 0
    messages: int = 0
    size: int = 0
    keys: int = 0
    end: int | None = None
    newest: int = 0
    findings: Findings = field(default_factory=Findings)
    lost: list[Damage] = field(default_factory=list)
    held: list[Damage] = field(default_factory=list)
    queues: list[TopicQueue] = field(default_factory=list)
    right: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    pending: NDArray[np.void] | None = None
    more_pending: int = 0
    into_damage: list[tuple[int, str, int]] = field(default_factory=list)
    back: list[tuple[int, int]] = field(default_factory=list)
    last_stored: int = 0
    in_time: bool = True
    entries: EntryRun | None = None


def check_apart(task: LogTask) -> LogPart:
    """`check_log` in a process of its own."""
    return check_log(Disk(), task)


def check_log(disk: Disk, task: LogTask, advance: Callable[[int], None] | None = None) -> LogPart:
    """Look at a run of segments. `advance` is called with bytes read.

    Raises:
        StorageError: queues or index can't be read, or a segment went away.
    """
    return _Run(disk, task, advance).run()


class _Prepared(NamedTuple):
    """What threads make of a batch."""

    parts: list[DerivedPart]
    doubts: tuple[Doubt, ...]
    crc_faults: tuple[CrcFault, ...]
    inert: list[int]


class _Run:
    def __init__(self, disk: Disk, task: LogTask, advance: Callable[[int], None] | None) -> None:
        self._disk = disk
        self._task = task
        self._advance = advance
        files = task.files
        config = files.config
        start = task.segments[0].offset
        self._part = part = LogPart(start, start, task.segments[-1].end)
        self._numbers = QueueNumbers()
        # Entries by tag are told apart one by one: records before an upgrade have none.
        self._deriver = Deriver(replace(DeriveRules.of(config), tag_keys=False), self._numbers)
        self._bridged = union(task.bridged)
        self._doubtful = DoubtfulRecords(part.findings)
        self._demand = crc_demand(config, kept=files.newer.has(PROPERTY_CRC))
        self._crc_faults: list[CrcFault] = []
        self._crc_judge: CrcJudge | None = None
        units = UnitJudge(disk, files, part.findings, self._doubtful)
        self._queues = QueueComparer(
            disk, files.queues, self._numbers, config.mapped_file_size_consume_queue, units.observe
        )
        self._entries = None if files.dledger is None else EntryChain(disk, files.dledger, part.findings)
        self._keys: KeyComparer | None = None
        if task.pieces is not None:
            tags = TagKeys(disk, files.log) if files.newer else None
            self._keys = KeyComparer(
                disk,
                files.index_layout,
                task.pieces,
                part.findings,
                start,
                task.indexed,
                self._bridged,
                self._doubtful,
                tags,
            )

    def run(self) -> LogPart:
        part = self._part
        with ClosedLog(self._disk, self._task.segments) as log:
            scanner = Scanner(log, max_message_size=self._task.files.config.max_message_size)
            scanner = scanner.by_kernels(part.start, self._task.segments[-1].end) or scanner
            self._crc_judge = CrcJudge(scanner, log, self._demand, live=self._task.live)
            for segment in self._task.segments:
                in_time = self._segment(scanner, segment)
                self._property_crcs(segment)
                if not in_time:
                    part.in_time = False
                    break
                part.reached = self._end(segment)
        self._queues.flush()
        if self._keys is not None:
            self._keys.flush(part.reached)
            part.into_damage, part.keys = self._keys.into_damage, self._keys.compared
        self._doubtful.close()
        if self._entries is not None:
            self._entries.close()
            part.entries = self._entries.run
        part.queues = [self._numbers[i] for i in range(len(self._numbers))]
        part.right = [(n, list(account.right)) for n, account in self._queues.accounts.items() if account.right]
        self._keep_pending()
        return part

    def _segment(self, scanner: Scanner, segment: Segment) -> bool:
        """One segment; False when the time is up."""
        part, keys = self._part, self._keys
        if keys is not None and part.reached != segment.offset:
            keys.flush(part.reached)
            keys.skip_to(segment.offset)
        read = 0
        for event, prepared in self._events(scanner, segment):
            if self._task.deadline is not None and time.monotonic() > self._task.deadline:
                return False
            if isinstance(event, Damage):
                self._damage(event, segment)
                continue
            if isinstance(event, RecordBatch) and part.held:
                part.back.append((part.held[0].offset, part.last_stored))
            part.lost += part.held
            part.held.clear()
            if isinstance(event, RecordBatch):
                self._records(event, prepared, segment)
                part.reached = event.end
                read += event.end - event.start
                if self._advance is not None:
                    self._advance(event.end - event.start)
            elif isinstance(event, Blank):
                part.end = event.end
        if self._advance is not None:
            self._advance(segment.size - read)
        return True

    def _property_crcs(self, segment: Segment) -> None:
        """Note the wrong property CRCs of a segment: damage, or what a client may have sent."""
        verdicts = [] if self._crc_judge is None else self._crc_judge.verdicts(self._crc_faults)
        for fault, verdict in zip(self._crc_faults, verdicts, strict=True):
            if verdict == CLIENTS:
                self._doubtful.add([Doubt(fault.offset, fault.size, verdict, True)], segment)
            elif verdict:
                code = "record-crc-missing" if fault.missing else "record-crc"
                detail = f"{counted(fault.records, 'record')}, {fault.size} bytes at {fault.offset}: {verdict}"
                where = place(segment.path, fault.offset)
                self._part.findings.add(code, place(segment.path, segment.offset), where, detail, fault.records)
        self._crc_faults.clear()

    def _damage(self, event: Damage, segment: Segment) -> None:
        if self._task.live and event.reason is Reason.UNREADABLE and not self._disk.exists(segment.path):
            raise StorageError("the file was deleted while it was read", path=segment.path)
        self._part.held.append(event)
        if self._entries is not None:
            self._entries.broken()
        if self._keys is not None:
            self._keys.lost(event.offset, event.length)

    def _events(self, scanner: Scanner, segment: Segment) -> Iterator[tuple[Event, _Prepared | None]]:
        """A segment's events, batches judged and half derived by threads where nobody writes the log meanwhile."""
        start, end = segment.offset, self._end(segment)
        if self._task.live:
            return ((event, None) for event in settled_events(self._disk, scanner, start, end, live=True))
        threads = self._task.threads
        return scan_ahead(scanner, start, end, prepare=self._prepare, resume=True, threads=threads)

    def _prepare(self, batch: RecordBatch) -> _Prepared:
        """What a thread does. The bytes of the records are held only where somebody wants more of them."""
        doubts, crc_faults, inert = doubts_of(batch), crc_faults_of(batch, self._demand)[1], inert_in(batch)
        prepare = self._deriver.prepare_and_let_go if self._entries is None and not inert else self._deriver.prepare
        return _Prepared(prepare(batch), doubts, crc_faults, inert)

    def _end(self, segment: Segment) -> int:
        return segment.end if self._task.stop is None else min(segment.end, self._task.stop)

    def _look_back(self, batch: RecordBatch) -> None:
        """Note where store times go back."""
        import numpy as np

        part = self._part
        if ascends_from(batch, part.last_stored):
            part.last_stored = batch.last_store_timestamp
            return
        back, before = goes_back(batch, part.last_stored)
        part.back += [(batch.offset(i), int(before[i])) for i in np.flatnonzero(back)[-MOST_BACK:].tolist()]
        del part.back[:-MOST_BACK]
        part.last_stored = batch.last_store_timestamp

    def _records(self, batch: RecordBatch, prepared: _Prepared | None, segment: Segment) -> None:
        part = self._part
        part.records += len(batch)
        part.messages += batch.messages
        part.size += batch.end - batch.start
        part.end = batch.end
        part.newest = max(part.newest, batch.newest_store_timestamp)
        self._look_back(batch)
        for at, stored, _ in batch.moved():
            group = place(segment.path, segment.offset)
            part.findings.add(
                "record-displaced", group, place(segment.path, at), f"at {at}: its physicalOffset is {stored}"
            )
        prepared = prepared or self._prepare(batch)
        for i in prepared.inert:
            at = batch.offset(i)
            if at not in self._bridged:
                size = len(batch.record(i))
                self._bridged.add(at, at + size)
                detail = f"{size} bytes at {at}"
                part.findings.add("log-bridged", segment.path, place(segment.path, at), detail, hint=_MOVED_AWAY)
        if self._entries is not None and segment.in_entries:
            self._entries.feed(batch, segment)
        self._doubtful.add(prepared.doubts, segment)
        add_faults(self._crc_faults, prepared.crc_faults)
        if len(self._crc_faults) > MOST_CRC_FAULTS:
            self._property_crcs(segment)
        units, keys = self._deriver.finish(batch, prepared.parts)
        self._queues.feed(units)
        if self._keys is not None:
            self._keys.feed(batch, keys)

    def _keep_pending(self) -> None:
        import numpy as np

        kept: list[NDArray[np.void]] = []
        room = MAX_PENDING
        for chunk in self._queues.pending.chunks():
            kept.append(chunk[:room].copy())
            self._part.more_pending += len(chunk) - len(kept[-1])
            room -= len(kept[-1])
        self._part.pending = np.concatenate(kept) if kept else np.zeros(0, dtype=row_dtype())


class UnitJudge:
    """Judges the tags codes of units that stand at their place: hash, delivery time, or address in the extension.

    `doubtful`: records that may say less than their units do.
    """

    def __init__(self, disk: Disk, files: StoreFiles, findings: Findings, doubtful: DoubtfulRecords) -> None:
        self._disk = disk
        self._base = os.path.join(files.root, names.CONSUMEQUEUE_EXT)
        self._ext_size = files.config.mapped_file_size_consume_queue_ext
        self._findings = findings
        self._doubtful = doubtful
        self._times = None if files.rocksdb is None else StoreTimes(files.rocksdb, findings)

    def observe(self, queue: TopicQueue, units: NDArray[np.void], want: NDArray[np.void]) -> None:
        """Units on disk, and those that their records derive to."""
        import numpy as np

        if self._times is not None:
            self._times.observe(queue, want)
        differs = units["tags_code"] != want["tags_code"]
        if not differs.any():
            return
        physical = want["physical_offset"].astype(np.int64)
        address = differs & (units["tags_code"] <= EXT_ADDRESS_MAX)
        if queue.topic != names.SCHEDULE_TOPIC:  # there it is a delivery time
            self._doubtful.contradicted(physical[differs & ~address])
        witness = differs & self._doubtful.suspects(physical)
        self._note("unit-witness", queue, want[witness])
        differs &= ~witness
        address &= ~witness
        self._extension(queue, units[address], want[address])
        if queue.topic == names.SCHEDULE_TOPIC:
            lost = lost_delivery_time(queue, units, want)
            self._note("unit-delivery-time", queue, want[np.flatnonzero(lost)])
            self._note("unit-delivery-other", queue, want[np.flatnonzero(differs & ~address & ~lost)])
        else:
            self._note("unit-tags", queue, want[np.flatnonzero(differs & ~address)])

    def _extension(self, queue: TopicQueue, units: NDArray[np.void], want: NDArray[np.void]) -> None:
        ext = ClosedExt(self._disk, self._base, queue, self._ext_size)
        for row, unit in zip(units, want, strict=True):
            at = ext.get(int(row["tags_code"]))
            if at is None:
                self._note("ext-missing", queue, [unit])
            elif (at.tags_code, at.store_timestamp) != (int(unit["tags_code"]), int(unit["store_timestamp"])):
                self._note("ext-wrong", queue, [unit])

    def _note(self, code: str, queue: TopicQueue, units: NDArray[np.void] | list[np.void]) -> None:
        if len(units):
            first = int(units[0]["queue_offset"])
            details = ", ".join(f"#{int(unit['queue_offset'])}" for unit in units[:3])
            self._findings.add(code, str(queue), queue_place(queue, first), details, len(units))


def queue_place(queue: TopicQueue, offset: int) -> str:
    """How a place in a queue is written: topic, queue id, queue offset."""
    return f"consumequeue/{queue} #{offset}"
