"""Copies of compacted topics of RocketMQ 5: each queue's files, its messages with their units, and what is wrong.

Theory: a broker copies each message of a topic with `cleanup.policy=COMPACTION` into a log of its queue, and answers
pulls from there alone. A file of units goes with each file of the log and has its name, so both are read in pairs: the
units of a file lie in the order of its records, up to its first place that is no unit. All files but the last are
written anew by each compaction, with the latest message of each key; so files may be missing between two, and queue
offsets ascend with gaps. What follows the last record of a file is zeros, or a blank.

Source: CompactionLog, SparseConsumeQueue, CompactionPositionMgr (5.3.3).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.listing import is_lost_found
from engine.files.written import written_end
from engine.format import message, names
from engine.format.batch_unit import BATCH_UNIT_SIZE, BatchUnit, decode_many, valid_units
from engine.format.hashing import tags_code
from engine.format.numbers import LONG_MAX, read_java_int
from engine.format.quantities import counted
from engine.inspect.store.survey import queue_directories
from engine.inspect.store.timer_log import BLANK, DAMAGE
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.format.message import StoredMessage
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue

MESSAGE: Final = "message"
FILE_CODE, DAMAGE_CODE, UNIT_CODE, LEFT_CODE = (
    "compaction-file",
    "compaction-damage",
    "compaction-unit",
    "compaction-left",
)
"""Codes of check: of a file, of records and units, of a unit and its record that differ, of what a compaction left."""

_LOG_SIZE, _UNITS_SIZE = "compactionMappedFileSize", "compactionCqMappedFileSize"
_UNDER_WAY = ("compacting", "replicating")
_DELETED = ".delete"
_NO_START = "a broker does not start"
_PASSED_OVER = "its broker passes the queue over, and returns no message of it"
"""Source: CompactionStore#loadAndGetClog, which catches what MappedFileQueue#load says, and no RuntimeException."""
_LEAST = 5
"""A file of the log is at least as long as so many of units."""


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """A file of the log and its file of units: the offset in the log at which they begin; sizes in bytes."""

    offset: int
    path: str
    size: int
    units_path: str
    units_size: int


@dataclass(frozen=True, slots=True)
class CompactedQueue:
    """One queue's copy: its files by offset, what is wrong among them, how far it is compacted (a queue offset)."""

    queue: TopicQueue
    log_directory: str
    files: tuple[CompactedFile, ...]
    wrong: tuple[CompactedRow, ...] = ()
    compacted_to: int | None = None

    @property
    def size(self) -> int:
        """Bytes of its log's files."""
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """What its names and lengths tell."""
        return {
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "files": len(self.files),
            "bytes": self.size,
            "compactedTo": self.compacted_to,
        }


@dataclass(frozen=True, slots=True)
class CompactedRow:
    """One thing in a queue's copy, by offset and length in bytes in its log.

    Attributes:
        kind: MESSAGE (with `message`, and `queue_offset`: of its unit, None: it has none), BLANK, or DAMAGE.
        path: the file that it lies in.
        reason: what is wrong; None: nothing. `code`: its code of check.
    """

    kind: str
    queue: TopicQueue
    offset: int
    length: int
    path: str
    message: StoredMessage | None = None
    queue_offset: int | None = None
    reason: str | None = None
    code: str = DAMAGE_CODE


@dataclass(frozen=True, slots=True)
class Compaction:
    """All of it: queues by topic and id, and why the positions can't be read (None: they can, or there are none)."""

    queues: tuple[CompactedQueue, ...]
    problem: FormatError | None = None


def compaction_of(disk: Disk, files: StoreFiles) -> Compaction:
    """What lies in `compaction/`. Raises StorageError."""
    root = os.path.join(files.root, names.COMPACTION)
    logs, units = (
        dict(queue_directories(disk, os.path.join(root, name))[0]) if disk.is_dir(os.path.join(root, name)) else {}
        for name in (names.COMPACTION_LOG, names.COMPACTION_QUEUE)
    )
    positions, problem = _positions(disk, root)
    sides = {
        queue: tuple(_scanned(disk, directories.get(queue)) for directories in (logs, units))
        for queue in sorted(logs.keys() | units.keys())
    }
    log_size, units_size = _sizes(files.config, [list(one) for one in sides.values()])
    queues = []
    for queue, (log_files, unit_files) in sides.items():
        missing = (queue not in logs, queue not in units)
        directory = logs.get(queue) or units[queue]
        pairs = _Pairs(queue, directory, log_size, units_size)
        if not any(missing):
            pairs.match(log_files, unit_files)
        else:  # CompactionStore#load passes it over
            what = names.COMPACTION_LOG if missing[0] else names.COMPACTION_QUEUE
            pairs.add(directory, f"{what}/{queue} is missing: {_PASSED_OVER}", DAMAGE_CODE)
        for name in _UNDER_WAY:
            for one in (logs.get(queue), units.get(queue)):
                left = os.path.join(one or "", name)
                if one and disk.is_dir(left) and disk.scandir(left):
                    pairs.add(left, "files of a compaction or a copy that was interrupted", LEFT_CODE)
        position = positions.get(f"{queue.topic}_{queue.queue_id}")
        queues.append(CompactedQueue(queue, directory, tuple(pairs.files), tuple(pairs.wrong), position))
    return Compaction(tuple(queues), problem)


