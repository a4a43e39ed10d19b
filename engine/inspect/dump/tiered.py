"""The tiered files of a RocketMQ 5 broker: each queue's messages with the units that point at them, and what is wrong.

Theory: a queue has a log and a consume queue of its own, in files of any length, named by the offset at which each
begins. Records are those of the store with another physical offset, that of the queue's log; units are its units. Both
are in one order, so they are read side by side, once.

A log is written before its queue, so records after the last unit are no damage: a broker that is started dispatches
them again. Zeros are, as nothing is allocated ahead.

Source: FlatMessageFile, FlatAppendFile#recover, PosixFileSegment (tieredstore, 5.3.3).
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NotAStore
from engine.files.listing import is_lost_found
from engine.format import message, names
from engine.format.hashing import tags_code
from engine.format.queue_unit import UNIT, UNIT_SIZE
from engine.format.tiered import COMMIT_LOG, CONSUME_QUEUE, INDEX_TOPIC, file_offset
from engine.format.tiered_index import INDEX
from engine.inspect.dump.dump import BLANK, DAMAGE, MESSAGE
from engine.log.scan import Blank, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.format.message import StoredMessage

_PIECE = 8192 * UNIT_SIZE
_DEPTH = 4
"""Cluster, broker, topic, queue."""


@dataclass(frozen=True, slots=True)
class TieredQueue:
    """One queue's directory."""

    topic: str
    queue_id: int
    path: str


@dataclass(frozen=True, slots=True)
class TieredRow:
    """One thing in a queue's tiered files, by offset and length in bytes in the file's chain.

    Attributes:
        kind: MESSAGE (with `message`, and `queue_offset`: of its unit, None: it has none yet), BLANK, or DAMAGE.
        path: the file that it lies in; of damage between two files, the one before.
        reason: what is wrong; None: nothing.
    """

    kind: str
    queue: TieredQueue
    offset: int
    length: int
    path: str
    message: StoredMessage | None = None
    queue_offset: int | None = None
    reason: str | None = None


def tiered_queues(disk: Disk, directory: str) -> list[TieredQueue]:
    """The queues below a directory: of tieredStoreFilePath, of a cluster, a broker, a topic or a queue in it.

    Raises:
        NotAStore: there is none. StorageError.
    """
    queues: list[TieredQueue] = []
    for path, inside in directories(disk, directory):
        if any(one.name in (COMMIT_LOG, CONSUME_QUEUE) for one in inside):
            topic, queue_id = os.path.basename(os.path.dirname(path)), names.queue_id_of(os.path.basename(path))
            if queue_id is not None and topic != INDEX_TOPIC:
                queues.append(TieredQueue(topic, queue_id, path))
    if not queues:
        raise NotAStore(
            f"no tiered files here: no directory has {COMMIT_LOG}/ or {CONSUME_QUEUE}/ in it",
            path=directory,
            hint="name the directory of the broker's setting tieredStoreFilePath, or one in it",
        )
    return sorted(queues, key=lambda one: (one.path, one.queue_id))


def directories(disk: Disk, directory: str) -> Iterator[tuple[str, list[Entry]]]:
    """Each directory down to those of queues, with the directories in it. Raises StorageError."""
    waiting = [(directory, 0)]
    while waiting:
        path, depth = waiting.pop()
        inside = [one for one in disk.scandir(path) if one.is_directory and not is_lost_found(one)]
        yield path, inside
        if depth < _DEPTH and not any(one.name in (COMMIT_LOG, CONSUME_QUEUE, INDEX) for one in inside):
            waiting += [(one.path, depth + 1) for one in inside]


def log_segments(disk: Disk, queue: TieredQueue) -> list[Segment]:
    """The files of a queue's log, by offset. Raises StorageError."""
    return _files(disk, queue, COMMIT_LOG)[0]


def dump_tiered(disk: Disk, queue: TieredQueue, *, max_message_size: int) -> Iterator[TieredRow]:
    """A queue's rows in the order of its log; it continues after damage. Raises StorageError."""
    log_files, log_wrong = _files(disk, queue, COMMIT_LOG)
    unit_files, unit_wrong = _files(disk, queue, CONSUME_QUEUE)
    yield from log_wrong
    yield from unit_wrong
    with ClosedLog(disk, log_files) as log, ClosedLog(disk, unit_files) as units:
        yield from _Side(queue, log, _Units(queue, units)).rows(max_message_size)


