"""What the scanner reads from: the commit log as a row of segments, by physical offset.

`LogSource` is all that the scanner asks for. `ClosedLog` reads the files of a store that nobody maps (or that another
process writes): positional reads, never a map, so that a bad sector is a StorageError and not a SIGBUS.
The live commit log of an open store is a source, too (engine.log.commitlog).
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format.dledger_entry import HEAD_SIZE
from engine.format.record import BLANK_SIZE

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile

MOST_OPEN = 16
"""Files that stay open: a log has thousands of segments; a process has few descriptors."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One commit log file: physical offset of its first byte, length in bytes, where it is.

    `in_entries`: its records are the bodies of DLedger entries (engine.format.dledger_entry).

    A plan shows the log as it will be: `source` is the file that holds the bytes until it gets the name `path`, `held`
    the length of a file that will be made `size` bytes long (after fewer there are zeros, of more the rest goes): of 0
    there may be no file yet.
    """

    offset: int
    size: int
    path: str
    source: str | None = field(default=None, kw_only=True)
    held: int | None = field(default=None, kw_only=True)
    in_entries: bool = field(default=False, kw_only=True)

    @property
    def before_record(self) -> int:
        """Bytes before each record that belong to it: an entry's header."""
        return HEAD_SIZE if self.in_entries else 0

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.offset + self.size

    @property
    def held_end(self) -> int:
        """Physical offset after the last byte that its file holds of it."""
        return self.offset + self.size if self.held is None else self.offset + min(self.held, self.size)

    @property
    def file(self) -> str:
        """Where its bytes are now."""
        return self.path if self.source is None else self.source

    @property
    def short(self) -> bool:
        """Whether its file has fewer bytes than it will have."""
        return self.held is not None and self.held < self.size

    def placed(self) -> Segment:
        """The same once its file has its name and its length."""
        return Segment(self.offset, self.size, self.path, in_entries=self.in_entries)


def segments_from(segments: Sequence[Segment], offset: int) -> Iterator[Segment]:
    """Those of a log's segments (by offset) that end after a physical offset: scans begin at any of thousands."""
    first = bisect.bisect_right(segments, offset, key=attrgetter("end"))
    return (segments[i] for i in range(first, len(segments)))


def last_begun(log: LogSource) -> Segment | None:
    """The last segment that does not begin with zeros: one made ahead of time holds nothing yet. None: none does.

    Once a broker has begun a segment, those before it are complete. A reader beside a live broker stops at the one that
    was the last when it began: in a later one, it would take for damage what was being written at the end of this one.
    """
    for segment in reversed(log.segments):
        try:
            if any(log.read(segment.offset, BLANK_SIZE)):
                return segment
        except StorageError:
            return segment
    return None


class LogSource(Protocol):
    """Positional access to the log's bytes."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by offset; there may be gaps between them."""
        ...

    def read(self, offset: int, length: int) -> memoryview:
        """Up to `length` bytes from a physical offset on, ending with the segment (or what is written of it).

        Raises:
            StorageError: the system can't read them.
        """
        ...

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """Ranges (start, end; physical) of the segment from `offset` on that are not holes of the file."""
        ...


class SegmentedLog(LogSource, Protocol):
    """A log source that tells which segment a place is in."""

    def segment_at(self, offset: int) -> Segment | None:
        """The segment that a physical offset lies in, if it is there."""
        ...


class ClosedLog:
    """The commit log files of a store as they lie on disk. Thread-safe: a file is never closed under a read."""

    def __init__(self, disk: Disk, segments: Sequence[Segment]) -> None:
        self._disk = disk
        self.replace(segments)
        self._open: dict[int, _Opened] = {}
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by offset."""
        return self._by_offset[0]

    def replace(self, segments: Sequence[Segment]) -> None:
        """Take the segments of now: a broker has made some since, or deleted some."""
        ordered = tuple(sorted(segments, key=lambda s: s.offset))
        self._by_offset = ordered, [s.offset for s in ordered]

    def segment_at(self, offset: int) -> Segment | None:
        """The segment that a physical offset lies in, if its file is there."""
        known, starts = self._by_offset
        at = bisect.bisect_right(starts, offset) - 1
        return known[at] if at >= 0 and offset < known[at].end else None

    def read(self, offset: int, length: int) -> memoryview:
        """As `LogSource.read`; empty where no segment is."""
        segment = self.segment_at(offset)
        if segment is None:
            return memoryview(b"")
        position = offset - segment.offset
        length = min(length, segment.size - position)
        if segment.held == 0:
            return memoryview(bytes(length))
        with self._reader(segment) as reader:
            piece = reader.read(position, length)
        return _filled(piece, length) if segment.short and len(piece) < length else piece

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """As `read`, into memory that is there: the bytes read. Raises StorageError."""
        segment = self.segment_at(offset)
        if segment is None:
            return 0
        position = offset - segment.offset
        buffer = buffer[: segment.size - position]
        if segment.held == 0:
            buffer[:] = bytes(len(buffer))
            return len(buffer)
        with self._reader(segment) as reader:
            length = reader.read_into(buffer, position)
        if segment.short and length < len(buffer):
            buffer[length:] = bytes(len(buffer) - length)
            return len(buffer)
        return length

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """As `LogSource.data_ranges`."""
        if segment.held == 0:
            return
        at = offset - segment.offset
        while True:
            with self._reader(segment) as reader:
                start = reader.next_data(at, segment.size)
                if start is None:
                    return
                at = reader.next_hole(start, segment.size)
            yield segment.offset + start, segment.offset + at

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._close_idle()
            self._open.clear()  # what is being read now is closed after its last read

    def __enter__(self) -> ClosedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _reader(self, segment: Segment) -> Iterator[RawFile]:
        """A file, for one read; threads read side by side."""
        with self._lock:
            opened = self._open.get(segment.offset)
            if opened is None:
                if len(self._open) >= MOST_OPEN:
                    self._close_idle()
                opened = self._open[segment.offset] = _Opened(self._disk.open_reader(segment.file))
            opened.readers += 1
        try:
            yield opened.reader
        finally:
            with self._lock:
                opened.readers -= 1
                if not opened.readers and self._open.get(segment.offset) is not opened:
                    opened.reader.close()

    def _close_idle(self) -> None:
        for offset, opened in list(self._open.items()):
            if not opened.readers:
                opened.reader.close()
                del self._open[offset]


def _filled(piece: memoryview, length: int) -> memoryview:
    """What a file holds, with the zeros after its end."""
    out = bytearray(length)
    out[: len(piece)] = piece
    return memoryview(out).toreadonly()


@dataclass(slots=True)
class _Opened:
    """An open file, and how many read it now."""

    reader: RawFile
    readers: int = 0
