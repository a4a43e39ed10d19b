"""Two files that claim the same place of the log, compared record by record; whether records are this log's at all.

A copy of a segment (an rsync's temporary file, a .bak) holds the same bytes at the same positions, as far as both are
whole. Records of another store may name the same places: there the queues' units tell whose they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StorageError
from engine.files.written import is_zeros
from engine.format.judge import Reason
from engine.inspect.store.queue_rows import QueueRows, first_at, is_real
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.inspect.store.segment_look import Witness
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue


class Held(NamedTuple):
    """Sound records of a file at their own place, those of them that the other lacks, and whether all can be read."""

    sound: int
    lacking: int
    readable: bool

    @property
    def nothing_more(self) -> bool:
        """Whether the other file is known to hold all that this one holds."""
        return self.readable and not self.lacking


def compared(disk: Disk, one: Segment, other: Segment, max_message_size: int) -> Held:
    """What one file of a place holds beside the other. Raises StorageError."""
    sound = lacking = 0
    readable = True
    with ClosedLog(disk, [one]) as log, ClosedLog(disk, [other]) as other_log:
        for event in Scanner(log, max_message_size=max_message_size).scan(one.offset, resume=True):
            readable &= not (isinstance(event, Damage) and not _can_be_read(log, event))
            if not isinstance(event, RecordBatch):
                continue
            moved = {place for place, _, _ in event.moved()}
            sound += len(event) - len(moved)
            if not moved and _same(log, other_log, event.start, event.end):
                continue
            for i in range(len(event)):
                place = event.offset(i)
                if place not in moved and not _same(log, other_log, place, place + len(event.record(i))):
                    lacking += 1
    return Held(sound, lacking, readable)


def _can_be_read(log: ClosedLog, damage: Damage) -> bool:
    try:
        for at in range(damage.offset, damage.end, _PIECE):
            log.read(at, min(_PIECE, damage.end - at))
    except StorageError:
        return False
    return True


def is_complete(disk: Disk, one: Segment, max_message_size: int, *, goes_on: bool) -> bool:
    """Whether a file of the setting's length is sound from its first record up to where its log ends.

    With `goes_on` (a later segment holds records) that is the file's end; else zeros may follow, and nothing else.
    Raises StorageError.
    """
    if one.held is not None:
        return False
    records, end = 0, one.offset
    with ClosedLog(disk, [one]) as log:
        for event in Scanner(log, max_message_size=max_message_size).scan(one.offset, resume=True):
            if isinstance(event, RecordBatch):
                if event.moved():
                    return False
                records += len(event)
            elif isinstance(event, Damage):
                empty = event.reason is Reason.EMPTY and event.end >= one.end
                return empty and not goes_on and records > 0 and not _is_written(log, one, event.offset)
            end = event.end
            if isinstance(event, Blank):
                break
    return records > 0 and end == one.end


def _is_written(log: ClosedLog, segment: Segment, offset: int) -> bool:
    """Whether anything but zeros lies from a physical offset on to the segment's end."""
    for start, end in log.data_ranges(segment, offset):
        for at in range(max(start, offset), end, _PIECE):
            if not is_zeros(log.read(at, min(_PIECE, end - at))):
                return True
    return False


def _same(log: ClosedLog, other: ClosedLog, start: int, end: int) -> bool:
    try:
        return bytes(other.read(start, end - start)) == bytes(log.read(start, end - start))
    except StorageError:
        return False


