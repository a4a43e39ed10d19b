"""The unit of RocketMQ 5's timer log: 52 bytes, one a message that waits for its time (FORMAT.md "Timer log unit").

Units of one due time are a chain: each names the one before it (`previous`), and a slot of the timer wheel
(timer_wheel.py) the last. A unit lies only before those that name it, so a chain ends. Files are of one length; a unit
goes into one only if it and a blank of 16 bytes fit, otherwise a blank closes the file.

Source: TimerLog, TimerMessageStore#doEnqueue and #recoverAndRevise (5.3.3; 5.5.0 writes the same).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import LONG_MAX
from engine.format.record import BLANK_MAGIC

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

UNIT_FIELDS = [
    ("size", ">i4"),
    ("previous", ">i8"),
    ("magic", ">u4"),
    ("write_time", ">i8"),
    ("delay", ">i4"),
    ("physical_offset", ">i8"),
    ("message_size", ">i4"),
    ("topic_hash", ">i4"),
    ("reserved", ">i8"),
]
_UNIT: Final = struct.Struct(">iqIqiqiiq")
UNIT_SIZE = 52
assert _UNIT.size == UNIT_SIZE
_BLANK: Final = struct.Struct(">iqI")
BLANK_SIZE = 16
assert _BLANK.size == BLANK_SIZE

NO_UNIT = -1
"""`previous` of the first unit of a due time."""
ROLL, DELETE = 2, 4
"""Bits of `magic`: it is put into the timer again when it is due; it deletes another message. Bit 0 is always set."""
MAGIC_MOST = 15
"""Source: TimerMessageStore#isMagicOK."""


@dataclass(frozen=True, slots=True)
class TimerUnit:
    """One unit: where the message lies (physical offset and size, bytes) and when it is due.

    `write_time` (ms) + `delay` (ms) is the due time; `previous` is the place of a unit in the timer log (bytes).
    """

    size: int
    previous: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    message_size: int
    topic_hash: int
    reserved: int = 0

    @property
    def due_time(self) -> int:
        """When (ms since 1970) the message is taken out of the timer."""
        return self.write_time + self.delay

    @property
    def rolls(self) -> bool:
        """Whether the message is due later than a chain reaches, and is put into the timer again."""
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        """Whether the message takes another one out of the timer. Source: TimerMessageStore#dequeue."""
        return bool(self.magic & DELETE) and not self.rolls

    def encode(self) -> bytes:
        """The 52 bytes."""
        return _UNIT.pack(
            self.size, self.previous, self.magic, self.write_time, self.delay,
            self.physical_offset, self.message_size, self.topic_hash, self.reserved,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimerBlank:
    """What closes a file of the timer log: all that is left of it is `size` bytes."""

    size: int
    previous: int
    magic: int


def decode(buffer: Buffer, position: int = 0) -> TimerUnit:
    """The unit at `position` (bytes), whatever it says: see `fault`.

    Raises:
        FormatError: fewer than 52 bytes are there.
    """
    if position < 0 or len(buffer) - position < UNIT_SIZE:
        raise FormatError(
            f"a unit of the timer log has {UNIT_SIZE} bytes, {max(0, len(buffer) - position)} are left", offset=position
        )
    return TimerUnit(*_UNIT.unpack_from(buffer, position))


def decode_blank(buffer: Buffer) -> TimerBlank | None:
    """The blank that closes a file; None when there is none."""
    if len(buffer) < BLANK_SIZE:
        return None
    blank = TimerBlank(*_BLANK.unpack_from(buffer))
    return blank if blank.magic == BLANK_MAGIC else None


def encode_blank(size: int) -> bytes:
    """What closes a file of which `size` bytes are left, at least `BLANK_SIZE`. Source: TimerLog#append."""
    return _BLANK.pack(size, 0, BLANK_MAGIC)


def units_of_file(size: int) -> int:
    """How many units a file of `size` bytes takes. Source: TimerLog#append, #getOffsetForLastUnit."""
    return max(0, size - BLANK_SIZE) // UNIT_SIZE


def fault(unit: TimerUnit, offset: int) -> str | None:
    """Why the unit at `offset` of the timer log (bytes) is none that a broker writes; None when it may be one."""
    if unit.size != UNIT_SIZE:
        return f"unit size {unit.size} is not {UNIT_SIZE}"
    if unit.magic > MAGIC_MOST:
        return f"invalid magic 0x{unit.magic:08X}"
    if unit.previous != NO_UNIT and not 0 <= unit.previous <= offset - UNIT_SIZE:
        return f"previous unit {unit.previous} is not before it"
    if unit.write_time < 0 or not 0 <= unit.due_time <= LONG_MAX:
        return f"invalid due time: {unit.write_time} + {unit.delay}"
    if unit.physical_offset < 0:
        return f"invalid physical offset {unit.physical_offset}"
    return None if unit.message_size > 0 else f"invalid message size {unit.message_size}"


# --- as arrays -------------------------------------------------------------------------------------------------------


def unit_dtype() -> np.dtype[np.void]:
    """numpy dtype of one unit (52 bytes, big-endian, packed)."""
    import numpy as np

    return np.dtype(UNIT_FIELDS)


def decode_many(buffer: Buffer) -> NDArray[np.void]:
    """All whole units in `buffer`, without a copy: unit_dtype()[n]; a rest of fewer than 52 bytes is left out."""
    import numpy as np

    return np.frombuffer(buffer, dtype=unit_dtype(), count=len(buffer) // UNIT_SIZE)


def due_times(units: NDArray[np.void]) -> NDArray[np.int64]:
    """int64[n], ms: `due_time` of each; below 0 where it is more than a long."""
    import numpy as np

    times: NDArray[np.int64] = units["write_time"].astype(np.int64) + units["delay"]
    return times


def sound(units: NDArray[np.void], offset: int) -> NDArray[np.bool_]:
    """bool[n]: units that have no `fault`, where the first lies at `offset` (bytes) and one follows the other."""
    import numpy as np

    last_before = np.arange(len(units), dtype=np.int64) * UNIT_SIZE + (offset - UNIT_SIZE)
    previous = units["previous"].astype(np.int64)
    right: NDArray[np.bool_] = (units["size"] == UNIT_SIZE) & (units["magic"] <= MAGIC_MOST)
    right &= (previous == NO_UNIT) | ((previous >= 0) & (previous <= last_before))
    right &= (units["write_time"] >= 0) & (due_times(units) >= 0)
    right &= (units["physical_offset"] >= 0) & (units["message_size"] > 0)
    return right
