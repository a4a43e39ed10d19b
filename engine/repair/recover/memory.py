"""What a long recovery remembers of the log, so that the next run resumes where it was killed (RECOVERY.md, rule 7).

Of each segment that was read whole (sound records at their own places, closed by the next segment's begin), the units
and keys that it derives to are kept below `<store>/recover.progress/`. The next planning takes them from there instead
of reading, checking and parsing the segment again, when the segment still has its size and modification time, and the
settings that matter are the same. It is only a memory: what can't be read back, or is torn, is read from the log again.
Nothing else looks into that directory, and applying a plan removes it.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.dataclass import dataclass
from engine.errors import StorageError, TimeLimitReached
from engine.files.directories import PRIVATE
from engine.format import names
from engine.log.ahead import scan_ahead
from engine.log.batch_rows import batch_row_dtype, no_batch_rows
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.kernels.derive import DerivedPart
    from engine.log.source import Segment

VERSION = 2
WORTH_IT = 256 << 20
"""Bytes of log from which on remembering pays; less is read again in a moment."""
READ_AGAIN = 200e6
"""Bytes of log a second: what was read faster is read again as soon as it is written down, or sooner."""
CHUNK_ROWS = 1 << 20
_UNIT_FIELDS = [
    ("queue", "<i4"),
    ("size", "<i4"),
    ("queue_offset", "<i8"),
    ("physical_offset", "<i8"),
    ("tags_code", "<i8"),
    ("store_timestamp", "<i8"),
]
_KEY_FIELDS = [("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp", "<i8")]
_BAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, StorageError)


class Derived(NamedTuple):
    """What a batch derives to; `unplaced`: units that no queue can take; `batches`: rows of batch queues
    (engine.log.batch_rows.batch_row_dtype), None without any.
    """

    units: Units
    keys: Keys
    unplaced: int
    batches: NDArray[np.void] | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """A segment that needs no reading: [start, end) physical, how many records and messages, and what they derive to.

    `last`: place and size of its last record.
    """

    start: int
    end: int
    records: int
    messages: int
    unplaced: int
    first_store_timestamp: int
    last_store_timestamp: int
    last: tuple[int, int]
    derived: Callable[[], Iterator[Derived]]

    def __len__(self) -> int:
        return self.records


class ScanCheckpoint:
    """Remembers segments for one planning, and writes down those that it reads.

    Args:
        disk: how files are reached.
        files: the store.
        writing: whether the store may be written to (its lock is held); else what is there is only used.
        time_box_ms: stop after the segment in which so much time is over (ms).
        least: bytes of log from which on segments are written down.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        *,
        writing: bool = False,
        time_box_ms: int | None = None,
        least: int = WORTH_IT,
        jobs: int | None = None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory_of(files.root)
        worth_it = time_box_ms is not None or sum(segment.size for segment in files.log) >= least
        self._writing = (
            writing and worth_it and not any(path.startswith(self._directory) for path in files.config.log_directories)
        )
        self._begun: tuple[float, int] | None = None
        self._deadline = None if time_box_ms is None else time.monotonic() + time_box_ms / 1000
        rules = DeriveRules.of(files.config, files.newer.batch_topics)
        self._settings = repr((VERSION, rules, files.config.check_crc_on_recover, files.config.max_message_size))
        self._patched: frozenset[int] = frozenset()
        self._jobs = jobs

    def leave_out(self, segments: Iterable[int]) -> None:
        """Segments (physical offsets) that are not read as they are on disk: what bridges change."""
        self._patched = frozenset(segments)

    def scan(
        self,
        scanner: Scanner,
        deriver: Deriver,
        start: int,
        end: int | None = None,
        *,
        resume: bool = False,
        derive: bool = True,
    ) -> Iterator[tuple[Event | Remembered, Derived | None]]:
        """`scanner.scan`, each batch with what it derives to; segments that are remembered come as one event.

        Without `derive`, batches are derived only where they are written down.

        Raises:
            TimeLimitReached: after a segment that was read and written down.
        """
        expected: int | None = None
        for segment in self._files.log:
            if segment.end <= start:
                continue
            if end is not None and segment.offset >= end:
                return
            if expected is not None and segment.offset > expected:
                yield Gap(expected, segment.offset - expected), None
            expected = segment.end
            whole = start <= segment.offset and (end is None or segment.end <= end)
            whole = whole and segment.offset not in self._patched
            known = self._recall(segment, deriver.queues) if whole else None
            if known is not None:
                yield known, None
                continue
            writing = self._begin(segment) if whole and self._is_slow(segment.offset) else None
            until = segment.end if end is None else min(end, segment.end)
            sound = True
            wanted = derive or writing is not None
            prepare = deriver.prepare_and_let_go if derive else deriver.prepare  # else somebody wants what records say
            events = scan_ahead(
                scanner,
                max(start, segment.offset),
                until,
                prepare=prepare if wanted else _nothing,
                resume=resume,
                threads=self._jobs,
            )
            for event, prepared in events:
                derived = None
                if isinstance(event, RecordBatch) and wanted:
                    before = deriver.unplaced
                    units, keys, batches = deriver.finish_all(event, prepared or [])
                    derived = Derived(units, keys, deriver.unplaced - before, batches)
                    if writing is not None:
                        writing.add(event, derived, deriver.queues)
                elif isinstance(event, Damage):
                    sound = False
                elif isinstance(event, Blank) and writing is not None:
                    writing.blank = event.length
                yield event, derived
                if isinstance(event, Damage) and not resume:
                    return
            if writing is not None and sound and writing.commit() and self._is_late(segment):
                raise TimeLimitReached(
                    f"time limit reached: the log was read up to {segment.end} of {self._files.log[-1].end}",
                    path=segment.path,
                    hint="nothing was changed; run the same command again to resume",
                )

    def _is_slow(self, offset: int) -> bool:
        """Whether the log is read slowly, up to the physical offset; of its first segment nobody knows yet."""
        if self._deadline is not None:
            return True
        now = time.monotonic()
        if self._begun is None or offset <= self._begun[1]:
            self._begun = (now, offset)
            return False
        return offset - self._begun[1] < READ_AGAIN * (now - self._begun[0])

    def _is_late(self, segment: Segment) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late and segment is not self._files.log[-1]

    # --- reading back -----------------------------------------------------------------------------------------------

    def _recall(self, segment: Segment, numbers: QueueNumbers) -> Remembered | None:
        """What is remembered of a segment, None when nothing (or nothing that can be trusted) is."""
        path = self._path(segment)
        try:
            if not self._disk.exists(path):
                return None
            note = json.loads(self._disk.read_file(path))
            if note["settings"] != self._settings or note["segment"] != self._identity(segment):
                return None
            chunks = [(int(units), int(keys), int(rows), int(crc)) for units, keys, rows, crc in note["chunks"]]
            for number, (units, keys, rows, crc) in enumerate(chunks):
                data = self._disk.read_file(f"{path}.{number}")
                if zlib.crc32(data) != crc or not _is_whole(data, units, keys, rows, len(note["queues"])):
                    return None
            table = [numbers.number(TopicQueue(str(topic), int(queue))) for topic, queue in note["queues"]]
            records, messages, unplaced, first, stored, last, size = (int(note[name]) for name in _COUNTS)
        except _BAD:
            return None

        def derived() -> Iterator[Derived]:
            for number, (units, keys, rows, _) in enumerate(chunks):
                yield _decode(self._disk.read_file(f"{path}.{number}"), units, keys, rows, table)

        counts = (records, messages, unplaced)
        return Remembered(segment.offset, segment.end, *counts, first, stored, (last, size), derived)

    # --- writing down -----------------------------------------------------------------------------------------------

    def _begin(self, segment: Segment) -> _Writing | None:
        if not self._writing:
            return None
        return _Writing(self._disk, segment, self._path(segment), self._settings, self._identity(segment))

    def _path(self, segment: Segment) -> str:
        return os.path.join(self._directory, names.segment_name(segment.offset))

    def _identity(self, segment: Segment) -> list[Any]:
        entry = self._disk.stat(segment.file)
        return [segment.file, entry.size, entry.mtime_ns]