def _files(disk: Disk, queue: TieredQueue, kind: str) -> tuple[list[Segment], list[TieredRow]]:
    """The files of a chain, by offset, and what is no file of it, has another name, or overlaps the next."""
    directory = os.path.join(queue.path, kind)
    if not disk.is_dir(directory):
        return [], []
    files: list[Segment] = []
    wrong: list[TieredRow] = []
    for entry in disk.scandir(directory):
        offset = file_offset(entry.name)
        if is_lost_found(entry):
            continue
        if not entry.is_file or offset is None:
            reason = entry.what if not entry.is_file else "a name that no tiered file has"
            wrong.append(TieredRow(DAMAGE, queue, 0, 0, entry.path, reason=reason))
        elif entry.size:
            files.append(Segment(offset, entry.size, entry.path))
    files.sort(key=lambda one: one.offset)
    for i, (one, after) in enumerate(pairwise(files)):
        if one.end > after.offset:
            over = one.end - after.offset
            reason = f"the file has {over} bytes more than there is space for before the next file"
            wrong.append(TieredRow(DAMAGE, queue, after.offset, over, one.path, reason=reason))
            files[i] = Segment(one.offset, after.offset - one.offset, one.path)
    if kind == CONSUME_QUEUE:
        wrong += [
            TieredRow(DAMAGE, queue, one.end - one.size % UNIT_SIZE, one.size % UNIT_SIZE, one.path,
                      reason=f"the file ends after {one.size % UNIT_SIZE} bytes of a unit")
            for one in files
            if one.size % UNIT_SIZE or one.offset % UNIT_SIZE
        ]  # fmt: skip
        files = [
            Segment(one.offset, one.size - one.size % UNIT_SIZE, one.path)
            for one in files
            if one.size >= UNIT_SIZE and not one.offset % UNIT_SIZE
        ]
    return files, wrong


class _Units:
    """The units of a queue, one after the other; `now`: queue offset, physical offset, size, tags code, file."""

    def __init__(self, queue: TieredQueue, files: ClosedLog) -> None:
        self.queue = queue
        self._units = self._all(files)
        self.now: tuple[int, int, int, int, str] | None = None
        self.step()

    def step(self) -> None:
        """Go to the next one."""
        self.now = next(self._units, None)

    @staticmethod
    def _all(files: ClosedLog) -> Iterator[tuple[int, int, int, int, str]]:
        for segment in files.segments:
            for at in range(segment.offset, segment.end, _PIECE):
                piece = files.read(at, min(_PIECE, segment.end - at))
                for number, unit in enumerate(UNIT.iter_unpack(piece[: len(piece) // UNIT_SIZE * UNIT_SIZE])):
                    yield at // UNIT_SIZE + number, *unit, segment.path


@dataclass(slots=True)
class _Side:
    """Log and units side by side."""

    queue: TieredQueue
    log: ClosedLog
    units: _Units

    def rows(self, max_message_size: int) -> Iterator[TieredRow]:
        first = self.log.segments[0].offset if self.log.segments else 0
        end = self.log.segments[-1].end if self.log.segments else 0
        scanner = Scanner(self.log, max_message_size=max_message_size)
        for event in scanner.scan(first, end, resume=True) if end > first else ():
            if isinstance(event, RecordBatch):
                for i, row in enumerate(event.rows):
                    yield from self._record(event.offset(i), row.size, message.decode(event.record(i)))
            elif isinstance(event, Blank):
                yield TieredRow(BLANK, self.queue, event.offset, event.length, self._path(event.offset))
            elif isinstance(event, Gap):
                reason = "files of the log are missing"
                yield from self._damage(event.offset, event.length, self._path(event.offset - 1), reason)
            else:
                yield from self._damage(event.offset, event.length, event.segment.path, event.reason.value)
        yield from self._units_before(None)

    def _path(self, offset: int) -> str:
        segment = self.log.segment_at(offset)
        return self.queue.path if segment is None else segment.path

    def _damage(self, offset: int, length: int, path: str, reason: str) -> Iterator[TieredRow]:
        yield from self._units_before(offset)
        yield TieredRow(DAMAGE, self.queue, offset, length, path, reason=reason)
        while self.units.now is not None and self.units.now[1] < offset + length:
            self.units.step()  # of what is damaged: said once

    def _record(self, offset: int, size: int, record: StoredMessage) -> Iterator[TieredRow]:
        yield from self._units_before(offset)
        unit = self.units.now
        if unit is None or unit[1] != offset:
            reason = None if unit is None else "no unit of the queue points at this message"
            kind = MESSAGE if unit is None else DAMAGE
            yield TieredRow(kind, self.queue, offset, size, self._path(offset), record, reason=reason)
            return
        self.units.step()
        yield TieredRow(
            MESSAGE, self.queue, offset, size, self._path(offset), record, unit[0],
            _difference(self.queue, unit, size, offset, record),
        )  # fmt: skip

    def _units_before(self, offset: int | None) -> Iterator[TieredRow]:
        """Units that point at no record before `offset`; None: at the end."""
        while self.units.now is not None and (offset is None or self.units.now[1] < offset):
            number, physical, _, _, path = self.units.now
            where = "after the log end" if offset is None else "where no message begins"
            reason = f"the unit of queue offset {number} points at {physical}, {where}"
            yield TieredRow(DAMAGE, self.queue, number * UNIT_SIZE, UNIT_SIZE, path, reason=reason)
            self.units.step()


def _difference(
    queue: TieredQueue, unit: tuple[int, int, int, int, str], size: int, offset: int, record: StoredMessage
) -> str | None:
    """What unit and record say differently."""
    checks = (
        ("queue offset", unit[0], record.queue_offset),
        ("size", unit[2], size),
        ("tags code", unit[3], tags_code(record.properties.get("TAGS"))),
        ("physical offset", offset, record.physical_offset),
        ("topic", queue.topic, record.topic),
        ("queue ID", queue.queue_id, record.queue_id),
    )
    differs = ((what, ours, theirs) for what, ours, theirs in checks if ours != theirs)
    return next((f"{what}: {ours} in the queue, {theirs} in the message" for what, ours, theirs in differs), None)
