"""What a file's own first records say about where in the log it belongs, whatever its name is.

A record knows its physical offset, so a sound record at a position of a file tells where that file begins. A few of
them at the file's head are enough where they agree with its name: one small read. Where they don't, or the head holds
none, whole records are searched all over the file: its first pages may be those of another place.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format import sysflag
from engine.format.judge import Row
from engine.format.message import ENCODE_OVERHEAD
from engine.inspect.store.record_search import whole
from engine.log.batch import RecordBatch
from engine.log.derive import TopicQueue
from engine.log.source import ClosedLog, Segment
from engine.log.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk

WITNESSES = 16
"""Records that are asked of a file's head."""
MOST_WITNESSES = 64
"""Records that are asked of all of a file."""
_HEAD = 8 << 10
_WINDOW = 64 << 10
_SHORT = 1 << 20
"""Bytes of a file that is searched as a whole; of a longer one windows are, and more of them near its beginning."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A whole record: position in its file and size (bytes), what it says of itself; `consumable`: it has a unit."""

    position: int
    size: int
    stored_offset: int
    queue: TopicQueue
    queue_offset: int
    consumable: bool

    @property
    def base(self) -> int:
        """Physical offset of the file's first byte, as this record says."""
        return self.stored_offset - self.position


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """Some whole records of a file. `empty`: it begins with zeros, or holds nothing. `unread`: pages can't be read."""

    witnesses: tuple[Witness, ...]
    empty: bool
    unread: bool = False

    def votes(self, offset: int | None) -> int:
        """How many of them say that the file begins at this physical offset."""
        return sum(1 for witness in self.witnesses if witness.base == offset)

    @property
    def most(self) -> int:
        """How many of them agree about where the file begins, wherever that is."""
        return max(Counter(witness.base for witness in self.witnesses).values(), default=0)

    def home(self, file_size: int) -> int | None:
        """Where most of them say that the file begins, of the places where a segment can; None when none says so."""
        bases = Counter(w.base for w in self.witnesses if w.base >= 0 and w.base % file_size == 0)
        return bases.most_common(1)[0][0] if bases else None


def look_at_head(disk: Disk, path: str, size: int, max_message_size: int) -> SegmentLook:
    """The records that a file of `size` bytes begins with: none where the first is not sound, or can't be read."""
    try:
        reader = disk.open_reader(path)
        try:
            head = reader.read(0, min(size, _HEAD))
            rows: list[Row] = []
            stop = walk(head, 0, size, rows, max_rows=WITNESSES)
            if not rows and 0 < stop.more <= max_message_size + ENCODE_OVERHEAD:
                head = reader.read(0, stop.more)
                walk(head, 0, size, rows, max_rows=1)
        finally:
            reader.close()
    except StorageError:
        return SegmentLook((), empty=False, unread=True)
    return SegmentLook(witnesses(RecordBatch(0, head, rows)) if rows else (), empty=not any(head))


def look_across(disk: Disk, path: str, size: int, max_message_size: int) -> SegmentLook:
    """Whole records from all over a file; the first where windows hold none. What can't be read is passed over."""
    segment = Segment(0, size, path)
    largest = max_message_size + ENCODE_OVERHEAD
    with ClosedLog(disk, [segment]) as log:
        unread: list[int] = []
        windows = _windows(size)
        witnesses = [w for low, high in windows for w in _whole(log, segment, low, high, largest, unread)]
        if not witnesses:
            witnesses = list(islice(_whole(log, segment, 0, size, largest, unread), WITNESSES))
    every = -(-len(witnesses) // MOST_WITNESSES) or 1
    return SegmentLook(tuple(witnesses[::every]), empty=not witnesses and not unread, unread=bool(unread))


def _windows(size: int) -> list[tuple[int, int]]:
    """Ranges of a file (bytes) that are searched."""
    if size <= _SHORT:
        return [(0, size)]
    near = [_WINDOW << i for i in range(size.bit_length()) if _WINDOW << i < size]
    starts = sorted({0, *near, *range(0, size, size // WITNESSES)})
    return [(start, min(start + _WINDOW, end)) for start, end in pairwise([*starts, size])]


def _whole(
    log: ClosedLog, segment: Segment, start: int, end: int, largest: int, unread: list[int]
) -> Iterator[Witness]:
    """Whole records in [start, end); `unread` as of `whole`."""
    try:
        for low, high in log.data_ranges(segment, start):
            if low >= end:
                return
            for batch in whole(log, max(low, start), min(high, end), largest, unread):
                yield from witnesses(batch)
    except StorageError:
        unread.append(start)


def witnesses(batch: RecordBatch) -> tuple[Witness, ...]:
    """What the records of a batch say of themselves."""
    return tuple(
        Witness(
            batch.offset(i),
            row.size,
            row.stored_offset,
            TopicQueue(batch.topic(i).decode("utf-8", "replace"), row.queue_id),
            row.queue_offset,
            sysflag.is_consumable(row.sys_flag),
        )
        for i, row in enumerate(batch.rows)
    )
