"""The extension of a consume queue: per message its tags' hash, store time and filter bit map.

Theory (Apache ConsumeQueueExt): units of different sizes follow each other in files of one size. A unit that does
not fit, together with the 4 bytes that stay free for the end marker, leaves the marker (i16 −1) and starts the next
file. The queue unit's tagsCode then holds the unit's address (Long.MIN_VALUE + its offset) instead of the hash.

The extension is a help, not a record of truth: all in it can be derived from the log, and a message whose unit can't
be stored (too large, addresses used up) keeps its plain hash.

Where this differs from Apache: the address 0 of an expired file is not answered with another file's first unit; a
unit that would cross its file's end ends the file's walk instead of the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import FormatError, InvalidArgument
from engine.files.queue import MappedFileQueue
from engine.format import names, queue_ext
from engine.format.queue_ext import ExtUnit
from engine.format.queue_unit import is_ext_address
from engine.log.queue_files import ALLOCATE_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.files.mapped_file import MappedFile
    from engine.files.open_files import OpenFiles
    from engine.log.derive import TopicQueue

_TRUNCATE_INTERVAL_MS = 1000
"""How long a held file is waited for before it is deleted (Apache truncateByMinAddress)."""


class ConsumeQueueExt:
    """The extension files of one consume queue. One writer, many readers.

    Args:
        disk: the system's files.
        base_dir: the directory `consumequeue_ext`.
        queue: whose files: `<base_dir>/<topic>/<queueId>`.
        file_size: setting mappedFileSizeConsumeQueueExt, bytes.
        open_files: bounds how many files are mapped; None: nothing does.
    """

    __slots__ = ("_queue",)

    def __init__(
        self, disk: Disk, base_dir: str, queue: TopicQueue, file_size: int, open_files: OpenFiles | None = None
    ) -> None:
        if file_size < queue_ext.HEAD_SIZE + queue_ext.END_BLANK_LENGTH:
            raise InvalidArgument(f"extension file size {file_size} is too small for a unit")
        directory = names.queue_directory(base_dir, queue.topic, queue.queue_id)
        self._queue = MappedFileQueue(
            disk, directory, file_size, allocate_step=ALLOCATE_STEP, single_pages=True, open_files=open_files
        )

    def open(self, max_address: int | None = None) -> None:
        """Open the files that are there and find their end: after the last unit, or after that at `max_address`.

        Files after the end are deleted. Source: ConsumeQueueExt#recover, #truncateByMaxAddress.

        Raises:
            WrongFileSize, FormatError: an entry in the directory is no extension file. StorageError.
        """
        self._queue.load()
        files = self._queue.files
        if not files:
            return
        end = files[-1].file_from_offset + _units_end(files[-1])
        self._queue.truncate_dirty(end)
        self._queue.flushed_where = self._queue.committed_where = end
        if max_address is not None:
            self.truncate_by_max_address(max_address)

    def put(self, unit: ExtUnit) -> int | None:
        """Append a unit; its address, or None when it can't be stored: the queue unit then keeps the tags' hash.

        Raises:
            DiskFull, StorageError.
        """
        size = unit.size
        queue = self._queue
        if size > queue_ext.MAX_UNIT_SIZE or size + queue_ext.END_BLANK_LENGTH > queue.file_size:
            return None
        if queue.max_offset + size > queue_ext.MAX_REAL_OFFSET:
            return None
        file = self._writable_file()
        if size > queue.file_size - file.wrote_position - queue_ext.END_BLANK_LENGTH:
            file.append(queue_ext.END_MARK)
            file.advance(queue.file_size - file.wrote_position)
            file = self._writable_file()
        position = file.append(unit.encode())
        return None if position is None else queue_ext.to_address(file.file_from_offset + position)

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when the address is none, or nothing sound is there (any more)."""
        if not is_ext_address(address):
            return None
        offset = queue_ext.to_offset(address)
        file = self._queue.find_by_offset(offset)
        selected = file.select(offset - file.file_from_offset) if file is not None else None
        if selected is None:
            return None
        with selected:
            try:
                return queue_ext.decode(selected.view)
            except FormatError:
                return None

    @property
    def max_address(self) -> int:
        """Address after the last unit, at this moment."""
        return queue_ext.to_address(self._queue.max_wrote_position)

    @property
    def min_address(self) -> int:
        """Address of the first byte of the first file."""
        return queue_ext.to_address(max(0, self._queue.min_offset))

    def truncate_by_max_address(self, address: int) -> bool:
        """End the extension after the unit at `address`; False (nothing done) when no unit is there."""
        unit = self.get(address)
        if unit is None:
            return False
        self._queue.truncate_dirty(queue_ext.to_offset(address) + unit.size)
        return True

    def truncate_by_min_address(self, address: int) -> int:
        """Delete the files that end before `address`; returns how many. Nothing when it is no address.

        Raises:
            StorageError: a file can't be deleted.
        """
        if not is_ext_address(address):
            return 0
        offset = queue_ext.to_offset(address)
        deleted = 0
        for file in self._queue.files:
            if file.file_from_offset + self._queue.file_size >= offset:
                break
            file.shutdown(_TRUNCATE_INTERVAL_MS)
            if not self._queue.retry_delete_first(_TRUNCATE_INTERVAL_MS):
                break
            deleted += 1
        return deleted

    @property
    def hanging(self) -> bool:
        """Whether a file that was to go is there still, because somebody holds it."""
        return self._queue.hanging

    def flush(self, least_pages: int = 0) -> bool:
        """Flush as MappedFileQueue.flush does; True when nothing moved."""
        return self._queue.flush(least_pages)

    def shutdown(self) -> None:
        """Give the files back; they stay on disk."""
        self._queue.shutdown()

    def destroy(self) -> None:
        """Delete the files and their directory."""
        self._queue.destroy()

    def _writable_file(self) -> MappedFile:
        file = self._queue.last(create=True)
        assert file is not None
        return file


