"""config/timercheck: how far RocketMQ 5's timer is, 56 bytes in a file of 4096 (FORMAT.md "Timer checkpoint").

Source: TimerCheckpoint, TimerMessageStore#prepareTimerCheckPoint. RocketMQ 5.0 wrote the first four fields alone, into
a file of zeros.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_FIELDS: Final = struct.Struct(">qqqqqqq")
FIELDS_SIZE = 56
FILE_SIZE = 4096
_SKEW_MS = 3_600_000
"""How far the clocks of two machines may differ."""
assert _FIELDS.size == FIELDS_SIZE


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """How far the timer is.

    Attributes:
        last_read_time: ms; messages that were due before it have been delivered.
        last_timer_log_flush_pos: the timer log is on disk up to here (bytes).
        last_timer_queue_offset: messages of rmq_sys_wheel_timer before this queue offset are in the timer log.
        master_timer_queue_offset: the same on the master.
        state_version, timestamp, counter: version of these fields, as slaves compare it.
    """

    last_read_time: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @property
    def queue_offset(self) -> int:
        """From where on a broker reads the timer's queue, at most. Source: TimerMessageStore#recover."""
        return min(self.last_timer_queue_offset, self.master_timer_queue_offset)

    def is_ahead(self, now: int) -> bool:
        """Whether `last_read_time` is of a time yet to come, by the clock (ms) and by when the file was written."""
        return self.last_read_time > max(now, self.timestamp) + _SKEW_MS

    def encode(self) -> bytes:
        """The first 56 bytes of the file."""
        return _FIELDS.pack(
            self.last_read_time, self.last_timer_log_flush_pos, self.last_timer_queue_offset,
            self.master_timer_queue_offset, self.state_version, self.timestamp, self.counter,
        )  # fmt: skip


def decode(buffer: Buffer) -> TimerCheck:
    """The fields in the file's first bytes.

    Raises:
        FormatError: fewer than 56 bytes are there, or a time or place is negative.
    """
    if len(buffer) < FIELDS_SIZE:
        raise FormatError(f"a timer checkpoint needs {FIELDS_SIZE} bytes, there are {len(buffer)}")
    check = TimerCheck(*_FIELDS.unpack_from(buffer, 0))
    places = (check.last_read_time, check.last_timer_log_flush_pos, check.last_timer_queue_offset)
    if min(places) < 0:
        raise FormatError(f"invalid timer checkpoint: {min(places)} is negative")
    return check
