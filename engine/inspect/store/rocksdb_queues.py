"""Consume queues that RocketMQ 5 keeps in RocksDB, as the files of units that others read: nothing is written.

Theory. A unit in RocksDB says what one in a file says, and when its record was stored besides; it is found by topic,
queue and queue offset. So a queue is shown as the files that it would have, computed as they are read (`ComputedDisk`),
and `get`, `dump`, `check`, `status` and lag read both kinds by one code. Where the database has no unit, before the
last one, the file has what a broker fills a file's front with: a place without a message. A file of which the database
has no unit at all is not there.

Which units count is what the broker goes by: from the first one that is there up to the queue's `max`; what lies after
that is left from a log that was cut, and is overwritten. Without `max`, up to the last one. Where a queue has files,
too (both kinds are written), those are read if they have as many units.

Sources: RocksDBConsumeQueueStore#getMaxOffsetInQueue, #truncateDirty, RocksDBConsumeQueueOffsetTable (5.3.3),
CombineConsumeQueueStore (5.5.0).
"""

from __future__ import annotations

import os
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.computed import ComputedDisk
from engine.files.listing import SegmentFile
from engine.files.rocksdb import RocksDatabase
from engine.format import names
from engine.format.queue_unit import PRE_BLANK, PRE_BLANK_SIZE, UNIT_SIZE, unit_dtype
from engine.format.rocksdb_queue import (
    CHECKPOINT_TOPIC,
    OFFSETS,
    ROCKSDB_UNIT_SIZE,
    UNITS,
    UnitKey,
    decode_checkpoint,
    decode_many,
    decode_offset,
    decode_offset_key,
    decode_unit_key,
    last_key,
    queue_key,
)
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.rocksdb import EntryPage

MOST_PROBLEMS = 64
"""Keys and values that are kept as wrong; of the others only how many they are."""


@dataclass(slots=True)
class RocksDBQueue:
    """One queue. Queue offsets: `first` of its first unit, `end` after the last that counts, `last` of the last one.

    `max`, `min`: physical offset and queue offset of its last and first message, as the database has them.
    """

    first: int = -1
    end: int = 0
    last: int = -1
    max: tuple[int, int] | None = None
    min: tuple[int, int] | None = None


@dataclass(slots=True)
class WrongEntries:
    """Keys and values that are none of RocketMQ's."""

    count: int = 0
    what: list[FormatError] = field(default_factory=list)

    def add(self, error: FormatError) -> None:
        """One more."""
        self.count += 1
        if len(self.what) < MOST_PROBLEMS:
            self.what.append(error)


