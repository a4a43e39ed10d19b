"""The log of a store that is closed, or that another process writes: messages by physical offset, and where it ends.

No state says where such a log ends, so it is looked for, from the last place that something trustworthy names, and
only when somebody asks. Before that a message near the end counts as there when a sound record lies in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.judge import Row
from engine.format.record import MIN_RECORD_SIZE
from engine.log.place import Place, place_at
from engine.log.scan import FIRST_WINDOW, Blank, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment, last_begun
from engine.log.walk import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk

_LOOK_AHEAD = 1 << 20
"""Bytes that are looked through for the next record: units of a queue point into the rest by themselves, if at all."""


class ClosedLogReader:
    """See the module. Offsets are physical.

    Args:
        disk: the system's files.
        segments: the log's files.
        config: settings, sizes as the files have them.
        hint: offset of some message near the end (from the index); 0 when nothing is known.
    """

    def __init__(self, disk: Disk, segments: Sequence[Segment], config: StoreConfig, hint: int = 0) -> None:
        self.source = ClosedLog(disk, segments)
        self._file_size = config.mapped_file_size_commit_log
        self._scanner = Scanner(
            self.source, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size
        )
        self._config = config
        self._hint = hint
        self._last = last_begun(self.source)
        self._end: int | None = None
        self._sound = (0, 0)  # from a record to the end of one, all between sound
        self._bare = (0, 0)  # where no sound record begins: get after get of a queue comes to the same damage

    @property
    def min_offset(self) -> int:
        """Of the first byte; −1 without files."""
        segments = self.source.segments
        return segments[0].offset if segments else -1

    @property
    def upper_bound(self) -> int:
        """The log ends here or before: the end of the last file that holds anything. Costs nothing."""
        return 0 if self._last is None else self._last.end

    @property
    def max_offset(self) -> int:
        """After the last record, damaged parts before it or not: found by scanning, once."""
        if self._end is None:
            self._end = self._find_end()
        return self._end

    def roll_next_file(self, offset: int) -> int:
        """Where records may lie again after a place that has none: in the next file, or, in a file that is there and
        damaged, at the next sound record that knows its own offset, _LOOK_AHEAD bytes on at most. (A broker's own files
        are whole or being removed: it continues with the next.) Raises StorageError.
        """
        segment = self.source.segment_at(offset)
        if segment is None:
            return offset + self._file_size - offset % self._file_size
        start, after = self._bare
        if start <= offset < after:
            return after
        end = min(offset + _LOOK_AHEAD, segment.end)
        sound_offset = self._scanner.find_sound(offset + 1, end, claims=False)
        after = end if sound_offset is None else sound_offset
        self._bare = (offset, after)
        return after

    def look_at(self, segments: Sequence[Segment]) -> None:
        """The log goes on, maybe in further segments: `segments` are those of now."""
        self.source.replace(segments)
        self._last = last_begun(self.source)
        self._end = None

    def forget_damage(self) -> None:
        """A queue is opened that may name messages which were written since a damaged part was looked through."""
        self._bare = (0, 0)

    def read_at(self, offset: int, size: int) -> memoryview | None:
        """Exactly `size` bytes within one file; None when they are not there, or no record is in them near the end."""
        segment = self.source.segment_at(offset)
        if segment is None or size < 0 or offset + size > segment.end or self._last is None:
            return None
        piece = self.source.read(offset, size)
        if len(piece) < size:
            return None
        if segment.offset >= self._last.offset and size > MIN_RECORD_SIZE and not _is_record(piece, segment, offset):
            return None
        return piece

    def mapped_from(self, offset: int) -> memoryview | None:
        """As `LogReader.mapped_from`: it is read by call."""
        del offset
        return None

    def readable(self, offset: int, size: int, length: int) -> tuple[int, memoryview] | None:
        """As `LogReader.readable`; in the last file as far as sound records follow each other."""
        segment = self.source.segment_at(offset)
        if segment is None or size < 0 or offset + size > segment.end or self._last is None:
            return None
        end = min(offset + max(size, length), segment.end)
        if segment.offset >= self._last.offset:
            end = min(end, self._sound_to(offset, end))
            if end < offset + size:
                return None
        return offset, self.source.read(offset, end - offset)

    def place_at(self, offset: int) -> Place:
        """What lies at an offset where no record begins. Raises StorageError."""
        config = self._config
        return place_at(
            self.source,
            offset,
            self.max_offset,
            max_message_size=config.max_message_size,
            check_crc=config.check_crc_on_recover,
        )

    def close(self) -> None:
        """Close the files."""
        self.source.close()

    def _sound_to(self, offset: int, end: int) -> int:
        """How far sound records follow each other from `offset` on, seen from there or before; `end` will do."""
        start, known = self._sound
        if not start <= offset <= known:
            start = known = offset
        if known < end:
            for event in self._scanner.scan(known, end + FIRST_WINDOW):
                if not isinstance(event, RecordBatch):
                    break
                known = event.end
                if known >= end:
                    break
            self._sound = (start, known)
        return known

    def _find_end(self) -> int:
        last = self._last
        if last is None:
            return max(0, self.min_offset)
        start = last.offset
        if last.offset <= self._hint < last.end and self._scanner.find_sound(self._hint, self._hint + 1) is not None:
            start = self._hint
        end = start
        for event in self._scanner.scan(start, resume=True):
            match event:
                case RecordBatch():
                    end = event.end
                case Blank(offset, _):
                    end = offset
                case Gap():
                    break
        return end


def _is_record(buffer: memoryview, segment: Segment, offset: int) -> bool:
    rows: list[Row] = []
    walk(buffer, 0, segment.end - offset, rows, max_rows=1)
    return bool(rows) and rows[0].size == len(buffer)