def compacted_rows(disk: Disk, queue: CompactedQueue, *, max_message_size: int) -> Iterator[CompactedRow]:
    """A queue's rows in the order of its log, what is wrong with its files first; it continues after damage.

    Raises StorageError.
    """
    yield from queue.wrong
    latest = -1
    for file in queue.files:
        pair = _Pair(disk, queue.queue, file, latest, is_last=file is queue.files[-1])
        yield from pair.rows(max_message_size)
        latest = pair.latest


def _positions(disk: Disk, root: str) -> tuple[dict[str, int], FormatError | None]:
    """Up to which queue offset each queue (`TOPIC_ID`) is compacted. Source: CompactionPositionMgr."""
    path = os.path.join(root, names.COMPACTION_POSITIONS)
    entry = disk.look(path)
    if entry is None:
        return {}, None
    try:
        table = json.loads(bytes(disk.read_file(path)))["queueOffsetMap"]
        positions = {str(name): int(offset) for name, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, FormatError("not the positions of a compaction: a broker compacts all anew", path=path)
    return positions, None


def _scanned(disk: Disk, directory: str | None) -> list[Entry]:
    if directory is None:
        return []
    return [
        one
        for one in sorted(disk.scandir(directory), key=lambda one: one.name)
        if not is_lost_found(one) and not (one.is_directory and one.name in _UNDER_WAY)
    ]


def _sizes(config: StoreConfig, sides: list[list[list[Entry]]]) -> tuple[int, int]:
    """Length of a file of the log and of units: by the settings, or as most files have. Source: CompactionLog."""
    given = [_setting(config, name) for name in (_LOG_SIZE, _UNITS_SIZE)]
    if given[0] is not None and given[1] is not None:
        units = given[1] // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
        if units:
            whole, rest = divmod(given[0], units)
            if whole < _LEAST:
                return units * _LEAST, units
            return units * (whole if 0 < rest < units >> 1 else whole + 1), units
    most = [
        Counter(entry.size for side in sides for entry in side[at] if entry.is_file).most_common(1) for at in (0, 1)
    ]
    return most[0][0][0] if most[0] else 0, most[1][0][0] if most[1] else 0


def _setting(config: StoreConfig, name: str) -> int | None:
    try:
        return read_java_int(config.other.get(name, ""), 1)
    except ValueError:
        return None


class _Pairs:
    """Files of the log with their files of units, and what keeps a broker from starting on them."""

    def __init__(self, queue: TopicQueue, directory: str, log_size: int, units_size: int) -> None:
        self.queue = queue
        self.directory = directory
        self.files: list[CompactedFile] = []
        self.wrong: list[CompactedRow] = []
        self._sizes = log_size, units_size

    def add(self, path: str, reason: str, code: str = FILE_CODE) -> None:
        """One thing that is wrong."""
        self.wrong.append(CompactedRow(DAMAGE, self.queue, 0, 0, path, reason=reason, code=code))

    def match(self, log: list[Entry], units: list[Entry]) -> None:
        """Source: TopicPartitionLog#init, which cuts the log at the end of the units before it compares both."""
        sides = [self._named(side, size) for side, size in zip((log, units), self._sizes, strict=True)]
        end = max(sides[1], default=-1)
        for offset in sorted(sides[0].keys() | sides[1].keys()):
            one, its_units = sides[0].get(offset), sides[1].get(offset)
            if one is None or its_units is None:
                path = (one or its_units or log[0]).path
                what = "of units" if its_units is None else "of the log"
                if 0 <= end < offset:
                    self.add(path, f"there is no file {what} for it: a broker that starts deletes it", DAMAGE_CODE)
                else:
                    self.add(path, f"there is no file {what} for it: {_NO_START}")
            else:
                self.files.append(CompactedFile(offset, one.path, one.size, its_units.path, its_units.size))

    def _named(self, entries: list[Entry], size: int) -> dict[int, Entry]:
        named: dict[int, Entry] = {}
        for entry in entries:
            offset = names.segment_offset(entry.name)
            if not entry.is_file:
                if not entry.is_directory:
                    self.add(entry.path, f"{entry.what}: {_NO_START}")
            elif offset is None:
                left = ", left by a compaction that was interrupted" if entry.name.endswith(_DELETED) else ""
                self.add(entry.path, f"its name is not an offset{left}: {_NO_START}")
            else:
                if entry.size != size:
                    self.add(entry.path, f"{entry.size} bytes instead of {size}: {_PASSED_OVER}", DAMAGE_CODE)
                named[offset] = entry
        return named


class _Pair:
    """A file of the log and its units, side by side; `latest`: queue offset of the last unit so far."""

    def __init__(self, disk: Disk, queue: TopicQueue, file: CompactedFile, latest: int, *, is_last: bool) -> None:
        self.latest = latest
        self._disk = disk
        self._queue = queue
        self._file = file
        self._is_last = is_last
        self._units: list[BatchUnit] = []
        self._next = 0

    def rows(self, max_message_size: int) -> Iterator[CompactedRow]:
        """All rows of the file, units without a record where they point."""
        file = self._file
        after = list(self._read_units())
        segment = Segment(file.offset, file.size, file.path)
        reader = self._disk.open_reader(file.path)
        try:
            end = file.offset + written_end(reader, 0, file.size)
        finally:
            reader.close()
        with ClosedLog(self._disk, [segment]) as log:
            for event in Scanner(log, max_message_size=max_message_size).scan(file.offset, segment.end, resume=True):
                if isinstance(event, RecordBatch):
                    for i, row in enumerate(event.rows):
                        yield from self._record(event.offset(i), row.size, message.decode(event.record(i)))
                elif isinstance(event, Damage) and event.offset < end:
                    yield from self._damage(event.offset, event.length, event.reason.value)
                else:  # a blank, or space that is not used
                    yield from self._units_before(event.offset)
                    yield CompactedRow(BLANK, self._queue, event.offset, event.length, file.path)
        yield from self._units_before(LONG_MAX)
        yield from after

    def _read_units(self) -> Iterator[CompactedRow]:
        """Reads those that a broker reads; what is not at its place after them is damage."""
        import numpy as np

        file = self._file
        units = decode_many(self._disk.read_file(file.units_path))
        valid = valid_units(units)
        wrong = np.flatnonzero(~valid)
        count = int(wrong[0]) if len(wrong) else len(units)
        self._units = [BatchUnit(*one.tolist()) for one in units[:count]]
        lost = int(valid[count:].sum())
        if lost:
            reason = f"no unit here: a broker does not read the {counted(lost, 'unit')} that follow in the file"
            place = count * BATCH_UNIT_SIZE
            yield CompactedRow(DAMAGE, self._queue, place, BATCH_UNIT_SIZE, file.units_path, reason=reason)

    def _record(self, offset: int, size: int, record: StoredMessage) -> Iterator[CompactedRow]:
        yield from self._units_before(offset)
        unit = self._units[self._next] if self._next < len(self._units) else None
        if unit is None or unit.physical_offset != offset:
            ends = unit is None and self._is_last  # a broker that starts takes it away, and copies it again
            reason = None if ends else "no unit points at this message: its broker does not return it"
            kind = MESSAGE if ends else DAMAGE
            yield CompactedRow(kind, self._queue, offset, size, self._file.path, record, reason=reason)
            return
        reason = self._difference(unit, size, record)
        self._take()
        yield CompactedRow(
            MESSAGE, self._queue, offset, size, self._file.path, record, unit.base_offset, reason, UNIT_CODE
        )

    def _damage(self, offset: int, length: int, reason: str) -> Iterator[CompactedRow]:
        yield from self._units_before(offset)
        lost = 0
        while self._next < len(self._units) and self._units[self._next].physical_offset < offset + length:
            lost += 1
            self._take()
        many = f"{reason}: {counted(lost, 'unit')} point here" if lost else reason
        yield CompactedRow(DAMAGE, self._queue, offset, length, self._file.path, reason=many)

    def _take(self) -> None:
        self.latest = max(self.latest, self._units[self._next].base_offset)
        self._next += 1

    def _units_before(self, offset: int) -> Iterator[CompactedRow]:
        """Units that point at no record before `offset`."""
        while self._next < len(self._units) and self._units[self._next].physical_offset < offset:
            unit = self._units[self._next]
            reason = (
                f"the unit of queue offset {unit.base_offset} points at {unit.physical_offset}: no message is there"
            )
            yield CompactedRow(
                DAMAGE, self._queue, self._next * BATCH_UNIT_SIZE, BATCH_UNIT_SIZE, self._file.units_path,
                reason=reason, code=UNIT_CODE,
            )  # fmt: skip
            self._take()

    def _difference(self, unit: BatchUnit, size: int, record: StoredMessage) -> str | None:
        """What unit and record say differently, and what of them is not in its place."""
        checks = (
            ("queue offset", unit.base_offset, record.queue_offset),
            ("number of messages", unit.batch_size, 1),
            ("size", unit.size, size),
            ("tags code", unit.tags_code, tags_code(record.properties.get("TAGS"))),
            ("store time", unit.store_timestamp, record.store_timestamp),
            ("physical offset", unit.physical_offset, record.physical_offset),
            ("topic", self._queue.topic, record.topic),
            ("queue ID", self._queue.queue_id, record.queue_id),
        )
        for what, ours, theirs in checks:
            if ours != theirs:
                return f"{what}: {ours} in the queue, {theirs} in the message"
        if unit.base_offset <= self.latest:
            return f"queue offset {unit.base_offset} comes after {self.latest}: its broker does not find it"
        return None