class RocksDBQueues:
    """The queues of one database; it stays open as long as this is used.

    Attributes:
        directory: of the database.
        queues: each queue that has units or an end.
        dispatched: physical offset up to which records have their units, as the database has it; −1: it has none.
        wrong: keys and values of column family `offset`, and keys of `default`, that are none.
        read: queues that are read from here; the others have files that are read.
        disk: through which their files are read.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Open the database and look for its queues.

        Raises:
            NotInstalled, FormatError: it can't be read. StorageError.
        """
        self.directory = directory
        self.database = RocksDatabase(disk, directory)
        self.queues: dict[TopicQueue, RocksDBQueue] = {}
        self.dispatched = -1
        self.wrong = WrongEntries()
        self.read: set[TopicQueue] = set()
        self.disk = ComputedDisk()
        self._find_units()
        if OFFSETS in self.database.families:
            self._find_ends()
        for queue in self.queues.values():
            counts = queue.last + 1
            queue.end = counts if queue.max is None else max(0, min(counts, queue.max[1] + 1))
            queue.first = queue.end if queue.first < 0 else min(queue.first, queue.end)

    def add_files(self, queue: TopicQueue, directory: str, file_size: int) -> tuple[SegmentFile, ...]:
        """The files of a queue, of `file_size` bytes each, which `disk` reads. Raises FormatError, StorageError."""
        ends = self.queues[queue]
        per_file = file_size // UNIT_SIZE
        files: list[SegmentFile] = []
        at = ends.first
        while at < ends.end:
            there = self._next_unit(queue, at)
            if there is None or there >= ends.end:
                break
            number = there // per_file
            path = os.path.join(directory, names.segment_name(number * file_size))
            self.disk.add(path, file_size, partial(self._content, queue, number * per_file))
            files.append(SegmentFile(path, number * file_size, file_size, 0))
            at = (number + 1) * per_file
        self.read.add(queue)
        return tuple(files)

    def units(self, queue: TopicQueue, start: int, end: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Queue offsets, and the units that are there (28 bytes each), in pieces. Raises FormatError, StorageError."""
        topic = _bytes(queue)
        low, high = (UnitKey(topic, queue.queue_id, at).encode() for at in (start, end))
        for page in self.database.pages(UNITS, low, high):
            keys, values = _whole(page, len(low))
            yield decode_many(keys, values, topic)

    def _content(self, queue: TopicQueue, first: int, offset: int, length: int) -> bytes:
        """Bytes of the file whose first unit has the queue offset `first`."""
        import numpy as np

        ends = self.queues[queue]
        low, high = first + offset // UNIT_SIZE, first + -(-(offset + length) // UNIT_SIZE)
        rows = np.zeros(high - low, dtype=unit_dtype())
        absent = (PRE_BLANK.physical_offset, PRE_BLANK_SIZE, PRE_BLANK.tags_code)
        rows[: max(0, min(ends.end - low, len(rows)))] = absent
        start, end = max(low, ends.first), min(high, ends.end)
        for offsets, units in self.units(queue, start, end) if start < end else ():
            for name in rows.dtype.names or ():
                rows[name][offsets - low] = units[name]
        skipped = offset % UNIT_SIZE
        return rows.tobytes()[skipped : skipped + length]

    def _find_units(self) -> None:
        """The first and the last unit of each queue: two looks a queue, whatever number of units it has."""
        at = b""
        while True:
            page = self.database.page(UNITS, at, most=1)
            if not len(page):
                return
            try:
                key = decode_unit_key(page.keys)
                queue = _queue(key.topic, key.queue_id)
            except FormatError as error:
                self.wrong.add(error)
                at = bytes(page.keys) + b"\0"
                continue
            greatest = last_key(key.topic, key.queue_id)
            item = self.database.last(UNITS, greatest)
            last = key.queue_offset
            if item is not None and bytes(item.key).startswith(queue_key(key.topic, key.queue_id)):
                try:
                    last = max(last, decode_unit_key(item.key).queue_offset)
                except FormatError as error:
                    self.wrong.add(error)
            self.queues[queue] = RocksDBQueue(first=key.queue_offset, last=last)
            at = greatest + b"\0"

    def _find_ends(self) -> None:
        for item in self.database.items(OFFSETS):
            try:
                key = decode_offset_key(item.key)
                if key.topic == CHECKPOINT_TOPIC.encode():
                    self.dispatched = decode_checkpoint(item.value)
                    continue
                queue = _queue(key.topic, key.queue_id)
                place = decode_offset(item.value)
            except FormatError as error:
                self.wrong.add(error)
                continue
            ends = self.queues.setdefault(queue, RocksDBQueue())
            if key.is_max:
                ends.max = place
            else:
                ends.min = place

    def _next_unit(self, queue: TopicQueue, at: int) -> int | None:
        """Queue offset of the first unit from one on; None: there is none. Raises FormatError, StorageError."""
        topic = _bytes(queue)
        start, stop = UnitKey(topic, queue.queue_id, at).encode(), last_key(topic, queue.queue_id)
        for item in self.database.items(UNITS, start, stop + b"\0"):
            if len(item.key) == len(start):
                return decode_unit_key(item.key).queue_offset
        return None


def _queue(topic: bytes, queue_id: int) -> TopicQueue:
    """Raises FormatError: a topic that can't be the name of a directory."""
    name = topic.decode("utf-8", "surrogateescape")
    if "/" in name or "\0" in name or name in (".", ".."):
        raise FormatError(f"invalid topic {name!r}")
    return TopicQueue(name, queue_id)


def _bytes(queue: TopicQueue) -> bytes:
    return queue.topic.encode("utf-8", "surrogateescape")


def _whole(page: EntryPage, key_size: int) -> tuple[memoryview | bytes, memoryview | bytes]:
    """Keys and values of a page; without those of another length, which `check` names."""
    if set(page.key_sizes) <= {key_size} and set(page.value_sizes) <= {ROCKSDB_UNIT_SIZE}:
        return page.keys, page.values
    items = [one for one in page.items() if (len(one.key), len(one.value)) == (key_size, ROCKSDB_UNIT_SIZE)]
    return b"".join(one.key for one in items), b"".join(one.value for one in items)
