"""A store read together with its archive: what it has deleted is found where it was, by the same questions.

Below the store's first byte (queue offset, physical offset) the archive answers, from there on the store. A segment
that both have is read in the store: a run of `expire --archive` was killed before it deleted it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from engine.backup.manifest import PIECE_SIZE
from engine.errors import RStoreError, StorageError
from engine.files.selected import SelectedBuffer
from engine.format.hashing import index_key_hash
from engine.format.queue_unit import UNIT_SIZE, QueueUnit, decode
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.store.known_names import KnownNames
from engine.log import queue_time
from engine.log.derive import TopicQueue
from engine.log.place import place_at
from engine.log.reading import store_timestamp_at
from engine.read_store import ReadStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.archive.archive import StoreArchive
    from engine.backup.archive.archived import ArchivedSegment, Run
    from engine.config import StoreConfig
    from engine.errors import NextStep
    from engine.files.disk import Disk
    from engine.format.queue_ext import ExtUnit
    from engine.log.closed_log import ClosedLogReader
    from engine.log.closed_queue import ClosedQueue
    from engine.log.place import Place
    from engine.log.queue_time import StoreTimeOf
    from engine.log.reading import TimedQueueReader
    from engine.log.source import Segment, SegmentedLog


class ArchivedStore(ReadStore):
    """See the module. Thread-safe. A context manager.

    Args:
        config: as of ReadStore.
        archive: of this store.
        disk: the system's files.
    """

    def __init__(self, config: StoreConfig, archive: StoreArchive, disk: Disk | None = None) -> None:
        super().__init__(config, disk)
        self.archive = archive
        self._both = _BothLogs(self.log, archive, self.config)

    @property
    def archived_below(self) -> int:
        """See ReadStore."""
        return self.log.min_offset

    @property
    def source(self) -> SegmentedLog:
        """The log of both, for a scan."""
        return self._both

    @property
    def log_range(self) -> str:
        """See ReadStore."""
        return f"store and archive hold offsets {self._both.min_offset} to {self.log.max_offset}"

    def archive_step(self, *words: str) -> NextStep | None:
        """See ReadStore."""
        del words
        return None

    def queues(self) -> tuple[TopicQueue, ...]:
        """See ReadStore; those that only the archive has, too."""
        return tuple(sorted({*super().queues(), *self.archive.queues()}))

    def find_queue(self, topic: str, queue_id: int) -> TimedQueueReader | None:
        """See ReadStore."""
        there = self.closed_queue(topic, queue_id)
        runs = self.archive.queues().get(TopicQueue(topic, queue_id), [])
        runs = [(segment, run) for segment, run in runs if segment.offset < self.log.min_offset]
        return ArchivedQueueReader(self.archive, runs, there) if runs else there

    def known_names(self) -> KnownNames:
        """See ReadStore."""
        return super().known_names().and_also(self.archive.queues())

    def _readable_log(self) -> _BothLogs:
        super()._readable_log()
        return self._both

    def _walk_index(
        self, topic: str, key: str, begin: int, end: int, max_num: int, accept: Callable[[int], bool]
    ) -> tuple[int, int]:
        count = 0

        def counted(offset: int) -> bool:
            nonlocal count
            accepted = accept(offset)
            count += accepted
            return accepted

        newest = super()._walk_index(topic, key, begin, end, max_num, counted)
        if count < max_num:
            wanted = index_key_hash(f"{topic}#{key}")
            for offset in self.archive.with_key(wanted, begin, end, self.log.min_offset):
                stored = store_timestamp_at(self._both, offset, MIN_RECORD_SIZE)
                if begin <= stored <= end:
                    counted(offset)
                if count >= max_num:
                    break
        return newest


class ArchivedQueueReader:
    """A queue of both (see TimedQueueReader). Offsets are queue offsets.

    Args:
        archive: that has the units.
        runs: of the queue, by physical offset.
        there: the queue as the store has it; None: it has none.
    """

    def __init__(
        self, archive: StoreArchive, runs: Sequence[tuple[ArchivedSegment, Run]], there: ClosedQueue | None
    ) -> None:
        self._archive = archive
        self._there = there
        last = max(first + count for _, (first, _, count) in runs)
        self._border = last if there is None else there.min_offset
        self._max = last if there is None else there.max_offset
        self._spans = _spans(runs, self._border)
        self._starts = [start for start, _, _, _ in self._spans]
        self._known: tuple[int, bytes] = (0, b"")

    @property
    def min_offset(self) -> int:
        """See QueueReader."""
        return self._starts[0] if self._starts else self._border

    @property
    def max_offset(self) -> int:
        """See QueueReader."""
        return self._max

    def select(self, offset: int, most: int | None = None) -> SelectedBuffer | None:
        """See QueueReader. None in a gap between what was archived."""
        if offset >= self._border:
            return None if self._there is None else self._there.select(offset, most)
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        start, end, segment, row = self._spans[at]
        if offset >= end:
            return None
        count = end - offset if most is None else min(most, end - offset)
        units = self._archive.units(segment, row + offset - start, count)
        return SelectedBuffer(None, offset * UNIT_SIZE, memoryview(units))

    def roll_next_file(self, offset: int) -> int:
        """See QueueReader: after a gap."""
        if offset >= self._border and self._there is not None:
            return self._there.roll_next_file(offset)
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else self._border

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """See QueueReader. Archived units have no extension."""
        return None if self._there is None else self._there.ext_unit(tags_code)

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, min_physical_offset: int) -> int:
        """See TimedQueueReader: the first stored then or later, the last where there is none."""
        del min_physical_offset
        return min(self.lower_bound_by_time(timestamp, store_time_of), self._max - 1)

    def lower_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """See TimedQueueReader."""
        return self._bound(store_time_of, lambda time: time >= timestamp)

    def upper_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """See TimedQueueReader."""
        return self._bound(store_time_of, lambda time: time > timestamp)

    def _bound(self, store_time_of: StoreTimeOf, reached: Callable[[int], bool]) -> int:
        """First offset whose message is `reached`; segments whose newest message is not are not read."""
        for start, end, segment, _ in self._spans:
            if reached(segment.newest_time):
                within = queue_time.bound(self._get, start, end, store_time_of, reached)
                if within < end:
                    return within
        if self._there is None:
            return self._max
        return queue_time.bound(self._there.get, self._border, self._max, store_time_of, reached)

    def _get(self, offset: int) -> QueueUnit | None:
        selected = self.select(offset, 1)
        return None if selected is None else decode(selected.view)


def _spans(runs: Sequence[tuple[ArchivedSegment, Run]], border: int) -> list[tuple[int, int, ArchivedSegment, int]]:
    """Queue offsets [start, end) below `border` that follow each other, without overlaps, each with its segment and the
    row of the first; of two runs with one queue offset the later in the log has it.
    """
    spans: list[tuple[int, int, ArchivedSegment, int]] = []
    floor = border
    for segment, (first, row, count) in reversed(runs):
        end = min(first + count, floor)
        if first < end:
            spans.append((first, end, segment, row))
            floor = first
    return spans[::-1]


class _BothLogs:
    """The log of both (see LogReader), and a source for the scanner. Physical offsets."""

    def __init__(self, there: ClosedLogReader, archive: StoreArchive, config: StoreConfig) -> None:
        self._there = there
        self._archive = archive
        self._config = config

    @property
    def min_offset(self) -> int:
        """See LogReader."""
        first = self._archive.min_offset
        return self._there.min_offset if first is None else min(first, self._there.min_offset)

    def read_at(self, offset: int, size: int) -> memoryview | None:
        """See LogReader."""
        if offset >= self._there.min_offset:
            return self._there.read_at(offset, size)
        readable = self.readable(offset, size, size)
        return None if readable is None else readable[1][:size]

    def mapped_from(self, offset: int) -> memoryview | None:
        """See LogReader: neither is mapped."""
        del offset
        return None

    def readable(self, offset: int, size: int, length: int) -> tuple[int, memoryview] | None:
        """See LogReader: no more than the record's pieces."""
        if offset >= self._there.min_offset:
            return self._there.readable(offset, size, length)
        segment = self.segment_at(offset)
        if segment is None or size < 0 or offset + size > segment.end:
            return None
        last = (offset + max(size, 1) - 1 - segment.offset) // PIECE_SIZE
        end = min(offset + max(size, length), segment.offset + (last + 1) * PIECE_SIZE, segment.end)
        return offset, self.read(offset, end - offset)

    def roll_next_file(self, offset: int) -> int:
        """See LogReader."""
        if offset >= self._there.min_offset:
            return self._there.roll_next_file(offset)
        segment = self.segment_at(offset)
        return offset + 1 if segment is None else segment.end

    def place_at(self, offset: int) -> Place:
        """See ClosedLogReader."""
        if offset >= self._there.min_offset:
            return self._there.place_at(offset)
        config = self._config
        return place_at(
            self,
            offset,
            self._there.max_offset,
            max_message_size=config.max_message_size,
            check_crc=config.check_crc_on_recover,
        )

    # --- as a source ------------------------------------------------------------------------------------------------

    @property
    def segments(self) -> Sequence[Segment]:
        """See LogSource."""
        there = self._there.source.segments
        border = self._there.min_offset
        archived = [self._archive.log(one)[1] for one in self._archive.segments() if one.offset < border]
        return (*archived, *there)

    def segment_at(self, offset: int) -> Segment | None:
        """See SegmentedLog."""
        if offset >= self._there.min_offset:
            return self._there.source.segment_at(offset)
        archived = self._archived(offset)
        return None if archived is None else self._archive.log(archived)[1]

    def read(self, offset: int, length: int) -> memoryview:
        """See LogSource."""
        if offset >= self._there.min_offset:
            return self._there.source.read(offset, length)
        archived = self._archived(offset)
        return memoryview(b"") if archived is None else self._archive.log(archived)[0].read(offset, length)

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """See LogSource."""
        if segment.offset >= self._there.min_offset:
            return self._there.source.data_ranges(segment, offset)
        archived = self._archived(segment.offset)
        if archived is None:
            return iter(())
        log, own = self._archive.log(archived)
        return log.data_ranges(own, offset)

    def _archived(self, offset: int) -> ArchivedSegment | None:
        try:
            return self._archive.segment_at(offset)
        except StorageError:
            raise
        except RStoreError as error:
            why = f"the archive can't give it: {error.message}"
            raise StorageError(why, path=error.path, offset=offset, hint="rstore backup check") from None