_COUNTS = ("records", "messages", "unplaced", "firstStoreTimestamp", "lastStoreTimestamp", "last", "lastSize")


@dataclass(frozen=True, slots=True)
class PlannedReading:
    """How one planning reads the log: the scanner, what batches derive to, and what is remembered."""

    scanner: Scanner
    deriver: Deriver
    memory: ScanCheckpoint

    def derive(self, batch: RecordBatch) -> Derived:
        """What a batch derives to that did not come as an event."""
        before = self.deriver.unplaced
        units, keys, batches = self.deriver.finish_all(batch, self.deriver.prepare(batch))
        return Derived(units, keys, self.deriver.unplaced - before, batches)

    def events(
        self, start: int, end: int | None = None, *, resume: bool = False
    ) -> Iterator[tuple[Event | Remembered, Derived | None]]:
        """`ScanCheckpoint.scan` of [start, end) (physical offsets), with what each batch derives to."""
        return self.memory.scan(self.scanner, self.deriver, start, end, resume=resume)


class _Writing:
    """One segment while it is read. A disk that takes no more ends the remembering, not the recovery."""

    def __init__(self, disk: Disk, segment: Segment, path: str, settings: str, identity: list[Any]) -> None:
        self._disk = disk
        self._segment = segment
        self._path = path
        self._note: dict[str, Any] = {"settings": settings, "segment": identity}
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._end = segment.offset
        self._plain = True
        self._parts: list[Derived] = []
        self._rows = 0
        self._queues: list[TopicQueue] = []
        self._local: dict[int, int] = {}
        self._chunks: list[tuple[int, int, int, int]] = []
        self.blank = 0

    def add(self, batch: RecordBatch, derived: Derived, numbers: QueueNumbers) -> None:
        """Take a batch. A record that is to be mended, or one that was stored earlier than the one before it (a stale
        tail may begin there), must be seen again: its segment is not remembered.
        """
        import numpy as np

        goes_back = batch.first_store_timestamp < self._counts["lastStoreTimestamp"] or not batch.ascends
        self._plain = self._plain and not goes_back and not batch.moved()
        if not self._plain:
            return
        if not self._counts["records"]:
            self._counts["firstStoreTimestamp"] = batch.first_store_timestamp
        self._counts["records"] += len(batch)
        self._counts["messages"] += batch.messages
        self._counts["unplaced"] += derived.unplaced
        self._counts["lastStoreTimestamp"] = batch.last_store_timestamp
        self._counts["last"], self._counts["lastSize"] = batch.last
        self._end = batch.end
        queues = [derived.units.queue, *([] if derived.batches is None else [derived.batches["queue"]])]
        for number in np.unique(np.concatenate(queues)).tolist():
            if number not in self._local:
                self._local[number] = len(self._queues)
                self._queues.append(numbers[number])
        self._parts.append(derived)
        self._rows += len(derived.units) + len(derived.keys)
        self._rows += 0 if derived.batches is None else len(derived.batches)
        if self._rows >= CHUNK_ROWS:
            self._flush()

    def commit(self) -> bool:
        """Write the segment down when it was whole; whether it was."""
        if not self._plain or not self._counts["records"] or self._end + self.blank != self._segment.end:
            return False
        self._flush()
        note = self._note | self._counts | {"queues": [list(q) for q in self._queues], "chunks": self._chunks}
        try:
            self._disk.write_file_atomically(self._path, json.dumps(note).encode())
        except StorageError:
            return False
        self._disk.step("recover.remembered")
        return self._plain

    def _flush(self) -> None:
        if not self._parts or not self._plain:
            return
        data, units, keys, rows = _encode(self._parts, self._local)
        self._parts, self._rows = [], 0
        try:
            self._disk.mkdirs(os.path.dirname(self._path), mode=PRIVATE)
            self._disk.write_file_atomically(f"{self._path}.{len(self._chunks)}", data)
        except StorageError:
            self._plain = False
        self._chunks.append((units, keys, rows, zlib.crc32(data)))


