"""When the log was written: from store times to physical offsets, by a few looks at the log and never a scan.

Store times don't decrease in a log (as long as its broker's clock doesn't): a time's place is found by bisection, over
the segments' first records, then inside one segment, where the next record after any byte is found by its magic and
proved by its own offset. Where the clock went back, a place found is one of those where the log passes that time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format.record import V4_HEAD_SIZE, store_time_of
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.log.source import LogSource

_WINDOW = 16 << 10
"""Bytes that are read at once around a place: some records of the usual size."""
_NEAR = 64 << 10
"""Bytes between two looks that are read one record after the other."""


class LogClock:
    """The times of one log.

    Args:
        log: its segments; they stay open for it.
        end: physical offset of the log end.
        max_message_size: setting maxMessageSize (bytes).
    """

    def __init__(self, log: LogSource, end: int, max_message_size: int) -> None:
        self._log = log
        self._scanner = Scanner(log, check_crc=False, max_message_size=max_message_size, window=_WINDOW)
        self.start = log.segments[0].offset if log.segments else 0
        self.end = end
        self._offsets: list[int] = []
        self._times: list[int] = []
        self.went_back: list[tuple[int, int, int]] = []
        """(physical offset, store time before, store time there; ms) of segments that begin before the last began."""
        for segment in log.segments:
            time = store_time_at(log, segment.offset) if segment.offset < end else 0
            if time <= 0:
                continue
            newest = self._times[-1] if self._times else 0
            if time < newest:
                self.went_back.append((segment.offset, newest, time))
            self._offsets.append(segment.offset)
            self._times.append(max(time, newest))

    def offset_of(self, time: int) -> int:
        """Physical offset of the first record stored at `time` (ms) or later; the log end when there is none.

        Bytes before the first record that can be read count as older than everything.
        """
        after = bisect_left(self._times, time)
        if after == 0:
            return self.start if self._times else self.end
        low = self._offsets[after - 1]
        offset = high = self._offsets[after] if after < len(self._offsets) else self.end
        while high - low > _NEAR:
            middle = (low + high) // 2
            record = self._scanner.find_sound(middle, high)
            stored = 0 if record is None else store_time_at(self._log, record)
            if record is None or stored >= time:
                high = middle
                offset = offset if record is None else record
            else:
                low = record
        for event in self._scanner.scan(low, high, resume=True):
            if isinstance(event, RecordBatch):
                for i, row in enumerate(event.rows):
                    if row.store_timestamp >= time:
                        return event.offset(i)
        return offset


def store_time_at(log: LogSource, offset: int) -> int:
    """storeTimestamp (ms) of the record at a physical offset; 0 without one there, or one that can't be read."""
    try:
        head = log.read(offset, V4_HEAD_SIZE)
    except StorageError:  # who reads the record itself says so
        return 0
    return store_time_of(head) or 0