def _units_end(file: MappedFile) -> int:
    selected = file.select(0)
    if selected is None:
        return 0
    with selected:
        return units_end(selected.view)


def units_end(data: memoryview) -> int:
    """Position after the last unit of a file; all of it is read as units of the sizes that they claim."""
    position = 0
    while position + 2 <= len(data):
        size = queue_ext.unit_size(data, position)
        if size < queue_ext.HEAD_SIZE or position + size > len(data):
            break
        position += size
    return position


def blocks_of_units(file_size: int, end: int | None, runs: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Bytes [low, high) of each file, by its offset, that get blocks when units without a bit map are put.

    Args:
        file_size: bytes.
        end: after the last unit, bytes (in the last file that there is); None without a file.
        runs: how many units are put, each time that the extension is opened.
    """
    blocks: dict[int, tuple[int, int]] = {}

    def take(offset: int, low: int, high: int) -> int:
        old = blocks.get(offset, (low, high))
        blocks[offset] = (min(old[0], low), max(old[1], high))
        return high

    unit, first = queue_ext.HEAD_SIZE, min(ALLOCATE_STEP, file_size)
    offset, position = divmod(end or 0, file_size)
    offset *= file_size
    for count in runs:
        left, has = count, 0  # an opened file asks for blocks from its end on
        if end is None:
            end, has = 0, take(0, 0, first)
        while left > 0:
            fit = min(left, max(0, file_size - queue_ext.END_BLANK_LENGTH - position) // unit)
            stop = position + unit * fit
            while stop > has:
                at = max(position, has - (has - position) % unit)  # the unit that has no blocks for all of it
                has = take(offset, at, min(file_size, at + unit + ALLOCATE_STEP))
            left, position = left - fit, stop
            if left > 0:
                mark = position + len(queue_ext.END_MARK)
                if mark > has:
                    take(offset, position, min(file_size, mark + ALLOCATE_STEP))
                offset, position = offset + file_size, 0
                has = take(offset, 0, first)
    return blocks