def _nothing(_: RecordBatch) -> list[DerivedPart]:
    return []


def directory_of(root: str) -> str:
    """Where a store's memory is."""
    return os.path.join(root, names.RECOVER_PROGRESS)


def forget(disk: Disk, root: str) -> None:
    """Remove a store's memory. The caller holds the store's lock. Raises StorageError."""
    remove_tree(disk, directory_of(root))


def _encode(parts: list[Derived], local: dict[int, int]) -> tuple[bytes, int, int, int]:
    """Units, keys and rows of batch queues, one after the other, and how many of each."""
    import numpy as np

    units = _table(_UNIT_FIELDS, [part.units for part in parts])
    keys = _table(_KEY_FIELDS, [part.keys for part in parts])
    some = [no_batch_rows(), *(part.batches for part in parts if part.batches is not None)]
    rows = np.concatenate(some, dtype=batch_row_dtype())
    if local:
        translate = np.zeros(max(local) + 1, dtype=np.int32)
        translate[list(local)] = list(local.values())
        units["queue"] = translate[units["queue"]]
        rows["queue"] = translate[rows["queue"]]
    return units.tobytes() + keys.tobytes() + rows.tobytes(), len(units), len(keys), len(rows)


def _table(fields: list[tuple[str, str]], parts: list[Any]) -> NDArray[np.void]:
    import numpy as np

    rows = np.empty(sum(len(part) for part in parts), dtype=np.dtype(fields))
    for name, _ in fields:
        rows[name] = np.concatenate([getattr(part, name) for part in parts]) if parts else 0
    return rows


