"""The files of the live commit log, as readers and flushes see them.

Appending is engine.log.commitlog's. What is here moves no end: reading takes no lock, and making durable has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.log.source import Segment

if TYPE_CHECKING:
    from engine.files.mapped_file import MappedFile
    from engine.files.queue import MappedFileQueue


class LogFiles:
    """A `LogSource` and `LogReader` over the files of a log that grows. Thread-safe.

    Attributes:
        files: the mapped files.
        file_size: of each, bytes.
    """

    def __init__(self, files: MappedFileQueue, file_size: int) -> None:
        self.files = files
        self.file_size = file_size
        self._segments: tuple[tuple[MappedFile, ...], tuple[Segment, ...]] = ((), ())

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte; −1 in an empty log. Source: CommitLog#getMinOffset."""
        first = self.files.first()
        if first is None:
            return -1
        return first.file_from_offset + (0 if first.available else self.file_size)

    @property
    def max_offset(self) -> int:
        """Physical offset after the last readable byte; 0 in an empty log."""
        return self.files.max_offset

    @property
    def appended(self) -> int:
        """Physical offset after the last byte that was appended, readable or still in a write buffer."""
        return self.files.max_wrote_position

    @property
    def segments(self) -> Sequence[Segment]:
        """The files, by offset."""
        files = self.files.files
        known, segments = self._segments
        if known is not files:
            segments = tuple(Segment(file.file_from_offset, file.file_size, file.path) for file in files)
            self._segments = (files, segments)
        return segments

    def read(self, offset: int, length: int) -> memoryview:
        """As `LogSource.read`: without a copy where the file is mapped."""
        file = self.files.find_by_offset(offset)
        if file is None:
            return memoryview(b"")
        position = offset - file.file_from_offset
        view = file.view_if_there(position, max(0, min(length, file.read_position - position)))
        return memoryview(b"") if view is None else view

    def mapped_from(self, offset: int) -> memoryview | None:
        """As `LogReader.mapped_from`."""
        file = self.files.find_by_offset(offset)
        whole = None if file is None else file.whole()
        return None if file is None or whole is None else whole[offset - file.file_from_offset : file.read_position]

    def readable(self, offset: int, size: int, length: int) -> tuple[int, memoryview] | None:
        """As `LogReader.readable`: all that is readable of the file, where it is mapped; it stays readable."""
        del size, length
        file = self.files.find_by_offset(offset)
        if file is None or not file.mapped:
            return None
        view = file.view_if_there(0, file.read_position)
        return None if view is None else (file.file_from_offset, view)

    def read_at(self, offset: int, size: int) -> memoryview | None:
        """Exactly `size` readable bytes within one file; None when they are not all there.

        The view stays readable when the file is deleted meanwhile. Source: CommitLog#getMessage.
        """
        file = self.files.find_by_offset(offset)
        if file is None or size < 0:
            return None
        position = offset - file.file_from_offset
        return file.view_if_there(position, size) if position + size <= file.read_position else None

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """As `LogSource.data_ranges`: all that is readable."""
        end = min(segment.end, self.max_offset)
        if offset < end:
            yield offset, end

    def roll_next_file(self, offset: int) -> int:
        """Physical offset of the file after the one that holds `offset`."""
        return offset + self.file_size - offset % self.file_size

    # --- making durable ---------------------------------------------------------------------------------------------

    @property
    def flushed_where(self) -> int:
        """Physical offset up to which the log is durable."""
        return self.files.flushed_where

    @property
    def committed_where(self) -> int:
        """Physical offset up to which the write buffers were copied to the files."""
        return self.files.committed_where

    @property
    def flushed_timestamp(self) -> int:
        """Store time (ms) of a message up to which the log is durable, 0 when unknown. Source: getStoreTimestamp."""
        return self.files.store_timestamp

    def flush(self, least_pages: int = 0) -> bool:
        """Make durable what is readable, one file a call; False when that moved `flushed_where`.

        Raises StorageError.
        """
        return self.files.flush(least_pages)

    def commit(self, least_pages: int = 0) -> bool:
        """Copy the write buffer to its file, one a call; False when that moved `committed_where`.

        Raises DiskFull, StorageError: nothing is lost, and nothing counts as committed.
        """
        return self.files.commit(least_pages)

    def flush_all(self) -> int:
        """Commit and flush everything that was appended; `flushed_where`. Raises DiskFull, StorageError."""
        while not self.commit(0):
            pass
        while not self.flush(0):
            pass
        return self.flushed_where
