"""Commit logs made in memory: records one behind the other, blanks at the files' ends, bad sectors where wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.errors import StorageError
from engine.format import message
from engine.format.message import Message
from engine.format.record import BLANK_SIZE
from engine.log.source import Segment

PAGE = 4096
STORE_TIME = 1_700_000_000_000


@dataclass
class MemoryLog:
    """A LogSource over byte strings, by physical offset.

    Attributes:
        files: offset → bytes of each segment.
        unreadable: places in pages (physical offset // 4096) that the "system" can't read.
        holes: (start, end) of stretches that `data_ranges` leaves out.
        longest: the longest read that anybody asked for.
        reads: how many reads there were.
    """

    files: dict[int, bytearray]
    unreadable: set[int] = field(default_factory=set)
    holes: list[tuple[int, int]] = field(default_factory=list)
    longest: int = 0
    reads: int = 0

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by offset."""
        return [Segment(at, len(data), f"{at:020d}") for at, data in sorted(self.files.items())]

    def read(self, offset: int, length: int) -> memoryview:
        """As LogSource.read."""
        self.longest = max(self.longest, length)
        self.reads += 1
        for at, data in self.files.items():
            if at <= offset < at + len(data):
                found = memoryview(data)[offset - at : offset - at + length].toreadonly()
                pages = range(offset // PAGE, (offset + max(len(found), 1) - 1) // PAGE + 1)
                bad = next((page for page in pages if page in self.unreadable), None)
                if bad is not None:
                    raise StorageError("reading: input/output error", path=f"{at:020d}", offset=bad * PAGE - at)
                return found
        return memoryview(b"")

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """As LogSource.data_ranges."""
        at = offset
        for start, end in sorted(self.holes):
            if end > at and start < segment.end:
                if start > at:
                    yield at, start
                at = end
        if at < segment.end:
            yield at, segment.end

    def write(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at a physical offset, in one segment."""
        for at, old in self.files.items():
            if at <= offset < at + len(old):
                assert offset + len(data) <= at + len(old)
                old[offset - at : offset - at + len(data)] = data
                return
        raise AssertionError(f"no segment at {offset}")


@dataclass(frozen=True)
class Built:
    """A log and what was put into it: the records' offsets and bytes, the blanks' (offset, length), the log's end."""

    log: MemoryLog
    offsets: list[int]
    records: list[bytes]
    blanks: list[tuple[int, int]]
    end: int


def build(
    messages: Iterable[Message], segment_size: int = 1 << 20, first: int = 0, store_time: int = STORE_TIME
) -> Built:
    """A log of these messages, in segments as a broker fills them, queue offsets counted from 0."""
    files: dict[int, bytearray] = {first: bytearray(segment_size)}
    offsets: list[int] = []
    records: list[bytes] = []
    blanks: list[tuple[int, int]] = []
    counts: dict[tuple[str, int], int] = {}
    start, at = first, 0
    for i, put in enumerate(messages):
        record = message.encode(put)
        if len(record) + BLANK_SIZE > segment_size - at:
            assert len(record) + BLANK_SIZE <= segment_size, "a record larger than its segment"
            files[start][at : at + BLANK_SIZE] = message.encode_blank(segment_size - at)
            blanks.append((start + at, segment_size - at))
            start, at = start + segment_size, 0
            files[start] = bytearray(segment_size)
        queue = (put.topic, put.queue_id)
        number = counts.get(queue, 0)
        counts[queue] = number + 1
        message.patch(record, 0, queue_offset=number, physical_offset=start + at, store_timestamp=store_time + i)
        files[start][at : at + len(record)] = record
        offsets.append(start + at)
        records.append(bytes(record))
        at += len(record)
    return Built(MemoryLog(files), offsets, records, blanks, start + at)