def _is_whole(data: bytes, units: int, keys: int, rows: int, queues: int) -> bool:
    """Whether a chunk holds as many rows as its note says, of queues that it names: anybody may have written both."""
    import numpy as np

    one, other, third = np.dtype(_UNIT_FIELDS), np.dtype(_KEY_FIELDS), batch_row_dtype()
    before = units * one.itemsize + keys * other.itemsize
    if min(units, keys, rows) < 0 or len(data) != before + rows * third.itemsize:
        return False
    numbers = np.concatenate(
        [
            np.frombuffer(data, dtype=one, count=units)["queue"],
            np.frombuffer(data, dtype=third, count=rows, offset=before)["queue"],
        ]
    )
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < queues)


def _decode(data: bytes, units: int, keys: int, rows: int, table: list[int]) -> Derived:
    import numpy as np

    one, other = np.dtype(_UNIT_FIELDS), np.dtype(_KEY_FIELDS)
    numbers = np.array(table, dtype=np.int32)
    first = np.frombuffer(data, dtype=one, count=units)
    others = np.frombuffer(data, dtype=other, count=keys, offset=units * one.itemsize)
    columns = {name: first[name].copy() for name, _ in _UNIT_FIELDS}
    columns["queue"] = numbers[columns["queue"]] if units else columns["queue"]
    batches = None
    if rows:
        offset = units * one.itemsize + keys * other.itemsize
        batches = np.frombuffer(data, dtype=batch_row_dtype(), count=rows, offset=offset).copy()
        batches["queue"] = numbers[batches["queue"]]
    of_keys = Keys(**{name: others[name].copy() for name, _ in _KEY_FIELDS})
    return Derived(Units(**columns), of_keys, 0, batches)
