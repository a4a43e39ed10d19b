"""A consume queue as it lies on disk, read and never written: of a closed store, or beside the broker that writes it.

Its positions come from its bytes. It is a view of the moment in which it was opened.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import names, queue_ext
from engine.format.names import segment_name
from engine.format.queue_unit import UNIT_SIZE, QueueUnit, is_ext_address
from engine.log import queue_time
from engine.log.queue_files import QueueFileChain

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.selected import SelectedBuffer
    from engine.format.queue_ext import ExtUnit
    from engine.log.derive import TopicQueue
    from engine.log.queue_time import StoreTimeOf


class ClosedExt:
    """The extension files of a queue, read by address: nothing is opened before it is asked for.

    Args:
        disk: the system's files.
        base_dir: the directory `consumequeue_ext`.
        queue: whose units.
        file_size: setting mappedFileSizeConsumeQueueExt, bytes.
    """

    def __init__(self, disk: Disk, base_dir: str, queue: TopicQueue, file_size: int) -> None:
        self._disk = disk
        self._directory = Path(names.queue_directory(base_dir, queue.topic, queue.queue_id))
        self._file_size = file_size

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when nothing sound is there. Raises StorageError."""
        if not is_ext_address(address):
            return None
        offset = queue_ext.to_offset(address)
        position = offset % self._file_size
        path = str(self._directory / segment_name(offset - position))
        if not self._disk.exists(path):
            return None
        file = self._disk.open_reader(path)
        try:
            return queue_ext.decode(file.read(position, min(queue_ext.MAX_UNIT_SIZE, self._file_size - position)))
        except FormatError:
            return None
        finally:
            file.close()


class ClosedQueue:
    """See the module. Reads as ConsumeQueue does; offsets are queue offsets.

    Args:
        disk: the system's files.
        base_dir: the directory `consumequeue`.
        queue: whose units.
        file_size: bytes of a file; others are passed over.
        min_physical_offset: of the log's first byte.
        ext: the extension, where there is one.

    Raises:
        StorageError: the files can't be read.
    """

    def __init__(
        self,
        disk: Disk,
        base_dir: str,
        queue: TopicQueue,
        file_size: int,
        min_physical_offset: int,
        ext: ClosedExt | None = None,
    ) -> None:
        self.queue = queue
        self._ext = ext
        self._files = QueueFileChain(disk, base_dir, queue, file_size)
        mapped = self._files.mapped
        mapped.load(strict=False, writable=False)
        first, end, self.max_physical_offset = queue_time.look_for_units(mapped)
        self._files.end = end
        for file in mapped.files:  # positions in memory: what lies after the end can't be read
            file.truncate_to(max(0, min(file.file_size, end * UNIT_SIZE - file.file_from_offset)))
        self._min = self._first_in_log(first, end, min_physical_offset)

    @property
    def min_offset(self) -> int:
        """Offset of the first message that is still in the log."""
        return self._min

    @property
    def max_offset(self) -> int:
        """Offset after the last unit."""
        return self._files.end

    def roll_next_file(self, offset: int) -> int:
        """First offset of the file after the one that `offset` lies in."""
        return self._files.next_file(offset)

    def select(self, offset: int, most: int | None = None) -> SelectedBuffer | None:
        """The units from `offset` to the end of its file, `most` at most; to be released. None outside of the queue."""
        return self._files.select(offset, most=most) if offset >= self._min else None

    def get(self, offset: int) -> QueueUnit | None:
        """The unit at `offset`; None when none is there."""
        return self._files.get(offset)

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """The extension unit at an address; None when nothing is there."""
        return None if self._ext is None else self._ext.get(tags_code)

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, min_physical_offset: int) -> int:
        """Apache's answer to "the message of that time" (ms)."""
        return queue_time.offset_by_time(self._files.mapped, self._min, timestamp, store_time_of, min_physical_offset)

    def lower_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset stored at `timestamp` (ms) or later."""
        return queue_time.bound(self.get, self._min, self.max_offset, store_time_of, lambda time: time >= timestamp)

    def upper_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset stored later than `timestamp` (ms)."""
        return queue_time.bound(self.get, self._min, self.max_offset, store_time_of, lambda time: time > timestamp)

    def close(self) -> None:
        """Give the files back."""
        self._files.mapped.shutdown()

    def _first_in_log(self, first: int, end: int, min_physical_offset: int) -> int:
        def physical(offset: int) -> int:
            unit = self.get(offset)
            return -1 if unit is None or unit.is_pre_blank else unit.physical_offset

        return first + bisect_left(range(first, end), min_physical_offset, key=physical)