class Belonging:
    """Tells by the queues' units whether records at a place of the log are this store's."""

    def __init__(self, disk: Disk, files: StoreFiles) -> None:
        self._disk = disk
        self._queues = {queue.queue: queue for queue in files.queues if queue.files}
        self._files = files

    @property
    def has_units(self) -> bool:
        """Whether any queue has a unit."""
        return any(rows.extent > rows.first for rows in (QueueRows(self._disk, one) for one in self._queues.values()))

    def judge(self, place: int, witnesses: Sequence[Witness]) -> int:
        """Above 0: units point at these records, were they at `place`. Below 0: units name other records instead."""
        for_, against = 0, 0
        with ClosedLog(self._disk, self._files.log) as log:
            scanner = Scanner(log, max_message_size=self._files.config.max_message_size)
            for witness in witnesses:
                unit = self._unit(witness)
                if unit is None:
                    continue
                if unit == (place + witness.position, witness.size):
                    for_ += 1
                elif self._names(log, scanner, unit, witness.queue, witness.queue_offset):
                    against += 1
        return for_ - against

    def points_into(self, start: int, end: int) -> bool:
        """Whether a unit of any queue points into [start, end) of the log."""
        for queue in self._queues.values():
            rows = QueueRows(self._disk, queue)
            at = first_at(rows, rows.extent, start)
            if at < rows.extent and int(rows.read(at, at + 1)["physical_offset"][0]) < end:
                return True
        return False

    def is_shown(self, witness: Witness, offset: int) -> bool:
        """Whether a unit names just this record, were it at this physical offset."""
        return self._unit(witness) == (offset, witness.size)

    def is_denied(self, place: int, size: int, witnesses: Sequence[Witness]) -> bool:
        """Whether units point into these records, or name other sizes, rather than just them, were the file at `place`.

        So they do at the records of another store, whose queues this one has not: units of the segment that is lost.
        """
        import numpy as np

        ordered = sorted(witnesses, key=lambda witness: witness.position)
        starts = np.array([place + witness.position for witness in ordered], dtype=np.int64)
        lengths = np.array([witness.size for witness in ordered], dtype=np.int64)
        agree = deny = 0
        queues = list(self._queues.values())
        for queue in queues[:: -(-len(queues) // _MOST_QUEUES) or 1]:
            rows = QueueRows(self._disk, queue)
            low = first_at(rows, rows.extent, place)
            units = rows.read(low, min(low + _MOST_UNITS, rows.extent))
            numbers = np.flatnonzero(is_real(units))
            offsets = units["physical_offset"][numbers].astype(np.int64)
            nearest = np.searchsorted(starts, offsets, side="right") - 1
            within = (offsets < place + size) & (nearest >= 0)
            into, nearest, numbers = (offsets - starts[nearest])[within], nearest[within], numbers[within]
            same = (into == 0) & (units["size"][numbers] == lengths[nearest])
            agree += int(same.sum())
            for i in np.flatnonzero(~same & (into < lengths[nearest])).tolist():
                own = ordered[int(nearest[i])]
                # its own row with a wild size says nothing
                deny += into[i] > 0 or (queue.queue, low + int(numbers[i])) != (own.queue, own.queue_offset)
        return bool(deny > agree)

    def _unit(self, witness: Witness) -> tuple[int, int] | None:
        """Physical offset and size in the unit at the record's queue offset."""
        queue = self._queues.get(witness.queue) if witness.consumable else None
        if queue is None:
            return None
        rows = QueueRows(self._disk, queue)
        at = witness.queue_offset
        if not rows.first <= at < rows.extent:
            return None
        units = rows.read(at, at + 1)
        return (int(units["physical_offset"][0]), int(units["size"][0])) if is_real(units)[0] else None

    def _names(
        self, log: ClosedLog, scanner: Scanner, unit: tuple[int, int], queue: TopicQueue, queue_offset: int
    ) -> bool:
        """Whether the record that the unit points at is that of this queue offset."""
        place, size = unit
        if scanner.sound_size(place) != size:
            return False
        event = next(iter(scanner.scan(place, place + 1)), None)
        if not isinstance(event, RecordBatch):
            return False
        row = event.rows[0]
        topic = event.topic(0).decode("utf-8", "replace")
        return (topic, row.queue_id, row.queue_offset) == (*queue, queue_offset)


_PIECE = 1 << 20
_MOST_QUEUES = 64
"""Queues that are asked, and rows of each."""
_MOST_UNITS = 1 << 14
