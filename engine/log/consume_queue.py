"""One consume queue: for each message of a topic and queue a unit of 20 bytes that says where it lies in the log.

Theory (Apache ConsumeQueue): a message gets its queue offset when it is put, and its record keeps it; dispatch brings
the units here in log order. How they lie in files: queue_files.py. A queue whose first message does not have offset 0
fills its first file up to it with pre-blank units.

Invariants:
- Unit n belongs to the message whose record says queueOffset n. A message that comes again is ignored (it ends at or
  below `max_physical_offset`), so is one whose offset is taken. A jump is filled: each missing offset repeats the unit
  before it, so no later message moves (RECOVERY.md, rule 16; Apache appends it at the wrong offset).
- A jump is believed only as far as the log has room for the records that are missed: a record takes at least 91 bytes.
  A queue offset is not covered by its record's CRC, and a flipped bit must not fill the disk. Such a unit is refused.
- `min_offset` is never a pre-blank unit (rule 17), and only a new first unit of an empty queue moves it down.
- One appender; readers, a flusher and a deleter beside it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import queue_unit
from engine.format.queue_ext import ExtUnit
from engine.format.queue_unit import UNIT_SIZE, QueueUnit
from engine.format.record import MIN_RECORD_SIZE
from engine.log import queue_time
from engine.log.queue_files import QueueFileChain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.listing import MissingOffsets
    from engine.files.open_files import OpenFiles
    from engine.files.selected import SelectedBuffer
    from engine.log.consume_queue_ext import ConsumeQueueExt
    from engine.log.derive import TopicQueue
    from engine.log.queue_time import StoreTimeOf
    from engine.log.state import QueueState

_FEW = 6
"""Units up to this number are written one by one: faster than making arrays of them."""


@dataclass(frozen=True, slots=True)
class UnitsAppended:
    """What became of the units of an append.

    Attributes:
        appended: units at their own queue offset.
        ignored: units of messages that the queue has already, or whose offset is taken.
        filled: offsets of lost messages that repeat the unit before them: a finding when not 0.
        refused: units whose queue offset can't be true; they are not in the queue: a finding when not 0.
    """

    appended: int = 0
    ignored: int = 0
    filled: int = 0
    refused: int = 0

    def __add__(self, other: UnitsAppended) -> UnitsAppended:
        return UnitsAppended(
            self.appended + other.appended,
            self.ignored + other.ignored,
            self.filled + other.filled,
            self.refused + other.refused,
        )


_APPENDED = UnitsAppended(appended=1)
_IGNORED = UnitsAppended(ignored=1)
_REFUSED = UnitsAppended(refused=1)


class ConsumeQueue:
    """See the module. Offsets are queue offsets (units since the queue's birth) unless they say otherwise.

    Args:
        disk: the system's files.
        base_dir: the directory `consumequeue`.
        queue: whose units: they lie in `<base_dir>/<topic>/<queueId>`.
        file_size: setting mappedFileSizeConsumeQueue, bytes; a multiple of 20.
        ext: the extension files, when the store has them (enableConsumeQueueExt).
        open_files: bounds how many files are mapped; None: nothing does.
    """

    __slots__ = ("_files", "_max_physical", "_min", "ext", "queue")

    def __init__(
        self,
        disk: Disk,
        base_dir: str,
        queue: TopicQueue,
        file_size: int,
        ext: ConsumeQueueExt | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self.queue = queue
        self.ext = ext
        self._files = QueueFileChain(disk, base_dir, queue, file_size, open_files)
        self._min = 0
        self._max_physical = -1

    def check_self(self) -> tuple[MissingOffsets, ...]:
        """Positions between its first and its last file that no file holds."""
        return self._files.mapped.check_self()

    def open(self, state: QueueState | None) -> None:
        """Open the files and take the positions from recovery's `state`; files after its end are deleted.

        With None the end is looked for in the bytes, see `queue_time.look_for_units`; a queue without files is empty.

        Raises:
            WrongFileSize, FormatError: an entry in the directory is no queue file, or the files end before the state's
                end. StorageError.
        """
        mapped = self._files.mapped
        mapped.load()
        if state is None:
            self._min, end, self._max_physical = queue_time.look_for_units(mapped)
        else:
            self._min, end, self._max_physical = state.min_offset, state.max_offset, state.max_physical_offset
        if end * UNIT_SIZE > mapped.max_offset:
            raise FormatError(
                f"queue {self.queue} ends at unit {mapped.max_offset // UNIT_SIZE}, recovery expected {end}",
                path=self.directory,
                hint="run rstore check",
            )
        mapped.truncate_dirty(end * UNIT_SIZE)
        mapped.flushed_where = mapped.committed_where = end * UNIT_SIZE
        self._files.end = end
        if self.ext is not None:
            self.ext.open(self._max_ext_address())

    # --- positions --------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Offset of the first message that is still in the log; `max_offset` or below."""
        return self._min

    @property
    def max_offset(self) -> int:
        """Offset after the last unit: the next message's."""
        return self._files.end

    @property
    def max_physical_offset(self) -> int:
        """After the last message that the queue knows (physical offset + size); −1 when it knows none."""
        return self._max_physical

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._files.mapped.directories[0]

    def roll_next_file(self, offset: int) -> int:
        """First offset of the file after the one that `offset` lies in. Source: ConsumeQueue#rollNextFile."""
        return self._files.next_file(offset)

    # --- writing ----------------------------------------------------------------------------------------------------

    def put_one(
        self,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp: int | None = None,
        *,
        bit_map: bytes = b"",
    ) -> UnitsAppended:
        """Append one unit: see the module for what is ignored, filled, refused.

        Args:
            queue_offset: its place.
            physical_offset: of the message, bytes.
            size: of the message, bytes.
            tags_code: hash of its tags, or its delivery time (ms).
            store_timestamp: ms; with it and extension files the unit goes there, and its address becomes the tagsCode.
            bit_map: of the filters, for the extension.

        Raises:
            DiskFull, StorageError: this unit was not written; what fills a jump before it may have been.
        """
        end = physical_offset + size
        if end <= self._max_physical:
            return _IGNORED
        files = self._files
        filled = 0
        if queue_offset != files.end or files.is_empty:
            if queue_offset < files.end and not files.is_empty:
                return _IGNORED
            reached = self._reach(queue_offset, QueueUnit(physical_offset, size, tags_code))
            if reached is None:
                return _REFUSED
            filled = reached
        if self.ext is not None and store_timestamp is not None:
            tags_code = self._extend(self.ext, tags_code, store_timestamp, bit_map)
        files.put(QueueUnit(physical_offset, size, tags_code))
        self._max_physical = end
        return UnitsAppended(appended=1, filled=filled) if filled else _APPENDED

    def append(
        self,
        queue_offset: NDArray[np.int64],
        physical_offset: NDArray[np.int64],
        size: NDArray[np.int32],
        tags_code: NDArray[np.int64],
        store_timestamp: NDArray[np.int64] | None = None,
        *,
        bit_maps: Sequence[bytes] | None = None,
    ) -> UnitsAppended:
        """Append the units of this queue from a batch, in log order: columns of one length, as `put_one` takes them.

        Leaves the bytes that `put_one` for each would leave.

        Raises:
            DiskFull, StorageError: the units before the one that failed are in the queue.
        """
        import numpy as np

        count = len(queue_offset)
        records = np.empty(count, dtype=queue_unit.unit_dtype())
        records["physical_offset"] = physical_offset
        records["size"] = size
        records["tags_code"] = tags_code
        if count <= _FEW or (self.ext is not None and store_timestamp is not None):
            times = None if store_timestamp is None else store_timestamp.tolist()
            return self._put_each(queue_offset.tolist(), _rows(records), times, bit_maps)
        ends = physical_offset.astype(np.int64) + size
        cuts = np.flatnonzero((np.diff(queue_offset) != 1) | (np.diff(ends) <= 0)) + 1
        result = UnitsAppended()
        for start, stop in pairwise((0, *cuts.tolist(), count)):
            result += self._append_run(int(queue_offset[start]), records[start:stop], ends[start:stop])
        return result

    def has_room(self, offsets: Sequence[int]) -> bool:
        """Whether units of these queue offsets follow its last one, in a file that is there, mapped and with blocks."""
        files = self._files
        follows = not files.is_empty and list(offsets) == list(range(files.end, files.end + len(offsets)))
        return follows and self.ext is None and files.has_room(len(offsets))

    def repeat_last(self, count: int) -> None:
        """Add `count` offsets of lost messages: each repeats the last unit, which must be there.

        Raises:
            DiskFull, StorageError.
        """
        last = self._files.get(self._files.end - 1)
        assert last is not None
        self._files.repeat(last, count)

    def flush(self, least_pages: int = 0) -> bool:
        """Flush as MappedFileQueue.flush does, the extension too; True when nothing moved. Raises StorageError."""
        still = self._files.mapped.flush(least_pages)
        return (self.ext.flush(least_pages) and still) if self.ext is not None else still

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, count: int) -> NDArray[np.void]:
        """Up to `count` units from `offset` on, a copy; fewer at the end of a file or of the queue.

        Returns:
            unit_dtype()[n]; n = 0 when nothing is there. Pre-blank units are units here.
        """
        return self._files.read(offset, count)

    def select(self, offset: int, most: int | None = None) -> SelectedBuffer | None:
        """The units from `offset` to the readable end of its file (`most` at most), without a copy; to be released.

        None below `min_offset`, at or after the end, and where no file is. Source: ConsumeQueue#getIndexBuffer.
        """
        return self._files.select(offset, most=most) if offset >= self._min else None

    def get(self, offset: int) -> QueueUnit | None:
        """The unit at `offset`, pre-blank ones too; None when none is there."""
        return self._files.get(offset)

    def units(self, start: int | None = None) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units from `start` (default: `min_offset`) to the end, a file at a time: (offset of the first, copy)."""
        return self._files.runs(self._min if start is None else start)

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """The extension unit whose address a unit's tagsCode is; None when it is none, or nothing is there."""
        return self.ext.get(tags_code) if self.ext is not None else None

    # --- by time ----------------------------------------------------------------------------------------------------

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, min_physical_offset: int) -> int:
        """Apache's answer to "the message of that time" (ms): see `queue_time.offset_by_time`."""
        return queue_time.offset_by_time(self._files.mapped, self._min, timestamp, store_time_of, min_physical_offset)

    def lower_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset whose message was stored at `timestamp` (ms) or later; `max_offset` when there is none.

        Messages that are gone (store_time_of < 0) count as older. Exact while store times don't decrease in the queue.
        """
        return queue_time.bound(self.get, self._min, self.max_offset, store_time_of, lambda time: time >= timestamp)

    def upper_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset whose message was stored later than `timestamp` (ms); `max_offset` when there is none."""
        return queue_time.bound(self.get, self._min, self.max_offset, store_time_of, lambda time: time > timestamp)

    # --- the log's beginning moves ----------------------------------------------------------------------------------

    def correct_min_offset(self, min_physical_offset: int) -> int:
        """Move `min_offset` to the first real unit at or after the log's first byte; returns it.

        Looks on in the next files when the first has none; when no unit has, the offset stays, but not below the first
        file. Source: ConsumeQueue#correctMinOffset; RECOVERY.md, rule 17.
        """
        if self._files.is_empty:  # its appender sets the offset with the first unit, maybe at this moment
            return self._min
        per_file, end = self._files.per_file, self._files.end
        lowest = max(self._min, self._files.start)
        for file in self._files.mapped.files:
            first = file.file_from_offset // UNIT_SIZE
            last = min(first + per_file, end) - 1
            if last >= first and self._physical(last) >= min_physical_offset:
                places = range(max(first, min(last, self._min)), last)
                lowest = max(lowest, places.start + bisect_left(places, min_physical_offset, key=self._physical))
                break
        self._min = lowest
        if self.ext is not None and (unit := self.get(lowest)) is not None:
            self.ext.truncate_by_min_address(unit.tags_code)
        return lowest

    def delete_expired(self, min_physical_offset: int) -> int:
        """Delete files whose last unit points below the log's first byte, never the last; returns how many.

        Corrects `min_offset`, too: first, so that no reader is sent to a file that is gone (Apache does it afterwards).
        Raises StorageError: call again. Source: ConsumeQueue#deleteExpiredFile.
        """
        self.correct_min_offset(min_physical_offset)
        deleted = self._files.mapped.delete_expired_by_offset(
            min_physical_offset, UNIT_SIZE, lambda view: queue_unit.decode(view).physical_offset
        )
        if deleted:
            self.correct_min_offset(min_physical_offset)
        return deleted

    @property
    def hanging(self) -> bool:
        """Whether an expired file is there still, because somebody holds it: `delete_expired` again."""
        return self._files.mapped.hanging or (self.ext is not None and self.ext.hanging)

    def shutdown(self) -> None:
        """Give the files back; they stay on disk."""
        self._files.mapped.shutdown()
        if self.ext is not None:
            self.ext.shutdown()

    def destroy(self) -> None:
        """Delete all files and the directory; the queue is empty then."""
        self._min, self._files.end, self._max_physical = 0, 0, -1
        self._files.mapped.destroy()
        if self.ext is not None:
            self.ext.destroy()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _put_each(
        self,
        places: Iterable[int],
        units: Iterable[tuple[int, int, int]],
        times: Sequence[int] | None = None,
        maps: Sequence[bytes] | None = None,
    ) -> UnitsAppended:
        result: UnitsAppended | None = None
        for i, (place, unit) in enumerate(zip(places, units, strict=True)):
            time = None if times is None else times[i]
            one = self.put_one(place, *unit, time, bit_map=b"" if maps is None else maps[i])
            result = one if result is None else result + one
        return result or UnitsAppended()

    def _append_run(self, first: int, records: NDArray[np.void], ends: NDArray[np.int64]) -> UnitsAppended:
        """Units of consecutive queue offsets from `first` on whose messages' ends in the log ascend."""
        files, count = self._files, len(records)
        ignored = int(ends.searchsorted(self._max_physical, side="right"))
        if not files.is_empty:
            ignored = min(count, max(ignored, files.end - first))
        if ignored == count:
            return UnitsAppended(ignored=count)
        start = first + ignored
        filled: int | None = 0
        if start != files.end or files.is_empty:
            filled = self._reach(start, QueueUnit(*records[ignored].tolist()))
        if filled is None:
            rest = self._put_each(range(start + 1, first + count), _rows(records[ignored + 1 :]))
            return UnitsAppended(ignored=ignored, refused=1) + rest
        try:
            files.write(records[ignored:])
        finally:
            if files.end > start:
                self._max_physical = int(ends[files.end - first - 1])
        return UnitsAppended(appended=count - ignored, ignored=ignored, filled=filled)

    def _reach(self, offset: int, unit: QueueUnit) -> int | None:
        """Bring the end to `offset`, where `unit` is to go: the number of offsets filled, or None to refuse it."""
        files = self._files
        empty = files.is_empty
        missing = offset if empty else offset - files.end
        if offset < 0 or missing > (unit.physical_offset - max(self._max_physical, 0)) // MIN_RECORD_SIZE:
            return None
        if empty:
            self._min = offset
            files.begin(offset)
            return 0
        last = files.get(files.end - 1)
        files.repeat(unit if last is None or last.is_pre_blank else last, missing)
        return missing

    def _extend(self, ext: ConsumeQueueExt, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Source: ConsumeQueue#putMessagePositionInfoWrapper."""
        address = ext.put(ExtUnit(tags_code, store_timestamp, bit_map))
        return tags_code if address is None else address

    def _max_ext_address(self) -> int | None:
        """The newest extension address in the queue's last three files (ConsumeQueue#recover, maxExtAddr)."""
        addresses: list[int] = []
        for _, units in self._files.runs(max(self._files.start, self._files.end - 3 * self._files.per_file)):
            codes = units["tags_code"]
            addresses += codes[codes <= queue_unit.EXT_ADDRESS_MAX][-1:].tolist()
        return addresses[-1] if addresses else None

    def _physical(self, offset: int) -> int:
        """Physical offset of a unit, −1 for a pre-blank one and for none."""
        unit = self._files.get(offset)
        return -1 if unit is None or unit.is_pre_blank else unit.physical_offset


def _rows(records: NDArray[np.void]) -> list[tuple[int, int, int]]:
    return cast("list[tuple[int, int, int]]", records.tolist())
